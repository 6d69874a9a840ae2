"""Origins of tensors: the expressions that they were computed from, so that gradients flow through copies.

``E[[1, 1]]``, ``expression.astensor()``, ``t.astype(dtype)``, ``be.array(t)`` and computed gradients are separate
tensors. Each remembers its expression, its *origin*. :class:`.Autodiff` continues through it as if the expression stood
in the tensor's place. Both must still be equal: if the tensor, or one that it was computed from, was written to since,
a gradient through it is an error. Values are compared when a gradient is requested, because kernels, views and other
libraries write to memory, too; writing itself costs nothing. Tensors assigned to (``t[:] = ...``, ``out=``) and data
from the host are constants.

An origin holds an expression's tensors by weak references, except for small constants (``KEPT_BYTES``). A collected
tensor is recomputed from its own origin, if it had one, over at most ``GENERATIONS`` origins.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from neonlike.checks import shown
from neonlike.errors import GradientError
from neonlike.optree import moves, windows
from neonlike.optree.dtypes import is_float
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.walk import ordered, postorder

KEPT_BYTES = 1 << 16
"""Maximum number of bytes kept alive by one origin: indices and arrays that may be referenced by nothing else."""

GENERATIONS = 32
"""Maximum length of a chain of collected tensors that gradients flow through; loops could create longer ones."""

ULPS = 64
"""Tolerance between values computed twice, in ulps of the largest; sums may be in another order."""


class _TensorReference:
    """A tensor of an expression, held by a weak reference; a view refers to its base tensor."""

    __slots__ = ("_kept", "_layout", "_tensor", "_whole", "origin")

    def __init__(self, tensor: Any) -> None:
        whole = tensor._original_base
        self._tensor, self._whole = weakref.ref(tensor), weakref.ref(whole)
        self._layout: Any = None  # None: a view that cannot be recreated from its base tensor
        if tensor is whole:
            self._layout = ()
        elif whole.is_contiguous and tensor.dtype == whole.dtype:
            self._layout = tensor.layout
        self._kept: Any = None
        own: Origin | None = whole.origin
        self.origin = own if own is not None and own.generation < GENERATIONS else None

    def keep(self, tensor: Any) -> None:
        """Hold ``tensor`` strongly."""
        self._kept = tensor

    @property
    def base(self) -> Any:
        """The tensor that owns the memory; None if it was collected."""
        return self._whole()

    def expression(self, made: dict[int, Any]) -> Any:
        """The tensor; if it was collected, a window of its base or its origin's expression; else None."""
        if (tensor := self._tensor()) is not None:
            return tensor
        whole = self._whole()
        if whole is None and self.origin is not None:
            whole = self.origin.expression(made)
        if whole is None or self._layout is None:
            return None
        return moves.view(whole, self._layout) if self._layout else whole


class Origin:
    """The expression that a tensor was computed from.

    Attributes
    ----------
    sources : list
        The tensors in the expression.
    generation : int
        Length of the longest chain of origins from here.
    """

    __slots__ = ("_build", "generation", "sources")

    generation: int

    def __init__(self, tensors: Iterable[Any], build: Callable[[list[Any]], Any]) -> None:
        self.sources = []
        self._build = build
        room = KEPT_BYTES
        for tensor in tensors:
            source, whole = _TensorReference(tensor), tensor._original_base
            if whole.nbytes <= room and whole.origin is None:
                room -= whole.nbytes
                source.keep(tensor)
            self.sources.append(source)
        self.generation = 1 + max((s.origin.generation for s in self.sources if s.origin is not None), default=0)

    def expression(self, made: dict[int, Any] | None = None) -> Any:
        """Rebuild the expression; None if one of its tensors is lost. ``made`` caches other origins by id."""
        made = {} if made is None else made
        if id(self) not in made:
            found = [source.expression(made) for source in self.sources]
            made[id(self)] = None if any(tensor is None for tensor in found) else self._build(found)
        return made[id(self)]

    def bases(self, seen: set[int] | None = None) -> list[Any]:
        """The tensors whose memory it reads, directly or to recompute collected ones."""
        seen = set() if seen is None else seen
        found: list[Any] = []
        for source in self.sources:
            if (base := source.base) is not None:
                found.append(base)
            elif source.origin is not None and id(source.origin) not in seen:
                seen.add(id(source.origin))
                found += source.origin.bases(seen)
        return found


