"""Derivatives of what has no gradient rule of its own: of the expression that says what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neonlike.optree.backward import Backward
from neonlike.optree.node import OpTreeNode
from neonlike.optree.tape import BROADCAST, replaced


def differentiated(define: Callable[..., Any], d: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Increments for ``operands`` of the gradient ``d`` at the expression ``define(*operands)``.

    Only that expression is walked, not what its operands were made of. Gradients are expressions, which can be
    differentiated again.

    Parameters
    ----------
    define : callable
        Builds the expression of expressions like the operands; it is not computed.
    d : expression of its shape
    operands : expressions
        Those that it does not depend on get None.
    """
    given = (d, *operands)
    empty = [OpTreeNode(BROADCAST, (), {"shape": o.shape}, o.shape, o.dtype, d.backend) for o in given]
    found = Backward(define(*empty[1:]), empty[0], lazy=True, also=empty[1:], stop=True).gradients
    places = [place for place, one in enumerate(empty[1:]) if id(one) in found]
    gradients = replaced([found[id(empty[place + 1])] for place in places], dict(zip(map(id, empty), given)))
    by_place = dict(zip(places, gradients))
    return tuple(by_place.get(place) for place in range(len(operands)))
