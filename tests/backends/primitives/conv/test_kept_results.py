"""Convolutions that keep results in bfloat16, against the same kernels of float32 with conversions around them."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import hooks
from neonlike.backends.cpu.primitives.conv.choice import choose_data_plan
from neonlike.backends.cpu.primitives.conv.kind import Kind
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
from neonlike.kernels.c.pairs import INSTRUCTION, PLAIN
from neonlike.kernels.c.simd import pair_form
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.conv.conv_compiled import Guarded, guarded, with_vectors
from tests.support.engines import new_backend, use_threads
from tests.support.float64.conv_loops import Sizes
from tests.support.rounded import in_pairs as be
from tests.support.tiles import compiler, with_tiles

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["be", "compiler", "guarded", "with_tiles"]

CASES = {
    "pointwise": Sizes(32, 16, 40, (1, 7, 11)),
    "pointwise, odd": Sizes(7, 17, 30, (1, 5, 9)),
    "pointwise, groups": Sizes(96, 48, 140, (1, 3, 5), groups=2),
    "pointwise, many channels": Sizes(16, 4200, 13, (1, 2, 3)),
    "one image, pointwise": Sizes(1, 34, 20, (1, 7, 13)),
    "direct, a stride": Sizes(32, 24, 33, (1, 14, 13), (1, 5, 5), (0, 1, 2), (1, 2, 2)),
    "direct, packed": Sizes(48, 7, 25, (1, 9, 11), (1, 3, 5), (0, 1, 2)),
    "in place": Sizes(64, 26, 34, (2, 3, 6), (2, 1, 3), (1, 0, 1), dil=(1, 1, 2)),
    "in place, long sums": Sizes(32, 150, 18, (1, 5, 4), (1, 3, 3), (0, 1, 1)),
    "one run of rows": Sizes(7, 33, 40, (1, 6, 9), (1, 3, 3), (0, 1, 1)),
    "groups": Sizes(32, 24, 40, (1, 8, 8), (1, 3, 3), (0, 1, 1), groups=2),
    "maps": Sizes(3, 21, 44, (1, 9, 9), (1, 2, 3), (0, 2, 2), (1, 1, 1), (1, 2, 2)),
    "maps, a stride": Sizes(1, 20, 33, (1, 18, 22), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "few": Sizes(1, 130, 150, (1, 4, 4), (1, 3, 3), (0, 1, 1)),
    "Winograd": Sizes(32, 64, 64, (1, 14, 14), (1, 3, 3), (0, 1, 1)),
    "Winograd, three images": Sizes(3, 64, 64, (1, 15, 13), (1, 3, 3), (0, 1, 1)),
    "Winograd, one image": Sizes(1, 64, 64, (1, 28, 27), (1, 3, 3), (0, 1, 1)),
    "Winograd, dilated": Sizes(32, 96, 96, (1, 15, 16), (1, 3, 3), (0, 2, 2), dil=(1, 2, 2)),
    "thin": Sizes(3, 12, 12, (3, 9, 9), (3, 3, 3), (1, 1, 1), (1, 2, 2), groups=12),
    "depthwise, images": Sizes(33, 24, 24, (1, 9, 9), (1, 3, 3), (0, 1, 1), groups=24),
    "depthwise, channels": Sizes(3, 40, 40, (1, 9, 19), (1, 5, 3), (0, 1, 1), (1, 2, 2), groups=40),
}
"""Convolutions of each kernel, whole tiles and rests of them, rows and runs that are stored in each way."""
ENDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alpha, bias, relu": {"alpha": 0.5, "relu": True, "slope": 0.1, "bias": True},
    "beta": {"beta": -0.5},
    "brelu, beta, x": {"brelu": True, "slope": 0.25, "beta": 0.75, "x": True},
    "subnormal": {"alpha": 3e-39},
}
VECTORS = {1: (0,), 2: (32,)}
"""Bytes of a vector by the form of pairs: as the machine has them, and as others do."""
NARROW = {"pointwise, odd": (32, 16), "maps": (32, 16), "depthwise, images": (32, 16)}
"""Those of some cases in the second form."""
GUARD = 7
"""Numbers beside a tensor; an odd one, so that it begins within a word."""


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have kernels get results as float32 if asked to, as kernels of float16 do."""
    keeps = hooks.ConvKernels._keeps

    def switch(off: bool) -> None:
        monkeypatch.setattr(hooks.ConvKernels, "_keeps", (lambda *_: False) if off else keeps)

    return switch


