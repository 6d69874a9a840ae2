"""The packed matrix product against float64, and the products that the C engine gives to it."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import gemm as gemm_module
from neonlike.kernels.c.gemm import find_launch, gemm, multiply, pays
from neonlike.kernels.c.numpy_blas import openblas
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.run import workspace as workspace_module
from neonlike.kernels.run.workspace import release_workspace, workspace
from tests.support.engines import backend, needs_compiler, use_threads
from tests.support.working_memory import GuardedMemory

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

SIZES = [
    (1, 1, 1), (3, 5, 7), (13, 400, 33), (30, 20, 100), (12, 384, 32), (5, 1000, 49), (50, 40, 17), (37, 530, 10),
    (300, 1030, 70), (300, 19, 290), (200, 385, 2100), (100, 1030, 70), (12, 515, 240), (21, 9000, 14),
]  # fmt: skip
"""By rows and by columns; last panels of each width and height, blocks of depth and of columns, what is left of
vectors; the last three by parts of the inner dimension, some with several blocks of depth or of columns."""


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


def matrix(rng: Any, rows: int, columns: int, dtype: str, turned: bool) -> Any:
    made = rng.standard_normal((columns, rows) if turned else (rows, columns)).astype(dtype)
    return made.T if turned else made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_product_of_any_layout(rng: Any, size: tuple[int, int, int], dtype: str) -> None:
    m, k, n = size
    tolerance = {"float32": 3e-6, "float64": 1e-14}[dtype] * max(k, 16)
    for turned in itertools.product([False, True], repeat=3):
        shapes = ((m, k), (k, n), (m, n))
        a, b, c = (matrix(rng, *shape, dtype, flag) for shape, flag in zip(shapes, turned))
        exact = a.astype(float) @ b.astype(float)
        wanted = 0.5 * exact - 0.25 * c.astype(float)
        assert gemm(a, b, c, 0.5, -0.25)
        np.testing.assert_allclose(c, wanted, atol=tolerance)
        c[:] = np.nan  # beta 0: not read
        assert gemm(a, b, c)
        np.testing.assert_allclose(c, exact, atol=tolerance)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86 processors")
@pytest.mark.parametrize("flag", ["-mno-avx", "-mno-avx512f"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_other_processors(rng: Any, monkeypatch: pytest.MonkeyPatch, flag: str, dtype: str) -> None:
    """Tiles have other sizes there, and the threads' copies must fit between one another's."""
    native = find_compiler()
    assert native is not None
    use_threads(monkeypatch, "3")
    for m, k, n in ((300, 1030, 70), (30, 530, 300), (23, 1030, 70)):
        a, b = (matrix(rng, *shape, dtype, False) for shape in ((m, k), (k, n)))
        c = np.empty((m, n), dtype)
        assert gemm(a, b, c, compiler=replace(native, flags=(*native.flags, flag)))
        tolerance = {"float32": 3e-3, "float64": 1e-11}[dtype]
        np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=tolerance)


@pytest.mark.optimized
def test_parts_of_larger_matrices(rng: Any) -> None:
    whole = rng.standard_normal((3, 40, 50)).astype(np.float32)
    a, b, c = whole[0, 3:20:2, ::3], whole[1, 5:22, 8:30], whole[2, 10:19, 20:42]
    before = whole[2].copy()
    assert gemm(a, b, c)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-4)
    before[10:19, 20:42] = c
    np.testing.assert_array_equal(whole[2], before)


def test_the_number_of_threads_changes_nothing(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share rows, then columns, one block or several of depth and of columns; then parts of the depth."""
    sizes = (300, 500, 70), (300, 1100, 70), (200, 600, 2500), (20, 500, 300), (20, 1100, 2500)
    cases = [(size, False, True) for size in sizes]
    cases += [(size, *flags) for size in ((64, 1500, 96), (31, 9000, 40)) for flags in ((True, False), (False, True))]
    for (m, k, n), *turned in cases:
        a, b = matrix(rng, m, k, "float32", turned[0]), matrix(rng, k, n, "float32", turned[1])
        found = []
        for threads in "1234":
            use_threads(monkeypatch, threads)
            found.append(np.full((m, n), 0.5, np.float32))
            assert gemm(a, b, found[-1], 1.0, -1.5)
        assert all((found[0] == other).all() for other in found[1:])


