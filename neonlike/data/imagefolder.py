"""Images from a folder with a subfolder for each class."""

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
    """Batches of images with the name of their folder as class, read and augmented as they are needed.

    ``path/<class>/<image>``; classes are numbered in the order of their names. Needs Pillow. With
    :class:`neonlike.data.Prefetch` around it a thread reads ahead. Values go from 0 to 255; the wrappers of
    :mod:`neonlike.data.dataloader_transformers` change that. What is drawn at random follows the backend's seed.

    Parameters
    ----------
    path : folder
    height, width : int
        Size of the images that come out; the width is the height by default.
    shuffle : bool
        Another order in each epoch.
    make_onehot : bool
        Targets are one-hot columns ``(nclass, N)``; else labels ``(1, N)``, int32.
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
        If there is no such folder, or no image in it.
    """

    from_description = False  # making one reads a folder

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
        """Make the buffers on the current backend, for its batch size."""
        self._check_size(self.ndata)
        self.Xbuf = self.be.iobuf(self.shape)
        self._dtype = self.Xbuf.dtype
        self._label_buf = self.be.iobuf(1, dtype=np.int32)
        self.ybuf = self.be.iobuf(self.nclass) if self.make_onehot else self._label_buf

    def _begin(self, first: int) -> None:
        if not self.shuffle:
            super()._begin(first)  # else each epoch begins with the first of its own order

    def host_batches(self) -> Iterator[Any]:
        """Images ``(C*H*W, N)`` and labels ``(1, N)``."""
        rng = np.random.RandomState(self.epoch_seed)
        order = rng.permutation(self.ndata) if self.shuffle else np.arange(self.ndata)
        for first in self._firsts():
            chosen = np.concatenate([order[samples] for _, samples in self._pieces(first)])
            images = np.stack([self.augmentation.read(self._files[i], rng) for i in chosen])
            yield columns(images, self._dtype), self._labels[chosen].reshape(1, -1)

    def send_ahead(self, batch: Any, send: Callable[[Any], Any]) -> Any:
        """Have the copy of the images to a GPU begin before :meth:`load`."""
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
        """After the last batch an epoch is over."""
        self._begin(self.start + number * self._batch_size())


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether a file is called as an image is; hidden ones are what other systems leave beside each file."""
    return entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file()


def _images_in(folder: str) -> tuple[list[str], list[str], np.ndarray]:
    """Classes, files and labels of a folder with a subfolder for each class."""
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
