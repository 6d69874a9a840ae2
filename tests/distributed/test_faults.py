"""A rank that fails ends all ranks, within seconds, and says why; ranks that differ are told before the first step."""

from __future__ import annotations

import os
import re
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
import neonlike.distributed.launch
from neonlike.backends import gen_backend
seed, samples, units, rate, at, epochs, scale, labels, dtype, bsz = 3, 48, 20, 0.1, 7, {epochs}, 1, 0, "f4", None
schedule = lambda: Schedule()
rank = int(os.environ.get("PMI_RANK", 0))
{before}
be = gen_backend("cpu", batch_size=12, rng_seed=seed, datatype=dtype)
be.bsz = bsz or be.bsz
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, Schedule
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
rng = np.random.default_rng(0)
x, t = rng.standard_normal((samples, 30)).astype("f4"), rng.integers(0, 5, samples)
data = ArrayIterator(x, (t + labels) % 5, nclass=5)
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
cost = GeneralizedCost(CrossEntropyMulti(scale=scale))
def fit():
    model.fit(data, cost, GradientDescentMomentum(rate, 0.9, schedule=schedule()), epochs, callbacks)
{fit}
{after}
print("trained", model.epoch_index)
"""


def training(fault: str = "pass", before: str = "", after: str = "", epochs: int = 3, fit: str = "fit()") -> str:
    """A program whose rank 1 does ``fault`` after some minibatches, and others do too, before and after."""
    return TRAINING.format(fault=fault, before=before, after=after, epochs=epochs, fit=fit)


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
        ("scale = 3", "another cost than rank 0: 'costfunc.config.scale = 3', not ''"),
        ("labels += 1", "rank 2 has another data than rank 0"),
        ("epochs += 1", "rank 2 has another number of epochs than rank 0: 4, not 3"),
        ("dtype = 'f8'", "rank 2 has another parameters than rank 0"),
        ("bsz = 8", "rank 2 has another number of batches than rank 0: 2, not 4"),
        ("neonlike.distributed.launch.__version__ = '0'", "rank 2 has another version of neonlike than rank 0: '0'"),
    ],
)
def test_ranks_that_differ_are_told(change: str, said: str) -> None:
    done = run_ranks(3, training(before=f"if rank == 2: {change}"), timeout=60)
    assert done.returncode != 0
    assert said in done.stderr
    assert "all ranks must run the same script" in done.stderr


SCHEDULE = """class Own(Schedule):
    def __init__(self, f):
        super().__init__()
        self.f = f
    def get_learning_rate(self, rate, epoch):
        return self.f(rate)
schedule = lambda: Own(lambda rate: rate / 2)"""


@pytest.mark.parametrize(
    ("before", "fit"),
    [
        ("if rank == 1: os.environ['NEONLIKE_CPU_JIT'] = '0'", "fit()"),
        ("if rank == 1: os.environ['NEONLIKE_MPI_CHECK'] = '1'", "fit()"),
        ("", f"{SCHEDULE}\nfit()"),
        ("", "if rank == 1: GeneralizedCost(CrossEntropyMulti())\nfit()"),
    ],
)
def test_ranks_may_differ(before: str, fit: str) -> None:
    done = run_ranks(2, training(before=before, fit=fit), timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained 3\n"


EVALUATES = "if be.rank == 0: model.eval(data, Misclassification())\n"
CATCHES = "try:\n    fit()\nexcept ValueError:\n    pass\n"
LASTLY = "try:\n    fit()\nfinally:\n    be.barrier()"
FULL = "raise ValueError('full')"


@pytest.mark.parametrize(
    ("fault", "fit", "after", "said"),
    [
        ("pass", "fit()", EVALUATES,
         "call N of the ranks, tell evaluation, in <string>:N, but rank 1 ended its program after call N"),
        ("pass", "fit()", EVALUATES + "model.save_params('m.prm')",
         "number N, tell evaluation; rank 1: number N, tell"),
        ("pass", "fit()", EVALUATES + "be.barrier()", "rank 0 waits in call N, tell evaluation, in <string>:N\n"
         "rank 1 waits in call N, barrier, in <string>:N"),
        (FULL, CATCHES, "be.barrier()", "rank 1 waits in call N, barrier, in <string>:N\n"),
        (FULL, LASTLY, "", "rank 1 waits in call N, barrier, in <string>:N, after ValueError: full"),
    ],
)  # fmt: skip
def test_ranks_that_wait_for_each_other_are_named(fault: str, fit: str, after: str, said: str, tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_ranks(2, training(fault, fit=fit, after=after), folder=tmp_path, timeout=60)
    assert done.returncode != 0
    assert said in re.sub(r"(call |number |>:)\d+", r"\1N", done.stderr)
    assert time.monotonic() - started < 30


def test_error_before_joining_ends_all() -> None:
    started = time.monotonic()
    program = (
        "import os\nfrom neonlike.backends import gen_backend\n"
        "if os.environ['PMI_RANK'] == '1': raise ValueError('no such disk')\ngen_backend('cpu', batch_size=4)"
    )
    done = run_ranks(2, program, timeout=60)
    assert done.returncode != 0
    assert "ValueError: no such disk" in done.stderr and "failed before it had joined the others" in done.stderr
    assert time.monotonic() - started < 30


def test_error_of_a_process_alone_is_its_own() -> None:
    program = (
        "import os, time\nfrom neonlike.backends import gen_backend\nbe = gen_backend('cpu', distributed=False)\n"
        "if os.environ['PMI_RANK'] == '1': raise ValueError('no such disk')\ntime.sleep(2)\nprint('done')"
    )
    done = run_ranks(2, program, timeout=60)
    assert done.stdout == "done\n" and "ValueError: no such disk" in done.stderr
    assert "failed" not in done.stderr


def test_error_of_the_script_is_shown_once() -> None:
    program = "from neonlike.backends import gen_backend\ngen_backend('cpu', batch_size=4).barrier()\n1 / 0"
    done = run_ranks(4, program, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError") == 1 and "rank 0 of 4 failed" in done.stderr


def test_error_of_all_that_rank_0_catches_is_shown_by_another() -> None:
    caught = "try:\n    fit()\nexcept RankError:\n    if be.rank: raise\n    be.barrier()"
    program = training(before="from neonlike.errors import RankError\nif rank == 1: seed += 1", fit=caught)
    done = run_ranks(2, program, timeout=60)
    assert done.returncode != 0
    assert "rank 1 of 2 failed, and all ranks end" in done.stderr
    assert "RankError: model.fit: rank 1 has another state of be.rng" in done.stderr


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
    program = training(slow, epochs=100000, fit=(
        "open(f'ready{be.rank}', 'w').close()\ntry:\n    fit()\nexcept KeyboardInterrupt:\n"
        "    open(f'stopped{be.rank}', 'w').write(f'{model.epoch_index} {model.progress.minibatches}')"
    ))  # fmt: skip
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
