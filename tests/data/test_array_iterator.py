"""Batches from arrays: contents, wrap-around, targets, errors."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.data import ArrayIterator, NervanaDataIterator
from neonlike.errors import ArgumentError, DTypeError, ShapeError


def numbered(ndata, features=3):
    return np.arange(ndata, dtype=np.float64)[:, None] + np.arange(features) / 10


def epoch(iterator):
    """Numbers of the samples in each batch of an epoch."""
    return [np.floor(x.get()[0] + 1e-3).astype(int).tolist() for x, _ in iterator]


def numbers(iterator):
    """The same one after the other."""
    return [number for batch in epoch(iterator) for number in batch]


@pytest.fixture(autouse=True)
def batches_of_four(be):
    be.bsz = 4


def test_batches_are_transposed_and_reuse_their_buffers(be):
    iterator = ArrayIterator(numbered(8), np.arange(8) % 3, nclass=3)
    seen = []
    for i, (x, t) in enumerate(iterator):
        np.testing.assert_allclose(x.get(), numbered(8)[4 * i : 4 * i + 4].T, rtol=1e-6)
        np.testing.assert_array_equal(t.get(), np.eye(3)[(np.arange(8) % 3)[4 * i : 4 * i + 4]].T)
        seen.append((x, t))
    assert len(seen) == 2 and seen[0][0] is seen[1][0] is iterator.Xbuf[0] and seen[0][1] is iterator.ybuf
    assert isinstance(iterator, NervanaDataIterator)


def test_the_last_batch_wraps_and_the_next_epoch_starts_after_it(be):
    iterator = ArrayIterator(numbered(10))
    assert iterator.nbatches == 3
    assert epoch(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert iterator.start == 2 and iterator.nbatches == 2
    assert epoch(iterator) == [[2, 3, 4, 5], [6, 7, 8, 9]]


def test_defect_32_an_epoch_that_ends_exactly_starts_over(be):
    iterator = ArrayIterator(numbered(10))
    epoch(iterator), epoch(iterator)
    assert iterator.start == 0 and iterator.nbatches == 3
    assert epoch(iterator)[0] == [0, 1, 2, 3]
    counts = np.bincount(np.concatenate([np.ravel(epoch(iterator)) for _ in range(20)]), minlength=10)
    assert counts.min() > 0 and counts.max() - counts.min() <= 1


def test_reset_starts_over(be):
    iterator = ArrayIterator(numbered(10))
    epoch(iterator)
    iterator.reset()
    assert epoch(iterator)[0] == [0, 1, 2, 3]


def test_a_position_of_other_data_is_not_taken(be):
    iterator = ArrayIterator(numbered(10))
    for start in (10, -1, "2", None):
        iterator.set_progress({"start": start})
        assert iterator.progress() == {"start": 0}
    iterator.set_progress({"start": 9})
    assert epoch(iterator) == [[9, 0, 1, 2]]


def test_an_abandoned_epoch_is_repeated(be):
    iterator = ArrayIterator(numbered(10))
    next(iter(iterator))
    assert epoch(iterator)[0] == [0, 1, 2, 3]


def test_one_batch_is_all_there_is(be):
    iterator = ArrayIterator(numbered(4))
    assert epoch(iterator) == [[0, 1, 2, 3]] == epoch(iterator)


def test_without_targets_the_inputs_are_the_targets(be):
    iterator = ArrayIterator(numbered(8))
    x, t = next(iter(iterator))
    assert x is t and iterator.ybuf is None and iterator.ydev is None


def test_several_inputs(be):
    iterator = ArrayIterator([numbered(8), numbered(8, 5)], np.zeros(8), nclass=2)
    assert iterator.shape == [3, 5]
    x, _ = next(iter(iterator))
    assert [b.shape for b in x] == [(3, 4), (5, 4)]
    assert ArrayIterator([numbered(8, 6), numbered(8)], lshape=[(1, 2, 3), 3]).shape == [(1, 2, 3), 3]
    assert ArrayIterator([numbered(8, 6)] * 2, lshape=(1, 2, 3)).shape == [(1, 2, 3), (1, 2, 3)]


@pytest.mark.parametrize("y", [np.arange(8.0), np.arange(8.0)[:, None], np.arange(16.0).reshape(8, 2), [*range(8)]])
def test_any_targets_without_one_hot(be, y):
    iterator = ArrayIterator(numbered(8), y, make_onehot=False)
    _, t = next(iter(iterator))
    np.testing.assert_array_equal(t.get(), np.reshape(y, (8, -1))[:4].T)


def test_labels_may_be_one_hot_already(be):
    onehot = np.eye(5)[np.arange(8) % 5]
    iterator = ArrayIterator(numbered(8), onehot, nclass=5)
    assert iterator.nclass == 5 and iterator.ybuf.shape == (5, 4)
    batches = np.concatenate([t.get() for _, t in iterator], axis=1)
    np.testing.assert_array_equal(batches, onehot.T)
    one = ArrayIterator(numbered(8), np.zeros((8, 1)), nclass=1)  # a column is of labels, for one class too
    np.testing.assert_array_equal(next(iter(one))[1].get(), np.ones((1, 4)))


def test_shape_is_lshape_or_the_number_of_features(be):
    images = np.zeros((8, 2, 3, 4))
    assert ArrayIterator(images).shape == 24
    assert ArrayIterator(images, lshape=(2, 3, 4)).shape == ArrayIterator(images, lshape=[2, 3, 4]).shape == (2, 3, 4)


def test_batches_follow_data_that_change_between_epochs(be, monkeypatch):
    """Views of samples follow the iterator's current samples, also in copies of copies, without growth."""
    monkeypatch.setattr("neonlike.data.dataiterator.MOST_VIEWS", 2)
    labels = np.arange(12) % 3
    iterator = ArrayIterator(numbered(12), labels, nclass=3)
    first = list(range(12))
    for _ in range(2):
        assert numbers(iterator) == first
    iterator.Xdev[0][:] = iterator.Xdev[0] + 20
    assert numbers(iterator) == [n + 20 for n in first]
    iterator.Xdev[0] = be.array(numbered(12) + 40)
    assert numbers(iterator) == [n + 40 for n in first]
    iterator.ydev = be.array((labels + 1).reshape(-1, 1) % 3, dtype=np.int32)
    found = np.concatenate([t.get().argmax(axis=0) for _, t in iterator])
    assert found.tolist() == ((labels + 1) % 3).tolist()
    twin = copy.deepcopy(iterator)
    twin.Xdev[0][:] = 0
    assert numbers(iterator) == [n + 40 for n in first] and not any(numbers(twin))
    assert len(iterator._views) <= 2


