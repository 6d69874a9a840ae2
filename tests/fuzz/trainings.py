"""Trainings made by chance: saved, read, resumed and fine-tuned in random order, beside a plain model of them.

``python tests/fuzz 0 --trainings 1000`` runs so many programs. The plain model is one matrix of NumPy in float64 with
its velocity, and what docs/model_files.md says belongs to a training: where it is in the data, what callbacks remember
and have recorded, and where both random streams are. A seed is all that a program depends on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant
from neonlike.layers import GeneralizedCost, Linear
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import SumSquared
from tests.fuzz.workers import Findings, report, spread

NIN, NOUT, RATE, MOMENTUM = 3, 2, 0.05, 0.5
BATCHES = (2, 3, 4, 6)
SIZES = (6, 7, 11, 12, 12)
"""Samples of each data set; the last two are as many."""
HELD_OUT = 12
ENDINGS = (".prm", ".pkl", ".prm.gz")


def arrays(seed: int, count: int) -> tuple[Any, Any]:
    """Inputs and targets of a data set."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, NIN)), rng.normal(size=(count, NOUT))


class Plain:
    """Expected state of a model: weights, velocity, epochs, and its current training.

    Attributes
    ----------
    training : dict
        The last training; empty if there was none, or it was read without states.
    read : bool
        Whether a file said so, and no training has begun since.
    """

    def __init__(self) -> None:
        self.weight, self.velocity, self.epochs = np.full((NOUT, NIN), 0.25), np.zeros((NOUT, NIN)), 0
        self.training: dict[str, Any] = {}
        self.read = False

    def step(self, x: Any, t: Any) -> None:
        """A minibatch."""
        error = self.weight @ x.T - t.T
        self.velocity = MOMENTUM * self.velocity - RATE * error @ x / len(x)
        self.weight = self.weight + self.velocity

    def loss(self, x: Any, t: Any) -> float:
        """Loss on a data set."""
        return float(0.5 * np.square(self.weight @ x.T - t.T).sum() / len(x))

    def take_up(self, file: dict[str, Any], states: bool, running: bool) -> None:
        """Take over the contents of a ``file``."""
        self.weight = file["weight"]
        if states and "velocity" in file:
            self.velocity = file["velocity"]
        if not running:
            self.epochs = file["epochs"]
            self.training = deepcopy(file.get("training", {})) if states else {}
            self.read = True

    def file(self, states: bool, training: dict[str, Any]) -> dict[str, Any]:
        """Contents of its file."""
        kept = {"weight": self.weight, "epochs": self.epochs}
        return {**kept, "velocity": self.velocity, "training": deepcopy(training)} if states else kept


def draw(be: Any) -> tuple[float, float]:
    """A number of each of the backend's streams."""
    out = be.empty((1, 1))
    out[:] = be.rand()
    return float(be.rng.uniform()), float(out.get()[0, 0])


def draw_from(be: Any, state: Any) -> tuple[tuple[float, float], Any]:
    """Result of :func:`draw` from a state, and the state after it; the backend's state is unchanged."""
    now = be.rng_get_state()
    be.rng_set_state(state)
    try:
        return draw(be), be.rng_get_state()
    finally:
        be.rng_set_state(now)


