"""Wrappers that transform a loader's batches: one-hot labels, type casts, pixel normalization.

A loader yields tuples of tensors ``(features, N)``; its ``shapes()`` returns the sample shape of each.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neonlike.data.protocol import NervanaDataIterator
from neonlike.data.sharing import shares_batches
from neonlike.errors import ArgumentError, NotDefined
from neonlike.optree.dtypes import is_float
from neonlike.util.atomic import replacing
from neonlike.util.persist import expand
from neonlike.util.png import encode_png

__all__ = [
    "BGRMeanSubtract",
    "DataLoaderTransformer",
    "DumpImage",
    "OneHot",
    "PixelWiseOneHot",
    "Retuple",
    "TypeCast",
    "ValueNormalize",
]


class DataLoaderTransformer(NervanaDataIterator):
    """Base of loader wrappers, with the loader's attributes. A subclass defines :meth:`transform`.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int, optional
        Index of the transformed element in each tuple; by default the whole tuple is transformed.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import DataLoaderTransformer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Negative(DataLoaderTransformer):
    ...     def transform(self, t):
    ...         return -t
    >>> loader = [(be.ones((1, 2)), be.zeros((1, 2)))]
    >>> [(x.tolist(), t.tolist()) for x, t in Negative(loader, index=0)]
    [([[-1.0, -1.0]], [[0.0, 0.0]])]
    """

    from_description = False

    def __init__(self, dataloader: Any, index: int | None = None) -> None:
        super().__init__()
        self.dataloader = dataloader
        self.index = index

    def __getattr__(self, name: str) -> Any:
        if name == "dataloader":  # not constructed yet
            raise AttributeError(name)
        return getattr(self.dataloader, name)

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Whether several ranks share the loader's batches."""
        return shares_batches(self.dataloader)

    def reset(self) -> None:
        """Restart at the first sample."""
        self.dataloader.reset()

    def progress(self) -> dict[str, Any]:
        """The loader's position."""
        return self.dataloader.progress() if hasattr(self.dataloader, "progress") else {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Set the loader's position."""
        if hasattr(self.dataloader, "set_progress"):
            self.dataloader.set_progress(saved)

    def transform(self, t: Any) -> Any:
        """Return the replacement of the element (or tuple) ``t``.

        Parameters
        ----------
        t : Tensor, or tuple of Tensor
            The element with the index, ``(features, N)``, or without an index the whole batch.
        """
        raise NotDefined(f"{self.classnm} does not define transform")

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataloader:
            made = self.transform(batch if self.index is None else batch[self.index])
            if made is None:
                raise ArgumentError(f"{self.classnm}: transform returned None; it must return what it made")
            if self.index is None:
                yield made
            else:
                changed = list(batch)
                changed[self.index] = made
                yield tuple(changed)


class _Buffered(DataLoaderTransformer):
    """A transformer with an output buffer, reallocated when the shape or backend changes."""

    _buffer: Any = None

    def _output(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        wanted = np.dtype(dtype or self.be.default_dtype)
        buffer = self._buffer
        if buffer is None or buffer.shape != shape or buffer.backend is not self.be or buffer.dtype != wanted:
            self._buffer = buffer = self.be.empty(shape, dtype=wanted)
        return buffer


class OneHot(_Buffered):
    """Converts labels ``(1, N)`` to one-hot columns ``(nclasses, N)``.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    nclasses : int
        Number of classes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import OneHot
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.ones((3, 2)), be.array([[0, 2]], dtype="int32"))]
    >>> [t.tolist() for x, t in OneHot(loader, index=1, nclasses=3)]
    [[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    """

    def __init__(self, dataloader: Any, index: int, nclasses: int) -> None:
        super().__init__(dataloader, index)
        self.nclasses = nclasses

    def transform(self, t: Any) -> Any:
        """One-hot columns of labels."""
        output = self._output((self.nclasses, t.size))
        output[:] = self.be.onehot(_whole(t).reshape((1, t.size)), axis=0)
        return output


class PixelWiseOneHot(_Buffered):
    """Converts pixel labels ``(H*W, N)`` to one map per class, ``(nclasses*H*W, N)``.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    nclasses : int
        Number of classes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import PixelWiseOneHot
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.ones((3, 2)), be.array([[0, 1], [1, 1]], dtype="int32"))]  # two pixels, two samples
    >>> [t.tolist() for x, t in PixelWiseOneHot(loader, index=1, nclasses=2)]
    [[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]
    """

    def __init__(self, dataloader: Any, index: int, nclasses: int) -> None:
        super().__init__(dataloader, index)
        self.nclasses = nclasses

    def transform(self, t: Any) -> Any:
        """Maps of ones and zeros."""
        pixels, bsz = t.shape
        output = self._output((self.nclasses * pixels, bsz))
        labels = _whole(t).reshape((1, pixels * bsz))
        output.reshape((self.nclasses, pixels * bsz))[:] = self.be.onehot(labels, axis=0)
        return output


class TypeCast(_Buffered):
    """Casts an element to a dtype.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    dtype : dtype
        The new dtype.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import TypeCast
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.array([[3, 4]], dtype="int32"), be.ones((1, 2)))]
    >>> [x.dtype.name for x, t in TypeCast(loader, index=0, dtype="float32")]
    ['float32']
    """

    def __init__(self, dataloader: Any, index: int, dtype: Any) -> None:
        super().__init__(dataloader, index)
        self.dtype = dtype

    def transform(self, t: Any) -> Any:
        """The same values in the dtype."""
        output = self._output(t.shape, self.dtype)
        output[:] = t
        return output


class Retuple(DataLoaderTransformer):
    """Groups the elements of each tuple into data and targets.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    data, target : sequence of int
        Indices of the elements; several form a tuple.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import Retuple
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.ones((3, 2)), be.ones((4, 2)), be.ones((5, 2)))]
    >>> [(len(x), t.shape) for x, t in Retuple(loader, data=(0, 1), target=(2,))]
    [(2, (5, 2))]
    """

    def __init__(self, dataloader: Any, data: Sequence[int] = (0,), target: Sequence[int] = (1,)) -> None:
        super().__init__(dataloader)
        self.data = tuple(data)
        self.target = tuple(target)

    def transform(self, t: Any) -> Any:
        """``(data, targets)``."""
        return _group(t, self.data), _group(t, self.target)


class BGRMeanSubtract(_Buffered):
    """Subtracts a mean from each of three channels, in the images' channel order; in place if floating.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    pixel_mean : sequence of 3 floats
        Mean of each channel.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import BGRMeanSubtract
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), None)]  # one pixel in three channels
    >>> [x.tolist() for x, t in BGRMeanSubtract(loader, index=0, pixel_mean=(1, 2, 3))]
    [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]]
    """

    def __init__(self, dataloader: Any, index: int, pixel_mean: Sequence[float] = (127, 119, 104)) -> None:
        super().__init__(dataloader, index)
        self.pixel_mean = pixel_mean
        self._mean: Any = None

    def transform(self, t: Any) -> Any:
        """Images less the mean."""
        if self._mean is None or self._mean.backend is not self.be:
            self._mean = self.be.array(np.reshape(self.pixel_mean, (-1, 1)))
        channels = len(self._mean)
        output = t if _is_floating(t) else self._output(t.shape)
        by_channel = (channels, t.size // channels)
        output.reshape(by_channel)[:] = t.reshape(by_channel) - self._mean
        return output


class ValueNormalize(_Buffered):
    """Maps one range of values linearly to another; in place if floating.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    source_range, target_range : pairs of float
        Smallest and largest value, before and after.

    Raises
    ------
    ArgumentError
        If ``source_range`` is a single value.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import ValueNormalize
    >>> be = gen_backend("cpu", batch_size=2)
    >>> loader = [(be.array([[0.0, 4.0]]), None)]
    >>> [x.tolist() for x, t in ValueNormalize(loader, index=0, source_range=(0, 4), target_range=(-1, 1))]
    [[[-1.0, 1.0]]]
    """

    def __init__(
        self,
        dataloader: Any,
        index: int,
        source_range: Sequence[float] = (0.0, 255.0),
        target_range: Sequence[float] = (0.0, 1.0),
    ) -> None:
        super().__init__(dataloader, index)
        self.source_range = source_range
        self.target_range = target_range
        low, high = source_range
        if low == high:
            raise ArgumentError(f"ValueNormalize: source_range={source_range} is a single value, not a range")
        self._scale = (target_range[1] - target_range[0]) / (high - low)
        self._offset = target_range[0] - low * self._scale

    def transform(self, t: Any) -> Any:
        """Values in the target range."""
        output = t if _is_floating(t) else self._output(t.shape)
        output[:] = t * self._scale + self._offset
        return output


class DumpImage(DataLoaderTransformer):
    """Saves one image of each batch as a PNG file and leaves the batch as it is.

    Parameters
    ----------
    dataloader : iterable
        Loader whose batches, tuples of tensors, are changed.
    index : int
        Place of the changed element in each tuple.
    image_index : int
        Which image of the batch; of several ranks, the one that has it saves it.
    outshape : tuple
        Its shape ``(C, H, W)``, C = 1 or 3; values go from 0 to 255.
    output_directory : path, optional
        Folder, created if missing; a new temporary one by default, of each rank. The attribute holds its path.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloader_transformers import DumpImage
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> loader = [(be.zeros((4, 2)), None)]
    >>> for x, t in DumpImage(loader, 0, image_index=1, outshape=(1, 2, 2), output_directory=folder.name):
    ...     print(len(os.listdir(folder.name)))
    1
    >>> folder.cleanup()
    """

    def __init__(
        self, dataloader: Any, index: int, image_index: int, outshape: Sequence[int], output_directory: Any = None
    ) -> None:
        super().__init__(dataloader, index)
        self.image_index = image_index
        self.outshape = tuple(outshape)
        self.output_directory = expand(output_directory) if output_directory else tempfile.mkdtemp(prefix="neonlike-")
        self._count = 0

    def transform(self, t: Any) -> Any:
        """Return ``t`` itself."""
        column = self._own_column(t.shape[1])
        if column is not None:
            self._save(t[:, column].get())
        self._count += 1
        return t

    def _own_column(self, columns: int) -> int | None:
        """Column of the image on this rank; None if another rank has it."""
        ranks = self.be.ranks
        total = columns * ranks.size
        if not -total <= self.image_index < total:
            raise ArgumentError(f"DumpImage: image_index={self.image_index}, but a batch has {total} images")
        rank, column = divmod(self.image_index % total, columns)
        return column if rank == ranks.rank else None

    def _save(self, pixels: np.ndarray) -> None:
        if pixels.size != math.prod(self.outshape):
            raise ArgumentError(f"DumpImage: outshape={self.outshape}, but an image has {pixels.size} values")
        image = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).reshape(self.outshape).transpose(1, 2, 0)
        os.makedirs(self.output_directory, exist_ok=True)
        with replacing(os.path.join(self.output_directory, f"{self._count}.png")) as file:
            file.write(encode_png(image[:, :, 0] if image.shape[2] == 1 else np.ascontiguousarray(image)))


def _is_floating(t: Any) -> bool:
    return is_float(np.dtype(t.dtype))


def _whole(t: Any) -> Any:
    """Labels as integers."""
    return t.astype(np.int32) if _is_floating(t) else t


def _group(batch: Any, which: tuple[int, ...]) -> Any:
    chosen = tuple(batch[index] for index in which)
    return chosen[0] if len(chosen) == 1 else chosen