def computed(out: Any, value: Any) -> Any:
    """Record ``value``, an expression, as the origin of the new tensor ``out``, and return ``out``."""
    if is_float(out.dtype) and isinstance(value, Expression):
        tensors, build = _taken_apart(value)
        if any(is_float(tensor.dtype) for tensor in tensors):
            out.origin = Origin(tensors, build)
    return out


def gathered(out: Any, tensor: Any, chosen: Any) -> Any:
    """Record a gather from ``tensor`` at ``chosen``, a selection, as the origin of the new tensor ``out``.

    Parameters
    ----------
    out, tensor : tensors
    chosen : Selection
    """
    if is_float(out.dtype):

        def build(found: list[Any]) -> Any:
            (source,) = found
            part = windows.index(source, chosen.basic) if isinstance(source, OpTreeNode) else source[chosen.basic]
            return moves.take(part, chosen.gather, chosen.gather_axis or 0)

        out.origin = Origin([tensor], build)
    return out


def _taken_apart(root: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors of ``root``, and a function that rebuilds ``root`` with other expressions in their places."""
    tensors: list[Any] = []
    places: dict[int, int] = {}  # tensors are numbered from -1 down, nodes from 0 up
    steps: list[tuple[Any, ...]] = []
    for node in postorder(root) if isinstance(root, OpTreeNode) else ():
        operands: list[tuple[int | None, Any]] = []
        for operand in node.operands:
            place = None
            if isinstance(operand, Expression):
                place = places.get(id(operand))
                if place is None:
                    tensors.append(operand)
                    place = places[id(operand)] = -len(tensors)
                operand = None
            operands.append((place, operand))
        places[id(node)] = len(steps)
        steps.append((node.spec, operands, node.attrs, node.shape, node.dtype, node.backend))
    if not steps:
        return [root], lambda parts: parts[0]

    def build(parts: list[Any]) -> Any:
        made = [None] * len(steps) + parts[::-1]
        for index, (spec, operands, *rest) in enumerate(steps):
            made[index] = OpTreeNode(spec, tuple(o if at is None else made[at] for at, o in operands), *rest)
        return made[len(steps) - 1]

    return tensors, build


# Through the origins of an expression's tensors -------------------------------------------------------------------


def on_the_way(bases: Iterable[Any], wanted: set[int]) -> list[Any]:
    """The tensors among ``bases``, and those that they were computed from, whose origins lead to one in ``wanted``,
    given by ids. Each stands before what it was computed from."""
    sources = {}
    leads: dict[int, bool] = {}

    def below(base: Any) -> list[Any]:
        sources[id(base)] = found = [source for source in base.origin.bases() if source is not base]
        return [source for source in found if source.origin is not None]

    order = ordered((base for base in bases if base.origin is not None), below, kind=Expression)
    for base in order:
        leads[id(base)] = any(id(source) in wanted or leads.get(id(source), False) for source in sources[id(base)])
    return [base for base in reversed(order) if leads[id(base)]]


def current_expression(tensor: Any) -> Any:
    """The expression that ``tensor`` was computed from, if it still has the same values.

    Raises
    ------
    GradientError
        If the values differ, or a tensor of the expression is lost.
    """
    source = tensor.origin.expression()
    if source is None:
        raise GradientError(
            f"Autodiff: {shown(tensor)} was computed from tensors of which one is gone, so no gradient flows on "
            "through it; keep them, or differentiate the expression itself instead of what astensor() made of it"
        )
    again = tensor.backend.assign(tensor.backend.fresh(tensor.shape, tensor.dtype), source)
    if not _agree(tensor.get(), again.get()):
        raise GradientError(
            f"Autodiff: {shown(tensor)} was computed from {str(source)[:80]}, and it or a tensor there was written to "
            "since, so no gradient flows on through it; use the expression itself (be.take(t, indices, axis) in place "
            "of t[indices]), or be.array(t.get()) if it is meant as a constant"
        )
    return source


def _agree(values: Any, again: Any) -> bool:
    """Whether two arrays of one dtype are equal up to rounding."""
    if values.tobytes() == again.tobytes():
        return True
    kind = np.float64 if values.dtype.itemsize > 2 else np.float32
    unit = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 2.0**-8
    x, y = values.astype(kind), again.astype(kind)
    largest = float(np.max(np.abs(x), where=np.isfinite(x), initial=0.0))
    return bool(np.isclose(x, y, 0.0, ULPS * float(unit) * largest, equal_nan=True).all())
