"""Sums of exp(x - c) that are found in the pass of a maximum: which are, on which values, by how many launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.cuda import fit as fit_cuda
from neonlike.optree.functions import F
from tests.kernels.cuda.expression_texts import cuda_source
from tests.support.engines import sampled
from tests.support.gpu.cuda_backends import LAYOUTS, assert_near, form, fresh, gpu, tensor

pytestmark = pytest.mark.checked

__all__ = ["form", "gpu"]
LEAST, INF, NAN = float(np.finfo(np.float32).min), np.inf, np.nan


def wanted(x: Any, axis: int) -> dict[str, Any]:
    """In float64, by their definitions."""
    wide = x.astype(np.float64)
    most = wide.max(axis, keepdims=True)
    top = np.where(np.isfinite(most), most, 0)
    with np.errstate(all="ignore"):
        total = np.exp(wide - most).sum(axis, keepdims=True)
        return {
            "softmax": np.exp(wide - most) / total,
            "log_softmax": wide - most - np.log(total),
            "logsumexp": np.log(np.exp(wide - top).sum(axis, keepdims=True)) + top,
            "powers": total,
        }


FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "logsumexp": F.logsumexp,
    "powers": lambda a, axis: F.sum(F.exp(a - F.max(a, axis)), axis),
}


def found(be: Backend, a: Any, name: str, shape: tuple[int, ...], axis: int) -> Any:
    """Result of the function ``name`` over ``axis`` of ``a``."""
    out = be.empty(shape, dtype=a.dtype)
    out[:] = FUNCTIONS[name](a, axis)
    return out.get()


def special(length: int, dtype: Any, rng: Any) -> Any:
    """Rows with nan and infinities at several places, of nothing else, and of numbers of any size."""
    least = LEAST if dtype != "float16" else -65504.0
    places = [[(0, NAN)], [(-1, NAN)], [(0, INF)], [(0, INF), (-1, INF)], [(0, -INF)], [(-1, -INF)]]
    places += [[(0, NAN), (-1, INF)], [(length // 2, INF), (0, -INF)], [(0, least)], [(-1, -least)]]
    places += [[(0, least), (-1, -least)]]
    rows = np.concatenate([rng.standard_normal((len(places), length)), np.zeros((9, length))])
    for row, changes in zip(rows, places):
        for place, value in changes:
            row[place] = value
    ends = rows[len(places) :]
    ends[0], ends[1], ends[2] = -INF, least, INF
    ends[3, :-1] = -INF  # all but the last
    ends[4, 1:] = -INF
    ends[5], ends[6] = np.linspace(-60, 60, length), np.linspace(60, -60, length)
    ends[7], ends[8, 0] = 3, least
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16", "float64"))
def test_nan_infinities_and_numbers_of_any_size(gpu: Backend, rng: Any, form: str, dtype: str) -> None:
    be = fresh(gpu)
    for length in (1, 2, 37, 130) if dtype == "float32" else (37,):
        rows = special(length, dtype, rng)
        for x, axis in ((rows, 1), (np.ascontiguousarray(rows.T), 0)):
            a = be.array(x, dtype=x.dtype)
            for name, exact in wanted(x, axis).items():
                values = found(be, a, name, exact.shape, axis)
                with np.errstate(over="ignore"):
                    exact = exact.astype(x.dtype).astype(np.float64)  # infinite where that is
                for k in range(len(rows)):  # each within its own size
                    line = (np.moveaxis(each, 1 - axis, 0)[k] for each in (values, exact))
                    assert_near(*line, f"{name} over axis {axis} of {length}, {dtype}, line {k}", slack=8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(gpu: Backend, rng: Any, form: str, layout: str) -> None:
    be = fresh(gpu)
    for shape in sampled(be, ((33, 12), (12, 33), (300, 8), (7, 260)), 2, len(form) + len(layout)):
        x = (rng.standard_normal(shape) * 20).astype(np.float32)
        for axis in (0, 1):
            values = found(be, tensor(be, x, layout), "softmax", shape, axis)
            assert_near(values, wanted(x, axis)["softmax"], f"{shape} {layout}", slack=4)


def test_several_axes(gpu: Backend, rng: Any, form: str) -> None:
    be = fresh(gpu)
    x = rng.standard_normal((5, 6, 7)).astype(np.float32)
    a = be.array(x)
    for axes in ((0, 2), (1, 2)):
        powers = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
        out = be.empty(x.shape)
        out[:] = F.exp(a - F.max(a, axes)) / F.sum(F.exp(a - F.max(a, axes)), axes)
        assert_near(out, powers / powers.sum(axes, keepdims=True), str(axes), slack=2)


def test_a_long_softmax_is_two_launches_and_a_sum_of_powers_one(
    gpu: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HELD_TARGET", "HELD_MOST", "HELD_THREADS"):
        monkeypatch.setattr(fit_cuda, name, 1)
    x = rng.standard_normal((96, 40)).astype(np.float32)
    for part, launches in ((8, (2, 2, 1, 1)), (1 << 10, (1, 1, 1, 1))):
        monkeypatch.setattr(fit_cuda, "COLUMN_PART", part)
        be = fresh(gpu)
        a = be.array(x)
        for (name, exact), count in zip(wanted(x, 0).items(), launches):
            out = be.empty(exact.shape)
            run = be.prepare(out, FUNCTIONS[name](a, 0))
            run()
            first = out.get()
            assert_near(first, exact, name)
            for order in ("reverse", "random"):  # of threads and blocks, on the emulator
                monkeypatch.setenv("CUEMU_ORDER", order)
                out.fill(0)
                with mock.patch.object(be.device, "launch", wraps=be.device.launch) as launch:
                    run()
                assert launch.call_count == count, name
                np.testing.assert_array_equal(out.get(), first)
            monkeypatch.delenv("CUEMU_ORDER")


ONE_PASS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda x, y, row: F.softmax(x, 0),
    "log of softmax": lambda x, y, row: F.log_softmax(x, 0),
    "log of a sum of powers": lambda x, y, row: F.logsumexp(x, 0) * y,
    "of what is computed": lambda x, y, row: F.softmax(x * y + 1, 0),
    "a shift of the maximum": lambda x, y, row: F.sum(F.exp(x - (F.max(x, 0) + row)), 0) * y,
    "beside other reductions": lambda x, y, row: F.softmax(x, 0) * F.sum(y, 0) + F.argmax(x, 0),
    "of two": lambda x, y, row: F.softmax(x, 0) * F.softmax(y, 0),
}
TWO_PASSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the maximum of something else": lambda x, y, row: F.sum(F.exp(x - F.max(y, 0)), 0) * y,
    "a minimum": lambda x, y, row: F.sum(F.exp(x - F.min(x, 0)), 0) * y,
    "a mean": lambda x, y, row: F.sum(F.exp(x - F.mean(x, 0)), 0) * y,
    "another function": lambda x, y, row: F.sum(F.exp2(x - F.max(x, 0)), 0) * y,
    "another reduction of powers": lambda x, y, row: F.max(F.exp(x - F.max(x, 0)), 0) * y,
    "a difference the other way": lambda x, y, row: F.sum(F.exp(F.max(x, 0) - x), 0) * y,
    "powers weighted": lambda x, y, row: F.sum(F.exp(x - F.max(x, 0)) * y, 0) * y,
    "a pass that is needed anyway": lambda x, y, row: F.softmax(x, 0) * F.sum(F.sqr(x - F.max(x, 0)), 0),
    "a softmax of a softmax": lambda x, y, row: F.softmax(F.softmax(x, 0), 0),
}


@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
def test_which_sums_the_pass_of_a_maximum_finds(dtype: str) -> None:
    """Where columns are read in each pass; where they are kept in registers, a second pass costs less than scaling."""
    from neonlike.backends.cpu import NervanaCPU

    be = NervanaCPU()
    for cases, count in ((ONE_PASS, 1), (TWO_PASSES, 2)):
        for what, make in cases.items():
            for length, kept in ((3000, 0), (200, 1)):
                x, y, out = (be.empty((length, 64), dtype=dtype) for _ in range(3))
                source: Any = cuda_source(make(x, y, be.empty((1, 64), dtype=dtype)), out).source
                assert len(source.context["levels"]) == count + (kept if cases is ONE_PASS else 0), what
                made = [len(level.reductions) for level in source.context["levels"]]
                assert what != "a pass that is needed anyway" or made == [1, 2]
                if what == "a softmax of a softmax":
                    break  # four passes in registers


def test_what_follows_from_sums_of_powers(gpu: Backend, rng: Any, form: str) -> None:
    be = fresh(gpu)
    x, y = (rng.standard_normal((140, 9)).astype(np.float32) for _ in range(2))
    row = rng.standard_normal((1, 9)).astype(np.float32)
    a, b, c, wide, other = be.array(x), be.array(y), be.array(row), x.astype(np.float64), y.astype(np.float64)
    powers, soft = np.exp(wide - wide.max(0)), wanted(x, 0)["softmax"]
    around, sums = np.exp(wide - wide.max(0) - row).sum(0), np.exp(other - other.max(0)).sum(0)
    exact = {
        "log of a sum of powers": wanted(x, 0)["logsumexp"] * other,
        "a shift of the maximum": around * other,
        "beside other reductions": soft * other.sum(0) + wide.argmax(0),
        "of two": soft * np.exp(other - other.max(0)) / sums,
        "powers weighted": (powers * other).sum(0) * other,
        "a softmax of a softmax": np.exp(soft - soft.max(0)) / np.exp(soft - soft.max(0)).sum(0),
    }
    for what, value in exact.items():
        out = be.empty(x.shape)
        out[:] = (ONE_PASS | TWO_PASSES)[what](a, b, c)
        assert_near(out, value, what, slack=8)
