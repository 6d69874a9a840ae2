"""The implicit convolution of the GPU: each form against loops, when it is chosen, and what a program queues."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import elements
from neonlike.backends.gpu.primitives.conv import plan as conv_plan
from neonlike.backends.gpu.primitives.conv import program as conv_program
from neonlike.errors import ArgumentError
from tests.backends.gpu.primitives.conv.test_conv import EVERY, forget, note_memory, queued, shifted
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, row_sums, same, tensor, update
from tests.support.gpu.cuda_backends import gpu

pytestmark = pytest.mark.checked
__all__ = ["gpu"]

KINDS = {"f32": ("f4", "float32"), "tf32": ("f4", "tf32"), "f16": ("f2", "float32"), "bf16": ("bfloat16", "float32")}
"""What is multiplied -> the dtype of the tensors, and `product_precision`."""
LONG = Sizes(8, 24, 100, (1, 3, 4), (1, 3, 3), (0, 1, 1))
"""More products than the stages hold, copies of 16 bytes, tiles of 128 maps that are not full."""
LINE = Sizes(16, 3, 8, (1, 1, 12), (1, 1, 3), (0, 0, 2), (1, 1, 2), (1, 1, 2))
"""1-D, dilated, strided; whole copies of 16 bytes, tiles of columns that are not full."""
VOLUME = Sizes(8, 2, 8, (3, 3, 4), (2, 2, 3), (1, 0, 0), (1, 2, 2))
GROUPS = Sizes(8, 16, 24, (1, 4, 3), (1, 2, 2), groups=2)
ODD = Sizes(3, 5, 7, (1, 4, 4), (1, 3, 3), (0, 1, 1))
"""Copies of one element."""
SHAPES = {"long": LONG, "line": LINE, "volume": VOLUME, "groups": GROUPS, "odd": ODD}
ENDS: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "relu": True, "brelu": True, "slope": 0.25}


@pytest.fixture
def implicit(gpu: Any) -> Iterator[Any]:
    """The backend, which convolves by the implicit kernel wherever that has a form."""
    gpu.conv_method = "implicit"
    yield gpu
    gpu.conv_method, gpu.product_precision = "auto", "float32"
    forget(gpu)


def operands(be: Any, s: Sizes, dtype: Any, make: Any = tensor) -> tuple[Any, Any]:
    """Arguments of both passes with their expected results."""
    rng = np.random.default_rng(s.N + s.C)
    image, filters, error = (quarters(rng, shape) for shape in (s.shape_i, s.shape_f, s.shape_o))
    I, F, E = (make(be, values, dtype) for values in (image, filters, error))
    return ("fprop_conv", (I, F), forward(s, image, filters)), ("bprop_conv", (F, E), backward(s, error, filters))


def check(be: Any, s: Sizes, dtype: Any, make: Any = tensor, sums: bool = True) -> None:
    """All passes against loops: alone, and with every end, X being another tensor or the old values."""
    rng, layer, kind = np.random.default_rng(1), s.layer(be, dtype), be.empty((1, 1), dtype=dtype).dtype
    for turn, (name, given, result) in enumerate(operands(be, s, dtype, make)):
        old, x, shift = (quarters(rng, shape) for shape in (result.shape, result.shape, (len(result), 1)))
        out, run = make(be, np.full_like(old, np.nan), dtype), getattr(be, name)
        run(layer, *given, out)
        same(out, result)
        out, total = make(be, old, dtype), be.empty((len(result), 1), dtype=np.float64) if sums else None
        X, seen = (make(be, x, dtype), x) if turn else (None, old)
        run(layer, *given, out, X=X, bias=be.array(shift), bsum=total, **ENDS)
        wanted = finish(result, bias=shift, x=seen, **ENDS)
        same(out, wanted)
        if sums:
            same(total, row_sums(wanted.astype(kind)))
    image, error, old = (quarters(rng, shape) for shape in (s.shape_i, s.shape_o, s.shape_f))
    for alpha, beta in ((0.5, 2.0), (1.0, 0.0)):
        gradient = tensor(be, old if beta else np.full_like(old, np.nan))
        be.update_conv(layer, make(be, image, dtype), make(be, error, dtype), gradient, alpha=alpha, beta=beta)
        same(gradient, alpha * update(s, image, error) + beta * old)


@pytest.mark.compiles(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_every_form_agrees_with_loops(implicit: Any, kind: str, name: str) -> None:
    dtype, implicit.product_precision = KINDS[kind]
    check(implicit, SHAPES[name], implicit.empty((1, 1), dtype=dtype).dtype, sums=kind != "bf16")


SPLIT = [("long", "f32"), ("long", "tf32"), ("long", "f16"), ("groups", "f32"), ("odd", "bf16")]


@pytest.mark.parametrize(("name", "kind"), SPLIT)
def test_split_sums_agree_with_loops(implicit: Any, kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some tiles of products, the last of them shorter, finished with every end."""
    dtype, implicit.product_precision = KINDS[kind]
    monkeypatch.setattr(conv_plan, "LEAST_DEPTH", 10)
    forget(implicit)
    s, kind_of = SHAPES[name], implicit.empty((1, 1), dtype=dtype).dtype
    layer = s.layer(implicit, kind_of)
    I, F, O = (implicit.zeros(dims, dtype=dtype) for dims in (layer.dimI, layer.dimF, layer.dimO))
    assert queued(implicit, monkeypatch, lambda: implicit.fprop_conv(layer, I, F, O)) == ["implicit", "finish"]
    check(implicit, s, kind_of, sums=kind != "bf16")


