"""SIGKILL at random moments of trainings: the saved model has to be readable, and to go on, after each.

    python tests/models/kills.py --moments 200        # by hand; tests/models/test_model_files.py has a few

Each training is a fork of this process, goes on from the file that the last one left, and saves after every epoch, in
turns as arrays and JSON and as a pickle. One that was killed may have lost its last epoch, and never more than it had
told that it had saved.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from neonlike.util.atomic import PREFIX

LONGEST_S = 0.08
"""Of a training, after its first epoch."""
NAMES = ("model.prm", "model.p")


class Tell(Callback):
    """Counts the epochs that were saved, for the process that kills this one."""

    def __init__(self, saved) -> None:
        super().__init__()
        self.saved = saved

    def on_epoch_end(self, callback_data, model, epoch) -> None:
        self.saved.value = epoch + 1


def train(path: Path, saved) -> None:
    """Train without end, going on from ``path``."""
    gen_backend("cpu", rng_seed=0, batch_size=16)
    rng = np.random.default_rng(0)
    data = ArrayIterator(rng.normal(size=(64, 10)), rng.integers(4, size=64), nclass=4)
    init = GlorotUniform()
    layers = [Affine(64, init, activation=Rectlin()), Dropout(0.5), Affine(4, init, activation=Softmax())]
    model = Model(path if path.exists() else layers)
    callbacks = Callbacks(model, progress_bar=False, save_path=str(path), serialize=1)
    callbacks.add_callback(Tell(saved))
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), Adam(), 10**6, callbacks)


def kill(path: Path, delay: float) -> str:
    """Train in a process of its own and kill it; return the file's faults, empty if there are none."""
    fork = multiprocessing.get_context("fork")
    saved = fork.Value("i", 0)
    process = fork.Process(target=train, args=(path, saved))
    process.start()
    while not saved.value and process.is_alive():
        time.sleep(0.001)
    time.sleep(delay)
    if not process.is_alive():
        return "the training ended by itself"
    process.kill()
    process.join()
    try:
        model = Model(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if model.epoch_index not in (saved.value, saved.value + 1):
        return f"{saved.value} epochs were saved, the file has {model.epoch_index}"
    left = [name for name in os.listdir(path.parent) if name.startswith(PREFIX)]
    return f"{left} pile up" if len(left) > 1 else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--moments", type=int, default=200, help="how many trainings to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    gen_backend("cpu", rng_seed=0, batch_size=16)
    dice, wrong = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.moments):
            name = NAMES[number % 2]
            place = Path(folder) / name.partition(".")[2]
            place.mkdir(exist_ok=True)
            if fault := kill(place / name, dice.uniform(0, LONGEST_S)):
                wrong.append(fault)
                print(f"after {number} kills: {fault}")
    print(f"{options.moments} kills, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
