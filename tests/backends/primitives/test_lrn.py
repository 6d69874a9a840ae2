"""Local response normalisation against loops: values, gradients, the compiled kernels."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import lrn as kernels
from neonlike.backends.primitives.lrn import LrnFamily, LrnPass
from tests.support.engines import use_threads
from tests.support.float64.lrn_loops import Case

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

Array = np.ndarray[Any, Any]


# Values -------------------------------------------------------------------------------------------------------------


def test_worked_numbers(be: Backend) -> None:
    layer = be.lrn_layer(np.float32, 2, 3, J=3)
    x = be.array(np.arange(1.0, 7).reshape(3, 2))
    y, denom, delta = be.empty((3, 2)), be.empty((3, 2)), be.empty((3, 2))
    be.fprop_lrn(layer, x, y, denom, None, None, 0.3, 0.75)
    be.bprop_lrn(layer, x, y, be.ones((3, 2)), delta, denom, None, None, 0.3, 0.75)
    wanted = {
        "denom": [2, 3, 4.5, 6.6, 4.4, 6.2],
        "y": [0.594604, 0.877383, 0.970984, 0.971409, 1.645813, 1.527065],
        "delta": [0.517642, 0.306798, -0.075545, -0.168715, -0.113204, -0.099625],
    }
    for tensor, numbers in zip((denom, y, delta), wanted.values()):
        np.testing.assert_allclose(tensor.get().ravel(), numbers, atol=1e-6)


@pytest.mark.parametrize("j", [1, 3, 5, 9])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 16, 33])
def test_windows_and_channels(be: Backend, channels: int, j: int) -> None:
    for sizes in ((1, 1, 1, 1), (1, 1, 2, 3), (1, 3, 5, 1), (2, 3, 2, 16), (1, 1, 1, 33), (1, 2, 1, 64), (1, 6, 7, 33)):
        case = Case(be, (channels, *sizes), j)
        case.fprop()
        case.check_fprop()
        case.bprop()
        case.check_bprop()


@pytest.mark.compiles(6)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bpower", [0.5, 0.75, 1.0, 0.6, 0.0, -1.5])
def test_powers_and_dtypes(be: Backend, bpower: float, dtype: Any) -> None:
    case = Case(be, (7, 1, 3, 5, 11), 3, bpower=bpower, dtype=dtype)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


@pytest.mark.parametrize("ascale", [0.0, 1e-4, 7, np.float32(2.5), -0.01])
def test_ascale_over_window_scales_the_squares(be: Backend, ascale: Any) -> None:
    case = Case(be, (6, 1, 2, 2, 4), 5, ascale=ascale)
    case.fprop()
    case.bprop()
    case.ascale = float(ascale)
    case.check_fprop()
    case.check_bprop()


def test_neons_defaults(be: Backend) -> None:
    """ascale and bpower are 1, alpha 1 and beta 0, whether given as None or left out."""
    case = Case(be, (4, 1, 1, 3, 2), 3, ascale=1, bpower=1)
    for blend in ((), (None, None), (1.0, 0.0)):
        case.be.fprop_lrn(case.layer, case.I, case.O, case.denom, *blend)
        case.be.bprop_lrn(case.layer, case.I, case.O, case.E, case.delta, case.denom, *blend)
        case.check_fprop()
        case.check_bprop()
        case.O[:] = case.delta[:] = math.nan
    for method in (be.fprop_lrn, be.bprop_lrn):
        names = [*inspect.signature(method).parameters]
        assert names[-5:] == ["alpha", "beta", "ascale", "bpower", "repeat"]


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.5, 0), (0.5, -2), (1, 0.25), (0, 3), (-1, 0)])
def test_alpha_and_beta_blend_the_result(be: Backend, alpha: float, beta: float) -> None:
    for n in (3, 1100):  # more than a block holds
        case = Case(be, (5, 1, 1, 2, n), 3)
        if beta != 0:
            case.O[:] = be.array(case.old)
            case.delta[:] = be.array(case.old)
        case.fprop(alpha=alpha, beta=beta)
        case.check_fprop(alpha, beta)
        case.bprop(alpha=alpha, beta=beta)
        case.check_bprop(alpha, beta)


def test_longer_windows_than_kernels_keep(be: Backend) -> None:
    for j in (kernels.LONGEST_WINDOW, kernels.LONGEST_WINDOW + 2, 99):
        case = Case(be, (40, 1, 1, 2, 3), j)
        case.fprop()
        case.check_fprop()
        case.bprop()
        case.check_bprop()


@pytest.mark.parametrize("bpower", [0.75, 0.5, 0.6])
def test_backward_is_the_gradient_of_forward(be: Backend, bpower: float) -> None:
    case = Case(be, (6, 1, 2, 2, 3), 3, bpower=bpower, dtype=np.float64)
    case.fprop()
    case.bprop()
    step = 1e-5
    for seed in range(3):
        towards = np.random.default_rng(seed).standard_normal(case.shape)
        loss = []
        for sign in (1, -1):
            x = be.array(case.x + sign * step * towards, dtype=np.float64)
            y, denom = (be.empty(case.shape, dtype=np.float64) for _ in range(2))
            be.fprop_lrn(case.layer, x, y, denom, ascale=case.ascale, bpower=bpower)
            loss.append((y.get() * case.e).sum())
        assert (case.delta.get() * towards).sum() == pytest.approx((loss[0] - loss[1]) / (2 * step), rel=1e-7)


def test_backward_takes_the_given_denominators_and_outputs(be: Backend) -> None:
    """Not such as the forward pass would make of I."""
    case = Case(be, (5, 1, 1, 2, 3), 3)
    rng = np.random.default_rng(5)
    case.O[:] = be.array(rng.standard_normal(case.shape))
    case.denom[:] = be.array(1 + rng.random(case.shape))
    case.bprop()
    case.check_bprop()


def test_images_are_counted_from_the_tensors(be: Backend) -> None:
    case = Case(be, (4, 1, 2, 3, 5), 3)
    case.layer = be.lrn_layer(np.float32, 64, 4, 1, 2, 3, J=3)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


def test_views_and_five_axes(be: Backend) -> None:
    """Transposed inputs, outputs with gaps, and images as (C, D, H, W, N)."""
    case = Case(be, (4, 1, 2, 3, 5), 3)
    case.I, case.E = (be.array(np.ascontiguousarray(v.T)).T for v in (case.x, case.e))
    case.O, case.denom, case.delta = (be.array(np.full((24, 10), 9.0))[:, ::2] for _ in range(3))
    assert not case.O.is_contiguous
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()
    case.old = case.delta.get()
    case.bprop(alpha=2, beta=1)
    case.check_bprop(2, 1)
    case.old = case.O.get()
    case.fprop(alpha=2, beta=1)
    case.check_fprop(2, 1)
    case = Case(be, (4, 1, 2, 3, 5), 3)
    for name in ("I", "E", "O", "denom", "delta"):
        setattr(case, name, getattr(case, name).reshape(case.layer.dimI))
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bpower", [0.75, 0.6])
def test_nan_and_infinity_stay_in_their_windows(be: Backend, bad: float, bpower: float) -> None:
    """Denominators of windows around the bad channel are nan or infinite; nothing else changes."""
    case = Case(be, (9, 1, 1, 2, 3), 3, bpower=bpower)
    case.fprop()
    case.bprop()
    denom, y, delta = (t.get().reshape(9, 2, 3) for t in (case.denom, case.O, case.delta))
    x = case.x.copy().reshape(9, 2, 3)
    x[4, 1, 2] = bad
    case.I[:] = be.array(x.reshape(case.shape))
    case.fprop()
    case.bprop()
    denom_now, y_now, delta_now = (t.get().reshape(9, 2, 3) for t in (case.denom, case.O, case.delta))
    near, wider = (np.zeros((9, 2, 3), bool) for _ in range(2))
    near[3:6, 1, 2] = wider[2:7, 1, 2] = True
    np.testing.assert_array_equal(denom_now[near], np.full(3, abs(bad)))
    assert np.isnan(y_now[4, 1, 2])
    np.testing.assert_array_equal(y_now[[3, 5], 1, 2], [np.nan] * 2 if np.isnan(bad) else x[[3, 5], 1, 2] * 0)
    for now, before, apart in ((denom_now, denom, ~near), (y_now, y, ~near), (delta_now, delta, ~wider)):
        np.testing.assert_array_equal(now[apart], before[apart])
    assert np.isnan(delta_now[4, 1, 2])


def test_large_values_do_not_spoil_later_channels(be: Backend) -> None:
    """A running sum of squares would keep the rounding error of the large one."""
    case = Case(be, (12, 1, 1, 1, 40), 3)
    case.x[2] = 3e4
    case.I[:] = be.array(case.x)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


# Kernels ------------------------------------------------------------------------------------------------------------


@pytest.mark.optimized
@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 33, 700])
def test_kernels_agree_with_the_definition(compiled: Backend, n: int, beta: float) -> None:
    case = Case(compiled, (11, 1, 2, 3, n), 5)
    request = LrnPass((11, 6 * n), case.j, 0.5, beta, case.ascale / case.j, case.bpower)
    results: list[list[Array]] = []
    for family in (kernels.LrnKernels, LrnFamily):
        case.O[:] = case.delta[:] = compiled.array(case.old)
        family._fprop_lrn(compiled, request, case.I, case.O, case.denom)  # type: ignore[arg-type]
        blended = case.O.get()
        case.O[:] = case.I / case.denom**case.bpower
        tensors = case.I, case.O, case.E, case.delta, case.denom
        family._bprop_lrn(compiled, request, *tensors)  # type: ignore[arg-type]
        results.append([case.denom.get(), blended, case.delta.get()])
    for mine, defined in zip(*results):
        np.testing.assert_allclose(mine, defined, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("streamed", [False, True])
def test_results_depend_neither_on_threads_nor_on_stores(
    compiled: Backend, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    monkeypatch.setattr(kernels, "STREAMED_BYTES", 0 if streamed else 1 << 60)
    for n, beta in ((1, 0.0), (33, 0.0), (320, 0.5)):
        results = []
        for threads in ("1", "2", "3"):
            use_threads(monkeypatch, threads)
            case = Case(compiled, (6, 1, 3, 5, n), 3)
            case.O[:] = case.delta[:] = compiled.array(case.old)
            case.fprop(beta=beta)
            case.bprop(beta=beta)
            case.check_fprop(beta=beta)
            case.check_bprop(beta=beta)
            results.append([t.get().tobytes() for t in (case.O, case.denom, case.delta)])
        assert results[0] == results[1] == results[2]