def test_split_sums_of_a_strided_data_gradient(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some phases are split, others are too short."""
    monkeypatch.setattr(conv_plan, "LEAST_DEPTH", 24)
    forget(implicit)
    check(implicit, Sizes(4, 6, 20, (1, 5, 6), (1, 3, 3), (0, 1, 1), (1, 2, 2)), np.float32)


def test_split_sums_are_added_in_their_order(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of blocks, to the last bit; and sums in one part have other bits."""
    s, rng = LONG, np.random.default_rng(0)
    layer = s.layer(implicit)
    I, F = (implicit.array(rng.normal(size=shape)) for shape in (s.shape_i, s.shape_f))

    def run() -> bytes:
        O, sums = implicit.empty(s.shape_o), implicit.empty((s.K, 1))
        implicit.fprop_conv(layer, I, F, O, bsum=sums, relu=True)
        return bytes(O.get().tobytes() + sums.get().tobytes())

    whole = run()
    monkeypatch.setattr(conv_plan, "LEAST_DEPTH", 40)
    forget(implicit)
    results = []
    for order in ("forward", "reverse", "random"):
        monkeypatch.setenv("CUEMU_ORDER", order)
        results.append(run())
    assert results[0] == results[1] == results[2] != whole


def test_sums_are_split_where_tiles_are_few_and_sums_long() -> None:
    few, many = conv_plan.TILES // 2 - 1, conv_plan.TILES // 2
    assert conv_plan.data_parts(many, 1 << 20, 1) == 1, "a tile for most multiprocessors"
    assert conv_plan.data_parts(few, 2 * conv_plan.LEAST_DEPTH - 1, 1) == 1, "sums too short"
    assert conv_plan.data_parts(few, 2 * conv_plan.LEAST_DEPTH, 1) == 2
    assert conv_plan.data_parts(16, 1 << 20, 1) == conv_plan.TILES // 16, "as many as fill a GPU"
    assert conv_plan.data_parts(16, 1 << 20, conv_plan.PART_BYTES // 3) == 3, "bounded memory"


BEHIND = Sizes(4, 3, 5, (1, 4, 4), (1, 2, 2), (1, 0, 0), (3, 1, 1))
"""All that is read lies in front of the image."""


@pytest.mark.parametrize("name", ["sparse", "bordered", "covering", "depthwise", "behind"])
def test_strides_borders_and_single_channels(implicit: Any, name: str) -> None:
    """Elements that no tap reads, windows in the padding, phases without taps, groups of one channel."""
    check(implicit, BEHIND if name == "behind" else EVERY[name], np.float32)


def test_places_of_64_bits_and_tensors_that_start_anywhere(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("f4", "f2"):
        check(implicit, LINE, dtype, make=shifted)
    monkeypatch.setattr(elements, "NARROW", 1 << 8)  # more than the filters have, which are counted in 32 bits
    forget(implicit)
    check(implicit, VOLUME, "f4")


def test_factors_are_rounded_as_the_precision_says(implicit: Any) -> None:
    """To 10 bits of mantissa, to nearest, with "tf32"; not at all with "float32"."""
    s, rng = LONG, np.random.default_rng(3)
    layer, image, filters = s.layer(implicit), *(rng.normal(size=shape) for shape in (s.shape_i, s.shape_f))
    image, filters = image.astype(np.float32), filters.astype(np.float32)
    I, F, O = tensor(implicit, image), tensor(implicit, filters), implicit.empty(s.shape_o)

    def rounded(values: Any) -> Any:
        return ((values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)

    exact, coarse = forward(s, image, filters), forward(s, rounded(image), rounded(filters))
    assert np.abs(exact - coarse).max() > 1e-3
    for precision, wanted in (("float32", exact), ("tf32", coarse), ("bfloat16", coarse)):
        implicit.product_precision = precision
        implicit.fprop_conv(layer, I, F, O)
        np.testing.assert_allclose(O.get(), wanted, rtol=0, atol=1e-4, err_msg=precision)  # sums of 216, up to 100


def test_results_do_not_depend_on_the_order_of_blocks(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, though no sum is exact."""
    s, rng = GROUPS, np.random.default_rng(0)
    layer, results = s.layer(implicit), []
    I, F = (implicit.array(rng.normal(size=shape)) for shape in (s.shape_i, s.shape_f))
    for order in ("forward", "reverse", "random"):
        monkeypatch.setenv("CUEMU_ORDER", order)
        O, sums = implicit.empty(s.shape_o), implicit.empty((s.K, 1))
        implicit.fprop_conv(layer, I, F, O, bsum=sums, relu=True)
        results.append(O.get().tobytes() + sums.get().tobytes())
    assert results[0] == results[1] == results[2]


def test_infinities_and_nans_stay_in_their_windows(implicit: Any) -> None:
    """Rows and columns that fill up tiles are zeros times zeros."""
    s, rng = Sizes(8, 10, 24, (1, 4, 3), (1, 2, 2), groups=2), np.random.default_rng(2)
    image, filters = quarters(rng, s.shape_i), quarters(rng, s.shape_f)
    image[5, 0, 1, 1, 2], image[9, 0, 3, 2, 5] = np.inf, np.nan  # of the second group, behind the first one's products
    O = implicit.empty(s.shape_o)
    implicit.fprop_conv(s.layer(implicit), tensor(implicit, image), tensor(implicit, filters), O)
    with np.errstate(invalid="ignore"):
        same(O, forward(s, image, filters))


# When it is chosen --------------------------------------------------------------------------------------------------


def test_gradients_of_filters_are_summed_in_parts(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, the last one smaller, are added in a fixed order; nan errors affect their own map only."""
    monkeypatch.setattr(conv_plan, "LEAST_DEPTH", 40)
    forget(implicit)
    for s in (Sizes(8, 3, 6, (1, 5, 5), (1, 2, 2)), Sizes(3, 3, 6, (1, 9, 7), (1, 2, 2))):
        layer, rng = s.layer(implicit), np.random.default_rng(5)
        image, error = rng.normal(size=s.shape_i), quarters(rng, s.shape_o)
        error[2, 0, 1, 1, 1] = np.nan
        I, E, results = implicit.array(image), tensor(implicit, error), []
        for order in ("forward", "random"):
            monkeypatch.setenv("CUEMU_ORDER", order)
            gradient = implicit.empty(s.shape_f)
            found = queued(implicit, monkeypatch, partial(implicit.update_conv, layer, I, E, gradient))
            assert found == ["implicit_update", "fold"]
            results.append(gradient.get())
        assert results[0].tobytes() == results[1].tobytes()
        np.testing.assert_allclose(results[0], update(s, image.astype(np.float32), error), rtol=0, atol=1e-4)
        assert implicit.workspace_bytes(layer, "update") >= 3 * s.layer(implicit).sizeF * 4


def steps(be: Any, monkeypatch: pytest.MonkeyPatch, s: Sizes, call: str, dtype: Any = np.float32, **ends: Any) -> str:
    """Launches that a call queues."""
    layer = s.layer(be, dtype)
    I, F, O = (be.ones(shape, dtype=dtype) for shape in (s.shape_i, s.shape_f, s.shape_o))
    given = {"fprop": (I, F, O), "bprop": (F, O, I), "update": (I, O, F)}[call]
    return " ".join(queued(be, monkeypatch, lambda: getattr(be, f"{call}_conv")(layer, *given, **ends)))


def test_a_program_is_one_kernel_a_phase(implicit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(implicit, monkeypatch, LONG, "fprop", relu=True) == "implicit"
    assert steps(implicit, monkeypatch, LONG, "fprop", bsum=implicit.empty((100, 1))) == "implicit sums"
    assert steps(implicit, monkeypatch, LONG, "bprop") == "turned implicit"
    sparse = steps(implicit, monkeypatch, EVERY["sparse"], "bprop").split()
    assert (sparse.count("turned"), sparse.count("implicit")) == (2, 12)  # phases that meet an output, and all
    assert "implicit" not in steps(implicit, monkeypatch, LONG, "fprop", np.float64)
    with monkeypatch.context() as patched:
        patched.setattr(conv_program, "has_copies", lambda device: False)
        forget(implicit)
        assert steps(implicit, monkeypatch, LONG, "fprop") == "columns product"
    forget(implicit)


def test_copies_to_shared_memory_are_there_from_sm_80_on() -> None:
    for arch, wanted in (("sm_75", False), ("sm_80", True), ("sm_90a", True), ("sm_120", True)):
        device = SimpleNamespace(capabilities=SimpleNamespace(arch=arch))
        assert conv_program.has_copies(device) is wanted, arch


def test_the_kernel_is_chosen_where_columns_take_longer_than_it_loses(gpu: Any) -> None:
    def layer(maps: int, channels: int = 64, size: int = 28, images: int = 64) -> Any:
        return Sizes(images, channels, maps, (1, size, size), (1, 3, 3), (0, 1, 1)).layer(gpu)

    def saves(g: Any, kind: str, back: bool = False) -> bool:
        return conv_plan.saves_columns(
            g, conv_plan.phases(g, back), back, kind, 4 if kind in ("f32", "tf32") else 2
        )

    assert [maps for maps in (16, 64, 128, 512, 1024) if saves(layer(maps), "f32")] == [64]
    assert [maps for maps in (16, 64, 128, 512, 1024) if saves(layer(maps), "f16")] == [16, 64, 128, 512]
    assert [maps for maps in (64, 512, 1024) if saves(layer(maps), "tf32")] == [64, 512]
    assert saves(layer(64, channels=512, size=14), "f16")  # 98 tiles, whose sums of 4608 are split
    assert not saves(layer(64, channels=16, size=14), "f16")  # as many, of sums that are too short for that
    assert saves(layer(512, channels=64), "f32", back=True)  # whose results are the channels
    assert not saves(layer(64, size=7, images=8), "f16")  # too few tiles to fill a GPU
    assert not saves(layer(64, channels=1), "f32")  # 9 products in steps of 16
    cases = (64, 64, "f16", True), (64, 64, "f32", True), (128, 64, "f32", False), (64, 3, "f32", False)
    for maps, channels, kind, wanted in cases:
        found = conv_plan.update_saves_columns(layer(maps, channels), kind, 2 if kind == "f16" else 4)
        assert found is wanted, (maps, channels, kind)


def test_a_layer_that_saves_memory_takes_the_kernel_by_itself(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_plan, "TILES", 2)
    forget(gpu)
    few = Sizes(8, 14, 64, (1, 3, 4), (1, 3, 3), (0, 1, 1))
    assert gpu.conv_method == "auto"
    assert steps(gpu, monkeypatch, few, "fprop") == "implicit"
    assert steps(gpu, monkeypatch, few, "fprop", np.float16) == "implicit"
    assert steps(gpu, monkeypatch, few, "update") == "implicit_update fold"
    for s in (Sizes(6, 16, 64, (1, 3, 4), (1, 3, 3)), Sizes(8, 16, 62, (1, 3, 4), (1, 3, 3))):
        assert steps(gpu, monkeypatch, s, "fprop") == "columns product"  # no copies of 16 bytes
    assert steps(gpu, monkeypatch, EVERY["pointwise"], "fprop") == "product"
    gpu.conv_method = "columns"
    assert steps(gpu, monkeypatch, few, "fprop") == "columns product"
    gpu.conv_method = "auto"
    forget(gpu)


def test_the_method_can_be_set(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was made before is planned anew; a name that is none is refused, and nothing changes."""
    s = GROUPS
    layer, (_, given, result) = s.layer(gpu), operands(gpu, s, np.float32)[0]
    O = gpu.empty(s.shape_o)
    found = []
    for method in ("columns", "implicit", "columns"):
        gpu.conv_method = method
        for _ in range(2):
            found.append(queued(gpu, monkeypatch, lambda: gpu.fprop_conv(layer, *given, O, relu=True))[0])
            same(O, finish(result, relu=True))
    assert found == ["columns"] * 2 + ["implicit"] * 2 + ["columns"] * 2
    with pytest.raises(ArgumentError, match="conv_method: got 'fft'; one of auto, columns, implicit, winograd"):
        gpu.conv_method = "fft"
    assert gpu.conv_method == "columns"
    gpu.conv_method = "auto"
    monkeypatch.setenv("NEONLIKE_GPU_CONV", "implicit")
    assert type(gpu)(rng_seed=0).conv_method == "implicit"


@pytest.mark.parametrize("name", ["groups", "line"])
def test_working_memory_is_what_is_stated(implicit: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = SHAPES[name]
    layer, taken = s.layer(implicit), note_memory(implicit, monkeypatch)
    I, F, O = (implicit.ones(shape) for shape in (s.shape_i, s.shape_f, s.shape_o))

    implicit.fprop_conv(layer, I, F, O, bsum=implicit.empty((s.K, 1)))
    implicit.bprop_conv(layer, F, O, I, bsum=implicit.empty((s.C, 1)))
    assert taken == [implicit.workspace_bytes(layer, name) for name in ("fprop", "bprop")]
