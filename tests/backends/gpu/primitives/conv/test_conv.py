"""Convolution on the GPU: how it is cut, the forms of its kernels, memory, and calls that are repeated."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import calls, elements
from neonlike.backends.gpu.primitives.conv import kernels, winograd_kernels
from neonlike.backends.gpu.primitives.conv import plan as conv_plan
from neonlike.backends.gpu.primitives.conv import update as conv_update
from neonlike.backends.primitives.conv.request import ConvUpdate
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import KernelLaunch, Runner
from tests.support.engines import have_programs
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, row_sums, same, tensor, update
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.device_only import traffic

pytestmark = pytest.mark.checked
__all__ = ["gpu"]

ROUTINES = [
    routine
    for module in (kernels, winograd_kernels)
    for routine in vars(module).values()
    if isinstance(routine, CudaRoutine)
]

PADDED = Sizes(4, 3, 5, (1, 5, 6), (1, 3, 2), (0, 1, 1))
STRIDED = Sizes(3, 4, 6, (1, 7, 6), (1, 3, 2), (0, 1, 1), (1, 2, 3), (1, 1, 2), groups=2)
SPARSE = Sizes(2, 3, 5, (1, 6, 7), (1, 2, 1), step=(1, 4, 3))
"""Of its input, some elements are never read."""
DEEP = Sizes(4, 2, 3, (3, 4, 5), (2, 3, 2), (1, 0, 1), (2, 1, 2))
POINTWISE = Sizes(4, 18, 20, (1, 3, 5), groups=2)
COVERING = Sizes(4, 3, 5, (2, 3, 2), (2, 3, 2))
BORDERED = Sizes(4, 3, 5, (1, 3, 2), (1, 3, 2), (0, 1, 0), (1, 3, 1))
"""A window as large as the image, which lies in the padding in part."""
WIDE_GROUPS = Sizes(4, 20, 18, (1, 4, 5), (1, 3, 3), (0, 1, 1), groups=2)
DEPTHWISE = Sizes(8, 6, 12, (1, 5, 6), (1, 3, 3), (0, 1, 1), (1, 2, 1), groups=6)
THIN = Sizes(3, 6, 9, (2, 4, 5), (2, 2, 3), (1, 0, 1), (1, 2, 1), (1, 1, 2), groups=3)
EVERY = {
    "padded": PADDED, "strided": STRIDED, "sparse": SPARSE, "deep": DEEP, "pointwise": POINTWISE,
    "covering": COVERING, "bordered": BORDERED, "wide groups": WIDE_GROUPS, "depthwise": DEPTHWISE, "thin": THIN,
}  # fmt: skip


@pytest.fixture
def small(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bands of 16 columns, and parts of 16 products: small sizes are cut as large ones are."""
    for name, value in (("COLUMN_BYTES", 1), ("LEAST_COLUMNS", 16), ("EVEN", 16), ("LEAST_DEPTH", 16)):
        monkeypatch.setattr(conv_plan, name, value)
    forget(gpu)
    yield
    forget(gpu)


def forget(be: Any) -> None:
    """Plan every call anew."""
    be.executor.replay.clear()
    be.__dict__.pop("_conv_programs", None)


