"""Nodes built by the CPython extension: its builders in the places of Python's functions, its operators on classes.

:func:`install` is called when the extension is there, in whatever thread, while others build nodes: each function is
replaced at once, and both kinds build the same nodes. ``templates/c/fastpath/fastpath_nodes.h`` takes the common cases.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from neonlike.kernels.run.recipe import Replayed
from neonlike.optree.dtypes import F32, F64
from neonlike.optree.forms import form_of, owners
from neonlike.optree.node import OPERATORS, Expression, OpTreeNode

_OPERATORS = "neg abs add radd sub rsub mul rmul truediv rtruediv pow rpow lt le eq ne gt ge".split()
"""Python's names of those that the extension has for a class."""


def set_up(extension: Any, describe: Any) -> None:
    """Tell the extension what it has to know of nodes; once in a process."""
    extension.set_up(OpTreeNode, describe, F32, F64, (Replayed.LEFT, Replayed.DONE, Replayed.NEW))
    extension.take_operators(tuple(_builder(extension, function) for function in OPERATORS))


def install(extension: Any) -> None:
    """Have nodes built by the extension."""
    for cls, name, static, function in list(_marked()):
        if isinstance(function, types.FunctionType):
            builder = _builder(extension, function, not static)
            setattr(cls, name, staticmethod(builder) if static else builder)
    extension.attach(OpTreeNode)


def attach(extension: Any, tensor_type: type) -> None:
    """Have the operators of tensors, and what ``t[:] = value`` calls, done by the extension, if they are ours."""
    ours = all(getattr(tensor_type, f"__{name}__") is getattr(Expression, f"__{name}__") for name in _OPERATORS)
    if ours and form_of(getattr(tensor_type, "__setitem__", None)):
        extension.attach(tensor_type)


def remove(extension: Any) -> None:
    """Undo :func:`install` and :func:`attach`."""
    extension.detach()
    for cls, name, static, function in list(_marked()):
        if isinstance(function, extension.Builder):
            setattr(cls, name, staticmethod(function.__wrapped__) if static else function.__wrapped__)


def _marked() -> Iterator[tuple[type, str, bool, Any]]:
    """Class, name, whether it is a static method, and the marked function or the builder that stands in for it."""
    for cls in owners:
        for name, value in vars(cls).items():
            static = isinstance(value, staticmethod)
            function = value.__func__ if static else value
            if form_of(function) is not None:
                yield cls, name, static, function


def _builder(extension: Any, function: Any, method: bool = False) -> Any:
    form = form_of(function)
    assert form is not None
    return extension.Builder(form.kind, function, *form.specs, skip=method)
