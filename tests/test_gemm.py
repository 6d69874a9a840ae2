"""The packed matrix product against float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.gemm import gemm
from tests.engines import needs_compiler

SIZES = [(1, 1, 1), (3, 5, 7), (13, 400, 33), (30, 20, 100), (12, 384, 32), (5, 1000, 49), (200, 385, 2100)]


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


def matrix(rng: Any, rows: int, columns: int, dtype: str, turned: bool) -> Any:
    made = rng.standard_normal((columns, rows) if turned else (rows, columns)).astype(dtype)
    return made.T if turned else made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_product_of_any_layout(rng: Any, size: tuple[int, int, int], dtype: str) -> None:
    m, k, n = size
    tolerance = {"float32": 3e-6, "float64": 1e-14}[dtype] * max(k, 16)
    for turned in itertools.product([False, True], repeat=3):
        shapes = ((m, k), (k, n), (m, n))
        a, b, c = (matrix(rng, *shape, dtype, flag) for shape, flag in zip(shapes, turned))
        exact = a.astype(float) @ b.astype(float)
        wanted = 0.5 * exact - 0.25 * c.astype(float)
        assert gemm(a, b, c, 0.5, -0.25)
        np.testing.assert_allclose(c, wanted, atol=tolerance)
        c[:] = np.nan  # beta 0: not read
        assert gemm(a, b, c)
        np.testing.assert_allclose(c, exact, atol=tolerance)


def test_parts_of_larger_matrices(rng: Any) -> None:
    whole = rng.standard_normal((3, 40, 50)).astype(np.float32)
    a, b, c = whole[0, 3:20:2, ::3], whole[1, 5:22, 8:30], whole[2, 10:19, 20:42]
    before = whole[2].copy()
    assert gemm(a, b, c)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-4)
    before[10:19, 20:42] = c
    np.testing.assert_array_equal(whole[2], before)


def test_the_number_of_threads_changes_nothing(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for m, k, n in ((300, 500, 70), (20, 500, 300)):  # threads share rows, then columns
        a, b = matrix(rng, m, k, "float32", False), matrix(rng, k, n, "float32", True)
        found = []
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("NEONLIKE_NUM_THREADS", threads)
            found.append(np.empty((m, n), np.float32))
            assert gemm(a, b, found[-1])
        assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


def test_nan_and_infinity_reach_their_own_row_and_column(rng: Any) -> None:
    a, b, c = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(3))
    a[3, 7], b[2, 5] = np.nan, np.inf
    assert gemm(a, b, c)
    bad = ~np.isfinite(c)
    wanted = np.zeros((20, 20), bool)
    wanted[3, :], wanted[:, 5] = True, True
    np.testing.assert_array_equal(bad, wanted)


def test_what_it_has_no_kernel_for_is_left_alone() -> None:
    f16, f32, f64 = (np.ones((2, 2), dtype) for dtype in ("float16", "float32", "float64"))
    scattered, nothing = np.zeros((4, 4), np.float32)[::2, ::2], np.ones((2, 0), np.float32)
    assert not gemm(f16, f16, f16) and not gemm(f32, f64, f32) and not gemm(f32, f32, scattered)
    assert not gemm(nothing, nothing.T, f32)
    assert (f32 == 1).all() and (scattered == 0).all()
