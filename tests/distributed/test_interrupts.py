"""Ctrl-C in a training of several ranks: all stop after one minibatch and save, and a training goes on from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.distributed.test_faults import training
from tests.fuzz import ranks
from tests.fuzz.ranks_program import Fault
from tests.support.ranks import MPIEXEC, rank_environment, run_ranks


@pytest.mark.parametrize("count", [2, 3])
def test_interrupted_training_goes_on(count: int, tmp_path: Path) -> None:
    # The signal comes to one rank alone; all stop after the next minibatch.
    fault = Fault(ranks=count, who=1, how="SIGINT", where="minibatch end", count=6)
    done = ranks.run(fault, tmp_path)
    assert done.returncode != 0
    assert "Training was interrupted; the model is saved to" in done.stderr
    assert "minibatch 3 of epoch 1" not in done.stderr and not (tmp_path / "weights.json").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"fault", "m.prm"}
    saved = ranks.load_obj(tmp_path / "m.prm")
    assert (saved["epoch_index"], saved["progress"]["minibatches"]) == (1, 3)
    kept = tmp_path / "kept.prm"
    shutil.copy(tmp_path / "m.prm", kept)
    assert ranks.check_file(fault, tmp_path), "on another number of ranks"
    whole, again = (ranks.trained(Fault(ranks=count), tmp_path, file) for file in (None, kept))
    assert whole == again, "bit for bit"


AGAIN = """
import os
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu", batch_size=12, rng_seed=3)
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

class Stops(Callback):
    def __init__(self, error):
        super().__init__()
        self.error, self.steps = error, 0

    def on_minibatch_end(self, *args):
        self.steps += 1
        if self.error and self.steps == 7:
            raise self.error

def trained(error):
    be.rng_reset()
    rng = np.random.default_rng(0)
    data = ArrayIterator(rng.standard_normal((48, 100)).astype("f4"), rng.integers(0, 5, 48), nclass=5)
    hidden = Affine(400, GlorotUniform(), batch_norm=True, activation=Rectlin())
    model = Model([hidden, Affine(5, GlorotUniform(), activation=Softmax())])
    callbacks = Callbacks(model, progress_bar=False, save_path="m.prm", serialize=10)
    callbacks.add_callback(Stops(error))
    for _ in range(1 + bool(error)):
        try:
            model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 4, callbacks)
        except (ValueError, KeyboardInterrupt) as caught:
            assert caught is error and os.path.exists("m.prm") == isinstance(error, KeyboardInterrupt)
    assert be.shard_optimizer and model.layers.layers[0].W.nbytes > 1 << 16
    return [model.layers.layers[0].W.get(), model.layers.layers[1].gmean.get()]

whole = trained(None)
for error in (ValueError(), KeyboardInterrupt()):
    again = trained(error)
    assert np.array_equal(whole[0], again[0]), np.abs(whole[0] - again[0]).max()
    assert np.allclose(whole[1], again[1], rtol=1e-5, atol=1e-6), "means of the ranks' statistics"
print("equal")
"""


def test_training_goes_on_after_an_error_that_all_ranks_catch(tmp_path: Path) -> None:
    done = run_ranks(2, AGAIN, folder=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"


def interrupted(program: str, folder: Path, waits: tuple[float, ...]) -> tuple[int, str, float]:
    """Interrupt mpiexec some times after a rank is ``ready``; return the status, errors and the seconds to the end."""
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-c", program]
    with subprocess.Popen(
        command, cwd=folder, env=rank_environment(), text=True, start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while not (folder / "ready").exists() and time.monotonic() < until:
            time.sleep(0.05)
        for seconds in waits:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, errors, time.monotonic() - sent


READY = "open('ready', 'w').close()"


@pytest.mark.parametrize("waits", [(0.5,), (0.5, 0.5)])
def test_a_second_interrupt_ends_at_once(waits: tuple[float, ...], tmp_path: Path) -> None:
    slow = f"{READY}; import time; time.sleep(5)"  # on rank 1, which rank 0 waits for
    status, errors, took = interrupted(training(slow), tmp_path, waits)
    assert status != 0 or len(waits) == 2  # that of an mpiexec which ends itself, MPICH's may be 0
    assert took > 3 if len(waits) == 1 else took < 3, errors


@pytest.mark.parametrize(
    "place",
    [
        f"{READY}; import time; time.sleep(30)",
        f"{READY}\nfor _ in range(10**6): model.eval(data, Misclassification())",
        f"{READY}\nif be.rank: import time; time.sleep(30)\nbe.barrier()",
        f"{READY}\nfor _ in range(10**6): model.save_params('m.prm')",
    ],
)
def test_interrupts_outside_of_trainings(place: str, tmp_path: Path) -> None:
    status, errors, took = interrupted(training(after=place), tmp_path, (0.7,))
    assert status != 0 and "KeyboardInterrupt" in errors
    assert took < 8, errors
    if "save" in place:
        assert ranks.load_obj(tmp_path / "m.prm")["epoch_index"] == 3