def numbers(rng: np.random.Generator, shape: Any, special: bool) -> Any:
    """Normal numbers in bfloat16; a few that are ``special`` among them: nan, infinite, subnormal or zero."""
    made = rng.normal(size=shape).astype(np.float32)
    for place, value in enumerate((np.nan, np.inf, 1e-40, -0.0, -3e-39)) if special else ():
        made.flat[13 * place :: 211 + 96 * place] = value
    return made.astype(bfloat16())


def between(be: Backend, values: Any) -> tuple[Any, Any]:
    """A tensor of these values and the larger one, of sevens, in which it begins at an odd place."""
    around = be.array(np.full((values.size + 2 * GUARD, 1), 7), dtype=bfloat16())
    view = around[GUARD:-GUARD].reshape(values.size // values.shape[-1], values.shape[-1])
    view.set(values.reshape(view.shape))
    return view, around


def bits_of(values: Any) -> bytes:
    """Bits of numbers in bfloat16, one nan for any: of two that are added, compilers choose which the sum is."""
    return np.where(np.isnan(values.astype("f4")), np.uint16(0x7FC0), values.view(np.uint16)).tobytes()


def results(be: Backend, s: Sizes, backward: bool, ends: dict[str, Any], moved: bool) -> list[bytes]:
    """Bits of the results of an epilogue, in three calls: the last ones may be repeated by the extension."""
    rng, kind = np.random.default_rng(3), bfloat16()
    flags, layer = dict(ends), s.layer(be, kind)
    shape, read = (s.shape_i, s.shape_o) if backward else (s.shape_o, s.shape_i)
    given, filters, old, other = (numbers(rng, which, True) for which in (read, s.shape_f, shape, shape))
    source, F = (be.array(values, dtype=kind) for values in (given, filters))
    out, around = between(be, old) if moved else (be.array(old.reshape(-1, s.N), dtype=kind), None)
    extra: dict[str, Any] = {"X": be.array(other.reshape(-1, s.N), dtype=kind)} if flags.pop("x", False) else {}
    if flags.pop("bias", False) and not backward:
        extra["bias"] = be.array(numbers(rng, (s.K, 1), False), dtype=kind)
    found = []
    for _ in range(3):
        out.set(old.reshape(out.shape))
        if backward:
            be.bprop_conv(layer, F, source, out, **flags, **extra)
        else:
            be.fprop_conv(layer, source, F, out, **flags, **extra)
        found.append(bits_of(out.get().astype(kind)))
        if around is not None:
            beside = around.get().ravel()
            assert (beside[:GUARD] == 7).all() and (beside[-GUARD:] == 7).all()
    return found


@pytest.mark.compiles(16)
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_conversions(
    be: Backend, guarded: Guarded, converted: Callable[[bool], None], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epilogue is computed in float32 and rounded once, of nan, infinite and subnormal numbers, too."""
    s, form = CASES[case], be.executor.own_engine.pairs
    for nbytes in NARROW.get(case, VECTORS[form]) if form == 2 else VECTORS[form]:
        with_vectors(monkeypatch, nbytes)
        for backward in (False, True):
            for name, ends in ENDS.items():
                found = set()
                for off, threads, moved in ((True, 1, False), (False, 1, False), (False, 3, True)):
                    converted(off)
                    be.executor.clear()
                    use_threads(monkeypatch, threads)
                    found |= {*results(be, s, backward, ends, moved)}
                assert len(found) == 1, f"{name}, {'back' * backward}"


OTHERS = ("pointwise", "direct, a stride", "maps", "few", "Winograd", "thin", "depthwise, images")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86 processors")
@pytest.mark.parametrize("case", OTHERS)
def test_processors_without_avx512(
    guarded: Guarded, converted: Callable[[bool], None], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of each kind compile and round for them, too."""
    with_vectors(monkeypatch, 32)
    made: Any = new_backend(product_precision="bfloat16")
    made.executor.own_engine.pairs = PLAIN
    flags = (*made.compiler.flags, "-mno-avx512f")
    monkeypatch.setattr(made, "compiler", replace(made.compiler, flags=flags))
    for of_kind in hooks.DATA.values():
        monkeypatch.setattr(of_kind.routine, "variants", {})
    found = set()
    for off in (True, False):
        converted(off)
        found |= {*results(made, CASES[case], False, ENDS["brelu, beta, x"], False)}
    variants = [function for of_kind in hooks.DATA.values() for function in of_kind.routine.variants.values()]
    assert len(variants) == 2 and None not in variants
    assert len(found) == 1


TILED = {
    "pointwise": Sizes(32, 40, 70, (1, 5, 7)),
    "direct, odd": Sizes(7, 33, 40, (1, 6, 9), (1, 3, 3), (0, 1, 1)),
    "direct": Sizes(32, 72, 80, (1, 8, 8), (1, 3, 3), (0, 1, 1), groups=2),
}
"""Convolutions that Intel's tiles multiply."""


@pytest.mark.usefixtures("with_tiles")
@pytest.mark.parametrize("case", TILED)
def test_bits_of_tiles_are_those_of_conversions(
    guarded: Guarded, converted: Callable[[bool], None], case: str
) -> None:
    s = TILED[case]
    for backward, operation in enumerate(("fprop", "bprop")):
        for name, ends in ENDS.items():
            found = set()
            for off in (True, False):
                made = new_backend(product_precision="bfloat16")
                made.executor.own_engine.pairs = INSTRUCTION
                assert made.factors_of(s.layer(made, bfloat16()), operation) == "bfloat16 by tdpbf16ps"
                converted(off)
                found |= {*results(made, s, bool(backward), ends, False)}
            assert len(found) == 1, name


def test_each_kernel_is_among_the_cases(be: Backend) -> None:
    plans = [
        (case, choose_data_plan(s.layer(be, bfloat16()), backward, 64, 4, 2, True, 1, True))
        for case, s in CASES.items()
        for backward in (False, True)
    ]
    assert {plan.kind for _, plan in plans} == {*Kind}
    assert {dict(plan.variant).get("few") for _, plan in plans if plan.kind is Kind.WINOGRAD} == {0, 1, 2}
    assert {dict(plan.variant)["across"] for _, plan in plans if plan.kind is Kind.DEPTHWISE} == {"images", "channels"}


def test_other_kernels_have_results_of_float32() -> None:
    """Results lie in memory as bfloat16 in the kernels that are asked for that, and in no other."""
    sizes: dict[str, Any] = {"lanes": 16, "maps": 12, "vectors": 2, "positions": 6, "step": 1, "outputs": 2, "few": 0}
    for kernels in hooks.DATA.values():
        for half in ("", "bf16"):
            asked = sizes | kernels.fields | {"real": "float", "across": "images", "half": half}
            text = str(kernels.routine.source(**asked).source)
            assert ("#define IN_HALVES 1" in text) == ("typedef uint16_t stored;" in text) == bool(half)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Results of any size go past the caches; the list has the bits of epilogues."""
    made, bits = list[int](), hooks._bits
    monkeypatch.setattr(hooks, "STREAMED_RESULT_BYTES", 0)
    monkeypatch.setattr(hooks, "_bits", lambda *given: made.append(bits(*given)) or made[-1])
    yield made


STREAMED = ("pointwise", "pointwise, groups", "direct, a stride", "in place", "in place, long sums", "Winograd")


@pytest.mark.optimized
@pytest.mark.compiles(4)
@pytest.mark.parametrize("case", STREAMED)
def test_streaming_stores(
    be: Backend, guarded: Guarded, converted: Callable[[bool], None], case: str, streams: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Large results go past the caches where they are kept in 16 bits, and not where they are converted next."""
    s, form = CASES[case], be.executor.own_engine.pairs
    for nbytes in VECTORS[form]:
        with_vectors(monkeypatch, nbytes)
        for backward in (False, True):
            for name in ("alpha, bias, relu", "brelu, beta, x", "subnormal"):
                found = []
                for off in (True, False):
                    converted(off)
                    be.executor.clear()
                    streams.clear()
                    found += results(be, s, backward, ENDS[name], False)
                    assert {bits & hooks.STREAMED for bits in streams} == {0 if off or s.N % 32 else hooks.STREAMED}
                assert len({*found}) == 1, name


def passed(be: Any, s: Sizes, **tensors: Any) -> Any:
    """The kernel's call of a forward pass into the tensor O, with an epilogue that reads X."""
    kind = bfloat16()
    I, F = (be.array(numbers(np.random.default_rng(0), shape, False), dtype=kind) for shape in (s.shape_i, s.shape_f))
    epilogue = Epilogue(beta=0.5) if "X" in tensors else Epilogue()
    return be._conv(ConvPass(s.layer(be, kind), False, epilogue), I, F, tensors.pop("O"), **tensors)


def test_nothing_is_converted(be: Backend) -> None:
    """A call in bfloat16 converts the bias alone; arrays of another dtype are converted as before."""
    s, kind, single = CASES["pointwise"], bfloat16(), np.dtype(np.float32)
    O, X = (be.zeros(s.shape_o, dtype=kind) for _ in range(2))
    bias, other = be.zeros((s.K, 1), dtype=kind), be.zeros(s.shape_o, dtype=single)
    halves = be.zeros(s.shape_o, dtype=np.float16)

    def operands(**tensors: Any) -> list[int]:
        return [one.operand for one in passed(be, s, **tensors).converted]

    assert operands(O=O, bias=bias, X=X) == [3]
    assert operands(O=O, X=other) == [2]
    assert operands(O=other, X=O) == [4]
    assert operands(O=halves) == [2]


def test_old_values_of_another_dtype(be: Backend) -> None:
    """Old values in float32 are not rounded before they are added."""
    s, kind = CASES["pointwise"], bfloat16()
    O, raw = (be.zeros(s.shape_o, dtype=dtype) for dtype in (kind, np.float32))
    X = be.array(np.random.default_rng(1).normal(size=s.shape_o).astype("f4"), dtype=np.float32)
    passed(be, s, O=raw)
    passed(be, s, O=O, X=X)
    assert O.get().astype(kind).tobytes() == (raw.get() + np.float32(0.5) * X.get()).astype(kind).tobytes()


@pytest.mark.parametrize("case", ["pointwise", "direct, a stride", "Winograd, three images"])
def test_sums_are_of_the_stored_numbers(be: Backend, case: str) -> None:
    s, kind = CASES[case], bfloat16()
    O, bsum = be.zeros(s.shape_o, dtype=kind), be.zeros((s.K, 1))
    passed(be, s, O=O, bsum=bsum)
    wanted = O.get().astype(np.float64).reshape(s.K, -1).sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(bsum.get(), wanted.astype(np.float32))


def test_results_with_gaps(be: Backend) -> None:
    """A view of some columns of a larger tensor is written, and nothing beside it."""
    s, kind = CASES["pointwise"], bfloat16()
    rows = int(np.prod(s.shape_o[:-1]))
    dense, wide = be.zeros((rows, s.N), dtype=kind), be.zeros((rows, 2 * s.N), dtype=kind)
    old = be.ones((rows, 2 * s.N), dtype=kind)[:, : s.N]
    passed(be, s, O=dense, X=be.ones((rows, s.N), dtype=kind))
    passed(be, s, O=wide[:, s.N :], X=old)
    np.testing.assert_array_equal(wide.get(), np.hstack([np.zeros((rows, s.N)), dense.get()]))


@pytest.mark.parametrize("case", CASES)
def test_working_memory(be: Any, case: str) -> None:
    """No call takes more than is told, which counts no copies of what kernels read and keep in 16 bits."""
    s, kind = CASES[case], bfloat16()
    layer = s.layer(be, kind)
    I, F, O, X = (be.zeros(shape, dtype=kind) for shape in (s.shape_i, s.shape_f, s.shape_o, s.shape_o))
    bias = be.zeros((s.K, 1), dtype=kind)
    for operation, call in {
        "fprop": be._conv(ConvPass(layer, False, Epilogue(beta=0.5)), I, F, O, bias, X),
        "bprop": be._conv(ConvPass(layer, True, Epilogue()), O, F, I),
        "update": be._update_conv(ConvUpdate(layer, 1.0, 0.0), I, O, F),
    }.items():
        told = be.workspace_bytes(layer, operation)
        assert 0 < call.program().memory <= told
        if case == "pointwise" and operation != "update" and pair_form(be.compiler):
            assert told < 4 * (I.size + O.size)
