"""One-hot columns made by the extension: refused indices, and the target's contents then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError
from neonlike.kernels.c import fastpath
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_are_checked_at_each_repetition(fast: Backend, rng: Any, dtype: str) -> None:
    be, launches = fast, fast.executor.replay.table
    host = rng.integers(0, 10, (1, 66)).astype(dtype)
    whole = be.array(host, dtype=dtype)
    for index, theirs in ((whole, host), (whole[:, ::2], host[:, ::2]), (whole[:, ::-2], host[:, ::-2])):
        out = be.empty((10, index.size))
        for repetition in range(4):
            hits = launches.hits
            out[:] = be.onehot(index, 0)
            assert launches.hits == hits + (repetition > 0)
            assert np.array_equal(out.get(), np.eye(10)[theirs[0]].T)
        before = out.get()
        for wrong in (10, 100, *(() if dtype[0] == "u" else (-1, -128))):
            kept = int(index[:, 4:5].item())
            index[:, 4:5] = wrong
            with pytest.raises(IndexRangeError, match=rf"index {wrong} is out of range for an axis of size 10"):
                out[:] = be.onehot(index, 0)
            index[:, 4:5] = kept
        assert np.array_equal(out.get(), before)


def test_what_ran_before_a_wrong_index_is_not_in_the_targets(fast: Backend, rng: Any) -> None:
    """The indices come of a kernel before, and the target is read: Python makes it again, and says which it was."""
    be = fast
    host = rng.standard_normal((10, 7)).astype(np.float32)
    x, index, other = be.array(host), be.array([[0, 1, 2, 3, 4, 5, 6]], dtype="int32"), be.zeros((10, 7))
    for _ in range(4):
        x[:] = host
        x[:] = x * be.onehot(index + 2, 0) + x
        be.assign_many([(other, x * 2), (x, be.onehot(index + 3, 0))])
        assert np.array_equal(x.get(), np.eye(10)[np.arange(3, 10)].T)
    index[:, :1] = 9
    x[:] = host
    other[:] = 0
    for _ in range(2):
        with pytest.raises(IndexRangeError, match=r"^onehot: index 11 is out of range"):
            x[:] = x * be.onehot(index + 2, 0) + x
        with pytest.raises(IndexRangeError, match=r"^onehot: index 12 is out of range"):
            be.assign_many([(other, x * 2), (x, be.onehot(index + 3, 0))])
        assert np.array_equal(x.get(), host) and not other.get().any()
