"""Products of bfloat16 that their kernels store in bfloat16: bit for bit those in float32, rounded to nearest."""

from __future__ import annotations

import itertools
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c import gemm
from neonlike.kernels.c.gemm import find_launch, pairs_of
from neonlike.kernels.c.pairs import PLAIN, TILES
from neonlike.kernels.c.products import DotStage
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import needs_compiler, new_backend, use_threads
from tests.support.rounded import FORMS, laid, matrix
from tests.support.tiles import compiler
from tests.support.working_memory import GuardedMemory

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.cpu_only("the compiled kernels of the CPU"),
    pytest.mark.usefixtures("compiler"),
]
__all__ = ["compiler"]

SIZES = [
    (8, 600, 300), (300, 9, 300), (77, 601, 45), (45, 601, 77), (45, 2601, 77), (77, 1201, 45), (13, 2050, 200),
    (200, 2051, 13), (33, 1030, 65), (300, 2048, 65), (64, 9000, 64), (129, 2301, 130),
]  # fmt: skip
"""By rows, by columns and by parts; one step of the inner dimension and several, ends that fill no tile."""
SCALES = [(1.0, 0.0), (0.5, -2.0), (1.0, 1.0), (-0.25, 0.0)]
"""alpha and beta, powers of two: where they are others, a compiler may fuse either of two products with the sum."""


def matrices(rng: Any, size: tuple[int, int, int], turned: Any) -> list[Any]:
    """A, B and C in bfloat16; what C holds is about as large as products of A and B."""
    return in_layout(numbers(rng, size), turned)


def numbers(rng: Any, size: tuple[int, int, int]) -> list[Any]:
    """The values of A, B and C in float32."""
    m, k, n = size
    return [matrix(rng, *shape, False) for shape in ((m, k), (k, n), (m, n))]


def in_layout(values: list[Any], turned: Any, wide: int = 0, scale: float = 1) -> list[Any]:
    """These A, B and C in bfloat16; what C holds is about as large as products of A and B times ``scale``."""
    a, b, c = (laid(one, flag, wide, "bfloat16") for one, flag in zip(values, turned))
    c[...] = c.astype(np.float32) * np.float32(scale * a.shape[1] ** 0.5)
    return [a, b, c]


def multiplied(monkeypatch: pytest.MonkeyPatch, a: Any, b: Any, c: Any, scales: tuple[float, float], form: int) -> Any:
    """``c`` after a product by our kernel, which keeps to its working memory."""
    held = GuardedMemory()
    monkeypatch.setattr(gemm, "held_workspace", held)
    launch = find_launch(a, b, c, None, form)
    assert launch is not None
    launch(address(a), address(b), address(c), *scales)
    assert held.intact()
    return c


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_stored_is_rounded_once(
    rng: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int], form: int
) -> None:
    values = numbers(rng, size)
    layouts = itertools.product([False, True], [False, True], [False, True], zip(SCALES, (0, 3, 0, 3)))
    for (*turned, ((alpha, beta), wide)), scale in zip(layouts, itertools.cycle((1, 2.0**-130, 2.0**110))):
        a, b, c = in_layout(values, turned, wide, scale)
        single = np.empty_like(c, np.float32)
        single[...] = c
        for into in (single, c):
            multiplied(monkeypatch, a, b, into, (scale * alpha, beta), form)
        rounded = single.astype(bfloat16())
        where = f"{scale} {turned} {alpha} {beta}"
        np.testing.assert_array_equal(c.view(np.uint16), rounded.view(np.uint16), where)
        subnormal = (np.abs(single) < 2.0**-126) & (rounded.astype(np.float32) != 0)
        assert subnormal.any() == (scale < 1)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="flags of x86 processors")
