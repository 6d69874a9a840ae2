"""Images from a folder with one subfolder per class."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neonlike.data.drawing import DrawsEachEpoch
from neonlike.data.images import Augmentation, need_pillow
from neonlike.data.protocol import CyclicIterator, HostIterator, MissingData, columns
from neonlike.util.persist import expand

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolder(DrawsEachEpoch, HostIterator, CyclicIterator):
    """Batches of images labelled by their folder, read and augmented on demand.

    Files are ``path/<class>/<image>``; classes are numbered in alphabetical order. Needs Pillow. A thread reads ahead
    if wrapped in :class:`neonlike.data.Prefetch`. Values are 0 to 255; the wrappers of
    :mod:`neonlike.data.dataloader_transformers` convert them. Random draws follow the backend's seed. Each of several
    ranks reads its images alone, augmented as a process alone augments them.

    Parameters
    ----------
    path : folder
        Folder with a folder for each class.
    height, width : int
        Size of the resulting images; the width defaults to the height.
    shuffle : bool
        Shuffle each epoch.
    make_onehot : bool
        Use one-hot targets ``(nclass, N)``; otherwise labels ``(1, N)``, int32.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    **augmentation
        ``channels``, ``scale``, ``center``, ``flip_enable``, ``horizontal_distortion``, ``brightness``, ``contrast``,
        ``saturation``: see :class:`neonlike.data.images.Augmentation`.

    Attributes
    ----------
    shape : tuple
        ``(C, H, W)``.
    classes : list of str
        Names of the classes.

    Raises
    ------
    MissingData
        If the folder does not exist, or has no images.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> from PIL import Image
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ImageFolder
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name, grey in (("black", 0), ("white", 255)):
    ...     os.makedirs(os.path.join(folder.name, name))
    ...     Image.new("RGB", (8, 8), (grey, grey, grey)).save(os.path.join(folder.name, name, "one.png"))
    >>> data = ImageFolder(folder.name, height=4)
    >>> data.classes, data.shape, data.ndata
    (['black', 'white'], (3, 4, 4), 2)
    >>> [(x[0].tolist(), t.tolist()) for x, t in data]
    [([[0.0, 255.0]], [[1.0, 0.0], [0.0, 1.0]])]
    >>> folder.cleanup()
    """

    from_description = False  # construction reads a folder
    shares = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        height: int,
        width: int | None = None,
        shuffle: bool = False,
        make_onehot: bool = True,
        name: str | None = None,
        **augmentation: Any,
    ) -> None:
        super().__init__(name=name)
        need_pillow("ImageFolder")
        self.path = os.fspath(path)
        self.augmentation = Augmentation(height, width or height, **augmentation)
        self.shuffle = shuffle
        self.make_onehot = make_onehot
        self.classes, self._files, self._labels = _images_in(expand(path))
        self.nclass = len(self.classes)
        self.ndata = len(self._files)
        self.shape = self.augmentation.shape
        self.Xbuf: Any = None
        self.ybuf: Any = None

    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of a sample: the image, and its target."""
        return [self.shape, (self.nclass if self.make_onehot else 1,)]

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        self._check_size(self.ndata)
        self.Xbuf = self.be.iobuf(self.shape)
        self._dtype = self.Xbuf.dtype
        self._label_buf = self.be.iobuf(1, dtype=np.int32)
        self.ybuf = self.be.iobuf(self.nclass) if self.make_onehot else self._label_buf

    def _begin(self, first: int) -> None:
        if not self.shuffle:
            super()._begin(first)  # a shuffled epoch begins with the first sample of its own order

    def host_batches(self) -> Iterator[Any]:
        """Images ``(C*H*W, N)`` and labels ``(1, N)``."""
        rng = np.random.RandomState(self.epoch_seed)
        order = rng.permutation(self.ndata) if self.shuffle else np.arange(self.ndata)
        own = self.be.own_columns
        for first in self._firsts():
            chosen = np.concatenate([order[samples] for _, samples in self._pieces(first)])
            self.augmentation.skip(own.start, rng)
            images = np.stack([self.augmentation.read(self._files[i], rng) for i in chosen])
            self.augmentation.skip(self._batch_size() - own.stop, rng)
            yield columns(images, self._dtype), self._labels[chosen].reshape(1, -1)

    def send_ahead(self, batch: Any, send: Callable[[Any], Any]) -> Any:
        """Start copying the images to a GPU before :meth:`load`."""
        return send(batch[0]), batch[1]

    def load(self, batch: Any) -> tuple[Any, Any]:
        """Images and targets on the backend."""
        images, labels = batch
        self.Xbuf.set(images)
        self._label_buf.set(labels)
        if self.make_onehot:
            self.ybuf[:] = self.be.onehot(self._label_buf, axis=0)
        return self.Xbuf, self.ybuf

    def batch_begins(self, number: int) -> None:
        """End the epoch after its last batch."""
        self._begin(self.start + number * self._batch_size())


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether a file name has an image suffix and is not hidden; other systems leave hidden files beside each file."""
    return entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file()


def _images_in(folder: str) -> tuple[list[str], list[str], np.ndarray]:
    """List classes, files and labels of a folder with one subfolder per class."""
    if not os.path.isdir(folder):
        raise MissingData(f"ImageFolder: there is no folder {folder}")
    with os.scandir(folder) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        with os.scandir(os.path.join(folder, name)) as entries:
            found = sorted(entry.path for entry in entries if _is_image(entry))
        files += found
        labels += [label] * len(found)
    if not files:
        raise MissingData(
            f"ImageFolder: {folder} has no images; expected {os.path.join(folder, '<class>', '<image>')} with one of "
            f"the suffixes {', '.join(SUFFIXES)}"
        )
    return classes, files, np.array(labels, dtype=np.int32)
