"""Read-only tensors: over files mapped for reading, and over memory with repeated elements."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from neonlike.backends.tensor import Tensor, put
from neonlike.errors import ReadOnlyError


class Protected(Tensor):
    """A tensor that refuses writes while ``writeable`` is False, as do its protected views.

    It has its own class, so that the extension leaves all operations with it to Python.
    """

    def keeps(self, array: Any) -> bool:
        """Whether a view of the memory ``array`` is protected as well."""
        return not self.writeable

    def reason(self) -> str:
        """Reason for the protection, and the remedy."""
        raise NotImplementedError

    def _make_view(self, array: Any) -> Any:
        if not self.keeps(array):
            return super()._make_view(array)  # type: ignore[misc]
        kind: Any = type(self)
        view = kind(self.backend, array, self.name, self.persist_values, base=self)
        put(view, "writeable", self.writeable)
        return view

    def _set_host(self, host: Any) -> None:
        self.check_writeable("set")
        super()._set_host(host)

    def check_writeable(self, operation: str) -> None:
        """Raise ReadOnlyError if the tensor is read-only."""
        if not self.writeable:
            raise ReadOnlyError(f"{operation}: {self.reason()}")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface of GPU tensors, marked as read-only if it is."""
        found = dict(super().__cuda_array_interface__)  # type: ignore[misc]
        return {**found, "data": (found["data"][0], not self.writeable)}


class Repeating(Protected):
    """A tensor over foreign memory with several elements at one address, such as an expanded array."""

    writeable = False

    def keeps(self, array: Any) -> bool:
        """Whether several elements of ``array`` share an address as well."""
        return repeats(array)

    def reason(self) -> str:
        """Reason for the protection: strides that repeat elements."""
        return (
            f"elements of a tensor of shape {self.shape} with strides {self.strides} share memory, so it must not be "
            "written: one value would be several; write to a copy: t.copy()"
        )


@lru_cache
def class_over(kind: type[Protected], tensor_cls: type[Tensor]) -> Any:
    """Class of protected tensors of ``kind`` for a backend with tensors of ``tensor_cls``."""
    return type(f"{kind.__name__}{tensor_cls.__name__}", (kind, tensor_cls), {"__doc__": kind.__doc__})


def class_for(array: Any, tensor_cls: type[Tensor]) -> Any:
    """Class for a tensor over the foreign ``array``: ``tensor_cls``, unless elements share addresses."""
    return class_over(Repeating, tensor_cls) if repeats(array) else tensor_cls  # type: ignore[arg-type]


def repeats(array: Any) -> bool:
    """Whether several elements of ``array``, of NumPy or on a GPU, share an address."""
    if 0 in array.shape:
        return False
    axes = sorted((abs(step) // array.dtype.itemsize, n) for step, n in zip(array.strides, array.shape) if n > 1)
    reach = 1  # elements from the first to the last along the axes so far
    for step, size in axes:
        if step < reach:
            return step == 0 or _coincide(axes)
        reach += step * (size - 1)
    return False


def _coincide(axes: list[tuple[int, int]]) -> bool:
    """Whether two elements along ``axes`` (step, size) share an address, by listing all addresses."""
    places = np.zeros(1, np.int64)
    for step, size in axes:
        places = np.add.outer(places, step * np.arange(size)).reshape(-1)
    return len(np.unique(places)) < len(places)
