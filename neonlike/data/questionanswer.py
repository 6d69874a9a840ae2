"""The bAbI tasks (Weston et al. 2015): batches of stories, questions and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neonlike.data.dataiterator import ArrayShapeError
from neonlike.data.datasets import Dataset
from neonlike.data.drawing import DrawsEachEpoch
from neonlike.data.protocol import Batches, DamagedData, columns
from neonlike.data.sequences import read_text
from neonlike.data.text_preprocessing import pad_sentences
from neonlike.errors import ArgumentError

__all__ = ["BABI", "QA"]

Question = tuple[list[str], list[str], str]
"""Words of a story, words of a question, and the answer."""


class QA(DrawsEachEpoch):
    """Batches ``(story, query), answer`` in an order drawn from ``be.rng`` for each epoch.

    An incomplete last batch is dropped; its samples appear elsewhere in the next epoch.

    Parameters
    ----------
    story, query : ndarray
        Word numbers, ``(ndata, words)`` each; on the backend ``(words, N)``, int32.
    answer : ndarray
        Targets ``(ndata, k)``, as one-hot words; on the backend ``(k, N)``.

    Attributes
    ----------
    shape : list
        ``[(words of a story, 1), (words of a question, 1)]``.

    Raises
    ------
    ArrayShapeError
        If the arrays have other than two axes, or different numbers of samples.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import QA
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = QA(np.ones((4, 3), int), np.ones((4, 2), int), np.ones((4, 5)))
    >>> [(story.shape, query.shape, answer.shape) for (story, query), answer in data]
    [((3, 2), (2, 2), (5, 2)), ((3, 2), (2, 2), (5, 2))]
    """

    shares = True

    def __init__(self, story: np.ndarray, query: np.ndarray, answer: np.ndarray) -> None:
        super().__init__()
        self.story, self.query, self.answer = (np.asarray(part) for part in (story, query, answer))
        shapes = [part.shape for part in (self.story, self.query, self.answer)]
        if any(len(shape) != 2 or shape[0] != shapes[0][0] for shape in shapes):
            raise ArrayShapeError(
                f"QA: story, query and answer have shapes {shapes}; expected two axes each, and as many samples"
            )
        self.ndata = len(self.story)
        self._check_size(self.ndata)
        self.shape = [(self.story.shape[1], 1), (self.query.shape[1], 1)]

    story_length = property(lambda self: self.story.shape[1], doc="Words of a story.")
    query_length = property(lambda self: self.query.shape[1], doc="Words of a question.")

    @property
    def nbatches(self) -> Batches:
        """Batches of an epoch."""
        return Batches(self.ndata // self._batch_size())

    def reset(self) -> None:
        """Do nothing: each epoch draws its order."""

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        self._check_size(self.ndata)
        self.dev_story = self.be.iobuf(self.story.shape[1], dtype=np.int32)
        self.dev_query = self.be.iobuf(self.query.shape[1], dtype=np.int32)
        self.dev_answer = self.be.iobuf(self.answer.shape[1])

    def host_batches(self) -> Iterator[Any]:
        """Stories, questions and answers, ``(N, ...)`` each."""
        order = np.random.RandomState(self.epoch_seed).permutation(self.ndata)
        size, own = self._batch_size(), self.be.own_columns
        for batch in range(self.nbatches):
            chosen = order[batch * size :][own]
            yield self.story[chosen], self.query[chosen], self.answer[chosen]

    def load(self, batch: Any) -> tuple[tuple[Any, Any], Any]:
        """Inputs and targets on the backend."""
        for buffer, part in zip((self.dev_story, self.dev_query, self.dev_answer), batch, strict=True):
            buffer.set(columns(part, buffer.dtype))
        return (self.dev_story, self.dev_query), self.dev_answer

    def get_description(self, skip: Any = (), **kwargs: Any) -> Any:
        """Describe the iterator without its data."""
        return super().get_description(skip=[*skip, "story", "query", "answer"], **kwargs)


class BABI(Dataset):
    """A task of the bAbI project, from the folder ``tasks_1-20_v1-2`` in ``path`` or its archive.

    Word number 0 is padding, and ``vocab_size − 1`` stands for unknown words.

    Parameters
    ----------
    path : folder
        Folder for the files, created if missing; ``~`` is expanded.
    task : str
        Name of the task, such as "qa1_single-supporting-fact".
    subset : str
        Subset "en", "hn" or "shuffled", or with "-10k" for more questions.

    Attributes
    ----------
    train, test : tuple
        Stories ``(n, story_maxlen)`` and questions ``(n, query_maxlen)``, int32, padded on the left, and one-hot
        answers ``(n, vocab_size)``.
    vocab : list of str
        All words, sorted.
    vocab_size : int
        Number of words plus 2.
    word_to_index, index_to_word : dict
        Number of each word, and the reverse.
    story_maxlen, query_maxlen : int
        Words of the longest story, and of the longest question.

    References
    ----------
    Weston et al., "Towards AI-complete question answering: a set of prerequisite toy tasks" (2015).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import BABI
    >>> be = gen_backend("cpu", batch_size=2)
    >>> babi = BABI(path="data", task="qa1_single-supporting-fact")  # doctest: +SKIP
    >>> train, test = babi.train_iter, babi.test_iter  # doctest: +SKIP
    """

    from_description = False  # construction reads files
    FOLDER, ARCHIVE = "tasks_1-20_v1-2", "tasks_1-20_v1-2.tar.gz"
    BYTES = 11745123
    PARTS = ("train", "test")

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        task: str = "qa1_single-supporting-fact",
        subset: str = "en",
    ) -> None:
        super().__init__(self.ARCHIVE, "http://www.thespermwhale.com/jaseweston/babi", self.BYTES, path)
        self.task, self.subset = task, subset
        self.train_parsed, self.test_parsed = (self.parse_babi(file) for file in self.load_data())
        both = self.train_parsed + self.test_parsed
        if not self.train_parsed or not self.test_parsed:
            raise DamagedData(f"BABI: the files of {task} in {path} have no questions")
        self.vocab = sorted({word for story, query, answer in both for word in (*story, *query, answer)})
        self.vocab_size = len(self.vocab) + 2
        self.word_to_index = {word: index for index, word in enumerate(self.vocab, 1)}
        self.index_to_word = {index: word for word, index in self.word_to_index.items()}
        self.story_maxlen = max(len(story) for story, _, _ in both)
        self.query_maxlen = max(len(query) for _, query, _ in both)
        self.train, self.test = self.vectorize(self.train_parsed), self.vectorize(self.test_parsed)

    def load_data(self) -> list[str]:
        """Paths of the files with the training and the test part."""
        files = [f"{self.FOLDER}/{self.subset}/{self.task}_{part}.txt" for part in self.PARTS]
        return [self.find(file, self.ARCHIVE, self.BYTES) for file in files]

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``test``, as :class:`QA`."""
        return {"train": QA(*self.train), "test": QA(*self.test)}

    @staticmethod
    def tokenize(sentence: str) -> list[str]:
        """Words and punctuation of a sentence.

        Parameters
        ----------
        sentence : str
            The sentence.

        Examples
        --------
        >>> from neonlike.data import BABI
        >>> BABI.tokenize("Where is Mary?")
        ['Where', 'is', 'Mary', '?']
        """
        return re.findall(r"\w+|[^\w\s]", sentence)

    @classmethod
    def parse_babi(cls, path: str) -> list[Question]:
        """Parse the questions of a file, each with the story before it.

        A line is ``<number> <sentence>`` or ``<number> <question>\\t<answer>\\t<numbers of facts>``; number 1 begins a
        story.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        DamagedData
            If a line has another form.
        """
        story: list[str] = []
        questions: list[Question] = []
        for line in read_text("BABI", path).splitlines():
            number, _, rest = line.strip().partition(" ")
            if not number.isdigit():
                raise DamagedData(f"BABI: {path} has a line without a number: {line[:60]!r}")
            if number == "1":
                story = []
            question, tab, answer = rest.partition("\t")
            if tab:
                questions.append((list(story), cls.tokenize(question), answer.partition("\t")[0].strip()))
            else:
                story += cls.tokenize(rest)
        return questions

    def words_to_vector(self, words: Sequence[str]) -> list[int]:
        """Convert words to their numbers.

        Parameters
        ----------
        words : sequence of str
            The words.
        """
        return [self.word_to_index.get(word, self.vocab_size - 1) for word in words]

    def one_hot_vector(self, answer: str) -> np.ndarray:
        """Convert an answer to a one-hot vector ``(vocab_size,)``.

        Parameters
        ----------
        answer : str
            A word.

        Raises
        ------
        ArgumentError
            For a word that is not in the vocabulary.
        """
        if answer not in self.word_to_index:
            raise ArgumentError(f"BABI: the answer {answer!r} is no word of the task")
        vector = np.zeros(self.vocab_size, np.float32)
        vector[self.word_to_index[answer]] = 1
        return vector

    def vectorize(self, questions: Sequence[Question]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Convert questions to arrays of stories, questions and answers.

        Parameters
        ----------
        questions : list of (story, question, answer)
            Words of each, as :meth:`parse_babi` returns them.
        """
        stories, queries, answers = zip(*questions, strict=True)
        return (
            pad_sentences([self.words_to_vector(words) for words in stories], self.story_maxlen),
            pad_sentences([self.words_to_vector(words) for words in queries], self.query_maxlen),
            np.stack([self.one_hot_vector(answer) for answer in answers]),
        )
