"""``t.offset(n)``: windows on a larger tensor, moved along the batch without copying."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import DTypeError, IndexRangeError, ShapeError

pytestmark = pytest.mark.engines("numpy")


def test_a_window_goes_over_the_samples(be: Any) -> None:
    """As a user reads a large tensor in minibatches, without copying any."""
    data = be.array(np.arange(30).reshape(3, 10))
    window = data[:, :4]
    for start in (0, 4, 6):
        seen = window.offset(start)
        assert seen.get().tolist() == data.get()[:, start : start + 4].tolist()
        assert seen.ptr == data[:, start:].ptr
    assert window.get().tolist() == data.get()[:, :4].tolist()


def test_writing_through_it_writes_the_larger_tensor(be: Any) -> None:
    data = be.zeros((2, 6))
    data[:, :2].offset(3)[:] = 7
    assert data.get().tolist() == [[0, 0, 0, 7, 7, 0]] * 2


def test_it_moves_back_and_on(be: Any) -> None:
    data = be.array(np.arange(8).reshape(1, 8))
    window = data[:, 3:5]
    assert window.offset(2).offset(1).offset(-6).tolist() == [[0, 1]]
    assert window.offset(0) is window


def test_the_descriptor_says_which_axis_is_the_batch(be: Any) -> None:
    host = np.arange(5 * 2 * 3 * 3).reshape(5, 2, 3, 3).astype("f4")
    data = be.array(host)
    data.desc = TensorDesc(host.shape, "f4", "NCHW")
    window = data[:2]
    assert (window.batch_axis, data[:2].T.batch_axis) == (0, 3)
    assert window.offset(3).tolist() == host[3:].tolist()
    window.desc = data.desc.with_batch(2)
    assert window.offset(1).offset(2).desc == window.desc
    assert data[:1].offset(2, axis=0).tolist() == host[2:3].tolist()
    with pytest.raises(IndexRangeError, match="positions 0 to 1 of 5 cannot move by 4"):
        window.offset(4)


def test_windows_of_random_tensors(be: Any, rng: np.random.Generator) -> None:
    """Slices with steps, of transposed and reversed tensors too, move as NumPy's slices do."""
    moves = 0
    for _ in range(300):
        host = np.arange(int(np.prod(shape := rng.integers(1, 6, rng.integers(2, 5))))).reshape(shape)
        larger, order = be.array(host, dtype="i4"), tuple(rng.permutation(host.ndim))
        larger, host = larger.permuted(order), host.transpose(order)
        if rng.random() < 0.3:
            larger, host = larger[::-1], host[::-1]
        axis = int(rng.integers(host.ndim))
        starts = [int(rng.integers(size)) for size in host.shape]
        cuts = [slice(start, int(rng.integers(start + 1, size + 1)), int(rng.integers(1, 3)))
                for start, size in zip(starts, host.shape)]  # fmt: skip
        window, last = larger[tuple(cuts)], range(host.shape[axis])[cuts[axis]][-1]
        for n in range(-cuts[axis].start, host.shape[axis] - last):
            there = list(cuts)
            there[axis] = slice(cuts[axis].start + n, last + n + 1, cuts[axis].step)
            assert window.offset(n, axis).get().tolist() == host[tuple(there)].tolist()
            moves += 1
    assert moves > 300


def test_a_window_of_a_window_moves_on_in_the_larger_one(be: Any) -> None:
    data = be.array(np.arange(20).reshape(2, 10))
    part = data[:, 2:8][1:]
    assert part.offset(2).tolist() == [[14, 15, 16, 17, 18, 19]]
    assert data[:, 2:8][:, :2].offset(-2).tolist() == data.get()[:, :2].tolist()


def test_what_does_not_fit_is_refused(be: Any) -> None:
    data = be.array(np.arange(20).reshape(2, 10))
    window = data[:, 2:5]
    for n, words in ((6, "positions 2 to 4 of 10 cannot move by 6"), (-3, "cannot move by -3")):
        with pytest.raises(IndexRangeError, match=words):
            window.offset(n)
    with pytest.raises(IndexRangeError, match=r"of 10 cannot move by 1; a window is cut out"):
        data.offset(1)
    with pytest.raises(IndexRangeError, match=r"a window is cut out of a tensor with as many axes"):
        window.copy().offset(1)
    with pytest.raises(IndexRangeError, match="cannot move by 3"):
        data.T[:1, :1].offset(3)  # of two positions, though ten follow in memory
    for no_slice, axis in ((data[:, 2:2], 1), (be.zeros((4, 3)).reshape(2, 6), 0)):
        with pytest.raises(IndexRangeError, match="cannot move by 1"):
            no_slice.offset(1, axis)
    with pytest.raises(DTypeError, match=r"offset: n must be an integer, got 1\.5"):
        window.offset(1.5)
    for axis in (2, "N"):
        with pytest.raises(ShapeError, match="offset: "):
            window.offset(1, axis)
    window.desc = TensorDesc((2, 3), "f4", "CW")
    with pytest.raises(ShapeError, match="'CW' has no axis N"):
        window.offset(1)
