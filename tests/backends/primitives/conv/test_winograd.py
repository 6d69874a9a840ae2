"""Winograd convolution against loops and the definition: sizes, blocks, flags, threads, where it is used, its error."""

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
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.conv.request import ConvPass
from neonlike.kernels.run import calls
from tests.backends.primitives.conv.conv_compiled import GUARD, Guarded
from tests.backends.primitives.conv.test_conv import FLAGS
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, row_sums, same, tensor

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

Array = np.ndarray[Any, Any]
BOTH = pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
EDGES = pytest.mark.parametrize("edge", [2, 4])


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """Fill the kernels' working memory with nan, and check that nothing around it is written."""
    memory = Guarded()
    monkeypatch.setattr(calls, "held_workspace", memory)
    plans.winograd_plan.cache_clear()
    yield memory
    plans.winograd_plan.cache_clear()
    memory.check()


def force(monkeypatch: pytest.MonkeyPatch, edge: int, **limits: Any) -> None:
    """Tiles of ``edge`` for all sizes; limits: of the plan, such as M_BYTES."""
    monkeypatch.setattr(choice, "winograd_edge", lambda *_: edge)
    for name, value in limits.items():
        monkeypatch.setattr(plans, name, value)
    plans.winograd_plan.cache_clear()


def square(
    N: int, C: int, K: int, height: int, width: int, pad: int | tuple[int, int] = 1, depth: int = 1, dil: Any = (1, 1)
) -> Sizes:
    """A layer of 3 x 3 filters."""
    pads = (pad, pad) if isinstance(pad, int) else pad
    return Sizes(N, C, K, (depth, height, width), (1, 3, 3), (0, *pads), dil=(1, *dil))


def passes(be: Any, s: Sizes, back: bool, source: Array, filters: Array, **given: Any) -> Array:
    """The result of one pass, of its shape."""
    out = given.pop("out", None) or be.empty(s.shape_i if back else s.shape_o, dtype=source.dtype)
    tensors = tensor(be, source), tensor(be, filters)
    if back:
        be.bprop_conv(s.layer(be, source.dtype), tensors[1], tensors[0], out, **given)
    else:
        be.fprop_conv(s.layer(be, source.dtype), *tensors, out, **given)
    found: Array = out.get().reshape(s.shape_i if back else s.shape_o)
    return found


def check(be: Any, s: Sizes, dtype: Any = np.float32, close: float = 0.0) -> None:
    """Both passes with bias and bsum against the loops: quarters are exact with tiles of 2 x 2."""
    rng = np.random.default_rng(s.C)
    filters = quarters(rng, s.shape_f, dtype)
    for back in (False, True):
        source = quarters(rng, s.shape_o if back else s.shape_i, dtype)
        shift = quarters(rng, (s.C if back else s.K, 1), dtype)
        result = backward(s, source, filters) if back else forward(s, source, filters)
        wanted, bsum = finish(result, bias=shift), be.empty(shift.shape, dtype=np.float64)
        found = passes(be, s, back, source, filters, bias=be.array(shift, dtype=dtype), bsum=bsum)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=close * np.abs(wanted).max(), err_msg=f"{s} {back}")
        np.testing.assert_allclose(bsum.get(), row_sums(found), rtol=1e-12, atol=1e-9)


# Sizes --------------------------------------------------------------------------------------------------------------