def test_products_with_few_results_are_cut_by_depth(rng: Any) -> None:
    """As those of weight gradients, whatever the number of threads; others are not."""

    def parts(m: int, k: int, n: int, turned: bool = True, dtype: str = "float32") -> int:
        a, b, c = matrix(rng, m, k, dtype, turned), matrix(rng, k, n, dtype, False), np.empty((m, n), dtype)
        launch = find_launch(a, b, c)
        assert launch is not None and launch.meta[10] == launch.serial[10]
        return -(-k // launch.meta[10]) if launch.meta[10] else 0

    assert parts(64, 4096, 192) == parts(192, 4096, 64) == parts(16, 16384, 16) == 16 and parts(64, 512, 64) == 4
    assert parts(128, 4096, 256) == 8 and not parts(128, 4096, 256, turned=False) and parts(128, 4096, 128, False)
    assert not parts(128, 4096, 128, False, "float64") and parts(64, 4096, 128, False, "float64")
    assert not parts(256, 4096, 256) and not parts(16, 4096, 272) and not parts(11, 4096, 64) and not parts(64, 496, 64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_keep_to_their_working_memory(rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    held = GuardedMemory()
    monkeypatch.setattr(gemm_module, "held_workspace", held)
    for m, k, n in ((37, 1030, 70), (100, 9000, 33), (12, 515, 240), (300, 600, 70), (20, 500, 300)):
        for threads, turned in (("1", True), ("3", False)):
            use_threads(monkeypatch, threads)
            a, b = matrix(rng, m, k, dtype, turned), matrix(rng, k, n, dtype, not turned)
            assert gemm(a, b, np.empty((m, n), dtype))
            assert held.intact()


def test_nan_and_infinity_reach_their_own_row_and_column(rng: Any) -> None:
    a, b, c = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(3))
    a[3, 7], b[2, 5] = np.nan, np.inf
    assert gemm(a, b, c)
    bad = ~np.isfinite(c)
    wanted = np.zeros((20, 20), bool)
    wanted[3, :], wanted[:, 5] = True, True
    np.testing.assert_array_equal(bad, wanted)


def test_what_it_has_no_kernel_for_is_left_alone() -> None:
    f16, f32, f64 = (np.ones((2, 2), dtype) for dtype in ("float16", "float32", "float64"))
    scattered, nothing = np.zeros((4, 4), np.float32)[::2, ::2], np.ones((2, 0), np.float32)
    assert not gemm(f16, f16, f16) and not gemm(f32, f64, f32) and not gemm(f32, f32, scattered)
    assert not gemm(nothing, nothing.T, f32)
    assert (f32 == 1).all() and (scattered == 0).all()


# What goes to it ------------------------------------------------------------------------------------------------------


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Has every product go to the kernel, of any size, machine or compiler; shapes (m, k, n) of those that did."""
    seen: list[tuple[int, ...]] = []
    real = gemm_module.find_launch

    def noted(a: Any, b: Any, c: Any, compiler: Any) -> Any:
        if launch := real(a, b, c, compiler):
            seen.append((*a.shape, b.shape[1]))
        return launch

    monkeypatch.setattr(gemm_module, "find_launch", noted)
    monkeypatch.setattr(gemm_module, "half_vectors", lambda: True)
    monkeypatch.setattr(Compiler, "native", True)  # those that only know any processor's instructions, too
    for name in ("FEWEST_PRODUCTS", "FEWEST_OF_ALL", "NARROWEST", "FEWEST_RESULTS"):
        monkeypatch.setattr(gemm_module, name, 1)
    return seen


def test_only_large_products_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_module, "half_vectors", lambda: True)
    native = find_compiler()
    assert native is not None
    if native.native:
        assert pays(512, 512, 64) and pays(64, 64, 64) and pays(10, 1000, 128) and pays(128, 1000, 10)
        assert not pays(64, 63, 64) and not pays(9, 4096, 4096) and not pays(4096, 4096, 9)
        assert not pays(16, 4096, 31) and pays(2048, 1, 2048)
    monkeypatch.setattr(gemm_module, "find_compiler", lambda: replace(native, flags=("-O3",)))
    assert not pays(512, 512, 512)
    monkeypatch.undo()
    monkeypatch.setattr(gemm_module, "half_vectors", lambda: False)
    for whole in (False, True):
        monkeypatch.setattr(gemm_module, "whole_vectors", lambda whole=whole: whole)
        assert pays(512, 512, 512) == (whole and native.native)
        assert not pays(200, 200, 200) and not pays(1024, 1024, 31) and not pays(31, 1024, 1024)


def test_cores_of_openblas() -> None:
    """The core type set for OpenBLAS is the one we detect; other libraries have no name."""
    for told, narrow in (("Haswell", True), ("SkylakeX", False)):
        code = (
            "from neonlike.kernels.c.numpy_blas import narrow_blas, openblas; "
            "print(openblas() and openblas().core, narrow_blas())"
        )
        environment = {**os.environ, "OPENBLAS_CORETYPE": told}
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        if openblas() and platform.machine() in ("x86_64", "AMD64"):
            assert shown == [told.lower(), str(narrow)]
        else:
            assert shown[-1] == "False"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=3)))
def test_dot_in_an_expression(be: Backend, rng: Any, met: list[Any], dtype: str, turned: tuple[bool, ...]) -> None:
    a, b, out = (
        be.array(matrix(rng, *shape, "float64", flag).T.copy(), dtype=dtype).T if flag else
        be.array(matrix(rng, *shape, "float64", flag), dtype=dtype)
        for shape, flag in zip(((9, 20), (20, 35), (9, 35)), turned)
    )  # fmt: skip
    wanted = a.get().astype(float) @ b.get().astype(float)
    out[:] = be.dot(a, b)
    tolerance = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(out.get(), wanted, rtol=tolerance, atol=tolerance)
    out[:] = be.tanh(be.dot(a, b) * 0.25) + 1
    np.testing.assert_allclose(out.get(), np.tanh(wanted / 4) + 1, rtol=tolerance, atol=tolerance)
    assert met == [(9, 20, 35)] * 2


def test_dot_over_its_own_factors(be: Backend, rng: Any, met: list[Any]) -> None:
    a = rng.standard_normal((12, 12)).astype(np.float32)
    for write in (lambda t: t.__setitem__(np.s_[:], be.dot(t, t)), lambda t: be.compound_dot(t.T, t, t)):
        held = be.array(a)
        wanted = (a if write.__code__.co_names[0] == "__setitem__" else a.T).astype(float) @ a.astype(float)
        write(held)
        np.testing.assert_allclose(held.get(), wanted, atol=1e-4)


@pytest.mark.compiles(8)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.5, 0.0), (1.0, 1.0), (0.5, -1.5)])
@pytest.mark.parametrize("relu", [False, True])
def test_compound_dot(
    be: Backend, rng: Any, met: list[Any], alpha: float, beta: float, relu: bool, dtype: str
) -> None:
    a, b, c = (rng.standard_normal(shape).astype(dtype) for shape in ((9, 20), (20, 35), (9, 35)))
    wanted = alpha * (a.astype(float) @ b.astype(float))
    wanted = (np.maximum(wanted, 0) if relu else wanted) + (beta * c.astype(float) if beta else 0)
    tolerance = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-13}[dtype]
    c[0, 0] = c[0, 0] if beta else np.nan
    for turn in (False, True):
        left, right, old, turned = (be.array(x, dtype=dtype) for x in (a, b, c, c.T.copy()))
        held, sums = turned.T if turn else old, be.zeros((9, 1), dtype=dtype)
        be.compound_dot(left, right, held, alpha, beta, relu, sums)
        np.testing.assert_allclose(held.get(), wanted, rtol=tolerance, atol=tolerance)
        stored = held.get().astype(float).sum(1, keepdims=True)
        np.testing.assert_allclose(sums.get(), stored, rtol=tolerance, atol=4 * tolerance)
    assert met == [(9, 20, 35)] * 2


def test_infinite_alpha_and_what_c_held(be: Backend, met: list[Any]) -> None:
    a, c = be.ones((3, 4)), be.ones((3, 3))
    c[0, 0] = np.inf
    be.compound_dot(a, a.T, c, alpha=0.0, beta=2.0)
    assert c.get()[0, 0] == np.inf and (c.get()[1:] == 2).all()
    a[1, 1] = np.nan
    be.compound_dot(a, a.T, c, alpha=0.0)
    assert np.isnan(c.get()[1]).all() and (c.get()[[0, 0, 2], [0, 2, 0]] == 0).all()
    assert len(met) == 2


@pytest.mark.parametrize("ranks", [(3, 3, 3), (2, 3, 3), (3, 2, 3), (3, 3, 2), (2, 3, 2)])
def test_batched_dot(be: Backend, rng: Any, met: list[Any], ranks: tuple[int, int, int]) -> None:
    a, b, c = (
        rng.standard_normal((6, *shape)[3 - rank :]).astype("f") for rank, shape in zip(ranks, ((9, 5), (5, 7), (9, 7)))
    )
    product = np.matmul(a.astype(float), b.astype(float))
    product = product if c.ndim == 3 else product.sum(0)
    held = be.array(c)
    be.batched_dot(be.array(a), be.array(b), held, alpha=2.0, beta=0.5, relu=True)
    np.testing.assert_allclose(held.get(), np.maximum(2 * product, 0) + 0.5 * c, atol=1e-4)
    scaled = be.batched_dot(be.array(a), be.array(b), be.array(c), alpha=-2.0, beta=0.5)
    np.testing.assert_allclose(scaled.get(), -2 * product + 0.5 * c, atol=1e-4)
    assert met == [(9, 30 if a.ndim == 3 and c.ndim == 2 else 5, 7)] * 2


def test_what_shares_memory_or_has_no_kernel_is_refused(rng: Any, met: list[Any]) -> None:
    whole = rng.standard_normal((8, 8)).astype("f")
    before = whole.copy()
    assert not multiply(whole, whole, whole) and not multiply(whole[:4, :4], whole[4:, :4], whole[:4, :4])
    integers = np.ones((4, 4), np.int32)
    assert not multiply(integers, integers, integers) and not met
    np.testing.assert_array_equal(whole, before)
    assert multiply(integers, whole[:4], np.empty((4, 8), np.float64))


def test_the_numpy_engine_keeps_to_numpy(rng: Any, met: list[Any]) -> None:
    a = rng.standard_normal((9, 9)).astype("f")
    for be in backend("numpy"):
        t, out = be.array(a), be.empty((9, 9))
        out[:] = be.dot(t, t)
        np.testing.assert_array_equal(out.get(), np.matmul(a, a))
        be.compound_dot(t, t, out)
        np.testing.assert_array_equal(out.get(), np.matmul(a, a))
    assert not met


# The memory it works in -----------------------------------------------------------------------------------------------


def test_workspace_is_kept_until_it_is_released() -> None:
    release_workspace()
    first = workspace(3000, np.dtype(np.float64))
    again = workspace(2000, np.dtype(np.float32))
    assert first.shape == (3000,) and again.dtype == np.float32 and np.shares_memory(first, again)
    assert first.__array_interface__["data"][0] % 64 == 0
    other: list[Any] = []
    thread = threading.Thread(target=lambda: other.append(workspace(10, np.dtype(np.float32))))
    thread.start()
    thread.join()
    assert not np.shares_memory(first, other[0])
    kept = weakref.ref(_owner(first))
    del first, again
    assert kept() is not None
    release_workspace()
    assert kept() is None


def test_large_workspace_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "KEPT_BYTES", 1 << 16)
    kept = weakref.ref(_owner(workspace(1 << 17, np.dtype(np.uint8))))
    assert kept() is None


def _owner(array: Any) -> Any:
    """Owner of the memory that ``array`` is a part of."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def test_working_memory_is_held_while_the_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory too large to be kept belongs to nobody else: it was freed before the kernel ran."""
    held: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    class Memory(np.ndarray):
        """An array that can be watched."""

    def watched(nbytes: int) -> Any:
        memory = np.empty(nbytes, np.uint8).view(Memory)
        held.append(weakref.ref(memory))
        return memory

    release_workspace()
    monkeypatch.setattr(workspace_module, "KEPT_BYTES", -1)
    monkeypatch.setattr(workspace_module.pieces, "piece", watched)
    kernel = lambda *arguments: alive.append(held[0]() is not None)  # noqa: E731
    monkeypatch.setattr(gemm_module.GEMM, "variant", lambda *_, **context: kernel)
    a = np.ones((64, 64), np.float32)
    assert gemm(a, a, np.empty_like(a), 1.0, 0.0)
    assert alive == [True]
