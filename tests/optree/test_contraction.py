"""``+ - * /`` and ``sqrt`` of expressions are IEEE 754's, each rounded once, on every engine: the bits of NumPy's.

No kernel of an expression contracts a product and a sum to a fused multiply-add; compound primitives may.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.kernels.c.toolchain import find_compiler
from tests.fuzz import bits
from tests.fuzz.bits import same_bits
from tests.kernels.c.vector_code import macros

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.optimized, pytest.mark.backend]

# Named cases --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=bits.TYPES)
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
    """Sums over an axis add the rounded terms."""
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


@pytest.mark.parametrize("seed", range(20))  # `make fuzz` has more
def test_random_trees_have_the_bits_of_numpy(be: Backend, seed: int) -> None:
    for number in range(30 if be.engine.name == "numpy" else 2):
        assert bits.check(be, 1000 * number + seed) > 0


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
    """Where the compiler has an instruction for it, ``NEONLIKE_CONTRACT=1`` rounds a*a - y once.

    Linux lists it among the flags of x86 processors; those of arm64 all have it, and no flag for it.
    """
    compiler = find_compiler()
    assert compiler is not None
    known = macros(compiler)
    fused = any(f"#define {name} " in known for name in ("__FMA__", "__FP_FAST_FMAF", "__ARM_FEATURE_FMA"))
    for setting, some in (("0", False), ("1", fused)):
        environment = {**os.environ, "NEONLIKE_CONTRACT": setting, "NEONLIKE_CPU_JIT": "1"}
        command = [sys.executable, "-c", CONTRACTED]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
        engine, count = done.stdout.split()
        assert engine == "c"
        assert (int(count) > 0) == some
