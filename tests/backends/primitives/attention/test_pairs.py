"""Attention that multiplies in bfloat16, against float64 on rounded factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import attention as kernels
from neonlike.kernels.run import calls
from tests.backends.primitives.conv.conv_compiled import Guarded
from tests.support.engines import have_programs, use_threads
from tests.support.float64 import attention_reference as reference
from tests.support.float64.attention_reference import Case
from tests.support.rounded import FORMS, UNIT, Array, gamma, multiply, multiply_in, rounded

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

FEWEST = 8
OF_EXP = 8 * UNIT
"""Relative error of an exponential function."""
ONE_TILE = [
    (1, 1, 8, 8, 8, 8), (2, 3, 13, 33, 9, 17), (1, 2, 97, 96, 64, 64), (1, 1, 33, 71, 255, 40), (1, 2, 50, 192, 24, 65),
]  # fmt: skip
"""Lengths and sizes with as many keys as a tile has at most."""
SEVERAL_TILES = [(1, 1, 200, 500, 24, 33), (1, 1, 385, 193, 33, 9)]


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels work in memory full of nan, and write nothing around it."""
    memory = Guarded()
    monkeypatch.setattr(calls, "held_workspace", memory)
    yield
    memory.check()


@pytest.fixture(autouse=True)
def pairs_of_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes, for which pairs do not pay, are rounded too."""
    monkeypatch.setattr(kernels, "FEWEST_OF_PAIRS", FEWEST)


def turned(x: Array) -> Array:
    """Its matrices, transposed."""
    return np.swapaxes(x, -1, -2)


def hidden(case: Case) -> Array:
    """The keys that a query does not see."""
    layer = case.layer
    return layer.causal & (np.arange(layer.keys) > np.arange(layer.queries)[:, None])


def near(found: Array, wanted: Array, bound: Array) -> None:
    """Each element is right within its bound."""
    wrong = np.abs(found.astype(np.float64) - wanted) - bound
    assert wrong.max() <= 0, f"{(wrong > 0).sum()} of {wrong.size} elements; by {wrong.max():.3g}"


def scores(case: Case) -> tuple[Array, Array]:
    """Scores of rounded queries and keys, and the error of float32 sums of them."""
    q, k = case.arrays[:2]
    product, error = multiply(q, turned(k), 2)
    scale = abs(case.layer.scale)
    return case.layer.scale * product, scale * (error + gamma(2) * np.abs(product))


def rounding(values: Array, error: Array) -> tuple[Array, Array]:
    """Numbers rounded to bfloat16, and how far a number as near to them as ``error`` may be rounded from there."""
    middle = rounded(values)
    return middle, np.maximum(*(np.abs(rounded(values + sign * error * 1.001) - middle) for sign in (-1, 1)))


def check_fprop(case: Case) -> None:
    """All keys lie in one tile: weights are rounded after the row's largest score was subtracted."""
    v, (score, error) = rounded(case.arrays[2]), scores(case)
    score = np.where(hidden(case), -np.inf, score)
    most = error.max(axis=-1, keepdims=True)
    weights = np.exp(score - score.max(axis=-1, keepdims=True))
    of_weights = weights * (error + most + np.abs(score, where=np.isfinite(score), out=0 * error) * 2 * UNIT + OF_EXP)
    sums = weights.sum(axis=-1, keepdims=True)
    of_sums = of_weights.sum(axis=-1, keepdims=True) / sums + gamma(weights.shape[-1])
    rounded_weights, moved = rounding(weights, of_weights)
    outputs, magnitudes = rounded_weights @ v / sums, rounded_weights @ np.abs(v) / sums
    bound = moved @ np.abs(v) / sums + magnitudes * (of_sums + gamma(weights.shape[-1] + 4))
    near(case.O.get(), outputs, bound)
    lse = score.max(axis=-1) + np.log(sums[..., 0])
    near(case.lse.get(), lse, most[..., 0] + of_sums[..., 0] + 8 * UNIT * (1 + np.abs(lse)))


