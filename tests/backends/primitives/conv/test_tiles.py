"""Convolutions by Intel's tiles (AMX), on an emulation of them in C where the processor has none."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv.choice import choose_data_plan, choose_update_plan
from neonlike.backends.cpu.primitives.conv.hooks import DATA, UPDATE, Kernels
from neonlike.backends.cpu.primitives.conv.kind import Kind
from neonlike.backends.cpu.primitives.conv.tiles import fills_tiles
from neonlike.kernels.c.pairs import INSTRUCTION, PLAIN, TILES, context_of
from neonlike.kernels.c.simd import has_tiles
from neonlike.kernels.c.toolchain import Compiler
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.conv.conv_compiled import Guarded, Operands, compare, guarded
from tests.support.engines import new_backend, use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, tensor, update
from tests.support.rounded import rounded
from tests.support.tiles import compiler, with_tiles

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.cpu_only("the compiled kernels of the CPU"),
    pytest.mark.usefixtures("with_tiles"),
]
__all__ = ["compiler", "guarded", "with_tiles"]

CASES = {
    "whole tiles": Sizes(32, 64, 96, (1, 7, 6), (1, 3, 3), (0, 1, 1)),
    "several blocks of channels": Sizes(64, 150, 40, (1, 6, 5), (1, 3, 3), (0, 1, 1)),
    "odd channels and maps": Sizes(32, 37, 51, (1, 8, 9), (1, 3, 3), (0, 1, 1)),
    "odd images": Sizes(7, 33, 40, (1, 6, 9), (1, 3, 3), (0, 1, 1)),
    "one image": Sizes(1, 34, 70, (1, 14, 15), (1, 3, 5), (0, 1, 2)),
    "rows of 17 lanes": Sizes(17, 18, 17, (1, 9, 9), (1, 3, 3)),
    "a stride": Sizes(20, 40, 33, (1, 13, 12), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "a stride past most of the input": Sizes(16, 64, 64, (1, 12, 12), (1, 2, 2), step=(1, 3, 3)),
    "three dimensions, dilated": Sizes(16, 24, 34, (4, 5, 6), (2, 3, 2), (1, 1, 1), dil=(2, 1, 2)),
    "groups": Sizes(24, 72, 80, (1, 8, 8), (1, 3, 3), (0, 1, 1), groups=2),
    "pointwise": Sizes(32, 130, 20, (1, 7, 11)),
    "pointwise, few lanes, many maps": Sizes(1, 70, 150, (1, 5, 4)),
    "pointwise, odd images and groups": Sizes(5, 48, 140, (1, 5, 9), groups=2),
    "more images than a block": Sizes(320, 20, 33, (1, 5, 4), (1, 3, 3), (0, 1, 1)),
    "images that fill tiles, a stride": Sizes(32, 48, 33, (1, 13, 12), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "images that fill tiles, three dimensions": Sizes(32, 35, 18, (4, 5, 6), (2, 3, 2), (1, 1, 1), dil=(2, 1, 2)),
    "images that fill tiles, groups": Sizes(32, 72, 80, (1, 8, 8), (1, 3, 3), (0, 1, 1), groups=2),
}
"""Tiles that are full, and channels, maps and lanes that fill none; each number of tiles of sums."""


@pytest.fixture
def be() -> Backend:
    made: Backend = new_backend(product_precision="bfloat16")
    made.executor.own_engine.pairs = INSTRUCTION
    return made


@pytest.mark.parametrize("case", CASES)
def test_exact_sums(be: Backend, guarded: Guarded, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of eight bits are not rounded, and their sums are exact: results are equal to loops in float64."""
    s, rng = CASES[case], np.random.default_rng(1)
    x = Operands(be, s, "f4", rng)
    ways = ("fprop", "bprop", "update") if s.N % 32 == 0 else ("fprop", "bprop")
    assert {be.factors_of(x.layer, way) for way in ways} == {"bfloat16 by tdpbf16ps"}
    wanted = finish(forward(s, x.image, x.filters), bias=x.shift, relu=True), backward(s, x.error, x.filters)
    gradient = update(s, x.image, x.error) if s.N % 32 == 0 else None
    for threads in (1, 3):
        use_threads(monkeypatch, threads)
        x.check(*wanted, gradient, bsum_i=True, bias=x.bias, relu=True)


