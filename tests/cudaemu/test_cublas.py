"""The emulated cuBLAS, through ctypes and through scikit-cuda, against NumPy in float64."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.emulator

N, T = 0, 1  # operations: plain, transposed
FLOAT32, FLOAT64, FLOAT16, BFLOAT16 = 0, 1, 2, 14  # cudaDataType_t
COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32 = 68, 70, 77


@pytest.fixture
def library(cuda: Any) -> ctypes.CDLL:
    return ctypes.CDLL("libcublas.so")


@pytest.fixture
def handle(library: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    made = ctypes.c_void_p()
    assert library.cublasCreate_v2(ctypes.byref(made)) == 0
    yield made
    assert library.cublasDestroy_v2(made) == 0


def address(memory: Any, offset: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(memory) + offset)


def column_major(cuda: Any, matrix: np.ndarray) -> Any:
    return cuda.to_device(np.ascontiguousarray(matrix.T))


def scalars(dtype: Any, *values: float) -> list[Any]:
    """Pointers to numbers in host memory; keeps them alive by holding the arrays."""
    arrays = [np.array([value], dtype) for value in values]
    return [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]


@pytest.mark.parametrize(
    ("letter", "dtype", "tolerance"),
    [("S", np.float32, 1e-5), ("D", np.float64, 1e-13), ("H", np.float16, 4e-3)],
)
@pytest.mark.parametrize(("op_a", "op_b"), [(N, N), (N, T), (T, N), (T, T)])
def test_products_of_every_type_and_transposition(
    cuda: Any,
    library: ctypes.CDLL,
    handle: Any,
    rng: np.random.Generator,
    letter: str,
    dtype: Any,
    tolerance: float,
    op_a: int,
    op_b: int,
) -> None:
    m, n, k = 7, 5, 9
    a, b, c = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
    on_a, on_b, on_c = (column_major(cuda, x) for x in (a.T if op_a else a, b.T if op_b else b, c))
    function = getattr(library, "cublasHgemm" if letter == "H" else f"cublas{letter}gemm_v2")
    alpha, beta = scalars(dtype, 2.0, 0.5)
    status = function(
        handle,
        op_a,
        op_b,
        m,
        n,
        k,
        alpha,
        address(on_a),
        k if op_a else m,
        address(on_b),
        n if op_b else k,
        beta,
        address(on_c),
        m,
    )
    assert status == 0
    got = cuda.from_device(on_c, (n, m), dtype).T
    expected = 2 * a.astype(float) @ b.astype(float) + 0.5 * c.astype(float)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=4 * tolerance)


def test_beta_of_zero_does_not_read_the_result(cuda: Any, library: ctypes.CDLL, handle: Any) -> None:
    a, c = column_major(cuda, np.eye(2, dtype=np.float32)), cuda.mem_alloc(16)  # new memory holds nans
    alpha, beta = scalars(np.float32, 1.0, 0.0)
    assert (
        library.cublasSgemm_v2(
            handle, N, N, 2, 2, 2, alpha, address(a), 2, address(a), 2, beta, address(c), 2
        )
        == 0
    )
    assert (cuda.from_device(c, (2, 2), np.float32) == np.eye(2)).all()


def as_bfloat(values: np.ndarray) -> np.ndarray:
    """float32 with the bits that bfloat16 drops set to zero."""
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


NUMPY: dict[int, Any] = {FLOAT32: np.float32, FLOAT64: np.float64, FLOAT16: np.float16, BFLOAT16: np.uint16}
"""What holds the elements on the host, by cudaDataType_t."""
M = 6
"""Rows and columns."""


def stored(values: np.ndarray, kind: int) -> np.ndarray:
    """Matrices as cuBLAS takes them: by columns, in the type ``kind``."""
    turned = np.ascontiguousarray(values.transpose(0, 2, 1))
    return (turned.view(np.uint32) >> 16).astype(np.uint16) if kind == BFLOAT16 else turned.astype(NUMPY[kind])


def multiplied(
    cuda: Any, library: ctypes.CDLL, handle: Any, a: np.ndarray, b: np.ndarray, types: tuple[int, int, int], batch: int
) -> np.ndarray:
    """The products by ``GemmEx``, or ``GemmStridedBatchedEx`` where there is a batch; types as in the test below."""
    factors, result, compute = types
    held = [cuda.to_device(stored(x, factors)) for x in (a, b)]
    held.append(cuda.mem_alloc(a.size * np.dtype(NUMPY[result]).itemsize))
    on_a, on_b, on_c = map(address, held)
    alpha, beta = scalars(np.float64 if compute == COMPUTE_64F else np.float32, 1.0, 0.0)
    step = ctypes.c_longlong(M * M)
    if batch:
        status = library.cublasGemmStridedBatchedEx(
            handle, N, N, M, M, M, alpha, on_a, factors, M, step, on_b, factors, M, step, beta,
            on_c, result, M, step, batch, compute, -1,
        )  # fmt: skip
    else:
        status = library.cublasGemmEx(
            handle, N, N, M, M, M, alpha, on_a, factors, M, on_b, factors, M, beta, on_c, result, M, compute, -1,
        )  # fmt: skip
    assert status == 0
    got = cuda.from_device(held[2], a.shape, NUMPY[result]).transpose(0, 2, 1)
    return (got.astype(np.uint32) << 16).view(np.float32) if result == BFLOAT16 else got


@pytest.mark.parametrize(
    "types",
    [
        (FLOAT32, FLOAT32, COMPUTE_32F),
        (FLOAT32, FLOAT32, COMPUTE_TF32),
        (FLOAT64, FLOAT64, COMPUTE_64F),
        (FLOAT16, FLOAT16, COMPUTE_32F),
        (FLOAT16, FLOAT32, COMPUTE_32F),
        (BFLOAT16, FLOAT32, COMPUTE_32F),
        (BFLOAT16, BFLOAT16, COMPUTE_32F),
    ],
)
@pytest.mark.parametrize("batch", [0, 3])
def test_products_of_mixed_types(
    cuda: Any, library: ctypes.CDLL, handle: Any, rng: np.random.Generator, types: tuple[int, int, int], batch: int
) -> None:
    """``types`` are those of factors and result, and the one that is computed in."""
    a, b = (as_bfloat(rng.normal(size=(max(batch, 1), M, M))) for _ in range(2))
    got = multiplied(cuda, library, handle, a, b, types, batch)
    tolerance = {FLOAT16: 2e-3, BFLOAT16: 1e-2}.get(types[1], 1e-5)
    np.testing.assert_allclose(got, a.astype(float) @ b.astype(float), rtol=tolerance, atol=10 * tolerance)


def test_tf32_rounds_the_factors_and_only_when_asked(cuda: Any, library: ctypes.CDLL, handle: Any) -> None:
    value = np.float32(1 + 2**-12)  # more bits than TF32 has
    a, b, c = cuda.to_device(np.array([value])), cuda.to_device(np.ones(1, np.float32)), cuda.mem_alloc(4)
    alpha, beta = scalars(np.float32, 1.0, 0.0)

    def product() -> float:
        assert (
            library.cublasSgemm_v2(
                handle, N, N, 1, 1, 1, alpha, address(a), 1, address(b), 1, beta, address(c), 1
            )
            == 0
        )
        return float(cuda.from_device(c, (1,), np.float32)[0])

    assert product() == value
    assert library.cublasSetMathMode(handle, 3) == 0
    assert product() == 1


def test_strided_batches(cuda: Any, library: ctypes.CDLL, handle: Any, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(4, 3, 6)).astype(np.float32), rng.normal(size=(4, 6, 2)).astype(np.float32)
    on_a, on_b, on_c = cuda.to_device(a), cuda.to_device(b), cuda.mem_alloc(4 * 3 * 2 * 4)
    alpha, beta = scalars(np.float32, 1.0, 0.0)
    # Row-major C = A B is column-major C' = B' A'.
    stride = ctypes.c_longlong
    assert 0 == library.cublasSgemmStridedBatched(
        handle,
        N,
        N,
        2,
        3,
        6,
        alpha,
        address(on_b),
        2,
        stride(12),
        address(on_a),
        6,
        stride(18),
        beta,
        address(on_c),
        2,
        stride(6),
        4,
    )
    np.testing.assert_allclose(cuda.from_device(on_c, (4, 3, 2), np.float32), a @ b, rtol=1e-5, atol=1e-5)


def test_work_goes_to_the_stream_of_the_handle(
    cuda: Any, library: ctypes.CDLL, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUEMU_ASYNC", "1")
    stream, host = cuda.Stream(), cuda.pagelocked_zeros(1, np.float32)
    a, c = cuda.to_device(np.full(1, 3, np.float32)), cuda.mem_alloc(4)
    assert library.cublasSetStream_v2(handle, ctypes.c_void_p(stream.handle)) == 0
    alpha, beta = scalars(np.float32, 1.0, 0.0)
    assert (
        library.cublasSgemm_v2(
            handle, N, N, 1, 1, 1, alpha, address(a), 1, address(a), 1, beta, address(c), 1
        )
        == 0
    )
    cuda.memcpy_dtoh_async(host, c, stream)
    assert host[0] == 0
    stream.synchronize()
    assert host[0] == 9


def test_wrong_calls_are_refused(cuda: Any, library: ctypes.CDLL, handle: Any) -> None:
    a = cuda.to_device(np.zeros(16, np.float32))
    alpha, beta = scalars(np.float32, 1.0, 0.0)

    def status(m: int, ld: int, used: Any = handle) -> int:
        return int(
            library.cublasSgemm_v2(
                used, N, N, m, 4, 4, alpha, address(a), ld, address(a), 4, beta, address(a), ld
            )
        )

    assert status(4, 4) == 0
    assert status(4, 3) == 7  # an invalid leading dimension
    assert status(8, 8) == 13  # past the end of the allocation
    assert status(4, 4, ctypes.c_void_p()) == 1  # no handle
    assert library.cublasSsymm_v2() == 15  # not emulated


def test_scikit_cuda_runs_on_it(cuda: Any, gpu_driver: Any, rng: np.random.Generator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pkg_resources, and of a context made to learn the version
        from skcuda import cublas, cudart
    if gpu_driver.emulator is not None:  # it needs nothing of a toolkit
        ours = ctypes.CDLL(str(gpu_driver.emulator.folder / "lib" / "libcudart.so"))
        assert cudart._libcudart._handle == ours._handle
    a, b = rng.normal(size=(3, 6)).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    on_a, on_b, on_c = cuda.to_device(a), cuda.to_device(b), cuda.mem_alloc(24)
    handle = cublas.cublasCreate()
    cublas.cublasSgemm(
        handle, "n", "n", 2, 3, 6, np.float32(1), int(on_b), 2, int(on_a), 6, np.float32(0), int(on_c), 2
    )
    cublas.cublasDestroy(handle)
    np.testing.assert_allclose(cuda.from_device(on_c, (3, 2), np.float32), a @ b, rtol=1e-5, atol=1e-5)