def check_bprop(case: Case) -> None:
    """From the outputs and sums that the forward pass left."""
    layer, (q, k, v, e) = case.layer, case.arrays
    out, lse = case.O.get().astype(np.float64), case.lse.get().astype(np.float64)[..., None]
    score, error = scores(case)
    unseen = hidden(case)
    weights = np.where(unseen, 0, np.exp(np.minimum(score - lse, 80)))
    of_weights = weights * (error + 2 * UNIT * (np.abs(score) + np.abs(lse)) + OF_EXP)
    slope, of_slope = multiply(e, turned(v), 2)
    delta = (e * out).sum(axis=-1, keepdims=True)
    of_delta = gamma(layer.value_size + 2) * np.abs(e * out).sum(axis=-1, keepdims=True)
    slopes = weights * (slope - delta)
    of_slopes = of_weights * np.abs(slope - delta) + weights * (of_slope + of_delta) * 1.001 + gamma(4) * np.abs(slopes)
    (p, of_p), (s, of_s) = rounding(weights, of_weights), rounding(slopes, of_slopes)
    q, k, e = (rounded(x) for x in (q, k, e))
    scale, many = layer.scale, gamma(max(layer.queries, layer.keys) + 40)

    def check(gradient: Any, left: Array, moved: Array, right: Array, factor: float) -> None:
        bound = moved @ np.abs(right) + many * (np.abs(left) + moved) @ np.abs(right)
        near(gradient.get(), factor * (left @ right), abs(factor) * bound)

    check(case.gradients[0], s, of_s, k, scale)
    check(case.gradients[1], turned(s), turned(of_s), q, scale)
    check(case.gradients[2], turned(p), turned(of_p), e, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", ONE_TILE)
def test_factors_are_rounded_and_nothing_else(be: Backend, dims: Any, causal: bool, form: int) -> None:
    multiply_in(be, form)
    case = Case(be, dims, causal)
    case.fprop()
    check_fprop(case)
    case.bprop()
    check_bprop(case)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", SEVERAL_TILES)
def test_several_tiles_of_keys(be: Backend, dims: Any, causal: bool, form: int) -> None:
    """Forward, each weight is rounded once, whatever was subtracted from its score: by 2^-8 of it at most."""
    multiply_in(be, form)
    case = Case(be, dims, causal)
    case.fprop()
    wide = [rounded(array) for array in case.arrays[:3]]
    outputs, sums, weights = reference.forward(*wide, case.layer.scale, causal)
    near(case.O.get(), outputs, (2.0**-8 + 2e-5) * (weights @ np.abs(wide[2])))
    near(case.lse.get(), sums, np.full(sums.shape, 2e-5))
    case.bprop()
    check_bprop(case)


@pytest.mark.parametrize("form", FORMS)
def test_layouts(be: Backend, form: int) -> None:
    """Features first, every other element, and lines in reverse give the same numbers."""
    multiply_in(be, form)
    plain = Case(be, (2, 2, 31, 45, 21, 19))
    plain.fprop()
    plain.bprop()
    inputs = plain.Q, plain.K, plain.V, plain.E
    for make in (
        lambda shape: be.empty((*shape[:2], shape[3], shape[2])).permuted((0, 1, 3, 2)),
        lambda shape: be.empty((*shape[:3], 2 * shape[3] + 1))[..., 1::2],
        lambda shape: be.empty((shape[1], shape[0], *shape[2:])).permuted((1, 0, 2, 3))[:, :, ::-1],
    ):
        operands = [make(tensor.shape) for tensor in inputs]
        for view, tensor in zip(operands, inputs):
            view[:] = tensor
        out, *of_views = (make(tensor.shape) for tensor in (plain.O, *plain.gradients))
        lse = be.empty(plain.layer.dimL)
        be.fprop_attention(plain.layer, *operands[:3], out, lse)
        be.bprop_attention(plain.layer, *operands[:3], out, lse, operands[3], *of_views)
        for view, tensor in zip((out, *of_views), (plain.O, *plain.gradients)):
            np.testing.assert_allclose(view.get(), tensor.get(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dims", [(1, 1, 300, 700, 20, 20), (2, 3, 131, 221, 17, 9)])
def test_results_do_not_depend_on_the_threads(
    be: Backend, dims: Any, form: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply_in(be, form)
    monkeypatch.setattr(kernels, "PARALLEL_PRODUCTS", 0)
    found = []
    for threads in (1, 2, 3):
        use_threads(monkeypatch, threads)
        case = Case(be, dims, True)
        case.fprop()
        case.bprop()
        found.append([t.get() for t in (case.O, case.lse, *case.gradients)])
    for others in found[1:]:
        for one, other in zip(found[0], others):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_infinite_and_nan_factors(be: Backend, form: int, size: int = 9) -> None:
    """A query of nan or infinity is alone; keys that a query does not see do not count, even if they are nan."""
    multiply_in(be, form)
    values = np.random.default_rng(0).standard_normal((1, 1, 31, size))
    for strange in (np.nan, np.inf):
        q = values.copy()
        q[0, 0, 7] = strange
        case = Case(be, (1, 1, 31, 41, size, size - 1), q=q)
        case.fprop()
        assert np.isnan(case.O.get()[0, 0]).any(axis=1).tolist() == [i == 7 for i in range(31)]
    k = np.zeros((1, 1, 40, size))
    k[0, 0, :11, 4] = -np.inf
    case = Case(be, (1, 1, 31, 40, size, size - 1), q=np.ones((1, 1, 31, size)), k=k)
    case.fprop()
    mean = rounded(case.arrays[2])[0, 0, 11:].mean(axis=0)
    np.testing.assert_allclose(case.O.get()[0, 0], np.tile(mean, (31, 1)), atol=1e-6)
    clean = Case(be, (1, 2, 250, 250, size, size - 1), True)
    clean.fprop()
    k = clean.arrays[1].copy()
    k[:, :, 217:] = np.nan
    case = Case(be, (1, 2, 250, 250, size, size - 1), True, k=k)
    case.fprop()
    np.testing.assert_array_equal(case.O.get()[:, :, :217], clean.O.get()[:, :, :217])
    assert np.isnan(case.O.get()[:, :, 217:]).all()


def test_repeated_calls_and_the_stated_memory_follow_the_precision(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    have_programs(be)
    case, found, asked = Case(be, (1, 2, 40, 50, 16, 16)), {}, []  # type: ignore[var-annotated]
    start = kernels.KernelCall.start
    monkeypatch.setattr(kernels.KernelCall, "start", lambda call, at: (asked.append(call.work), start(call, at))[1])
    for precision in ("float32", "bfloat16", "float32", "bfloat16"):
        be.product_precision = precision
        for turn in range(3):
            case.fprop()
            case.bprop()
            if turn == 0:
                assert asked == [be.workspace_bytes(case.layer, operation) for operation in ("fprop", "bprop")]
            results = [t.get() for t in (case.O, case.lse, *case.gradients)]
            for one, other in zip(results, found.setdefault(precision, results)):
                np.testing.assert_array_equal(one, other)
        asked.clear()
    assert not any(map(np.array_equal, found["float32"], found["bfloat16"]))


def test_small_sizes_and_other_dtypes_stay_as_they_are(be: Any) -> None:
    found = []
    for precision in ("float32", "bfloat16"):
        be.product_precision = precision
        few = FEWEST - 1
        cases = [Case(be, (1, 1, 30, 30, *sizes)) for sizes in ((few, 16), (16, few))]
        cases += [Case(be, (1, 1, 30, few, 16, 16)), Case(be, (1, 1, 30, 30, 16, 16), dtype=np.float64)]
        for case in cases:
            case.check()
        found.append([case.O.get() for case in cases])
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)
