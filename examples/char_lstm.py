#!/usr/bin/env python
"""Train an LSTM to continue Shakespeare's sonnets character by character, and let it write lines of its own.

It reads 21 sonnets (examples/data) in parallel stretches and keeps its state from batch to batch. Its cost on three
other sonnets is compared with the cost of the best guess from the previous two characters. Usage:

    python examples/char_lstm.py [--epochs 12] [--quick] [--sample 200]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import Text
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import LSTM, Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh

DATA = Path(__file__).resolve().parent / "data"
TRAIN, TEST = DATA / "sonnets.txt", DATA / "sonnets_test.txt"
STEPS = 12


def build_model(characters: int) -> Model:
    """One-hot characters -> 128 units, some dropped while training -> probabilities of the next character."""
    init = GlorotUniform()
    return Model(
        [
            LSTM(128, init, activation=Tanh(), gate_activation=Logistic()),
            Dropout(0.5),
            Affine(characters, init, bias=Constant(0), activation=Softmax()),
        ]
    )


def guess_from_two(train: str, test: str, characters: int) -> float:
    """Mean cost, in nats a character, of a trigram model: the frequency of a character after the two before it."""
    counts = [Counter(train[i : i + length] for i in range(len(train))) for length in range(4)]

    def probability(context: str, character: str) -> float:
        """Probability after ``context``; the estimate from the shorter context weighs as much as three occurrences."""
        shorter = probability(context[1:], character) if context else 1 / characters
        seen, together = counts[len(context)], counts[len(context) + 1]
        return (together[context + character] + 3 * shorter) / (seen[context] + 3)

    return float(-np.mean([np.log(probability(test[i - 2 : i], test[i])) for i in range(2, len(test))]))


def mean_cost(model: Model, cost: GeneralizedCost, data: Any) -> float:
    """Mean cost of a data set, in nats a character."""
    return float(np.mean([cost.get_cost(model.fprop(x, inference=True), t) for x, t in data]))


def write(model: Model, text: Text, length: int, beginning: str = "When I ", sharpness: float = 2.0) -> str:
    """Let the model continue ``beginning``: each next character is drawn from the predicted probabilities.

    Probabilities are raised to the power ``sharpness``, which makes frequent characters more frequent.
    """
    be = model.be
    x, state = be.zeros((text.nclass, be.bsz)), None
    lstm, *others = model.layers.layers
    model.set_seq_len(1)
    written = beginning
    for position in range(length + len(beginning) - 1):
        x[:] = be.array(np.eye(text.nclass)[:, [text.token_to_index[written[position]]]])
        y = lstm.fprop(x, inference=True, init_state=state)
        state = lstm.get_state()
        for layer in others:
            y = layer.fprop(y, inference=True)
        if position >= len(beginning) - 1:
            p = y[:, :1].get()[:, 0].astype(np.float64) ** sharpness
            written += text.index_to_token[int(be.rng.choice(len(p), p=p / p.sum()))]
    model.set_seq_len(None)
    return written


def main(arguments: list[str] | None = None) -> float:
    """Train, report, write some lines; return the cost on the test sonnets."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 12, "batch_size": 8, "rng_seed": 0})
    parser.add_argument("--quick", action="store_true", help="three epochs only")
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="how many characters it writes")
    args = parser.parse_args(arguments)
    train = Text(STEPS, TRAIN)
    test = Text(STEPS, TEST, vocab=train.vocab)
    guess = guess_from_two(TRAIN.read_text(encoding="utf-8"), TEST.read_text(encoding="utf-8"), train.nclass)
    print(f"{train.ndata * STEPS} characters to learn from, {train.nclass} different ones")

    model, cost = build_model(train.nclass), GeneralizedCost(costfunc=CrossEntropyMulti())
    model.fit(
        train,
        cost=cost,
        optimizer=Adam(learning_rate=0.008, gradient_clip_norm=5.0),
        num_epochs=3 if args.quick else args.epochs,
        callbacks=Callbacks(model, **args.callback_args),
    )
    learned = mean_cost(model, cost, test)
    print(f"Cost of a character of other sonnets: {learned:.3f} nats; guessed from the two before it: {guess:.3f}")
    if args.sample:
        print(f"\n{write(model, train, args.sample)}")
    return learned


if __name__ == "__main__":
    sys.exit(console.run(main))
