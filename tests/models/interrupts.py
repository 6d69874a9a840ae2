"""Ctrl-C at random moments of trainings: each has to end its training soon, as KeyboardInterrupt, with whole files.

    python tests/models/interrupts.py --moments 500        # by hand; tests/models/test_interrupts.py runs a few

A thread sends SIGINT to the main thread, which trains a small network, saves it after each epoch and records to HDF5.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax

LOST_AFTER_S = 30.0
"""A training that goes on for so long after Ctrl-C, on however busy a machine, has lost it."""

SHORT_DELAY_S, LONGEST_DELAY_S = 0.006, 0.25
"""Each third moment is a short one: while the callbacks open their file, before the training."""

LAYERS = 3
EPOCHS = 2000
"""More than anybody waits for."""


class Sender(threading.Thread):
    """Sends Ctrl-C to the main thread after ``delay`` seconds, and once more if that was lost."""

    def __init__(self, delay: float) -> None:
        super().__init__(daemon=True)
        self.delay, self.main = delay, threading.get_ident()
        self.ended = threading.Event()
        self.sent = self.lost = False

    def run(self) -> None:
        time.sleep(self.delay)
        while not self.ended.is_set():
            self.lost, self.sent = self.sent, True
            signal.pthread_kill(self.main, signal.SIGINT)
            self.ended.wait(LOST_AFTER_S)


def model() -> Model:
    init = GlorotUniform()
    hidden = [Affine(16, init, bias=Constant(0), activation=Rectlin()) for _ in range(LAYERS)]
    return Model([*hidden, Dropout(0.8), Affine(3, init, bias=Constant(0), activation=Softmax())])


def datasets() -> tuple[ArrayIterator, ArrayIterator]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 8)), rng.integers(3, size=100)
    return ArrayIterator(x, y, nclass=3), ArrayIterator(x[:40], y[:40], nclass=3)


def fit(trained: Model, epochs: int, callbacks: Callbacks) -> None:
    data, _ = datasets()
    trained.fit(data, GeneralizedCost(CrossEntropyMulti()), Adam(), epochs, callbacks)


def interrupt(folder: Path, delay: float, history: int) -> str:
    """Train until Ctrl-C comes; return the faults afterwards, or the place in the program."""
    checkpoint, metrics = folder / "model.p", folder / "metrics.h5"
    _, valid = datasets()
    sender, trained = Sender(delay), model()
    try:
        sender.start()
        callbacks = Callbacks(
            trained, eval_set=valid, eval_freq=1, metric=Misclassification(), progress_bar=False, serialize=1,
            save_path=str(checkpoint), output_file=str(metrics), history=history,
        )  # fmt: skip
        fit(trained, EPOCHS, callbacks)
        outcome = "WRONG: the training ended by itself"
    except KeyboardInterrupt as error:
        sender.ended.set()
        outcome = " < ".join(frame.name for frame in reversed(traceback.extract_tb(error.__traceback__)[-3:]))
    except BaseException as error:
        traceback.print_exc()
        outcome = f"WRONG: {type(error).__name__} in place of KeyboardInterrupt"
    sender.ended.set()
    sender.join()
    if sender.lost:
        return "WRONG: Ctrl-C was lost"
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return "WRONG: Python's handler was not put back"
    return wrong_files(folder, checkpoint, metrics, trained) or outcome


def wrong_files(folder: Path, checkpoint: Path, metrics: Path, trained: Model) -> str:
    """Faults of a training's files; empty if there are none."""
    if left := [name for name in os.listdir(folder) if name.startswith(".save-")]:
        return f"WRONG: {left} was left"
    if checkpoint.exists():
        again = Model(checkpoint)
        saved = again.epoch_index, again.progress.loaded.get("minibatches", 0)
        if saved != (trained.epoch_index, trained.progress.minibatches):
            return "WRONG: the checkpoint is not of the last minibatch"
    elif trained.epoch_index:
        return "WRONG: there is no checkpoint"
    try:
        with h5py.File(metrics, "r") as store:
            store.visititems(lambda path, item: None)
    except FileNotFoundError:
        return "WRONG: there are no metrics" if trained.epoch_index else ""
    except OSError as error:
        return f"WRONG: {metrics.name} cannot be read: {error}" if trained.epoch_index else ""
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--moments", type=int, default=500, help="how many trainings to interrupt")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    gen_backend("cpu", rng_seed=0, batch_size=16)
    dice, outcomes = random.Random(options.seed), Counter[str]()
    fit(trained := model(), 2, Callbacks(trained, progress_bar=False))  # so that nothing is left to compile
    for number in range(options.moments):
        with tempfile.TemporaryDirectory() as folder:
            delay = dice.uniform(0.0, LONGEST_DELAY_S if number % 3 else SHORT_DELAY_S)
            outcomes[interrupt(Path(folder), delay, history=1 + number % 2)] += 1
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    wrong = sum(count for outcome, count in outcomes.items() if outcome.startswith("WRONG"))
    print(f"{outcomes.total()} interrupts, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
