"""Winograd's convolution on the GPU: every pass against loops, its error, when it is chosen, what is queued."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import elements
from neonlike.backends.gpu.primitives.conv import plan as conv_plan
from neonlike.backends.gpu.primitives.conv import winograd as conv_winograd
from tests.backends.gpu.primitives.conv.test_conv import EVERY, forget, note_memory, queued, shifted
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, row_sums, tensor, update
from tests.support.gpu.cuda_backends import gpu

pytestmark = pytest.mark.checked
__all__ = ["gpu"]

CLOSE = {2: 0.0, 4: 2e-5}
"""Largest error by edge of tiles, of the largest result: quarters are exact with tiles of 2 x 2."""
EDGES = pytest.mark.parametrize("edge", CLOSE)


def square(
    N: int, C: int, K: int, height: int, width: int, pad: int | tuple[int, int] = 1, depth: int = 1
) -> Sizes:
    """A layer of 3 x 3 filters."""
    pads = (pad, pad) if isinstance(pad, int) else pad
    return Sizes(N, C, K, (depth, height, width), (1, 3, 3), (0, *pads))


ONE = square(1, 5, 7, 9, 6)
ODD = square(3, 4, 6, 7, 5, 0)
FOUR = square(8, 5, 6, 6, 11, 2)
SHAPES = {
    "one image": ONE, "odd images": ODD, "whole units": FOUR, "two images": square(2, 3, 9, 8, 8, (0, 1)),
    "wide border": square(4, 3, 5, 3, 4, (3, 4)), "planes": square(4, 3, 4, 5, 4, 1, depth=3),
    "a window": square(1, 2, 3, 3, 3, 0), "a point": square(5, 2, 3, 1, 2),
    "blocks": square(40, 3, 2, 13, 9),
}  # fmt: skip
ENDS: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "relu": True, "brelu": True, "slope": 0.25}


@pytest.fixture
def tiles(gpu: Any) -> Iterator[Any]:
    """The backend, which convolves by tiles wherever these have a form."""
    gpu.conv_method = "winograd"
    yield gpu
    gpu.conv_method, gpu.product_precision, gpu.enable_winograd = "auto", "float32", True
    forget(gpu)


@pytest.fixture
def small(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bands of 32 lanes, and parts of 8 or more: small sizes are cut as large ones are."""
    for name, value in (("COLUMN_BYTES", 1), ("LEAST_LANES", 32), ("EVEN", 16), ("LEAST_DEPTH", 8)):
        monkeypatch.setattr(conv_plan, name, value)
    forget(gpu)
    yield
    forget(gpu)


def near(found: Any, wanted: Any, close: float) -> None:
    """The tensor holds ``wanted``, but for ``close`` of the largest value."""
    values = found.get().reshape(wanted.shape)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=close * np.abs(wanted).max())


def check(be: Any, s: Sizes, close: float, make: Any = tensor, kind: Any = np.float32) -> None:
    """All passes against loops: alone, and with every end, X being another tensor (of ``kind``) or the old values."""
    rng, layer = np.random.default_rng(s.N + s.C), s.layer(be)
    image, filters, error = (quarters(rng, shape) for shape in (s.shape_i, s.shape_f, s.shape_o))
    I, F, E = (make(be, values, np.float32) for values in (image, filters, error))
    passes = (be.fprop_conv, (I, F), forward(s, image, filters)), (be.bprop_conv, (F, E), backward(s, error, filters))
    for turn, (run, given, result) in enumerate(passes):
        old, x, shift = (quarters(rng, shape) for shape in (result.shape, result.shape, (len(result), 1)))
        out = make(be, np.full_like(old, np.nan), np.float32)
        run(layer, *given, out)
        near(out, result, close)
        out, total = make(be, old, np.float32), be.empty((len(result), 1), dtype=np.float64)
        X, seen = (make(be, x.astype(kind), kind), x) if turn else (None, old)
        run(layer, *given, out, X=X, bias=be.array(shift, dtype=kind), bsum=total, **ENDS)
        wanted = finish(result, bias=shift, x=seen, **ENDS)
        near(out, wanted, close)
        np.testing.assert_allclose(total.get(), row_sums(out.get().reshape(wanted.shape)), rtol=1e-6, atol=1e-5)
    for alpha, beta in ((0.5, 2.0), (1.0, 0.0)):
        old = quarters(rng, s.shape_f)
        gradient = make(be, (old if beta else np.full_like(old, np.nan)).astype(kind), kind)
        be.update_conv(layer, I, E, gradient, alpha=alpha, beta=beta)
        near(gradient, alpha * update(s, image, error) + beta * old, close)


# Results ------------------------------------------------------------------------------------------------------------


