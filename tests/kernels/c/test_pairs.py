"""Matrix products of factors rounded to bfloat16, against float64 on the rounded factors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, gen_backend
from neonlike.errors import ArgumentError
from neonlike.kernels.c import gemm, simd
from neonlike.kernels.c.gemm import find_launch, pairs_of
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import needs_compiler, new_backend, use_threads
from tests.support.rounded import FORMS, bound, laid, matrix, rounded
from tests.support.rounded import in_pairs as be
from tests.support.working_memory import GuardedMemory

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["be"]

SIZES = [
    (1, 1, 1), (3, 5, 7), (13, 801, 33), (30, 20, 100), (12, 768, 32), (5, 2001, 49), (50, 41, 17), (37, 1061, 10),
    (300, 2060, 70), (300, 19, 290), (200, 771, 2100), (100, 2060, 70), (12, 1031, 240), (21, 18001, 14), (64, 99, 1),
    (150, 261, 33), (33, 261, 150), (60, 2047, 130),
]  # fmt: skip
"""As the sizes of ``test_gemm.py`` with twice the inner dimension, some of them odd; and panels packed while others are
multiplied, of which there are few."""


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


STORED = pytest.mark.parametrize("stored", ["float32", "bfloat16"])
"""Dtypes of factors."""


@STORED
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_product_of_any_layout(rng: Any, size: tuple[int, int, int], form: int, stored: str) -> None:
    """The same numbers in each layout, so that they are multiplied in float64 once."""
    m, k, n = size
    values = [matrix(rng, *shape, False) for shape in ((m, k), (k, n), (m, n))]
    one, other = (rounded(factor) for factor in values[:2])
    wanted = 0.5 * (one @ other) - 0.25 * values[2].astype(float)
    slack = bound(one, other) + 1e-6 * np.abs(values[2])
    for *turned, wide in itertools.product([False, True], [False, True], [False, True], [0, 3]):
        given = zip(values, turned, (stored, stored, "float32"))
        a, b, c = (laid(one, flag, wide, dtype) for one, flag, dtype in given)
        launch = find_launch(a, b, c, None, form)
        assert launch is not None
        launch(address(a), address(b), address(c), 0.5, -0.25)
        assert (np.abs(c - wanted) <= slack).all(), (turned, wide)


@pytest.mark.parametrize("form", FORMS)
def test_a_factor_without_contiguous_rows_or_columns_is_not_rounded(
    rng: Any, form: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEONLIKE_AMX", "0")
    a, b, c = (matrix(rng, *s, False) for s in ((80, 200), (100, 50), (80, 50)))
    assert pairs_of(a[:, ::2], b, c, form) == 0
    assert pairs_of(a[:, :100], b, c, form) == form
    launch = find_launch(a[:, ::2], b, c, None, form)
    assert launch is not None
    launch(address(a), address(b), address(c))
    np.testing.assert_allclose(c, a[:, ::2].astype(float) @ b, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_rounding_is_to_nearest_ties_to_even(form: int) -> None:
    """Numbers are half way between two bfloat16, close to that, beyond the largest, below the smallest normal one."""
    ulp = 2.0**-7
    cases = {
        1 + ulp / 2: 1, 1 + 3 * ulp / 2: 1 + 2 * ulp, 1 + ulp / 2 + 2.0**-20: 1 + ulp, -1 - ulp / 2: -1,
        3.4e38: np.inf, -3.4e38: -np.inf, np.inf: np.inf, 1e-39: 0, -1e-39: 0, np.nan: np.nan,
    }  # fmt: skip
    for bits in (0x7F800001, 0x7FFFFFFF, 0xFF800001):  # nan whose upper halves are an infinity, or round to 0
        cases[np.uint32(bits).view(np.float32)] = np.nan
    one = np.zeros((2, 32), np.float32)
    one[0] = 1
    for value, wanted in cases.items():
        a, out = np.zeros((16, 2), np.float32), np.empty((16, 32), np.float32)
        a[:, 0] = value
        launch = find_launch(a, one, out, None, form)
        assert launch is not None
        launch(address(a), address(one), address(out))
        np.testing.assert_array_equal(out, np.float32(wanted), str(value))


@pytest.mark.parametrize("form", FORMS)
def test_subnormal_numbers_that_are_stored_become_zero(form: int) -> None:
    tiny = np.float32(2.0**-127)
    for turned, place in itertools.product([False, True], [0, 1, 32]):
        a, one = np.zeros((16, 40), bfloat16()), np.full((40, 32), 2.0**100, bfloat16())
        a[:, place], a[:, place + 1] = tiny, -(2.0**-126)
        out = np.empty((16, 32), np.float32)
        factors = (np.asfortranarray(a), one) if turned else (a, np.asfortranarray(one))
        launch = find_launch(*factors, out, None, form)
        assert launch is not None
        launch(*map(address, factors), address(out))
        np.testing.assert_array_equal(out, np.float32(-(2.0**-26)))


def test_factors_of_two_dtypes_are_rounded(be: Backend, rng: Any) -> None:
    a, b = matrix(rng, 70, 300, False), matrix(rng, 300, 90, False, stored="bfloat16")
    exact, slack = rounded(a) @ rounded(b.astype(np.float32)), 2 * bound(rounded(a), rounded(b.astype(np.float32)))
    A, B, C = be.array(a), be.array(b, dtype=bfloat16()), be.empty((70, 90))
    for _ in range(3):
        C[:] = be.dot(A, B)
        assert (np.abs(C.get() - exact) <= slack).all()


def test_what_bfloat16_is_stored_in_is_not_copied(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large matrix was converted to float32 for each product, which took most of the time."""
    be = new_backend(default_dtype=bfloat16(), product_precision="bfloat16")
    A, B = (be.array(rng.standard_normal(shape)) for shape in ((96, 256), (3, 256, 64)))
    C = be.empty((3, 96, 64))
    monkeypatch.setattr(gemm, "as_dtype", None)
    for one, out in zip(B, C):
        for _ in range(3):
            out[:] = be.dot(A, one)
            be.compound_dot(A, one, out)
    be.batched_dot(A, B, C)


