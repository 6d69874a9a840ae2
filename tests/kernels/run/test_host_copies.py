"""Large copies between host arrays and tensors, which kernels make, are those that NumPy makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu import tensor as cpu
from neonlike.kernels.c import fastpath
from neonlike.optree.dtypes import bfloat16
from tests.support.dtype_cases import EVERY
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("copies between tensors and arrays on the host"),
]

ROWS, COLUMNS = 37, 53


@pytest.fixture(autouse=True)
def kernels_copy_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays, too."""
    monkeypatch.setattr(cpu, "SCATTERED", 1)
    monkeypatch.setattr(cpu, "IN_ORDER", 1)


def numbers(dtype: Any, *shape: int) -> np.ndarray:
    """Numbers of all sizes, of floats also those that are none."""
    rng = np.random.default_rng(4)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 12, shape)
    values.flat[1::5] = rng.integers(-9, 9, values.flat[1::5].shape) / 2
    dtype = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    if dtype.kind in "iub":
        return np.clip(values, -1e9, 1e9).astype(np.int64).astype(dtype)
    for start, step, value in ((0, 7, np.nan), (3, 11, np.inf), (5, 13, -np.inf)):
        values.flat[start::step] = value
    with np.errstate(all="ignore"):
        return values.astype(dtype)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "in order": lambda a: a,
    "sample by sample": lambda a: np.asfortranarray(a),
    "every other column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "every other row": lambda a: np.repeat(a, 2, axis=0)[::2],
    "part of rows": lambda a: np.pad(a, ((0, 0), (2, 3)))[:, 2:-3],
    "backwards": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "a row for all": lambda a: np.broadcast_to(a[:1], a.shape),
}


FEW = "in order", "sample by sample", "every other column"


def kernel_calls(be: Backend, function: Callable[[], Any]) -> int:
    """Calls of ``be.assign`` by a tensor's methods."""
    calls = []
    original = type(be).assign
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(be), "assign", lambda *given: (calls.append(1), original(*given))[1])
        function()
    return len(calls)


OTHERS = "longdouble", ">f4", ">i2"
"""Dtypes of arrays that tensors cannot hold."""
CASES = [
    *[("float32", "float32", layout) for layout in LAYOUTS],
    *[(one, one, layout) for one in EVERY for layout in FEW if one != "float32"],
    *[(one, "float32", layout) for one in (*EVERY, *OTHERS) for layout in FEW if one != "float32"],
    *[(one, to, "sample by sample") for one in ("float32", "int64") for to in ("int8", "uint64", "bool", "float16")],
]
"""Dtypes of the array and of the tensor, and the layout of the array."""


@pytest.mark.parametrize(("source", "dtype", "layout"), CASES)
def test_values_are_those_of_numpys_copy(
    fast: Backend, monkeypatch: pytest.MonkeyPatch, source: str, dtype: str, layout: str
) -> None:
    array = LAYOUTS[layout](numbers(source, ROWS, COLUMNS))
    found = fast.empty((ROWS, COLUMNS), dtype=dtype).set(array)
    wide = fast.zeros((ROWS, 2 * COLUMNS), dtype=dtype)
    wide[:, ::2].set(array)
    monkeypatch.setattr(cpu, "SCATTERED", 1 << 40)
    wanted = fast.empty((ROWS, COLUMNS), dtype=dtype).set(array)
    assert found.get().tobytes() == wanted.get().tobytes() == wide[:, ::2].get().tobytes()
    assert not wide[:, 1::2].get().any()


def test_a_kernel_copies_where_it_can(fast: Backend) -> None:
    x, a = fast.empty((ROWS, COLUMNS)), np.ones((COLUMNS, ROWS), np.float32).T
    for _ in range(3):
        assert kernel_calls(fast, lambda: x.set(a)) == 1
    assert kernel_calls(fast, lambda: x.T.get()) == 1
    assert kernel_calls(fast, lambda: x.set(a[::-1])) == kernel_calls(fast, lambda: x[:0].set(a[:0])) == 0
    misaligned = np.zeros(a.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(ROWS, COLUMNS)
    assert kernel_calls(fast, lambda: x.set(misaligned)) == 0
    with fast.executor.replay.paused():
        assert kernel_calls(fast, lambda: x.set(a)) == 0


def test_small_copies_are_numpys(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((ROWS, COLUMNS), np.float32)
    x = fast.array(a)
    monkeypatch.setattr(cpu, "IN_ORDER", a.nbytes + 1)
    assert kernel_calls(fast, lambda: x.set(a)) == kernel_calls(fast, x.get) == 0
    assert kernel_calls(fast, lambda: x.set(np.asfortranarray(a))) == 1
    monkeypatch.setattr(cpu, "SCATTERED", a.nbytes + 1)
    assert kernel_calls(fast, lambda: x.set(np.asfortranarray(a))) == 0


@pytest.mark.parametrize("dtype", EVERY)
def test_views_are_read_as_they_are(fast: Backend, dtype: str) -> None:
    array = numbers(dtype, ROWS, COLUMNS)
    x = fast.array(array, dtype=dtype)
    host = x.asnumpyarray()
    for view, wanted in ((x, host), (x.T, host.T), (x[:, ::3], host[:, ::3]), (x[3:, 5:], host[3:, 5:])):
        got = view.get()
        assert got.tobytes() == np.ascontiguousarray(wanted).tobytes() and got.flags.c_contiguous
        assert got.flags.owndata and got.flags.writeable and not np.may_share_memory(got, host)


def test_a_tensor_may_be_set_to_its_own_memory(fast: Backend) -> None:
    values = numbers(np.float32, 41, 41)
    x = fast.array(values)
    host = x.asnumpyarray()
    x.set(host.T)
    np.testing.assert_array_equal(x.get(), values.T)
    x[1:].set(host[:-1])
    np.testing.assert_array_equal(x.get(), np.vstack([values.T[:1], values.T[:-1]]))


def test_read_only_arrays_are_read_and_not_kept(fast: Backend) -> None:
    array = numbers(np.float32, COLUMNS, ROWS).T
    array.flags.writeable = False
    x = fast.empty((ROWS, COLUMNS))
    for _ in range(3):
        x.set(array)
    np.testing.assert_array_equal(x.get(), array)
    again = np.array(array.T).T
    x.set(again)
    again[:] = 0
    np.testing.assert_array_equal(x.get(), array)