class Watch(Callback):
    """Draws a number of each stream after a minibatch, and may interrupt the training or read a file there."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self, at: tuple[int, int] | None = None, do: Callable[[], Any] | None = None) -> None:
        """Do something after minibatch ``at``, once."""
        self.at, self.do = at, do
        self.drawn: list[tuple[float, float]] = []  # since then

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        """Draw."""
        self.drawn.append(draw(model.be))
        if self.do is not None and (epoch, minibatch) == self.at:
            do, self.do = self.do, None
            do()


def interrupt() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


class Program:
    """One program: a model and its expected state."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng, self.folder = np.random.default_rng(seed), folder
        self.files: dict[str, dict[str, Any]] = {}
        self.told: list[str] = []
        self.restart()

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    # Steps

    def restart(self) -> None:
        """Another process, with a seed of its own, and often another batch size."""
        if not self.told or self.chance(0.4):
            self.bsz = int(self.one_of(BATCHES))
        self.be = gen_backend("cpu", rng_seed=int(self.rng.integers(1000)), batch_size=self.bsz, datatype=np.float64)
        self.state = self.be.rng_get_state()
        self.held_out = arrays(99, HELD_OUT)
        self.eval_set = ArrayIterator(*self.held_out, make_onehot=False)
        self.sets = [(arrays(number, count), number) for number, count in enumerate(SIZES)]
        self.iterators = [ArrayIterator(*of, make_onehot=False) for of, _ in self.sets]
        self.starts = [0] * len(SIZES)
        self.fresh()
        if self.files and self.chance(0.7):
            self.read()

    def fresh(self) -> None:
        """A model that was never trained."""
        self.model = Model([Linear(NOUT, Constant(0.25))])
        self.plain = Plain()
        self.callbacks: Callbacks | None = None
        self.memory: dict[str, Any] = {}

    def save(self) -> None:
        name, states = f"{self.rng.integers(3)}{self.one_of(ENDINGS)}", self.chance(0.8)
        self.model.initialize(NIN)
        self.model.save_params(self.folder / name, keep_states=states)
        training = self.plain.training
        if training and not self.plain.read:
            training = {**training, "state": self.state}
        self.files[name] = self.plain.file(states, training)
        self.told.append(f"save {name} {states}")

    def read(self) -> None:
        """Read a file, in one of two ways."""
        if not self.files:
            return
        name, states = self.one_of(sorted(self.files)), self.chance(0.8)
        if self.chance(0.5):
            self.fresh()
            self.model = Model(self.folder / name, weights_only=not states)
        else:
            self.model.load_params(self.folder / name, load_states=states)
        self.plain.take_up(self.files[name], states, running=False)
        self.told.append(f"read {name} {states}")

    def draw(self) -> None:
        """Something else draws."""
        wanted, self.state = draw_from(self.be, self.state)
        assert draw(self.be) == wanted

    def make_callbacks(self, file: str | None) -> None:
        self.freq = int(self.rng.integers(1, 4))
        more = {} if file is None else {"model_file": str(self.folder / file)}
        self.callbacks = made = Callbacks(
            self.model, progress_bar=False, eval_set=self.eval_set, eval_freq=self.freq, **more
        )
        self.watch = Watch()
        made.add_early_stop_callback(lambda state, loss: ((state or 0) + 1, False))
        made.add_save_best_state_callback(str(self.folder / "best.prm"))
        made.add_callback(self.watch)
        self.memory = {"best": None, "waited": None, "losses": {}}

    def fit(self) -> None:
        """Train, on the same data as before or on others, with callbacks of before or with new ones."""
        number = int(self.rng.integers(len(SIZES)))
        if self.plain.training and self.chance(0.5):
            number = self.plain.training["set"]
        file = self.one_of(sorted(self.files)) if self.files and self.chance(0.2) else None
        if file is not None or self.callbacks is None or self.chance(0.5):
            self.make_callbacks(file)
        if file is not None:
            self.plain.take_up(self.files[file], True, running=False)
        epochs = self.plain.epochs + int(self.rng.integers(4))
        at = self.plain.epochs + int(self.rng.integers(2)), int(self.rng.integers(4))
        other = self.one_of(sorted(self.files)) if self.files and self.chance(0.3) else None
        stops, states = other is None and self.chance(0.4), self.chance(0.5)
        do = interrupt if stops else None
        if other is not None:
            do = lambda: self.model.load_params(self.folder / other, load_states=states)  # noqa: E731
        self.watch.begin(at, do)
        self.told.append(f"fit {number} to {epochs}, file {file}, at {at} {'stop' if stops else other} {states}")
        wanted = self.train(number, epochs, at if do else None, (other, states) if other else None)
        optimizer, cost = GradientDescentMomentum(RATE, MOMENTUM), GeneralizedCost(SumSquared())
        try:
            self.model.fit(self.iterators[number], cost, optimizer, epochs, self.callbacks)
            stopped = False
        except KeyboardInterrupt:
            stopped = True
        assert self.watch.drawn == wanted[1], f"random streams: {self.watch.drawn[:3]}, not {wanted[1][:3]}"
        assert stopped == wanted[0], "the training was interrupted at another minibatch"
        self.compare(epochs)

    # What should be

    def train(self, number: int, epochs: int, at: Any, reload: Any) -> tuple[bool, list[tuple[float, float]]]:
        """Train the plain model; return whether it is interrupted, and the random numbers drawn."""
        plain, (x, t), drawn = self.plain, self.sets[number][0], []
        minibatches = self.begin(number)
        while plain.epochs < epochs:
            if not minibatches:
                self.began = self.starts[number]
            firsts = range(self.began, len(x), self.bsz)
            if minibatches == len(firsts):
                self.starts[number] = firsts[-1] + self.bsz - len(x)
            for batch in range(minibatches, len(firsts)):
                rows = np.arange(firsts[batch], firsts[batch] + self.bsz) % len(x)
                plain.step(x[rows], t[rows])
                if batch == len(firsts) - 1:
                    self.starts[number] = firsts[-1] + self.bsz - len(x)
                one, self.state = draw_from(self.be, self.state)
                drawn.append(one)
                self.minibatches = batch + 1
                if at == (plain.epochs, batch):
                    if reload is None:
                        self.end(number)
                        return True, drawn
                    plain.take_up(self.files[reload[0]], reload[1], running=True)
                    at = None
            self.minibatches = minibatches = 0
            plain.epochs += 1
            self.epoch_end(number)
        self.end(number)
        return False, drawn

    def begin(self, number: int) -> int:
        """A training begins; minibatches done of its epoch."""
        saved, read, plain = self.plain.training, self.plain.read, self.plain
        same = bool(saved) and (saved["set"], saved["bsz"]) == (number, self.bsz)
        self.minibatches = saved["minibatches"] if same and saved["epoch"] == plain.epochs else 0
        losses = {at: loss for at, loss in self.memory["losses"].items() if at < plain.epochs}  # stay, of whatever data
        if not same:
            self.memory = {"best": None, "waited": None, "losses": losses}
        elif not read:
            self.memory["losses"] = losses
        else:
            self.state, self.memory = saved["state"], deepcopy(saved["memory"])
            self.memory["losses"] = losses | self.memory["losses"]
        if same and (read or self.minibatches):
            self.starts[number] = saved["began"]
        self.began, plain.read = self.starts[number], False
        return self.minibatches

    def described(self, number: int) -> dict[str, Any]:
        """The training as it is now."""
        began = self.began if self.minibatches else self.starts[number]
        return {"set": number, "bsz": self.bsz, "epoch": self.plain.epochs, "minibatches": self.minibatches,
                "began": began, "memory": deepcopy(self.memory), "state": self.state}  # fmt: skip

    def epoch_end(self, number: int) -> None:
        """Run the callbacks of an epoch's end."""
        epoch, memory = self.plain.epochs - 1, self.memory
        if (epoch + 1) % self.freq:
            return
        loss = self.plain.loss(*self.held_out)
        memory["losses"][epoch] = loss
        memory["waited"] = (memory["waited"] or 0) + 1
        if memory["best"] is None or loss < memory["best"]:
            memory["best"] = loss
            self.files["best.prm"] = self.plain.file(True, self.described(number))

    def end(self, number: int) -> None:
        """A training ends, or is interrupted."""
        self.plain.training = self.described(number)

    # Comparing

    def compare(self, epochs: int) -> None:
        """Weights, positions, memories and records with those of the plain model."""
        model, plain = self.model, self.plain
        layer = model.layers.layers[0]
        np.testing.assert_allclose(layer.W.get(), plain.weight, rtol=1e-9, atol=1e-12)
        assert model.epoch_index == plain.epochs and model.progress.minibatches == self.minibatches
        assert [one.start for one in self.iterators] == self.starts, "positions in the data"
        assert self.callbacks is not None
        stop, best = self.callbacks.callbacks[-3:-1]
        found = self.callbacks.progress()["records"]
        losses = {int(e): v for e, v in zip(found["epochs/cost/loss"], found["cost/loss"]) if not np.isnan(v)}
        assert stop.stop_state == self.memory["waited"], f"waited {stop.stop_state}, not {self.memory['waited']}"
        wanted = self.memory["losses"]
        assert sorted(losses) == sorted(wanted), f"losses of epochs {sorted(losses)}, not {sorted(wanted)}"
        np.testing.assert_allclose([losses[e] for e in sorted(losses)], [wanted[e] for e in sorted(losses)], rtol=1e-5)
        assert (best.best_cost is None) == (self.memory["best"] is None)

    def run(self) -> int:
        """All steps; how many there were."""
        for _ in range(self.rng.integers(4, 14)):
            self.one_of((self.fit, self.fit, self.fit, self.save, self.save, self.read, self.restart, self.draw))()
        self.fit()
        return len(self.told)


def check(seed: int) -> int:
    """Run the program of a seed; its number of steps."""
    with tempfile.TemporaryDirectory() as folder:
        program = Program(seed, Path(folder))
        try:
            return program.run()
        except Exception as error:
            steps = "; ".join(program.told)
            raise AssertionError(f"{type(error).__name__}: {error} (batches of {program.bsz}; {steps})") from error


def work(first: int, step: int, last: int) -> int:
    """A worker: programs first, first + step, ... below last; one line of JSON for each."""
    return report(range(first, last, step), lambda seed: {"steps": check(seed)})


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Run ``count`` programs in processes with these environment ``variables``; the exit status."""
    found = Findings("training", "steps")
    spread("--work-trainings", range(first, first + count), workers, variables, found.hear)
    print(f"trainings: {count} programs of {found.total} steps; {len(found.failures)} failures")
    return int(bool(found.failures))
