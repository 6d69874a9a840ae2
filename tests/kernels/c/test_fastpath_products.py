"""Small matrix products, which the extension starts in NumPy's library: NumPy's results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.kernels.c import fastpath
from neonlike.kernels.c.numpy_blas import openblas
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


def test_a_product_of_a_matrix_and_its_transpose_does_not_depend_on_what_came_before(fast: Backend) -> None:
    a, b, c = some(fast, 20, 30), some(fast, 20, 30), fast.empty((20, 20))
    right = np.matmul(a.array, a.array.T)  # for which BLAS libraries have a function of its own
    for _ in range(2):
        fast.compound_dot(a, a.T, c)
        assert c.get().tobytes() == right.tobytes()
        fast.compound_dot(b, a.T, c)
    with pytest.raises(DTypeError):
        fast.compound_dot(a, a.T.get(), c)
