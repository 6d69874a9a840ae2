"""Batch normalisation where rounding matters, nan and inf, and its compiled kernels against the definition."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends.cpu.primitives import batchnorm as kernels
from neonlike.backends.primitives.batchnorm.family import BatchNormFamily
from tests.backends.primitives.batchnorm.cases import BACK_FLAGS, EPS, FLAGS, Backward, Case, Forward, agree, replaced
from tests.support.engines import forget_calls, use_threads

pytestmark = pytest.mark.engines("numpy", "c")


# Numerics -------------------------------------------------------------------------------------------------------------


def test_rows_far_from_zero(be: Any) -> None:
    """1e4 +- 1 in float32, whose neighbours lie 0.001 apart: results as good as without the offset."""
    for shape in ((3, 33), (3, 3000), (1, 150_000)):
        case = Case(*shape, offset=1e4)
        case.rows["gmean"][:] = 0
        got = case.forward(be, Forward(rho=0.0))
        wanted = Forward(rho=0.0).of(case)
        std = np.sqrt(wanted["xvar"])
        np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
        assert np.abs(got["y"] - wanted["y"]).max() < 3e-6 * np.abs(wanted["y"]).max(), shape
        # the mean as it was subtracted, found from the results
        xhat = (got["y"] - case.rows["beta"].astype("f8")) / case.rows["gamma"]
        mean = np.mean(case.x - xhat * np.sqrt(wanted["xvar"] + EPS), axis=1, keepdims=True)
        assert (np.abs(mean - wanted["gmean"]) < 1e-6 * std).all()
        assert (np.abs(got["gmean"] - wanted["gmean"]) <= np.spacing(np.float32(1e4)) / 2 * 1.001).all()


def test_given_sums_of_rows_far_from_zero(be: Any) -> None:
    """Their mean lies between neighbours in float32, which are 1/16 apart: both directions use it as it is."""
    for shape in ((40, 33), (3, 3000)):
        case = Case(*shape, offset=1e6)
        wanted, got = Forward(given=True).of(case), case.forward(be, Forward(given=True))
        np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
        agree({"y": got["y"]}, {"y": wanted["y"]}, "float32", shape)
        agree(case.backward(be, Backward()), Backward().of(case), "float32", shape)


def test_rows_whose_beginning_misleads(be: Any) -> None:
    """The first elements, of a row or of a block, are far from all others."""
    for size in (40, 2048, 2048 + 40, 9000):
        case = Case(3, size)
        case.x[:, :16] += 3000
        case.x[1, 2048:2100] -= 500
        case.x[2, -1] = 1e6
        wanted = Forward().of(case)
        got = case.forward(be, Forward())
        np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
        agree({"y": got["y"]}, {"y": wanted["y"]}, "float32", size)


def test_constant_rows(be: Any) -> None:
    """The variance is 0 and not less, and the result beta; without eps it is nan as 0 / 0 is."""
    for size in (1, 3, 7, 16, 33, 2047, 70_001):
        case = Case(4, size)
        case.x[:] = np.float32([[0.1], [1e4 + 1 / 3], [-7e-12], [0]])
        got = case.forward(be, Forward())
        assert (got["xvar"] >= 0).all() and (got["xvar"] <= 1e-14 * np.square(case.x[:, :1])).all()
        np.testing.assert_allclose(got["y"], np.broadcast_to(case.rows["beta"], got["y"].shape), rtol=1e-6, atol=2e-6)
    case.x[:] = 2
    assert np.isnan(case.forward(be, Forward(eps=0.0))["y"]).all()


def test_rows_of_large_numbers(be: Any) -> None:
    """Sums overflow, of a whole row or of its first elements; means do not, nor variances that are in range."""
    case = Case(2, 4000)
    case.x[0], case.x[1] = 3e37, case.x[1] * 1e17
    wanted, got = Forward().of(case), case.forward(be, Forward())
    np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
    np.testing.assert_allclose(got["gmean"], wanted["gmean"], rtol=1e-6)
    agree({"y": got["y"]}, {"y": wanted["y"]}, "float32")


def test_nan_and_inf_stay_in_their_row(be: Any) -> None:
    for size, how in itertools.product((5, 40, 5000), (Forward(), Forward(relu=True), Forward(given=True, relu=True))):
        case = Case(4, size)
        case.x[1, size // 2], case.x[2, size - 1], case.x[3, 0] = np.nan, np.inf, -np.inf
        got, wanted = case.forward(be, how), how.of(replaced(case, x=case.x[:1], y=case.y[:1]))
        agree({"y": got["y"][:1]}, {"y": wanted["y"]}, "float32")
        assert np.isnan(got["y"][1]).all() or how.given
        assert np.isnan(got["y"][1:, [0, size // 2, size - 1]]).any(axis=1).all(), "relu hides nan"
        if not how.given:
            assert all(np.isnan(got[name][1:]).all() for name in ("y", "xvar", "gvar"))
            np.testing.assert_array_equal(got["xsum"][1:, 0], [np.nan, np.inf, -np.inf])
    case = Case(3, 40)
    case.delta[1, 7] = np.nan
    got = case.backward(be, Backward())
    for values in got.values():
        assert np.isnan(values[1]).all() and not np.isnan(values[[0, 2]]).any()


def test_old_values_count_only_with_their_factor(be: Any) -> None:
    case = Case(3, 40)
    nothing = {name: be.array(np.full((3, 1), np.nan)) for name in ("xsum", "xvar", "gmean", "gvar")}
    old = be.array(np.full((3, 40), np.nan))
    agree(case.forward(be, Forward(rho=0.0), y=old, **nothing), Forward(rho=0.0).of(case), "float32")
    grads = {name: be.array(np.full((3, 1), np.nan)) for name in ("grad_gamma", "grad_beta")}
    old = be.array(np.full((3, 40), np.nan))
    agree(case.backward(be, Backward(), delta_out=old, **grads), Backward().of(case), "float32")
    poisoned = replaced(case, y=np.full((3, 40), np.nan, "f4"))
    assert np.isnan(poisoned.forward(be, Forward(accumbeta=0.5))["y"]).all()


def test_masked_errors_do_not_count(be: Any) -> None:
    """The slope of the clamp is 0 at 0 and below, whatever the error there."""
    case = Case(2, 40)
    case.y[:, ::2] = np.where(np.arange(20) % 2, 0, -1)
    case.delta[:, ::2] = np.nan
    got = case.backward(be, Backward(masked=True))
    assert not np.isnan(got["delta_out"]).any()


# The compiled kernels -------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_agree_with_the_definition(compiled: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels ran, and agree with the definition, which runs without a compiler."""
    case = Case(9, 300, dtype)
    runs = [(case.forward, how) for how in FLAGS] + [(case.backward, how) for how in BACK_FLAGS]
    by_kernels = [run(compiled, how) for run, how in runs]
    asked = []
    for name in ("_fprop_bn", "_bprop_bn"):
        definition = getattr(BatchNormFamily, name)

        def spy(self: Any, *arguments: Any, definition: Any = definition) -> None:
            asked.append(definition)
            definition(self, *arguments)

        monkeypatch.setattr(BatchNormFamily, name, spy)
    forget_calls(compiled)
    for run, how in runs:
        run(compiled, how)
    assert not asked
    forget_calls(compiled)
    for name in ("_fprop_bn", "_bprop_bn"):
        monkeypatch.setattr(kernels.BatchNormKernels, name, getattr(BatchNormFamily, name))
    for (run, how), got in zip(runs, by_kernels):
        agree(got, run(compiled, how), dtype, how)
    assert len(asked) == len(runs)


