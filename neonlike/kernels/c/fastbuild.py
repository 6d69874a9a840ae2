"""Hands functions over to the CPython extension: builders of nodes, operators, checks of arguments, calls made before.

:func:`install` runs in any thread as soon as the extension is built, while other threads call them: each function is
replaced atomically, and both versions do the same. The extension handles the common cases and calls Python's function
for others: ``templates/c/fastpath/fastpath_nodes.h``, ``fastpath_checked.h``, ``fastpath_calls.h``.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from neonlike.checks import check_by
from neonlike.kernels.c.compositions import same_in_halves, steps_of, tree_steps
from neonlike.kernels.run import program, workspace
from neonlike.kernels.run.calls import PINNED, REPEATABLE, parameters_of
from neonlike.kernels.run.program import Replayed
from neonlike.optree.dtypes import F16, F32, F64, I64, SUPPORTED, DType, DTypeRule, compute_dtype, result_dtype
from neonlike.optree.forms import form_of, newcomers, owners
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.operators import OPERATORS
from neonlike.optree.ops import OpSpec

_OPERATORS = (
    "neg abs add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow lt le eq ne gt ge "
    "matmul rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift invert".split()
)
"""Operators that the extension defines on a class, by their special method's name."""


_INTEGERS = tuple(dtype for dtype in SUPPORTED if compute_dtype(dtype) is I64)
"""Dtypes that promote to int64 among themselves: all integers except uint64, and booleans."""


def set_up(extension: Any, describe: Any) -> None:
    """Pass the extension the classes and functions of nodes; once per process."""
    answers = Replayed.LEFT, Replayed.DONE, Replayed.NEW
    extension.set_up(OpTreeNode, describe, tree_steps, F16, F32, F64, _INTEGERS, np.generic, np.ndarray, answers)
    extension.take_operators(tuple(_builder(extension, function) for function in OPERATORS))
    program.caller[:] = [extension.calls]
    extension.take_workspace(workspace.kept, workspace.held_workspace)


def install(extension: Any) -> None:
    """Replace the functions that build nodes, and the methods whose calls are repeated, by the extension's."""
    for cls in owners:
        _install(extension, cls)
    newcomers[:] = [partial(_install, extension)]
    extension.attach(OpTreeNode)
    check_by(lambda checking: extension.Checked(checking, checking.__wrapped__, checking.looked_at))


def _install(extension: Any, cls: type) -> None:
    """Replace the marked functions of one class."""
    for _, name, static, function in list(_marked(cls)):
        if isinstance(function, types.FunctionType):
            builder = _builder(extension, function, not static)
            setattr(cls, name, staticmethod(builder) if static else builder)


def attach(extension: Any, tensor_type: type) -> None:
    """Replace the operators of a tensor class, and its ``__setitem__``, unless the class overrides them."""
    ours = all(getattr(tensor_type, f"__{name}__") is getattr(Expression, f"__{name}__") for name in _OPERATORS)
    if ours and form_of(getattr(tensor_type, "__setitem__", None)):
        extension.attach(tensor_type)


def remove(extension: Any) -> None:
    """Undo :func:`install` and :func:`attach`."""
    extension.detach()
    check_by(None)
    newcomers.clear()
    for cls, name, static, function in list(_marked(*owners)):
        if isinstance(function, (extension.Builder, extension.Forwarding)):
            setattr(cls, name, staticmethod(function.__wrapped__) if static else function.__wrapped__)


def _marked(*classes: type) -> Iterator[tuple[type, str, bool, Any]]:
    """Class, name, whether it is a static method, and the marked function or the builder that replaces it."""
    for cls in classes:
        for name, value in vars(cls).items():
            static = isinstance(value, staticmethod)
            function = value.__func__ if static else value
            if form_of(function) is not None:
                yield cls, name, static, function


def _builder(extension: Any, function: Any, method: bool = False) -> Any:
    form = form_of(function)
    assert form is not None
    if form.kind in (REPEATABLE, PINNED):
        names, positional, identified = parameters_of(function)
        return extension.Forwarding(function, names, positional, form.specs, identified, form.kind == PINNED)
    if form.kind == "composed":
        axis = inspect.signature(function).parameters["axis"].default
        halves = same_in_halves(*form.specs)
        return extension.Builder(form.kind, function, steps_of(*form.specs), axis, method, halves, out=_out(function))
    whole = _whole(*form.specs) if form.kind in ("unary", "binary") else None
    return extension.Builder(form.kind, function, *form.specs, skip=method, whole=whole, out=_out(function))


_BY_NAME = 99
"""The place of a parameter that goes by name alone: no call has as many arguments by position."""


def _out(function: Any) -> int:
    """The place of a method's parameter ``out`` behind ``self``; -1 if there is none, as of all other functions."""
    code = inspect.unwrap(function).__code__
    by_position: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    if "out" in by_position:
        return by_position.index("out") - 1
    return _BY_NAME if "out" in code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount] else -1


def _whole(spec: OpSpec) -> DType | None:
    """The dtype of an op's result for integers that are computed in int64; None if values or truths decide it."""
    return None if spec.dtype is DTypeRule.WHOLE else result_dtype(spec.dtype, I64)
