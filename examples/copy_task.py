#!/usr/bin/env python
"""Train an encoder and a decoder: one recurrent network reads a sequence of letters, the other writes it again.

In training the decoder reads the right letter before each step. Afterwards it reads its own output letter by letter, or
a beam search follows several beginnings at once. Both are tried on new sequences.
Usage:

    python examples/copy_task.py [--epochs 15]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import NervanaDataIterator
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import GRU, Affine, GeneralizedCost, Seq2Seq
from neonlike.layers.container import Decoder, Encoder
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh

LETTERS = "abcdefgh"
STEPS = 5


class Sequences(NervanaDataIterator):
    """Random sequences of letters, as the inputs of both networks and as their targets.

    Column t*N + n of a batch is letter t of sequence n, with a 1 in its row. Ranks that mpiexec starts draw the same
    letters, and each yields its columns of a batch.
    """

    shape, shares = (len(LETTERS), STEPS), True

    def __init__(self, nbatches: int) -> None:
        super().__init__()
        self.nbatches, self.ndata = nbatches, nbatches * self.be.global_bsz
        self.letters = self.be.rng.randint(len(LETTERS), size=(nbatches, STEPS, self.be.global_bsz))
        self.sequences = self.be.iobuf(self.shape)
        self.before = self.be.zeros_like(self.sequences)

    def reset(self) -> None:
        """Do nothing: every epoch begins with the first batch."""

    def __iter__(self) -> Iterator[Any]:
        for letters in self.letters[:, :, self.be.own_columns]:
            indices = self.be.array(letters.reshape(1, -1), dtype=np.int32)
            self.sequences[:] = self.be.onehot(indices, axis=0)
            self.before[:, self.be.bsz :] = self.sequences[:, : -self.be.bsz]  # the first step reads zeros
            yield (self.sequences, self.before), self.sequences


def build_model() -> Model:
    """Encoder and decoder of 64 units each; the decoder starts from the encoder's final state."""

    def gru() -> GRU:
        return GRU(64, GlorotUniform(), activation=Tanh(), gate_activation=Logistic(), reset_cells=True)

    writer = Affine(len(LETTERS), GlorotUniform(), bias=Constant(0), activation=Softmax())
    return Model(Seq2Seq([Encoder([gru()]), Decoder([gru(), writer])]))


def text(letters: np.ndarray) -> str:
    """Letters of an array of letter numbers."""
    return "".join(LETTERS[letter] for letter in letters)


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the fraction of test sequences repeated without a mistake."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 15, "batch_size": 64, "rng_seed": 0})
    args = parser.parse_args(arguments)
    train, test = Sequences(nbatches=100), Sequences(nbatches=5)
    model = build_model()
    callbacks = Callbacks(model, **args.callback_args)
    optimizer = Adam(learning_rate=0.006, gradient_clip_norm=5)
    model.fit(train, GeneralizedCost(CrossEntropyMulti()), optimizer, num_epochs=args.epochs, callbacks=callbacks)

    wanted = test.letters.transpose(0, 2, 1).reshape(-1, STEPS)
    greedy = model.get_outputs(test).argmax(axis=2)
    beam = model.get_outputs_beam(test, num_beams=3)
    for sequence, copy in zip(wanted[:5], greedy):
        print(f"{text(sequence)} -> {text(copy)}")
    right, right_beam = (float((found == wanted).all(axis=1).mean()) for found in (greedy, beam))
    print(f"{right:.1%} of {len(wanted)} new sequences are repeated without a mistake, {right_beam:.1%} by beam search")
    return right


if __name__ == "__main__":
    sys.exit(console.run(main))
