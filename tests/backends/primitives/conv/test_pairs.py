"""Convolutions that multiply in bfloat16, against exact loops, and against the definition on rounded operands."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice, pairs
from neonlike.backends.cpu.primitives.conv.choice import choose_data_plan, choose_update_plan
from neonlike.backends.cpu.primitives.conv.kind import Kind
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.conv.conv_compiled import Guarded, Operands, compare, guarded, with_vectors
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, random_sizes, tensor, update
from tests.support.rounded import in_pairs as be
from tests.support.rounded import rounded

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["be", "guarded"]


CASES = {
    "direct": Sizes(32, 40, 33, (1, 14, 13), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "direct, odd channels": Sizes(48, 7, 25, (1, 9, 11), (1, 3, 5), (0, 1, 2)),
    "direct, odd maps": Sizes(16, 12, 21, (3, 5, 6), (2, 3, 3), (1, 1, 1), dil=(1, 2, 1)),
    "in place": Sizes(64, 26, 34, (4, 3, 6), (2, 1, 3), (1, 0, 1), dil=(2, 1, 2), groups=1),
    "groups": Sizes(32, 24, 40, (1, 8, 8), (1, 3, 3), (0, 1, 1), groups=2),
    "pointwise": Sizes(32, 30, 20, (1, 7, 11)),
    "pointwise, odd, groups": Sizes(96, 48, 140, (1, 5, 9), groups=2),
    "maps": Sizes(3, 21, 44, (1, 9, 9), (1, 2, 3), (0, 2, 2), (1, 1, 1), (1, 2, 2)),
    "maps, a stride": Sizes(1, 20, 33, (1, 18, 22), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "few": Sizes(1, 130, 150, (1, 4, 4), (1, 3, 3), (0, 1, 1)),
    "one image, a stride": Sizes(1, 12, 20, (2, 9, 15), (2, 3, 3), (0, 1, 1), (1, 1, 2)),
    "one image, dilated": Sizes(1, 7, 9, (1, 14, 22), (1, 3, 4), (0, 2, 3), (1, 2, 1), (1, 1, 2)),
    "one image, pointwise": Sizes(1, 34, 20, (1, 7, 13)),
    "odd images": Sizes(7, 33, 40, (1, 6, 9), (1, 3, 3), (0, 1, 1)),
    "windows of 11": Sizes(32, 3, 24, (1, 38, 35), (1, 11, 11), (0, 2, 2), (1, 4, 4)),
}
"""Convolutions of each kernel, with odd numbers of channels and maps, which end with half a pair."""


@pytest.mark.parametrize("nbytes", [0, 32])
@pytest.mark.parametrize("case", CASES)
def test_exact_sums(be: Backend, guarded: Guarded, case: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of eight bits are not rounded, and their sums are exact: results are equal to loops in float64."""
    with_vectors(monkeypatch, nbytes)
    s, rng = CASES[case], np.random.default_rng(nbytes)
    x = Operands(be, s, "f4", rng)
    wanted = finish(forward(s, x.image, x.filters), bias=x.shift, relu=True)
    gradients = backward(s, x.error, x.filters), update(s, x.image, x.error)
    for threads in (1, 3):
        use_threads(monkeypatch, threads)
        x.check(wanted, *gradients, bsum_i=True, bias=x.bias, relu=True)


def test_each_kernel_is_among_the_cases(be: Backend) -> None:
    kinds = set()
    for s in CASES.values():
        layer = s.layer(be)
        plans = [choose_data_plan(layer, back, 64, 4, 2, True, 1) for back in (False, True)]
        if s.out[2] > 5 and ((s.N == 1 and s.out[2] % 2 == 0) or s.N % 2 == 0 or min(s.C, s.K) >= 32):
            plans.append(choose_update_plan(layer, 64, 4, 1))
        for plan in plans:
            assert ("pairs", 1) in plan.variant, s
            kinds.add(plan.kind)
    assert kinds == {Kind.DIRECT, Kind.POINTWISE, Kind.MAPS, Kind.FEW}


