"""Parts of random expression graphs: leaves, terms with their values, and which of them fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.errors import ShapeError
from neonlike.optree import shapes
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import NON_DIFFERENTIABLE
from tests.support.float64.reference import Array, apply

Pick = Callable[[Any], Any]


@dataclass
class Leaf:
    """A tensor to compute with: ``pick`` shows it in ``base``, its memory. ``pick`` works on arrays too."""

    base: Any
    pick: Pick
    tensor: Any

    def others(self) -> list[Any]:
        """Tensors of the same shape over the same memory: itself, turned, transposed, shifted."""
        shape, found = self.tensor.shape, [self.tensor]
        turn = tuple(slice(None, None, -1) for _ in shape)
        found += [self.tensor[turn], self.tensor[::-1]]
        if shape == self.tensor.T.shape:
            found.append(self.tensor.T)
        if self.base.shape == tuple(n + 2 for n in shape):
            found += [self.base[tuple(slice(d, d + n) for n in shape)] for d in (0, 2)]
            found.append(self.base[tuple(slice(i % 3, i % 3 + n) for i, n in enumerate(shape))])
        return found


@dataclass
class Term:
    """An expression, its float64 value and, twice, the value with rounding errors."""

    node: Any
    value: Array
    shaken: tuple[Array, Array]
    used: bool = False

    @property
    def noise(self) -> float:
        """Largest difference that rounding makes."""
        return max(float(np.max(np.abs(shaken - self.value), initial=0.0)) for shaken in self.shaken)

    @property
    def size(self) -> float:
        """Largest absolute value."""
        return float(np.max(np.abs(self.value), initial=0.0))


def joins(shape: Any, other: Any, axis: int) -> bool:
    """True if two shapes differ along ``axis`` at most."""
    return len(shape) == len(other) and all(n == m for i, (n, m) in enumerate(zip(shape, other)) if i != axis)


def fits(*shapes_: tuple[int, ...]) -> bool:
    try:
        shapes.broadcast("fits", shapes_)
    except ShapeError:
        return False
    return True


def selector(expression: OpTreeNode) -> Any:
    """Values that must stay fixed for the op to be smooth there: the sides of its steps and kinks."""
    name, attrs = expression.spec.name, expression.attrs or {}
    chosen: dict[str, Any] = {
        "where": lambda c, x, y: np.sign(c),
        "eq": lambda x, y: np.sign(x - y),
        "ne": lambda x, y: np.sign(x - y),
        "and": lambda x, y: np.sign(x) + 3 * np.sign(y),
        "or": lambda x, y: np.sign(x) + 3 * np.sign(y),
        "xor": lambda x, y: np.sign(x) + 3 * np.sign(y),
        "mod": lambda x, y: np.floor_divide(x, y),
        "fmod": lambda x, y: np.trunc(x / y),
        "not": np.sign,
        "any": np.sign,
        "all": np.sign,
        "abs": lambda x: x > 0,
        "relu": lambda x: x > 0,
        "leaky_relu": lambda x, slope: x > 0,
        "maximum": lambda x, y: x > y,
        "minimum": lambda x, y: x < y,
        "max": lambda x: np.isclose(x, x.max(axis=attrs["axis"], keepdims=True), 0, 0.05).sum(attrs["axis"]) > 1,
        "min": lambda x: np.isclose(x, x.min(axis=attrs["axis"], keepdims=True), 0, 0.05).sum(attrs["axis"]) > 1,
    }
    if name in chosen:
        return chosen[name]
    if expression.spec.grad is not NON_DIFFERENTIABLE:
        return None
    return lambda *operands: apply(expression, [o if np.ndim(o) else np.float64(o) for o in operands])
