"""Sequences made up as needed, and questions about stories."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from neonlike.data import BABI, QA, CopyTask, PrioritySortTask, RepeatCopyTask, Task, Ticker
from neonlike.errors import ArgumentError, DTypeError, ShapeError

pytestmark = pytest.mark.engines("numpy", "c", batch_size=3)


def steps_of(tensor, steps):
    """``(T, features, N)`` of ``(features, T*N)``."""
    host = tensor.get()
    return host.reshape(len(host), steps, -1).swapaxes(0, 1)


def batches(task, count):
    """Inputs, outputs and masks by steps, and the steps that the sequences have."""
    ticker = Ticker(task)
    for _, (x, (y, mask)) in zip(range(count), ticker):
        assert x.shape == (task.nin, task.time_steps_max * 3) and y.shape == mask.shape == (
            task.nout, task.time_steps_max * 3,
        )  # fmt: skip
        shown, wanted, used = (steps_of(tensor, task.time_steps_max) for tensor in (x, y, mask))
        steps = int(used[:, 0, 0].sum())
        assert (used[:steps] == 1).all() and not used[steps:].any()
        assert not shown[steps:].any() and not wanted[steps:].any()
        yield shown[:steps], wanted[:steps], steps


def test_copy(be):
    lengths = set()
    for shown, wanted, steps in batches(CopyTask(4, 5), 30):
        length = (steps - 2) // 2
        lengths.add(length)
        bits = shown[1 : length + 1, :5]
        assert set(np.unique(bits)) <= {0, 1}
        np.testing.assert_array_equal(wanted[length + 2 :], bits)
        assert not wanted[: length + 2].any() and not shown[length + 2 :].any()
        assert (shown[0] == np.eye(7)[5][:, None]).all() and (shown[length + 1] == np.eye(7)[6][:, None]).all()
    assert lengths == {1, 2, 3, 4}


def test_repeated_copy(be):
    counts = set()
    for shown, wanted, steps in batches(RepeatCopyTask(3, 4, 2), 40):
        length = int(np.flatnonzero(shown[:, 3, 0])[0]) - 1
        count = round(float(shown[length + 1, 3, 0]) * 4)
        counts.add(count)
        assert steps == length * (count + 1) + 3
        np.testing.assert_array_equal(wanted[length + 2 : -1, :2], np.concatenate([shown[1 : length + 1, :2]] * count))
        assert (wanted[-1, 2] == 1).all() and not wanted[:-1, 2].any()
    assert counts == {1, 2, 3, 4}


def test_sorting_by_priority(be):
    for shown, wanted, steps in batches(PrioritySortTask(4, 6), 10):
        length = (steps - 2) // 2
        assert (abs(shown[1 : length + 1, 6]) <= 1).all()
        for n in range(3):
            order = np.argsort(-shown[1 : length + 1, 6, n])
            np.testing.assert_array_equal(wanted[length + 2 :, :, n], shown[1 : length + 1, :6, n][order])


def test_a_ticker_follows_the_seed_of_the_backend(be):
    ticker = Ticker(CopyTask(4, 5))
    assert (ticker.shape, ticker.nbatches, ticker.ndata) == ((7, 10), 100, 300)
    first, again, other = [], [], []
    for into in (first, again, other):
        if into is not other:
            be.rng_reset()
        into += [x.get().copy() for _, (x, _) in zip(range(3), ticker)]
    np.testing.assert_array_equal(first, again)
    assert any(not np.array_equal(a, b) for a, b in zip(first, other))
    assert len(list(ticker)) == 100
    be.bsz = 2
    assert next(iter(ticker))[0].shape == (7, 20)


def test_a_task_of_ones_own(be):
    class Ones(Task):
        nin = nout = 2
        time_steps_max = 3

        def synthesize(self, in_tensor, out_tensor, mask):
            inputs, outputs = self.fetch_io(2)
            self.fill_buffers(2, inputs + 1, outputs + 2, in_tensor, out_tensor, mask)

    x, (y, mask) = next(iter(Ticker(Ones())))
    np.testing.assert_array_equal(x.get()[0], [1] * 6 + [0] * 3)
    np.testing.assert_array_equal(y.get()[1], [2] * 6 + [0] * 3)
    np.testing.assert_array_equal(mask.get()[1], [1] * 6 + [0] * 3)
    with pytest.raises(NotImplementedError, match="synthesize"):
        Task().synthesize(None, None, None)


def test_sizes_of_tasks_are_checked(be):
    with pytest.raises(ArgumentError, match="seq_len_max=0"):
        CopyTask(0, 3)
    with pytest.raises(ArgumentError, match="repeat_count_max=-1"):
        RepeatCopyTask(3, -1, 3)
    with pytest.raises(DTypeError, match="vec_size must be an integer"):
        PrioritySortTask(3, "4")
    with pytest.raises(DTypeError, match=r"task must be a task.*got 7"):
        Ticker(7)


# Questions ------------------------------------------------------------------------------------------------------------


def test_questions_come_once_an_epoch_in_another_order(be):
    story, query = np.arange(20).reshape(10, 2), np.arange(30).reshape(10, 3)
    answer = np.eye(10)
    data = QA(story, query, answer)
    assert (data.shape, data.ndata, data.nbatches) == ([(2, 1), (3, 1)], 10, 3)
    orders = []
    for _ in range(3):
        rows = []
        for (s, q), a in data:
            assert s.dtype == q.dtype == np.int32
            numbers = s.get()[0] // 2
            np.testing.assert_array_equal(q.get(), query[numbers].T)
            np.testing.assert_array_equal(a.get(), answer[numbers].T)
            rows += numbers.tolist()
        assert len(set(rows)) == 9
        orders.append(rows)
    assert orders[0] != orders[1] != orders[2]


def test_an_interrupted_epoch_is_drawn_again_as_it_was(be):
    data = QA(np.arange(12).reshape(12, 1), np.zeros((12, 1)), np.ones((12, 1)))
    list(data)
    position = data.progress()
    expected = [s.get().copy() for (s, _), _ in data]
    be.rng.uniform(size=100)
    again = QA(data.story, data.query, data.answer)
    again.set_progress(position)
    np.testing.assert_array_equal(expected, [s.get().copy() for (s, _), _ in again])


def test_questions_must_fit_together(be):
    with pytest.raises(ShapeError, match="two axes each"):
        QA(np.zeros((5, 2)), np.zeros((4, 2)), np.zeros((5, 2)))
    with pytest.raises(ShapeError, match="2 samples do not fill"):
        QA(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))


TRAIN = """\
1 Mary moved to the bathroom.
2 John went to the hall.
3 Where is Mary? \tbathroom\t1
4 Mary went to the hall.
5 Where is Mary? \thall\t4
1 John moved to the hall.
2 Where is John?\thall\t1
"""
TEST = """\
1 John went to the bathroom.
2 Where is John? \tbathroom\t1
"""
FOLDER = "tasks_1-20_v1-2"


@pytest.fixture
def tasks(tmp_path):
    for subset, test in (("en", TEST), ("en-10k", TEST * 2)):
        folder = tmp_path / FOLDER / subset
        folder.mkdir(parents=True)
        (folder / "qa1_single-supporting-fact_train.txt").write_text(TRAIN)
        (folder / "qa1_single-supporting-fact_test.txt").write_text(test)
    return tmp_path


def test_babi(be, tasks):
    babi = BABI(path=str(tasks))
    words = [".", "?", "John", "Mary", "Where", "bathroom", "hall", "is", "moved", "the", "to", "went"]
    assert babi.vocab == words and babi.vocab_size == len(words) + 2
    assert (babi.story_maxlen, babi.query_maxlen) == (18, 4)
    stories, queries, answers = babi.train
    assert stories.shape == (3, 18) and queries.shape == (3, 4) and answers.shape == (3, 14)
    assert [babi.index_to_word[i] for i in stories[0][-6:]] == ["John", "went", "to", "the", "hall", "."]
    assert not stories[0][:6].any() and stories[2].any()
    assert [babi.index_to_word[i] for i in stories[2][-6:]] == ["John", "moved", "to", "the", "hall", "."]
    assert not stories[2][:12].any(), "a story begins anew with number 1"
    assert [babi.index_to_word[i] for i in queries[2]] == ["Where", "is", "John", "?"]
    assert [babi.index_to_word[i] for i in answers.argmax(axis=1)] == ["bathroom", "hall", "hall"]
    assert babi.words_to_vector(["Mary", "unicorn"]) == [4, babi.vocab_size - 1]
    assert len(babi.test[0]) == 1 and len(BABI(path=str(tasks), subset="en-10k").test[0]) == 2
    be.bsz = 1
    (s, _), a = next(iter(babi.test_iter))
    np.testing.assert_array_equal(s.get(), babi.test[0].T)
    np.testing.assert_array_equal(a.get(), babi.test[2].T)
    assert babi.train_iter.shape == [(18, 1), (4, 1)]


def test_babi_from_its_archive(be, tasks, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with tarfile.open(elsewhere / f"{FOLDER}.tar.gz", "w:gz") as archive:
        archive.add(tasks / FOLDER, FOLDER)
    assert BABI(path=str(elsewhere)).story_maxlen == 18


def test_words_and_punctuation():
    assert BABI.tokenize("Where's the  ball?\n") == ["Where", "'", "s", "the", "ball", "?"]
    assert BABI.tokenize("") == []


def test_questions_that_do_not_do(be, tasks):
    file = tasks / FOLDER / "en" / "qa1_single-supporting-fact_train.txt"
    file.write_text("Mary moved to the bathroom.\n")
    with pytest.raises(OSError, match="a line without a number: 'Mary"):
        BABI(path=str(tasks))
    file.write_text("1 Mary moved to the bathroom.\n")
    with pytest.raises(OSError, match="no questions"):
        BABI(path=str(tasks))
