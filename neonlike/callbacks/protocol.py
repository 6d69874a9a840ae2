"""Protocols of the records of a training, which an HDF5 file and a store in memory implement, and of its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np


class Record(Protocol):
    """An array with attributes. ``h5py.Dataset`` and :class:`~neonlike.callbacks.store.MemoryDataset` implement it."""

    @property
    def attrs(self) -> Any:
        """Attributes by name."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the array."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...

    def __setitem__(self, index: Any, value: Any) -> None: ...


class Records(Protocol):
    """Groups and arrays by paths. ``h5py.File`` and :class:`~neonlike.callbacks.store.MemoryStore` implement it."""

    @property
    def attrs(self) -> Any:
        """Attributes by name."""
        ...

    def __contains__(self, path: str) -> bool: ...

    def __getitem__(self, path: str) -> Any: ...

    def __delitem__(self, path: str) -> None: ...

    def __iter__(self) -> Iterator[str]: ...

    def get(self, path: str, default: Any = None) -> Any:
        """The group or array at a path, or ``default``.

        Parameters
        ----------
        path : str
            Its path.
        default : object
            Result if there is none.
        """
        ...

    def keys(self) -> Any:
        """Names of the groups and arrays, without those inside groups."""
        ...

    def visititems(self, visit: Callable[[str, Any], Any]) -> Any:
        """Call ``visit(path, group or array)`` for all of them, until it returns something else than None."""
        ...

    def require_group(self, path: str) -> Any:
        """The group at a path, created if missing."""
        ...

    def create_dataset(
        self, path: str, shape: Any = None, dtype: Any = None, data: Any = None, fillvalue: Any = 0, **storage: Any
    ) -> Any:
        """Create an array, float32 by default, and its parent groups.

        Parameters
        ----------
        path : str
            Its path.
        shape : tuple of int, optional
            Its shape, unless ``data`` has one.
        dtype : dtype, optional
            Its dtype.
        data : array, optional
            Its values.
        fillvalue : float
            Value of all elements without ``data``.
        **storage
            How a file stores it.
        """
        ...

    def flush(self) -> Any:
        """Write everything to the file, if there is one."""
        ...

    def close(self) -> Any:
        """Close the file, if there is one."""
        ...


class Report(Protocol):
    """A page about a training; :class:`~neonlike.report.training.RunReport` implements it."""

    def is_due(self) -> bool:
        """Whether a training that goes on writes its report again."""
        ...

    def write(self, store: Records) -> None:
        """Write the report of a training that is still going on or has ended.

        Parameters
        ----------
        store : Records
            Its records so far.
        """
        ...
