"""Tensors that must not be written: over files that were mapped to be read, and over memory that repeats elements."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from neonlike.backends.tensor import Tensor, put
from neonlike.errors import ReadOnlyError


class Protected(Tensor):
    """A tensor that refuses to be written while ``writeable`` is False, and its views of which that is true as well.

    It is of a class of its own, so that the extension leaves all that is done with it to Python.
    """

    @property
    def call_layout(self) -> object:
        """Equal to that of no other tensor: calls of primitives with it are always checked."""
        return object()

    def keeps(self, array: Any) -> bool:
        """Whether a view of the memory ``array`` is protected as this tensor is."""
        return not self.writeable

    def reason(self) -> str:
        """Why it must not be written, and what to do instead."""
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
        """Raise ReadOnlyError if the tensor must not be written."""
        if not self.writeable:
            raise ReadOnlyError(f"{operation}: {self.reason()}")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As of other tensors on a GPU, saying whether it may be written."""
        found = dict(super().__cuda_array_interface__)  # type: ignore[misc]
        return {**found, "data": (found["data"][0], not self.writeable)}


class Repeating(Protected):
    """A tensor over another library's memory in which one place is several elements, as of an expanded array."""

    writeable = False

    def keeps(self, array: Any) -> bool:
        """Whether several elements of ``array`` are one place as well."""
        return repeats(array)

    def reason(self) -> str:
        """The steps that make elements share their places."""
        return (
            f"elements of a tensor of shape {self.shape} with strides {self.strides} share memory, so it must not be "
            "written: one value would be several; write to a copy: t.copy()"
        )


@lru_cache
def class_over(kind: type[Protected], tensor_cls: type[Tensor]) -> Any:
    """The class of tensors of ``kind`` of a backend whose tensors are of ``tensor_cls``."""
    return type(f"{kind.__name__}{tensor_cls.__name__}", (kind, tensor_cls), {"__doc__": kind.__doc__})


def class_for(array: Any, tensor_cls: type[Tensor]) -> Any:
    """The class for a tensor over ``array``, memory of others: ``tensor_cls``, unless elements share their places."""
    return class_over(Repeating, tensor_cls) if repeats(array) else tensor_cls  # type: ignore[arg-type]


def repeats(array: Any) -> bool:
    """Whether one place is several elements of ``array``, of NumPy or on a GPU."""
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
    """Whether two elements along ``axes`` (step, size) have one place, found by listing the places."""
    places = np.zeros(1, np.int64)
    for step, size in axes:
        places = np.add.outer(places, step * np.arange(size)).reshape(-1)
    return len(np.unique(places)) < len(places)
