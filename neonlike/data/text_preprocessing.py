"""Preprocessing of sentences as word numbers: cleaning, padding, splitting; word vectors from a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from neonlike.data.protocol import DamagedData, MissingData
from neonlike.errors import ArgumentError
from neonlike.util.persist import expand, load_obj

__all__ = ["clean_string", "get_google_word2vec_W", "get_paddedXY", "pad_data", "pad_sentences"]

WORD_BYTES = 1000
"""Maximum length of a word in a file of word vectors."""


def clean_string(base: str) -> str:
    """Lower-case a text, separate words and punctuation by blanks, and drop signs except ``( ) , ! ? '`` and backticks.

    Parameters
    ----------
    base : str
        The text.

    Examples
    --------
    >>> from neonlike.data.text_preprocessing import clean_string
    >>> clean_string("It's GREAT, isn't it?")
    "it 's great , is n't it ?"
    """
    kept = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", base).lower()
    kept = re.sub(r"(n't|'s|'ve|'re|'d|'ll)\b", r" \1", kept)
    return " ".join(re.sub(r"([(),!?])", r" \1 ", kept).split())


def pad_sentences(
    sentences: Sequence[Sequence[int]], sentence_length: int | None = None, dtype: Any = np.int32, pad_val: float = 0.0
) -> np.ndarray:
    """Arrange sentences in rows of equal length: padded on the left, or cut to their last tokens.

    Parameters
    ----------
    sentences : sequence of sequences of int
        Token numbers of each sentence.
    sentence_length : int, optional
        Length of the rows; by default that of the longest sentence.
    dtype : dtype
        The dtype of the result.
    pad_val : float
        Value of the padding.

    Returns
    -------
    ndarray
        ``(sentences, sentence_length)``.

    Examples
    --------
    >>> from neonlike.data.text_preprocessing import pad_sentences
    >>> pad_sentences([[1], [2, 3, 4]], sentence_length=2)
    array([[0, 1],
           [3, 4]], dtype=int32)
    """
    length = max(map(len, sentences), default=0) if sentence_length is None else sentence_length
    padded = np.full((len(sentences), length), pad_val, dtype=dtype)
    for row, sentence in zip(padded, sentences, strict=True):
        tail = sentence[-length:] if length else []
        row[length - len(tail) :] = tail
    return padded


def get_paddedXY(  # noqa: N802  neon's name
    X: Sequence[Sequence[int]],
    y: Sequence[int],
    vocab_size: int | None = 20000,
    sentence_length: int | None = 100,
    oov: int | None = 2,
    start: int | None = 1,
    index_from: int = 3,
    seed: int = 113,
    shuffle: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Pad sentences of word numbers, and arrange labels in a column.

    Parameters
    ----------
    X : sequence of sequences of int
        Word numbers of each sentence.
    y : sequence of int
        Label of each sentence.
    vocab_size : int, optional
        Numbers from here on, including ``index_from``, are unknown words; None: no limit.
    sentence_length : int, optional
        Length of the rows; None: that of the longest sentence.
    oov : int, optional
        Replacement of unknown words; None: they are dropped.
    start : int, optional
        Start token of each sentence; None: no token.
    index_from : int
        Offset added to each word number, to reserve numbers for ``start``, ``oov`` and the padding, 0.
    seed : int
        Seed of the shuffle.
    shuffle : bool
        Whether sentences and labels are shuffled.

    Returns
    -------
    X, y : ndarray
        int32, ``(sentences, sentence_length)`` and ``(sentences, 1)``.

    Examples
    --------
    >>> from neonlike.data.text_preprocessing import get_paddedXY
    >>> get_paddedXY([[1], [2, 9]], [0, 1], vocab_size=8, sentence_length=3, shuffle=False)[0].tolist()
    [[0, 1, 4], [1, 5, 2]]
    """
    if len(X) != len(y):
        raise ArgumentError(f"get_paddedXY: {len(X)} sentences but {len(y)} labels")
    order = np.random.RandomState(seed).permutation(len(X)) if shuffle else np.arange(len(X))
    begin = [] if start is None else [start]
    sentences = [begin + [word + index_from for word in X[i]] for i in order]
    if vocab_size:
        sentences = [
            [word if word < vocab_size else oov for word in sentence if word < vocab_size or oov is not None]
            for sentence in sentences
        ]
    return pad_sentences(sentences, sentence_length), np.asarray(y, dtype=np.int32)[order].reshape(-1, 1)


