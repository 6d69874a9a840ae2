"""One-hot columns and rows: an index that is no place along their axis is an error, on every engine and each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.functions import onehot

pytestmark = [pytest.mark.optree, pytest.mark.checked]

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
N, CLASSES = 33, 10


def labels(rng: Any, dtype: str = "int32", axis: int = 0) -> Any:
    return rng.integers(0, CLASSES, (1, N) if axis == 0 else (N, 1)).astype(dtype)


def wanted(index: Any, axis: int = 0) -> Any:
    rows = np.eye(CLASSES, dtype=np.float32)[index.ravel()]
    return rows.T if axis == 0 else rows


def refused(be: Backend, call: Callable[[], Any], match: str) -> None:
    """``call`` raises, on a GPU when the host waits."""
    with pytest.raises(IndexRangeError, match=match):
        call()
        be.synchronize()


def assigner(out: Any, value: Callable[[], Any]) -> Callable[[], None]:
    def assign() -> None:
        out[:] = value()

    return assign


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_index_out_of_range_is_an_error_each_time(be: Backend, rng: Any, dtype: str, axis: int) -> None:
    host = labels(rng, dtype, axis)
    index, out = be.array(host, dtype=dtype), be.empty(wanted(host, axis).shape)
    assign = assigner(out, lambda: be.onehot(index, axis))
    for _ in range(4):
        assign()
        assert np.array_equal(out.get(), wanted(host, axis))
    for wrong in (CLASSES, 127, -1, -CLASSES):
        if wrong < 0 and dtype[0] == "u":
            continue
        host = labels(rng, dtype, axis)
        host.flat[N // 2] = wrong
        index[:] = host
        for _ in range(3):
            refused(be, assign, rf"onehot: index {wrong} is out of range for an axis of size 10; use 0 to 9")
    index[:] = host = labels(rng, dtype, axis)
    assign()
    assert np.array_equal(out.get(), wanted(host, axis))


def test_the_target_is_as_it_was(be: Backend, rng: Any) -> None:
    host = rng.standard_normal((CLASSES, N)).astype(np.float32)
    good, bad = labels(rng), labels(rng)
    bad[0, 3] = CLASSES
    index, out, row = be.array(good, dtype="int32"), be.array(host), be.zeros((CLASSES, 1))
    for value in (
        lambda: be.onehot(index, 0),
        lambda: out * be.onehot(index, 0) + 1,
        lambda: out[:, ::-1] - be.onehot(index, 0),
        lambda: be.where(be.onehot(index, 0), out, 0),
        lambda: be.onehot(index + 0, 0) + be.onehot(index, 0),
    ):
        for _ in range(3):
            index[:] = good
            out[:] = host
            out[:] = value()
            out[:] = host
            index[:] = bad
            if be.tensor_cls.live_host:
                refused(be, assigner(out, value), "onehot: .*out of range")
                assert np.array_equal(out.get(), host)
    index[:] = bad
    refused(be, assigner(row, lambda: be.sum(out * be.onehot(index, 0), axis=1)), "onehot: index 10")
    refused(be, lambda: be.onehot([0] * (N - 1) + [-3], 0, out=out), "onehot: index -3")


def test_within_other_expressions(be: Backend, rng: Any) -> None:
    host, x = labels(rng), rng.standard_normal((CLASSES, N)).astype(np.float32)
    index, t = be.array(host, dtype="int32"), be.array(x)
    for ours, theirs in (
        (be.sum(t * be.onehot(index, 0), axis=0), x[host[0], np.arange(N)][None]),
        (be.dot(be.onehot(index, 0) * be.ones((CLASSES, N)), be.ones((N, 1))), wanted(host).sum(1, keepdims=True)),
        (t - be.onehot(be.argmax(t, axis=0), 0), x - wanted(x.argmax(0))),
        (t.T - be.onehot(index.T, 1), (x - wanted(host)).T),
        (t + be.onehot(index * 1, 0) * be.onehot(index, 0), x + wanted(host)),
    ):
        np.testing.assert_allclose(ours.asnumpyarray(), theirs, 1e-6, 1e-6)
    empty = be.empty((CLASSES, 0))
    empty[:] = be.onehot(be.empty((1, 0), dtype="int32"), 0)
    refused(be, assigner(be.empty((0, N)), lambda: be.onehot(index, 0)), "onehot: index .* size 0")


def test_prepared_and_several_at_once(be: Backend, rng: Any) -> None:
    host = labels(rng)
    index, out, other = be.array(host, dtype="int32"), be.empty((CLASSES, N)), be.zeros((N, CLASSES))
    step = be.prepare(out, be.onehot(index, 0))
    for _ in range(4):
        step()
        be.assign_many([(out, be.onehot(index, 0) * 2), (other, be.onehot(index.T, 1))])
        assert np.array_equal(out.get(), 2 * wanted(host)) and np.array_equal(other.get(), wanted(host).T)
        index[:] = host = labels(rng)
    index[:, 5:6] = CLASSES
    refused(be, step, "onehot: ")
    refused(be, lambda: be.assign_many([(out, be.onehot(index, 0) * 2), (other, be.onehot(index.T, 1))]), "onehot")
    column = be.zeros((CLASSES, 1))
    if be.tensor_cls.live_host:  # a result of an earlier stage waits until the indices were checked
        refused(be, lambda: be.assign_many([(column, be.sum(out, axis=1)), (out, be.onehot(index, 0))]), "onehot")
        assert not column.get().any()


def test_neons_dialect_and_the_unchecked_form_have_zeros(be: Backend, rng: Any) -> None:
    host = labels(rng)
    host[0, [2, 5]] = CLASSES, -1
    index, out = be.array(host, dtype="int32"), be.empty((CLASSES, N))
    theirs = wanted(np.clip(host, 0, CLASSES - 1))
    theirs[:, [2, 5]] = 0
    with neon_dialect():
        out[:] = be.onehot(index, axis=0)
    assert np.array_equal(out.get(), theirs)
    out[:] = onehot(index, 0, be, checked=False)
    assert np.array_equal(out.get(), theirs)
    with neon_dialect():
        out[:] = onehot(index, 0, be, checked=False)


def test_indices_of_any_layout(be: Backend, rng: Any) -> None:
    host = labels(rng)
    wide = be.array(np.repeat(host, 3, axis=1), dtype="int16")
    wide[:, 1::3] = 100
    out = be.empty((CLASSES, N))
    for index, theirs in ((wide[:, ::3], host), (wide[:, ::3][:, ::-1], host[:, ::-1])):
        assign = assigner(out, lambda index=index: be.onehot(index, 0))  # type: ignore[misc]
        for _ in range(4):
            assign()
            assert np.array_equal(out.get(), wanted(theirs))
    refused(be, assigner(out, lambda: be.onehot(wide[:, 1::3], 0)), "onehot: index 100")