@pytest.mark.optimized
@pytest.mark.parametrize("case", ["whole tiles", "odd images", "a stride", "pointwise"])
def test_any_epilogue(be: Backend, guarded: Guarded, case: str) -> None:
    for seed in range(3):
        compare(be, CASES[case], "f4", np.random.default_rng(seed), exact=rounded)


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["several blocks of channels", "odd channels and maps", "one image", "pointwise"])
def test_results_are_within_the_bound_and_the_same_for_any_threads(
    be: Backend, guarded: Guarded, case: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Factors are rounded once to nearest, and each addition to float32; each run has the same bits."""
    s, rng = CASES[case], np.random.default_rng(3)
    kind = bfloat16() if stored == "bfloat16" else np.dtype(np.float32)
    image, filters, error = (rng.normal(size=shape).astype("f4") for shape in (s.shape_i, s.shape_f, s.shape_o))
    layer, (I, F, E) = s.layer(be), (be.array(values, dtype=kind) for values in (image, filters, error))
    for run, one, other, passed, shape in (
        (lambda out: be.fprop_conv(layer, I, F, out), image, filters, forward, s.shape_o),
        (lambda out: be.bprop_conv(layer, F, E, out), error, filters, backward, s.shape_i),
        (lambda out: be.update_conv(layer, I, E, out), image, error, update, s.shape_f),
    ):
        if passed is update and s.N % 32:
            continue  # not by tiles
        found = []
        for threads in (1, 2, 5, 5):
            use_threads(monkeypatch, threads)
            out = be.empty(shape, dtype=kind)
            run(out)
            found.append(out.get().astype("f4"))
        assert len({values.tobytes() for values in found}) == 1
        wanted, size = passed(s, rounded(one), rounded(other)), passed(s, abs(rounded(one)), abs(rounded(other)))
        terms = s.N * int(np.prod(s.out)) if passed is update else max(s.C, s.K) * int(np.prod(s.window))
        coarse = 2.0**-8 * abs(wanted) if stored == "bfloat16" else 0  # results are rounded
        assert (abs(found[0] - wanted) <= (terms + 4) * 2.0**-24 * size + coarse + 1e-30).all()


def test_nan_and_infinity_reach_their_windows_alone(be: Backend, guarded: Guarded) -> None:
    """Nothing but an image's own numbers is multiplied: not what lies behind its rows, nor behind the last channel."""
    s, rng = CASES["odd images"], np.random.default_rng(0)
    image, filters = (rng.normal(size=shape).astype("f4") for shape in (s.shape_i, s.shape_f))
    image[32, 0, 0, 8, 6], image[0, 0, 3, 0, 0] = np.nan, np.inf
    O = be.empty(s.shape_o)
    be.fprop_conv(s.layer(be), tensor(be, image), tensor(be, filters), O)
    reached = forward(s, np.where(np.isfinite(image), 0, 1), np.ones_like(filters)) > 0
    np.testing.assert_array_equal(~np.isfinite(O.get()), reached)


def test_what_no_output_reads_has_no_gradient(be: Backend, guarded: Guarded) -> None:
    """Infinities in rows and columns that a stride passes over reach no gradient, and another one its tap alone."""
    s, rng = Sizes(32, 18, 20, (1, 8, 8), (1, 2, 2), step=(1, 3, 3)), np.random.default_rng(0)
    image, error = (rng.normal(size=shape).astype("f4") for shape in (s.shape_i, s.shape_o))
    image[:, 0, 2::3], image[:, 0, :, 2::3], image[5, 0, 3, 4, 9] = np.inf, np.nan, np.inf
    dF, layer = be.empty(s.shape_f), s.layer(be)
    assert be.factors_of(layer, "update") == "bfloat16 by tdpbf16ps"
    be.update_conv(layer, tensor(be, image), tensor(be, error), dF)
    reached = np.zeros(s.shape_f, bool)
    reached[5, 0, 0, 1] = True
    np.testing.assert_array_equal(~np.isfinite(dF.get()), reached)


def test_gradients_are_added_to_those_before(be: Backend, guarded: Guarded) -> None:
    s, rng = CASES["odd channels and maps"], np.random.default_rng(0)
    x = Operands(be, s, "f4", rng)
    x.dF.fill(3)
    be.update_conv(x.layer, x.I, x.E, x.dF, 0.5, 2.0)
    np.testing.assert_array_equal(x.dF.get(), 0.5 * update(s, x.image, x.error) + 6)


def test_repeated_calls_are_the_same(be: Backend) -> None:
    """The second and third call are started by the extension, with the same kernel."""
    s, rng = CASES["odd channels and maps"], np.random.default_rng(0)
    layer, I, F = s.layer(be), *(tensor(be, rng.normal(size=shape).astype("f4")) for shape in (s.shape_i, s.shape_f))
    found = []
    for _ in range(4):
        O = be.zeros(s.shape_o)
        be.fprop_conv(layer, I, F, O)
        found.append(O.get().tobytes())
    assert len(set(found)) == 1


FILLED = {
    "15 channels": (Sizes(32, 15, 64, (1, 16, 16), (1, 3, 3)), False),
    "15 maps": (Sizes(32, 64, 15, (1, 16, 16), (1, 3, 3)), False),
    "16 channels and maps": (Sizes(32, 16, 16, (1, 16, 16), (1, 3, 3)), True),
    "groups of 8": (Sizes(32, 64, 64, (1, 16, 16), (1, 3, 3), groups=8), False),
    "groups of 16": (Sizes(32, 64, 64, (1, 16, 16), (1, 3, 3), groups=4), True),
    "short rows, one after the other": (Sizes(1, 64, 64, (1, 14, 10), (1, 3, 3)), True),
    "short rows, with a stride": (Sizes(1, 64, 64, (1, 15, 15), (1, 3, 3), step=(1, 2, 2)), False),
    "few outputs": (Sizes(1, 64, 64, (1, 5, 5), (1, 3, 3)), False),
}
"""Convolutions that fill tiles, and some that leave most of them empty."""


@pytest.mark.parametrize("case", FILLED)
def test_only_convolutions_that_fill_tiles_use_them(be: Backend, case: str) -> None:
    s, wanted = FILLED[case]
    layer = s.layer(be)
    assert fills_tiles(layer, False) == wanted
    plans = [choose_data_plan(layer, False, 64, 4, 2, True, form) for form in (TILES, INSTRUCTION, PLAIN)]
    assert dict(plans[0].variant).get("pairs") == (TILES if wanted else INSTRUCTION)
    assert [dict(plan.variant).get("pairs") for plan in plans[1:]] == [INSTRUCTION, PLAIN]
    if not wanted:
        assert plans[0] == plans[1]


GRADIENTS = {
    "15 channels": (Sizes(32, 15, 64, (1, 16, 16), (1, 3, 3)), False),
    "16 channels and maps": (Sizes(32, 16, 16, (1, 16, 16), (1, 3, 3)), True),
    "pointwise": (Sizes(64, 16, 16, (1, 16, 16)), True),
    "48 images": (Sizes(48, 64, 64, (1, 16, 16), (1, 3, 3)), False),
    "one image": (Sizes(1, 64, 64, (1, 16, 16), (1, 3, 3)), False),
    "groups of 8": (Sizes(32, 64, 64, (1, 16, 16), (1, 3, 3), groups=8), False),
}
"""Convolutions whose gradient of filters tiles multiply, and others."""


@pytest.mark.parametrize("case", GRADIENTS)
def test_only_gradients_whose_images_fill_tiles_use_them(be: Backend, case: str) -> None:
    s, wanted = GRADIENTS[case]
    plans = [choose_update_plan(s.layer(be), 64, 4, form) for form in (TILES, INSTRUCTION)]
    assert [dict(plan.variant).get("pairs") for plan in plans] == [TILES if wanted else INSTRUCTION, INSTRUCTION]
    assert wanted or plans[0] == plans[1]


def test_the_kernel_of_few_outputs_stays(be: Backend) -> None:
    layer = Sizes(1, 130, 150, (1, 4, 4), (1, 3, 3), (0, 1, 1)).layer(be)
    plan = choose_data_plan(layer, False, 64, 4, 2, True, TILES)
    assert plan.kind is Kind.FEW and dict(plan.variant)["pairs"] == INSTRUCTION


def test_tiles_take_the_place_of_winograds_method(be: Backend) -> None:
    layer = CASES["whole tiles"].layer(be)
    kinds = [choose_data_plan(layer, False, 64, 4, 2, True, form).kind for form in (TILES, INSTRUCTION)]
    assert kinds == [Kind.DIRECT, Kind.WINOGRAD]


def test_expressions_tell_the_instruction(be: Backend) -> None:
    text = be.explain(be.conv(be.ones((32, 12, 12, 32)), be.ones((32, 3, 3, 16))))
    assert "\n  factors bfloat16 by tdpbf16ps" in text


def test_kernels_are_named_by_the_instruction() -> None:
    for kernels, sizes in (
        (DATA[Kind.DIRECT], {"maps": 32, "vectors": 2}),
        (UPDATE[Kind.DIRECT], {"width": 2, "taps": 32, "step": 1}),
    ):
        source = kernels.routine.source(real="float", lanes=16, pairs=TILES, **sizes, **kernels.fields)
        assert source.expression.endswith(", factors rounded to bfloat16 by tdpbf16ps")


@pytest.mark.parametrize("case", ["whole tiles", "groups", "pointwise"])
def test_the_workspace_that_is_told_is_enough(be: Backend, case: str) -> None:
    layer = CASES[case].layer(be)
    plans = {
        "fprop": choose_data_plan(layer, False, 64, 4, 2, True, TILES),
        "bprop": choose_data_plan(layer, True, 64, 4, 2, True, TILES),
        "update": choose_update_plan(layer, 64, 4, TILES),
    }
    for operation, plan in plans.items():
        assert be.workspace_bytes(layer, operation) >= plan.work(1) * 4


def test_the_variable(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = CASES["whole tiles"].layer(be)
    monkeypatch.setenv("NEONLIKE_AMX", "0")
    assert not any("tdpbf16ps" in be.factors_of(layer, way) for way in ("fprop", "bprop", "update"))
    be.product_precision = "float32"
    monkeypatch.setenv("NEONLIKE_AMX", "1")
    assert be.factors_of(layer) == "float32"


def test_a_processor_without_tiles_has_the_plans_of_before(
    be: Backend, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    if has_tiles(compiler):
        pytest.skip("the processor has tiles")
    for s in CASES.values():
        layer = s.layer(be)
        assert not any("tdpbf16ps" in be.factors_of(layer, way) for way in ("fprop", "bprop", "update"))


def test_kernels_of_other_forms_have_no_tiles_in_their_text() -> None:
    def text(kernels: Kernels, pairs: int, **sizes: int | str) -> str:
        return str(kernels.routine.source(real="float", **sizes, **context_of(pairs), **kernels.fields).source)

    for pairs in (0, INSTRUCTION, PLAIN, TILES):
        for found in (
            text(DATA[Kind.DIRECT], pairs, lanes=16, maps=12, vectors=2, half=""),
            text(DATA[Kind.POINTWISE], pairs, lanes=16, maps=12, vectors=2, half=""),
            text(UPDATE[Kind.DIRECT], pairs, lanes=16, width=2, taps=12, step=1),
        ):
            assert ("nl_tile" in found or "tiles.h" in found) == (pairs == TILES)
