"""Compiled convolution against its definition in NumPy: vectors of any width, memory, threads."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import platform
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv import plan as conv_plan
from neonlike.backends.cpu.primitives.conv import pointwise as conv_pointwise
from neonlike.backends.cpu.primitives.conv.kind import Kind
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.conv.request import ConvPass, Epilogue
from tests.backends.primitives.conv.conv_compiled import (
    CLOSE,
    VECTORS,
    Guarded,
    Operands,
    compare,
    guarded,
    with_vectors,
)
from tests.support.engines import sampled, use_threads
from tests.support.float64.conv_loops import (
    Sizes,
    backward,
    finish,
    forward,
    quarters,
    random_sizes,
    same,
    tensor,
    update,
)

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["guarded"]

Array = np.ndarray[Any, Any]
# The definition -----------------------------------------------------------------------------------------------------


@pytest.mark.optimized
@pytest.mark.compiles(1, "f8-0")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_kernels_agree_with_the_definition(
    be: Backend, guarded: Guarded, nbytes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_vectors(monkeypatch, nbytes)
    rng = np.random.default_rng(nbytes + len(kind))
    for s in sampled(be, [random_sizes(rng) for _ in range(60)], 40):
        use_threads(monkeypatch, rng.choice([1, 1, 2]))
        try:
            compare(be, s, kind, rng)
            guarded.check()
        except AssertionError as error:
            raise AssertionError(f"{s} {kind}") from error


LARGE = [
    Sizes(64, 70, 40, (1, 7, 9), (1, 3, 3), (0, 1, 1)),
    Sizes(33, 40, 130, (1, 14, 13), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    Sizes(32, 3, 24, (1, 38, 35), (1, 7, 7), (0, 3, 3), (1, 2, 2)),
    Sizes(130, 20, 33, (1, 6, 5), (1, 2, 3), (0, 0, 2), (1, 1, 2)),
    Sizes(300, 130, 70, (1, 2, 3)),
    Sizes(5, 12, 20, (6, 13, 17), (3, 3, 3), (1, 1, 1)),
    Sizes(2, 48, 96, (1, 24, 21), (1, 5, 5), (0, 2, 2), groups=2),
    Sizes(16, 40, 40, (1, 20, 70), (1, 3, 3), (0, 1, 1), groups=40),
    Sizes(1, 600, 60, (1, 9, 9), (1, 3, 3)),
    Sizes(1, 4, 6, (1, 60, 333), (1, 3, 4), (0, 1, 2)),
    Sizes(192, 180, 20, (1, 3, 5), (1, 3, 3), (0, 1, 1)),
]
"""Sizes that are cut into several blocks of rows, columns, images, channels and maps."""


@pytest.mark.compiles(5, ")-0")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("s", LARGE, ids=str)
def test_kernels_agree_with_the_definition_on_large_layers(
    be: Backend, guarded: Guarded, s: Sizes, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_vectors(monkeypatch, nbytes)
    compare(be, s, "f4", np.random.default_rng(nbytes))


@pytest.mark.compiles(2, "f4-0", "f4-16", "f8-32")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_small_sizes_in_all_vectors(
    be: Backend, guarded: Guarded, nbytes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every number of maps around the tiles', against loops that are exact."""
    with_vectors(monkeypatch, nbytes)
    rng = np.random.default_rng(1)
    maps = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 20, 25, 33)
    for turn, K in sampled(be, enumerate(maps), 5, nbytes):
        s = Sizes((1, 2, 16, 33, 64)[turn % 5], K, K, (1, 3, 5), (1, 2, 3), (0, 1, 1), (1, 1, 1 + turn % 2))
        x = Operands(be, s, kind, rng)
        wanted = finish(forward(s, x.image, x.filters), bias=x.shift, relu=True)
        gradients = backward(s, x.error, x.filters), update(s, x.image, x.error)
        x.check(wanted, *gradients, bsum_i=True, bias=x.bias, relu=True)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86 processors")
