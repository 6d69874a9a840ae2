"""Builders of reductions. Axes are always kept with size 1, whatever ``keepdims`` says, as in neon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.optree import functions
from neonlike.optree.builders import reduce
from neonlike.optree.node import Expression, expression
from neonlike.optree.ops import OPS, Kind, OpSpec


class ReductionFamily(Family):
    """``be.sum(a, axis=None, out=None, keepdims=True)`` and the like; axis is an int, a tuple or None for all."""

    def mean(self, a: Any, axis: Any = None, partial: Any = None, out: Any = None, keepdims: bool = True) -> Any:
        """Arithmetic mean over ``axis``; ``partial`` and ``keepdims`` are accepted for neon's sake."""
        node = functions.mean(a if isinstance(a, Expression) else self._array(a), axis)
        return node if out is None else self._finish(node, out)

    def var(
        self,
        a: Any,
        axis: Any = None,
        partial: Any = None,
        out: Any = None,
        keepdims: bool = True,
        binary: bool = False,
    ) -> Any:
        """Biased variance over ``axis``; ``binary`` replaces the square by a shift."""
        return self._finish(functions.var(self._array(a), axis, binary), out)

    def std(self, a: Any, axis: Any = None, partial: Any = None, out: Any = None, keepdims: bool = True) -> Any:
        """Square root of the biased variance over ``axis``."""
        return self._finish(functions.std(self._array(a), axis), out)

    def norm2(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """Euclidean norm over ``axis``."""
        return self._finish(functions.norm2(self._array(a), axis), out)

    def logsumexp(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """log(sum(exp(a))) over ``axis``, without overflow."""
        return self._finish(functions.logsumexp(self._array(a), axis), out)

    def _array(self, a: Any) -> Any:
        return expression("reduction", a, self)


def builder(spec: OpSpec, name: str) -> Callable[..., Any]:
    """The method ``name`` of a reduction row."""
    default = 1 if spec.name in ("argmax", "argmin") else None
    method = _method(spec, default)
    method.__doc__ = (
        f"{spec.doc}\n\nAxes are kept with size 1 (``keepdims`` is accepted, and has no effect, as in neon)."
    )
    method.__name__ = name
    method.__qualname__ = f"{ReductionFamily.__name__}.{name}"
    return method


def _method(spec: OpSpec, default: int | None) -> Callable[..., Any]:
    def method(self: Any, a: Any, axis: Any = default, out: Any = None, keepdims: bool = True) -> Any:
        node = reduce(spec, a, axis, self)
        return node if out is None else self._finish(node, out)

    return method


Family.builders[Kind.REDUCTION] = builder
for _spec in OPS.values():
    for _name in _spec.builders if _spec.kind is Kind.REDUCTION else ():
        setattr(ReductionFamily, _name, builder(_spec, _name))