def pad_data(
    path: str | os.PathLike[str],
    vocab_size: int | None = 20000,
    sentence_length: int | None = 100,
    oov: int | None = 2,
    start: int | None = 1,
    index_from: int = 3,
    seed: int = 113,
    test_split: float = 0.2,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], int]:
    """Load training and test sentences from a pickled file ``(sentences, labels)``; see :func:`get_paddedXY`.

    The last ``test_split`` of the shuffled sentences form the test part. Loading the file executes no code.

    Parameters
    ----------
    path : path
        The pickled file, optionally gzipped.
    vocab_size, sentence_length, oov, start, index_from, seed
        As of :func:`get_paddedXY`.
    test_split : float
        Part of the sentences for testing, from 0 to 1.

    Returns
    -------
    (X_train, y_train), (X_test, y_test), nclass
        nclass is the largest label plus 1.

    Raises
    ------
    ArgumentError
        If ``test_split`` is no such part.
    DamagedData
        If the file holds something else.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import pickle
    >>> from neonlike.data.text_preprocessing import pad_data
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "sentences.pkl")
    >>> with open(path, "wb") as file:
    ...     pickle.dump(([[1], [2, 3]], [0, 1]), file)
    >>> (X, y), (X_test, y_test), nclass = pad_data(path, sentence_length=3, test_split=0.5)
    >>> X.shape, X_test.shape, nclass
    ((1, 3), (1, 3), 2)
    >>> folder.cleanup()
    """
    if not 0 <= test_split <= 1:
        raise ArgumentError(f"pad_data: test_split={test_split}; expected a part, from 0 to 1")
    loaded = load_data_file("pad_data", path)
    try:
        sentences, labels = loaded
        X, y = get_paddedXY(sentences, labels, vocab_size, sentence_length, oov, start, index_from, seed)
    except (TypeError, ValueError) as error:
        raise DamagedData(
            f"pad_data: {path} is no pair of sentences of word numbers and their labels ({error})"
        ) from error
    at = int(len(X) * (1 - test_split))
    return (X[:at], y[:at]), (X[at:], y[at:]), 1 + int(y.max(initial=-1))


def load_data_file(who: str, path: str | os.PathLike[str]) -> Any:
    """Load a pickled file of a data set, optionally gzipped, without executing code.

    Raises
    ------
    MissingData, DamagedData
        If the file does not exist, or is damaged.
    RefusedContent
        If it holds objects other than arrays, numbers, strings and containers.
    """
    try:
        return load_obj(path)
    except FileNotFoundError:
        raise MissingData(f"{who}: there is no file {path}") from None
    except OSError as error:  # raised by gzip
        raise DamagedData(f"{who}: {path} is damaged, or not a whole file ({error})") from error


def get_google_word2vec_W(  # noqa: N802  neon's name
    fname: str | os.PathLike[str], vocab: Mapping[str, int], vocab_size: int = 1000000, index_from: int = 3
) -> tuple[np.ndarray, int, int]:
    """Load the vectors of the words in ``vocab`` from a file in word2vec's binary format.

    Parameters
    ----------
    fname : path
        The file of vectors.
    vocab : dict
        Number of each word, from 0.
    vocab_size : int
        Maximum number of rows.
    index_from : int
        Offset added to each number: rows 0 … index_from−1 are for padding and similar.

    Returns
    -------
    W : ndarray
        ``(rows, vector_size)`` float32. Words missing from the file get reproducible random values from −0.25 to 0.25;
        row 0 is zeros.
    vector_size, rows : int

    Raises
    ------
    MissingData, DamagedData
        If the file does not exist, or is truncated.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.data.text_preprocessing import get_google_word2vec_W
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "vectors.bin")
    >>> with open(path, "wb") as file:  # one word with two values
    ...     length = file.write(b"1 2" + bytes([10]) + b"cat " + np.array([1, 2], "<f4").tobytes())
    >>> W, vector_size, rows = get_google_word2vec_W(path, {"cat": 0})
    >>> W[3].tolist(), vector_size, rows
    ([1.0, 2.0], 2, 4)
    >>> folder.cleanup()
    """
    rows = min(vocab_size, max(vocab.values(), default=-1) + 1 + index_from)
    path = expand(fname)
    if not os.path.isfile(path):
        raise MissingData(f"get_google_word2vec_W: there is no file {path}")
    with open(path, "rb") as file:
        try:
            count, size = (int(number) for number in file.readline(WORD_BYTES).split())
        except ValueError as error:
            raise DamagedData(
                f"get_google_word2vec_W: {path} does not begin with the numbers of words and values"
            ) from error
        W = np.random.RandomState(0).uniform(-0.25, 0.25, (rows, size)).astype(np.float32)
        W[:1] = 0
        for _ in range(count):
            word, vector = _word(file), file.read(4 * size)
            if len(vector) < 4 * size:
                raise DamagedData(f"get_google_word2vec_W: {path} ends before the last of its {count} words")
            row = vocab.get(word, rows) + index_from
            if row < rows:
                W[row] = np.frombuffer(vector, "<f4")
    return W, size, rows


def _word(file: IO[bytes]) -> str:
    """Read the next word, up to a blank, without line ends before it."""
    letters = bytearray()
    while (letter := file.read(1)) not in (b" ", b"") and len(letters) < WORD_BYTES:
        if letter != b"\n":
            letters += letter
    return letters.decode("utf-8", "replace")