@pytest.mark.parametrize("flag", ["-mno-avx512f", "-mno-avx"])
def test_processors_without_avx512(rng: Any, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    native = find_compiler()
    assert native is not None
    other = replace(native, flags=(*native.flags, flag))
    monkeypatch.setattr(gemm.GEMM, "variants", {})
    for size in SIZES[:6]:
        a, b, c = matrices(rng, size, (False, False, False))
        single = np.empty_like(c, np.float32)
        for into in (c, single):
            launch = find_launch(a, b, into, other, PLAIN)
            assert launch is not None
            launch(address(a), address(b), address(into))
        np.testing.assert_array_equal(c.view(np.uint16), single.astype(bfloat16()).view(np.uint16))
        np.testing.assert_allclose(single, a.astype(float) @ b.astype(float), atol=1e-3)


@pytest.mark.parametrize("size", SIZES)
def test_what_tiles_multiply_is_rounded_once(
    rng: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int, int]
) -> None:
    """Tiles add sums of whole numbers up in another order where they are stored in float32."""
    values = [rng.integers(-8, 9, one.shape).astype(np.float32) for one in numbers(rng, size)]
    ways = zip(SCALES, (0, 3, 3, 0))
    for *turned, (scales, wide) in itertools.product([False, True], [False, True], [False, True], ways):
        a, b, c = (laid(one, flag, wide, "bfloat16") for one, flag in zip(values, turned))
        single = np.empty_like(c, np.float32)
        single[...] = c
        for into in (single, c):
            multiplied(monkeypatch, a, b, into, scales, TILES)
        np.testing.assert_array_equal(c, single.astype(bfloat16()), f"{turned} {scales}")


