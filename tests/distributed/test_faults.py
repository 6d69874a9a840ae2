"""A rank that fails ends all ranks, within seconds, and says why; ranks that differ are told before the first step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.ranks import MPIEXEC, rank_environment, run_ranks

TRAINING = """
import os, sys
import numpy as np
from neonlike.backends import gen_backend
seed, samples, units, rate, at = 3, 48, 20, 0.1, 7
rank = int(os.environ.get("PMI_RANK", 0))
{before}
be = gen_backend("cpu", batch_size=12, rng_seed=seed)
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
rng = np.random.default_rng(0)
data = ArrayIterator(rng.standard_normal((samples, 30)).astype("f4"), rng.integers(0, 5, samples), nclass=5)
hidden = Affine(units, init=GlorotUniform(), activation=Rectlin())
model = Model([hidden, Affine(5, init=GlorotUniform(), activation=Softmax())])
class Fault(Callback):
    steps = 0
    def on_minibatch_end(self, *args):
        self.steps += 1
        if self.steps == at and be.rank == 1:
            self.happens()
    def happens(self):
        {fault}
callbacks = Callbacks(model, progress_bar=False)
callbacks.add_callback(Fault())
model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(rate, 0.9), {epochs}, callbacks)
{after}
print("trained", model.epoch_index)
"""


def training(fault: str = "pass", before: str = "", after: str = "", epochs: int = 3) -> str:
    """A program whose rank 1 does ``fault`` after some minibatches, and others do too, before and after."""
    return TRAINING.format(fault=fault, before=before, after=after, epochs=epochs)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise ValueError('the disk is full')", "rank 1 of 3 failed, and all ranks end"),
        ("sys.exit(3)", "but rank 1 ended its program after call"),
        ("os._exit(4)", ""),  # mpiexec may say nothing, but has the status
        ("os.kill(os.getpid(), 9)", "Killed (signal 9)"),
    ],
)
def test_fault_of_one_ends_all(fault: str, said: str) -> None:
    started = time.monotonic()
    done = run_ranks(3, training(fault), timeout=60)
    assert done.returncode != 0
    assert said in done.stderr + done.stdout
    assert "trained" not in done.stdout
    assert ("ValueError: the disk is full" in done.stderr) == fault.startswith("raise")
    assert time.monotonic() - started < 30


def test_other_calls_are_named() -> None:
    done = run_ranks(2, training("be.barrier()"), timeout=60, NEONLIKE_MPI_CHECK="1")
    assert done.returncode != 0
    assert "the ranks make different calls" in done.stderr
    assert "rank 0: number" in done.stderr and "barrier" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("units += 1", "21 outputs | ..., not \"Linear Layer"),
        ("seed += 1", "rank 2 has another state of be.rng"),
        ("samples += 12", "rank 2 has another number of samples than rank 0: 60, not 48"),
        ("rate *= 2", "rank 2 has another optimizer than rank 0"),
    ],
)
def test_ranks_that_differ_are_told(change: str, said: str) -> None:
    done = run_ranks(3, training(before=f"if rank == 2: {change}"), timeout=60)
    assert done.returncode != 0
    assert said in done.stderr
    assert "all ranks must run the same script" in done.stderr


def test_batch_that_cannot_be_shared() -> None:
    done = run_ranks(5, "from neonlike.backends import gen_backend; gen_backend('cpu', batch_size=12)", timeout=60)
    assert done.returncode != 0
    assert "batch_size=12 cannot be shared equally by 5 ranks; the nearest that can: 10 or 15" in done.stderr


def test_missing_mpi4py() -> None:
    hidden = "import sys; sys.modules['mpi4py'] = None\nfrom neonlike.backends import gen_backend\n"
    for started, asked, status in (("2", "", -signal.SIGTERM), ("", "distributed=True", 1)):
        done = subprocess.run(
            [sys.executable, "-c", f"{hidden}gen_backend('cpu', {asked})"], env=rank_environment(PMI_SIZE=started),
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == status
        assert "pip install 'neonlike[mpi]'" in done.stderr


def test_callback_of_one_stops_all() -> None:
    done = run_ranks(2, training("model.finished = True", epochs=50), timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained 2\n"  # it said so in the second epoch; rank 0 prints


def test_interrupt_stops_all_at_one_minibatch(tmp_path: Path) -> None:
    slow = "import time; time.sleep(0)"
    program = training(slow, epochs=100000).replace(
        "model.fit(",
        "callbacks.add_save_best_state_callback\nopen(f'ready{be.rank}', 'w').close()\ntry:\n    model.fit(",
    )
    program = program.replace(
        "print(\"trained\"",
        "except KeyboardInterrupt:\n    open(f'stopped{be.rank}', 'w').write(f'{model.epoch_index} "
        "{model.progress.minibatches}')\nif False: print(\"trained\"",
    )
    process = subprocess.Popen(
        [str(MPIEXEC), "-n", "3", sys.executable, "-c", program], cwd=tmp_path, env=rank_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    for _ in range(300):
        if len(list(tmp_path.glob("ready*"))) == 3:
            break
        time.sleep(0.1)
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    stopped = [path.read_text() for path in sorted(tmp_path.glob("stopped*"))]
    assert len(stopped) == 3, errors
    assert len(set(stopped)) == 1
