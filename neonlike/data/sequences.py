"""Token sequences: a text as batches in which each column continues from batch to batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.data.protocol import ArrayShapeError, DamagedData, HostIterator, MissingData
from neonlike.errors import ArgumentError, ArgumentTypeError
from neonlike.nervanaobject import Description
from neonlike.optree import dialect
from neonlike.util.atomic import replacing
from neonlike.util.persist import TEXT, expand

__public_module__ = "neonlike.data.text"

Tokenizer = Callable[[str], Iterable[str]]


def read_text(who: str, path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 text file.

    Raises
    ------
    MissingData, DamagedData
        If the file does not exist, or is not UTF-8 text.
    """
    try:
        with open(expand(path), encoding=TEXT) as file:
            return file.read()
    except FileNotFoundError:
        raise MissingData(f"{who}: there is no file {expand(path)}") from None
    except UnicodeDecodeError as error:
        raise DamagedData(f"{who}: {path} is not a text in UTF-8 ({error})") from error


class TokenSequences(HostIterator):
    """Base of iterators over sequences of token numbers, stored on the host as ``(N, nbatches, T)``, N of all ranks.

    Parameters
    ----------
    time_steps : int
        Tokens per sequence, T.
    nin, nout : int
        Vocabulary sizes of inputs and targets.
    onehot_input : bool
        Use one-hot inputs; otherwise token numbers, int32.
    get_prev_target : bool
        Pair each input with the previous step's target.

    Attributes
    ----------
    shape : tuple
        ``(nclass_in, T)`` one-hot, or ``(T, 1)`` numbers as int32.
    decoder_shape : tuple or None
        Shape of the second input, the previous targets; None without it.
    X, y : ndarray
        Inputs and targets, the latter before reversal.
    batch_index : int
        Number of batches already yielded in the epoch.
    reverse_target : bool
        Whether each target sequence is reversed.
    seq_length, nbatches, ndata : int
        Tokens per sequence, batches per epoch, and sequences.
    """

    reverse_target = False
    shares = True

    from_description = False  # construction reads files

    nbatches: int
    X: np.ndarray
    y: np.ndarray

    def __init__(self, time_steps: int, nin: int, nout: int, onehot_input: bool, get_prev_target: bool) -> None:
        """Set the sizes; ``nin`` and ``nout`` are the vocabulary sizes of inputs and targets."""
        super().__init__()
        if time_steps < 1:
            raise ArgumentError(f"{self.classnm}: time_steps={time_steps}; expected 1 token in a sequence, or more")
        self.seq_length = self.time_steps = time_steps
        self.onehot_input = onehot_input
        self.get_prev_target = get_prev_target
        self.batch_index = 0
        self.nclass = self.nout = nout
        self._nin = nin
        self.shape = (nin, time_steps) if onehot_input else (time_steps, 1)
        before = (nout, time_steps) if onehot_input else (time_steps, 1)
        self.decoder_shape = before if get_prev_target else None
        self._arranged_for = 0
        self._arrange(self._batch_size())

    def arranged(self, bsz: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, ``(bsz, nbatches, T)``, the latter before reversal; ``bsz`` is that of all ranks."""
        raise NotImplementedError

    def _arrange(self, bsz: int) -> None:
        if bsz != self._arranged_for:
            self.X, self.y = self.arranged(bsz)
            self._arranged_for = bsz
            self.nbatches = self.X.shape[1]
            self.ndata = self.nbatches * bsz

    def reset(self) -> None:
        """Restart at the first sample, as each epoch does."""
        self.batch_index = 0

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        self._arrange(self._batch_size())
        steps = self.seq_length
        self.dev_lbl = self.be.iobuf(steps, dtype=np.int32)
        self.dev_X = self.be.iobuf((self._nin, steps)) if self.onehot_input else self.be.iobuf(steps, dtype=np.int32)
        self.dev_y = self.be.iobuf((self.nout, steps))
        if self.get_prev_target:
            self.dev_Z = (
                self.be.iobuf((self.nout, steps)) if self.onehot_input else self.be.iobuf(steps, dtype=np.int32)
            )

    def host_batches(self) -> Iterator[Any]:
        """Numbers of inputs and targets, ``(T, N)`` each."""
        targets = self.y[:, :, ::-1] if self.reverse_target else self.y
        own = self.be.own_columns
        for batch in range(self.nbatches):
            yield tuple(np.ascontiguousarray(part[own, batch].T, dtype=np.int32) for part in (self.X, targets))

    def load(self, batch: Any) -> tuple[Any, Any]:
        """Load inputs, or pairs of inputs and previous targets, and one-hot targets to the backend."""
        inputs, targets = batch
        self.batch_index = self.batch_index % self.nbatches + 1
        self._set(self.dev_X, inputs)
        self._onehot(self.dev_y, targets)
        if not self.get_prev_target:
            return self.dev_X, self.dev_y
        if self.onehot_input:
            if len(targets) > 1:  # the first step stays zero
                self.dev_Z[:, inputs.shape[1] :] = self.dev_y[:, : -inputs.shape[1]]
        else:
            self.dev_Z.set(np.concatenate([np.zeros_like(targets[:1]), targets[:-1]]))
        return (self.dev_X, self.dev_Z), self.dev_y

    def _set(self, buffer: Any, numbers: np.ndarray) -> None:
        if self.onehot_input:
            self._onehot(buffer, numbers)
        else:
            buffer.set(numbers)

    def _onehot(self, buffer: Any, numbers: np.ndarray) -> None:
        self.dev_lbl.set(numbers)
        buffer[:] = self.be.onehot(self.dev_lbl.reshape((1, numbers.size)), axis=0)


class Text(TokenSequences):
    """A text as batches of sequences, split into characters or by a tokenizer.

    The text is cut into one stretch per column of a batch, and each stretch into sequences of ``time_steps`` tokens: a
    column continues from batch to batch, as recurrent layers that keep their state require. The remainder at the end of
    the text is not used.

    Parameters
    ----------
    time_steps : int
        Tokens per sequence, T.
    path : path
        A text file in UTF-8.
    vocab : sequence of tokens, optional
        Vocabulary of another text, to share its numbering; it must contain all tokens of this text.
    tokenizer : callable, optional
        Splits a text into a list of tokens; by default into characters.
    onehot_input : bool
        Use one-hot inputs, ``(nclass, T*N)``; otherwise token numbers ``(T, N)``, int32.
    reverse_target : bool
        Use each input sequence reversed as target; otherwise the next tokens, with the first after the last.
    get_prev_target : bool
        Pair each input with the previous step's target, which is zero at the first step.

    Attributes
    ----------
    vocab : list
        All tokens, sorted.
    nclass, nout : int
        Number of tokens in the vocabulary.
    token_to_index, index_to_token : dict
        Number of each token, and the reverse.

    Raises
    ------
    ArgumentError
        If the vocabulary lacks a token of the text; an ``AssertionError``.
    ArrayShapeError
        If the text is shorter than a batch.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Text
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "text.txt")
    >>> with open(path, "w") as file:
    ...     length = file.write("abcabcabcabc")
    >>> data = Text(time_steps=3, path=path)
    >>> data.vocab, data.shape, data.nbatches
    (['a', 'b', 'c'], (3, 3), 2)
    >>> x, t = next(iter(data))
    >>> x.get()[:, 0].tolist(), t.get()[:, 0].tolist()  # a, and b after it
    ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        time_steps: int,
        path: str | os.PathLike[str],
        vocab: Any = None,
        tokenizer: Tokenizer | None = None,
        onehot_input: bool = True,
        reverse_target: bool = False,
        get_prev_target: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.tokenizer = tokenizer
        self.reverse_target = reverse_target
        tokens = self.get_tokens(read_text(type(self).__name__, path), tokenizer)
        self.vocab = self.get_vocab(tokens, vocab)
        self.token_to_index = {token: index for index, token in enumerate(self.vocab)}
        self.index_to_token = dict(enumerate(self.vocab))
        self._numbers = np.fromiter((self.token_to_index[token] for token in tokens), np.int32, len(tokens))
        count = len(self.vocab)
        super().__init__(time_steps, count, count, onehot_input, get_prev_target)

    def arranged(self, bsz: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, ``(bsz, nbatches, T)``."""
        nbatches = len(self._numbers) // (bsz * self.seq_length)
        if not nbatches:
            raise ArrayShapeError(
                f"{self.classnm}: {self.path} has {len(self._numbers)} tokens, but a batch of {bsz} sequences of "
                f"{self.seq_length} needs {bsz * self.seq_length}; use a smaller batch size or fewer time steps"
            )
        shape = (bsz, nbatches, self.seq_length)
        used = self._numbers[: nbatches * bsz * self.seq_length]
        inputs = used.reshape(shape)
        return inputs, inputs if self.reverse_target else np.roll(used, -1).reshape(shape)

    def get_description(self, skip: Collection[str] = (), **kwargs: Any) -> Description:
        """Describe the iterator without its vocabulary and tokenizer."""
        return super().get_description(skip=[*skip, "vocab", "tokenizer"], **kwargs)

    @staticmethod
    def create_valid_file(path: str, valid_split: float = 0.1) -> tuple[str, str]:
        """Split a text file in two files beside it: ``name_train.ext``, and the last part as ``name_valid.ext``.

        Parameters
        ----------
        path : path
            The text file.
        valid_split : float
            Part of the text for validation.

        Returns
        -------
        tuple of str
            The two paths.
        """
        if not 0 < valid_split < 1:
            raise ArgumentError(f"create_valid_file: valid_split={valid_split}; expected a part, between 0 and 1")
        text = read_text("create_valid_file", path)
        stem, suffix = os.path.splitext(expand(path))
        at = int(len(text) * (1 - valid_split))
        paths = f"{stem}_train{suffix}", f"{stem}_valid{suffix}"
        for part, content in zip(paths, (text[:at], text[at:]), strict=True):
            with replacing(part) as file:
                file.write(content.encode())
        return paths

    @staticmethod
    def get_tokens(string: str, tokenizer: Tokenizer | None = None) -> Sequence[str]:
        """Split a text into tokens by ``tokenizer``, or into characters.

        Parameters
        ----------
        string : str
            The text.
        tokenizer : callable, optional
            Function from a text to a list of tokens.
        """
        if tokenizer is None:
            return string
        if not callable(tokenizer):
            raise ArgumentTypeError(
                f"Text: tokenizer={brief(tokenizer)} is no function that makes a list of tokens from a text; give one, "
                "such as str.split"
            )
        tokens = tokenizer(string)
        return tokens if isinstance(tokens, Sequence) else list(tokens)

    @staticmethod
    def get_vocab(tokens: Iterable[str], vocab: Collection[str] | None = None) -> list[str]:
        """Return all tokens, sorted; or ``vocab`` in its order, if it contains them all.

        In neon's dialect ``vocab`` is sorted, too, as in neon.

        Parameters
        ----------
        tokens : iterable of str
            Tokens of the text.
        vocab : sequence of str, optional
            Vocabulary to use.

        Raises
        ------
        ArgumentError
            If ``vocab`` lacks a token; an ``AssertionError``.
        """
        found = set(tokens)
        if vocab is None:
            return sorted(found)
        if lacking := found - set(vocab):
            raise ArgumentError(
                f"get_vocab: the vocabulary lacks {len(lacking)} tokens of the text, such as {sorted(lacking)[:5]}; "
                "make it of both texts together"
            )
        in_order = isinstance(vocab, list | tuple) and not dialect.is_neon()  # neon sorts it
        return list(vocab) if in_order else sorted(vocab)