def test_a_changed_batch_size_is_followed(be):
    iterator = ArrayIterator(numbered(8), np.zeros(8), nclass=2)
    be.bsz = 8
    assert epoch(iterator) == [list(range(8))]
    be.bsz = 19
    assert iterator.masked_to == 8 and iterator.nbatches == 1
    for _ in range(2):
        assert epoch(iterator) == [[*range(8), *range(8), 0, 1, 2]]


def test_labels_may_be_stored_as_whole_floats_or_bytes(be):
    for dtype in (np.float64, np.uint8, np.int64, bool):
        _, t = next(iter(ArrayIterator(numbered(4), np.array([0, 1, 1, 0]).astype(dtype), nclass=2)))
        np.testing.assert_array_equal(t.get(), [[1, 0, 0, 1], [0, 1, 1, 0]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((numbered(0),), ShapeError, "no samples"),
        (([],), ArgumentError, "empty"),
        (([numbered(8), numbered(9)],), ShapeError, "8, 9 samples"),
        ((numbered(8), np.zeros(7), 2), ShapeError, "8 samples but y has 7"),
        ((numbered(8), np.arange(8), 7), ArgumentError, "0 to 7.*between 0 and 6"),
        ((numbered(8), np.arange(8) - 1, 9), ArgumentError, "-1 to 6"),
        ((numbered(8), np.arange(8) + 0.5, 9), ArgumentError, "not integers"),
        ((numbered(8), np.full(8, np.nan), 9), ArgumentError, "not integers"),
        ((numbered(8), np.array(["a"] * 8), 9), ArgumentError, "not integers"),
        ((numbered(8), np.zeros((8, 2)), 9), ShapeError, "make_onehot=False"),
        ((numbered(8), None, None, (2, 2)), ShapeError, "4 elements.*sample has 3"),
        (([numbered(8)], None, None, [3, 3]), ShapeError, "1 inputs but 2 shapes"),
        (("data",), DTypeError, "NumPy array"),
        ((numbered(8), np.zeros(8), "2"), DTypeError, "nclass"),
        ((numbered(8), np.zeros(8), 2.0), DTypeError, "nclass"),
        ((np.float64(3),), DTypeError, "float64"),
    ],
)
def test_what_does_not_fit_is_refused(be, arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        ArrayIterator(*arguments)
    assert isinstance(raised.value, AssertionError | TypeError)


def test_labels_need_the_number_of_classes(be):
    with pytest.raises(AttributeError, match="nclass"):
        ArrayIterator(numbered(8), np.zeros(8))


@pytest.mark.parametrize("bsz", [0, None])
def test_a_batch_size_is_needed(be, bsz):
    be.bsz = bsz
    with pytest.raises(ArgumentError, match="batch_size"):
        ArrayIterator(numbered(8))


def test_a_description_leaves_the_data_out(be):
    config = ArrayIterator(numbered(8), np.zeros(8), nclass=2, name="train").get_description()["config"]
    assert config == {"nclass": 2, "name": "train"}


@pytest.mark.parametrize(("dtype", "most"), [("float16", 2049), ("bfloat16", 257)])
def test_whole_numbers_that_16_bits_round_are_said(be, caplog, dtype, most):
    """They may be words of a vocabulary, which would be other words."""
    gen_backend(be.backend_name, batch_size=2, datatype=dtype)
    words = np.arange(most + 1).reshape(2, -1)
    ArrayIterator(words % most, words % 2, make_onehot=False)
    assert not caplog.text
    ArrayIterator(words % 2, words, make_onehot=False)
    assert f"{dtype} rounds whole numbers of the data, which go up to {most}" in caplog.text
    caplog.clear()
    ArrayIterator(words + 0.3)
    assert not caplog.text, "real numbers are always rounded"
