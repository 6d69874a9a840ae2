"""Real handwritten digits without a download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.data.dataiterator import ArrayIterator
from neonlike.data.datasets import Dataset
from neonlike.errors import ArgumentError, MissingExtra

__public_module__ = "neonlike.data.image"

Part = tuple[np.ndarray, np.ndarray]


class Digits(Dataset):
    """The 1,797 handwritten digits of 8 x 8 pixels from scikit-learn (Alpaydin, Kaynak 1998).

    The images are shuffled and split into disjoint parts. Needs scikit-learn, but no network.

    Parameters
    ----------
    path : object
        Not used: the images are part of scikit-learn.
    subset_pct : float
        Percentage of the training images to use.
    normalize : bool
        Scale values to −1 to 1, from 0 to 16.
    test_part, valid_part : float
        Fractions of all images for testing and for validation.
    seed : int
        Seed of the shuffled order.

    Raises
    ------
    ArgumentError
        If the parts leave no images to train with.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Digits
    >>> be = gen_backend("cpu", batch_size=2)
    >>> digits = Digits(test_part=0.5, valid_part=0.0)
    >>> (x, labels), (unseen, wanted), classes = digits.load_data()
    >>> print(x.shape[1], x.min(), x.max(), classes)
    64 -1.0 1.0 10
    """

    TAKES_SUBSETS = True
    NCLASS = 10

    def __init__(
        self,
        path: str = ".",
        subset_pct: float = 100,
        normalize: bool = True,
        test_part: float = 0.2,
        valid_part: float = 0.1,
        seed: int | None = 0,
    ) -> None:
        super().__init__("", "", 0, path, subset_pct)
        if not (test_part >= 0 and valid_part >= 0 and test_part + valid_part < 1):
            raise ArgumentError(
                f"Digits: test_part={test_part}, valid_part={valid_part}; expected parts of all images that leave some "
                "to train with"
            )
        self.normalize, self.test_part, self.valid_part, self.seed = normalize, test_part, valid_part, seed

    def load_parts(self) -> dict[str, Part]:
        """``test``, ``valid`` and ``train``: images ``(n, 64)`` and labels ``(n,)``."""
        pixels, labels = _images()
        order = np.random.RandomState(self.seed).permutation(len(pixels))
        pixels, labels = pixels[order], labels[order]
        if self.normalize:
            pixels = pixels / 8.0 - 1.0
        n_test, n_valid = int(self.test_part * len(pixels)), int(self.valid_part * len(pixels))
        rest = n_test + n_valid
        end = rest + int((len(pixels) - rest) * self.subset_pct / 100)
        bounds = {"test": (0, n_test), "valid": (n_test, rest), "train": (rest, end)}
        return {part: (pixels[first:last], labels[first:last]) for part, (first, last) in bounds.items()}

    def load_data(self) -> tuple[Part, Part, int]:
        """Training part, test part and 10."""
        parts = self.load_parts()
        return parts["train"], parts["test"], self.NCLASS

    def gen_iterators(self) -> dict[str, Any]:
        """``train``, ``valid`` and ``test``; parts without images are left out."""
        parts = self.load_parts()
        return {
            name: ArrayIterator(*parts[name], nclass=self.NCLASS, lshape=(1, 8, 8), name=name)
            for name in ("train", "valid", "test")
            if len(parts[name][0])
        }


def _images() -> Part:
    """All pixels and labels, as ``sklearn.datasets.load_digits`` has them.

    They are read from the file in scikit-learn where that still is, for to import scikit-learn takes a second.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingExtra("Digits needs scikit-learn; install it with: pip install 'neonlike[demo]'")
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1], table[:, -1].astype(int)
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    return pixels, labels
