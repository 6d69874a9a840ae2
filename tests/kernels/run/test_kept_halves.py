"""Passes over columns of 16-bit numbers: values kept between them in float32, though no result can hold these.

A result is that of the same expression on float32 tensors, rounded once by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optree.dtypes import bfloat16
from neonlike.optree.functions import F
from tests.support.engines import use_threads

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("kernels of C")]

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": bfloat16()}


def powers(a: Any, b: Any) -> Any:
    """Shares of powers of sums, which need three passes."""
    e = F.exp(a + b - F.max(a + b, 0))
    return e / F.sum(e, 0)


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda a, b: F.softmax(a, 0),
    "softmax of a sum": powers,
    "softmax and operand": lambda a, b: F.softmax(a, 0) * b + a,
}


def numbers(shape: tuple[int, int], dtype: Any) -> Any:
    """Numbers around 0; infinite, nan, subnormal and zero ones of either sign in the first columns, one a column."""
    values = np.random.default_rng(shape[0]).uniform(-4, 4, shape).astype(dtype)
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32).astype(dtype)
    odd = np.concatenate([odd, np.array([1, 0x8001, 0x7F], np.uint16).view(dtype)])
    count = min(shape[1], len(odd))
    values[shape[0] // 2, :count] = odd[:count]
    return values


def same(found: Any, wanted: Any) -> None:
    """The same bits, but any nan for a nan."""
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], wanted.view(np.uint16)[~nan])


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("shape", ((1, 9), (5, 64), (300, 513), (64, 95)), ids=str)
@pytest.mark.parametrize("form", EXPRESSIONS)
@pytest.mark.parametrize("name", DTYPES)
def test_results_are_those_of_float32_rounded(
    be: Backend, name: str, form: str, shape: tuple[int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_threads(monkeypatch, threads)
    dtype, expression = DTYPES[name], EXPRESSIONS[form]
    a, b = numbers(shape, dtype), numbers(shape, dtype)[::-1].copy()
    wide = be.empty(shape)
    wide[:] = expression(be.array(a.astype(np.float32)), be.array(b.astype(np.float32)))
    with np.errstate(all="ignore"):
        wanted = wide.get().astype(dtype)
    halves = [be.array(values, dtype=dtype) for values in (a, b)]
    out = be.empty(shape, dtype=dtype)
    out[:] = expression(*halves)
    same(out.get(), wanted)
    halves[0][:] = expression(*halves)
    same(halves[0].get(), wanted)
    part = be.zeros((shape[0], shape[1] + 3), dtype=dtype)
    part[:, 1:-2] = expression(be.array(a, dtype=dtype), halves[1])
    same(np.ascontiguousarray(part.get()[:, 1:-2]), wanted)
    assert not part.get()[:, [0, -2, -1]].any()


@pytest.mark.parametrize("name", DTYPES)
def test_a_power_is_computed_once(be: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one thread too, where blocks of float32 are not packed, and numbers are converted in one pass alone."""
    use_threads(monkeypatch, 1)
    x = be.zeros((64, 128), dtype=DTYPES[name])
    text = be.explain(F.softmax(x, 0))
    assert "float *packed_v" in text and "float *packed_a0" in text
    bulk = text.count("nl_exp_f32(") + text.count("nl_exp_array_f32(")
    assert bulk == 1
    whole = text[text.index("static void block(") :]
    assert whole.count("nl_widen_") == 2
    assert "packed_" not in be.explain(F.softmax(be.zeros((64, 128)), 0))
