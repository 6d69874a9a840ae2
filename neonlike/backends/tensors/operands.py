"""Operand checks of all compound primitives, run before any work, and plain arrays of the operands.

A primitive accepts tensors of any view; definition and kernels work on contiguous arrays of the compute dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.tensor import Tensor
from neonlike.checks import number
from neonlike.errors import AliasError, DTypeError, OtherBackend, ShapeError
from neonlike.kernels.c.convert import as_contiguous, store_floats
from neonlike.optree.dtypes import DType, compute_dtype, is_float
from neonlike.optree.shapes import Shape, is_regrouped

Array = npt.NDArray[Any]


def check_tensors(backend: Any, operation: str, **tensors: Any) -> None:
    """Raise unless each of ``tensors`` that is not None is a tensor (DTypeError) of the open ``backend``.

    Parameters
    ----------
    backend : Backend
    operation : str
        Name of the method for the message.
    **tensors : Tensor or None
        By the names of the arguments.
    """
    backend.check_open(operation)
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"{operation}: {name} must be a tensor, got {type(tensor).__name__}; "
                "make one with be.array(values), or compute an expression with astensor()"
            )
        if tensor.backend is not backend:
            raise OtherBackend(
                f"{operation}: {name} belongs to another backend, {tensor.backend!r}, and not to {backend!r}; "
                f"copy it: be.array({name}.get())"
            )


def require_tensors(backend: Any, operation: str, **tensors: Any) -> None:
    """:func:`check_tensors` that refuses None, too.

    Parameters
    ----------
    backend, operation, **tensors
        As in :func:`check_tensors`.
    """
    for name, tensor in tensors.items():
        if tensor is None:
            raise DTypeError(f"{operation}: {name} must be a tensor, got None")
    check_tensors(backend, operation, **tensors)


def check_floats(operation: str, **tensors: Any) -> DType:
    """Common float dtype of all ``tensors`` that are not None; DTypeError if they differ or are not floats."""
    present = {name: tensor.dtype for name, tensor in tensors.items() if tensor is not None}
    dtypes = set(present.values())
    if len(dtypes) != 1 or not is_float(next(iter(dtypes))):
        listed = ", ".join(f"{name} {dtype.name}" for name, dtype in present.items())
        text = f"the tensors must have one float dtype, got {listed}; convert with x.astype(dtype)"
        raise DTypeError(f"{operation}: {text}")
    return dtypes.pop()


def as_numbers(operation: str, **values: Any) -> list[float]:
    """Each of ``values`` as :func:`number`, in order."""
    return [number(operation, name, value) for name, value in values.items()]


def check_size(operation: str, name: str, tensor: Any, dims: Sequence[int], source: object) -> None:
    """Raise ShapeError unless ``tensor`` has the shape ``dims``, or one that splits or merges its axes.

    str(source) names their origin. Axes in another order are refused, because they would be misread.

    Parameters
    ----------
    operation, name : str
        Method and argument, for the message.
    tensor : Tensor or None
        None passes.
    dims : sequence of int
        The expected shape.
    source : object
        Its text says where the sizes come from.
    """
    if tensor is None or is_regrouped(tensor.shape, tuple(dims)):
        return
    if tensor.size != math.prod(dims):
        raise ShapeError(
            f"{operation}: {name} must have {tuple(dims)} = {math.prod(dims)} elements, as {source} gives; "
            f"got {tensor.shape} = {tensor.size}"
        )
    raise ShapeError(
        f"{operation}: {name} must have the shape {tuple(dims)}, as {source} gives, or that with axes next to each "
        f"other merged; got {tensor.shape}, whose axes are in another order: transpose it (be.copy_transpose)"
    )


def check_apart(operation: str, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Raise AliasError if an output shares memory with an input or another output; None means no tensor.

    Parameters
    ----------
    operation : str
        Method, for the message.
    outputs, inputs : dict
        Tensors or None by the names of the arguments.
    """
    written = [(name, tensor) for name, tensor in outputs.items() if tensor is not None]
    read = [(name, tensor) for name, tensor in inputs.items() if tensor is not None]
    for index, (name, tensor) in enumerate(written):
        for other, its in [*written[index + 1 :], *read]:
            if tensor.alias_of(its):
                raise AliasError(
                    f"{operation}: {name} shares memory with {other}, which is still needed while {name} is written; "
                    "give it memory of its own"
                )


def host(tensor: Any, dims: Sequence[int] | None = None, dtype: DType | None = None) -> Array:
    """Values of ``tensor`` as a contiguous read-only array, its own memory if possible.

    ``dims`` default to its shape, ``dtype`` to its compute dtype: float32 for float16.

    Parameters
    ----------
    tensor : Tensor
    dims : sequence of int, optional
        Shape of the array.
    dtype : dtype, optional
    """
    array = as_contiguous(tensor.asnumpyarray(), dtype or compute_dtype(tensor.dtype))
    return array.reshape(tensor.shape if dims is None else tuple(dims))


def _copy(array: Array, dtype: DType) -> Array:
    """A copy of ``array`` in C order and ``dtype``."""
    return np.array(array, order="C") if array.dtype == dtype else as_contiguous(array, dtype)


@contextmanager
def written(
    tensor: Any, dims: Sequence[int] | None = None, keep: bool = False, dtype: DType | None = None
) -> Iterator[Array]:
    """A contiguous array for writing ``tensor``; ``dims`` and ``dtype`` default as in :func:`host`.

    It is the tensor's own memory if possible, else an array that is stored when the block ends without an exception.
    With ``keep`` it starts with the tensor's old values; otherwise contents are undefined.

    Parameters
    ----------
    tensor : Tensor
        The target.
    dims : sequence of int, optional
        Shape of the array.
    keep : bool
        Start with the old values.
    dtype : dtype, optional

    Raises
    ------
    ReadOnlyError
        If the tensor is read-only.
    """
    if not tensor.writeable:
        tensor.check_writeable("a primitive")
    shape: Shape = tensor.shape if dims is None else tuple(dims)
    dtype = dtype or compute_dtype(tensor.dtype)
    if tensor.live_host and tensor.dtype == dtype and tensor.is_contiguous:
        yield tensor.asnumpyarray().reshape(shape)
        return
    stand_in = _copy(tensor.asnumpyarray(), dtype) if keep else np.empty(tensor.shape, dtype)
    yield stand_in.reshape(shape)
    if not (tensor.live_host and store_floats(stand_in, tensor.asnumpyarray())):
        tensor.set(stand_in)
