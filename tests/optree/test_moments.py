"""Variances of long rows, whose sums and sums of squares are found while memory is read once.

The reference is float64, around the float64 mean. On each engine, since the one in C alone reads once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c.fit import SPLIT
from neonlike.optree.functions import F
from tests.support.engines import backend, use_threads

pytestmark = pytest.mark.engines("numpy", "c")

LONG = 5 * SPLIT + 4099
"""Elements of a row of six parts, the last of which is short and no multiple of a vector."""
RELATIVE = 1e-6


@pytest.fixture
def c() -> Iterator[Backend]:
    yield from backend("c")


def steps(rng: Any) -> Any:
    """Parts that are far from each other."""
    return rng.standard_normal(LONG) + 100 * (np.arange(LONG) // SPLIT)


def early(rng: Any) -> Any:
    """Each part starts with values far from the rest of it."""
    made = rng.standard_normal(LONG)
    made[np.arange(LONG) % SPLIT < 4096] += 3000
    return made


ROWS = {
    "around 0": lambda rng: rng.standard_normal(LONG),
    "around 10000": lambda rng: 1e4 + rng.standard_normal(LONG),
    "around -3e7": lambda rng: -3e7 + 100 * rng.standard_normal(LONG),
    "rising": lambda rng: np.linspace(-5, 900, LONG),
    "steps": steps,
    "early": early,
    "one part away": lambda rng: rng.standard_normal(LONG) + 1e4 * (np.arange(LONG) < SPLIT),
    "tiny": lambda rng: 1e-18 * rng.standard_normal(LONG),
    "huge": lambda rng: 1e16 * (5 + rng.standard_normal(LONG)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_mean_and_variance_of_a_long_row(be: Backend, rng: Any, name: str, dtype: Any) -> None:
    host = ROWS[name](rng).astype(dtype)
    wide = host.astype(np.float64)
    x, mean, var = be.array(host.reshape(1, -1), dtype=dtype), be.empty((1, 1), dtype), be.empty((1, 1), dtype)
    be.assign_many([(mean, F.mean(x, 1)), (var, F.var(x, 1))])
    tight = 1 if dtype == np.float32 else 1e-6
    rounding = (np.finfo(dtype).eps * wide.mean()) ** 2  # the deviations are from the mean as it is rounded
    np.testing.assert_allclose(mean.get(), wide.mean(), RELATIVE * tight, 1e-7 * tight * np.abs(wide).mean())
    np.testing.assert_allclose(var.get(), wide.var(), RELATIVE * tight, rounding)


def test_parts_that_start_far_from_their_mean(be: Backend) -> None:
    """All squares are rounded alike here: from the mean of the first chunk they would be wrong by 1e-5."""
    for value in (1.6742734, 1.4857611, 1.9237339):
        host = np.zeros((1, 6 * SPLIT), np.float32)
        host[0, np.arange(host.size) % SPLIT < 4096] = value
        np.testing.assert_allclose(F.var(be.array(host), 1).asnumpyarray(), host.astype(np.float64).var(), RELATIVE)


def test_float16_rows(be: Backend, rng: Any) -> None:
    host = (3 + rng.standard_normal((2, LONG))).astype(np.float16)
    out = be.empty((2, 1), dtype=np.float32)
    out[:] = F.var(be.array(host, dtype=np.float16), 1)
    np.testing.assert_allclose(out.get()[:, 0], host.astype(np.float64).var(1), 1e-5)


def test_equal_numbers_have_no_variance(be: Backend) -> None:
    for value in (0.0, 1.0, -4096.0):
        x = be.array(np.full((1, LONG), value, np.float32))
        assert F.var(x, 1).asnumpyarray().tolist() == [[0.0]]
        assert F.mean(x, 1).asnumpyarray().tolist() == [[value]]


@pytest.mark.parametrize("place", (0, 3, SPLIT - 1, SPLIT + 70, LONG - 1))
def test_what_is_not_finite(be: Backend, rng: Any, place: int) -> None:
    """inf has the mean inf and no variance, nan has neither, and overflowing values have an infinite variance."""
    host = rng.standard_normal((1, LONG)).astype(np.float32)
    mean, var = be.empty((1, 1)), be.empty((1, 1))
    for value, wanted in ((np.inf, (np.inf, np.nan)), (-np.inf, (-np.inf, np.nan)), (np.nan, (np.nan, np.nan))):
        host[0, place] = value
        x = be.array(host)
        be.assign_many([(mean, F.mean(x, 1)), (var, F.var(x, 1))])
        np.testing.assert_array_equal([mean.get()[0, 0], var.get()[0, 0]], wanted, f"{value} at {place}")
        total = F.sum(x, 1)  # and a mean that is finite nevertheless
        be.assign_many([(mean, total), (var, F.sum(F.sqr(x - F.where(F.finite(total), total, 0)), 1))])
        np.testing.assert_array_equal([mean.get()[0, 0], var.get()[0, 0]], [value, abs(value)], f"{value} at {place}")
    host[0, place] = 2e25
    assert F.var(be.array(host), 1).asnumpyarray().tolist() == [[np.inf]]


def test_a_mean_that_overflows(be: Backend) -> None:
    x, middle = be.array(np.full((1, LONG), 3e38, np.float32)), be.empty((1, 1))
    middle[:] = F.sum(F.sqr(x - F.sum(x, 1)), 1)
    assert middle.get().tolist() == [[np.inf]]


def test_whatever_is_subtracted(be: Backend, rng: Any) -> None:
    """Any value that is known after the first pass, from either side, squared either way, of several rows at once."""
    host = (7 + rng.standard_normal((3, LONG))).astype(np.float32)
    wide = host.astype(np.float64)
    x = be.array(host)
    total, top = F.sum(x, 1), F.max(x, 1)
    more = x * 2 + 1
    apart, half, doubled = top - x, x - F.mean(x, 1) / 2, F.mean(more, 1) - more
    expressions = (total, top, F.sum(apart * apart, 1), F.sum(F.sqr(half), 1), F.sum(doubled * doubled, 1))
    outs = [be.empty((3, 1)) for _ in expressions]
    be.assign_many(list(zip(outs, expressions)))
    mean = wide.mean(1, keepdims=True)
    wanted = (wide, None, (wide.max(1, keepdims=True) - wide) ** 2, (wide - mean / 2) ** 2, 4 * (wide - mean) ** 2)
    for out, each in zip(outs, wanted):
        sums = wide.max(1, keepdims=True) if each is None else each.sum(1, keepdims=True)
        np.testing.assert_allclose(out.get(), sums, 2 * RELATIVE)


def test_passes_after_it(be: Backend, rng: Any) -> None:
    """A normalised row, and its third moment."""
    host = (20 + 3 * rng.standard_exponential(LONG)).astype(np.float32).reshape(1, -1)
    wide = host.astype(np.float64)
    x, out, skew = be.array(host), be.empty((1, LONG)), be.empty((1, 1))
    normal = (x - F.mean(x, 1)) / F.sqrt(F.var(x, 1) + 1e-3)
    be.assign_many([(out, normal), (skew, F.mean(normal * normal * normal, 1))])
    wanted = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-3)
    np.testing.assert_allclose(out.get(), wanted, 1e-5, 1e-5)
    np.testing.assert_allclose(skew.get(), (wanted**3).mean(), 1e-4)
    x[:] = (x - F.mean(x, 1)) / F.sqrt(F.var(x, 1) + 1e-3)  # in place
    np.testing.assert_array_equal(x.get(), out.get())


@pytest.mark.backend
def test_threads_change_no_bit(c: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = (1000 + rng.standard_normal((2, LONG))).astype(np.float32)
    found = []
    for count in (1, 2, 3):
        use_threads(monkeypatch, count)
        c.executor.clear()
        x = c.array(host)
        found.append([F.var(x, axis).asnumpyarray().tobytes() for axis in (1, None)])
    assert found[0] == found[1] == found[2]


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_only_long_rows_and_sums_of_squares_are_read_once(c: Backend) -> None:
    x, short, out = c.ones((1, LONG)), c.ones((1, 1000)), c.empty((1, 1))
    top, mean = F.max(x, 1), F.mean(x, 1)
    more = x * 2 + 1
    apart = more - F.mean(more, 1)
    for expression in (F.var(x), F.std(x, 1), F.sum(F.sqr(mean - x), 1), F.sum(apart * apart, 1) + top):
        assert "read_once(" in c.explain(expression, out)
    both = F.var(x, 1) + F.sum(F.exp(x - top), 1)
    for expression in (F.var(short), F.logsumexp(x, 1), F.sum(F.sqr(x - top), 1), F.sum(abs(x - mean), 1), both):
        assert "read_once(" not in c.explain(expression, out)
