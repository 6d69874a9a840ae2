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
        with conversions and a gradient rule in float32 alone; ``recalled``: nodes that follow from its other arguments,
        and from the dtypes, shapes and layouts of its operands, never from values; ``assign``: ``Backend.assign``;
        ``set item``: ``Tensor.__setitem__``; ``view``: ``CPUTensor._make_view``; ``call``: a compound primitive;
        ``pinned call``: one that takes lists of tensors, and is repeated for these very tensors; see
        ``kernels/run/calls.py``.
    specs : tuple of OpSpec, of one function, or of str
        Rows of the nodes' ops; for ``recalled`` only those that look at what a move moves (:mod:`.truth`); for
        ``composed`` the function of ``(a, axis)``; for a primitive attribute names.
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


def recalled(function: Function) -> Function:
    """Mark a function that builds nodes by the dtypes, shapes and layouts of its operands, and its other arguments.

    It never looks at values, and runs nothing; where it returns a tensor, as for ``out``, it is called each time.
    """
    return mark(function, "recalled")


def form_of(function: Any) -> Form | None:
    """The mark of ``function``."""
    found: Form | None = getattr(function, "form", None)
    return found
