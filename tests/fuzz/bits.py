"""Random trees of ``+ - * /``, ``sqrt``, signs and choices, which have the bits of NumPy's on every engine.

Trees grow over tensors of odd sizes, rows and columns that are broadcast, and views; what is stored on the way, in new
tensors and over memory that is read, is used further. Operands are zeros of both signs, infinities, nan, subnormals and
numbers whose results lie next to the middles between floats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.growth import WIDTHS

TYPES = ("float32", "float64")
NUMBERS = (0.1, -1.7, 3.0, 1e-3, 7.25, 1 / 3, 0.0, -1.0, 2.0**-30)
OPS = ("+", "-", "*", "/", "*", "+", "sqrt", "neg", "abs", "where")


def same_bits(found: Any, expected: Any) -> None:
    """Fail unless two arrays are equal bit by bit; any nan equals another."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    wrong = (found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")) & ~(
        np.isnan(found) & np.isnan(expected)
    )
    if wrong.any():
        at = np.unravel_index(np.argmax(wrong), wrong.shape)
        count = f"{wrong.sum()} of {wrong.size}"
        raise AssertionError(f"{count}, {at}: {float(found[at]).hex()}, not {float(expected[at]).hex()}")


class Pair(NamedTuple):
    """An expression and its value, by NumPy op by op; ``text`` says how it was made."""

    lazy: Any
    value: Any
    text: str


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Numbers of one of four sorts: plain ones, close to 1, of all magnitudes, and with special ones among them."""
    plain, signs = rng.uniform(0.1, 4, shape), rng.choice([-1, 1], shape)
    kind, info = rng.integers(4), np.finfo(dtype)
    if kind == 1:
        plain = 1 + rng.integers(0, 64, shape) * float(info.eps)
    elif kind == 2:
        plain = 2.0 ** rng.integers(info.minexp - info.nmant, info.maxexp - 1, shape) * plain / 4
    elif kind == 3:
        special = [0, np.inf, np.nan, info.smallest_subnormal, info.tiny, 3 * info.smallest_subnormal, info.max, 1]
        plain = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), plain)
    return (plain * signs).astype(dtype)


class Grower:
    """Grows trees of one dtype on one backend, and stores some of them."""

    def __init__(self, be: Any, rng: np.random.Generator, dtype: str) -> None:
        self.be, self.rng, self.dtype = be, rng, np.dtype(dtype)
        rows, columns = int(rng.choice(WIDTHS[:9])), int(rng.choice(WIDTHS))
        shapes = ((rows, columns), (1, columns), (rows, 1), (rows, columns), (1, 1))
        self.tensors = [self.leaf(f"x{n}", shape) for n, shape in enumerate(shapes)]
        self.terms, self.told, self.compared = list(self.tensors), [f"{self.dtype}, {rows} x {columns}"], 0

    def leaf(self, name: str, shape: tuple[int, int]) -> Pair:
        """A tensor, plain, with room around, backwards, every second element, or transposed."""
        layout = int(self.rng.integers(5))
        whole = (shape, (shape[0] + 2, shape[1] + 2), shape, (2 * shape[0], 2 * shape[1]), shape[::-1])[layout]
        host = values(self.rng, whole, self.dtype)
        pick: Any = (
            lambda t: t, lambda t: t[1:-1, 1:-1], lambda t: t[::-1, ::-1], lambda t: t[::2, ::2], lambda t: t.T,
        )[layout]  # fmt: skip
        return Pair(pick(self.be.array(host, dtype=self.dtype)), pick(host), f"{name}/{layout}")

    def operand(self) -> Pair:
        if self.rng.random() < 0.15:
            number = NUMBERS[self.rng.integers(len(NUMBERS))]
            return Pair(number, self.dtype.type(number), repr(number))
        return self.terms[self.rng.integers(len(self.terms))]

    def step(self) -> None:
        """One more op, of a recent term and of any."""
        recent = self.terms[-4:]
        x, y = recent[self.rng.integers(len(recent))], self.operand()
        if self.rng.random() < 0.5 and not isinstance(y.lazy, float):
            x, y = y, x
        self.terms.append(self.op(str(self.rng.choice(OPS)), x, y))

    def op(self, name: str, x: Pair, y: Pair) -> Pair:
        """An op, and NumPy's."""
        be = self.be
        if name == "where":
            a, b = self.operand(), self.terms[self.rng.integers(len(self.terms))]
            return Pair(
                be.where(x.lazy < y.lazy, a.lazy, b.lazy), np.where(x.value < y.value, a.value, b.value),
                f"where({x.text} < {y.text}, {a.text}, {b.text})",
            )  # fmt: skip
        if name in ("sqrt", "neg", "abs"):
            lazy = {"sqrt": be.sqrt, "neg": lambda t: -t, "abs": be.absolute}[name](x.lazy)
            return Pair(lazy, {"sqrt": np.sqrt, "neg": np.negative, "abs": np.abs}[name](x.value), f"{name}({x.text})")
        do: Any = {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
        }[name]  # fmt: skip
        return Pair(do(x.lazy, y.lazy), do(x.value, y.value), f"({x.text} {name} {y.text})")

    def store(self) -> None:
        """Store the last term in a new tensor, which is used further."""
        lazy, value, text = self.terms[-1]
        out = self.be.empty(value.shape, dtype=self.dtype)
        out[:] = lazy
        self.told.append(f"s{len(self.told)} = {text}")
        self.tensors.append(Pair(out, value.copy(), f"s{len(self.told) - 1}"))
        self.terms.append(self.tensors[-1])
        self.compare()

    def overwrite(self) -> None:
        """Store a term over a tensor of its shape; terms that are not stored by then would change their meaning."""
        lazy, value, text = self.terms[-1]
        fitting = [one for one in self.tensors if one.value.shape == value.shape]
        target = fitting[self.rng.integers(len(fitting))] if fitting else None
        if target is None:
            return
        target.lazy[:] = lazy
        target.value[...] = value.copy()
        self.told.append(f"{target.text}[:] = {text}")
        self.terms = list(self.tensors)
        self.compare()

    def compare(self) -> None:
        """All tensors have the bits of NumPy's."""
        for one in self.tensors:
            try:
                same_bits(one.lazy.get(), one.value)
            except AssertionError as error:
                raise AssertionError(f"{one.text}: {error}; {'; '.join(self.told)}") from error
            self.compared += one.value.size


def check(be: Any, seed: int) -> int:
    """Grow the trees of a seed and compare their results; return the number of values compared."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        grower = Grower(be, rng, TYPES[seed % 2])
        for _ in range(rng.integers(1, 4)):
            for _ in range(rng.integers(2, 10)):
                grower.step()
            (grower.overwrite if rng.random() < 0.4 else grower.store)()
        grower.store()
    return grower.compared
