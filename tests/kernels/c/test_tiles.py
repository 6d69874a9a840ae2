"""Matrix products by Intel's tiles (AMX), on an emulation of them in C where the processor has none."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends.geometry.products import ProductSizes
from neonlike.kernels.c import gemm, pairs, simd
from neonlike.kernels.c.gemm import GEMM, find_launch, pairs_of
from neonlike.kernels.c.pairs import INSTRUCTION, PLAIN, TILES
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.workspace import held_workspace
from neonlike.logger import logger
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import new_backend, use_threads
from tests.support.rounded import bound, matrix, rounded
from tests.support.tiles import compiler, with_tiles

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.cpu_only("the compiled kernels of the CPU"),
    pytest.mark.usefixtures("compiler"),
]
__all__ = ["compiler", "with_tiles"]

SIZES = [
    (1, 1, 1), (3, 5, 7), (16, 32, 16), (32, 64, 32), (33, 65, 33), (30, 20, 100), (17, 2001, 49), (50, 41, 17),
    (37, 1061, 10), (300, 19, 70), (64, 1026, 300), (21, 4501, 14), (64, 99, 1), (330, 1030, 40),
]  # fmt: skip
"""Tiles that are full, and rows, columns and inner dimensions that fill none; by rows, columns, parts; blocks of k."""
STORED = pytest.mark.parametrize("stored", ["float32", "bfloat16"])


@pytest.fixture
def tiled(with_tiles: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every machine takes itself for one with tiles; the contexts of the kernels of products that were asked for."""
    asked: list[Any] = []
    variant = GEMM.variant
    monkeypatch.setattr(GEMM, "variant", lambda compiler, **told: asked.append(told) or variant(compiler, **told))
    return asked


def multiplied(a: Any, b: Any, c: Any, alpha: float = 1.0, beta: float = 0.0, form: int = TILES) -> Any:
    """``c`` after a product by our kernel, whose working memory holds nan before, and behind it afterwards too."""
    launch = find_launch(a, b, c, None, form)
    assert launch is not None
    memory = held_workspace(launch.bytes + (1 << 16))[0]  # the launch finds it large enough
    memory[:] = 0xFF
    launch(address(a), address(b), address(c), alpha, beta)
    assert (memory[launch.bytes :] == 0xFF).all()
    return c


def layouts() -> Iterator[tuple[Any, ...]]:
    """Layouts of three matrices: turned or not, elements between rows; with pairs of alpha and beta."""
    for turned in itertools.product([False, True], repeat=3):
        yield turned, 0, ((1.0, 0.0), (0.5, 0.0))
        yield turned, 3, ((1.0, 1.0), (0.5, -0.25), (1.0, -0.25))


@STORED
@pytest.mark.parametrize("size", SIZES)
def test_product_of_any_layout(
    rng: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], stored: str
) -> None:
    m, k, n = size
    use_threads(monkeypatch, 1)
    for turned, wide, scales in layouts():
        shapes, dtypes = ((m, k), (k, n), (m, n)), (stored, stored, "float32")
        a, b, c = (matrix(rng, *s, flag, wide, dtype) for s, flag, dtype in zip(shapes, turned, dtypes))
        one, other, before = rounded(a), rounded(b), c.copy()
        product, slack = one @ other, bound(one, other) + 1e-6 * np.abs(c)
        for alpha, beta in scales:
            c[:] = before
            wanted = alpha * product + beta * before.astype(float)
            assert (np.abs(multiplied(a, b, c, alpha, beta) - wanted) <= slack).all(), (turned, wide, alpha, beta)


@STORED
@pytest.mark.optimized
@pytest.mark.parametrize("size", [(77, 601, 45), (45, 601, 77), (77, 1201, 45), (32, 2048, 320)])
def test_products_of_whole_numbers_are_exact(rng: Any, size: tuple[int, int, int], stored: str) -> None:
    m, k, n = size
    dtype = bfloat16() if stored == "bfloat16" else np.float32
    for turned, _, scales in layouts():
        whole = [rng.integers(-8, 9, shape) for shape in ((m, k), (k, n), (m, n))]
        made = [np.asfortranarray(x) if flag else x for x, flag in zip(whole, turned)]
        a, b, c = (x.astype(kind, order="K") for x, kind in zip(made, (dtype, dtype, np.float32)))
        product = whole[0] @ whole[1]
        for alpha, beta in scales:
            c[:] = whole[2]
            np.testing.assert_array_equal(multiplied(a, b, c, alpha, beta), alpha * product + beta * whole[2])


