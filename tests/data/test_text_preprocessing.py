"""Sentences of word numbers, and the data sets that have them."""

from __future__ import annotations

import gzip
import os
import pickle

import numpy as np
import pytest

from neonlike.data import IMDB, SICK
from neonlike.data.text_preprocessing import clean_string, get_google_word2vec_W, get_paddedXY, pad_data, pad_sentences
from neonlike.errors import ArgumentError
from neonlike.util.persist import RefusedContent, UnreadableFile

SENTENCES = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [2, 2], [30, 1]]
LABELS = [0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("It's GREAT, isn't it?", "it 's great , is n't it ?"),
        ("(we've\tseen; 3 films!)", "( we 've seen 3 films ! )"),
        ("", ""),
    ],
)
def test_clean_string(text, cleaned):
    assert clean_string(text) == cleaned


def test_sentences_are_padded_on_the_left_and_keep_their_tail():
    padded = pad_sentences([[1], [2, 3, 4], []], sentence_length=2)
    assert padded.dtype == np.int32
    np.testing.assert_array_equal(padded, [[0, 1], [3, 4], [0, 0]])
    np.testing.assert_array_equal(pad_sentences([[1], [2, 3, 4]], pad_val=9), [[9, 9, 1], [2, 3, 4]])
    assert pad_sentences([]).shape == (0, 0)
    assert pad_sentences([[1], [2]], sentence_length=0).shape == (2, 0)


def test_words_are_moved_and_unknown_ones_replaced():
    X, y = get_paddedXY(SENTENCES, LABELS, vocab_size=10, sentence_length=4, shuffle=False)
    # 3 is added to each word, 1 begins a sentence, and from 10 on a word is unknown: 2
    np.testing.assert_array_equal(X, [[1, 4, 5, 6], [0, 0, 1, 7], [9, 2, 2, 2], [0, 1, 5, 5], [0, 1, 2, 4]])
    np.testing.assert_array_equal(y, np.reshape(LABELS, (5, 1)))
    assert X.dtype == y.dtype == np.int32
    X, _ = get_paddedXY(SENTENCES, LABELS, 10, 4, oov=None, start=None, index_from=3, shuffle=False)
    np.testing.assert_array_equal(X[2], [0, 0, 8, 9])
    X, _ = get_paddedXY(SENTENCES, LABELS, None, 4, shuffle=False)
    np.testing.assert_array_equal(X[4], [0, 1, 33, 4])


def test_shuffling_keeps_sentences_and_labels_together():
    plain = get_paddedXY(SENTENCES, LABELS, sentence_length=4, shuffle=False)
    one, again, other = (get_paddedXY(SENTENCES, LABELS, sentence_length=4, seed=s) for s in (113, 113, 5))
    np.testing.assert_array_equal(one[0], again[0])
    assert not np.array_equal(one[0], other[0])
    pairs = [{(*x, *t) for x, t in zip(X.tolist(), y.tolist())} for X, y in (plain, one, other)]
    assert pairs[0] == pairs[1] == pairs[2]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "imdb.pkl"
    with open(path, "wb") as file:
        pickle.dump((SENTENCES * 4, LABELS * 4), file)
    return path


def test_a_file_is_split(reviews):
    (X, y), (X_test, y_test), nclass = pad_data(reviews, vocab_size=10, sentence_length=4, test_split=0.25)
    assert (X.shape, y.shape, X_test.shape, y_test.shape, nclass) == ((15, 4), (15, 1), (5, 4), (5, 1), 2)
    with gzip.open(f"{reviews}.gz", "wb") as file:
        file.write(reviews.read_bytes())
    np.testing.assert_array_equal(pad_data(f"{reviews}.gz", 10, 4, test_split=0.25)[0][0], X)