def test_results_do_not_depend_on_threads(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; many rows, few rows of several units, groups that do not come out even."""
    for shape in ((2, 200_001), (37, 5000), (4001, 33), (3, 70_000)):
        case = Case(*shape)
        for run, how in (
            (case.forward, Forward(relu=True)),
            (case.forward, Forward(binary=True, given=True)),
            (case.backward, Backward(masked=True)),
        ):
            results = []
            for threads in ("1", "2", "3", "8"):
                use_threads(monkeypatch, threads)
                results.append(run(compiled, how))
            for got in results[1:]:
                for name, values in results[0].items():
                    np.testing.assert_array_equal(got[name], values, f"{shape} {how} {name}")


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_results_past_the_caches(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large results are stored in another way: the same values."""
    cases = [(case.forward, Forward(relu=relu, alpha=alpha)) for case in (Case(5, 1024), Case(3, 66_000 // 16 * 16))
             for relu, alpha in ((True, 1.0), (False, 2.0))]  # fmt: skip
    cases += [(Case(5, 1024 + 272).backward, Backward(masked=masked)) for masked in (False, True)]
    plain = [run(compiled, how) for run, how in cases]
    monkeypatch.setattr(kernels, "STREAMED_BYTES", 0)
    streamed = []
    original = kernels._streamed
    monkeypatch.setattr(kernels, "_streamed", lambda *given: streamed.append(original(*given)) or streamed[-1])
    forget_calls(compiled)
    for (run, how), wanted in zip(cases, plain):
        got = run(compiled, how)
        for name, values in wanted.items():
            np.testing.assert_array_equal(got[name], values, f"{how} {name}")
    assert sum(streamed) >= 4, "tensors of this size start at cache lines"
    case = Case(5, 1024)
    for how in (Forward(accumbeta=0.5), Forward()):
        agree(case.forward(compiled, how), how.of(case), "float32")
    agree(case.backward(compiled, Backward(beta_data=2)), Backward(beta_data=2).of(case), "float32")
