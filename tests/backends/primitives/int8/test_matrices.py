"""``compound_dot`` of int8 into int32 and float32, against sums of whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError, ShapeError

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.cpu_only("GPUs do not multiply int8")]
DTYPES = (np.int32, np.float32)


def int8(be: Backend, rng: Any, *shape: int) -> Any:
    return be.array(rng.integers(-128, 128, shape), dtype=np.int8)


def exact(a: Any, b: Any) -> Any:
    return a.get().astype(int) @ b.get().astype(int)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 7, 9), (40, 130, 70), (17, 3, 1), (1, 300, 33)])
def test_products_of_any_layout(be: Backend, rng: Any, size: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = size
    a, b, c = int8(be, rng, m, k), int8(be, rng, k, n), be.empty((m, n), dtype=dtype)
    for left, right, out in (
        (a, b, c), (int8(be, rng, k, m).T, b, c), (a, int8(be, rng, n, k).T, c),
        (a, b, be.empty((n, m), dtype=dtype).T), (int8(be, rng, 2 * m, k)[::2], int8(be, rng, k, n + 5)[:, 5:], c),
    ):  # fmt: skip
        for _ in range(3):  # repeated without Python the third time
            out[:] = 0
            assert be.compound_dot(left, right, out) is out
            assert np.array_equal(out.get(), exact(left, right))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_comes_after_the_product(be: Backend, rng: Any, dtype: Any) -> None:
    a, b = int8(be, rng, 6, 20), int8(be, rng, 20, 11)
    c, sums, wanted = be.ones((6, 11), dtype=dtype), be.empty((6, 1), dtype=dtype), exact(a, b)
    be.compound_dot(a, b, c, alpha=2, beta=3, bsum=sums)
    assert np.array_equal(c.get(), 2 * wanted + 3)
    assert np.array_equal(sums.get(), (2 * wanted + 3).sum(axis=1, keepdims=True))
    be.compound_dot(a, b, c, relu=True)
    assert np.array_equal(c.get(), np.maximum(wanted, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums(be: Backend, dtype: Any) -> None:
    a, b = be.full((2, 131073), -128, dtype=np.int8), be.full((131073, 3), -128, dtype=np.int8)
    c, whole = be.empty((2, 3), dtype=dtype), 131073 * 128 * 128
    be.compound_dot(a, b, c)
    assert (c.get() == (whole - 2**32 if dtype is np.int32 else np.float32(whole))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_to_add_gives_zeros(be: Backend, dtype: Any) -> None:
    c = be.ones((2, 3), dtype=dtype)
    be.compound_dot(be.empty((2, 0), dtype=np.int8), be.empty((0, 3), dtype=np.int8), c)
    assert not c.get().any()
    be.compound_dot(be.empty((0, 4), dtype=np.int8), be.empty((4, 3), dtype=np.int8), be.empty((0, 3), dtype=dtype))


def test_a_result_in_the_memory_of_a_factor(be: Backend, rng: Any) -> None:
    memory, b = np.zeros((8, 8), np.int32), int8(be, rng, 32, 8)
    a, c = be.wrap(memory.view(np.int8)), be.wrap(memory)
    for _ in range(3):
        a[:] = int8(be, rng, 8, 32)
        wanted = exact(a, b)
        be.compound_dot(a, b, c)
        assert np.array_equal(memory, wanted)


def test_other_dtypes_are_refused(be: Backend, rng: Any) -> None:
    a, b = int8(be, rng, 2, 3), int8(be, rng, 3, 4)
    with pytest.raises(DTypeError, match="or A and B int8 and C int32 or float32; got A int8, B int8, C int16"):
        be.compound_dot(a, b, be.empty((2, 4), dtype=np.int16))
    with pytest.raises(DTypeError, match="got A int8, B float32, C float32"):
        be.compound_dot(a, be.ones((3, 4), dtype=np.float32), be.empty((2, 4), dtype=np.float32))
    with pytest.raises(DTypeError, match="one dtype; got"):
        be.xnor_compound_dot(a, b, be.empty((2, 4), dtype=np.int32))
    with pytest.raises(ShapeError, match="does not give"):
        be.compound_dot(a, b, be.empty((2, 5), dtype=np.int32))
