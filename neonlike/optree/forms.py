"""Marks on the functions that a CPython extension may replace: by which rule they build nodes, for example.

The functions define what a call means; ``kernels/c/fastbuild.py`` reads the marks.
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
        ``unary``, ``binary``, ``ternary``: a node of so many operands; ``reduction``: of one, with an axis;
        ``composed``: several nodes, elementwise ones and reductions over one axis, alike in float32 and float64, or
        with conversions and a rule for the gradient in float32 alone; ``assign``: ``Backend.assign``; ``set item``:
        ``Tensor.__setitem__``; ``call``: a compound primitive, see ``kernels/run/calls.py``.
    specs : tuple of OpSpec, of one function, or of str
        Rows of the nodes' ops; the function of ``(a, axis)`` that composes; of a primitive names of attributes.
    """

    kind: str
    specs: tuple[Any, ...] = ()


owners: list[type] = []
"""Classes whose marked functions are looked for."""

newcomers: list[Callable[[type], None]] = []
"""Functions that are called with each class that joins the owners later."""


def owner(cls: Owner) -> Owner:
    """Add a class to the owners."""
    owners.append(cls)
    for call in newcomers:
        call(cls)
    return cls


def mark(function: Function, kind: str, *specs: Any) -> Function:
    """``function``, marked."""
    function.form = Form(kind, specs)  # type: ignore[attr-defined]
    return function


def form_of(function: Any) -> Form | None:
    """The mark of ``function``."""
    found: Form | None = getattr(function, "form", None)
    return found
