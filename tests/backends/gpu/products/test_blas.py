"""Matrix products on a GPU: the layouts and dtypes given to cuBLAS, and the results."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError
from tests.support.engines import have_programs
from tests.support.gpu.cuda_backends import assert_near

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]

TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14}
"""In parts of the sum of absolute products."""
SIZES = [(1, 1, 1), (3, 5, 7), (33, 17, 9), (1, 19, 6), (13, 1, 5), (8, 21, 1), (1, 30, 1)]
TURNED = list(itertools.product([False, True], repeat=3))
SCALES = [(1.0, 0.0), (2.5, 0.0), (1.0, 1.0), (-0.5, 1.5)]


def matrix(be: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: str, turned: bool) -> tuple[Any, Any]:
    """Random values, and a tensor of them; ``turned``: a transposed view of one."""
    host = rng.normal(size=shape).astype(dtype)
    if not turned:
        return host, be.array(host, dtype=dtype)
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return host, be.array(host.transpose(axes), dtype=dtype).permuted(axes)


def check(got: Any, a: Any, b: Any, c: Any, alpha: float, beta: float) -> None:
    """Compare with float64."""
    x, y, z = (np.asarray(array, np.float64) for array in (a, b, c))
    wanted = alpha * (x @ y) + (beta * z if beta else 0)
    scale = abs(alpha) * (np.abs(x) @ np.abs(y)) + (abs(beta) * np.abs(z) if beta else 0) + 1e-30
    assert (np.abs(got - wanted) <= TOLERANCE[got.dtype.name] * scale).all()


# Layouts


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("turned", TURNED, ids=str)
def test_transposes_are_flags(be: Any, rng: np.random.Generator, dtype: str, turned: tuple[bool, ...]) -> None:
    for (m, k, n), (alpha, beta) in itertools.product(SIZES, SCALES):
        a, A = matrix(be, rng, (m, k), dtype, turned[0])
        b, B = matrix(be, rng, (k, n), dtype, turned[1])
        c, C = matrix(be, rng, (m, n), dtype, turned[2])
        call = be.products.blas.ready(A.array, B.array, C.array, alpha, beta)
        assert {x.memory for x in call.kept[:3]} == {t.array.memory for t in (A, B, C)}
        call()
        check(C.get(), a, b, c, alpha, beta)
        be.compound_dot(A, B, C, alpha, 0.0)
        check(C.get(), a, b, c, alpha, 0.0)


VIEWS = {
    "offset": np.s_[2:-1, 3:],
    "rows apart": np.s_[::2],
    "columns apart": np.s_[:, ::3],
    "both apart": np.s_[1::2, ::2],
    "upside down": np.s_[::-1],
    "mirrored": np.s_[:, ::-1],
    "one row": np.s_[4:5, ::2],
    "one column": np.s_[::3, 5:6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_views_are_multiplied_without_their_neighbours(
    be: Any, rng: np.random.Generator, dtype: str, view: Any
) -> None:
    hosts = [rng.normal(size=(14, 14)).astype(dtype) for _ in range(3)]
    for place in range(3):
        tensors = [be.array(host, dtype=dtype) for host in hosts]
        near = hosts[place][view]
        shapes = {
            0: (near.shape, (near.shape[1], 5), (near.shape[0], 5)),
            1: ((5, near.shape[0]), near.shape, (5, near.shape[1])),
            2: ((near.shape[0], 6), (6, near.shape[1]), near.shape),
        }[place]
        parts = [np.s_[:rows, :columns] for rows, columns in shapes]
        parts[place] = view
        A, B, C = (t[part] for t, part in zip(tensors, parts))
        a, b, c = (host[part] for host, part in zip(hosts, parts))
        be.compound_dot(A, B, C, 2.0, 0.5)
        check(C.get(), a, b, c, 2.0, 0.5)
        wanted = hosts[2].copy()
        wanted[parts[2]] = C.get()
        assert np.array_equal(tensors[2].get(), wanted)


def test_which_layouts_take_a_copy(be: Any) -> None:
    layout = importlib.import_module("neonlike.backends.gpu.products.blas").layout
    t = be.zeros((6, 8))
    assert layout(t.array) == (False, 8, 0)
    assert layout(t.T.array) == (True, 8, 0)
    assert layout(t[1:3, 2:4].array) == (False, 8, 0)
    assert layout(t[:, 2:3].array) == (False, 8, 0)
    assert layout(t[2:3, ::2].array) == (True, 2, 0)
    assert layout(t[2:3, 4:5].array) == (False, 1, 0)
    for strided in (t[:, ::2], t[::-1], t[:, ::-1], t[::2, ::2].T):
        assert layout(strided.array) is None
    stack = be.zeros((3, 4, 5))
    assert layout(stack.array) == (False, 5, 20)
    assert layout(stack.permuted((0, 2, 1)).array) == (True, 5, 20)
    assert layout(stack.permuted((1, 0, 2)).array) == (False, 20, 5)
    assert layout(stack.permuted((2, 0, 1)).array) is None
    assert layout(stack[::-1].array) is None
    assert layout(stack[1:2].array) == (False, 5, 0)

    def strided(shape: tuple[int, int], strides: tuple[int, int]) -> Any:
        return layout(type(t.array)(None, 0, shape, strides, np.dtype(np.float32)))

    assert strided((2, 3), (2**34, 4)) is None and strided((3, 2), (4, 2**34)) is None  # too far apart
    assert strided((6, 3), (8, 4)) is None and strided((3, 6), (4, 8)) is None  # they overlap
    assert strided((6, 3), (0, 4)) is None and strided((3, 6), (4, 0)) is None  # broadcast
    row = t[2:3, ::2]
    for out in (row, row.T):  # by rows and by columns at the same time
        assert be.products.blas.ready(be.ones((out.shape[0], 2)).array, be.ones((2, out.shape[1])).array, out.array)


# Values


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_what_c_held_is_read_only_with_beta(be: Any, dtype: str) -> None:
    a = be.ones((3, 4), dtype=dtype)
    c = be.array(np.full((3, 3), np.nan), dtype=dtype)
    be.compound_dot(a, a.T, c, alpha=0.5)
    assert (c.get() == 2).all()
    c.fill(np.nan)
    be.compound_dot(a, a.T, c, beta=1.0)
    assert np.isnan(c.get()).all()
    batch = be.array(np.full((2, 3, 3), np.nan), dtype=dtype)
    be.batched_dot(be.ones((2, 3, 4), dtype=dtype), a.T, batch, alpha=2.0)
    assert (batch.get() == 8).all()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_to_sum(be: Any, dtype: str) -> None:
    c = be.array(np.array([[1.0, 2.0], [3.0, np.nan]]), dtype=dtype)
    be.compound_dot(be.empty((2, 0), dtype=dtype), be.empty((0, 2), dtype=dtype), c, 3.0, 2.0)
    np.testing.assert_array_equal(c.get(), [[2, 4], [6, np.nan]])
    be.compound_dot(be.empty((2, 0), dtype=dtype), be.empty((0, 2), dtype=dtype), c)
    np.testing.assert_array_equal(c.get(), np.zeros((2, 2)))


def test_alpha_0_times_nan_is_nan_as_on_the_cpu(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = be.products.ready

    def watched(a: Any, b: Any, out: Any, dtype: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        assert alpha != 0  # cuBLAS need not look at the factors then
        return real(a, b, out, dtype, alpha, beta)

    monkeypatch.setattr(be.products, "ready", watched)
    a = be.array(np.array([[np.nan, 1.0], [1.0, 1.0]]))
    c = be.ones((2, 2))
    be.compound_dot(a, be.ones((2, 2)), c, alpha=0.0, beta=1.0)
    np.testing.assert_array_equal(c.get(), [[np.nan, np.nan], [1, 1]])


def test_c_may_share_memory_with_factors(be: Any, rng: np.random.Generator) -> None:
    host = rng.normal(size=(9, 9)).astype(np.float32)
    for part in (np.s_[:, :], np.s_[:9, :9]):
        t = be.array(host)
        be.compound_dot(t[part], t[part], t[part], 0.5, 2.0)
        check(t.get(), host, host, host, 0.5, 2.0)
    t = be.array(host)
    be.compound_dot(t[:4, :4], t[1:5, 1:5], t[2:6, 2:6])
    check(t.get()[2:6, 2:6], host[:4, :4], host[1:5, 1:5], 0, 1.0, 0.0)
    t = be.array(host)
    be.compound_dot(t, t.T, t.T)
    check(t.get().T, host, host.T, 0, 1.0, 0.0)


def test_relu_and_row_sums(be: Any, rng: np.random.Generator) -> None:
    a, b, c = (rng.normal(size=(11, 11)).astype(np.float32) for _ in range(3))
    for beta in (0.0, 0.5):
        C, sums = be.array(c), be.empty((11, 1))
        be.compound_dot(be.array(a), be.array(b), C, -1.5, beta, relu=True, bsum=sums)
        wanted = np.maximum(-1.5 * (a.astype(np.float64) @ b), 0) + beta * c
        np.testing.assert_allclose(C.get(), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(sums.get(), C.get().sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_half_precision_is_summed_in_single(be: Any) -> None:
    ones = be.ones((1, 5000), dtype=np.float16)
    c = be.empty((1, 1), dtype=np.float16)
    be.compound_dot(ones, ones.T, c)
    assert c.get() == 5000  # float16 sums of ones end at 2048
    large = be.array(np.full((1, 100), 60.0), dtype=np.float16)
    be.compound_dot(large, large.T, c, alpha=1 / 64)  # 360000 in between, the largest float16 is 65504
    assert c.get() == 5624


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers(be: Any, dtype: str) -> None:
    a, b = (np.arange(12).reshape(shape) - 3 * (dtype != "uint8") for shape in ((3, 4), (4, 3)))
    c = be.ones((3, 3), dtype=dtype)
    be.compound_dot(be.array(a, dtype=dtype), be.array(b, dtype=dtype), c, 0.5, 2.0)
    limits = np.iinfo(dtype)
    assert np.array_equal(c.get(), np.clip(np.rint(a @ b * 0.5 + 2), limits.min, limits.max))


# Stacks


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("ranks", [(3, 3), (2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("turned", TURNED, ids=str)
def test_stacks(
    be: Any, rng: np.random.Generator, dtype: str, ranks: tuple[int, int], turned: tuple[bool, ...]
) -> None:
    m, k, n = 5, 7, 3
    for count, (alpha, beta) in itertools.product((1, 4), [(1.0, 0.0), (-2.0, 0.5)]):
        a, A = matrix(be, rng, (count, m, k)[3 - ranks[0] :], dtype, turned[0])
        b, B = matrix(be, rng, (count, k, n)[3 - ranks[1] :], dtype, turned[1])
        c, C = matrix(be, rng, (count, m, n), dtype, turned[2])
        be.batched_dot(A, B, C, alpha, beta)
        check(C.get(), a, b, c, alpha, beta)
        d, D = matrix(be, rng, (m, n), dtype, turned[2])
        be.batched_dot(A, B, D, alpha, beta)
        long_a, long_b = (np.broadcast_to(x, (count, *x.shape[-2:])) for x in (a, b))
        check(D.get(), long_a.transpose(1, 0, 2).reshape(m, -1), long_b.reshape(-1, n), d, alpha, beta)


def test_stacks_are_one_call(be: Any, rng: np.random.Generator) -> None:
    a, A = matrix(be, rng, (6, 4, 5), "float32", False)
    b, B = matrix(be, rng, (5, 3), "float32", True)
    C = be.empty((6, 4, 3))
    call = be.products.blas.ready(A.array, B.array, C.array)
    assert call.function is be.products.blas.handle.gemms
    call()
    check(C.get(), a, b, 0, 1.0, 0.0)


def test_stacks_with_gaps_and_upside_down(be: Any, rng: np.random.Generator) -> None:
    host, other = (rng.normal(size=(6, 5, 5)).astype(np.float32) for _ in range(2))
    A, B, C = be.array(host), be.array(other), be.array(np.zeros((6, 5, 5)))
    be.batched_dot(A[::2], B[::-2], C[1::2])
    check(C.get()[1::2], host[::2], other[::-2], 0, 1.0, 0.0)
    assert not C.get()[::2].any()
    be.batched_dot(A, B, A)
    check(A.get(), host, other, 0, 1.0, 0.0)


def test_relu_of_stacks(be: Any, rng: np.random.Generator) -> None:
    a, b, c = (rng.normal(size=(3, 4, 4)).astype(np.float32) for _ in range(3))
    for alpha, beta in ((1.0, 0.0), (-2.0, 0.0), (-2.0, 0.5)):
        C = be.array(c)
        be.batched_dot(be.array(a), be.array(b), C, alpha, beta, relu=True)
        wanted = np.maximum(alpha * (a.astype(np.float64) @ b), 0) + beta * c
        np.testing.assert_allclose(C.get(), wanted, rtol=1e-5, atol=1e-5)


def test_products_of_signs(be: Any, rng: np.random.Generator) -> None:
    for dtype, k in itertools.product(("float16", "float32", "float64", "int8"), (1, 63, 130)):
        a, b = (rng.normal(size=shape).astype(dtype) for shape in ((4, k), (k, 5)))
        if dtype != "int8":
            a[0, 0] = np.nan
        c = be.ones((4, 5), dtype=dtype)
        be.xnor_compound_dot(be.array(a, dtype=dtype), be.array(b, dtype=dtype), c, beta=2.0)
        signs = [np.where(x >= 0, 1, -1) for x in (a, b)]
        low, high = (-128, 127) if dtype == "int8" else (-np.inf, np.inf)
        assert np.array_equal(c.get(), np.clip(signs[0] @ signs[1] + 2, low, high))


# Precision


def test_a_backend_is_made_with_a_precision(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(be)
    assert kind(product_precision="tf32").product_precision == "tf32"
    monkeypatch.setenv("NEONLIKE_PRODUCT_PRECISION", "bfloat16")
    assert kind().product_precision == "bfloat16"
    with pytest.raises(ArgumentError, match=r"product_precision: got 'fp8'; gpu backends take float32, tf32, bfloat16"):
        kind(product_precision="fp8")


def test_float32_is_not_rounded_unless_allowed(be: Any, gpu_driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("neonlike.backends.gpu.products.blas")
    value = 1 + 2.0**-12
    a, c = be.array(np.full((16, 16), value)), be.empty((16, 16))
    eye = be.array(np.eye(16))

    def product() -> float:
        be.compound_dot(a, eye, c)
        return float(c.get()[0, 0])

    assert (be.product_precision, product()) == ("float32", value)
    for name, code in module.PRECISIONS.items():
        be.product_precision = name
        assert be.products.blas.ready(a.array, a.array, c.array).arguments[-2] == code
    be.product_precision = "tf32"
    assert product() == 1.0 or (not gpu_driver.emulator and product() == value)  # cuBLAS may, it need not
    double = be.array(np.full((2, 2), value), dtype=np.float64)
    be.compound_dot(double, be.array(np.eye(2), dtype=np.float64), double)
    assert (double.get() == value).all()
    with pytest.raises(ArgumentError, match=r"product_precision: got 'fp8'.*float32, tf32, bfloat16"):
        be.product_precision = "fp8"
    assert be.product_precision == "tf32"
    monkeypatch.setenv("NEONLIKE_PRODUCT_PRECISION", "bfloat16")
    with gen_backend("gpu") as made:
        assert made.product_precision == "bfloat16"
    monkeypatch.setenv("NEONLIKE_PRODUCT_PRECISION", "best")
    with pytest.raises(ArgumentError, match="NEONLIKE_PRODUCT_PRECISION=best: expected"):
        gen_backend("gpu")


def test_repeated_products_follow_layout_precision_and_overlap(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product's prepared call serves matrices of the same layout with the same numbers, and no others."""
    blas = be.products.blas
    made: list[Any] = []
    place = blas._place
    monkeypatch.setattr(blas, "_place", lambda *given: made.append(given) or place(*given))
    blas._products.clear()
    have_programs(be)
    be.executor.replay.clear()
    rng = np.random.default_rng(4)
    sums: list[int] = []
    call = blas.handle.call
    monkeypatch.setattr(blas.handle, "call", lambda f, given: [sums.append(given[-2]), call(f, given)])
    for turn in range(3):
        a, b = (be.array(rng.standard_normal((6, 6))) for _ in range(2))
        for left, right, alpha, beta in ((a, b, 1, 0), (a.T, b, 1, 0), (a, b, 2, 0.5), (a, b, 1, 0.5)):
            c = be.array(np.ones((6, 6)))
            be.compound_dot(left, right, c, alpha, beta)
            assert_near(c, alpha * left.get().astype(float) @ right.get() + beta, slack=10)
        assert len(made) == 4, turn
    wanted = a.get().astype(float) @ a.get()
    be.compound_dot(a, a, a)  # in place: not the product that is kept
    assert_near(a, wanted, slack=10)
    sums.clear()
    for precision in ("tf32", "float32"):
        be.product_precision = precision
        be.compound_dot(b, b, c)
    assert sums == [77, 68]


def test_a_repeated_product_into_a_view_of_its_factor_or_a_rounding_tensor(be: Any) -> None:
    big = be.array(np.random.default_rng(5).standard_normal((8, 6)))
    a, inside, out = big[:4, :4], big[2:6, 1:5], be.empty((4, 4))
    for _ in range(2):
        be.compound_dot(a, a, out)
        wanted = a.get().astype(float) @ a.get()
        assert_near(out, wanted, slack=10)
        be.compound_dot(a, a, inside)
        assert_near(inside, wanted, slack=10)
    third, whole = be.array(np.full((4, 4), 1 / 3)), be.array(np.eye(4))
    for rounding, least in ((0, 0), (4, 1e-4)):  # the second time, where a product that rounds to nearest is kept
        out.rounding = rounding
        be.compound_dot(third, whole, out)
        be.compound_dot(third, whole, out)
        assert least <= np.abs(out.get() - 1 / 3).max() < max(least * 1000, 1e-6)
