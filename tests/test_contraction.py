"""``+ - * /`` and ``sqrt`` of expressions are IEEE 754's, each rounded once, on every engine: the bits of NumPy's.

No kernel of an expression contracts a product and a sum to a fused multiply-add; compound primitives may.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.optimized, pytest.mark.backend]

TYPES = ["float32", "float64"]


def same_bits(found: Any, expected: Any) -> None:
    """Fail unless two arrays are equal bit by bit; any nan equals another."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    wrong = (found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")) & ~(
        np.isnan(found) & np.isnan(expected)
    )
    at = np.unravel_index(np.argmax(wrong), wrong.shape)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size}, {at}: {found[at].hex()}, not {expected[at].hex()}"


# Named cases --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=TYPES)
def operands(be: Backend, request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Two tensors whose products are rounded."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0.1, 3, (2, 33, 70)).astype(request.param)
    return be.array(a, dtype=request.param), be.array(b, dtype=request.param)


def test_a_product_less_itself_is_zero(be: Backend, operands: tuple[Any, Any]) -> None:
    a, b = operands
    out, product = be.empty_like(a), be.empty_like(a)
    product[:] = a * b
    for difference in (a * b - product, product - a * b, a * b + -product, (a * b - product) * 2 + (product - a * b)):
        out[:] = difference
        same_bits(out.get(), np.zeros(a.shape, a.dtype))


def test_a_root_of_a_square_less_it_is_no_nan(be: Backend, operands: tuple[Any, Any]) -> None:
    a, _ = operands
    square, out = be.empty_like(a), be.empty_like(a)
    square[:] = a * a
    out[:] = be.sqrt(a * a - square)
    same_bits(out.get(), np.zeros(a.shape, a.dtype))


def test_products_of_equal_factors_cancel(be: Backend, operands: tuple[Any, Any]) -> None:
    a, b = operands
    same, out = be.empty_like(a), be.empty_like(a)
    same[:] = a
    out[:] = a * a - same * same
    same_bits(out.get(), np.zeros(a.shape, a.dtype))
    out[:] = a * b - b * a
    same_bits(out.get(), np.zeros(a.shape, a.dtype))


def test_a_cross_product_with_itself_is_zero(be: Backend) -> None:
    values = np.random.default_rng(1).uniform(0.1, 3, (3, 40)).astype(np.float32)
    v = ag.param(be.array(values))
    same_bits(ag.cross(v, v).get(), np.zeros((3, 40), np.float32))


def test_a_sum_of_squares_less_its_terms(be: Backend, operands: tuple[Any, Any]) -> None:
    """Sums over an axis add what the terms are rounded to."""
    a, b = operands
    product, out = be.empty_like(a), be.empty((a.shape[0], 1), dtype=a.dtype)
    product[:] = a * b
    out[:] = be.sum(a * b - product, axis=1)
    same_bits(out.get(), np.zeros(out.shape, a.dtype))


def test_an_optimizer_step_has_the_bits_of_numpy(be: Backend, operands: tuple[Any, Any]) -> None:
    a, b = operands
    velocity, weights, gradient = a.get() - 1, a.get(), b.get()
    v, w, g = (be.array(x, dtype=a.dtype) for x in (velocity, weights, gradient))
    for _ in range(3):
        v[:] = v * 0.9 - 0.1 * (g + 5e-4 * w)
        w[:] = w + v
        kind = a.dtype.type
        velocity = velocity * kind(0.9) - kind(0.1) * (gradient + kind(5e-4) * weights)
        weights = weights + velocity
    same_bits(v.get(), velocity)
    same_bits(w.get(), weights)


# Random trees -------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """An expression and its value, by NumPy op by op."""

    lazy: Any
    value: Any


SHAPES = ((7, 65), (1, 65), (7, 1), (7, 65), (1, 1))
NUMBERS = (0.1, -1.7, 3.0, 1e-3, 7.25, 1 / 3)


def leaves(be: Backend, rng: np.random.Generator, dtype: str) -> Iterator[Pair]:
    """Tensors of some shapes and layouts: with room around, backwards, transposed."""
    for shape in SHAPES:
        layout = rng.integers(4)
        whole = shape[::-1] if layout == 3 else tuple(n + 2 for n in shape) if layout == 1 else shape
        values = (rng.uniform(0.1, 4, whole) * rng.choice([-1, 1], whole)).astype(dtype)
        tensor = be.array(values, dtype=dtype)
        pick: Any = [lambda t: t, lambda t: t[1:-1, 1:-1], lambda t: t[::-1, ::-1], lambda t: t.T][layout]
        yield Pair(pick(tensor), pick(values))


def grown(be: Backend, rng: np.random.Generator, dtype: str, ops: int) -> Pair:
    """A random expression of ``ops`` operations; operands are taken again and again."""
    terms = list(leaves(be, rng, dtype))
    for _ in range(ops):
        recent = terms[-min(len(terms), 4) :]
        x = recent[rng.integers(len(recent))]
        y = terms[rng.integers(len(terms))]
        if rng.random() < 0.2:
            number = NUMBERS[rng.integers(len(NUMBERS))]
            y = Pair(number, np.dtype(dtype).type(number))
        if rng.random() < 0.5 and not isinstance(y.lazy, float):
            x, y = y, x
        name = rng.choice(["+", "-", "*", "/", "*", "+", "sqrt", "neg"])
        terms.append(
            {
                "+": lambda x=x, y=y: Pair(x.lazy + y.lazy, x.value + y.value),
                "-": lambda x=x, y=y: Pair(x.lazy - y.lazy, x.value - y.value),
                "*": lambda x=x, y=y: Pair(x.lazy * y.lazy, x.value * y.value),
                "/": lambda x=x, y=y: Pair(x.lazy / y.lazy, x.value / y.value),
                "sqrt": lambda x=x: Pair(be.sqrt(x.lazy), np.sqrt(x.value)),
                "neg": lambda x=x: Pair(-x.lazy, -x.value),
            }[name]()
        )
    return terms[-1]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("seed", range(10))
def test_random_trees_have_the_bits_of_numpy(be: Backend, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        for _ in range(30 if be.engine.name == "numpy" else 2):
            lazy, value = grown(be, rng, dtype, int(rng.integers(3, 12)))
            out = be.empty(value.shape, dtype=dtype)
            out[:] = lazy
            same_bits(out.get(), value)


# The setting --------------------------------------------------------------------------------------------------------

CONTRACTED = """
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu")
x = np.random.default_rng(5).uniform(0.1, 3, (4, 100)).astype(np.float32)
a, product, out = be.array(x), be.empty((4, 100)), be.empty((4, 100))
product[:] = a * a
out[:] = a * a - product
print(be.engine.name, np.count_nonzero(out.get()))
"""


@pytest.mark.cpu_only("a process on the C engine")
@pytest.mark.engines("c")
def test_contraction_is_there_for_the_asking(be: Backend, tmp_path: Path) -> None:
    """Where the machine has an instruction for it, ``NEONLIKE_CONTRACT=1`` rounds a*a - y once."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    for setting, some in (("0", False), ("1", " fma" in flags)):
        environment = {**os.environ, "NEONLIKE_CONTRACT": setting, "NEONLIKE_CPU_JIT": "1"}
        command = [sys.executable, "-c", CONTRACTED]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
        engine, count = done.stdout.split()
        assert engine == "c"
        assert (int(count) > 0) == some


