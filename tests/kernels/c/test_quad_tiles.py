"""Products of int8 by Intel's tiles (AMX), on an emulation of them in C where the processor has none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.int8.definition import step_of
from neonlike.initializers import Gaussian
from neonlike.kernels.c import quads, simd
from neonlike.kernels.c.quads import INSTRUCTION, TILES, matrix_sizes
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.run.workspace import held_workspace
from neonlike.layers import GRU, LSTM, Affine, Conv, Recurrent, RecurrentLast
from neonlike.logger import logger
from neonlike.models import Model
from neonlike.transforms import Logistic, Rectlin, Tanh
from tests.backends.primitives.int8.test_products import CASES
from tests.support.engines import needs_compiler, use_threads
from tests.support.optimizing import optimize_alike

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

SIZES = [
    (1, 1, 1), (3, 5, 7), (16, 64, 16), (32, 128, 32), (33, 129, 33), (30, 2, 100), (5, 2001, 49), (64, 99, 1),
    (17, 63, 17), (48, 70, 8), (100, 801, 45), (25, 22, 701),
]  # fmt: skip
"""Tiles that are full, and rows, columns and inner dimensions that fill none."""

GATES = {"activation": Tanh(), "gate_activation": Logistic()}


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The compiler; where its kernels have instructions for tiles, the system has to permit them."""
    needs_compiler()
    optimize_alike(monkeypatch, quads.PACKED, quads.MATRICES, quads.PANELS)
    found = find_compiler()
    assert found is not None
    if simd.has_byte_tiles(found) and not simd.ask_for_tiles(found):
        pytest.skip("the system does not permit tiles")
    return found


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every machine takes itself for one with tiles; the forms of the kernels that were asked for."""
    asked: list[Any] = []
    monkeypatch.setattr(quads, "has_byte_tiles", lambda compiler: True)
    monkeypatch.setattr(quads, "ask_for_tiles", lambda compiler: True)
    for routine in (quads.PACKED, quads.MATRICES):

        def variant(compiler: Any, of: Any = routine.variant, **told: Any) -> Any:
            asked.append(told["quads"])
            return of(compiler, **told)

        monkeypatch.setattr(routine, "variant", variant)
    quads.tiles_are_right.cache_clear()
    yield asked
    quads.tiles_are_right.cache_clear()


@pytest.fixture
def eager(tiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """As ``tiled``, where products of any size use tiles."""
    for name in ("FEWEST_BY_TILES", "NARROWEST_BY_TILES", "SHORTEST_BY_TILES"):
        monkeypatch.setattr(quads, name, 1)
    return tiled


def int8(rng: Any, *shape: int) -> Any:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def ran(call: Any) -> None:
    """Run a call whose working memory holds ones before, and behind it afterwards too."""
    assert call is not None
    memory = held_workspace(call.work + (1 << 16))[0]  # the call finds it large enough
    memory[:] = 0xFF
    call.run()
    assert (memory[call.work :] == 0xFF).all()


def multiplied(a: Any, b: Any, dtype: Any, compiler: Any, form: int = TILES) -> Any:
    c = np.full((len(a), b.shape[1] + 1), 77, dtype)
    ran(quads.matrix_call(a, b, c[:, :-1], compiler, form))
    assert (c[:, -1] == 77).all()
    return c[:, :-1]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_products_are_exact(rng: Any, compiler: Compiler, dtype: Any) -> None:
    for m, k, n in SIZES:
        a, b = int8(rng, m, k), int8(rng, k, n)
        assert np.array_equal(multiplied(a, b, dtype, compiler), a.astype(int) @ b.astype(int)), (m, k, n)


@pytest.mark.optimized
@pytest.mark.parametrize("one, other", [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_no_sum_of_extreme_numbers_saturates_or_wraps(compiler: Compiler, one: int, other: int) -> None:
    """The most products that fit in int32, in parts of 65,536."""
    k = quads.FIT_IN_INT32
    a, b = np.full((17, k), one, np.int8), np.full((k, 3), other, np.int8)
    assert (multiplied(a, b, np.int32, compiler) == one * other * k).all()
    k = 4 * 16384
    a, b = np.full((2, k), one, np.int8), np.full((k, 17), other, np.int8)
    assert (multiplied(a, b, np.int32, compiler) == one * other * k).all()


def test_longer_sums_are_rounded_once_or_taken_modulo(compiler: Compiler) -> None:
    k = quads.FIT_IN_INT32 + 2
    a, b = np.full((2, k), -128, np.int8), np.full((k, 18), -128, np.int8)
    assert (multiplied(a, b, np.float32, compiler) == np.float32(k * 128 * 128)).all()
    assert (multiplied(a, b, np.int32, compiler) == k * 128 * 128 - 2**32).all()


def is_the_same(found: Any, wanted: Any, columns: int) -> bool:
    """Whether results are those of the instruction, bit for bit if its kernel has panels of as many columns as tiles.

    A single column, which no machine multiplies by tiles, may have a product and a sum rounded at once.
    """
    if columns > 1 and quads.vector_bytes(find_compiler()) == 4 * quads.SIDE:
        return bool(found.tobytes() == wanted.tobytes())
    return bool((np.abs(found - wanted) <= 1e-5 * (np.abs(wanted) + np.abs(wanted).max())).all())


def of_floats(a: Any, x: Any, options: tuple[Any, ...], compiler: Any, form: int) -> Any:
    """The product of quantized rows and floats, with scales, a bias and a slope."""
    scales, bias, slope = options
    out = np.full((len(a), x.shape[1]), 77, np.float32)
    panels = quads.panels_of(a, 1, compiler, form)
    assert panels is not None
    given, weights = (tuple(map(address, arrays)) for arrays in ((x, bias, out), (*panels, scales)))
    sizes, steps = matrix_sizes(len(a), *x.shape), (x.shape[1], x.shape[1])
    ran(quads.quantized_call(sizes, given, weights, steps, 2.0, slope, compiler, form))
    return out


@pytest.mark.optimized
@pytest.mark.parametrize("size", [*SIZES, (40, 70000, 20)])
def test_quantized_products_have_the_bits_of_the_instruction(
    rng: Any, compiler: Compiler, size: tuple[int, int, int]
) -> None:
    """Ties, numbers beyond the largest, infinities and nan; with bias and rectifier and without."""
    m, k, n = size
    x = (rng.integers(-300, 301, (k, n)) * np.float32(0.25)).astype(np.float32)
    x.flat[:6] = (np.inf, -np.inf, np.nan, -0.0, 1e-40, 3e38)[: x.size]
    a = rng.integers(-127, 128, (m, k), dtype=np.int8)
    scales, bias = (rng.standard_normal((m, 1)).astype(np.float32) for _ in range(2))
    for options in ((scales, bias, 0.125), (scales, None, None), (scales, bias, None)):
        found, wanted = (of_floats(a, x, options, compiler, form) for form in (TILES, INSTRUCTION))
        assert is_the_same(found, wanted, n)


def test_results_do_not_depend_on_threads(eager: list[Any], rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quads, "PARALLEL_PRODUCTS", 0)
    for m, k, n in ((130, 400, 170), (20, 3000, 40), (300, 65, 33), (40, 200, 1)):
        a, b = int8(rng, m, k), int8(rng, k, n)
        for threads in (1, 2, 5):
            use_threads(monkeypatch, threads)
            c = np.empty((m, n), np.int32)
            call = quads.matrix_call(a, b, c, find_compiler())  # type: ignore[arg-type]
            ran(call)
            assert np.array_equal(c, a.astype(int) @ b.astype(int))
    assert set(eager) == {TILES}


def floats(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.optimized
@pytest.mark.parametrize("case", CASES)
def test_convolutions_have_the_bits_of_the_instruction(
    be: Backend, eager: list[Any], rng: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = CASES[case]
    layer, image = s.layer(be, np.float32), be.array(floats(rng, *s.shape_i).reshape(-1, s.N))
    filters, bias = be.array(floats(rng, *s.shape_f).reshape(-1, s.K)), be.array(floats(rng, s.K, 1))
    found = []
    for amx, threads in (("1", 1), ("1", 3), ("0", 1)):
        monkeypatch.setenv("NEONLIKE_AMX", amx)
        use_threads(monkeypatch, threads)
        weights, out = be.int8_weights(filters, step_of(2.0), layer), be.empty(layer.dimO2)
        be.int8_product(weights, image, out, bias=bias, relu=True)
        found.append(out.get())
        assert eager[-1] == (TILES if amx == "1" else INSTRUCTION)
    assert found[0].tobytes() == found[1].tobytes()
    assert is_the_same(found[0], found[2], s.N * int(np.prod(s.out)))


def test_few_columns_are_multiplied_by_the_instruction(be: Backend, tiled: list[Any], rng: Any) -> None:
    """With the same weights as many columns, which use tiles; repeated calls stay with what they were."""
    W, x = floats(rng, 70, 300), floats(rng, 300, 90)
    weights = be.int8_weights(be.array(W), step_of(3.0))
    assert len(weights.panels) == 4
    few, many = be.empty((70, 5)), be.empty((70, 90))
    for _ in range(4):
        many.fill(0), few.fill(0)
        be.int8_product(weights, be.array(x), many)
        be.int8_product(weights, be.array(x[:, :5]), few)
        np.testing.assert_array_equal(many.get()[:, :5], few.get())
    assert {TILES, INSTRUCTION} <= set(tiled)


def test_only_products_that_fill_tiles_use_them(be: Backend, tiled: list[Any], compiler: Compiler) -> None:
    sizes = {
        (64, 64, 64): TILES, (16, 1024, 16): TILES, (256, 32, 64): TILES, (15, 2048, 64): INSTRUCTION,
        (64, 2048, 15): INSTRUCTION, (1024, 31, 64): INSTRUCTION, (16, 512, 16): INSTRUCTION,
    }  # fmt: skip
    for size, form in sizes.items():
        assert quads.form_of(matrix_sizes(*size), compiler) == form, size
    assert len(be.int8_weights(be.ones((15, 64)), 1.0).panels) == 2
    assert len(be.int8_weights(be.ones((16, 31)), 1.0).panels) == 2
    assert len(be.int8_weights(be.ones((16, 32)), 1.0).panels) == 4


def test_matrices_of_int8_of_a_backend(be: Backend, tiled: list[Any], rng: Any) -> None:
    a, b = int8(rng, 70, 130), int8(rng, 130, 50)
    A, B = be.array(a, dtype=np.int8), be.array(b, dtype=np.int8)
    for dtype in (np.int32, np.float32):
        C = be.empty((70, 50), dtype=dtype)
        for _ in range(4):
            C.fill(0)
            be.compound_dot(A, B, C)
            np.testing.assert_array_equal(C.get(), a.astype(int) @ b.astype(int))
    assert set(tiled) == {TILES}


NETWORKS: dict[str, tuple[Any, Any]] = {
    "images": (lambda init: [Conv((3, 3, 20), init, strides=2, padding=1, activation=Rectlin(), bias=init)], (3, 9, 9)),
    "Recurrent": (lambda init: [Recurrent(20, init, activation=Tanh(), reset_cells=True), RecurrentLast()], (18, 4)),
    "LSTM": (lambda init: [LSTM(20, init, reset_cells=True, **GATES), RecurrentLast()], (18, 4)),
    "GRU": (lambda init: [GRU(20, init, reset_cells=True, **GATES), RecurrentLast()], (18, 4)),
}


@pytest.mark.samples(32)
@pytest.mark.parametrize("kind", NETWORKS)
def test_outputs_of_a_network(
    be: Backend, eager: list[Any], rng: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quantized network gives the same with tiles and without."""
    init, (first, shape) = Gaussian(scale=0.3), NETWORKS[kind]
    model = Model([*first(init), Affine(17, init, bias=init, activation=Rectlin())])
    model.initialize(shape)
    size = int(np.prod(shape))
    x = be.array(floats(rng, *((shape[0], shape[1] * 32) if len(shape) == 2 else (size, 32))))
    calibration, found = floats(rng, 32, size), []
    for amx in "10":
        monkeypatch.setenv("NEONLIKE_AMX", amx)
        model.quantize(calibration)
        eager.clear()
        for _ in range(3):
            out = model.fprop(x, inference=True).get().copy()
        found.append(out)
        assert set(eager) == {TILES if amx == "1" else INSTRUCTION}
    assert found[0].any() and is_the_same(*found, 32)