@pytest.mark.parametrize("case", CASES)
def test_operands_stored_in_16_bits(be: Backend, guarded: Guarded, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are those of the same numbers in float32, rounded once: bfloat16 is joined to pairs as it is."""
    s, rng, kind = CASES[case], np.random.default_rng(5), bfloat16()
    shapes = {"I": s.shape_i, "F": s.shape_f, "O": s.shape_o}
    given = {name: rng.normal(size=shape).astype(kind) for name, shape in shapes.items()}
    for threads in (1, 3):
        use_threads(monkeypatch, threads)
        found = []
        for dtype in (kind, np.dtype(np.float32)):
            I, F, E = (be.array(values, dtype=dtype) for values in given.values())
            O, dI, dF = (be.ones(shape, dtype=dtype) for shape in (s.shape_o, s.shape_i, s.shape_f))
            layer = s.layer(be, dtype)
            for _ in range(2):  # the second time by the extension
                O.fill(0)
                dI.fill(0)
                dF.fill(0)
                be.fprop_conv(layer, I, F, O, X=E, beta=0.5, relu=True)
                be.bprop_conv(layer, F, E, dI)
                be.update_conv(layer, I, E, dF, 0.5)
            found.append([tensor.get().astype(kind) for tensor in (O, dI, dF)])
        for ours, wanted in zip(*found):
            assert ours.tobytes() == wanted.tobytes()
    guarded.check()


LATER = {
    **{name: CASES[name] for name in ("direct", "in place", "groups", "pointwise, odd, groups", "windows of 11")},
    "some images": Sizes(10, 20, 18, (1, 14, 13), (1, 3, 4), (0, 1, 1)),
    "two images": Sizes(2, 20, 24, (2, 11, 13), (1, 5, 5), (0, 2, 2), (1, 1, 2)),
    "many images": Sizes(4500, 6, 20, (1, 4, 3), (1, 2, 2)),
    "one image, pointwise, even": Sizes(1, 34, 20, (1, 7, 14)),
}
"""Convolutions whose weight gradient makes pairs as it packs its operands."""


@pytest.mark.parametrize("case", LATER)
def test_when_pairs_are_made_does_not_matter(
    be: Backend, guarded: Guarded, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weight gradients are the same, bit for bit, where pairs are made as operands are packed, and before."""
    s, rng = LATER[case], np.random.default_rng(11)
    with_vectors(monkeypatch, 64)
    image, error = (rng.normal(size=shape).astype(np.float32) for shape in (s.shape_i, s.shape_o))
    image.flat[::97], image.flat[::89], error.flat[::83] = 1e-40, -0.0, -3e-39
    found = dict[str, set[bytes]]()
    for lanes in (pairs.VECTOR, 0):
        monkeypatch.setattr(choice, "update_pairings", lambda g, _, lanes=lanes: pairs.update_pairings(g, lanes))
        for dtype in (np.dtype(np.float32), bfloat16()):
            layer = s.layer(be, dtype)
            plan = choose_update_plan(layer, 64, 4, be.executor.own_engine.pairs, dtype != np.float32)
            assert ("later" in dict(plan.variant)) == (lanes > 0)
            for threads in (1, 3):
                use_threads(monkeypatch, threads)
                I, E = shifted(be, image, dtype), shifted(be, error, dtype)
                dF = be.zeros(s.shape_f)
                for _ in range(2):  # the second time by the extension
                    be.update_conv(layer, I, E, dF)
                found.setdefault(dtype.name, set()).add(dF.get().tobytes())
                guarded.check()
    assert [len(results) for results in found.values()] == [1, 1]


def shifted(be: Backend, values: Any, dtype: Any) -> Any:
    """A tensor of values that begins at an odd number of a larger one, where two of bfloat16 are no word."""
    given = be.zeros((values.size + 1, 1), dtype=dtype)
    view = given[1:].reshape(values.size // values.shape[-1], values.shape[-1])
    view.set(values.reshape(view.shape))
    return view


def test_factors_are_rounded_once_to_nearest(be: Backend) -> None:
    s, rng = CASES["direct, odd channels"], np.random.default_rng(3)
    image, filters, error = (rng.normal(size=shape).astype(np.float32) for shape in (s.shape_i, s.shape_f, s.shape_o))
    layer, (I, F, E) = s.layer(be), (tensor(be, values) for values in (image, filters, error))
    O, dI, dF = (be.empty(shape) for shape in (s.shape_o, s.shape_i, s.shape_f))
    be.fprop_conv(layer, I, F, O)
    be.bprop_conv(layer, F, E, dI)
    be.update_conv(layer, I, E, dF)
    for found, passed, one, other in (
        (O, forward, image, filters), (dI, backward, error, filters), (dF, update, image, error)
    ):  # fmt: skip
        wanted = passed(s, rounded(one), rounded(other))
        size = passed(s, np.abs(rounded(one)), np.abs(rounded(other)))
        terms = s.N * int(np.prod(s.out)) + s.C * s.K * int(np.prod(s.window))  # at least those of a sum
        assert (np.abs(found.get() - wanted) <= terms * 2.0**-24 * size + 1e-30).all()


PAYS = {
    "a stride past most of the input": (Sizes(20, 32, 96, (1, 64, 64), (1, 1, 1), step=(1, 2, 2), groups=4), "b"),
    "short rows of few products": (Sizes(3, 8, 16, (1, 28, 28), (1, 3, 3), (0, 1, 1)), "fb"),
    "short rows of more products": (Sizes(9, 12, 20, (1, 20, 20), (1, 3, 3), (0, 1, 1)), "fbu"),
    "few maps, which fill vectors": (Sizes(32, 256, 12, (1, 56, 56), (1, 2, 2), step=(1, 2, 2), groups=4), "u"),
}
"""Convolutions, and their passes that are faster on a Zen 4 with pairs than in float32."""


@pytest.mark.parametrize("case", PAYS)
def test_pairs_are_made_where_they_pay(be: Backend, case: str) -> None:
    s, wanted = PAYS[case]
    layer = s.layer(be)
    plans = {name: choose_data_plan(layer, name == "b", 64, 4, 2, True, 1) for name in "fb"}
    plans["u"] = choose_update_plan(layer, 64, 4, 1)
    assert {name for name, plan in plans.items() if ("pairs", 1) in plan.variant} == set(wanted)


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pairs are made even where that takes longer than it saves, as of most small convolutions."""
    made = pairs.pairs_of_channels, pairs.pairs_of_images
    monkeypatch.setattr(pairs, "_pays", lambda *_: True)
    for found in made:
        found.cache_clear()
    yield
    for found in made:
        found.cache_clear()


@pytest.mark.optimized
@pytest.mark.usefixtures("pays")
def test_random_convolutions(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any epilogue; operands are rounded before, so that the definition in float32 gives the same."""
    rng = np.random.default_rng(be.executor.own_engine.pairs)
    for s in [random_sizes(rng) for _ in range(25)]:
        use_threads(monkeypatch, rng.choice([1, 1, 2]))
        try:
            compare(be, s, "f4", rng, exact=rounded)
            guarded.check()
        except AssertionError as error:
            raise AssertionError(f"{s}") from error


@pytest.mark.parametrize("width", [16, 18])
def test_what_no_output_reads_does_not_matter(be: Backend, width: int) -> None:
    """An infinity in the last column, which no window of a stride of 2 reaches, leaves gradients finite."""
    s, rng = Sizes(1, 16, 16, (1, 5, width), (1, 3, 3), (0, 0, 0), (1, 1, 2)), np.random.default_rng(0)
    image, error = rng.normal(size=s.shape_i).astype(np.float32), rng.normal(size=s.shape_o).astype(np.float32)
    assert width > 2 * s.out[2] + 1
    image[:, :, :, 2 * s.out[2] + 1 :] = np.inf
    dF = be.empty(s.shape_f)
    be.update_conv(s.layer(be), tensor(be, image), tensor(be, error), dF)
    np.testing.assert_allclose(dF.get(), update(s, np.where(np.isinf(image), 0, image), error), atol=0.2)


def test_calls_follow_the_precision(be: Backend) -> None:
    """A call that is repeated multiplies as is set then."""
    s, rng = CASES["direct"], np.random.default_rng(0)
    image, filters = (rng.normal(size=shape).astype(np.float32) for shape in (s.shape_i, s.shape_f))
    layer, I, F = s.layer(be), tensor(be, image), tensor(be, filters)
    O, found = be.empty(s.shape_o), dict[str, list[Any]]()
    for precision in ("bfloat16", "float32", "bfloat16"):
        be.product_precision = precision
        for _ in range(4):
            be.fprop_conv(layer, I, F, O)
        found.setdefault(precision, []).append(O.get())
    np.testing.assert_allclose(found["float32"][0].reshape(s.shape_o), forward(s, image, filters), atol=1e-3)
    assert np.abs(found["bfloat16"][1] - found["float32"][0]).max() > 1e-2