def test_a_file_that_would_run_something_is_refused(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    with open(tmp_path / "imdb.pkl", "wb") as file:
        pickle.dump((Hostile(), [1]), file)
    with pytest.raises(RefusedContent, match="system"):
        pad_data(tmp_path / "imdb.pkl")
    assert not (tmp_path / "ran").exists()


def test_files_that_do_not_do(reviews, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"pad_data: there is no file .*none\.pkl"):
        pad_data(tmp_path / "none.pkl")
    content = reviews.read_bytes()
    reviews.write_bytes(content[:-20])
    with pytest.raises(UnreadableFile, match="not a whole one"):
        pad_data(reviews)
    for wrong in ([1, 2, 3], (["ab"], [1]), ([[1]], [1, 2])):
        reviews.write_bytes(pickle.dumps(wrong))
        with pytest.raises(OSError, match="no pair of sentences"):
            pad_data(reviews)
    (tmp_path / "cut.pkl.gz").write_bytes(gzip.compress(content)[:-12])
    with pytest.raises((OSError, EOFError), match=r"damaged|not a whole"):
        pad_data(tmp_path / "cut.pkl.gz")
    with pytest.raises(ArgumentError, match="test_split=2"):
        pad_data(reviews, test_split=2)


@pytest.mark.engines("any", batch_size=2)
def test_imdb(be, reviews):
    data = IMDB(vocab_size=10, sentence_length=4, path=str(reviews.parent))
    assert list(data.data_dict) == ["nclass", "train", "test"] and data.data_dict["nclass"] == 2
    assert (data.train_iter.ndata, data.test_iter.ndata, data.train_iter.shape) == (16, 4, 4)
    (X, y), _, _ = data.load_data()
    x, t = next(iter(data.train_iter))
    np.testing.assert_array_equal(x.get(), X[:2].T)
    np.testing.assert_array_equal(t.get(), np.eye(2)[y[:2, 0]].T)


def test_sick(tmp_path):
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for name, count in (("SICK_train", 2), ("SICK_trial", 1), ("SICK_test_annotated", 3)):
        lines = [f"{i}\tA dog runs {i}\tA cat sleeps {i}\t{1 + i / 2}\tNEUTRAL\n" for i in range(count)]
        (tmp_path / f"{name}.txt").write_text(head + "".join(lines))
    train, dev, test, scores = SICK(path=str(tmp_path)).load_eval_data()
    assert train == [["A dog runs 0", "A dog runs 1"], ["A cat sleeps 0", "A cat sleeps 1"]]
    assert [len(part[0]) for part in (train, dev, test)] == [len(one) for one in scores] == [2, 1, 3]
    assert scores[2] == [1.0, 1.5, 2.0]
    (tmp_path / "SICK_trial.txt").write_text(head + "7\tonly half a")
    with pytest.raises(OSError, match=r"SICK_trial\.txt is no table"):
        SICK(path=str(tmp_path)).load_eval_data()


# Word vectors ---------------------------------------------------------------------------------------------------------


def word2vec(path, words, size=3, cut=0):
    content = f"{len(words)} {size}\n".encode()
    for word, vector in words.items():
        content += word.encode() + b" " + np.asarray(vector, "<f4").tobytes() + b"\n"
    path.write_bytes(content[: len(content) - cut])
    return path


def test_word_vectors_are_put_in_their_rows(tmp_path):
    words = {"dog": [1, 2, 3], "unused": [9, 9, 9], "cat": [4, 5, 6]}
    path = word2vec(tmp_path / "vectors.bin", words)
    W, size, rows = get_google_word2vec_W(path, {"dog": 0, "emu": 1, "cat": 2})
    assert (W.shape, W.dtype, size, rows) == ((6, 3), np.float32, 3, 6)
    np.testing.assert_array_equal(W[[0, 3, 5]], [[0, 0, 0], [1, 2, 3], [4, 5, 6]])
    assert (abs(W[4]) <= 0.25).all() and W[4].any()
    assert get_google_word2vec_W(path, {"dog": 0, "cat": 2}, vocab_size=4)[0].shape == (4, 3)


def test_word_vectors_that_do_not_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        get_google_word2vec_W(tmp_path / "none.bin", {})
    with pytest.raises(OSError, match="ends before the last of its 1 words"):
        get_google_word2vec_W(word2vec(tmp_path / "cut.bin", {"dog": [1, 2, 3]}, cut=6), {"dog": 0})
    (tmp_path / "text.bin").write_bytes(b"not a header at all")
    with pytest.raises(OSError, match="does not begin with"):
        get_google_word2vec_W(tmp_path / "text.bin", {"dog": 0})
