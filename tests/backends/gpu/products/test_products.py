"""Products inside expressions on a GPU: the choice of cuBLAS or our kernel, the copies, and the later stages."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


class Multiplied:
    """Counts of the calls of cuBLAS, copies and our own kernel."""

    def __init__(self, be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blas = self.copies = self.own = 0
        handle, kernels = be.products.blas.handle, be.products.kernels
        if handle is not None:
            for name in ("gemm", "gemms"):
                monkeypatch.setattr(handle, name, self._counting("blas", getattr(handle, name)))
        copy, product = (self._counting(*x) for x in (("copies", kernels.copy), ("own", kernels.product)))
        monkeypatch.setattr(be.products, "kernels", type(kernels)(copy, product))

    def _counting(self, name: str, function: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return function(*arguments)

        return counted

    def taken(self) -> tuple[int, int, int]:
        """Products by cuBLAS, copies, and products by our own kernel since it was last asked."""
        found = self.blas, self.copies, self.own
        self.blas = self.copies = self.own = 0
        return found


@pytest.fixture
def multiplied(be: Any, monkeypatch: pytest.MonkeyPatch) -> Multiplied:
    """Who multiplied on ``be``."""
    return Multiplied(be, monkeypatch)


def host(rng: np.random.Generator, *shape: int) -> Any:
    """Small integers, whose products are exact in every dtype."""
    return rng.integers(-4, 5, shape).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_products_in_expressions_are_cublas(
    be: Any, rng: np.random.Generator, multiplied: Multiplied, dtype: str
) -> None:
    a, b, c = host(rng, 7, 5), host(rng, 5, 9), host(rng, 7, 9)
    A, B, C = (be.array(x, dtype=dtype) for x in (a, b, c))
    out, turned = be.empty((7, 9), dtype=dtype), be.empty((9, 7), dtype=dtype)
    out[:] = be.dot(A, B)
    turned.T[:] = be.dot(A, B)
    assert np.array_equal(out.get(), a @ b) and np.array_equal(turned.get(), (a @ b).T)
    assert multiplied.taken() == (2, 0, 0)
    out[:] = be.dot(A, B) * 0.5 + C
    assert np.array_equal(out.get(), a @ b * 0.5 + c)
    out[:] = be.dot(B.T, A.T).T - C
    assert np.array_equal(out.get(), a @ b - c)
    assert multiplied.taken() == (2, 0, 0)
    run = be.prepare(out, be.dot(A, B))
    multiplied.taken()
    A[:] = -1 * A
    run()
    assert np.array_equal(out.get(), -a @ b) and multiplied.taken() == (1, 0, 0)


def test_targets_that_are_read(be: Any, rng: np.random.Generator, multiplied: Multiplied) -> None:
    a = host(rng, 6, 6)
    A = be.array(a)
    A[:] = be.dot(A, A)
    A[:] = be.dot(A, be.ones((6, 6))) + A
    assert np.array_equal(A.get(), a @ a @ np.ones((6, 6)) + a @ a)
    A = be.array(a)
    A[:3, :3] = be.dot(A[1:4], A[:, 2:5])
    assert np.array_equal(A.get()[:3, :3], a[1:4] @ a[:, 2:5]) and np.array_equal(A.get()[3:], a[3:])
    assert multiplied.taken() == (3, 0, 0)


@pytest.mark.parametrize(
    ("dtypes", "counts"),
    [
        (("float16", "float16", "float32"), (1, 0, 0)),
        (("float32", "float16", "float32"), (1, 1, 0)),
        (("bfloat16", "bfloat16", "float32"), (1, 0, 0)),
        (("bfloat16", "float16", "bfloat16"), (1, 3, 0)),
        (("float16", "float64", "float64"), (1, 1, 0)),
        (("float32", "float32", "float16"), (1, 1, 0)),
        (("float32", "float32", "float64"), (1, 1, 0)),
        (("float32", "float32", "int16"), (1, 1, 0)),
        (("float32", "int8", "float32"), (1, 1, 0)),
        (("int8", "int8", "int32"), (0, 0, 1)),
        (("uint8", "int64", "float32"), (0, 0, 1)),
    ],
    ids=lambda value: "-".join(map(str, value)),
)
def test_mixed_dtypes(
    be: Any, rng: np.random.Generator, multiplied: Multiplied, dtypes: Any, counts: tuple[int, int, int]
) -> None:
    a, b = np.abs(host(rng, 7, 5)), host(rng, 5, 9)
    out = be.empty((7, 9), dtype=dtypes[2])
    out[:] = be.dot(be.array(a, dtype=dtypes[0]), be.array(b, dtype=dtypes[1]))
    assert np.array_equal(out.get(), a @ b)
    assert multiplied.taken() == counts


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_only_what_has_gaps_is_copied(be: Any, rng: np.random.Generator, multiplied: Multiplied, dtype: str) -> None:
    a, b, c = host(rng, 8, 10), host(rng, 10, 12), host(rng, 8, 12)
    for strided in itertools.product([False, True], repeat=3):
        A, B, C = (
            be.array(np.repeat(x, 2, axis=1), dtype=dtype)[:, ::2] if gaps else be.array(x, dtype=dtype)
            for x, gaps in zip((a, b, c), strided)
        )
        multiplied.taken()
        be.compound_dot(A, B, C, 0.5)
        assert np.array_equal(C.get(), a @ b * 0.5)
        assert multiplied.taken() == (1, sum(strided), 0)
        be.compound_dot(A, B, C, 1.0, 2.0)
        assert np.array_equal(C.get(), 2 * (a @ b))
        assert multiplied.taken() == (1, sum(strided) + strided[2], 0)


def test_nothing_to_sum_is_ours(be: Any, multiplied: Multiplied) -> None:
    c = be.ones((2, 3))
    be.compound_dot(be.empty((2, 0)), be.empty((0, 3)), c, beta=2.0)
    assert (c.get() == 2).all() and multiplied.taken() == (0, 0, 1)
    c[:] = be.dot(be.empty((2, 0)), be.empty((0, 3)))
    assert not c.get().any() and multiplied.taken() == (0, 0, 1)
    be.compound_dot(be.empty((0, 2)), be.empty((2, 0)), be.empty((0, 0)))
    assert multiplied.taken() == (0, 0, 0)


def test_beyond_32_bits_is_ours(be: Any, monkeypatch: pytest.MonkeyPatch, multiplied: Multiplied) -> None:
    monkeypatch.setattr("neonlike.backends.gpu.products.blas.LARGEST", 4)
    c = be.empty((3, 3))
    be.compound_dot(be.ones((3, 4)), be.ones((4, 3)), c)
    assert (c.get() == 4).all() and multiplied.taken() == (1, 0, 0)
    be.compound_dot(be.ones((3, 5)), be.ones((5, 3)), c)
    assert (c.get() == 5).all()
    assert multiplied.taken()[0::2] == (0, 1)
    tall = be.empty((5, 1))
    be.compound_dot(be.ones((5, 1)), be.ones((1, 1)), tall)
    assert (tall.get() == 1).all() and multiplied.taken()[0::2] == (0, 1)


def test_results_are_rounded_as_the_target_asks(be: Any) -> None:
    a = be.array(np.full((32, 1), 1 + 2.0**-6))
    out = be.empty((32, 32))
    out.rounding = 4
    for scale in (1.0, 2.0):
        be.compound_dot(a, a.T, out, scale)
        bits = out.get().view(np.uint32)
        assert not (bits & (2**19 - 1)).any() and len(np.unique(bits)) == 2


def test_gradients_multiply_transposed_views(be: Any, rng: np.random.Generator, multiplied: Multiplied) -> None:
    from neonlike.backends import Autodiff

    a, b = host(rng, 4, 6), host(rng, 6, 3)
    A, B = be.array(a), be.array(b)
    grad_a, grad_b = Autodiff(be.dot(A, B), be).get_grad_tensor([A, B])
    assert np.array_equal(grad_a.get(), np.ones((4, 3)) @ b.T) and np.array_equal(grad_b.get(), a.T @ np.ones((4, 3)))
    blas, copies, own = multiplied.taken()
    assert (blas, own) == (2, 0) and copies <= 1


def test_our_own_kernel_gives_the_same(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    from neonlike.backends.gpu.products import cublas

    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setenv(cublas.SETTING, "none")
    with gen_backend("gpu") as be:
        multiplied = Multiplied(be, monkeypatch)
        dtypes = "float16", "bfloat16", "float32", "float64"
        for dtype, (m, k, n) in itertools.product(dtypes, [(3, 5, 2), (65, 17, 70)]):
            a, b, c = host(rng, m, k), host(rng, k, n), host(rng, m, n)
            A, B, C = (be.array(x, dtype=dtype) for x in (a, b, c))
            be.compound_dot(A, B, C, 0.5, 2.0)
            assert np.array_equal(C.get(), a @ b * 0.5 + 2 * c)
            C.fill(np.nan)
            be.compound_dot(A, B, C, 0.5)
            assert np.array_equal(C.get(), a @ b * 0.5)
            C.T[:] = be.dot(B.T, A.T)
            assert np.array_equal(C.get(), a @ b)
            stack = be.empty((2, m, n), dtype=dtype)
            be.batched_dot(be.array(np.stack([a, -a]), dtype=dtype), B, stack)
            assert np.array_equal(stack.get(), np.stack([a @ b, -a @ b]))
            assert multiplied.taken() == (0, 0, 4)
            with monkeypatch.context() as watched:
                launched: list[Any] = []
                launch = be.device.launch
                watched.setattr(be.device, "launch", lambda *given: (launched.append(given), launch(*given))[1])  # noqa: B023
                C.set(c)
                be.compound_dot(A, B, C, 0.5, -2.0, relu=True)
                assert np.array_equal(C.get(), np.maximum(a @ b * 0.5, 0) - 2 * c)
                assert len(launched) == 1
            be.batched_dot(be.array(np.stack([a, -a]), dtype=dtype), B, stack, relu=True)
            assert np.array_equal(stack.get(), np.maximum(np.stack([a @ b, -a @ b]), 0))
            assert multiplied.taken() == (0, 0, 2)
            A[:1, :1] = np.nan
            be.compound_dot(A, B, C, relu=True)
            assert np.isnan(C.get()[0]).all()
            assert np.array_equal(C.get()[1:], np.maximum(a @ b, 0)[1:])
            multiplied.taken()


@pytest.mark.parametrize("library", ["", "none"])
def test_a_product_that_may_be_repeated_keeps_its_memory(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Products by cuBLAS and by our own kernel hold their working memory, as unrolls of recurrent layers rely on it."""
    from neonlike.backends.gpu.products import cublas

    monkeypatch.setattr(cublas, "_handles", {})
    monkeypatch.setenv(cublas.SETTING, library)
    with gen_backend("gpu") as be:
        for shapes in (((4, 3), (3, 5), (4, 5)), ((2, 4, 3), (2, 3, 5), (2, 4, 5))):
            arrays = [be.device.empty(shape, np.dtype(np.float32)) for shape in shapes]
            memory = [weakref.ref(array.memory) for array in arrays]
            call = be.products.ready(*arrays, np.dtype(np.float32))
            del arrays
            gc.collect()
            assert all(kept() is not None for kept in memory)
            call()
            del call
            gc.collect()
            assert not any(kept() is not None for kept in memory)