def test_special_numbers_are_those_of_the_twin(rng: Any) -> None:
    """nan and inf reach their own rows and columns alone, subnormal numbers are 0, sums of zeros have its sign."""
    for turned, _, ((_, _), (alpha, beta), *_) in layouts():
        a, b, c = (matrix(rng, *s, flag) for s, flag in zip(((45, 83), (83, 71), (45, 71)), turned))
        a[3, 82], a[20, 5], a[40, :], b[82, 33], b[7, 70], b[:, 2] = np.nan, np.inf, -0.0, -np.inf, 1e-40, 0.0
        a[11], a[11, 0], b[0, 50] = 1e-39, 1e-30, 1e-30  # the only product of normal numbers is below 2^-126
        found, twin = (multiplied(a, b, c.copy(order="K"), alpha, beta, form) for form in (TILES, PLAIN))
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(twin))
        infinite = ~np.isfinite(twin)
        np.testing.assert_array_equal(found[infinite], twin[infinite])
        finite = ~infinite
        np.testing.assert_allclose(found[finite], twin[finite], rtol=0, atol=1e-4)
        zero = np.zeros((45, 71), bool)
        zero[40], zero[:, 2] = True, True
        assert (np.signbit(found) == np.signbit(twin))[zero & finite].all()


@STORED
def test_results_do_not_depend_on_threads(
    tiled: list[Any], rng: Any, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    shapes = ((130, 2050, 70), (20, 5000, 20), (700, 300, 40), (40, 300, 700))
    for (m, k, n), *turned in itertools.product(shapes, [False, True], [False, True]):
        a, b = matrix(rng, m, k, turned[0], stored=stored), matrix(rng, k, n, turned[1], stored=stored)
        one, other, found = rounded(a), rounded(b), []
        for threads in (1, 2, 5):
            use_threads(monkeypatch, threads)
            c = np.empty((m, n), np.float32)
            assert gemm.multiply(a, b, c, pairs=INSTRUCTION)
            found.append(c)
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
        assert (np.abs(found[0] - one @ other) <= bound(one, other)).all()
    assert {context.get("pairs") for context in tiled} == {TILES}


@STORED
def test_products_of_a_backend(tiled: list[Any], rng: Any, stored: str) -> None:
    dtype = bfloat16() if stored == "bfloat16" else np.float32
    be = new_backend(default_dtype=dtype, product_precision="float32" if stored == "bfloat16" else "bfloat16")
    a, b, many = (rng.standard_normal(shape) for shape in ((70, 300), (300, 90), (3, 300, 90)))
    A, B, M = (be.array(x, dtype=np.float32).astype(dtype) for x in (a, b, many))
    a, b, many = (rounded(x.get()) for x in (A, B, M))
    C, D = be.empty((70, 90)), be.empty((3, 70, 90))
    coarse = 2.0**-8 if stored == "bfloat16" else 0  # results are rounded

    def close(found: Any, one: Any, other: Any) -> bool:
        wanted = one @ other
        return bool((np.abs(found.astype(float) - wanted) <= coarse * np.abs(wanted) + bound(one, other)).all())

    for _ in range(4):  # planned, planned again, replayed
        C[:] = be.dot(A, B)
        assert close(C.get(), a, b)
        C.fill(0)
        be.compound_dot(A, B, C)
        assert close(C.get(), a, b)
        be.batched_dot(A, M, D)
        assert all(close(out, a, one) for out, one in zip(D.get(), many))
    assert {context.get("pairs") for context in tiled} == {TILES}
    assert be.factors_of(ProductSizes(70, 300, 90, np.dtype(dtype))) == "bfloat16 by tdpbf16ps"
    assert "bfloat16 by tdpbf16ps" in str(be.explain(be.dot(A, B)))


def test_only_products_that_fill_tiles_use_them(tiled: list[Any], compiler: Compiler) -> None:
    sizes = {(64, 64, 64): TILES, (16, 1024, 16): TILES, (15, 2048, 64): 1, (64, 2048, 15): 1, (256, 15, 256): 1}
    for size, form in sizes.items():
        m, k, n = size
        a, b, c = (np.empty(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
        assert pairs_of(a, b, c, INSTRUCTION) == form, size
        assert pairs_of(a, b, c, PLAIN) == PLAIN
        assert pairs_of(a, b, c, 0) == 0
    small = np.empty((32, 32), np.float32)
    assert pairs_of(small, small, small, INSTRUCTION) == 0


class TestBeforeTheFirstProduct:
    """Tiles are tried on a small product before they are used."""

    def test_wrong_results(
        self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        def wrong(a: Any, b: Any, c: Any, *rest: Any) -> Any:
            def launch(*addresses: int) -> None:
                c[:] = a.astype(int) @ b.astype(int)
                c[-1, -1] += 1

            return launch

        monkeypatch.setattr(gemm, "find_launch", wrong)
        monkeypatch.setattr(logger, "propagate", True)
        with caplog.at_level(logging.WARNING, logger.name):
            assert not gemm.by_tiles(compiler)
            assert not gemm.by_tiles(compiler)
        assert [record.getMessage() for record in caplog.records if "tdpbf16ps" in record.getMessage()] == [
            "products by tiles (AMX, tdpbf16ps) do not work on this machine: bfloat16 is multiplied by vdpbf16ps. "
            "NEONLIKE_AMX=0 leaves out this test"
        ]

    def test_no_kernel(self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gemm, "find_launch", lambda *_: None)
        assert not gemm.by_tiles(compiler)

    def test_no_permission(self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gemm, "ask_for_tiles", lambda compiler: False)
        assert not gemm.by_tiles(compiler)
        assert tiled == []
        a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
        assert pairs_of(a, b, c, INSTRUCTION, compiler) == INSTRUCTION
        assert gemm.multiply(a, b, c, compiler=compiler, pairs=INSTRUCTION)
        assert (c == 64).all()

    def test_the_variable(self, tiled: list[Any], compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NEONLIKE_AMX", "0")
        monkeypatch.setattr(gemm, "ask_for_tiles", None)
        assert not gemm.by_tiles(compiler)
        assert tiled == []

    def test_each_kind_of_product_is_tried(self, tiled: list[Any], compiler: Compiler) -> None:
        assert gemm.by_tiles(compiler)
        assert {context["pairs"] for context in tiled} == {TILES}
        kinds = set()
        for m, k, n in gemm.OF_A_TEST:
            a, b, c = (np.empty(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
            launch = find_launch(a, b, c, compiler, TILES)
            assert launch is not None
            kinds.add((launch.meta[8], launch.meta[10] > 0))
            assert min(m % 32, n % 32) in range(1, 17) and k // 2 % 16
        assert {by_parts for _, by_parts in kinds} == {True, False}
        assert {by_rows for by_rows, by_parts in kinds if not by_parts} == {0, 1}


def test_a_machine_without_tiles_asks_for_none(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {flag for line in open("/proc/cpuinfo") if line.startswith("flags") for flag in line.split()}
    assert simd.has_tiles(compiler) == (compiler.native and "amx_bf16" in flags)
    if not simd.has_tiles(compiler):
        assert not simd.ask_for_tiles(compiler)
        assert not gemm.by_tiles(compiler)
        a, b, c = (np.empty((64, 64), np.float32) for _ in range(3))
        assert pairs_of(a, b, c, INSTRUCTION, compiler) == INSTRUCTION


def test_the_text_for_reports(compiler: Compiler) -> None:
    assert pairs.spoken(TILES, np.dtype(np.float32), compiler) == "bfloat16 by tdpbf16ps"
