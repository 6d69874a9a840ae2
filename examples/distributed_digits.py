#!/usr/bin/env python
"""Train a convolutional network to read handwritten digits by several processes that share each batch.

    mpiexec -n 2 python examples/distributed_digits.py [--epochs 15]

pip install 'neonlike[mpi]' brings mpiexec. Without it one process runs the script, with the same batches and result.

mpiexec starts this script twice. The two processes, ranks 0 and 1, share each batch of 64 images: each runs forward and
backward on 32 of them, and the gradients are summed, so that both make the step of the whole batch. Little of what
follows is about that, and it means the same for one process:

* the iterators give a rank its images alone, and `model.eval` counts the whole test set, on every rank;
* `be.sync_batchnorm` normalizes by the statistics of the whole batch, not of a rank's images, as one process does;
* `be.own_columns` are the places in a batch of a rank's images: what is counted by hand is counted once, and
  `be.allreduce` adds up what the ranks have counted;
* rank 0 alone prints; all ranks make the same calls, since they wait for each other.

The number of ranks has to divide the batch: `mpiexec -n 3 python examples/distributed_digits.py --batch_size 63`.
docs/distributed.md describes it all. All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from neonlike import console
from neonlike.backends import Backend
from neonlike.callbacks import Callbacks
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Kaiming
from neonlike.layers import Affine, Conv, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax


def build_model() -> Model:
    """(1, 8, 8) pixels -> (16, 4, 4) -> (32, 2, 2) -> 10 probabilities."""

    def convolution(maps: int) -> Conv:
        return Conv((3, 3, maps), init=Kaiming(), padding=1, batch_norm=True, activation=Rectlin())

    layers = [convolution(16), Pooling(2), convolution(32), Pooling(2)]
    return Model([*layers, Affine(nout=Digits.NCLASS, init=Kaiming(), activation=Softmax())])


def describe(be: Backend) -> str:
    """The ranks, and which images of a batch each has."""
    own = be.own_columns
    everyone = be.allgather(be.array(np.array([[own.start, own.stop - 1]], np.float32)))  # (ranks, 1, 2)
    shares = [f"rank {rank} has images {first:.0f} to {last:.0f}" for rank, (first, last) in enumerate(everyone[:, 0])]
    return f"{be.num_ranks} rank{'s' * (be.num_ranks > 1)}; of each batch of {be.global_bsz}, {', '.join(shares)}"


def count_right(be: Backend, model: Model, images: Any) -> tuple[int, np.ndarray]:
    """Images read correctly: of all ranks together, and by rank."""
    right = 0
    for number, (x, target) in enumerate(images):
        found = model.fprop(x, inference=True).get().argmax(axis=0)
        places = number * be.global_bsz + np.arange(be.global_bsz)[be.own_columns]
        counts = places < images.ndata  # the last batch is completed with images that were there before
        right += int(((found == target.get().argmax(axis=0)) & counts).sum())
    total = be.array(np.array([[right]], np.float32))
    by_rank = be.allgather(total).reshape(-1).astype(int)
    return int(be.allreduce(total).item()), by_rank


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 15, "batch_size": 64, "rng_seed": 0})
    args = parser.parse_args(arguments)
    be = NervanaObject.be
    be.sync_batchnorm = True
    print(describe(be))

    digits = Digits()
    model = build_model()
    callbacks = Callbacks(model, eval_set=digits.valid_iter, metric=Misclassification(), **args.callback_args)
    optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9)
    cost = GeneralizedCost(CrossEntropyMulti())
    model.fit(digits.train_iter, cost, optimizer, num_epochs=args.epochs, callbacks=callbacks)

    accuracy = 1 - float(model.eval(digits.test_iter, metric=Misclassification())[0])
    right, by_rank = count_right(be, model, digits.test_iter)
    count = digits.test_iter.ndata
    print(f"Counted by hand: {' + '.join(map(str, by_rank))} = {right} of {count} test images right")
    print(f"Accuracy on the {count} test images: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
