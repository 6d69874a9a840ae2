"""Image data sets: handwritten digits, CIFAR-10, and random pixels for timing networks."""

from __future__ import annotations

import gzip
import os
from typing import Any, ClassVar

import numpy as np

from neonlike.data import whitening
from neonlike.data.dataiterator import ArrayIterator
from neonlike.data.datasets import Dataset
from neonlike.data.digits import Digits
from neonlike.data.protocol import DamagedData
from neonlike.data.text_preprocessing import load_data_file
from neonlike.errors import ArgumentError
from neonlike.util.persist import expand

__all__ = ["CIFAR10", "DUMMY", "MNIST", "Digits"]

Part = tuple[np.ndarray, np.ndarray]


class MNIST(Dataset):
    """Handwritten digits (LeCun, Cortes, Burges), 28 x 28 pixels: 60,000 for training and 10,000 for validation.

    Read from ``mnist.pkl.gz``, a pickled ``(images, labels), (images, labels)``, or from the four IDX files
    (``train-images-idx3-ubyte[.gz]`` ...) in the folder.

    Parameters
    ----------
    path : folder
        Folder for the files, created if missing; ``~`` is expanded.
    subset_pct : float
        Percentage of the images to use.
    normalize : bool
        Scale values to 0 to 1, from 0 to 255.
    sym_range : bool
        With ``normalize``: from −1 to 1.
    size : int
        Side length in pixels: images are padded with zeros, or cut, at the right and bottom.
    shuffle : bool
        Shuffle the training images, with their labels, by ``be.rng``.

    Raises
    ------
    ArgumentError
        If ``size`` is below 1.

    References
    ----------
    LeCun et al., "Gradient-based learning applied to document recognition" (1998).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import MNIST
    >>> be = gen_backend("cpu", batch_size=2)
    >>> mnist = MNIST(path="data", normalize=True)
    >>> train, valid = mnist.train_iter, mnist.valid_iter  # doctest: +SKIP
    >>> train.shape, train.nclass  # doctest: +SKIP
    ((1, 28, 28), 10)
    """

    TAKES_SUBSETS = True
    FILE, BYTES = "mnist.pkl.gz", 15296311
    IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        subset_pct: float = 100,
        normalize: bool = True,
        sym_range: bool = False,
        size: int = 28,
        shuffle: bool = False,
    ) -> None:
        super().__init__(self.FILE, "https://s3.amazonaws.com/img-datasets", self.BYTES, path, subset_pct)
        if size < 1:
            raise ArgumentError(f"MNIST: size={size}; expected the pixels of a side, 1 or more")
        self.normalize, self.sym_range, self.size, self.shuffle = normalize, sym_range, size, shuffle

    def load_data(self) -> tuple[Part, Part, int]:
        """Training part, test part (images ``(n, size*size)`` float32, labels ``(n,)`` int32) and 10."""
        train, test = (self._prepared(*part) for part in self._parts())
        if self.shuffle:
            order = self.require_backend("load_data").rng.permutation(len(train[0]))
            train = train[0][order], train[1][order]
        return train, test, 10

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``valid``."""
        train, test, nclass = self.load_data()
        shape = (1, self.size, self.size)
        return {
            name: ArrayIterator(X, y, nclass=nclass, lshape=shape, name=name)
            for name, (X, y) in (("train", train), ("valid", test))
        }

    def _parts(self) -> list[Part]:
        folder = self._valid_path_append(self.path)
        files = [_first_existing(os.path.join(folder, name)) for name in self.IDX]
        if not os.path.exists(os.path.join(folder, self.FILE)) and all(files):
            arrays = [read_idx(file) for file in files]
            return [_digits(files[i], arrays[i], arrays[i + 1]) for i in (0, 2)]
        path = self.load_zip(self.FILE, self.BYTES)
        loaded = load_data_file("MNIST", path)
        try:
            (images, labels), (test_images, test_labels) = loaded
        except (TypeError, ValueError) as error:
            raise DamagedData(f"MNIST: {path} does not hold (images, labels), (images, labels)") from error
        return [_digits(path, images, labels), _digits(path, test_images, test_labels)]

    def _prepared(self, images: np.ndarray, labels: np.ndarray) -> Part:
        count = int(len(images) * self.subset_pct / 100)
        images, labels = images[:count, : self.size, : self.size], labels[:count]
        missing = self.size - images.shape[1]
        X = np.pad(images, ((0, 0), (0, missing), (0, missing))).reshape(count, -1).astype(np.float32)
        if self.normalize:
            X /= 255
            if self.sym_range:
                X = X * 2 - 1
        return X, labels.astype(np.int32)


def _digits(path: str, images: Any, labels: Any) -> Part:
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim == 2 and images.shape[1] == 784:
        images = images.reshape(-1, 28, 28)
    if images.shape[1:] != (28, 28) or labels.size != len(images):
        raise DamagedData(
            f"MNIST: {path} has images of shape {images.shape} and labels of shape {labels.shape}; expected "
            "(n, 28, 28) and (n,)"
        )
    return images, labels.reshape(-1)


def _first_existing(path: str) -> str:
    return next((name for name in (path, path + ".gz") if os.path.exists(name)), "")


def read_idx(path: str) -> np.ndarray:
    """Read the array of bytes in an IDX file, optionally gzipped.

    Raises
    ------
    DamagedData
        If it has another format or length.
    """
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            content = file.read()
    except (EOFError, OSError) as error:
        raise DamagedData(f"{path} is damaged, or not a whole file ({error})") from error
    axes = content[3] if len(content) > 3 else 0
    shape = np.frombuffer(content[4 : 4 + 4 * axes], ">u4") if len(content) >= 4 + 4 * axes else np.zeros(0)
    if content[:3] != b"\0\0\x08" or not axes or len(content) != 4 + 4 * axes + np.prod(shape, dtype=np.int64):
        raise DamagedData(f"{path} is no file of bytes in IDX format, or not a whole one")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape.astype(int))


class CIFAR10(Dataset):
    """Colour images of ten classes (Krizhevsky 2009), 3 x 32 x 32: 50,000 for training and 10,000 for validation.

    Read from the folder ``cifar-10-batches-py`` in ``path``, unpacked from ``cifar-10-python.tar.gz``.

    Parameters
    ----------
    path : folder
        Folder for the files, created if missing; ``~`` is expanded.
    subset_pct : float
        Kept for compatibility: 100, since the images are used as a whole.
    normalize : bool
        Scale values to 0 to 1, from 0 to 255.
    contrast_normalize : bool
        Subtract each image's mean and scale the image to norm 55.
    whiten : bool
        Apply ZCA whitening with statistics of the training images, cached in a file in the folder.
    pad_classes : bool
        Use 16 classes, of which six stay empty.

    References
    ----------
    Krizhevsky, "Learning multiple layers of features from tiny images" (2009).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import CIFAR10
    >>> be = gen_backend("cpu", batch_size=2)
    >>> cifar = CIFAR10(path="data", contrast_normalize=True, whiten=True)
    >>> train, valid = cifar.train_iter, cifar.valid_iter  # doctest: +SKIP
    >>> train.shape, train.nclass  # doctest: +SKIP
    ((3, 32, 32), 10)
    """

    ARCHIVE, BYTES = "cifar-10-python.tar.gz", 170498071
    DIGESTS: ClassVar[dict[str, str]] = {ARCHIVE: "md5:c58f30108f718f92721af3b95e74349a"}
    FOLDER = "cifar-10-batches-py"
    FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        subset_pct: float = 100,
        normalize: bool = True,
        contrast_normalize: bool = False,
        whiten: bool = False,
        pad_classes: bool = False,
    ) -> None:
        super().__init__(self.ARCHIVE, "https://www.cs.toronto.edu/~kriz", self.BYTES, path, subset_pct)
        self.normalize, self.contrast_normalize = normalize, contrast_normalize
        self.whiten, self.pad_classes = whiten, pad_classes

    def load_data(self) -> tuple[Part, Part, int]:
        """Training part, test part (images ``(n, 3072)`` float32, labels ``(n, 1)`` int32), number of classes."""
        *batches, test = (self._batch(name) for name in self.FILES)
        X, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        X_test, y_test = test
        if self.normalize:
            X, X_test = X / 255, X_test / 255
        if self.contrast_normalize:
            X, X_test = (self.global_contrast_normalize(part, scale=55.0) for part in (X, X_test))
        if self.whiten:
            options = f"{int(bool(self.normalize))}{int(bool(self.contrast_normalize))}"
            cache = os.path.join(expand(self.path), f"cifar-10-zca-{options}.pkl")
            X, X_test = self.zca_whiten(X, X_test, cache=cache)
        return (X, y), (X_test, y_test), 16 if self.pad_classes else 10

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``valid``."""
        train, test, nclass = self.load_data()
        return {
            name: ArrayIterator(X, y, nclass=nclass, lshape=(3, 32, 32), name=name)
            for name, (X, y) in (("train", train), ("valid", test))
        }

    def _batch(self, name: str) -> Part:
        path = self.find(f"{self.FOLDER}/{name}", self.ARCHIVE, self.BYTES)
        loaded = load_data_file("CIFAR10", path)
        try:
            X = np.asarray(loaded["data"]).reshape(-1, 3072).astype(np.float32)
            y = np.asarray(loaded["labels"], dtype=np.int32).reshape(len(X), 1)
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise DamagedData(f"CIFAR10: {path} has no 'data' (n, 3072) with 'labels' ({error!r})") from error
        return X, y

    global_contrast_normalize = staticmethod(whitening.global_contrast_normalize)
    zca_whiten = staticmethod(whitening.zca_whiten)


