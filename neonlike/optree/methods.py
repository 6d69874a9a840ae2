"""Methods of tensors and expressions that need builders, reading or printing, attached to the classes here.

The modules that build, read and print expressions import ``node``, so ``node`` cannot import them. The package imports
this module first, so every expression has all methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import DTypeError
from neonlike.optree import builders, html, neonform, reading, show
from neonlike.optree.dtypes import as_dtype, is_float
from neonlike.optree.functions import F
from neonlike.optree.hostvalues import HostValues
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.origin import computed
from neonlike.optree.shapes import FREE


def transposed(self: OpTreeNode) -> OpTreeNode:
    """Lazy transpose: the last two axes swapped."""
    return builders.transpose(self)


def astensor(self: OpTreeNode) -> Any:
    """Compute into a new tensor of this shape and dtype; gradients flow through it, see :mod:`.origin`.

    Raises
    ------
    ShapeError
        If the shape is free (a lone ``rand`` or ``onehot``).
    NoTensorError
        If the tree has no tensor, and so no backend.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> (be.array([[1., 2.]]) + 1).astensor().tolist()
    [[2.0, 3.0]]
    """
    return computed(self._evaluated(), self)


def astype(self: Any, dtype: Any) -> Any:
    """Convert the values to a new tensor of ``dtype``, even if they have that dtype already.

    Values are stored as in any assignment: conversion to integers rounds ties to even, saturates values out of range,
    and maps nan to 0; conversion to bool maps everything but 0 to True; narrower floats are rounded to nearest.
    Gradients flow through it if both dtypes are floats, see :mod:`.origin`.

    Raises
    ------
    DTypeError
        If tensors cannot hold ``dtype``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.array([[1.5, 2.5, -1, 300]]).astype("uint8").tolist()
    [[2, 2, 0, 255]]
    """
    if dtype is None:
        raise DTypeError("astype: needs a dtype, such as np.float32, got None")
    wanted = as_dtype(dtype, "astype")
    if self.backend is None or self.shape is FREE:
        self.asnumpyarray()  # raises an error that names the missing part
    return computed(self.backend.assign(self.backend.fresh(self.shape, wanted), self), self)


def rounded(self: Any, ndigits: int | None = None) -> Any:
    """Round each element to ``ndigits`` decimals (None: to integers), ties to even, as an expression."""
    digits = 0 if ndigits is None else ndigits
    if isinstance(digits, bool) or not isinstance(digits, (int, np.integer)):
        raise DTypeError(f"round: the number of digits must be an integer, got {brief(ndigits)}")
    if digits == 0 or (digits > 0 and not is_float(self.dtype)):
        return F.rint(self)
    scale = float(10 ** abs(int(digits)))
    return F.rint(self * scale) / scale if digits > 0 else F.rint(self / scale) * scale


_OF_ALL: dict[str, Any] = {
    "__contains__": reading.contains,
    "_repr_html_": html.of_expression,
}
_OF_NODES: dict[str, Any] = {
    "T": property(transposed),
    "astensor": astensor,
    "__bool__": reading.truth,
    "_number": reading.number,
    "__str__": show.prefix,
    **neonform.METHODS,
    **reading.METHODS,
}


def _attach(owner: type, methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        setattr(owner, name, method)


_attach(HostValues, {"astype": astype, "__round__": rounded})
_attach(Expression, _OF_ALL)
_attach(OpTreeNode, _OF_NODES)