def test_expressions_and_products_of_a_backend(be: Backend, rng: Any) -> None:
    a, b = matrix(rng, 70, 300, False), matrix(rng, 300, 90, False)
    exact = rounded(a) @ rounded(b)
    slack = bound(rounded(a), rounded(b)) * 2
    A, B, C = be.array(a), be.array(b), be.empty((70, 90))
    for _ in range(4):  # planned, planned again, replayed
        C[:] = be.dot(A, B)
        assert (np.abs(C.get() - exact) <= slack).all()
        C[:] = be.dot(A, B) * 2 + 1
        assert (np.abs(C.get() - 2 * exact - 1) <= 2 * slack + 1e-5).all()
        be.compound_dot(A, B, C, relu=True)
        assert (np.abs(C.get() - np.maximum(exact, 0)) <= slack).all()
        be.compound_dot(be.array(a.T.copy()).T, B, C, alpha=0.5)
        assert (np.abs(C.get() - exact / 2) <= slack).all()
    many = be.array(rng.standard_normal((3, 300, 90)))
    out = be.empty((3, 70, 90))
    be.batched_dot(A, many, out)
    for one, found in zip(many.get(), out.get()):
        assert (np.abs(found - rounded(a) @ rounded(one)) <= bound(rounded(a), rounded(one))).all()


def test_what_was_learned_follows_the_precision(be: Backend, rng: Any) -> None:
    """Assignments and calls that are replayed multiply as is set, not as was set when they were learned."""
    a, b = matrix(rng, 64, 512, False), matrix(rng, 512, 64, False)
    A, B, C, D = be.array(a), be.array(b), be.empty((64, 64)), be.empty((64, 64))

    def results() -> Any:
        for _ in range(4):
            C[:] = be.dot(A, B)
            be.compound_dot(A, B, D)
        return C.get(), D.get()

    in_pairs = results()
    be.product_precision = "float32"
    plain = results()
    for x, y in zip(in_pairs, plain):
        np.testing.assert_allclose(y, a.astype(float) @ b, atol=1e-4)
        assert np.abs(x - y).max() > 1e-3


