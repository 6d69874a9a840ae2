"""Every kind of kernel, on small odd shapes, and the work around kernels: cases by name.

A case is a generator: it computes on a backend and yields names and tensors, which are the same on every backend. Each
makes all that it needs, so that it can be run in a process of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from neonlike.optree.functions import F

Results = Iterator[tuple[str, Any]]
Made = Callable[[Any], Results]
CASES: dict[str, Made] = {}
"""By name."""
DTYPES = ("float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64")


def case(name: str) -> Callable[[Made], Made]:
    """Enter a case."""

    def enter(made: Made) -> Made:
        CASES[name] = made
        return made

    return enter


class Inputs:
    """Tensors of a backend that cases of expressions begin with; the same values each time."""

    def __init__(self, be: Any) -> None:
        self.be, self.rng = be, np.random.default_rng(11)
        self.a, self.b = (self.normal(67, 129) for _ in range(2))
        self.row, self.column = self.normal(1, 129), self.normal(67, 1)
        self.square, self.long = self.normal(129, 129), self.normal(3, 20011)
        self.index = be.array([[3], [0], [66], [3], [1]], dtype=np.int32)

    def normal(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Normal numbers."""
        return self.be.array(self.rng.standard_normal(shape), dtype=dtype)

    def of(self, shape: tuple[int, ...], expression: Any, dtype: Any = np.float32) -> Any:
        """The value of an expression."""
        out = self.be.empty(shape, dtype=dtype)
        out[:] = expression
        return out


# Expressions ----------------------------------------------------------------------------------------------------


@case("elementwise")
def elementwise(be: Any) -> Results:
    """Contiguous, broadcast, transposed and sliced operands."""
    x = Inputs(be)
    yield "contiguous", x.of((67, 129), be.sig(x.a * x.b + 0.5))
    yield "broadcasting", x.of((67, 129), x.a * x.row + x.column)
    yield "a transposed view", x.of((129, 67), x.a.T * 2 + x.b.T)
    yield "a slice", x.of((31, 43), x.a[2:64:2, ::3] * 2)
    yield "a transposed view, by vectors", x.of((36, 4096), x.normal(4096, 36).T * 2)
    half = x.normal(72, 104, dtype=np.float16)
    yield "a transposed view of float16, by vectors", x.of((104, 72), half.T, np.float16)


@case("functions")
def functions(be: Any) -> Results:
    """Each function of the table of expressions that has a kernel's text of its own."""
    x = Inputs(be)
    up = be.absolute(x.a) + 0.5
    for name in ("exp", "log", "sqrt", "tanh", "sig", "relu", "sin", "cos", "log2", "exp2", "square", "sgn", "rint"):
        yield name, x.of((67, 129), getattr(be, name)(up))
    yield "power", x.of((67, 129), up**1.7)
    yield "remainder", x.of((67, 129), x.a % up)
    yield "where", x.of((67, 129), be.where(x.a > x.b, x.a, x.b * 2))


@case("sums and extremes")
def sums(be: Any) -> Results:
    """Over all, rows and columns, of short and long ones."""
    x = Inputs(be)
    for axis, shape in ((None, (1, 1)), (0, (1, 129)), (1, (67, 1))):
        yield f"sum, axis {axis}", x.of(shape, be.sum(x.a * x.b, axis=axis))
        yield f"variance, axis {axis}", x.of(shape, be.var(x.a, axis=axis))
        yield f"norm, axis {axis}", x.of(shape, be.norm2(x.a * 1e20, axis=axis))
    yield "argmax", x.of((67, 1), be.argmax(x.a, axis=1))
    yield "long rows", x.of((3, 1), be.max(x.long, axis=1))
    yield "long columns", x.of((1, 3), be.sum(x.long.T, axis=0))


@case("softmax")
def softmax(be: Any) -> Results:
    """Softmax of rows, columns and long columns."""
    x = Inputs(be)
    tall = x.normal(4099, 36)
    yield "rows", x.of((67, 129), be.fprop_softmax(x.a, 1))
    yield "columns", x.of((67, 129), be.fprop_softmax(x.a, 0))
    yield "long columns", x.of((4099, 36), F.softmax(tall, 0))
    yield "log of a sum of powers, long columns", x.of((1, 36), F.logsumexp(tall, 0))


@case("products")
def products(be: Any) -> Results:
    """Products of matrices and their transposes, within expressions."""
    x = Inputs(be)
    yield "plain", x.of((67, 129), be.dot(x.a, x.square))
    yield "transposed factors", x.of((129, 129), be.dot(x.a.T, x.b) + x.square.T)
    left, right = (be.array(x.rng.integers(-9, 9, shape), dtype="int32") for shape in ((67, 33), (33, 70)))
    yield "of integers, by our own kernel", x.of((67, 70), be.dot(left, right), "int64")


