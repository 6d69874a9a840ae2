"""A training in which one rank fails: ``mpiexec -n 3 python -m tests.fuzz.ranks_program FAULT FOLDER [FILE]``.

FAULT is the JSON of a :class:`Fault`; without one (``{}``) nothing fails. The model is saved in FOLDER as ``m.prm``
after each epoch. The moment of the fault is noted in the file ``fault``, the last weights in ``weights.json``; a rank
that caught an exception and trains anew leaves ``again`` and its number. FILE is a saved model to go on from.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator, HostIterator, Prefetch
from neonlike.distributed.mpi import MpiRanks
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost, Linear
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum, Schedule
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from neonlike.util import persist

BATCH, EPOCHS, SAMPLES, FEATURES, CLASSES = 12, 5, 58, 20, 5
AGAIN, WEIGHTS = "again", "weights.json"
PAUSE_S = 0.01
"""Length of a minibatch at least, so that faults at a random time meet all that a training does."""


@dataclass(frozen=True)
class Fault:
    """A fault of rank ``who``: what happens the ``count``-th time that the program is at a place.

    Attributes
    ----------
    how : str
        A row of :data:`FAULTS`.
    where : str
        A row of :data:`PLACES`, "anywhere", ``seconds`` after the training has begun, or "launcher", which is outside.
    caught : bool
        Whether the program of that rank goes on after an exception.
    """

    ranks: int = 1
    who: int = 0
    how: str = "ValueError"
    where: str = "nowhere"
    count: int = 1
    seconds: float = 0.0
    caught: bool = False
    history: int = 1


def _raise(kind: type[BaseException]) -> Callable[[], None]:
    def happen() -> None:
        raise kind("planted")

    return happen


FAULTS: dict[str, Callable[[], None]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGINT": lambda: os.kill(os.getpid(), signal.SIGINT),
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(4)": lambda: os._exit(4),
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(3)": lambda: sys.exit(3),
    **{kind.__name__: _raise(kind) for kind in (ValueError, MemoryError, KeyboardInterrupt, OSError)},
}


class Planted:
    """The fault of this rank, at its place."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self.fault, self.folder, self.left = fault, folder, fault.count

    def at(self, place: str) -> None:
        """The program is at ``place`` now."""
        if place == self.fault.where and NervanaObject.be.rank == self.fault.who:
            self.left -= 1
            if not self.left:
                self.happen()

    def happen(self, *_: Any) -> None:
        """Fail."""
        (self.folder / "fault").write_text(str(time.time()))
        FAULTS[self.fault.how]()

    def before(self, owner: Any, name: str, place: str) -> None:
        """Let the program be at ``place`` whenever it calls a function."""
        function = getattr(owner, name)

        def at_place(*arguments: Any, **options: Any) -> Any:
            self.at(place)
            return function(*arguments, **options)

        setattr(owner, name, at_place)

    def later(self) -> None:
        """Fail some time from now, wherever the program is then."""
        if self.fault.where == "anywhere" and NervanaObject.be.rank == self.fault.who:
            signal.signal(signal.SIGALRM, self.happen)
            signal.setitimer(signal.ITIMER_REAL, self.fault.seconds)


class Rows(HostIterator):
    """Samples in order, prepared by a thread."""

    shape, ndata, nbatches, shares = FEATURES, SAMPLES - SAMPLES % BATCH, SAMPLES // BATCH, True

    def __init__(self, x: Any, t: Any, planted: Planted) -> None:
        super().__init__()
        self.x, self.t, self.planted = x, np.eye(CLASSES, dtype="f4")[t], planted

    def allocate_buffers(self) -> None:
        self.buffers = self.be.empty((FEATURES, self.be.bsz)), self.be.empty((CLASSES, self.be.bsz))

    def host_batches(self) -> Iterator[Any]:
        for first in range(0, self.ndata, BATCH):
            self.planted.at("prefetch")
            rows = slice(first + self.be.own_columns.start, first + self.be.own_columns.stop)
            yield self.x[rows].T.copy(), self.t[rows].T.copy()

    def load(self, batch: Any) -> Any:
        for buffer, values in zip(self.buffers, batch, strict=True):
            buffer.set(values)
        return self.buffers

    def reset(self) -> None:
        """Begins anew in any case."""


