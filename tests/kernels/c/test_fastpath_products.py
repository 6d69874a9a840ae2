"""Small matrix products, which the extension starts in NumPy's library: NumPy's results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.kernels.c import fastpath
from neonlike.kernels.c.numpy_blas import openblas
from neonlike.optree.dtypes import bfloat16
from tests.backends.repeatable_calls import some
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("calls of compiled C"),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_products_are_numpys_bit_for_bit(fast: Backend, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    shapes = [(2, 2, 2), (10, 64, 128), (64, 10, 128), (10, 128, 64), (3, 7, 5), (1, 9, 9), (9, 9, 1), (9, 1, 9)]
    for m, k, n in shapes:
        for turned in range(4):
            a, b = (fast.array(rng.standard_normal(shape), dtype=dtype) for shape in ((m, k), (k, n)))
            a = fast.array(a.get().T.copy(), dtype=dtype).T if turned & 1 else a
            b = fast.array(b.get().T.copy(), dtype=dtype).T if turned & 2 else b
            c = fast.empty((m, n), dtype=dtype)
            for _ in range(2):
                c[:] = 0
                assert fast.compound_dot(a, b, c) is c
                assert c.get().tobytes() == np.matmul(a.array, b.array).tobytes(), (m, k, n, turned)
    assert (openblas() is None or fast.executor.replay.table.calls >= len(shapes))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
@pytest.mark.parametrize("turned", range(4))
def test_products_of_16_bits_in_expressions(fast: Backend, dtype: Any, turned: int) -> None:
    """They run in a program with their conversions, and are those of the same numbers in float32, rounded once."""
    rng, precisions = np.random.default_rng(2), ["float32", "bfloat16"]  # bfloat16 is multiplied as it is
    if dtype == np.float16:
        precisions.reverse()  # and float16 is not rounded
    for m, k, n in [(3, 7, 5), (64, 96, 70)]:
        values = [rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n), (m, 1))]
        found = []
        for kind, precision in zip((dtype, np.dtype(np.float32)), precisions):
            fast.product_precision = precision
            a, b, c = (fast.array(x.T.copy() if turned >> i & 1 else x, dtype=kind) for i, x in enumerate(values))
            a, b = a.T if turned & 1 else a, b.T if turned & 2 else b
            out, more = fast.empty((m, n), dtype=kind), fast.empty((m, n), dtype=kind)
            for _ in range(3):
                out.fill(0)
                more.fill(0)
                before = fast.executor.replay.table.hits
                out[:] = fast.dot(a, b)
                more[:] = fast.tanh(fast.dot(a, b) + c)
            assert fast.executor.replay.table.hits == before + 2
            found.append([out.get().astype(dtype), more.get().astype(dtype)])
        assert found[0][0].tobytes() == found[1][0].tobytes()
        np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("batched", [False, True])
def test_a_factor_in_reverse_is_not_overwritten_while_it_is_read(fast: Backend, batched: bool) -> None:
    """Its memory lies in front of its address: a call learned apart from it may not be repeated on a part of that."""
    rng = np.random.default_rng(0)
    shape = (3, 8, 8) if batched else (512, 640)
    other = fast.array(rng.standard_normal((3, 8, 2) if batched else (640, 32)))
    multiply = fast.batched_dot if batched else fast.compound_dot
    for _ in range(3):
        multiply(fast.array(rng.standard_normal(shape))[::-1], other, fast.empty((*shape[:-1], other.shape[-1])))
    memory = fast.array(rng.standard_normal((int(np.prod(shape)),)))
    factor = memory.reshape(shape)[::-1]
    out = memory[: int(np.prod(shape[:-1])) * other.shape[-1]].reshape((*shape[:-1], other.shape[-1]))
    wanted = factor.get() @ other.get()
    multiply(factor, other, out)
    np.testing.assert_allclose(out.get(), wanted, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_parts_of_matrices_of_16_bits_in_expressions(fast: Backend, precision: str, dtype: Any) -> None:
    """Copied without gaps as a step of the program, they give what Python gives."""
    fast.product_precision = precision
    rng = np.random.default_rng(3)
    for m, k, n in [(3, 7, 5), (64, 96, 70)]:
        whole, other = (fast.array(rng.standard_normal((2 * r, 2 * c)), dtype=dtype) for r, c in ((m, k), (k, n)))
        for a, b in [(whole[:m, 1 : k + 1], other[::2, ::2]), (whole[::-2, 1::2], other[k:, n:])]:
            out, right = (fast.empty((m, n), dtype=dtype) for _ in range(2))
            with fast.executor.replay.paused():
                right[:] = fast.dot(a, b) * 0.5
            for turn in range(3):
                out.fill(0)
                before = fast.executor.replay.table.hits
                out[:] = fast.dot(a, b) * 0.5
                assert turn == 0 or fast.executor.replay.table.hits == before + 1
                assert out.get().tobytes() == right.get().tobytes()


def test_a_part_of_a_matrix_of_16_bits_is_copied(fast: Backend) -> None:
    whole = fast.array(np.arange(70, dtype=np.float16).reshape(7, 10) / 8, dtype=np.float16)
    part, other, out = whole[:, 2:9], fast.array(np.eye(7), dtype=np.float16), fast.empty((7, 7), dtype=np.float16)
    for _ in range(3):
        out[:] = 0
        fast.compound_dot(part, other, out)
        np.testing.assert_array_equal(out.get(), whole.get()[:, 2:9])
        out[:] = 0
        out[:] = fast.dot(part, other)
        np.testing.assert_array_equal(out.get(), whole.get()[:, 2:9])


def test_a_product_of_a_matrix_and_its_transpose_does_not_depend_on_what_came_before(fast: Backend) -> None:
    a, b, c = some(fast, 20, 30), some(fast, 20, 30), fast.empty((20, 20))
    right = np.matmul(a.array, a.array.T)  # for which BLAS libraries have a function of its own
    for _ in range(2):
        fast.compound_dot(a, a.T, c)
        assert c.get().tobytes() == right.tobytes()
        fast.compound_dot(b, a.T, c)
    with pytest.raises(DTypeError):
        fast.compound_dot(a, a.T.get(), c)