def precise(be: Any, precision: str) -> Results:
    """Products of float32 whose factors are rounded as ``precision`` says."""
    x = Inputs(be)
    with choosing(be, product_precision=precision):
        yield "odd sizes", x.of((67, 129), be.dot(x.a, x.square))
        yield "transposed", x.of((129, 129), be.dot(x.a.T, x.b))
        batched, left, right = be.empty((5, 17, 9)), x.normal(5, 17, 33), x.normal(5, 33, 9)
        be.batched_dot(left, right, batched)
        yield "batched", batched


for _name in ("tf32", "bfloat16"):
    CASES[f"products in {_name}"] = partial(precise, precision=_name)


@case("gathers and scatters")
def gathers(be: Any) -> Results:
    """By an index, some of it twice."""
    x = Inputs(be)
    yield "gathered rows", x.of((5, 129), be.take(x.a, x.index, axis=0))
    yield "rows added where indices are equal", x.of((67, 129), F.untake(x.normal(5, 129), x.index, (67, 129), 0))
    yield "sorted", x.of((67, 129), be.sort(x.a, axis=1))
    yield "positions in order", x.of((67, 129), be.argsort(x.a, axis=1))
    yield "running sums", x.of((67, 129), be.cumsum(x.a, axis=1))


@case("random numbers")
def random(be: Any) -> Results:
    """The CPU's stream; and rounding at random, which is right on the average."""
    x = Inputs(be)
    yield "uniform", x.of((67, 129), be.rand() + x.a)
    yield "stochastic rounding", be.array(np.full((1, 1), float(rounds_at_random(be))))


def typed(be: Any, dtype: str) -> Results:
    """Arithmetic, a sum and an extreme of one data type."""
    x = Inputs(be)
    wide = be.array(x.rng.integers(0, 9, (33, 65)), dtype=dtype)
    yield "elements", x.of((33, 65), wide * 3 + 1, dtype)
    yield "sums", x.of((33, 1), be.sum(wide, axis=1), dtype if dtype[0] in "fb" else "int64")
    yield "largest", x.of((1, 65), be.max(wide, axis=0), dtype)
    yield "turned", x.of((65, 33), wide.T, dtype)


for _name in DTYPES:
    CASES[f"data type {_name}"] = partial(typed, dtype=_name)


@case("targets that are read")
def targets(be: Any) -> Results:
    """The target of an assignment among its operands, and parts of it."""
    x = Inputs(be)
    x.square[:] = x.square.T + 1
    yield "a target that is read", x.square
    x.a[3:50, ::2] = x.b[3:50, ::2] - 1
    yield "a part of a target", x.a


@case("prepared assignments")
def prepared(be: Any) -> Results:
    """Several results of one call, made three times."""
    x = Inputs(be)
    step = be.prepare([(x.a, x.a * 0.9 + x.b), (x.b, be.sqrt(x.b * x.b + x.a * x.a))])
    for _ in range(3):
        step()
    yield "one", x.a
    yield "the other", x.b


@case("three threads")
def threads(be: Any) -> Results:
    """Three threads that make tensors, compute and let them go, at once."""
    found: dict[int, Any] = {}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            x = be.array(np.full((33, 65), number + 1.0))
            for _ in range(20):
                y = be.empty((33, 65))
                y[:] = be.sqrt(x * x + 1)
                x = be.empty((33, 65))
                x[:] = y * 0.5
            found[number] = x
        except BaseException as error:
            failed.append(error)

    started = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    yield from ((f"thread {number}", found[number]) for number in range(3))


@case("streams and events")
def streams(be: Any) -> Results:
    """Work between marks in time, copies to the host and back, memory that is used again."""
    x = Inputs(be)
    start, end = be.init_mark(), be.init_mark()
    be.record_mark(start)
    for _ in range(10):
        back = be.array((x.a * 1.5).asnumpyarray())
        x.a[:] = back * 0.5
    be.record_mark(end)
    be.synchronize_mark(end)
    yield "copied", x.a
    yield "time passes", be.array(np.full((1, 1), float(be.get_time(start, end) >= 0)))


# Around them ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def choosing(be: Any, **ways: Any) -> Iterator[None]:
    """Attributes of a GPU backend that say how it computes."""
    if be.backend_name != "gpu":
        yield
        return
    before = {name: getattr(be, name) for name in ways}
    for name, value in ways.items():
        setattr(be, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(be, name, value)


def rounds_at_random(be: Any) -> bool:
    """Whether values between two that 2 bits can hold become either, and on the average what they were."""
    out = be.empty((40, 250))
    out.rounding = 2
    out[:] = be.array(np.full((40, 250), 9.375)) * 1
    found = out.get()
    kept = be.backend_name != "gpu" or set(np.unique(found)) == {8.0, 10.0}
    return kept and abs(float(found.mean()) - 9.375) < 0.1
