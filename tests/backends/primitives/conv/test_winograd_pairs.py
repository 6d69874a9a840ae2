"""Winograd convolution on pairs of bfloat16: exact sums, the bound of its error, blocks, flags, threads, its choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv import winograd as plans
from neonlike.backends.cpu.primitives.conv.kind import Kind
from tests.backends.primitives.conv.conv_compiled import GUARD, Guarded, guarded, with_vectors
from tests.backends.primitives.conv.test_conv import FLAGS
from tests.backends.primitives.conv.test_winograd import BOTH, FEW, LAYERS, check, force, passes, square
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, row_sums, same, tensor
from tests.support.rounded import in_pairs as be
from tests.support.rounded import rounded

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["be", "guarded"]

Array = np.ndarray[Any, Any]
UNIT = 2.0**-8
"""Largest relative error of a number that is rounded to the nearest bfloat16."""
INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64)
RESULT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)
"""B^T, G and A^T of F(2 x 2, 3 x 3), as in the paper."""


@pytest.fixture(autouse=True)
def plans_of_this_test() -> Iterator[None]:
    plans.winograd_plan.cache_clear()
    yield
    plans.winograd_plan.cache_clear()


# Exact sums: transformed quarters have seven bits at most, so that they are not rounded -------------------------------


@pytest.mark.compiles(10)
@pytest.mark.parametrize("s", LAYERS + FEW, ids=str)
def test_agrees_with_loops(be: Backend, guarded: Guarded, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of an odd number of channels is half a pair."""
    force(monkeypatch, 2)
    check(be, s)


