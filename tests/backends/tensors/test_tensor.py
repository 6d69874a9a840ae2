"""A tensor on its own: host access, views, identity, histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from tests.support.engines import ON_GPU

pytestmark = pytest.mark.optree


@pytest.mark.cpu_only("live host memory")
def test_get_copies_and_asnumpyarray_is_live(be: Backend) -> None:
    t = be.array([[1.0, 2.0], [3.0, 4.0]])
    host, live = t.T.get(), t.T.asnumpyarray()
    t[0, 1] = 9
    assert host.tolist() == [[1, 3], [2, 4]]
    assert host.flags.c_contiguous
    assert live.tolist() == [[1, 3], [9, 4]]
    live[0, 0] = 5
    assert t.get()[0, 0] == 5
    assert t._tensor is t.asnumpyarray()


def test_get_copies(be: Backend) -> None:
    t = be.array([[1.0, 2.0], [3.0, 4.0]])
    host = t.T.get()
    t[0, 1] = 9
    assert host.tolist() == [[1, 3], [2, 4]]
    assert host.flags.c_contiguous
    host[0, 0] = 5
    assert t.get().tolist() == [[1, 9], [3, 4]]
    assert t.get(stream=None).shape == (2, 2)


@pytest.mark.parametrize(
    ("args", "shape"),
    [
        ((6, 4), (6, 4)), (((6, 4),), (6, 4)), (([4, 3, 2],), (4, 3, 2)), ((-1, 4), (6, 4)), ((24,), (24, 1)),
        ((-1,), (24, 1)), ((2, -1, 1), (2, 12, 1)), ((np.int64(8), 3), (8, 3)),
    ],
)  # fmt: skip
def test_reshape_is_a_view(be: Backend, args: Any, shape: tuple[int, ...]) -> None:
    t = be.array(np.arange(24).reshape(2, 3, 4))
    view = t.reshape(*args)
    assert (view.shape, view.base, view.ptr) == (shape, t, t.ptr)
    assert np.array_equal(view.get(), np.arange(24).reshape(shape))
    view[0, 0] = 99
    assert t.get().ravel()[: view.size // shape[0]].max() == 99


def test_reshape_to_the_same_shape_is_the_tensor_itself(be: Backend) -> None:
    t = be.zeros((2, 3))
    assert t.reshape(2, 3) is t
    assert t.reshape((2, -1)) is t


@pytest.mark.parametrize("args", [(5, 5), (-1, 5), (-1, -1), (0, -1), (-2, 12), (25,)])
def test_reshape_to_another_size_is_refused(be: Backend, args: Any) -> None:
    with pytest.raises(ShapeError, match="reshape"):
        be.zeros((4, 6)).reshape(*args)
    with pytest.raises(TypeError):
        be.zeros((4, 6)).reshape(2.5, 4)


def test_strided_tensors_are_viewed_only_where_a_view_exists(be: Backend) -> None:
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = be.array(host)
    for reshaped in (t[:, :2].reshape(2, 2, 2, 2), t[:, :2].viewed(2, 2, 2, 2)):
        assert np.array_equal(reshaped.get(), host[:, :2].reshape(2, 2, 2, 2)) and reshaped._original_base is t
    with pytest.raises(ShapeError, match="copy it first"):
        t[:, :2].viewed(4, 4, 1)
    with pytest.raises(ValueError):
        be.zeros((2, 3)).T.viewed(6, 1)
    with pytest.raises(ShapeError, match="cannot make"):
        t.viewed(5, 5)


def test_where_no_view_exists_reshape_is_an_expression(be: Backend) -> None:
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = be.array(host)
    for ours, theirs in (
        (t[:, :2].reshape(4, 4, 1), host[:, :2].reshape(4, 4, 1)),
        (t.T.reshape(-1, 3) * 2, host.swapaxes(1, 2).reshape(-1, 3) * 2),
        (t[::-1].reshape(6, 4) + t.reshape(6, 4), host[::-1].reshape(6, 4) + host.reshape(6, 4)),
        (be.sum(t.T.reshape(6, 4), axis=0), host.swapaxes(1, 2).reshape(6, 4).sum(0, keepdims=True)),
    ):
        assert np.array_equal(ours.get(), theirs)
    lazy = t.T.reshape(24, 1)
    t[:] = t + 1
    assert np.array_equal(lazy.get(), (host + 1).swapaxes(1, 2).reshape(24, 1))
    t[:] = t.T.reshape(2, 3, 4)  # read before it is written
    assert np.array_equal(t.get(), (host + 1).swapaxes(1, 2).reshape(2, 3, 4))
    with pytest.raises(DTypeError, match=r"cannot be written to.* t\[index\] = values"):
        t.T.reshape(24, 1)[:] = 0
    with neon_dialect():
        copied = t.T.reshape(24, 1)
        copied[:] = 0  # as neon's on a CPU
    assert np.array_equal(t.get(), (host + 1).swapaxes(1, 2).reshape(2, 3, 4))


def test_share_views_the_first_elements(be: Backend) -> None:
    t = be.array(np.arange(12).reshape(3, 4))
    part = t.share((2, 3), name="part")
    assert (part.shape, part.base, part.ptr, part.name, part.dtype) == ((2, 3), t, t.ptr, "part", t.dtype)
    assert part.get().ravel().tolist() == list(range(6))
    part[:] = -1
    assert t.get().ravel().tolist() == [-1] * 6 + list(range(6, 12))
    assert t.share(12).shape == (12, 1)
    halves = t.share((6, 4), dtype=np.float16)
    assert (halves.dtype, halves.nbytes) == (np.float16, t.nbytes)
    with pytest.raises(ValueError, match="share"):
        t.share(13)
    with pytest.raises(ValueError, match="share"):
        t.share((3, 4), dtype=np.float64)
    for error in (ValueError, TypeError):  # of neon's CPU, of its GPU
        with pytest.raises(error, match="contiguous"):
            t.T.share(4)
        with pytest.raises(AssertionError if error is ValueError else error, match="set: got 5 elements"):
            t.set(np.ones(5))


def test_dimension_reorder_moves_no_data(be: Backend) -> None:
    t = be.array(np.arange(24).reshape(2, 3, 4))
    moved = t.dimension_reorder([2, 0, 1])
    assert moved.shape == (4, 2, 3)
    assert np.array_equal(moved.get().ravel(), np.arange(24))
    assert moved.ptr == t.ptr


def test_transposes(be: Backend) -> None:
    host2, host3 = np.arange(6).reshape(2, 3), np.arange(24).reshape(2, 3, 4)
    a, b = be.array(host2), be.array(host3)
    assert np.array_equal(a.T.get(), host2.T)
    assert np.array_equal(b.T.get(), host3.swapaxes(1, 2))  # for batched products
    assert np.array_equal(a.transpose().get(), host2.T)
    out = be.zeros((3, 2))
    assert a.transpose(out) is out
    assert np.array_equal(out.get(), host2.T)
    a.T[0, 1] = 50
    assert a.get()[1, 0] == 50
    assert np.array_equal(a.T.T.get(), a.get())


def test_strides_are_in_elements_and_views_know_their_base(be: Backend) -> None:
    t = be.zeros((4, 5, 6), dtype=np.float64)
    assert t.strides == (30, 6, 1)
    view = t[1:, ::2]
    inner = view[:, 1]
    assert view.strides == (30, 12, 1)
    assert (inner.base, view.base, t.base) == (view, t, None)
    assert inner._original_base is t
    assert t._original_base is t
    assert view.ptr == t.ptr + 30 * 8
    assert view.raw() == view.ptr
    assert (t.is_contiguous, t[1:].is_contiguous, view.is_contiguous, t.T.is_contiguous) == (True, True, False, False)
    assert be.zeros((4, 5)).ptr != t.ptr


def test_take_gathers_a_copy(be: Backend) -> None:
    host = np.arange(12).reshape(3, 4)
    t = be.array(host)
    for indices in ([2, 0, 2], np.array([2, 0, 2]), be.array([2, 0, 2], dtype=np.int32), np.array([[2, 0, 2]])):
        assert np.array_equal(t.take(indices, 0).get(), host[[2, 0, 2]])
        assert np.array_equal(t.take(indices, 1).get(), host[:, [2, 0, 2]])
        assert np.array_equal(t.take(indices, -1).get(), host[:, [2, 0, 2]])
    assert np.array_equal(t.take(1, 0).get(), host[[1]])
    assert np.array_equal(t.take([-1], 0).get(), host[[-1]])
    out = be.zeros((2, 4))
    assert t.take([1, 1], 0, out) is out
    assert np.array_equal(out.get(), host[[1, 1]])
    assert be.array(np.arange(24).reshape(2, 3, 4)).take([0, 2], 1).shape == (2, 2, 4)


def test_in_neons_dialect_what_was_taken_is_a_target(be: Backend) -> None:
    host = np.arange(12.0).reshape(3, 4)
    t = be.array(host)
    with neon_dialect():
        rows, columns = t.take(be.array([2, 0], dtype=np.int32), 0), t.take([1, 3], axis=1)
        assert np.array_equal(rows.get(), host[[2, 0]])
        rows[:] = be.array([[1], [2]]) * be.ones((1, 4))
        host[[2, 0]] = [[1], [2]]
        assert np.array_equal(t.get(), host)
        assert np.array_equal(rows.get(), host[[2, 0]])
        product = be.empty((2, 2))
        product[:] = be.dot(rows, rows.T)
        assert np.array_equal(product.get(), host[[2, 0]] @ host[[2, 0]].T)
        columns[:] = columns * 0 - 1
        host[:, [1, 3]] = -1
        assert np.array_equal(t.get(), host)
        assert isinstance(rows, type(t)) and repr(rows).startswith(type(t).__name__)
    t.take([0], 0)[:] = 9
    assert np.array_equal(t.get(), host)


def test_length_truth_and_hash(be: Backend) -> None:
    t = be.zeros((3, 4))
    assert len(t) == 3
    assert bool(t)
    assert bool(be.zeros((0, 3)))  # `if tensor:` asks whether there is one
    assert bool(be.zeros((1, 1)))
    assert hash(t) == id(t)
    other = be.zeros((3, 4))
    table = {t: "t", other: "other"}
    assert (table[t], table[other]) == ("t", "other")


def test_comparison_with_something_else_is_identity(be: Backend) -> None:
    t = be.zeros((2, 2))
    for thing in (None, "x", [1], (1, 2), {}, object()):
        assert (t == thing) is False
        assert (t != thing) is True
        assert (thing == t) is False
        assert ((t + 1) == thing) is False
    assert None not in [t, t + 1]


def test_any_attribute_may_be_set(be: Backend) -> None:
    t = be.zeros((2, 2))
    assert not t.rounding
    t.rounding = True
    t.auto_reduce = False
    t.kahan_count = 3
    assert (t.rounding, t.auto_reduce, t.kahan_count) == (True, False, 3)
    assert not be.zeros((2, 2)).rounding


def test_neons_text_names_the_tensor_and_shows_no_values(be: Backend) -> None:
    t = be.array(np.full((2, 3), 123.0), name="weights")
    with neon_dialect():
        texts = str(t), repr(t), f"{t}"
    for text in texts:
        assert "weights" in text
        assert "(2, 3)" in text
        assert "float32" in text
        assert "123" not in text
        assert "\n" not in text


# Histograms ---------------------------------------------------------------------------------------------------------


def reference_histogram(values: np.ndarray, bins: int, offset: int) -> np.ndarray:
    counts = np.zeros(bins, np.int32)
    for value in values.ravel():
        if value == value:
            exponent = np.rint(np.log2(np.abs(np.float32(value)))) if value else -np.inf
            counts[int(np.clip(exponent - offset, 0, bins - 1))] += 1
    return counts


def test_hist_counts_exponents(be: Backend, rng: np.random.Generator) -> None:
    values = np.concatenate([rng.normal(size=500) * 2.0 ** rng.integers(-60, 30, 500), [0, 0, -0.0, 1.5, 2**15]])
    t = be.array(values.reshape(-1, 1))
    counts = t.hist("weights")
    assert (counts.shape, counts.dtype) == ((1, 64), np.int32)
    assert np.array_equal(counts.get()[0], reference_histogram(t.get(), 64, -48))
    assert counts.get().sum() == values.size
    with np.errstate(all="raise"):
        assert be.array([[np.nan, np.inf, -np.inf, 1.0]]).hist("odd").get()[0, [48, 63]].tolist() == [1, 2]


def test_dump_hist_data_hands_over_and_clears(be: Backend) -> None:
    first, second = be.ones((2, 3)).hist("a").get(), be.zeros((4, 1)).hist("b").get()
    assert (be.hist_idx, be.hist_map, be.hist_bins, be.hist_offset) == (2, {"a": 0, "b": 1}, 64, -48)
    assert be.hist_max == (16384 if ON_GPU else 4096)
    data, tags = be.dump_hist_data()
    assert data.dtype == np.int32
    assert np.array_equal(data.get()[tags["a"]], first[0])
    assert np.array_equal(data.get()[tags["b"]], second[0])
    assert (be.hist_idx, be.hist_map) == (0, {})
    be.set_hist_buffers(8, -4)
    assert be.ones((1, 1)).hist("c").get().tolist() == [[0, 0, 0, 0, 1, 0, 0, 0]]
    be.set_hist_buffers(8, -4)  # unchanged: keeps what is recorded
    assert be.hist_idx == 1
    with pytest.raises(ArgumentError):
        be.set_hist_buffers(0, 0)
    assert be.hist_bins == 8