class Valid(ArrayIterator):
    """Samples of an evaluation."""

    shares = True
    planted: Planted

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.planted.at("evaluation")
            yield batch


class Rate(Schedule):
    """A learning rate that an optimizer asks for."""

    planted: Planted

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        self.planted.at("optimizer")
        return learning_rate


class Places(Callback):
    """Places in a training."""

    def __init__(self, planted: Planted) -> None:
        super().__init__(epoch_freq=1, minibatch_freq=1)
        self.planted = planted

    def on_train_begin(self, callback_data: Any, model: Any, epochs: int) -> None:
        self.planted.later()

    def on_epoch_begin(self, callback_data: Any, model: Any, epoch: int) -> None:
        self.planted.at("epoch begin")

    def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
        self.planted.at("epoch end")

    def on_minibatch_begin(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        time.sleep(PAUSE_S)
        self.planted.at("minibatch begin")

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        self.planted.at("minibatch end")


PLACES = {
    "epoch begin": EPOCHS, "epoch end": EPOCHS, "minibatch begin": 20, "minibatch end": 20, "prefetch": 15,
    "evaluation": 15, "optimizer": 20, "forward": 2, "backward": 2, "collective": 45, "save": 4, "start": 1,
}  # fmt: skip
"""Places of a fault, and how often a training is there on each rank, or on the first; at least so often."""
OF_RANK_0 = ("save",)


def plant(planted: Planted) -> None:
    """Put the places that are no callback's into the library."""
    planted.before(Linear, "fprop", "forward")
    planted.before(Linear, "bprop", "backward")
    planted.before(MpiRanks, "reduce", "collective")
    write = persist.archive.write

    def slowly(described: Any, file: Any) -> None:
        write(described, file)
        file.flush()
        time.sleep(0.1)  # other ranks may fail meanwhile
        planted.at("save")

    persist.archive.write = slowly


def train(planted: Planted, file: str | None = None) -> Model:
    """Train, from ``file`` if there is one."""
    rng = np.random.default_rng(1)
    x, t = rng.standard_normal((SAMPLES, FEATURES)).astype("f4"), rng.integers(0, CLASSES, SAMPLES)
    data, valid = Prefetch(Rows(x, t, planted)), Valid(x[:31], t[:31], nclass=CLASSES)
    Valid.planted = Rate.planted = planted
    init, bias = GlorotUniform(), Constant(0)
    model = Model([Affine(8, init, bias, activation=Rectlin()), Affine(CLASSES, init, bias, activation=Softmax())])
    where = str(planted.folder / "m.prm")
    callbacks = Callbacks(
        model, eval_set=valid, eval_freq=1, progress_bar=False, save_path=where, history=planted.fault.history,
        model_file=file,
    )  # fmt: skip
    callbacks.add_callback(Places(planted))
    optimizer = GradientDescentMomentum(0.1, 0.9, schedule=Rate())
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, EPOCHS, callbacks)
    return model


def main(fault: str, folder: str, file: str | None = None) -> None:
    """Train, and note the weights."""
    planted = Planted(Fault(**json.loads(fault)), Path(folder))
    if planted.fault.where == "start" and os.environ.get("PMI_RANK") == str(planted.fault.who):
        planted.happen()
    be = gen_backend("cpu", batch_size=BATCH, rng_seed=3)
    plant(planted)
    try:
        model = train(planted, file)
    except (Exception, KeyboardInterrupt):
        if not planted.fault.caught:
            raise
        (planted.folder / f"{AGAIN}{be.rank}").touch()
        model = train(planted)
    if be.rank == 0:
        found = [float(value) for layer in model.layers_to_optimize for value in layer.W.get().ravel()]
        (planted.folder / WEIGHTS).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
