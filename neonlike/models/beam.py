"""Beam search: the most likely output sequences of a sequence-to-sequence network.

Source: Graves, "Sequence transduction with recurrent neural networks" (2012); Sutskever et al. (2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.container import Seq2Seq
from neonlike.layers.core.base import interpret_in_shape, require_size
from neonlike.nervanaobject import NervanaObject

__public_module__ = "neonlike.util.beamsearch"


class BeamSearch(NervanaObject):
    """Search for the sequence of words with the largest product of probabilities.

    A beam is a likely sequence. At each step every beam is extended by every word, and the best results are kept.

    Parameters
    ----------
    seq2seq : Seq2Seq
        A trained network with word probabilities as outputs.

    Attributes
    ----------
    candidates : list of ndarray ``(steps, N)``
        Words of the beams, the best one last.
    scores : Tensor ``(beams, N)``
        Sums of their log-probabilities, ascending.
    scores_list : list of Tensor ``(1, N)``
        The scores of each beam.
    z_list : list of Tensor
        The decoder's next input, for each beam.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, Recurrent, Seq2Seq
    >>> from neonlike.transforms import Softmax, Tanh
    >>> from neonlike.util.beamsearch import BeamSearch
    >>> be = gen_backend("cpu", batch_size=2)
    >>> encoder = [Recurrent(4, Constant(0.1), activation=Tanh())]
    >>> decoder = [Recurrent(4, Constant(0.1), activation=Tanh()), Affine(3, Constant(0.1), activation=Softmax())]
    >>> net = Seq2Seq([encoder, decoder]).configure((3, 5, 3, 5))
    >>> net.allocate()
    >>> BeamSearch(net).beamsearch(be.ones((3, 10)), num_beams=2, steps=4).shape
    (4, 2)
    """

    def __init__(self, seq2seq: Any) -> None:
        super().__init__()
        if not isinstance(seq2seq, Seq2Seq):
            raise DTypeError(f"BeamSearch: expected a Seq2Seq, e.g. model.layers, got {shown(seq2seq)}")
        self.seq2seq = seq2seq
        self.candidates: list[np.ndarray] = []
        self.scores: Any = None
        self.scores_list: list[Any] = []
        self.z_list: list[Any] = []
        self._states: list[Any] = []
        self._stacked: Any = None

    def beamsearch(self, inputs: Any, num_beams: int = 5, steps: int | None = None) -> Any:
        """Run the search for one batch.

        Parameters
        ----------
        inputs : Tensor
            Input of the encoder (a training pair may be passed; its first part is used).
        num_beams : int
            Number of beams; with 1 each step takes the most likely word.
        steps : int, optional
            Number of words to generate; by default the decoder's configured steps.

        Returns
        -------
        Tensor
            int32 ``(steps, N)``: the words of the best beam.
        """
        net = self.seq2seq
        num_beams = require_size(num_beams, "beamsearch: num_beams")
        steps = interpret_in_shape(net.out_shape)[1] if steps is None else require_size(steps, "beamsearch: steps")
        x = inputs[0] if isinstance(inputs, list | tuple) else inputs
        self._begin(x)
        with net.decoder.step_by_step():
            for _ in range(steps):
                self._step(num_beams)
        return self.be.array(self.candidates[-1], dtype=np.int32)

    def _begin(self, x: Any) -> None:
        """Start with one empty beam."""
        net, decoder = self.seq2seq, self.seq2seq.decoder
        net.encoder.fprop(x, inference=True)
        samples = net.samples_in(x)
        if len(net.decoder_connections) < len(decoder.recurrent):
            raise ArgumentError(
                f"beamsearch: {len(decoder.recurrent)} recurrent layers of the decoder, but initial states for "
                f"{len(net.decoder_connections)}"
            )
        self._states, start = [net.initial_states()], decoder.start_index
        self.scores = self.be.zeros((1, samples))
        self.scores_list = [self.scores]
        self.candidates = [np.zeros((0, samples), np.int32)]
        words = None if start is None else decoder.words_as_inputs(np.full((1, samples), start, np.int32))
        self.z_list = [decoder.next_inputs(samples, words)]

    def _step(self, num_beams: int) -> None:
        """Extend each beam by each word, and keep the best."""
        be, after = self.be, []
        words = interpret_in_shape(self.seq2seq.out_shape)[0]
        stacked = self._buffer(words * len(self.z_list), self.scores.shape[1])
        for i, (z, states) in enumerate(zip(self.z_list, self._states, strict=True)):
            y = self.seq2seq.decoder.fprop(z, True, states)
            stacked[i * words : (i + 1) * words] = be.safelog(y) + self.scores[i : i + 1]
            after.append(self.seq2seq.decoder.states())
        kept = min(num_beams, stacked.shape[0])
        values, positions = be.topk(stacked, kept, axis=0)
        scores, places = be.empty((kept, stacked.shape[1])), be.empty((kept, stacked.shape[1]), dtype=np.int32)
        be.assign_many([(scores[::-1], values), (places[::-1], positions)])  # neon's dialect does not slice expressions
        self._keep(scores, places.get(), words, after)

    def _buffer(self, rows: int, columns: int) -> Any:
        if self._stacked is None or self._stacked.shape != (rows, columns):
            self._stacked = self.be.empty((rows, columns))
        return self._stacked

    def _keep(self, scores: Any, places: np.ndarray, words: int, after: list[Any]) -> None:
        parents, chosen = np.divmod(places, words)
        samples = np.arange(places.shape[1])
        histories = np.stack(self.candidates)
        self.scores = scores
        self.scores_list = [scores[i : i + 1] for i in range(len(places))]
        self.candidates = [
            np.concatenate([histories[parent, :, samples].T, word.reshape(1, -1)]).astype(np.int32)
            for parent, word in zip(parents, chosen, strict=True)
        ]
        self._states = [self._states_of(parent.reshape(1, -1), after) for parent in parents]
        self.z_list = [self.seq2seq.decoder.words_as_inputs(word.reshape(1, -1)) for word in chosen]

    def _states_of(self, parent: np.ndarray, after: list[Any]) -> list[Any]:
        """States of each recurrent layer, reordered so that each beam continues its parent's state."""
        if len(after) == 1:
            return after[0]
        of_beam = self.be.array(parent, dtype=np.int32)
        return [
            [self._picked(of_beam, tensors) for tensors in zip(*of_layer, strict=True)]
            for of_layer in zip(*after, strict=True)
        ]

    def _picked(self, of_beam: Any, tensors: tuple[Any, ...]) -> Any:
        expression = tensors[0]
        for i, tensor in enumerate(tensors[1:], start=1):
            expression = self.be.where(self.be.equal(of_beam, i), tensor, expression)
        picked = self.be.empty(tensors[0].shape, dtype=tensors[0].dtype)
        picked[:] = expression
        return picked