LAYERS = [
    square(16, 16, 16, 6, 6),
    square(16, 16, 17, 7, 9),
    square(32, 20, 33, 5, 4, 0),
    square(48, 17, 20, 3, 8, (2, 0)),
    square(16, 24, 16, 5, 6, 2),
    square(16, 16, 18, 4, 3, (3, 4)),
    square(16, 18, 24, 1, 6, (1, 2)),
    square(16, 1, 2, 2, 1),
    square(16, 16, 16, 5, 5, 1, depth=3),
    square(64, 33, 40, 4, 7),
    square(160, 4, 5, 3, 3),
    square(144, 3, 20, 4, 4),
    square(16, 70, 130, 6, 5),
    square(16, 9, 100, 23, 4),
    square(16, 4, 6, 3, 29, 0),
    square(32, 5, 7, 9, 8, 2, dil=(2, 2)),
    square(16, 6, 5, 8, 11, (3, 1), 2, dil=(3, 1)),
]
FEW = [
    square(1, 16, 16, 6, 6),
    square(1, 5, 17, 1, 2),
    square(1, 40, 29, 7, 7),
    square(1, 9, 24, 14, 14),
    square(1, 7, 6, 5, 70, 0),
    square(1, 7, 9, 33, 37, (2, 0)),
    square(1, 4, 5, 11, 6, (3, 4), 3),
    square(1, 20, 20, 29, 31),
    square(2, 6, 7, 9, 12),
    square(3, 5, 16, 13, 11, 2),
    square(5, 17, 12, 4, 9, 1, 2),
    square(7, 6, 10, 12, 13),
    square(15, 3, 5, 6, 7, 0),
    square(17, 4, 9, 5, 6),
    square(40, 3, 4, 3, 5),
    square(130, 3, 6, 4, 3),
    square(1, 6, 7, 9, 14, 2, dil=(2, 2)),
    square(1, 3, 8, 12, 7, (1, 3), 2, dil=(1, 3)),
    square(1, 3, 4, 6, 6, (5, 4), dil=(4, 5)),
    square(3, 5, 6, 10, 11, 2, dil=(3, 2)),
    square(20, 3, 6, 8, 9, 3, dil=(3, 3)),
]
"""Images that do not fill vectors."""


@pytest.mark.compiles(10)
@EDGES
@pytest.mark.parametrize("s", LAYERS + FEW, ids=str)
def test_agrees_with_loops(be: Backend, s: Sizes, edge: int, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, edge)
    check(be, s, close={2: 0, 4: 2e-5}[edge])