@EDGES
@pytest.mark.parametrize("name", SHAPES)
def test_every_pass_agrees_with_loops(tiles: Any, name: str, edge: int) -> None:
    tiles.enable_winograd = edge
    check(tiles, SHAPES[name], CLOSE[edge])


@EDGES
@pytest.mark.parametrize("s", [ONE, ODD, FOUR, square(8, 5, 6, 7, 9)], ids=str)
def test_bands_and_parts_agree_with_loops(tiles: Any, small: None, s: Sizes, edge: int) -> None:
    """Bands that begin within a tile's images, the last one shorter; parts that zeros fill up."""
    tiles.enable_winograd = edge
    check(tiles, s, CLOSE[edge])


def test_other_dtypes_64_bits_and_tensors_that_start_anywhere(tiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients, bias and X of float64; and float32 filters and images alone are transformed."""
    check(tiles, FOUR, 0, kind=np.float64)
    check(tiles, FOUR, 0, make=shifted)
    monkeypatch.setattr(elements, "NARROW", 1)
    forget(tiles)
    check(tiles, ODD, 0)


def test_without_cublas_kernels_of_our_own_multiply(tiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.products.blas.__dict__, "handle", None)
    forget(tiles)
    check(tiles, ODD, 0)
    forget(tiles)


@pytest.mark.parametrize(("edge", "limit"), [(0, 4e-6), (2, 2e-6), (4, 3e-5)])
def test_error(tiles: Any, edge: int, limit: float) -> None:
    """Errors relative to the largest result, for usual values, are within the bounds of the CPU's tiles."""
    tiles.enable_winograd, rng = edge, np.random.default_rng(1)
    s = square(16, 128, 24, 8, 8)
    image, filters, error = (rng.normal(size=shape).astype(np.float32) for shape in (s.shape_i, s.shape_f, s.shape_o))
    layer, (I, F, E) = s.layer(tiles), (tensor(tiles, values) for values in (image, filters, error))
    O, delta, gradient = (tiles.empty(shape) for shape in (s.shape_o, s.shape_i, s.shape_f))
    tiles.fprop_conv(layer, I, F, O)
    tiles.bprop_conv(layer, F, E, delta)
    tiles.update_conv(layer, I, E, gradient)
    wanted = forward(s, image, filters), backward(s, error, filters), update(s, image, error)
    for found, exact in zip((O, delta, gradient), wanted):
        far = np.abs(found.get().reshape(exact.shape) - exact).max() / np.abs(exact).max()
        assert 1e-8 < far < limit
        assert edge != 4 or far > 5e-7, "computed with tiles of 4 x 4"


@EDGES
def test_results_do_not_depend_on_the_order_of_blocks(
    tiles: Any, small: None, edge: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, though no sum is exact; an emulated GPU runs blocks in the order that the variable says."""
    s, rng, results, tiles.enable_winograd = FOUR, np.random.default_rng(0), [], edge
    layer = s.layer(tiles)
    I, F, E = (tiles.array(rng.normal(size=shape)) for shape in (s.shape_i, s.shape_f, s.shape_o))
    for order in ("forward", "reverse", "random"):
        monkeypatch.setenv("CUEMU_ORDER", order)
        found = [tiles.empty(shape) for shape in (s.shape_o, (s.K, 1), s.shape_i, (s.C, 1), s.shape_f)]
        tiles.fprop_conv(layer, I, F, found[0], bsum=found[1], relu=True)
        tiles.bprop_conv(layer, F, E, found[2], bsum=found[3])
        tiles.update_conv(layer, I, E, found[4])
        results.append([values.get().tobytes() for values in found])
    assert results[0] == results[1] == results[2]


def test_nan_and_infinity_reach_what_reads_them_alone(tiles: Any) -> None:
    """With tiles of 2 x 2; as on the CPU."""
    s, rng = ODD, np.random.default_rng(2)
    filters, ones = rng.choice([-1.0, 0.75, 2], s.shape_f).astype(np.float32), np.ones(s.shape_f)
    layer, F = s.layer(tiles), tensor(tiles, filters)
    for value in (np.nan, np.inf):
        for back, shape in ((False, s.shape_i), (True, s.shape_o)):
            read, mark = rng.normal(size=shape).astype(np.float32), np.zeros(shape)
            at = tuple(int(rng.integers(size)) for size in shape)
            read[at], mark[at] = value, 1
            reached = (backward(s, mark, ones) if back else forward(s, mark, ones)) > 0
            out = tiles.empty(reached.shape)
            if back:
                tiles.bprop_conv(layer, F, tensor(tiles, read), out)
            else:
                tiles.fprop_conv(layer, tensor(tiles, read), F, out)
            np.testing.assert_array_equal(np.isfinite(out.get()), ~reached)
            if np.isnan(value):
                np.testing.assert_array_equal(np.isnan(out.get()), reached)


# When it is chosen --------------------------------------------------------------------------------------------------


def edge_of(be: Any, s: Sizes, allowed: int, which: str = "fprop") -> int:
    """The tiles of a pass with the method "auto"."""
    return conv_plan.winograd_edge(s.layer(be), which == "bprop", which == "update", allowed)


@pytest.mark.parametrize("which", ["fprop", "bprop", "update"])
def test_tiles_are_taken_where_products_saved_outweigh_what_is_stored(gpu: Any, which: str) -> None:
    def edges(allowed: int, *layers: Sizes) -> list[int]:
        return [edge_of(gpu, s, allowed, which) for s in layers]

    many = [square(64, maps, maps, 28, 28) for maps in (16, 32, 64, 128, 256, 512)]
    assert edges(0, *many) == [0] * 6
    assert edges(2, *many) == [0, 0, 0, 2, 2, 2]
    assert edges(4, *many) == [0, 0, 4, 4, 4, 4]
    small = [square(64, 256, 256, size, size) for size in (1, 3, 4, 5, 7, 14)]
    assert edges(2, *small) == [0, 0, 2, 0, 0, 2], "by what tiles waste"
    assert edges(4, *small) == [0, 0, 4, 0, 4, 4]
    ten = [square(64, maps, maps, 10, 10) for maps in (128, 256)]
    assert edges(4, *ten) == [2, 2], "4 x 4 gains too little on 2 x 2"
    assert edges(4, square(1, 512, 512, 7, 7), square(64, 31, 256, 28, 28), square(64, 256, 31, 28, 28)) == [0, 0, 0]


def test_what_has_no_form_is_computed_by_another_way(gpu: Any) -> None:
    image = (1, 28, 28)
    layers = [
        Sizes(64, 128, 128, image, (1, 3, 1), (0, 1, 0)),
        Sizes(64, 128, 128, image, (1, 5, 5), (0, 2, 2)),
        Sizes(64, 128, 128, (3, 28, 28), (3, 3, 3), (1, 1, 1)),
        Sizes(64, 128, 128, (2, 28, 28), (1, 3, 3), (1, 1, 1)),
        Sizes(64, 128, 128, (3, 28, 28), (1, 3, 3), (0, 1, 1), (2, 1, 1)),
        Sizes(64, 128, 128, image, (1, 3, 3), (0, 1, 1), (1, 1, 2)),
        Sizes(64, 128, 128, image, (1, 3, 3), (0, 2, 2), dil=(1, 2, 2)),
        Sizes(64, 128, 128, image, (1, 3, 3), (0, 1, 1), groups=2),
    ]
    for s in layers:
        for which in ("fprop", "bprop", "update"):
            assert edge_of(gpu, s, 4, which) == 0, s
        assert conv_plan.winograd_edge(s.layer(gpu), False, False, 4, always=True) == 0, s
    assert edge_of(gpu, square(64, 128, 128, 28, 28, 1, depth=3), 4) == 4


def steps(be: Any, monkeypatch: pytest.MonkeyPatch, s: Sizes, call: str, dtype: Any = np.float32, **ends: Any) -> str:
    """Launches that a call queues."""
    layer = s.layer(be, dtype)
    I, F, O = (be.ones(shape, dtype=dtype) for shape in (s.shape_i, s.shape_f, s.shape_o))
    given = {"fprop": (I, F, O), "bprop": (F, O, I), "update": (I, O, F)}[call]
    found = queued(be, monkeypatch, lambda: getattr(be, f"{call}_conv")(layer, *given, **ends))
    return " ".join(found).replace("winograd_", "")


PASS, UPDATE = "filters source product results", "source source product gradient"


def test_a_program_is_transforms_a_product_and_a_transform(
    tiles: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    assert steps(tiles, monkeypatch, ODD, "fprop", relu=True) == PASS
    assert steps(tiles, monkeypatch, ODD, "bprop", bsum=tiles.empty((4, 1))) == f"{PASS} sums"
    assert steps(tiles, monkeypatch, ODD, "update") == UPDATE
    assert steps(tiles, monkeypatch, ODD, "fprop", np.float16) == "columns product"
    assert steps(tiles, monkeypatch, EVERY["padded"], "fprop") == "columns product", "filters of 3 x 2"
    request.getfixturevalue("small")  # bands of 32 lanes, of which 5 x 4 tiles of 3 images are 60
    assert steps(tiles, monkeypatch, square(3, 4, 6, 11, 9, 0), "fprop") == "filters" + " source product results" * 2
    assert steps(tiles, monkeypatch, square(3, 4, 6, 11, 9, 0), "update") == "source source product " * 2 + "gradient"


def test_the_switch_counts_for_calls_that_were_made_before(tiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting of it, of the method and of the precision; a result of 4 x 4 has other bits."""
    s, rng = FOUR, np.random.default_rng(0)
    layer, found = s.layer(tiles), list[tuple[bool, bytes]]()
    I, F, E = (tiles.array(rng.normal(size=shape)) for shape in (s.shape_i, s.shape_f, s.shape_o))

    def run() -> None:
        O, gradient = tiles.empty(s.shape_o), tiles.empty(s.shape_f)
        for call, given, out in (("fprop", (I, F), O), ("update", (I, E), gradient)):
            seen = queued(tiles, monkeypatch, partial(getattr(tiles, f"{call}_conv"), layer, *given, out))
            found.append(("winograd_source" in seen, out.get().tobytes()))

    settings: list[tuple[str, Any]] = [
        ("enable_winograd", 2), ("enable_winograd", 4), ("enable_winograd", False), ("enable_winograd", True),
        ("product_precision", "tf32"), ("product_precision", "float32"), ("conv_method", "columns"),
        ("conv_method", "winograd"),
    ]  # fmt: skip
    for name, value in settings:
        setattr(tiles, name, value)
        run()
    assert [used for used, _ in found[::2]] == [True, True, False, True, False, True, False, True]
    for each in (found[::2], found[1::2]):
        bits = [values for _, values in each]
        assert bits[0] == bits[3] == bits[5] == bits[7] and bits[2] == bits[6]
        assert len({bits[0], bits[1], bits[2]}) == 3


def test_a_layer_takes_tiles_by_itself(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the arithmetic says so, with float32 products, unless the method or the switch says otherwise."""
    monkeypatch.setattr(conv_plan, "GAIN", 0.1)
    forget(gpu)
    s = square(2, 32, 32, 6, 6)
    assert gpu.conv_method == "auto" and gpu.enable_winograd is True
    assert steps(gpu, monkeypatch, s, "fprop") == PASS
    assert steps(gpu, monkeypatch, s, "update") == UPDATE
    for name, value, back in (
        ("enable_winograd", False, True), ("product_precision", "tf32", "float32"), ("conv_method", "columns", "auto"),
    ):  # fmt: skip
        setattr(gpu, name, value)
        assert steps(gpu, monkeypatch, s, "fprop") == steps(gpu, monkeypatch, s, "update") == "columns product", name
        setattr(gpu, name, back)
    forget(gpu)


# Memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [square(4, 12, 10, 9, 9), square(1, 12, 10, 4, 4)], ids=["images", "filters"])
def test_working_memory_is_what_is_stated_for_every_setting(
    tiles: Any, s: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of 2 x 2 take the most where images do, those of 4 x 4 where filters do."""
    layer, taken = s.layer(tiles), note_memory(tiles, monkeypatch)
    I, F, O = (tiles.ones(shape) for shape in (s.shape_i, s.shape_f, s.shape_o))

    for call, given, rows in (("fprop", (I, F, O), s.K), ("bprop", (F, O, I), s.C), ("update", (I, O, F), 0)):
        ends = {"bsum": tiles.empty((rows, 1)), "bias": tiles.ones((rows, 1)), "relu": True} if rows else {}
        for allowed in (0, 2, 4):
            tiles.enable_winograd = allowed
            getattr(tiles, f"{call}_conv")(layer, *given, **ends)
            assert max(taken) <= tiles.workspace_bytes(layer, call)
        assert max(taken) == tiles.workspace_bytes(layer, call)
        taken.clear()


@EDGES
def test_bands_bound_working_memory(gpu: Any, edge: int) -> None:
    """V and sums take COLUMN_BYTES, about, whatever the number of images."""
    for s in (square(256, 64, 64, 56, 56), square(128, 512, 512, 14, 14), square(512, 256, 128, 28, 28)):
        grid = conv_plan.tile_grid(s.layer(gpu), False, edge)
        cut = conv_plan.winograd_bands(grid, s.C + s.K)
        assert sum(band.size for band in cut) == grid.lanes
        taken = max(band.size for band in cut) * grid.points * (s.C + s.K) * 4
        assert taken <= conv_plan.COLUMN_BYTES * 1.01 + conv_plan.EVEN * grid.points * (s.C + s.K) * 4


def test_parts_hold_all_lanes() -> None:
    """Bands have any size; a later band has at most as many parts as the first."""
    for size in (1, 7, 8, 1000, 4097):
        for parts in (1, 3, 10):
            first = conv_winograd._split(conv_plan.Band(0, size), parts)
            assert first.padded >= size > first.padded - first.part and first.part % conv_winograd.UNIT == 0
            for left in range(1, size, 1 + size // 20):
                assert conv_winograd._split(conv_plan.Band(size, left), first.parts).parts <= first.parts
