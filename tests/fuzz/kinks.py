"""Graphs of whole numbers, where ties and zeros are everywhere, with their gradients by a convention that is told here.

Values are small whole numbers, which every engine computes exactly: what is tied here is tied there. Operands that tie
share a gradient equally; where a slope has no value, it is 0. A graph is made of expressions and of variables alike,
and what they give is compared with NumPy's in float64, which carries its derivatives forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike import autograd as ag
from neonlike.optree.autodiff import Autodiff
from tests.fuzz.duals import Dual, add, independent, mul

SHAPES = ((3, 4), (1, 4), (3, 1), (3, 4))
LARGEST = 30.0
"""Values beyond are not used further: powers and products of them would not be exact for long."""
Function = Callable[[Any], Any]
Array = np.ndarray[Any, Any]


def two(a: Dual, b: Dual, wins: Callable[[Array, Array], Array]) -> Dual:
    """Dual of the operand that ``wins``; tied operands get half of the gradient each."""
    first = (wins(a.value, b.value) + 0.5 * (a.value == b.value))[..., None]
    second = (wins(b.value, a.value) + 0.5 * (a.value == b.value))[..., None]
    return Dual(np.where(wins(a.value, b.value), a.value, b.value), first * a.slope + second * b.slope)


def extreme(d: Dual, axis: Any, reduce: Callable[..., Array]) -> Dual:
    """The largest or smallest over ``axis``: equal shares of those that are."""
    value = reduce(d.value, axis=axis, keepdims=True)
    found = d.value == value
    share = found / found.sum(axis=axis, keepdims=True)
    return Dual(value, (share[..., None] * d.slope).sum(axis=axis, keepdims=True))


def power(d: Dual, n: int) -> Dual:
    """d ** n, whose derivatives are those of the polynomial."""
    return d.map(lambda x: x**n, lambda x: n * x ** (n - 1) if n else 0 * x)


def norm(d: Dual, axis: Any) -> Dual:
    """The Euclidean norm, whose gradient is 0 where it is."""
    value = np.sqrt((d.value**2).sum(axis=axis, keepdims=True))
    unit = d.value / np.where(value == 0, 1, value)
    return Dual(value, (unit[..., None] * d.slope).sum(axis=axis, keepdims=True))


def deviation(d: Dual, axis: int) -> Dual:
    """The standard deviation: the norm of the distances from the mean, by the root of their number."""
    count = d.value.shape[axis]
    centred = d.move(lambda x: x - x.mean(axis=axis, keepdims=True))
    return norm(centred, axis).map(lambda x: x / np.sqrt(count), lambda x: np.full_like(x, 1 / np.sqrt(count)))


def product(d: Dual, axis: int) -> Dual:
    """The product; the gradient by a factor is that of all others."""
    parts = np.moveaxis(d.value, axis, 0)
    others = np.stack([np.delete(parts, n, 0).prod(0) for n in range(len(parts))])
    slope = np.moveaxis(others, 0, axis)[..., None] * d.slope
    return Dual(d.value.prod(axis=axis, keepdims=True), slope.sum(axis=axis, keepdims=True))


def number(value: float, like: Dual) -> Dual:
    """A constant in the shape of ``like``."""
    return Dual(np.full_like(like.value, value), np.zeros_like(like.slope))


ONE: tuple[tuple[Callable[[Any, Any], Any], Function | None, Callable[[Dual], Dual]], ...] = (
    (lambda be, x: be.relu(x), ag.relu, lambda d: d.map(lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0)),
    (lambda be, x: be.absolute(x), ag.absolute, lambda d: d.map(np.abs, np.sign)),
    (lambda be, x: be.square(x), ag.square, lambda d: power(d, 2)),
    (lambda be, x: x**0, lambda v: v**0, lambda d: power(d, 0)),
    (lambda be, x: x**1, lambda v: v**1, lambda d: power(d, 1)),
    (lambda be, x: be.power(x, 3), lambda v: v**3, lambda d: power(d, 3)),
    (
        lambda be, x: be.clip(x, -1, 1), lambda v: ag.clip(v, -1, 1),
        lambda d: two(two(d, number(-1, d), np.greater), number(1, d), np.less),
    ),
    (
        lambda be, x: be.maximum(x, 0), lambda v: ag.elementwise_maximum(v, 0),
        lambda d: two(d, number(0, d), np.greater),
    ),
    (lambda be, x: be.max(x, axis=1), lambda v: ag.max(v, 1), lambda d: extreme(d, 1, np.max)),
    (lambda be, x: be.min(x, axis=0), lambda v: ag.min(v, 0), lambda d: extreme(d, 0, np.min)),
    (lambda be, x: be.max(x), ag.max, lambda d: extreme(d, (0, 1), np.max)),
    (lambda be, x: be.prod(x, axis=1), lambda v: ag.prod(v, 1), lambda d: product(d, 1)),
    (lambda be, x: x - x * 1, lambda v: v - v * 1, lambda d: d.map(lambda x: 0 * x, lambda x: 0 * x)),
    (lambda be, x: 1 - x, lambda v: 1 - v, lambda d: d.map(lambda x: 1 - x, lambda x: np.full_like(x, -1))),
)  # fmt: skip
"""Functions of an expression, of a variable, and of a value with derivatives; results are whole."""

LAST: tuple[tuple[Callable[[Any, Any], Any], Function | None, Callable[[Dual], Dual]], ...] = (
    (lambda be, x: be.norm2(x, axis=1), lambda v: ag.norm2(v, 1), lambda d: norm(d, 1)),
    (lambda be, x: be.norm2(x), ag.norm2, lambda d: norm(d, (0, 1))),
    (lambda be, x: be.std(x, axis=0), None, lambda d: deviation(d, 0)),
    (lambda be, x: be.std(x + 5, axis=1), None, lambda d: deviation(d, 1)),
    (
        lambda be, x: be.hypot(x, 2 * x), None,
        lambda d: d.map(lambda x: np.sqrt(5) * np.abs(x), lambda x: np.sqrt(5) * np.sign(x)),
    ),
    (lambda be, x: x * 1, lambda v: v * 1, lambda d: d),
)  # fmt: skip
"""As ``ONE``, of results that are not whole; None: there is no such function of variables."""


class Grower:
    """Grower of one graph: expressions, or variables, beside their values."""

    def __init__(self, be: Any, seed: int, of_variables: bool, rng: Any = None) -> None:
        self.be, self.of_variables = be, of_variables
        self.rng = rng or np.random.default_rng(seed)
        hosts = [self.rng.integers(-1, 3, shape).astype(np.float64) for shape in SHAPES]
        self.leaves = [ag.param(be.array(host)) if of_variables else be.array(host) for host in hosts]
        self.known: list[tuple[Any, Dual]] = list(zip(self.leaves, independent(hosts)))

    def pick(self) -> tuple[Any, Dual]:
        return self.known[self.rng.integers(len(self.known))]

    def of_one(self, table: Any, of: tuple[Any, Dual]) -> tuple[Any, Dual] | None:
        """A function of the table, drawn, of a known value; None if there is none of variables."""
        expression, variable, dual = table[self.rng.integers(len(table))]
        if not self.of_variables:
            return expression(self.be, of[0]), dual(of[1])
        return None if variable is None else (variable(of[0]), dual(of[1]))

    def of_two(self) -> tuple[Any, Dual]:
        """A function of two values, which are often one and the same."""
        (a, da), (b, db) = self.pick(), self.pick()
        kind = self.rng.integers(5)
        largest, smallest = self.be.maximum, self.be.minimum
        if self.of_variables:
            largest, smallest = ag.elementwise_maximum, ag.elementwise_minimum
        if kind == 0:
            return largest(a, a), two(da, da, np.greater)
        if kind == 1:
            return largest(a, b), two(da, db, np.greater)
        if kind == 2:
            return smallest(a, b), two(da, db, np.less)
        return (a + b, add(da, db)) if kind == 3 else (a * b, mul(da, db))

    def step(self) -> None:
        made = self.of_two() if self.rng.integers(2) else self.of_one(ONE, self.pick())
        if made is not None and np.abs(made[1].value).max() <= LARGEST:
            self.known.append(made)

    def finish(self) -> None:
        """Compare the derivatives of a sum of some."""
        ends = [self.of_one(LAST, self.known[-1 - n % len(self.known)]) for n in range(3)]
        chosen = [end for end in ends if end is not None] or [self.known[-1]]
        total = sum((value * (n + 1)).sum() if self.of_variables else self.be.sum(value * (n + 1))
                    for n, (value, _) in enumerate(chosen))  # fmt: skip
        slopes = sum((dual.slope * (n + 1)).sum((0, 1)) for n, (_, dual) in enumerate(chosen))
        if self.of_variables:
            total.backprop()
            found = [leaf.partial_derivative.get() for leaf in self.leaves]
        else:
            found = [g.get() for g in Autodiff(total, self.be).get_grad_tensor(self.leaves)]
        together = np.concatenate([one.reshape(-1) for one in found])
        np.testing.assert_allclose(together, slopes, rtol=1e-9, atol=1e-9 * (1 + np.abs(slopes).max()))


def grow(be: Any, seed: int, rng: Any = None) -> None:
    """One graph of expressions, or of variables."""
    grower = Grower(be, seed, bool(seed % 2), rng)
    for _ in range(grower.rng.integers(2, 14)):
        grower.step()
    grower.finish()
