#!/usr/bin/env python
"""Interrupt a training by Ctrl-C, resume it from its file, and end with the same weights bit for bit.

The file holds the weights, the optimizer's velocities, the states of the random numbers and of the data, and the
position in the training. Any script whose Callbacks get the options --save_path and --model_file does the same:

    python examples/digits_convnet.py --save_path digits.prm        # press Ctrl-C
    python examples/digits_convnet.py --model_file digits.prm

Usage:

    python examples/resume.py [--epochs 6] [--save_path FILE]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum, StepSchedule
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax


class PressCtrlC(Callback):
    """Interrupts the training after a minibatch of an epoch, as the user would."""

    def __init__(self, epoch: int, minibatch: int) -> None:
        super().__init__()
        self.when = (epoch, minibatch)

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        if (epoch, minibatch) == self.when:
            signal.raise_signal(signal.SIGINT)


def train(epochs: int, interrupt: PressCtrlC | None = None, **callback_args: Any) -> Model:
    """Train from the seed, or from ``model_file``, whose state replaces any random numbers drawn before."""
    if "model_file" not in callback_args:
        NervanaObject.be.rng_reset()
    data = Digits().train_iter
    model = Model(
        [
            Affine(100, GlorotUniform(), bias=Constant(0), activation=Rectlin()),
            Dropout(keep=0.8),
            Affine(10, GlorotUniform(), bias=Constant(0), activation=Softmax()),
        ]
    )
    schedule = StepSchedule(step_config=[epochs // 2], change=[0.02])
    optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9, schedule=schedule)
    callbacks = Callbacks(model, **callback_args)
    if interrupt is not None:
        callbacks.add_callback(interrupt)
    try:
        model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, num_epochs=epochs, callbacks=callbacks)
    except KeyboardInterrupt:
        print(f"Interrupted in epoch {model.epoch_index}, after {model.progress.minibatches} minibatches of it")
    return model


def main(arguments: list[str] | None = None) -> bool:
    """Train twice, once with an interruption; return whether the weights are equal."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 6, "batch_size": 64, "rng_seed": 0})
    args = parser.parse_args(arguments)
    if args.epochs < 1:
        parser.error("--epochs: there is nothing to show before the first epoch; give 1 or more")
    shown = {"progress_bar": args.progress_bar}

    whole = train(args.epochs, **shown)
    with tempfile.TemporaryDirectory() as folder:
        folder = NervanaObject.be.ranks.tell(folder)[0]  # of several ranks that of the first, which writes
        file = args.save_path or str(Path(folder) / "digits.prm")
        train(args.epochs, PressCtrlC(epoch=args.epochs // 2, minibatch=7), save_path=file, serialize=1, **shown)
        resumed = train(args.epochs, model_file=file, **shown)

    pairs = zip(whole.layers_to_optimize, resumed.layers_to_optimize, strict=True)
    equal = all(np.array_equal(a.W.get(), b.W.get()) for a, b in pairs)
    print(f"Weights of the resumed training are {'equal' if equal else 'NOT equal'} to those of one without a break")
    return equal


if __name__ == "__main__":
    sys.exit(console.run(main))