def test_vectors_wider_than_registers(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers put such a vector into several; tests on arm64, whose registers have 16 bytes, use them, too."""
    with_vectors(monkeypatch, 32)
    cpu: Any = be
    monkeypatch.setattr(cpu, "compiler", replace(cpu.compiler, flags=(*cpu.compiler.flags, "-mno-avx")))
    for of_kind in (*kernels.DATA.values(), *kernels.UPDATE.values()):
        monkeypatch.setattr(of_kind.routine, "variants", {})
    for kind in ("f4", "f8"):
        compare(be, Sizes(32, 7, 9, (1, 6, 5), (1, 3, 3), (0, 1, 1)), kind, np.random.default_rng(2))


POINTWISE = [
    Sizes(32, 30, 20, (1, 7, 11)),
    Sizes(16, 17, 33, (3, 1, 5)),
    Sizes(96, 48, 140, (1, 5, 9), groups=2),
    Sizes(32, 40, 24, (1, 4, 16)),
    Sizes(5, 11, 60, (1, 3, 7)),
]
"""1 x 1 filters, with tails of lanes and without; channels that share a place of the cache are copied."""


@pytest.mark.compiles(6, "f4-0", "f8-32")
@pytest.mark.parametrize("block", [2048, 7], ids=("one block", "blocks of channels"))
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", POINTWISE, ids=str)
def test_pointwise(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all ends of the kernel and with none, which stores results from registers; past the caches too."""
    with_vectors(monkeypatch, nbytes)
    monkeypatch.setattr(conv_pointwise, "CHANNEL_BLOCK", block)
    conv_pointwise.pointwise_plan.cache_clear()
    rng, layer = np.random.default_rng(nbytes), s.layer(be, kind)
    for streamed in (0, 1 << 30):
        monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", streamed)
        compare(be, s, kind, rng)
        I, F, shift = (rng.normal(size=shape) for shape in (s.shape_i, s.shape_f, (s.K, 1)))
        results = []
        for hooks in (type(be), ConvFamily):
            O = be.empty(s.shape_o, dtype=kind)
            bias = tensor(be, shift, kind)
            request = ConvPass(layer, False, Epilogue(alpha=0.5))
            hooks._conv(be, request, tensor(be, I, kind), tensor(be, F, kind), O, bias)
            results.append(O.get())
        np.testing.assert_allclose(*results, rtol=0, atol=CLOSE[kind] * (1 + np.abs(results[1]).max()))
    vector = kernels.vector_bytes(be.compiler)
    assert choice.choose_data_plan(layer, False, vector, np.dtype(kind).itemsize, 2, True).kind is Kind.POINTWISE
    conv_pointwise.pointwise_plan.cache_clear()


IN_PLACE = [
    Sizes(32, 9, 24, (1, 7, 11), (1, 3, 4), (0, 1, 2), (1, 2, 3)),
    Sizes(256, 3, 17, (1, 5, 4), (1, 5, 3), (0, 2, 1)),
    Sizes(64, 26, 34, (4, 3, 6), (2, 1, 3), (1, 0, 1), dil=(2, 1, 2), groups=2),
]
"""Windows that read their input in place."""


@pytest.mark.compiles(8, "f4-0", "f8-0")
@pytest.mark.parametrize("streamed", [False, True], ids=("", "past the caches"))
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", IN_PLACE, ids=str)
def test_windows_that_read_in_place(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one block of channels, and in blocks of a few that read few columns."""
    with_vectors(monkeypatch, nbytes)
    if streamed:
        monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
        assert kernels._bits(Epilogue(), be.empty(s.shape_o, dtype=kind).asnumpyarray(), 1, False) & kernels.STREAMED
    rng, itemsize = np.random.default_rng(nbytes), np.dtype(kind).itemsize
    for few in (False, True):
        if few:
            monkeypatch.setattr(conv_plan, "PACKED_BYTES", 16 << 10)
            monkeypatch.setattr(conv_plan, "IN_PLACE_BYTES", 0)
            monkeypatch.setattr(conv_plan, "IN_PLACE_LANES", 2 * s.N)
        conv_plan.data_plan.cache_clear()
        plan = conv_plan.data_plan(s.layer(be, kind), False, kernels.vector_bytes(be.compiler), itemsize, 2)
        fields = dict(zip(conv_plan.META, plan.fields))
        assert fields["DIRECT"] and (fields["CHANNEL_BLOCK"] < fields["CHANNELS"]) == few
        for simple in ("bias", "relu", ""):
            compare(be, s, kind, rng, simple)
    conv_plan.data_plan.cache_clear()


@pytest.mark.parametrize("s", [LARGE[0], Sizes(16, 5, 20, (1, 9, 20), (1, 3, 5))], ids=("Winograd", "packed"))
def test_results_past_the_caches(be: Backend, guarded: Guarded, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
    for turn, simple in enumerate(("bias", "relu", "", "")):
        compare(be, s, "f4", np.random.default_rng(turn), simple)


def test_lists_of_taps_fit_their_memory(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """27 taps in 18 rows and their places are 513 numbers of 4 bytes, which is no whole number of doubles."""
    use_threads(monkeypatch, "1")
    compare(be, Sizes(2, 3, 4, (1, 20, 6), (1, 3, 3)), "f8", np.random.default_rng(0))
    guarded.check()


def test_without_a_compiler_the_definition_runs(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in ("_conv", "_update_conv"):
        monkeypatch.setattr(ConvFamily, name, lambda *arguments, name=name: called.append(name))
    layer, one = be.conv_layer(np.float32, 1, 1, 1), be.ones((1, 1))
    be.fprop_conv(layer, one, one, be.empty((1, 1)))
    be.update_conv(layer, one, one, be.empty((1, 1)))
    assert called == []  # it has one
    monkeypatch.setattr(be, "compiler", None)
    layer = be.conv_layer(np.float32, 1, 1, 1)  # calls of the other one are kept with their kernels
    be.fprop_conv(layer, one, one, be.empty((1, 1)))
    be.bprop_conv(layer, one, one, be.empty((1, 1)))
    be.update_conv(layer, one, one, be.empty((1, 1)))
    assert called == ["_conv", "_conv", "_update_conv"]


def test_a_backend_keeps_the_compiler_that_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though others are made meanwhile, and the kernel is compiled already; and it asks for none once it is."""
    called: list[Backend] = []
    definition = ConvFamily._conv
    monkeypatch.setattr(ConvFamily, "_conv", lambda be, *rest: (called.append(be), definition(be, *rest)))
    with ExitStack() as stack:
        backends = []
        for jit in ("1", "0", "1"):
            monkeypatch.setenv("NEONLIKE_CPU_JIT", jit)
            backends.append(stack.enter_context(NervanaCPU(rng_seed=0)))

        def convolve(be: Backend) -> None:
            out = be.empty((1, 1))
            be.fprop_conv(be.conv_layer(np.float32, 1, 1, 1), be.array([[2.0]]), be.array([[3.0]]), out)
            assert out.get() == 6

        for be in backends:
            convolve(be)
        monkeypatch.setenv("NEONLIKE_CPU_JIT", "0")
        monkeypatch.setattr("neonlike.kernels.c.toolchain._search", lambda: pytest.fail("looked for a compiler"))
        monkeypatch.setattr("neonlike.kernels.c.toolchain._found", {})
        for be in backends:
            convolve(be)
        assert called == [backends[1]] * 2


# Threads ------------------------------------------------------------------------------------------------------------


@pytest.mark.compiles(9)
@pytest.mark.parametrize(
    "s",
    [
        Sizes(16, 24, 20, (1, 9, 10), (1, 3, 3), (0, 1, 1)),
        Sizes(2, 16, 33, (1, 13, 21), (1, 3, 4), (0, 1, 2), (1, 2, 3)),
        Sizes(64, 128, 160),  # few positions: threads share the maps
        Sizes(33, 64, 66, (1, 3, 3), (1, 3, 3), (0, 1, 1), groups=2),
        Sizes(130, 8, 12, (1, 7, 6), (1, 2, 2)),
        Sizes(192, 180, 170, (1, 3, 2), (1, 3, 3), (0, 1, 1)),
        Sizes(3, 6, 5, (5, 12, 11), (2, 3, 3), (0, 1, 1), (2, 1, 1)),
        Sizes(1, 64, 40, (1, 14, 13), (1, 3, 3), (0, 1, 1)),  # rows that are one run of lanes
        Sizes(5, 66, 66, (1, 21, 18), (1, 3, 3), (0, 1, 1), (1, 2, 2), groups=66),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, guarded: Guarded, s: Sizes, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, sums and gradients too."""
    rng, layer = np.random.default_rng(0), s.layer(be, dtype)
    assert layer.flops // 2 > kernels.PARALLEL_WORK
    I, F, E = (tensor(be, rng.normal(size=d), np.dtype(dtype)) for d in (s.shape_i, s.shape_f, s.shape_o))
    results = []
    for threads in ("1", "2", "3", "5"):
        use_threads(monkeypatch, threads)
        assert kernels._threads(layer) == int(threads)
        shapes = (s.shape_o, (s.K, 1), s.shape_i, (s.C, 1), s.shape_f, (s.K, 1))
        made = [be.empty(shape, dtype="f8" if shape[-1] == 1 and len(shape) == 2 else dtype) for shape in shapes]
        O, bsum, dI, bsum_i, dF, bias = made
        be.fprop_conv(layer, I, F, O, bsum=bsum, relu=True)
        be.bprop_conv(layer, F, E, dI, bsum=bsum_i, alpha=0.3)
        be.update_conv(layer, I, E, dF, alpha=0.3, grad_bias=bias)
        results.append([values.get().tobytes() for values in made])
    for name, *values in zip("O bsum grad_I bsum_i grad_F grad_bias".split(), *results):
        assert len(set(values)) == 1, name


FEW_LANES = [
    Sizes(4, 24, 19, (1, 28, 27), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    Sizes(7, 40, 33, (1, 13, 11), (1, 3, 3), (0, 1, 1)),
    Sizes(5, 3, 20, (1, 31, 33), (1, 11, 11), (0, 2, 2), (1, 4, 4)),
    Sizes(3, 30, 20, (2, 9, 10), (1, 1, 1)),
    Sizes(1, 33, 18, (3, 9, 17), (2, 3, 3), (0, 0, 2), dil=(1, 1, 2)),
]


@pytest.mark.parametrize("s", FEW_LANES, ids=str)
def test_gradients_of_filters_of_few_lanes_are_work_for_several_threads(
    be: Backend, guarded: Guarded, s: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of one area, each with sums of its own, are added up exactly, whatever takes them."""
    layer, rng, results = s.layer(be), np.random.default_rng(s.C), set()
    fields = dict(zip(conv_plan.META, choice.choose_update_plan(layer, 64, 4).fields))
    assert fields["UNIT_BLOCKS"] * fields["UNIT_PARTS"] >= 4
    image, error, old = quarters(rng, s.shape_i), quarters(rng, s.shape_o), quarters(rng, s.shape_f)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    for threads in ("1", "2", "5"):
        use_threads(monkeypatch, threads)
        dF = tensor(be, old)
        be.update_conv(layer, tensor(be, image), tensor(be, error), dF, alpha=0.5, beta=0.25)
        same(dF, 0.5 * update(s, image, error) + 0.25 * old)
        results.add(dF.get().tobytes())
    assert len(results) == 1


def test_small_calls_do_not_start_threads(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch, "4")
    assert kernels._threads(be.conv_layer(np.float32, 2, 3, 4, H=5, W=5, R=3, S=3)) == 1
    assert kernels._threads(be.conv_layer(np.float32, 64, 64, 64, H=5, W=5, R=3, S=3)) == 4
