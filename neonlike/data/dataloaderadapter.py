"""Adapter that copies host batches of an external loader, such as aeon, to the backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from neonlike.data.protocol import ArrayShapeError, NervanaDataIterator, columns
from neonlike.data.sharing import shares_batches
from neonlike.errors import ArgumentTypeError

__all__ = ["DataLoaderAdapter"]


class DataLoaderAdapter(NervanaDataIterator):
    """Yields a tensor ``(features, N)``, in the array's dtype, for each array ``(N, ...)`` of a batch.

    Each of several ranks copies its rows of a batch of ``be.global_bsz`` samples. The loader has to yield the same
    batches on all ranks: in the order of its files, or shuffled by a fixed seed. One that yields the rank's rows alone
    has the class attribute ``shares = True``.

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

    Raises
    ------
    ArrayShapeError
        If there are several ranks, and a batch of the loader is not of all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data.dataloaderadapter import DataLoaderAdapter
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Loader:
    ...     def shapes(self):
    ...         return [(3,), (1,)]
    ...     def __iter__(self):
    ...         yield np.ones((2, 3), dtype=np.float32), np.array([[0], [1]])
    >>> [(x.shape, t.tolist()) for x, t in DataLoaderAdapter(Loader())]
    [((3, 2), [[0, 1]])]
    """

    from_description = False
    shares = True

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
        whole = self.be.num_ranks == 1 or shares_batches(self.dataloader)
        for batch in self.dataloader:
            arrays = _arrays(batch) if whole else map(self._own_rows, _arrays(batch))
            yield tuple(self._to_device(i, array) for i, array in enumerate(arrays))

    def _own_rows(self, array: np.ndarray) -> np.ndarray:
        """This rank's rows of an array of all ranks."""
        if len(array) != self.be.global_bsz:
            raise ArrayShapeError(
                f"DataLoaderAdapter: a batch has {len(array)} samples, but {self.be.num_ranks} ranks share "
                f"be.global_bsz={self.be.global_bsz}; let the loader yield so many, the same on all ranks, or this "
                "rank's be.bsz alone, with shares = True in its class"
            )
        return array[self.be.own_columns]

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