@pytest.mark.compiles(2)
@EDGES
@pytest.mark.parametrize(("nbytes", "dtype"), [(64, "f2"), (64, "f4"), (64, "f8"), (32, "f4"), (32, "f8"), (16, "f4")])
def test_vectors_and_dtypes(be: Backend, nbytes: int, dtype: str, edge: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every width of a vector and kind of register tile; float16 is computed in float32."""
    force(monkeypatch, edge)
    monkeypatch.setattr(kernels, "vector_bytes", lambda _: nbytes)
    close = {"f2": 2e-3, "f4": 2e-5, "f8": 1e-13}[dtype] * (edge == 4)
    images = max(1, nbytes // max(4, np.dtype(dtype).itemsize))
    for turn, K in enumerate((1, 4, 10, 12, 16, 29)):
        check(be, square(images * (1, 3, 5)[turn % 3], 3 + turn, K, 3 + turn % 4, 7 - turn % 3), np.dtype(dtype), close)
    check(be, square(1, 9, 10, 6, 17), np.dtype(dtype), close)
    check(be, square(3, 8, 16, 5, 7), np.dtype(dtype), close)


@pytest.mark.compiles(8)
@EDGES
@pytest.mark.parametrize(
    "limits",
    [
        {"M_BYTES": 1},  # a map tile a part
        {"M_BYTES": 40_000},
        {"V_BYTES": {2: 1, 4: 1}},  # a channel a block
        {"V_BYTES": {2: 10_000, 4: 20_000}, "M_BYTES": 60_000},
        {"RUN_LANES": 32, "FEW_BYTES": 1 << 20},
        {"RUN_LANES": 400, "FEW_BYTES": 1 << 30},
        {"IMAGE_LANES": 16},
        {"IMAGE_LANES": 32, "RUN_LANES": 100, "FEW_BYTES": 1 << 30},
        {"FEW_LANES": 16},
        {"FEW_LANES": 50, "V_BYTES": {2: 10_000, 4: 20_000}, "PARTIAL": 0.5},
        {"FEW_LANES": 4000, "FUSED_BYTES": 1},
        {"FEW_LANES": 4000, "FUSED_BYTES": 20_000, "M_BYTES": 300_000},
    ],
    ids=str,
)
def test_blocks(be: Backend, limits: dict[str, Any], edge: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the maps, blocks of channels and images, and runs of tiles of any size, over ends of rows."""
    force(monkeypatch, edge, **limits)
    several = square(48, 13, 37, 7, 9), square(16, 34, 29, 11, 5, 2), square(80, 7, 20, 5, 3, 1, depth=2)
    few = square(1, 13, 37, 17, 19), square(3, 34, 29, 11, 5, 2), square(1, 21, 20, 9, 8, 2, 2, (2, 2))
    for s in several + few:
        check(be, s, close={2: 0, 4: 2e-5}[edge])


def test_plans_have_several_blocks_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes used above give plans with several blocks of everything."""

    def fields(s: Sizes, threads: int = 1, **limits: Any) -> dict[str, int]:
        with monkeypatch.context() as context:
            force(context, 2, **limits)
            layer = s.layer(_Layers())
            return dict(zip(plans.META, plans.winograd_plan(layer, False, 64, 4, 2, threads).fields))

    s = square(48, 13, 37, 7, 9)
    assert fields(s)["PARTS"] == 1 and fields(s)["CHANNEL_BLOCK"] == 13 and fields(s)["IMAGE_BLOCK"] == 48
    assert fields(s, M_BYTES=1)["PARTS"] > 2
    assert fields(s, V_BYTES={2: 10_000})["CHANNEL_BLOCK"] < 5
    assert fields(s, IMAGE_LANES=16)["IMAGE_BLOCK"] == 16
    assert fields(s, 5)["PARTS"] == 1 and fields(s, 8)["PARTS"] == 2  # 20 runs of tiles are few for 8 threads
    some = fields(s, RUN_LANES=400, FEW_BYTES=1 << 30)
    assert some["RUN"] > some["TILES_W"]
    few = square(1, 13, 37, 17, 19)
    assert fields(few)["FUSED"] > 0 == fields(few)["SHARED_SIZE"] and fields(few)["RUN"] == 90
    assert fields(few, FUSED_BYTES=1)["CHANNEL_BLOCK"] == 1 and fields(few, FUSED_BYTES=20_000)["CHANNEL_BLOCK"] == 7
    shared = fields(few, 8, FEW_LANES=50)
    assert shared["FUSED"] == 0 and shared["PARTS"] > 1 and shared["SHARED_SIZE"] == 3 * shared["V_SIZE"]
    assert fields(few, FEW_LANES=50, PARTIAL=0.5)["RUN"] % 10 != 0 == fields(few, FEW_LANES=50)["RUN"] % 10


class _Layers(ConvFamily):
    """Makes layers without a backend."""

    def __init__(self) -> None:
        pass

    default_np_dtype = np.dtype(np.float32)


# What is done to the result -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("N", "dil"), [(16, 1), (144, 1), (1, 1), (3, 1), (1, 2)])
def test_all_combinations_of_flags(be: Backend, back: bool, N: int, dil: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly; of 144 images, which are two blocks, and with dilation, results are stored column by column."""
    force(monkeypatch, 2)
    s, rng = square(N, 2, 3, 3, 4, dil, dil=(dil, dil)), np.random.default_rng(3)
    source, filters = quarters(rng, s.shape_o if back else s.shape_i), quarters(rng, s.shape_f)
    result = backward(s, source, filters) if back else forward(s, source, filters)
    old, other, shift = quarters(rng, result.shape), quarters(rng, result.shape), quarters(rng, (len(result), 1))
    bsum, bias = be.empty((len(result), 1), dtype=np.float64), be.array(shift)
    for alpha, beta, relu, brelu, slope, with_bias, which in FLAGS:
        out = tensor(be, old)
        if which == 1 or not (beta or brelu):
            out.fill(np.nan)
        bsum.fill(np.nan)
        given: dict[str, Any] = {"X": (None, tensor(be, other), out)[which], "bias": bias if with_bias else None}
        given |= {"alpha": alpha, "beta": beta, "relu": relu, "brelu": brelu, "slope": slope}
        found = passes(be, s, back, source, filters, out=out, bsum=bsum, **given)
        x = other if which == 1 else old
        wanted = finish(result, alpha, shift if with_bias else None, brelu, relu, slope, beta, x.astype(np.float64))
        np.testing.assert_array_equal(found, wanted.astype(np.float32), err_msg=str(given))
        same(bsum, row_sums(found))


@pytest.mark.compiles(10)
@EDGES
@BOTH
@pytest.mark.parametrize("room", [100_000, 1 << 20])
@pytest.mark.parametrize(("N", "size"), [(32, 11), (1, 13), (1, 24), (3, 15)])
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, back: bool, edge: int, room: int, N: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, sums too."""
    force(monkeypatch, edge, M_BYTES=room)
    s, rng = square(N, 40, 37, size, 9), np.random.default_rng(0)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
    filters, results = rng.normal(size=s.shape_f).astype(np.float32), set()
    for threads in ("1", "2", "3", "5"):
        use_threads(monkeypatch, threads)
        assert kernels._threads(s.layer(be)) == int(threads)
        bsum = be.empty((s.C if back else s.K, 1), dtype=np.float64)
        found = passes(be, s, back, source, filters, bsum=bsum, relu=True)
        np.testing.assert_allclose(bsum.get(), row_sums(found), rtol=1e-12)
        results.add((found.tobytes(), bsum.get().tobytes()))
    assert len(results) == 1


# Where it is used ---------------------------------------------------------------------------------------------------


def used(be: Any, s: Sizes, allowed: Any, back: bool = False, dtype: Any = np.float32) -> int:
    return plans.winograd_edge(s.layer(be, dtype), back, 64, np.dtype(dtype).itemsize, allowed)


@BOTH
def test_where_it_is_used(be: Backend, back: bool) -> None:
    large = square(32, 16, 16, 14, 14)
    assert [used(be, large, allowed, back) for allowed in (False, 0, None, True, 2, 4, 1)] == [0, 0, 0, 2, 2, 4, 2]
    assert used(be, square(8, 16, 16, 14, 14), True, back) == 2  # half a vector
    assert used(be, square(8, 16, 16, 14, 14), True, back, np.float64) == 2
    assert used(be, square(24, 16, 16, 14, 14), True, back) == 2
    assert [used(be, square(1, 16, 16, size, size), True, back) for size in (4, 5, 6, 7, 14, 56)] == [0, 0, 0, 2, 2, 2]
    assert used(be, square(32, 16, 16, 14, 14, 2, dil=(2, 2)), True, back) == 2
    assert used(be, square(32, 15, 64, 14, 14), True, back) == 0
    assert used(be, square(32, 64, 15, 14, 14), True, back) == 0
    assert used(be, square(32, 16, 16, 14, 14, 1, depth=3), True, back) == 2
    assert used(be, square(32, 16, 16, 7, 7), True, back) == 2
    assert used(be, square(32, 16, 16, 3, 3), True, back) == 0  # half of each tile would be outside of the image
    for size, edge in ((4, 4), (6, 2), (7, 4), (10, 2), (13, 4)):
        assert used(be, square(32, 16, 16, size, size), 4, back) == edge  # by what tiles of 4 x 4 waste
    for other in (
        Sizes(32, 16, 16, (1, 14, 14), (1, 3, 1), (0, 1, 0)),
        Sizes(32, 16, 16, (1, 14, 14), (1, 1, 3), (0, 0, 1)),
        Sizes(32, 16, 16, (3, 14, 14), (3, 3, 3), (1, 1, 1)),
        Sizes(32, 16, 16, (1, 14, 14), (1, 5, 5), (0, 2, 2)),
        Sizes(32, 16, 16, (2, 14, 14), (1, 3, 3), (1, 1, 1)),
        Sizes(32, 16, 16, (3, 14, 14), (1, 3, 3), (0, 1, 1), (2, 1, 1)),
        Sizes(32, 16, 16, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, 2, 1)),
        Sizes(32, 16, 16, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, 1, 2)),
        Sizes(32, 32, 32, (1, 14, 14), (1, 3, 3), (0, 1, 1), groups=2),
    ):
        assert used(be, other, True, back) == used(be, other, 4, back) == 0, other


def test_enable_winograd_chooses_the_plan(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    s, rng, plan = square(16, 16, 16, 8, 8), np.random.default_rng(0), choice.choose_data_plan
    image, filters = rng.normal(size=s.shape_i).astype(np.float32), rng.normal(size=s.shape_f).astype(np.float32)
    edges: list[int] = []

    def spy(*arguments: Any) -> Any:
        found = plan(*arguments)
        edges.append(dict(found.variant)["outputs"] if found.kind is Kind.WINOGRAD else 0)
        return found

    monkeypatch.setattr(kernels, "choose_data_plan", spy)
    results = []
    for allowed in (True, False, 4, 2):
        be.enable_winograd = allowed
        results.append(passes(be, s, False, image, filters))
        passes(be, s, True, image, filters)
    assert edges == [2, 2, 0, 0, 4, 4, 2, 2]
    assert (results[0] != results[1]).any() and (results[0] != results[2]).any()  # by the last bits
    np.testing.assert_array_equal(results[0], results[3])


@pytest.mark.parametrize("N", [1, 7, 32])
@pytest.mark.parametrize("operation", ["fprop", "bprop"])
def test_workspace_is_enough_for_all_choices(be: Backend, operation: str, N: int, guarded: Guarded) -> None:
    s, rng = square(N, 64, 80, 14, 14), np.random.default_rng(0)
    stated, back = be.workspace_bytes(s.layer(be), operation), operation == "bprop"
    source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
    for allowed in (False, True, 4):
        be.enable_winograd = allowed
        passes(be, s, back, source, np.zeros(s.shape_f, np.float32))
        assert guarded.memory.nbytes - 2 * GUARD - 64 <= stated


# Numbers ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("allowed", "limit"), [(False, 4e-6), (True, 2e-6), (4, 3e-5)])
def test_error(be: Backend, back: bool, allowed: Any, limit: float) -> None:
    """Errors relative to the largest result are within the bounds of the module's table."""
    be.enable_winograd = allowed
    s, rng = square(16, 128, 128, 8, 8), np.random.default_rng(1)
    source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
    filters = rng.normal(size=s.shape_f).astype(np.float32)
    wanted = (backward if back else forward)(s, source, filters)
    error = np.abs(passes(be, s, back, source, filters) - wanted).max() / np.abs(wanted).max()
    assert 1e-8 < error < limit
    assert allowed != 4 or error > 1e-6  # it was computed with tiles of 4 x 4


@BOTH
@pytest.mark.parametrize("s", [square(16, 16, 18, 8, 7), square(1, 16, 18, 14, 13), square(3, 16, 18, 8, 7)], ids=str)
def test_nan_reaches_what_reads_it_and_infinity_is_nan_there(be: Backend, back: bool, s: Sizes) -> None:
    rng = np.random.default_rng(2)
    assert used(be, s, True, back) == 2
    shape = s.shape_o if back else s.shape_i
    filters, ones = rng.choice([-1.0, 0.75, 2], s.shape_f).astype(np.float32), np.ones(s.shape_f)
    for value in (np.nan, np.inf, -np.inf):
        for turn in range(6):
            read, mark = rng.normal(size=shape).astype(np.float32), np.zeros(shape)
            at = tuple(int(rng.integers(size)) for size in shape)
            read[at], mark[at] = value, 1
            reached = (backward(s, mark, ones) if back else forward(s, mark, ones)) > 0
            found = passes(be, s, back, read, filters)
            np.testing.assert_array_equal(np.isfinite(found), ~reached, err_msg=f"{value} {turn} {at}")
            if np.isnan(value):
                np.testing.assert_array_equal(np.isnan(found), reached)
            be.enable_winograd = False
            found = passes(be, s, back, read, filters)
            np.testing.assert_array_equal(np.isnan(found) if np.isnan(value) else np.isinf(found), reached)
            be.enable_winograd = True


@pytest.mark.optimized
@pytest.mark.parametrize("edge", [2, 4])
def test_agrees_with_the_definition(be: Backend, edge: int) -> None:
    """Values of the usual sizes, with layers that are chosen by themselves."""
    be.enable_winograd, rng = edge, np.random.default_rng(4)
    for s in (
        square(32, 40, 48, 14, 13),
        square(16, 64, 24, 8, 8, 0),
        square(64, 16, 70, 9, 16, (0, 2)),
        square(1, 40, 48, 29, 30),
        square(5, 24, 30, 19, 20, 2, dil=(2, 2)),
    ):
        for back in (False, True):
            source = rng.normal(size=s.shape_o if back else s.shape_i).astype(np.float32)
            filters = rng.normal(size=s.shape_f).astype(np.float32)
            found = passes(be, s, back, source, filters)
            out = be.empty(found.shape)
            layer, tensors = s.layer(be), (tensor(be, source), tensor(be, filters))
            ConvFamily._conv(be, ConvPass(layer, back), *tensors, out)
            np.testing.assert_allclose(found, out.get(), rtol=0, atol=3e-5 * np.abs(found).max())