@STORED
def test_results_do_not_depend_on_threads(
    be: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    shapes = ((130, 2050, 70), (20, 5000, 20), (700, 300, 40))
    for (m, k, n), *turned in itertools.product(shapes, [False, True], [False, True]):
        a, b, found = matrix(rng, m, k, turned[0], stored=stored), matrix(rng, k, n, turned[1], stored=stored), []
        for threads in (1, 2, 5):
            use_threads(monkeypatch, threads)
            c = np.empty((m, n), np.float32)
            assert gemm.multiply(a, b, c, pairs=be.executor.own_engine.pairs)
            found.append(c)
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@STORED
@pytest.mark.parametrize("form", FORMS)
def test_kernels_keep_to_their_working_memory(
    rng: Any, monkeypatch: pytest.MonkeyPatch, form: int, stored: str
) -> None:
    held = GuardedMemory()
    monkeypatch.setattr(gemm, "held_workspace", held)
    sizes = ((150, 2050, 70), (40, 2050, 150), (100, 18000, 33))
    for (m, k, n), threads, turned in itertools.product(sizes, (1, 3), (False, True)):
        use_threads(monkeypatch, threads)
        a, b = matrix(rng, m, k, turned, stored=stored), matrix(rng, k, n, not turned, stored=stored)
        c = np.empty((m, n), np.float32)
        launch = find_launch(a, b, c, None, form)
        assert launch is not None
        launch(address(a), address(b), address(c))
        assert held.intact(), (m, k, n, threads, turned)


def test_other_dtypes_and_small_products_are_not_rounded(rng: Any) -> None:
    be = new_backend(product_precision="bfloat16")
    for dtype, size in ((np.float64, 100), (np.float32, 5)):
        a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
        out = be.empty((size, size), dtype=dtype)
        out[:] = be.dot(be.array(a, dtype=dtype), be.array(b, dtype=dtype))
        np.testing.assert_allclose(out.get(), a.astype(float) @ b, atol=1e-5)


def test_float16_is_not_rounded_again() -> None:
    """Its 11 bits are more than those of bfloat16: products of it are computed in float32."""
    be = new_backend(default_dtype=np.float16, product_precision="bfloat16")
    A, B, C = be.empty((128, 128)), be.ones((128, 128)), be.empty((128, 128))
    A.fill(1 + 2.0**-9)
    for _ in range(3):
        C[:] = be.dot(A, B)
        assert (C.get() == 128.25).all()
        be.compound_dot(A, B, C)
        assert (C.get() == 128.25).all()


def test_bfloat16_is_multiplied_as_it_is(rng: Any) -> None:
    be = new_backend(default_dtype=bfloat16())
    a, b = (rounded(rng.standard_normal((96, 96))) for _ in range(2))
    A, B, C = be.array(a), be.array(b), be.empty((96, 96))
    for _ in range(3):
        C[:] = be.dot(A, B)
        assert (np.abs(C.get().astype(float) - a @ b) <= 2.0**-8 * np.abs(a @ b) + bound(a, b)).all()


def test_the_instruction_is_used_where_there_is_one() -> None:
    """The form that is asked for is that of ``pairs.h``: by the instruction if the compiler may use it."""
    compiler = find_compiler()
    assert compiler is not None
    flags = {flag for line in open("/proc/cpuinfo") if line.startswith("flags") for flag in line.split()}
    assert simd.pair_form(compiler) == int(compiler.native and "avx512_bf16" in flags)


def test_a_precision_that_the_cpu_does_not_have() -> None:
    be = new_backend()
    assert be.product_precision == "float32"
    with pytest.raises(ArgumentError, match="got 'tf32'; cpu backends take float32, bfloat16"):
        be.product_precision = "tf32"
    assert be.product_precision == "float32"
    with pytest.raises(ArgumentError, match="product_precision: got 'half'"):
        new_backend(product_precision="half")


def test_a_refused_precision_leaves_the_backend(be: Backend) -> None:
    for wrong in ("half", "tf32", "", 0):
        with pytest.raises(ArgumentError, match="product_precision: got"):
            gen_backend("cpu", product_precision=wrong)
        assert NervanaObject.be is be
    assert (be.ones((3, 3)).get() == 1).all()


def test_the_variable_is_for_backends_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, found in (("tf32", "float32"), ("bfloat16", "bfloat16")):
        monkeypatch.setenv("NEONLIKE_PRODUCT_PRECISION", wanted)
        assert new_backend().product_precision == found
        assert new_backend(product_precision="float32").product_precision == "float32"
