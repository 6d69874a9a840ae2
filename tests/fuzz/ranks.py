"""Faults of ranks made by chance: ``python tests/fuzz 0 --ranks 50`` lets a rank of as many trainings fail.

The fault is one of ``ranks_program.py``, at a place or a time made by chance. All ranks must end within seconds, with a
status that says so and the cause on standard error. The saved model must be whole: a training that goes on from it, on
another number of ranks, ends with the weights of one that did not fail. A seed is all that a fault depends on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.util.persist import load_obj
from tests import ROOT
from tests.fuzz.ranks_program import AGAIN, FAULTS, OF_RANK_0, PLACES, WEIGHTS, Fault
from tests.fuzz.workers import Findings, report, spread
from tests.support.ranks import MPIEXEC, rank_environment

CTRL_C = "Ctrl-C"
"""The fault that comes from outside: an interrupt of mpiexec, ``seconds`` after its start."""
MOST_S = 10.0
"""Seconds from the fault to the end of all ranks."""
GIVE_UP_S = 60.0
TOLERANCE = 1e-4
"""Of float32 weights: sums over samples are taken in another order."""
ENDED = ("ended its program", "SystemExit")
INTERRUPTED = ("KeyboardInterrupt", "interrupt of a training")
SAID = {
    "SIGKILL": ("signal 9",), "SIGTERM": ("signal 15",), "os._exit(0)": ("",), "os._exit(4)": ("",),
    "sys.exit(0)": ENDED, "sys.exit(3)": ENDED, "SIGINT": INTERRUPTED, "KeyboardInterrupt": INTERRUPTED,
    "Ctrl-C": ("Ctrl-C",),
}  # fmt: skip
"""What standard error or mpiexec must say, one of these; of another exception its name."""
ANY_STATUS = ("os._exit(0)",)
"""Faults after which mpiexec may return 0: it sees a process that has ended well."""
APART = "the ranks wait for each other in different calls"
"""The message if the rank that failed goes on with something else."""


def fault_of(seed: int) -> Fault:
    """The fault of a seed."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 5))
    where = str(rng.choice([*PLACES, "anywhere"]))
    how = str(rng.choice([*FAULTS, CTRL_C]))
    if where == "start" and "exit" in how:  # MPI's start waits for that rank: docs/distributed.md
        how = "ValueError"
    seconds = float(rng.uniform(0.001, 0.7))
    if how == CTRL_C:
        where, seconds = "launcher", 5 * seconds
    caught = where not in ("start", "launcher", *OF_RANK_0) and bool(rng.random() < 0.3)
    return Fault(
        ranks=ranks, who=0 if where in OF_RANK_0 else int(rng.integers(ranks)), how=how, where=where,
        count=int(rng.integers(1, PLACES.get(where, 1) + 1)), seconds=seconds,
        caught=caught, history=int(rng.integers(1, 3)),
    )  # fmt: skip


def run(fault: Fault, folder: Path, file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program, and interrupt it if that is its fault; it ends in any case."""
    launcher = [str(MPIEXEC), "-n", str(fault.ranks)] if fault.ranks > 1 else []
    program = [sys.executable, "-m", "tests.fuzz.ranks_program", json.dumps(asdict(fault)), str(folder)]
    with subprocess.Popen(
        [*launcher, *program, *([str(file)] if file else [])], cwd=ROOT, text=True, start_new_session=True,
        env=rank_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            if fault.how == CTRL_C:
                time.sleep(fault.seconds)
                (folder / "fault").write_text(str(time.time()))
                process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=GIVE_UP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


@lru_cache(maxsize=1)
def expected() -> tuple[float, ...]:
    """The weights of a training without a fault, of one process."""
    with tempfile.TemporaryDirectory() as folder:
        return trained(Fault(), Path(folder))


def weights(folder: Path) -> tuple[float, ...]:
    """The weights that a training has ended with."""
    return tuple(json.loads((folder / WEIGHTS).read_text()))


def trained(fault: Fault, folder: Path, file: Path | None = None) -> tuple[float, ...]:
    """The weights of a training that nothing fails in."""
    done = run(fault, folder, file)
    assert done.returncode == 0, done.stderr
    return weights(folder)


def goes_on(fault: Fault, folder: Path) -> bool:
    """Whether the program rightly ended well: before the interrupt, or all ranks caught an error and trained anew."""
    whole = (folder / WEIGHTS).exists()
    return whole and (fault.how == CTRL_C or len(list(folder.glob(f"{AGAIN}*"))) == fault.ranks)


def check_end(fault: Fault, folder: Path) -> float:
    """Let the fault happen; return the seconds that all ranks took to end after it."""
    try:
        done = run(fault, folder)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"the ranks did not end; they said {error.stderr!r}") from None
    assert (folder / "fault").exists(), f"there was no fault; {done.stderr}"
    took = time.time() - float((folder / "fault").read_text())
    text = done.stderr + done.stdout
    assert took < MOST_S, f"it took {took:.1f} s; {text}"
    if done.returncode == 0 and fault.how not in ANY_STATUS:
        assert goes_on(fault, folder), f"the status is 0; {text}"
        return took
    said = SAID.get(fault.how, (fault.how,))
    apart = (APART,) if fault.caught else ()
    assert any(words in text for words in (*said, *apart)), f"nothing is said of {said}; {text}"
    return took


def check_file(fault: Fault, folder: Path) -> bool:
    """The saved model is whole, and a training goes on from it; whether there is one."""
    file = folder / "m.prm"
    if not file.exists():
        return False
    saved = load_obj(file)
    left = {path.name for path in folder.iterdir()}
    ranks = 1 + (fault.ranks + fault.count) % 4
    wanted = np.array(weights(folder) if WEIGHTS in left else expected())
    found = np.array(trained(Fault(ranks=ranks), folder, file))
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    assert error < TOLERANCE, f"resumed after epoch {saved['epoch_index']} by {ranks} ranks: off by {error}; {left}"
    return True


def check(seed: int) -> tuple[float, bool]:
    """Let the fault of a seed happen; the seconds to the end, and whether a model had been saved."""
    fault = fault_of(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            return check_end(fault, folder), check_file(fault, folder)
        except AssertionError as error:
            raise AssertionError(f"{fault}: {error}") from None


def work(first: int, step: int, last: int) -> int:
    """A worker: faults first, first + step, ... below last; one line of JSON for each."""

    def found(seed: int) -> dict[str, Any]:
        took, resumed = check(seed)
        return {"seconds": round(took, 1), "resumed": resumed}

    return report(range(first, last, step), found)


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Let ``count`` trainings fail, started by processes with these environment ``variables``; the exit status."""
    found = Findings("rank", "resumed")
    spread("--work-ranks", range(first, first + count), workers, variables, found.hear)
    print(f"ranks: {count} faults, {found.total} resumed trainings; {len(found.failures)} failures")
    return int(bool(found.failures))
