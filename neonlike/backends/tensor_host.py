"""The protocol of the backend that a tensor lives on: the one direction in which tensors know backends."""

from __future__ import annotations

from typing import Any, Protocol


class TensorHost(Protocol):
    """Assigns, makes and records tensors. ``Backend`` is one; a tensor's own file need not know more of it."""

    @property
    def default_dtype(self) -> Any:
        """The dtype of tensors made without one."""
        ...

    def assign(self, target: Any, value: Any) -> Any:
        """Compute ``value`` into the tensor ``target`` and return that."""
        ...

    def fresh(self, shape: Any, dtype: Any = None, name: str | None = None, persist_values: bool = True) -> Any:
        """A new tensor, its elements undefined."""
        ...

    def array(self, ary: Any, dtype: Any = None, name: str | None = None, persist_values: bool = True) -> Any:
        """A new tensor with the values of host data."""
        ...

    def record_histogram(self, tensor: Any, tag: str) -> Any:
        """Counts of the magnitudes of ``tensor``, kept under ``tag``."""
        ...

    def check_open(self, operation: str) -> None:
        """Raise BackendUnavailable if there is no backend any more to do ``operation``."""
        ...