class TestBeforeTheFirstProduct:
    """Tiles are tried on small products before they are used."""

    def test_wrong_results(
        self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        right = quads.matrix_call

        def wrong(a: Any, b: Any, c: Any, *rest: Any) -> Any:
            call = right(a, b, c, *rest)
            c[-1, -1] += 1
            return call._replace(function=lambda *_: None) if call else None

        monkeypatch.setattr(quads, "matrix_call", wrong)
        monkeypatch.setattr(logger, "propagate", True)
        with caplog.at_level(logging.WARNING, logger.name):
            assert not quads.by_tiles(compiler)
            assert not quads.by_tiles(compiler)
        assert [record.getMessage() for record in caplog.records if "tdpbsud" in record.getMessage()] == [
            "products by tiles (AMX, tdpbsud) do not work on this machine: int8 is multiplied by vpdpbusd. "
            "NEONLIKE_AMX=0 leaves out this test"
        ]

    def test_one_wrong_number(
        self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = quads._is_exact
        last = quads.OF_A_TEST[-1]
        monkeypatch.setattr(quads, "_is_exact", lambda size, compiler: size != last and right(size, compiler))
        assert not quads.by_tiles(compiler)

    def test_no_kernel(self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quads, "matrix_call", lambda *_: None)
        assert not quads.by_tiles(compiler)

    def test_no_permission(
        self, be: Backend, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(quads, "ask_for_tiles", lambda compiler: False)
        assert not quads.by_tiles(compiler)
        assert tiled == []
        assert quads.form_of(matrix_sizes(64, 64, 64), compiler) == INSTRUCTION
        assert len(be.int8_weights(be.ones((64, 64)), 1.0).panels) == 2

    def test_the_variable(self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NEONLIKE_AMX", "0")
        monkeypatch.setattr(quads, "ask_for_tiles", None)
        assert not quads.by_tiles(compiler)
        assert tiled == []

    def test_ends_of_all_kinds_are_tried(self, tiled: list[Any], compiler: Compiler) -> None:
        assert quads.by_tiles(compiler)
        assert tiled == [TILES] * len(quads.OF_A_TEST)
        for m, k, n in quads.OF_A_TEST:
            assert m > 32 < n and 0 < m % 32 < 16 and 0 < n % 32 < 16 and quads.quads_of(k) % 16
        assert any(k % 4 for _, k, _ in quads.OF_A_TEST)


def test_a_machine_without_tiles_asks_for_none(compiler: Compiler) -> None:
    flags = {flag for line in open("/proc/cpuinfo") if line.startswith("flags") for flag in line.split()}
    assert simd.has_byte_tiles(compiler) == (compiler.native and {"amx_bf16", "amx_int8"} <= flags)
    if not simd.has_byte_tiles(compiler):
        assert not quads.by_tiles(compiler)
        assert quads.form_of(matrix_sizes(64, 64, 64), compiler) == INSTRUCTION