@pytest.mark.parametrize("form", FORMS)
def test_one_subnormal_result(monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    """Wherever it lies in a tile: the instructions that round would make it zero."""
    tiny = 2.0**-127
    for place in range(40):
        a, b, c = np.ones((16, 9), bfloat16()), np.zeros((9, 40), bfloat16()), np.empty((16, 40), bfloat16())
        b[8] = 2.0**60
        b[8, place] = 1
        multiplied(monkeypatch, a, b, c, (tiny, 0.0), form)
        found = c.astype(float)
        assert (found[:, place] == tiny).all() and (found == tiny).sum() == 16


@pytest.mark.parametrize("form", FORMS)
def test_special_numbers(rng: Any, monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    for turned in itertools.product([False, True], repeat=3):
        a, b, c = matrices(rng, (45, 83, 71), turned)
        a[3, 82], a[20, 5], a[40, :], b[82, 33], b[:, 2] = np.nan, np.inf, -0.0, -np.inf, 0.0
        single = np.empty_like(c, np.float32)
        found, wanted = (multiplied(monkeypatch, a, b, into, (1.0, 0.0), form) for into in (c, single))
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(bfloat16()).astype(np.float32))
        assert np.isnan(found[3].astype(float)).all() and np.isinf(found[20].astype(float)).any()


def test_results_do_not_depend_on_threads(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, form, *turned in itertools.product(
        ((130, 2050, 70), (20, 5000, 20), (700, 300, 40), (40, 2100, 700)), FORMS, [False, True], [False, True]
    ):
        a, b, c = matrices(rng, size, (*turned, False))
        found = []
        for threads in (1, 2, 5):
            use_threads(monkeypatch, threads)
            found.append(multiplied(monkeypatch, a, b, c.copy(), (0.5, 2.0), form).tobytes())
        assert found[0] == found[1] == found[2]


def test_no_working_memory_for_results_of_one_step(rng: Any) -> None:
    """Sums of several steps of the inner dimension are kept in float32; others never were anywhere."""
    for k, more in ((400, False), (3000, True)):
        a, b, c = in_layout(numbers(rng, (300, k, 500)), (False, False, False), 3)
        single = np.empty(c.shape, np.float32)
        bytes_of = [launch.bytes for into in (single, c) if (launch := find_launch(a, b, into, None, 1))]
        assert bytes_of[1] - bytes_of[0] == (4 * (300 * 503 + gemm.LANES) if more else 0)


def test_only_products_of_bfloat16_are_stored_so(rng: Any) -> None:
    a, b, c = matrices(rng, (64, 300, 64), (False, False, False))
    assert pairs_of(a, b, c, 1) and find_launch(a, b, c, None, 1) is not None
    single = a.astype(np.float32)
    for one in (single, a.astype(np.float16)):
        assert not pairs_of(one, b, c, 1) and find_launch(one, b, c, None, 1) is None
    assert find_launch(a, b, c, None, 0) is None and find_launch(a[:, ::2], b[::2], c, None, 1) is None


def test_expressions_and_products_of_a_backend(rng: Any) -> None:
    needs_compiler()
    be = new_backend(default_dtype=bfloat16())
    A, B = be.array(rng.standard_normal((96, 200))), be.array(rng.standard_normal((200, 96)))
    many, wide = be.array(rng.standard_normal((3, 200, 96))), be.empty((96, 130))
    single, C, D = be.empty((96, 96), dtype=np.float32), be.empty((96, 96)), be.empty((96, 96))
    stack = be.empty((3, 96, 96))
    single[:] = be.dot(A, B)
    exact = single.get()
    wanted = exact.astype(bfloat16()).astype(np.float32)
    for _ in range(4):  # planned, planned again, replayed
        C[:] = 0
        C[:] = be.dot(A, B)
        np.testing.assert_array_equal(C.get().astype(np.float32), wanted)
        C.T[:] = be.dot(A, B)
        np.testing.assert_array_equal(C.get().astype(np.float32), wanted.T)
        C[:] = be.dot(A, B).T
        np.testing.assert_array_equal(C.get().astype(np.float32), wanted.T)
        wide[:, 7:103] = be.dot(A, B)
        np.testing.assert_array_equal(wide[:, 7:103].get().astype(np.float32), wanted)
        product = be.dot(A, B)
        be.assign_many([(C, product), (D, product * 0 + product)])
        np.testing.assert_array_equal(C.get().astype(np.float32), wanted)
        be.assign_many([(C, product.T), (D, be.dot(product, C))])
        np.testing.assert_array_equal(C.get().astype(np.float32), wanted.T)
        be.compound_dot(A, B, D)
        np.testing.assert_array_equal(D.get().astype(np.float32), wanted)
        be.compound_dot(A, B, D, alpha=0.5, beta=-1.0)
        np.testing.assert_array_equal(D.get().astype(np.float32), (exact / 2 - wanted).astype(bfloat16()))
        be.batched_dot(A, many, stack)
        for one, found in zip(many, stack):
            single[:] = be.dot(A, one)
            np.testing.assert_array_equal(found.get(), single.get().astype(bfloat16()))
        C[:] = be.dot(A, B)
        square = C.get()
        D[:] = be.dot(C, C)
        C[:] = be.dot(C, C)  # its target is read
        np.testing.assert_array_equal(C.get(), D.get())
        assert (square != C.get()).any()


def test_a_product_that_another_reads(rng: Any) -> None:
    """It is read in float32."""
    be = new_backend(default_dtype=bfloat16())
    A, C, D = (be.empty((96, 96)) for _ in range(3))
    for _ in range(4):
        A[:] = rng.standard_normal((96, 96))
        product = be.dot(A, A)
        be.assign_many([(C, product), (D, be.dot(product, product))])
        exact = np.linalg.matrix_power(A.get().astype(float), 2)
        np.testing.assert_allclose(C.get().astype(float), exact, rtol=2.0**-8, atol=1e-3)
        np.testing.assert_allclose(D.get().astype(float), exact @ exact, rtol=2.0**-8, atol=0.01)


@pytest.mark.parametrize("placed", [True, False])
def test_the_kernel_that_is_named_is_the_only_one(rng: Any, monkeypatch: pytest.MonkeyPatch, placed: bool) -> None:
    """Also where the stage itself calls it: without steps for a program of the extension."""
    be = new_backend(default_dtype=bfloat16())
    A, C = be.array(rng.standard_normal((96, 96))), be.empty((96, 96))
    wanted = A.get().astype(np.float32)
    wanted = (wanted @ wanted).astype(bfloat16()).astype(np.float32)
    if not placed:
        monkeypatch.setattr(DotStage, "steps", lambda self, run: None)
    monkeypatch.setattr(gemm.GEMM, "variants", {})
    for target in (C, C.T):
        explained = str(be.explain(be.dot(A, A), target))
        for _ in range(4):
            C[:] = 0
            target[:] = be.dot(A, A)
            np.testing.assert_allclose(target.get().astype(np.float32), wanted, rtol=2.0**-7, atol=1e-3)
        (context,) = gemm.GEMM.variants
        assert dict(context)["result"] == "bfloat16" and gemm.GEMM.source(**dict(context)).name in explained
