"""Runs whose reports are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, StepSchedule
from neonlike.transforms import Accuracy, CrossEntropyMulti, Softmax, Tanh

N, CLASSES, EPOCHS = 8, 3, 4


class Training:
    """A small classifier of images of 8 x 8 pixels; one sample in eight of the evaluation data has a wrong label."""

    def __init__(self, rng: Any) -> None:
        labels = np.arange(7 * N) % CLASSES
        pixels = rng.normal(size=(7 * N, 64)) + labels[:, None] * np.linspace(-1, 1, 64)
        given = np.where(np.arange(7 * N) % 8 == 7, (labels + 1) % CLASSES, labels)
        self.train = ArrayIterator(pixels, labels, nclass=CLASSES, lshape=(1, 8, 8), name="train")
        self.valid = ArrayIterator(pixels[: 3 * N - 1], given[: 3 * N - 1], nclass=CLASSES, lshape=(1, 8, 8))
        hidden = Affine(6, GlorotUniform(), bias=Constant(0), activation=Tanh())
        self.model = Model([hidden, Affine(CLASSES, GlorotUniform(), activation=Softmax())])

    def callbacks(self, **options: Any) -> Callbacks:
        """Callbacks with evaluation and a metric; the options replace these."""
        given = {"eval_set": self.valid, "eval_freq": 1, "metric": Accuracy(), "progress_bar": False, **options}
        return Callbacks(self.model, **given)

    def fit(self, callbacks: Any, epochs: int = EPOCHS) -> None:
        """Train up to that number of epochs, at a rate that is halved after the second."""
        optimizer = GradientDescentMomentum(0.1, 0.9, schedule=StepSchedule([2], [0.05]))
        self.model.fit(self.train, GeneralizedCost(CrossEntropyMulti()), optimizer, epochs, callbacks)


@pytest.fixture
def training(be: Any, rng: Any) -> Training:
    be.bsz = N
    return Training(rng)


@pytest.fixture
def run_file(be: Any, training: Training, tmp_path: Path) -> Path:
    """The record of a whole training, a copy of the test's own."""
    path, name = tmp_path / "run.h5", be.executor.own_engine.name
    if name not in records:
        training.fit(training.callbacks(output_file=str(path)))
        records[name] = path.read_bytes()
    path.write_bytes(records[name])
    return path


records: dict[str, bytes] = {}
"""The record by the name of its engine: what a training of ``Training`` writes, which is the same each time."""


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are set up and stay empty, for tests that look at other parts of a page: most of its time is drawing."""

    def save(figure: Any, file: Any, **options: Any) -> None:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>')

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)


