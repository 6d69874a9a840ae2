"""The error of sums: float32 within 1e-6 of float64 whatever the length, float16 added up in float32.

Both engines add a few hundred numbers at most in float32 before a float64 total takes over, in an order that does not
depend on the number of threads. A plain float32 loop over the 1e8 values here is off by half, or stops at 2**24.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optree.functions import F
from tests.support.engines import ENGINES, backend, use_threads

pytestmark = pytest.mark.optree

HUGE = 10**8
LARGE = 3_000_017
RELATIVE = 1e-6
"""Of float64, for float32 sums of numbers of one sign."""


@pytest.fixture(params=(1, 2), ids=("1 thread", "2 threads"))
def threads(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    use_threads(monkeypatch, request.param)
    return int(request.param)


def uniform(count: int) -> Any:
    """U[0, 1)."""
    return np.random.default_rng(1).random(count, np.float32)


def mixed(count: int) -> Any:
    """Positive numbers of magnitudes 2**-30 to 2**10, the large ones rare."""
    rng = np.random.default_rng(2)
    made = rng.random(count, np.float32)
    made *= made
    made[::1000] *= 1024
    made[1::3] *= np.float32(2.0**-30)
    return made


def total(be: Backend, expression: Any) -> float:
    """The one float32 value of ``expression``."""
    out = be.empty((1, 1), dtype=np.float32)
    out[:] = expression
    return float(out.get()[0, 0])


@pytest.mark.backend
@pytest.mark.parametrize("make", (uniform, mixed))
def test_a_hundred_million_numbers(make: Any) -> None:
    host = make(HUGE)
    exact = float(np.sum(host, dtype=np.float64))
    for engine in ENGINES:
        for be in backend(engine):
            row = be.wrap(host.reshape(1, HUGE))
            assert total(be, F.sum(row)) == pytest.approx(exact, rel=RELATIVE, abs=0)
            assert total(be, F.sum(row.T)) == pytest.approx(exact, rel=RELATIVE, abs=0)
            assert total(be, F.sum(row.reshape(10_000, 10_000))) == pytest.approx(exact, rel=RELATIVE, abs=0)


@pytest.mark.parametrize("make", (uniform, mixed))
def test_rows_columns_and_all(be: Backend, threads: int, make: Any) -> None:
    host = make(LARGE)
    for shape in ((1, LARGE), (LARGE, 1), (LARGE // 7, 7), (7, LARGE // 7), (1700, 1750)):
        part = host[: shape[0] * shape[1]].reshape(shape)
        x, wide = be.array(part), part.astype(np.float64)
        for axis in (0, 1, None):
            got = F.sum(x, axis).asnumpyarray()
            np.testing.assert_allclose(got, wide.sum(axis=axis, keepdims=True), RELATIVE, 0, err_msg=f"{shape} {axis}")


def test_mean_and_variance(be: Backend, threads: int) -> None:
    """Around a mean that is large beside the spread, where the textbook formula in float32 has no digit left."""
    host = (1000 + np.random.default_rng(3).standard_normal((1500, 2003))).astype(np.float32)
    x, wide = be.array(host), host.astype(np.float64)
    for axis in (0, 1, None):
        mean, var = (np.asarray(f(wide, axis=axis, keepdims=True)) for f in (np.mean, np.var))
        np.testing.assert_allclose(F.mean(x, axis).asnumpyarray(), mean, RELATIVE, 0)
        np.testing.assert_allclose(F.var(x, axis).asnumpyarray(), var, 1e-5, 0)


def test_the_number_of_threads_changes_no_bit(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    host = mixed(LARGE)
    found = []
    for count in (1, 2, 3):
        use_threads(monkeypatch, count)
        be.executor.clear()  # which remember how many threads are worth starting
        x = be.array(host[: LARGE // 7 * 7].reshape(7, -1))
        found.append([F.sum(e, axis).asnumpyarray().tobytes() for e in (x, x.T) for axis in (0, 1, None)])
    assert found[0] == found[1] == found[2]


def test_sums_that_cancel_keep_what_is_left(be: Backend, threads: int) -> None:
    """Error relative to the sum of absolute values: no more than blocks of 256 float32 additions make."""
    host = np.random.default_rng(4).standard_normal((1, LARGE)).astype(np.float32)
    exact, size = float(host.sum(dtype=np.float64)), float(np.abs(host).sum(dtype=np.float64))
    assert abs(total(be, F.sum(be.array(host))) - exact) < 1e-7 * size


def test_float16_adds_up_in_float32(be: Backend, threads: int) -> None:
    """Ones in float16 stop at 2048 when they are added up in float16."""
    for shape, axis in (((1, 100_000), 1), ((100_000, 1), 0), ((100_000, 3), 0), ((400, 250), None)):
        ones = be.ones(shape, dtype=np.float16)
        expected = np.ones(shape).sum(axis=axis, keepdims=True)
        out = be.empty(expected.shape, dtype=np.float32)
        out[:] = F.sum(ones, axis)
        np.testing.assert_array_equal(out.get(), expected)
        mean = be.empty(expected.shape, dtype=np.float16)
        mean[:] = F.mean(ones, axis)
        np.testing.assert_array_equal(mean.get(), np.ones_like(expected))


def test_float16_rounds_once(be: Backend) -> None:
    host = np.random.default_rng(5).random((300, 1000)).astype(np.float16)
    for axis in (0, 1):
        wide = host.astype(np.float64).sum(axis=axis, keepdims=True)
        out = be.empty(wide.shape, dtype=np.float16)
        out[:] = F.sum(be.array(host, dtype=np.float16), axis)
        np.testing.assert_allclose(out.get().astype(np.float64), wide, 2**-11 * 1.001, 0)
