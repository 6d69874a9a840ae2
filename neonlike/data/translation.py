"""Sentence pairs in two languages, from files with padded token numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from neonlike.data.protocol import ArrayShapeError, DamagedData, MissingData, need_h5py
from neonlike.data.sequences import TokenSequences
from neonlike.errors import ArgumentError, MissingArgument
from neonlike.optree import dialect
from neonlike.util.persist import expand

__public_module__ = "neonlike.data.text"


class TextNMT(TokenSequences):
    """Batches of sentence pairs from ``<path>/<dataset>-<split>.h5``.

    The file has token numbers of sentences in ``X`` and of their translations in ``y``, ``(sentences, steps)`` each,
    and the tokens in ``s_vocab`` and ``t_vocab``. Targets are the translations **reversed**, last word first. In neon's
    dialect tokens are bytes, as in the file, and sample n of batch k is sentence n * nbatches + k.

    Parameters
    ----------
    time_steps : int
        Steps per sentence; further steps in the file are ignored.
    path : folder
        Folder of the file.
    tokenizer : object
        Not used: the file has token numbers.
    onehot_input : bool
        Use one-hot inputs; otherwise token numbers, int32.
    get_prev_target : bool
        Pair each input with the previous step's target.
    split : str
        Part of the data set, such as "train".
    dataset : str
        Name of the data set.
    subset_pct : float
        Percentage of the file to use.

    Attributes
    ----------
    s_vocab, t_vocab : list of str
        Tokens of the two languages; ``vocab`` is the targets' one.
    s_token_to_index, s_index_to_token, t_token_to_index, t_index_to_token : dict
        The targets' mappings are also ``token_to_index`` and ``index_to_token``.
    nclass, nout : int
        Number of tokens in the targets' language.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import TextNMT
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = TextNMT(time_steps=20, path="data", split="train", dataset="un2000")  # doctest: +SKIP
    """

    reverse_target = True

    def __init__(
        self,
        time_steps: int,
        path: str | os.PathLike[str],
        tokenizer: Any = None,
        onehot_input: bool = False,
        get_prev_target: bool = False,
        split: str | None = None,
        dataset: str = "un2000",
        subset_pct: float = 100,
    ) -> None:
        if split is None:
            raise MissingArgument(
                "TextNMT: split says which file, <dataset>-<split>.h5; give for example split='train'"
            )
        if not 0 < subset_pct <= 100:
            raise ArgumentError(f"TextNMT: subset_pct={subset_pct}; expected a percentage, above 0 up to 100")
        self.path, self.split, self.dataset = os.fspath(path), split, dataset
        self.tokenizer, self.subset_pct = tokenizer, subset_pct
        self._source, self._target = self._read(os.path.join(expand(path), f"{dataset}-{split}.h5"), time_steps)
        self.vocab = self.t_vocab
        self.s_token_to_index = {token: index for index, token in enumerate(self.s_vocab)}
        self.s_index_to_token = dict(enumerate(self.s_vocab))
        self.token_to_index = self.t_token_to_index = {token: index for index, token in enumerate(self.t_vocab)}
        self.index_to_token = self.t_index_to_token = dict(enumerate(self.t_vocab))
        super().__init__(time_steps, len(self.s_vocab), len(self.t_vocab), onehot_input, get_prev_target)

    def _read(self, file: str, time_steps: int) -> list[np.ndarray]:
        h5py = need_h5py("TextNMT", file)
        if not os.path.isfile(file):
            raise MissingData(f"TextNMT: there is no file {file}")
        try:
            with h5py.File(file, "r") as opened:
                self.s_vocab, self.t_vocab = (
                    [_token(token) for token in opened[name]] for name in ("s_vocab", "t_vocab")
                )
                arrays = [np.asarray(opened[name]) for name in ("X", "y")]
        except (OSError, KeyError) as error:
            raise DamagedData(
                f"TextNMT: {file} is no HDF5 file with X, y, s_vocab and t_vocab, or not a whole one ({error})"
            ) from error
        for name, array, vocab in zip("Xy", arrays, (self.s_vocab, self.t_vocab), strict=True):
            if array.ndim != 2 or len(array) != len(arrays[0]) or array.shape[1] < time_steps:
                raise ArrayShapeError(
                    f"TextNMT: {name} of {file} has shape {array.shape}; expected sentences of at least {time_steps} "
                    "steps, as many as translations"
                )
            if array.size and not (0 <= array.min() and array.max() < len(vocab)):
                raise DamagedData(
                    f"TextNMT: numbers in {name} of {file} go from {array.min()} to {array.max()}; its vocabulary has "
                    f"{len(vocab)} tokens"
                )
        used = int(len(arrays[0]) * self.subset_pct / 100)
        return [array[:used, :time_steps].astype(np.int32) for array in arrays]

    def arranged(self, bsz: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, ``(bsz, nbatches, T)``: batch after batch in the order of the file."""
        self._check_size(len(self._source))
        nbatches = len(self._source) // bsz
        used = [part[: nbatches * bsz] for part in (self._source, self._target)]
        if dialect.is_neon():
            source, target = (part.reshape(bsz, nbatches, -1) for part in used)
        else:
            source, target = (part.reshape(nbatches, bsz, -1).swapaxes(0, 1) for part in used)
        return source, target


def _token(token: Any) -> Any:
    if dialect.is_neon():
        return token
    return token.decode("utf-8") if isinstance(token, bytes) else str(token)