def note_memory(be: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of working memory of each program that is queued from now on."""
    taken: list[int] = []

    class Noted(Runner):
        def __call__(self, *given: Any) -> None:
            taken.append(self.program.memory)
            super().__call__(*given)

    monkeypatch.setattr(calls, "Runner", Noted)
    forget(be)
    return taken


def shifted(be: Any, values: Any, dtype: Any) -> Any:
    """A contiguous tensor that does not start at a multiple of 16 bytes."""
    matrix = values.reshape(-1, values.shape[-1])
    return be.empty((matrix.size + 1, 1), dtype=dtype)[1:].reshape(matrix.shape).set(matrix)


def check(be: Any, s: Sizes, dtype: Any = np.float32, plain: bool = False, make: Any = tensor) -> None:
    """All passes against loops: with every end, X apart and X the old values, or with alpha and beta alone."""
    rng, layer = np.random.default_rng(s.N + s.C), s.layer(be, dtype)
    image, filters, error = (quarters(rng, shape) for shape in (s.shape_i, s.shape_f, s.shape_o))
    I, F, E = (make(be, values, dtype) for values in (image, filters, error))
    passes = (be.fprop_conv, (I, F), forward(s, image, filters)), (be.bprop_conv, (F, E), backward(s, error, filters))
    for run, given, result in passes:
        x, shift = quarters(rng, result.shape), quarters(rng, (len(result), 1))
        for where in ("apart", "old", "target"):
            old = quarters(rng, result.shape)
            out, sums = make(be, old, dtype), be.empty((len(result), 1), dtype=np.float64)
            X = {"apart": make(be, x, dtype), "old": None, "target": out}[where]
            seen = x if where == "apart" else old
            if plain:
                run(layer, *given, out, X=X, alpha=0.5, beta=2.0)
                same(out, finish(result, 0.5, beta=2.0, x=seen))
                run(layer, *given, out, alpha=0.5)
                same(out, 0.5 * result)
                continue
            ends: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "relu": True, "brelu": True, "slope": 0.25}
            run(layer, *given, out, X=X, bias=be.array(shift), bsum=sums, **ends)
            wanted = finish(result, bias=shift, x=seen, **ends)
            same(out, wanted)
            same(sums, row_sums(wanted.astype(dtype)))
    for alpha, beta in ((0.5, 2.0), (1.0, 0.0)):
        old = quarters(rng, s.shape_f)
        gradient = make(be, old if beta else np.full_like(old, np.nan), dtype)
        be.update_conv(layer, I, E, gradient, alpha=alpha, beta=beta)
        same(gradient, alpha * update(s, image, error) + beta * old)


# How it is cut ------------------------------------------------------------------------------------------------------


def test_phases_are_the_pairs_of_the_forward_pass() -> None:
    """Each position and tap once, with the output that the tap pairs the position with."""
    for size, taps, pad, stride, dilation in itertools.product((1, 4, 7), (1, 2, 3), (0, 2), (1, 2, 3, 4), (1, 2, 3)):
        count = (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
        if count < 1:
            continue
        wanted = {
            (o * stride + tap * dilation - pad, tap, o) for o in range(count) for tap in range(taps)
            if 0 <= o * stride + tap * dilation - pad < size
        }  # fmt: skip
        axes = [*conv_plan._backward_axis(size, taps, pad, stride, dilation)]
        found = [
            (a.first + o * a.every, a.tap + i * a.skip, o * a.stride + a.offset + i * a.slope)
            for a in axes for o in range(a.outputs) for i in range(a.taps)
        ]  # fmt: skip
        assert sum(a.outputs for a in axes) == size
        assert sorted(pair for pair in found if 0 <= pair[2] < count) == sorted(wanted)


def test_bands_hold_all_columns_once() -> None:
    for columns, nbytes in ((1, 1 << 40), (5000, 1 << 20), (100_000, 9 * 64 * 4), (1_000_001, 4608)):
        cut = conv_plan.bands(columns, nbytes)
        assert [band.first for band in cut] == [*itertools.accumulate([0, *(band.size for band in cut[:-1])])]
        assert sum(band.size for band in cut) == columns
        assert all(band.first % conv_plan.EVEN == 0 for band in cut)
        fits = max(band.size for band in cut) * nbytes <= conv_plan.COLUMN_BYTES + conv_plan.EVEN * nbytes
        assert fits or max(band.size for band in cut) <= conv_plan.LEAST_COLUMNS


@pytest.mark.parametrize("name", EVERY)
def test_every_way_agrees_with_loops(gpu: Any, name: str) -> None:
    check(gpu, EVERY[name])
    check(gpu, EVERY[name], plain=True)


@pytest.mark.parametrize("name", ["padded", "strided", "pointwise", "wide groups", "depthwise"])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_bands_and_parts_agree_with_loops(gpu: Any, small: None, name: str, dtype: str) -> None:
    check(gpu, EVERY[name], dtype)
    check(gpu, EVERY[name], dtype, plain=True)


@pytest.mark.parametrize("dtype", ["f2", "f8", "bfloat16"])
def test_other_dtypes_agree_with_loops(gpu: Any, dtype: str) -> None:
    kind = gpu.empty((1, 1), dtype=dtype).dtype
    for s in (PADDED, STRIDED, THIN, POINTWISE):
        if dtype == "bfloat16":  # whose sums of quarters are not all exact once they are rounded
            s = Sizes(s.N, 2 * s.groups, s.K, s.image, (1, 1, 1), groups=s.groups)
        check(gpu, s, kind, plain=dtype == "bfloat16")


@pytest.mark.parametrize("name", ["strided", "pointwise", "depthwise"])
def test_places_of_64_bits_and_tensors_that_start_anywhere(
    gpu: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(gpu, EVERY[name], make=shifted)
    monkeypatch.setattr(elements, "NARROW", 1)
    forget(gpu)
    check(gpu, EVERY[name])
    forget(gpu)


@pytest.mark.parametrize("name", ["strided", "pointwise"])
def test_without_cublas_kernels_of_our_own_multiply(gpu: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.products.blas.__dict__, "handle", None)
    forget(gpu)
    check(gpu, EVERY[name])
    forget(gpu)


@pytest.mark.parametrize("name", ["strided", "wide groups", "thin"])
def test_results_do_not_depend_on_the_order_of_blocks(
    gpu: Any, small: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, though no sum is exact; an emulated GPU runs blocks in the order that the variable says."""
    s, rng = EVERY[name], np.random.default_rng(0)
    layer = s.layer(gpu)
    I, F, E = (gpu.array(rng.normal(size=shape)) for shape in (s.shape_i, s.shape_f, s.shape_o))
    results = []
    for order in ("forward", "reverse", "random"):
        monkeypatch.setenv("CUEMU_ORDER", order)
        found = [gpu.empty(shape) for shape in (s.shape_o, (s.K, 1), s.shape_i, (s.C, 1), s.shape_f)]
        gpu.fprop_conv(layer, I, F, found[0], bsum=found[1], relu=True)
        gpu.bprop_conv(layer, F, E, found[2], bsum=found[3])
        gpu.update_conv(layer, I, E, found[4])
        results.append([values.get().tobytes() for values in found])
    assert results[0] == results[1] == results[2]


# What is queued -----------------------------------------------------------------------------------------------------


def queued(be: Any, monkeypatch: pytest.MonkeyPatch, run: Any) -> list[str]:
    """Templates of the kernels, or "product", that ``run`` queues."""
    found: list[str] = []
    kernel, product = KernelLaunch.start, calls.ProductStep.start

    def launched(step: Any, values: Any) -> None:
        templates = {one.template for one in ROUTINES if step.function in one.variants.values()}  # none: a copy's
        found.extend(template.rpartition("/")[2].partition(".")[0] for template in templates)
        kernel(step, values)

    def multiplied(step: Any, values: Any) -> None:
        found.append("product")
        product(step, values)

    with monkeypatch.context() as patched:
        patched.setattr(KernelLaunch, "start", launched)
        patched.setattr(calls.ProductStep, "start", multiplied)
        run()
    return found


def test_steps_are_as_few_as_they_can_be(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(s: Sizes, call: str, **ends: Any) -> str:
        layer = s.layer(gpu)
        I, F, O = gpu.ones(s.shape_i), gpu.ones(s.shape_f), gpu.ones(s.shape_o)
        given = {"fprop": (I, F, O), "bprop": (F, O, I), "update": (I, O, F)}[call]
        return " ".join(queued(gpu, monkeypatch, lambda: getattr(gpu, f"{call}_conv")(layer, *given, **ends)))

    for s, plain in ((POINTWISE, "product"), (COVERING, "product"), (PADDED, "columns product")):
        for call in ("fprop", "bprop", "update"):
            assert steps(s, call, alpha=2.0, beta=0.5) == plain
        assert steps(s, "fprop", relu=True) == f"{plain} finish"
        assert steps(s, "bprop", bsum=gpu.empty((s.C, 1))) == f"{plain} finish sums"
    assert steps(SPARSE, "bprop").count("product") == 2  # of 12 phases, so many meet an output
    assert steps(DEPTHWISE, "fprop", relu=True) == "direct"
    assert steps(DEPTHWISE, "update") == "direct_update fold"


def test_few_filters_are_summed_in_parts(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few filters are summed as a large layer's: one stack of products, and the rest."""
    s = Sizes(64, 3, 2, (1, 9, 8))
    layer, rng = s.layer(gpu), np.random.default_rng(0)
    image, error = quarters(rng, s.shape_i), quarters(rng, s.shape_o)
    gradient = gpu.empty(s.shape_f)
    found = queued(gpu, monkeypatch, lambda: gpu.update_conv(layer, tensor(gpu, image), tensor(gpu, error), gradient))
    assert found == ["product", "fold"]
    same(gradient, update(s, image, error))
    assert conv_plan.parts(1, s.N * 72, 24) == 4
    made = conv_update._Update(None, None, ConvUpdate(layer), conv_update.UpdateGiven(image.dtype, image.dtype))
    pieces = made._pieces
    assert [(p.parts, p.columns.size) for p in pieces(conv_plan.Band(0, 4601), 4, 0.0)] == [(4, 1144), (1, 25)]


def test_nothing_crosses_to_the_host(gpu: Any) -> None:
    """Views, other dtypes and the gradient of the bias stay on the device."""
    s = STRIDED
    layer = s.layer(gpu)

    def view(shape: Any) -> Any:
        return gpu.ones((int(np.prod(shape[:-1])), 2 * shape[-1]))[:, ::2]

    I, F, O, X = view(s.shape_i), view(s.shape_f), view(s.shape_o), view(s.shape_o)
    bias, sums = gpu.ones((s.K, 1), dtype=np.float64), gpu.empty((s.K, 2), dtype=np.float16)[:, :1]
    with traffic(gpu) as seen:
        for beta in (0.0, 1.0):
            gpu.fprop_conv(layer, I, F, O, X=X, bias=bias, bsum=sums, beta=beta)
            gpu.bprop_conv(layer, F, O, I, beta=beta)
            gpu.update_conv(layer, I, O, F, beta=beta, grad_bias=bias)
    assert not len(seen), str(seen)


# Memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_working_memory_is_what_is_stated(gpu: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = EVERY[name]
    layer, taken = s.layer(gpu), note_memory(gpu, monkeypatch)
    I, F, O = gpu.ones(s.shape_i), gpu.ones(s.shape_f), gpu.ones(s.shape_o)
    extra = {"beta": 1.0, "relu": True}
    for call, given, dims in (("fprop", (I, F, O), s.shape_o), ("bprop", (F, O, I), s.shape_i)):
        sums = gpu.empty((dims[0], 1))
        getattr(gpu, f"{call}_conv")(layer, *given, bsum=sums, **extra)
        getattr(gpu, f"{call}_conv")(layer, *given, X=gpu.ones(dims), bsum=sums, bias=gpu.ones((dims[0], 1)), **extra)
        assert max(taken) == gpu.workspace_bytes(layer, call)
        taken.clear()
    gpu.update_conv(layer, I, O, F)
    assert taken == [gpu.workspace_bytes(layer, "update")]


def test_a_kernel_that_does_not_compile_leaves_everything(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = PADDED.layer(gpu)
    I, F, O, sums = gpu.ones(PADDED.shape_i), gpu.ones(PADDED.shape_f), gpu.ones(PADDED.shape_o), gpu.ones((5, 1))
    forget(gpu)
    variant = CudaRoutine.variant

    def broken(routine: Any, device: Any, **context: Any) -> Any:
        if "sums" in routine.template:
            raise ValueError("no compiler")
        return variant(routine, device, **context)

    with monkeypatch.context() as patched:
        patched.setattr(CudaRoutine, "variant", broken)
        with pytest.raises(ValueError, match="no compiler"):
            gpu.fprop_conv(layer, I, F, O, bsum=sums)
    assert (O.get() == 1).all() and (sums.get() == 1).all()
    gpu.fprop_conv(layer, I, F, O, bsum=sums)
    same(sums, row_sums(O.get().reshape(PADDED.shape_o)))


# Calls that were made before ----------------------------------------------------------------------------------------


def test_a_call_like_one_before_is_repeated(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On other tensors, such as start anywhere too, without checks and choices; not once the precision is another."""
    have_programs(gpu)
    s, rng = PADDED, np.random.default_rng(1)
    layer, filters = s.layer(gpu), quarters(rng, s.shape_f)
    F, shapes = tensor(gpu, filters), [(-(-int(np.prod(d)) // d[-1]), d[-1]) for d in (s.shape_o, s.shape_i, s.shape_f)]

    def run(make: Any) -> None:
        image, error = quarters(rng, s.shape_i), quarters(rng, s.shape_o)
        I, E = make(gpu, image, np.float32), make(gpu, error, np.float32)
        O, delta, gradient = (gpu.empty(shape) for shape in shapes)
        gpu.fprop_conv(layer, I, F, O, relu=True)
        gpu.bprop_conv(layer, F, E, delta)
        gpu.update_conv(layer, I, E, gradient)
        same(O, finish(forward(s, image, filters), relu=True))
        same(delta, backward(s, error, filters))
        same(gradient, update(s, image, error))

    run(tensor)
    with monkeypatch.context() as patched:
        patched.setattr(type(gpu), "_run_primitive", None)
        for make in (tensor, shifted, tensor):
            run(make)
        gpu.product_precision = "tf32"
        with pytest.raises(TypeError):
            run(tensor)
    run(tensor)
    gpu.product_precision = "float32"
