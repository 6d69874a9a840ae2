"""Marks on functions that a CPython extension may replace, such as the rule by which they build nodes.

The Python functions define the semantics; ``kernels/c/fastbuild.py`` reads the marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Owner = TypeVar("Owner", bound=type)


class Form(NamedTuple):
    """The form of a marked function.

    Attributes
    ----------
    kind : str
        ``unary``, ``binary``, ``ternary``: a node with that many operands; ``reduction``: one operand and an axis;
        ``composed``: several nodes, elementwise ones and reductions over one axis, equal in float32 and float64, or
        with conversions and a gradient rule in float32 alone; ``assign``: ``Backend.assign``; ``set item``:
        ``Tensor.__setitem__``; ``view``: ``CPUTensor._make_view``; ``call``: a compound primitive; ``pinned call``: one
        that takes lists of tensors, and is repeated for these very tensors; see ``kernels/run/calls.py``.
    specs : tuple of OpSpec, of one function, or of str
        Rows of the nodes' ops; for ``composed`` the function of ``(a, axis)``; for a primitive attribute names.
    """

    kind: str
    specs: tuple[Any, ...] = ()


owners: list[type] = []
"""Classes to search for marked functions."""

newcomers: list[Callable[[type], None]] = []
"""Functions that are called with each class that joins the owners later."""


def owner(cls: Owner) -> Owner:
    """Add a class to the owners."""
    owners.append(cls)
    for call in newcomers:
        call(cls)
    return cls


def mark(function: Function, kind: str, *specs: Any) -> Function:
    """Mark ``function`` and return it.

    Parameters
    ----------
    function : callable
    kind : str
        See :class:`Form`.
    *specs : objects
        See :class:`Form`.
    """
    function.form = Form(kind, specs)  # type: ignore[attr-defined]
    return function


def form_of(function: Any) -> Form | None:
    """The mark of ``function``."""
    found: Form | None = getattr(function, "form", None)
    return found
