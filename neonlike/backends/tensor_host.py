"""Protocol of a tensor's backend: the only dependency of tensors on backends."""

from __future__ import annotations

from typing import Any, Protocol


class TensorHost(Protocol):
    """Assigns, creates and records tensors. ``Backend`` implements it; a tensor's own file needs no more of it."""

    @property
    def default_dtype(self) -> Any:
        """Default dtype of new tensors."""
        ...

    def assign(self, target: Any, value: Any) -> Any:
        """Compute ``value`` into the tensor ``target`` and return it."""
        ...

    def fresh(self, shape: Any, dtype: Any = None, name: str | None = None, persist_values: bool = True) -> Any:
        """Create a tensor with undefined elements.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : dtype, optional
            None: the backend's.
        name : str, optional
        persist_values : bool
            False: the values may be dropped between passes.
        """
        ...

    def array(self, ary: Any, dtype: Any = None, name: str | None = None, persist_values: bool = True) -> Any:
        """Create a tensor with the values of host data.

        Parameters
        ----------
        ary : array, nested lists or number
        dtype, name, persist_values
            As in :meth:`fresh`.
        """
        ...

    def record_histogram(self, tensor: Any, tag: str) -> Any:
        """Record counts of the magnitudes of ``tensor`` under ``tag``."""
        ...

    def check_open(self, operation: str) -> None:
        """Raise BackendUnavailable if the backend is closed and cannot do ``operation``."""
        ...