@pytest.mark.compiles(2)
@pytest.mark.parametrize("nbytes", [32, 16])
def test_narrow_vectors(be: Backend, guarded: Guarded, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, 2)
    with_vectors(monkeypatch, nbytes)
    for turn, K in enumerate((1, 4, 10, 12, 29)):
        check(be, square((1, 3, 5)[turn % 3] * nbytes // 4, 3 + turn, K, 3 + turn % 4, 7 - turn % 3))
    check(be, square(1, 9, 10, 6, 17))
    check(be, square(3, 8, 17, 5, 7))


@pytest.mark.compiles(4)
@pytest.mark.parametrize(
    "limits",
    [
        {"M_BYTES": 1},  # a map tile a part
        {"V_BYTES": {2: 1}},  # a pair of channels a block
        {"V_BYTES": {2: 10_000}, "M_BYTES": 60_000},
        {"RUN_LANES": 400, "FEW_BYTES": 1 << 30},
        {"IMAGE_LANES": 16},
        {"FEW_LANES": 50, "V_BYTES": {2: 10_000}, "PARTIAL": 0.5},
        {"FEW_LANES": 4000, "FUSED_BYTES": 1},
        {"FEW_LANES": 4000, "FUSED_BYTES": 20_000, "M_BYTES": 300_000},
    ],
    ids=str,
)
def test_blocks(be: Backend, guarded: Guarded, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the maps, and blocks of pairs, images and tiles; shared by threads, of which some have no tiles."""
    force(monkeypatch, 2, **limits)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    for threads in (1, 3):
        use_threads(monkeypatch, threads)
        for s in (
            square(48, 13, 37, 7, 9),
            square(16, 135, 29, 5, 3, 2),
            square(80, 7, 20, 5, 3, 1, depth=2),
            square(1, 13, 37, 17, 19),
            square(3, 135, 29, 5, 5, 2),
            square(1, 21, 20, 9, 8, 2, 2, (2, 2)),
        ):
            check(be, s)


@BOTH
@pytest.mark.parametrize(("N", "dil"), [(16, 1), (144, 1), (1, 1), (3, 1), (1, 2)])
def test_all_combinations_of_flags(
    be: Backend, guarded: Guarded, back: bool, N: int, dil: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, 2)
    s, rng = square(N, 3, 5, 3, 4, dil, dil=(dil, dil)), np.random.default_rng(3)
    source, filters = quarters(rng, s.shape_o if back else s.shape_i), quarters(rng, s.shape_f)
    result = backward(s, source, filters) if back else forward(s, source, filters)
    old, other, shift = quarters(rng, result.shape), quarters(rng, result.shape), quarters(rng, (len(result), 1))
    bsum, bias = be.empty((len(result), 1), dtype=np.float64), be.array(shift)
    for alpha, beta, relu, brelu, slope, with_bias, which in FLAGS:
        out = tensor(be, old)
        given: dict[str, Any] = {"X": (None, tensor(be, other), out)[which], "bias": bias if with_bias else None}
        given |= {"alpha": alpha, "beta": beta, "relu": relu, "brelu": brelu, "slope": slope}
        found = passes(be, s, back, source, filters, out=out, bsum=bsum, **given)
        x = other if which == 1 else old
        wanted = finish(result, alpha, shift if with_bias else None, brelu, relu, slope, beta, x.astype(np.float64))
        np.testing.assert_array_equal(found, wanted.astype(np.float32), err_msg=str(given))
        same(bsum, row_sums(found))


# Random numbers -------------------------------------------------------------------------------------------------------


def transformed(source: Array, filters: Array, round_to: Any) -> tuple[Array, Array]:
    """The sums of F(2 x 2) with factors that ``round_to`` rounds, and the bound of what rounding to bfloat16 changes.

    source: (channels, height, width, images), height and width even, padded here by 1; filters: (channels, 3, 3, maps).
    """
    height, width = source.shape[1:3]
    padded, results = np.pad(source.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0))), []
    U = round_to(np.einsum("ai,cijk,bj->abck", FILTER, filters.astype(np.float64), FILTER))
    for sizes in (False, True):
        out = np.empty((filters.shape[-1], height, width, source.shape[-1]))
        F, A = (np.abs(U), np.abs(RESULT)) if sizes else (U, RESULT)
        for h in range(0, height, 2):
            for w in range(0, width, 2):
                V = round_to(np.einsum("ai,cijn,bj->abcn", INPUT, padded[:, h : h + 4, w : w + 4], INPUT))
                M = np.einsum("abck,abcn->abkn", F, np.abs(V) if sizes else V)
                out[:, h : h + 2, w : w + 2] = np.einsum("pa,abkn,qb->kpqn", A, M, A)
        results.append(out)
    return results[0], (2 * UNIT + UNIT**2) * results[1]


@pytest.mark.optimized
@BOTH
@pytest.mark.parametrize("N", [1, 3, 32])
@pytest.mark.parametrize("C", [17, 130])
def test_transformed_factors_are_rounded_to_nearest(
    be: Backend, back: bool, N: int, C: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are within the bound, and those of the same algorithm in float64 with factors rounded once to nearest."""
    force(monkeypatch, 2)
    s, rng = square(N, *((24, C) if back else (C, 24)), 8, 6), np.random.default_rng(C)
    source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
    filters = rng.normal(size=s.shape_f).astype(np.float32)
    found = passes(be, s, back, source, filters)[:, 0]
    of_pass = filters[:, 0, ::-1, ::-1].transpose(3, 1, 2, 0) if back else filters[:, 0]
    exact, bound = transformed(source[:, 0], of_pass, np.asarray)
    nearest, _ = transformed(source[:, 0], of_pass, rounded)
    np.testing.assert_allclose(exact, (backward if back else forward)(s, source, filters)[:, 0], atol=1e-11)
    assert (np.abs(found - exact) <= bound).all()
    error, rms = found - exact, np.sqrt(np.mean(exact**2))
    assert np.sqrt(np.mean((found - nearest) ** 2)) < 1e-4 * rms  # float32 rounds a number near a tie the other way
    assert 3e-3 * rms < np.sqrt(np.mean(error**2)) < 4.5e-3 * rms
    assert np.abs(error).max() < 6e-3 * np.abs(exact).max()


@pytest.mark.compiles(4)
@BOTH
@pytest.mark.parametrize("room", [100_000, 1 << 20])
@pytest.mark.parametrize(("N", "size"), [(32, 11), (1, 13), (3, 15)])
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, guarded: Guarded, back: bool, room: int, N: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, sums too."""
    force(monkeypatch, 2, M_BYTES=room)
    s, rng, results = square(N, 41, 37, size, 9), np.random.default_rng(0), set()
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
    filters = rng.normal(size=s.shape_f).astype(np.float32)
    for threads in ("1", "2", "5"):
        use_threads(monkeypatch, threads)
        bsum = be.empty((s.C if back else s.K, 1), dtype=np.float64)
        found = passes(be, s, back, source, filters, bsum=bsum, relu=True)
        results.add((found.tobytes(), bsum.get().tobytes()))
    assert len(results) == 1


def test_a_nan_reaches_what_it_reaches_directly(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nan in the last of an odd number of channels, whose pair is half empty, reaches no other results."""
    force(monkeypatch, 2)
    for s in (square(16, 5, 6, 6, 7), square(1, 5, 6, 9, 8), square(3, 5, 6, 6, 7)):
        rng = np.random.default_rng(s.N)
        for back in (False, True):
            source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
            filters, mark = rng.normal(size=s.shape_f).astype(np.float32), np.zeros_like(source)
            source[-1, 0, 2, 3, -1], mark[-1, 0, 2, 3, -1] = np.nan, 1
            reached = (backward if back else forward)(s, mark, np.ones(s.shape_f)) > 0
            found = passes(be, s, back, source, filters)
            np.testing.assert_array_equal(np.isnan(found), reached, err_msg=f"{s} {back}")


# Where it is used -----------------------------------------------------------------------------------------------------


@BOTH
def test_where_it_is_used(be: Backend, back: bool) -> None:
    def used(s: Sizes, allowed: Any = True) -> int:
        found: int = plans.winograd_edge(s.layer(be), back, 64, 4, allowed, True)
        return found

    large = square(32, 64, 64, 14, 14)
    assert [used(large, allowed) for allowed in (False, 0, None, True, 2, 4)] == [0, 0, 0, 2, 2, 2]  # never 4
    assert used(square(128, 32, 32, 32, 32)) == used(square(32, 512, 512, 7, 7)) == used(square(1, 64, 64, 56, 56)) == 2
    assert used(square(1, 512, 512, 7, 7)) == 0  # filters take longer to transform than products
    assert [used(square(N, 20, 20, 56, 56)) for N in (1, 2, 16)] == [2, 0, 2]  # columns of 2 images are copied slowly
    assert used(square(32, 64, 64, 3, 3)) == 0  # tiles are half empty
    assert used(square(32, 15, 64, 14, 14)) == used(square(32, 64, 15, 14, 14)) == 0
    assert used(Sizes(32, 64, 64, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, 2, 2))) == 0


def test_the_setting_and_the_precision_choose_the_plan(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """F(2 x 2) on pairs where it is allowed, else direct on pairs; the same whatever the number of threads."""
    s, plan, made = square(16, 32, 33, 16, 16), choice.choose_data_plan, []

    def spy(*arguments: Any) -> Any:
        found = plan(*arguments)
        variant = dict(found.variant)
        made.append((found.kind is Kind.WINOGRAD and variant["outputs"], variant.get("pairs")))
        return found

    monkeypatch.setattr(kernels, "choose_data_plan", spy)
    rng, form = np.random.default_rng(0), be.executor.own_engine.pairs
    image, filters = (rng.normal(size=shape).astype(np.float32) for shape in (s.shape_i, s.shape_f))
    for allowed, precision, wanted in (
        (True, "bfloat16", (2, form)),
        (4, "bfloat16", (2, form)),
        (False, "bfloat16", (False, form)),
        (True, "float32", (2, None)),
    ):
        be.enable_winograd, be.product_precision = allowed, precision
        be.executor.own_engine.pairs = form * (precision == "bfloat16")
        made.clear()
        passes(be, s, False, image, filters)
        assert made == [wanted], (allowed, precision)


@pytest.mark.parametrize("N", [1, 7, 32])
@pytest.mark.parametrize("operation", ["fprop", "bprop"])
def test_workspace_is_enough(be: Backend, operation: str, N: int, guarded: Guarded) -> None:
    s, back = square(N, 65, 80, 14, 14), operation == "bprop"
    stated = be.workspace_bytes(s.layer(be), operation)
    source, filters = np.ones(s.shape_o if back else s.shape_i, np.float32), np.ones(s.shape_f, np.float32)
    passes(be, s, back, source, filters)
    assert guarded.memory.size - 2 * GUARD - 64 <= stated