class DUMMY(Dataset):
    """Random images of 3 x 224 x 224 with random labels from 1000 classes, for timing networks.

    Parameters
    ----------
    batch_size : int
        Number of images.
    path, subset_pct, normalize, contrast_normalize, whiten, pad_classes
        Accepted for interchangeability with CIFAR10; they have no effect.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import DUMMY
    >>> be = gen_backend("cpu", batch_size=2)
    >>> (images, labels), _, classes = DUMMY(batch_size=2).load_data()
    >>> images.shape, classes
    ((2, 150528), 1000)
    """

    NCLASS = 1000

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        subset_pct: float = 100,
        normalize: bool = True,
        contrast_normalize: bool = False,
        whiten: bool = False,
        pad_classes: bool = False,
        batch_size: int = 128,
    ) -> None:
        super().__init__("", "", 0, path, subset_pct)
        self.normalize, self.contrast_normalize = normalize, contrast_normalize
        self.whiten, self.pad_classes = whiten, pad_classes
        self.batch_size = batch_size

    def load_data(self) -> tuple[Part, Part, int]:
        """Return images ``(batch_size, 150528)`` from 0 to 1 with labels, as both parts, and 1000."""
        rng = self.require_backend("load_data").rng
        X = rng.uniform(size=(self.batch_size, 3 * 224 * 224)).astype(np.float32)
        part = X, rng.randint(0, self.NCLASS, self.batch_size).astype(np.int32)
        return part, part, self.NCLASS

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``valid``."""
        (X, y), _, nclass = self.load_data()
        shape = (3, 224, 224)
        return {name: ArrayIterator(X, y, nclass=nclass, lshape=shape, name=name) for name in ("train", "valid")}
