"""Texts as batches of sequences, and the data sets made of texts, on small files."""

from __future__ import annotations

import copy
import zipfile

import h5py
import numpy as np
import pytest

from neonlike.data import PTB, HutterPrize, Prefetch, Shakespeare, Text, TextNMT
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.dialect import neon_dialect

pytestmark = pytest.mark.engines("numpy", "c", batch_size=3)

STORY = "the quick brown fox jumps over the lazy dog, and the dog sleeps on."
STEPS = 5


@pytest.fixture
def story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    return path


def ids(onehot, steps=STEPS):
    """Numbers ``(T, N)`` of one-hot columns, each of which must have a single one."""
    values = onehot.get()
    assert set(np.unique(values)) == {0, 1} and (values.sum(axis=0) == 1).all()
    return values.argmax(axis=0).reshape(steps, -1)


def columns_of(batches):
    """The text of each column, over all batches."""
    return np.concatenate(batches).T


def test_each_column_goes_on_from_batch_to_batch(be, story):
    text = Text(STEPS, story)
    used = len(STORY) // (3 * STEPS) * 3 * STEPS
    assert (text.nbatches, text.ndata, text.seq_length) == (used // 15, used // 5, STEPS)
    assert text.vocab == sorted(set(STORY)) and text.nclass == text.nout == len(text.vocab)
    assert text.shape == (text.nclass, STEPS) and text.decoder_shape is None
    for _ in range(2):
        batches = [(ids(x), ids(t)) for x, t in text]
        assert len(batches) == text.nbatches
        read = ["".join(text.index_to_token[i] for i in column) for column in columns_of([x for x, _ in batches])]
        assert "".join(read) == STORY[:used]
        following = ["".join(text.index_to_token[i] for i in column) for column in columns_of([t for _, t in batches])]
        assert "".join(following) == STORY[1:used] + STORY[0]


def test_numbers_instead_of_one_hot(be, story):
    text, onehot = Text(STEPS, story, onehot_input=False), Text(STEPS, story)
    assert text.shape == (STEPS, 1)
    for (x, t), (a, b) in zip(text, onehot, strict=True):
        assert x.dtype == np.int32 and x.shape == (STEPS, 3)
        np.testing.assert_array_equal(x.get(), ids(a))
        np.testing.assert_array_equal(t.get(), b.get())


def test_targets_may_be_the_input_reversed(be, story):
    for x, t in Text(STEPS, story, reverse_target=True):
        np.testing.assert_array_equal(ids(t), ids(x)[::-1])


@pytest.mark.parametrize("onehot", [True, False])
def test_the_previous_target_is_a_second_input(be, story, onehot):
    text = Text(STEPS, story, onehot_input=onehot, get_prev_target=True)
    assert text.decoder_shape == text.shape
    for (x, z), t in text:
        if onehot:
            np.testing.assert_array_equal(
                z.get(), np.concatenate([np.zeros((text.nclass, 3)), t.get()[:, :-3]], axis=1)
            )
        else:
            assert z.dtype == np.int32 and x.shape == z.shape
            np.testing.assert_array_equal(z.get(), np.concatenate([np.zeros((1, 3)), ids(t)[:-1]]))


def test_a_vocabulary_of_another_text_gives_its_numbers(be, tmp_path, story):
    (tmp_path / "other.txt").write_text("dog " * 10)
    first = Text(STEPS, story)
    other = Text(STEPS, tmp_path / "other.txt", vocab=first.vocab)
    assert other.nclass == first.nclass and other.token_to_index == first.token_to_index
    with pytest.raises(AssertionError, match=r"lacks 1 tokens .*'Z'"):
        (tmp_path / "other.txt").write_text("dogZ" * 10)
        Text(STEPS, tmp_path / "other.txt", vocab=first.vocab)


def test_a_copy_has_buffers_of_its_own(be, story):
    """Also of an iterator that has run: it knows the backend that it has buffers on, which cannot be copied."""
    text = Text(STEPS, story)
    batches = [(x.get(), t.get()) for x, t in text]
    twin = copy.deepcopy(text)
    for (x, t), (old_x, old_t) in zip(twin, batches, strict=True):
        np.testing.assert_array_equal(x.get(), old_x)
        np.testing.assert_array_equal(t.get(), old_t)
    assert twin.dev_X is not text.dev_X


@pytest.mark.parametrize("time_steps", [0, -1])
def test_a_sequence_has_a_step(be, story, time_steps):
    with pytest.raises(ArgumentError, match=f"Text: time_steps={time_steps}"):
        Text(time_steps, story)


def test_tokenizers_are_functions_and_may_be_lazy(be, story):
    with pytest.raises(ArgumentError, match=r"Text: tokenizer='words' is no function"):
        Text(2, story, tokenizer="words")
    lazy, words = Text(2, story, tokenizer=lambda text: iter(text.split())), Text(2, story, tokenizer=str.split)
    assert lazy.vocab == words.vocab
    np.testing.assert_array_equal(lazy.X, words.X)


def test_a_tokenizer_makes_words(be, story):
    text = Text(2, story, tokenizer=str.split)
    x, t = next(iter(text))
    assert [text.index_to_token[i] for i in ids(x, 2)[:, 0]] == ["the", "quick"]
    assert [text.index_to_token[i] for i in ids(t, 2)[:, 0]] == ["quick", "brown"]


def test_another_batch_size_rearranges_the_text(be, story):
    text = Text(STEPS, story)
    be.bsz = 2
    x, _ = next(iter(text))
    assert x.shape == (text.nclass, STEPS * 2) and text.ndata == len(STORY) // 10 * 2


def test_a_text_can_be_read_ahead(be, story):
    plain = [t.get().copy() for _, t in Text(STEPS, story)]
    for expected, (_, t) in zip(plain, Prefetch(Text(STEPS, story)), strict=True):
        np.testing.assert_array_equal(expected, t.get())


def test_files_that_do_not_do(be, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Text: there is no file .*none\.txt"):
        Text(STEPS, tmp_path / "none.txt")
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(ShapeError, match="3 tokens, but a batch of 3 sequences of 5 needs 15"):
        Text(STEPS, tmp_path / "short.txt")
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1") * 9)
    with pytest.raises(OSError, match="UTF-8"):
        Text(STEPS, tmp_path / "latin.txt")


def test_a_file_is_split_to_validate(be, story):
    train, valid = Text.create_valid_file(str(story), valid_split=0.25)
    assert train.endswith("story_train.txt") and valid.endswith("story_valid.txt")
    parts = [open(path, encoding="utf-8").read() for path in (train, valid)]
    assert "".join(parts) == STORY and len(parts[0]) == int(len(STORY) * 0.75)
    with pytest.raises(ArgumentError, match="valid_split=1"):
        Text.create_valid_file(str(story), valid_split=1)


# Translations ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def pairs(tmp_path):
    rng = np.random.default_rng(3)
    X, y = rng.integers(0, 4, (8, 6)), rng.integers(0, 3, (8, 6))
    with h5py.File(tmp_path / "toy-train.h5", "w") as file:
        file["X"], file["y"] = X, y
        file["s_vocab"], file["t_vocab"] = ["<p>", "un", "deux", "trois"], ["<p>", "one", "two"]
    return tmp_path, X, y


def test_sentence_pairs(be, pairs):
    path, X, y = pairs
    text = TextNMT(5, path, split="train", dataset="toy", get_prev_target=True)
    assert (text.shape, text.decoder_shape, text.nclass, text.nout, text.nbatches) == ((5, 1), (5, 1), 3, 3, 2)
    assert (text.s_vocab[1], text.t_vocab[1], text.index_to_token[2]) == ("un", "one", "two")
    for batch, ((x, z), t) in enumerate(text):
        rows = slice(3 * batch, 3 * batch + 3)
        np.testing.assert_array_equal(x.get(), X[rows, :5].T)
        reversed_y = y[rows, :5][:, ::-1].T
        np.testing.assert_array_equal(ids(t), reversed_y)
        np.testing.assert_array_equal(z.get()[1:], reversed_y[:-1])
        assert not z.get()[0].any()
        assert text.batch_index == batch + 1
    text.reset()
    assert text.batch_index == 0
    assert text.t_index_to_token is text.index_to_token and text.t_token_to_index == {"<p>": 0, "one": 1, "two": 2}
    onehot = TextNMT(5, path, split="train", dataset="toy", onehot_input=True, subset_pct=50)
    assert onehot.shape == (4, 5) and onehot.nbatches == 1
    np.testing.assert_array_equal(ids(next(iter(onehot))[0]), X[:3, :5].T)


def test_sentence_pairs_as_neon_gives_them(be, pairs):
    path, X, y = pairs
    with neon_dialect():
        text = TextNMT(5, path, split="train", dataset="toy")
        batches = [(x.get(), ids(t)) for x, t in text]
    assert text.t_vocab == [b"<p>", b"one", b"two"] and text.t_index_to_token[1] == b"one"
    for batch, (x, t) in enumerate(batches):
        rows = [sample * text.nbatches + batch for sample in range(3)]
        np.testing.assert_array_equal(x, X[rows, :5].T)
        np.testing.assert_array_equal(t, y[rows, :5][:, ::-1].T)


def test_neon_sorts_a_vocabulary(be, story):
    backwards = sorted(set(STORY), reverse=True)
    assert Text(STEPS, story, vocab=backwards).vocab == backwards
    with neon_dialect():
        assert Text(STEPS, story, vocab=backwards).vocab == backwards[::-1]


def test_pairs_that_do_not_do(be, pairs):
    path, *_ = pairs
    with pytest.raises(AttributeError, match="split='train'"):
        TextNMT(5, path)
    with pytest.raises(FileNotFoundError, match=r"toy-valid\.h5"):
        TextNMT(5, path, split="valid", dataset="toy")
    with pytest.raises(ShapeError, match="at least 7 steps"):
        TextNMT(7, path, split="train", dataset="toy")
    with h5py.File(path / "toy-train.h5", "a") as file:
        file["y"][0, 0] = 3
    with pytest.raises(OSError, match="0 to 3; its vocabulary has 3"):
        TextNMT(5, path, split="train", dataset="toy")
    (path / "toy-train.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(OSError, match="no HDF5 file"):
        TextNMT(5, path, split="train", dataset="toy")


# Data sets ------------------------------------------------------------------------------------------------------------


def test_shakespeare(be, tmp_path):
    (tmp_path / "shakespeare_input.txt").write_text(STORY * 10)
    data = Shakespeare(STEPS, path=str(tmp_path))
    assert data.train_iter.nclass == data.valid_iter.nclass == len(set(STORY))
    assert data.train_iter is data.get_iterator("train")
    used = len(STORY * 10)
    assert data.train_iter.ndata == int(used * 0.9) // 15 * 3
    assert data.valid_iter.ndata == (used - int(used * 0.9)) // 15 * 3


def test_penn_treebank(be, tmp_path):
    for part in ("train", "test", "valid"):
        (tmp_path / f"ptb.{part}.txt").write_text(" we like the dog \n the dog likes us \n" * 3)
    words = PTB(2, path=str(tmp_path), tokenizer="newline_tokenizer", onehot_input=False)
    assert words.train_iter.vocab == ["<eos>", "dog", "like", "likes", "the", "us", "we"]
    assert words.test_iter.shape == words.valid_iter.shape == (2, 1)
    assert list(words.data_dict) == ["train", "test", "valid"]
    letters = PTB(2, path=str(tmp_path), reverse_target=True, get_prev_target=True)
    assert letters.train_iter.shape == letters.train_iter.decoder_shape == (letters.train_iter.nclass, 2)
    assert PTB.newline_tokenizer("a b\nc\n") == ["a", "b", "<eos>", "c", "<eos>"]
    with pytest.raises(ArgumentError, match="newline_tokenizer"):
        PTB(2, path=str(tmp_path), tokenizer="words")
    with pytest.raises(AssertionError, match="'rest'"):
        words.get_iterator("rest")


def test_the_hutter_prize_is_unpacked(be, tmp_path):
    with zipfile.ZipFile(tmp_path / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", "<mediawiki>")
    path = HutterPrize(path=str(tmp_path)).load_data()
    assert open(path, encoding="utf-8").read() == "<mediawiki>"
