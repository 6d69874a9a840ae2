#!/usr/bin/env python
"""Train a network of two layers to read handwritten digits, in a few seconds and without a download.

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn. Usage:

    python examples/digits_mlp.py [--epochs 40] [--plot [FILE]]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from neonlike import console
from neonlike.callbacks.callbacks import Callbacks
from neonlike.callbacks.store import open_store
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax


def build_model() -> Model:
    """64 pixels -> 100 rectified units, some dropped while training -> 10 probabilities."""
    init = GlorotUniform()
    return Model(
        layers=[
            Affine(nout=100, init=init, bias=Constant(0), activation=Rectlin()),
            Dropout(keep=0.8),
            Affine(nout=Digits.NCLASS, init=init, bias=Constant(0), activation=Softmax()),
        ]
    )


def save_plot(file: str, recorded: Any) -> None:
    """Plot the training cost of each minibatch and the validation error after each epoch."""
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit("--plot needs matplotlib: pip install 'neonlike[viz]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    batches_at_epoch_end = np.asarray(recorded["time_markers/minibatch"][...])
    cost = recorded["cost/train"][: int(batches_at_epoch_end[-1])]
    epochs_of_batches = (np.arange(len(cost)) + 1) * len(batches_at_epoch_end) / len(cost)
    wrong = 100.0 * np.asarray(recorded["metrics/Top1Misclass"][...])

    figure, left = pyplot.subplots(figsize=(7, 4.5))
    left.plot(epochs_of_batches, cost, color="tab:blue", linewidth=1)
    left.set(xlabel="epoch", ylabel="training cost (nats)", yscale="log")
    left.yaxis.label.set_color("tab:blue")
    right = left.twinx()
    right.plot(np.arange(len(wrong)) + 1, wrong, color="tab:orange", marker=".")
    right.set(ylabel="validation misclassification (%)", ylim=(0, None))
    right.yaxis.label.set_color("tab:orange")
    left.set_title("8 x 8 handwritten digits")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 40, "batch_size": 64, "rng_seed": 0, "eval_freq": 1})
    parser.add_argument(
        "--plot", nargs="?", const="digits_mlp.png", metavar="FILE", help="save the learning curve as a picture"
    )
    args = parser.parse_args(arguments)
    digits = Digits(seed=args.rng_seed)
    print(", ".join(f"{part.ndata} {name}" for name, part in digits.data_dict.items()), "images of 8 x 8 pixels")

    model = build_model()
    cost = GeneralizedCost(costfunc=CrossEntropyMulti())
    optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9, wdecay=1e-4)
    if args.plot:
        args.callback_args["eval_freq"] = 1
    callbacks = Callbacks(model, eval_set=digits.valid_iter, metric=Misclassification(), **args.callback_args)
    model.fit(digits.train_iter, optimizer=optimizer, num_epochs=args.epochs, cost=cost, callbacks=callbacks)

    accuracy = 1.0 - float(model.eval(digits.test_iter, metric=Misclassification())[0])
    print(f"Accuracy on the {digits.test_iter.ndata} test images: {100 * accuracy:.1f}%")
    if args.plot:
        # A file of metrics was closed when the training ended.
        recorded = open_store(args.output_file, "r") if args.output_file else callbacks.callback_data
        save_plot(args.plot, recorded)
        print(f"Learning curve saved to {args.plot}")
    return accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
