"""Adapter that copies host batches of an external loader, such as aeon, to the backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from neonlike.data.protocol import NervanaDataIterator, columns
from neonlike.errors import ArgumentTypeError

__all__ = ["DataLoaderAdapter"]


class DataLoaderAdapter(NervanaDataIterator):
    """Yields a tensor ``(features, N)``, in the array's dtype, for each array ``(N, ...)`` of a batch.

    Parameters
    ----------
    dataloader : iterable
        Yields arrays, pairs of names and arrays, or dictionaries of arrays. The adapter has its attributes, too.
        ``shapes()`` returns the sample shape of each array; otherwise ``axes_info`` does, in aeon's form:
        ``[(name, [(axis, size), ...]), ...]``.

    Attributes
    ----------
    shape : tuple
        Shape of a sample of the first array.
    """

    from_description = False

    def __init__(self, dataloader: Any) -> None:
        super().__init__()
        self.dataloader = dataloader
        self._buffers: list[Any] = []
        self.shape = self.shapes()[0]

    def __getattr__(self, name: str) -> Any:
        if name == "dataloader":  # not constructed yet
            raise AttributeError(name)
        return getattr(self.dataloader, name)

    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of a sample of each array."""
        if callable(given := getattr(self.dataloader, "shapes", None)):
            return [tuple(shape) for shape in given()]
        if (axes := getattr(self.dataloader, "axes_info", None)) is not None:
            return [tuple(int(size) for _, size in sizes) for _, sizes in axes]
        raise ArgumentTypeError(
            f"DataLoaderAdapter: a {type(self.dataloader).__name__} has neither shapes() nor axes_info, which say the "
            "shape of a sample"
        )

    def reset(self) -> None:
        """Restart at the first sample."""
        self.dataloader.reset()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.dataloader:
            yield tuple(self._to_device(i, array) for i, array in enumerate(_arrays(batch)))

    def _to_device(self, position: int, array: np.ndarray) -> Any:
        host = columns(array, array.dtype)
        if position == len(self._buffers):
            self._buffers.append(None)
        buffer = self._buffers[position]
        if buffer is None or buffer.shape != host.shape or buffer.dtype != host.dtype or buffer.backend is not self.be:
            buffer = self._buffers[position] = self.be.empty(host.shape, dtype=host.dtype)
        return buffer.set(host)


def _arrays(batch: Any) -> list[np.ndarray]:
    """The arrays of a batch, in order."""
    values = batch.values() if isinstance(batch, Mapping) else batch
    return [np.asarray(value[1] if _is_named(value) else value) for value in values]


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str)
