"""Other objects of a backend: workspaces, the backend of the host's memory, and BLAS operations in a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import NervanaCPU
from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import AliasError, ArgumentError, ArgumentTypeError, DTypeError, OtherBackend, ShapeError
from tests.support.engines import ON_GPU, new_backend

pytestmark = pytest.mark.engines("numpy", "c")


# Workspaces -----------------------------------------------------------------------------------------------------------


def test_layers_work_in_one_memory(be: Any) -> None:
    """As a network of two layers uses a workspace of the size that the larger one needs."""
    needs = [TensorDesc((4, 3), "f4", "CN"), TensorDesc((5, 2), "f8", "CN")]
    work = be.workspace(max(desc.nbytes for desc in needs))
    assert work.nbytes == 80 and "80 bytes" in repr(work)
    first, second = (work.tensor(desc) for desc in needs)
    assert first.ptr == second.ptr and second.desc == needs[1] and first.alias_of(second)
    first[:] = 1
    second[:] = np.arange(10).reshape(5, 2)
    assert second.get().tolist() == np.arange(10).reshape(5, 2).tolist()
    assert np.array_equal(first.get().ravel(), second.get().view("f4").ravel()[:12], equal_nan=True)


def test_tensors_side_by_side(be: Any) -> None:
    descs = [TensorDesc((3, 3), "f4"), TensorDesc((1, 1), "i1"), TensorDesc((40, 1), "f8")]
    made = be.workspace(256 + 320).tensors(*descs)
    assert [t.ptr - made[0].ptr for t in made] == [0, 128, 256]
    for number, tensor in enumerate(made):
        tensor.fill(number + 1)
    assert [set(t.get().ravel().tolist()) for t in made] == [{1}, {2}, {3}]


def test_offsets_and_dtypes(be: Any) -> None:
    work = be.workspace(64)
    assert work.tensor(3).shape == (3, 1) and work.tensor(3).dtype == be.default_dtype
    assert work.tensor((2, 2), "f2", 8).ptr == work.tensor((2, 2)).ptr + 8
    assert be.workspace(0).tensor((0, 3)).size == 0
    for given, error, words in (
        (((4, 5),), RuntimeError, r"\(4, 5\) of float32 takes 80 bytes from 0 on, there are 64"),
        (((4, 4), None, 4), RuntimeError, "takes 64 bytes from 4 on"),
        (((2, 2), "f8", 4), ArgumentError, "offset must be a multiple of 8"),
        (((2, 2), "f8", -8), ArgumentError, "offset must be a multiple of 8"),
        (((2, 2), "c8"), DTypeError, "cannot hold"),
        (((2, -2),), ShapeError, "must not be negative"),
    ):
        with pytest.raises(error, match=words):
            work.tensor(*given)
    for wrong, error in ((-1, ArgumentError), (1.5, ArgumentTypeError), ("1", ArgumentTypeError)):
        with pytest.raises(error, match="workspace: nbytes must"):
            be.workspace(wrong)


# The host's backend ---------------------------------------------------------------------------------------------------


def test_the_host_has_a_backend(be: Any) -> None:
    native = be.native
    assert isinstance(native, NervanaCPU) and be.native is native and (native is be) != ON_GPU
    assert (native.bsz, native.default_dtype) == (be.bsz, be.default_dtype)
    there, here = native.array([[1, 2], [3, 4]]), be.zeros((2, 2))
    here[:] = there
    there[:] = here * 10 if native is be else 0
    there.asnumpyarray()[0] = 5
    assert here.get().tolist() == [[1, 2], [3, 4]] and there.get()[0].tolist() == [5, 5]


# BLAS -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_blas_of_each_dtype(be: Any, rng: np.random.Generator, dtype: str) -> None:
    """Vectors and matrices of odd sizes, transposed and strided ones too, against NumPy in float64."""
    blas, close = be.blas(dtype), {"rtol": 1e-2 if dtype == "float16" else 1e-5}
    assert blas.dtype == dtype and dtype in repr(blas)
    a, b, c = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((5, 7), (7, 3), (5, 3)))
    A, B, C = (blas.matrix(host) for host in (a, b, c))
    a, b, c = (host.astype("f8") for host in (a, b, c))
    assert blas.gemm(A, B, C, 2.0, 0.5) is C
    np.testing.assert_allclose(C.get(), 2 * a @ b + 0.5 * c, **close)
    blas.gemm(B.T, A.T, C.T)
    np.testing.assert_allclose(C.get(), a @ b, **close)
    x, y = blas.vector(a[1]), blas.vector(c[:, 1])
    blas.gemv(A, x, y, 1.0, 2.0)
    np.testing.assert_allclose(y.get()[:, 0], a @ a[1] + 2 * c[:, 1], **close)
    blas.gemv(A.T, A[:, 1:2], A[0:1], beta=0.0)
    a[0] = a.T @ a[:, 1]
    np.testing.assert_allclose(A.get(), a, **close)
    blas.ger(blas.vector(c[:, 0]), B[:, 2:], A, -1.0)
    np.testing.assert_allclose(A.get(), a - np.outer(c[:, 0], b[:, 2]), **close)


@pytest.mark.engines("numpy")
def test_blas_of_vectors(be: Any, rng: np.random.Generator) -> None:
    blas, (x, y) = be.blas(), rng.normal(size=(2, 257)).astype("f4")
    X, Y = blas.vector(x), be.array(y[None, :])
    x, y = x.astype("f8"), y.astype("f8")
    assert blas.dot(X, Y) == pytest.approx(x @ y, abs=1e-4)
    assert blas.nrm2(X) == pytest.approx(np.linalg.norm(x), rel=1e-6)
    assert blas.asum(Y) == pytest.approx(np.abs(y).sum(), rel=1e-6)
    assert blas.iamax(X) == np.abs(x).argmax() and type(blas.iamax(Y)) is int
    assert blas.axpy(2.0, X, Y) is Y
    np.testing.assert_allclose(Y.get()[0], 2 * x + y, atol=1e-6)
    assert blas.scal(-1.0, X) is X and np.array_equal(X.get()[:, 0], -x)
    before = X.get(), Y.get()
    blas.swap(X, Y)
    assert np.array_equal(X.get().T, before[1]) and np.array_equal(Y.get().T, before[0])
    assert np.array_equal(blas.copy(X, Y).get(), X.get().T)
    assert (blas.vector(3).get() == 0).all() and blas.matrix(2, 3).shape == (2, 3)


def test_norms_at_the_ends_of_the_range(be: Any) -> None:
    blas = be.blas("float32")
    for values, wanted in (([3e30, 4e30], 5e30), ([3e-30, 4e-30], 5e-30), ([0, 0], 0), ([np.inf, 1], np.inf)):
        assert blas.nrm2(blas.vector(values)) == pytest.approx(wanted, rel=1e-6)
    assert np.isnan(blas.nrm2(blas.vector([1, np.nan])))
    assert blas.nrm2(be.zeros((0, 1))) == 0


def test_blas_takes_no_others(be: Any) -> None:
    blas, x, A = be.blas("f4"), be.ones((3, 1)), be.ones((2, 3))
    for call, error, words in (
        (lambda: blas.dot(x, be.ones((4, 1))), ShapeError, "vectors of one size"),
        (lambda: blas.dot(x, A), ShapeError, r"blas\.dot: y must be a vector"),
        (lambda: blas.axpy(1, x, be.ones((3, 1), dtype="f8")), DTypeError, "y must hold float32, got float64"),
        (lambda: blas.asum([1, 2]), DTypeError, r"blas\.asum: x must be a tensor"),
        (lambda: blas.asum(x + 1), DTypeError, r"blas\.asum: x must be a tensor"),
        (lambda: blas.asum(new_backend(rng_seed=0).ones((3, 1))), OtherBackend, "another backend"),
        (lambda: blas.gemv(A, be.ones((2, 1)), x), ShapeError, "does not give"),
        (lambda: blas.gemm(A, A, A), ShapeError, "does not give"),
        (lambda: blas.swap(x, x), AliasError, "share memory|overlap"),
        (lambda: blas.iamax(be.zeros((0, 1))), ShapeError, "without elements"),
        (lambda: blas.vector(np.ones((2, 2))), ShapeError, "one dimension"),
        (lambda: blas.matrix(np.ones((2, 2, 2))), ShapeError, "two dimensions"),
        (lambda: be.blas("int32"), DTypeError, "blas: dtype must be float16"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert (x.get() == 1).all() and (A.get() == 1).all()
