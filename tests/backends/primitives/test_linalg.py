"""Matrix products: their results, stacks, exact products of signs, and timed transposes."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.linalg import LinalgFamily, Product, blas_takes
from neonlike.errors import AliasError, DTypeError, ShapeError
from tests.support.engines import backend, new_backend, use_threads

pytestmark = pytest.mark.engines("numpy", "c")


def signs(values: np.ndarray) -> np.ndarray:
    return np.where(values >= 0, 1, -1)


# compound_dot, batched_dot --------------------------------------------------------------------------------------------


def test_repeat_times_and_computes_once(be: Backend, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(30, 20)), rng.normal(size=(20, 10))
    A, B, C, sums = be.array(a), be.array(b), be.ones((30, 10)), be.zeros((30, 1))
    milliseconds, gflops = be.compound_dot(A, B, C, alpha=2, beta=3, bsum=sums, repeat=12)
    assert milliseconds > 0
    assert gflops == pytest.approx(2 * 30 * 20 * 10 / milliseconds / 1e6)
    assert np.allclose(C.get(), 2 * a @ b + 3, rtol=1e-4, atol=1e-4)
    assert np.allclose(sums.get(), (2 * a @ b + 3).sum(1, keepdims=True), rtol=1e-4, atol=1e-3)
    assert len(be.cublas_dot(A, B, C, repeat=2)) == 2
    assert np.allclose(C.get(), a @ b, rtol=1e-4, atol=1e-4)
    stack = be.array(np.stack((b, -b, b)))
    out = be.ones((3, 30, 10))
    rate = be.batched_dot(A, stack, out, beta=1, repeat=2)
    assert isinstance(rate, float)
    assert rate > 0
    assert np.allclose(out.get(), 1 + a @ stack.get(), rtol=1e-4, atol=1e-4)
    turned = be.zeros((20, 30))
    assert be.copy_transpose(A, turned, repeat=2) is None
    assert np.array_equal(turned.get(), A.get().T)


def test_repeat_shows_its_mean(be: Backend, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="neon"):
        be.copy_transpose(be.ones((3, 4)), be.zeros((4, 3)), repeat=3)
        be.compound_dot(be.ones((3, 4)), be.zeros((4, 3)), be.zeros((3, 3)), repeat=3)
        be.compound_dot(be.ones((3, 4)), be.zeros((4, 3)), be.zeros((3, 3)))
    shown = [record.getMessage() for record in caplog.records if record.levelname == "DISPLAY"]
    assert [re.split(r"[ :]", line)[0] for line in shown] == ["copy_transpose", "compound_dot"]
    assert all("3 runs" in line for line in shown)


@pytest.mark.backend
def test_bench_mode_reports_primitives() -> None:
    timed = new_backend(bench=True)
    a, c, sums = timed.ones((4, 6)), timed.zeros((4, 4)), timed.zeros((4, 1))
    assert timed.compound_dot(a, a.T, c, beta=1, bsum=sums) is c
    assert timed.xnor_compound_dot(a, a.T, c) is c
    assert timed.batched_dot(a.reshape(2, 2, 6), a.reshape(2, 6, 2), timed.zeros((2, 2, 2))) is not None
    timed.copy_transpose(a, timed.zeros((6, 4)))
    timed.compound_bprop_lut(1, timed.zeros((1, 4), dtype=np.int32), a.T, None, timed.zeros((2, 6)), None)
    rows = {row.name: row for row in timed.bench.rows() if not row.inside}
    assert {"compound_dot", "xnor_compound_dot", "batched_dot", "copy_transpose", "compound_bprop_lut"} <= set(rows)
    row = rows["compound_dot"]
    assert (row.kind, row.flops, row.nbytes) == ("product", 2 * 4 * 6 * 4, 4 * (24 + 24 + 16 + 16))
    assert row.shapes == ((4, 6), (6, 4), (4, 4))
    assert rows["batched_dot"].flops == 2 * 2 * 2 * 6 * 2
    assert rows["copy_transpose"].nbytes == 2 * 24 * 4
    timed.cleanup_backend()


@pytest.mark.parametrize("axis", [0, 1])
def test_products_go_to_slices_of_a_sequence(be: Backend, rng: np.random.Generator, axis: int) -> None:
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))
    for beta in (0.0, 0.5):
        whole = be.ones((15, 12))
        part = whole[5:10] if axis == 0 else whole[:, 4:8]
        part = part[:, 4:8] if axis == 0 else part[5:10]
        for target, left, right in ((part, a, b), (part.T, b.T, a.T)):
            whole.fill(1)
            be.compound_dot(be.array(left), be.array(right), target, beta=beta)
            assert np.allclose(target.get(), left @ right + beta, rtol=1e-5, atol=1e-5)
            assert (whole.get() == 1).sum() == 15 * 12 - 20


def test_float16_products_are_scaled_before_they_are_rounded(be: Backend) -> None:
    a, b = (be.array(np.full(shape, 256), dtype=np.float16) for shape in ((1, 2), (2, 1)))
    for relu in (False, True):
        c, stack = be.empty((1, 1), dtype=np.float16), be.empty((1, 1, 1), dtype=np.float16)
        be.compound_dot(a, b, c, alpha=0.25, relu=relu)
        be.batched_dot(a.reshape(1, 1, 2), b, stack, alpha=0.25, relu=relu)
        assert c.get().item() == stack.get().item() == 256 * 256 * 2 / 4  # without alpha it would be infinite


def test_arrays_that_blas_takes() -> None:
    square = np.zeros((6, 8), np.float32)
    for view in (square, square.T, square[:, 2:5], square[2:4].T, square[::2], np.zeros((3, 4, 5))[:, 1:], square[:1]):
        assert blas_takes(view)
    stretched = np.broadcast_to(square[:1], (6, 8))
    for view in (square[:, ::2], square[::2, ::2].T, square[::-1], square[:, ::-1], stretched):
        assert not blas_takes(view)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_stacks_of_small_products_are_dealt_out(
    be: Backend, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    use_threads(monkeypatch, threads)
    a, b = rng.normal(size=(50, 20, 17)), rng.normal(size=(50, 17, 19))
    out = be.empty((50, 20, 19)).fill(np.nan)
    for left, right in ((a, b), (a[0], b), (a, b[0])):
        be.batched_dot(be.array(left), be.array(right), out)
        assert np.allclose(out.get(), np.matmul(left, right), rtol=1e-4, atol=1e-4)
    square = be.array(rng.normal(size=(50, 20, 20)))
    wanted = np.matmul(square.get(), square.get()[::-1])
    be.batched_dot(square, square[::-1], square)
    assert np.allclose(square.get(), wanted, rtol=1e-4, atol=1e-4)


def test_integer_stacks_are_exact_and_saturate(be: Backend) -> None:
    a = be.array([[[100, 100]], [[-100, 1]]], dtype=np.int8)
    b = be.array([[[1], [1]], [[1], [1]]], dtype=np.int8)
    out, summed = be.zeros((2, 1, 1), dtype=np.int8), be.zeros((1, 1), dtype=np.int8)
    be.batched_dot(a, b, out)
    assert out.get().ravel().tolist() == [127, -99]
    be.batched_dot(a, b, summed)
    assert summed.get().tolist() == [[101]]


def test_half_precision_is_rounded_once(be: Backend) -> None:
    a, b = be.array([[1.0, 2.0**-11]], dtype=np.float16), be.array([[1.0], [1.0]], dtype=np.float16)
    c = be.array([[2.0**-12]], dtype=np.float16)
    sums = be.zeros((1, 1), dtype=np.float16)
    be.compound_dot(a, b, c, beta=1.0, bsum=sums)
    assert c.get()[0, 0] == 1 + 2.0**-10  # 1 + 2^-11 + 2^-12 rounds up; each sum by itself rounded would stay 1
    assert sums.get()[0, 0] == c.get()[0, 0]
    many, row, column = (be.ones(shape, dtype=np.float16) for shape in ((4096, 2, 2), (1, 2), (2, 1)))
    assert be.batched_dot(row, many, be.zeros((1, 2), dtype=np.float16)).get().tolist() == [[8192, 8192]]
    assert be.batched_dot(many, column, be.zeros((2, 1), dtype=np.float16)).get().tolist() == [[8192], [8192]]


def test_size_zero_products(be: Backend) -> None:
    out = be.empty((2, 3)).fill(np.nan)
    be.compound_dot(be.zeros((2, 0)), be.zeros((0, 3)), out, relu=True)
    assert not out.get().any()
    be.batched_dot(be.zeros((0, 2, 4)), be.zeros((0, 4, 3)), out.fill(np.nan))
    assert not out.get().any()
    be.xnor_compound_dot(be.zeros((2, 0)), be.zeros((0, 3)), out.fill(np.nan))
    assert not out.get().any()
    be.xnor_compound_dot(be.zeros((0, 2)), be.zeros((2, 3)), be.zeros((0, 3)))


# xnor_compound_dot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 63, 2), (4, 64, 16), (5, 65, 17), (2, 127, 33), (7, 129, 64), (33, 300, 65), (1, 4100, 3)]
)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_signs_of_any_size_and_layout(
    be: Backend, rng: np.random.Generator, sizes: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    m, k, n = sizes
    left, right = rng.normal(size=(m, k)), rng.integers(-1, 2, size=(k, n)).astype(float)
    a = be.array(left.T).T if turned[0] else be.array(left)
    b = be.array(right.T).T if turned[1] else be.array(right)
    c, sums = be.empty((m, n)).fill(np.nan), be.zeros((m, 1))
    wanted = signs(left) @ signs(right)
    assert be.xnor_compound_dot(a, b, c, bsum=sums) is c
    assert np.array_equal(c.get(), wanted)
    assert np.array_equal(sums.get(), wanted.sum(1, keepdims=True))
    c.fill(2)
    be.xnor_compound_dot(a, b, c, beta=0.5, bsum=sums)
    assert np.array_equal(c.get(), wanted + 1)
    assert np.array_equal(sums.get(), (wanted + 1).sum(1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_signs_of_zero_nan_and_inf(be: Backend, dtype: str) -> None:
    values = np.array([[0, 5, -5, 1]]) if dtype == "int8" else np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, -1e-30]])
    a, k = be.array(values, dtype=dtype), values.size
    if dtype == "float16":
        values = values.astype(np.float16)  # in which -1e-30 is -0
    c = be.zeros((1, 1), dtype=dtype)
    be.xnor_compound_dot(a, be.ones((k, 1), dtype=dtype), c)
    assert c.get()[0, 0] == signs(values).sum()
    long = np.tile(values, 20)[:, :80]  # more than a word
    be.xnor_compound_dot(be.array(long, dtype=dtype), be.ones((80, 1), dtype=dtype), c)
    assert c.get()[0, 0] == signs(long).sum()
    be.xnor_compound_dot(be.ones((1, 80), dtype=dtype), be.array(long, dtype=dtype).T, c)
    assert c.get()[0, 0] == signs(long).sum()


def test_signs_of_strided_views_and_in_place(be: Backend, rng: np.random.Generator) -> None:
    whole = rng.normal(size=(140, 210))
    t = be.array(whole)
    a, b = t[::2, ::3], t[::2, 1::3].T
    out = be.zeros((70, 140))[:, ::2]
    wanted = signs(whole[::2, ::3]) @ signs(whole[::2, 1::3].T)
    be.xnor_compound_dot(a, b, out)
    assert np.array_equal(out.get(), wanted)
    square = be.array(whole[:70, :70])
    be.xnor_compound_dot(square, square.T, square)
    assert np.array_equal(square.get(), signs(whole[:70, :70]) @ signs(whole[:70, :70].T))
    be.xnor_compound_dot(a, b, a[:, :70], beta=1.0)
    assert np.allclose(a.get(), wanted + whole[::2, ::3], rtol=1e-5, atol=1e-5)


@pytest.mark.backend
def test_kernel_definition_and_threads_agree(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    for be in backend("c"):
        a, b = be.array(rng.normal(size=(150, 1000))), be.array(rng.normal(size=(1000, 130)))
        for dtype in (np.float32, np.float64):
            left, right = (be.empty_like(t, dtype=dtype).copy(t) for t in (a, b))
            results = []
            for threads in ("1", "2", "5"):
                use_threads(monkeypatch, threads)
                results.append(be.xnor_compound_dot(left, right, be.zeros((150, 130), dtype=dtype)).get())
            defined = be.zeros((150, 130), dtype=dtype)
            LinalgFamily._xnor_dot(be, Product(), left, right, defined, None)
            assert all(np.array_equal(defined.get(), result) for result in results)


def test_bad_products_of_signs_leave_c(be: Backend) -> None:
    a, b, c = be.ones((3, 4)), be.ones((4, 2)), be.ones((3, 2))
    for error, call in (
        (ShapeError, lambda: be.xnor_compound_dot(b, a, c)),
        (ShapeError, lambda: be.xnor_compound_dot(a, b, c, bsum=be.zeros((2, 1)))),
        (AliasError, lambda: be.xnor_compound_dot(a, b, c, bsum=c[:, 0])),
        (DTypeError, lambda: be.xnor_compound_dot(a, be.ones((4, 2), dtype=np.float64), c)),
        (DTypeError, lambda: be.xnor_compound_dot(a, None, c)),
        (DTypeError, lambda: be.xnor_compound_dot(a, b.get(), c)),
    ):
        with pytest.raises(error, match="xnor_compound_dot"):
            call()
    assert (c.get() == 1).all()


def test_transposes_of_sequences(be: Backend, rng: np.random.Generator) -> None:
    host = rng.normal(size=(3, 4, 5))
    t, out = be.array(host), be.zeros((5, 3, 4))
    be.copy_transpose(t, out, axes=(2, 0, 1), repeat=1)
    assert np.array_equal(out.get(), t.get().transpose(2, 0, 1))
    wide = be.zeros((10, 8))[::2, ::2]
    be.copy_transpose(t[0], wide)
    assert np.array_equal(wide.get(), t.get()[0].T)
