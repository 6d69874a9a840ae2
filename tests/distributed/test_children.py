"""Processes that a rank starts are no ranks: they compute alone, and end without the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neonlike import settings
from tests.support.ranks import MPIEXEC, rank_environment

PROGRAM = """
import multiprocessing, os, subprocess, sys
from neonlike.backends import gen_backend

def task(number):
    return gen_backend("cpu", batch_size=4).num_ranks

ALONE = "from neonlike.backends import gen_backend; print(gen_backend('cpu', batch_size=4).num_ranks)"

def started(*command):
    done = subprocess.run([*command, sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "has started this process" in done.stderr
    return done.stdout.split()

def forked(work):
    child = os.fork()
    if child == 0:
        work()
        sys.exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if __name__ == "__main__":
    if sys.argv[1] == "before":
        assert started() == ["1"]
    be = gen_backend("cpu", batch_size=4)
    be.barrier()
    if sys.argv[1] == "pool":
        with multiprocessing.get_context(sys.argv[2]).Pool(1) as pool:
            assert pool.map(task, [1, 2]) == [1, 1]
    if sys.argv[1] == "program":
        assert started() == ["1"] and started("sh", "-c", 'exec "$@"', "sh") == ["1"]
    if sys.argv[1] == "fork":
        assert forked(lambda: None) == 5 and forked(be.barrier) == 1
    be.barrier()
    print("done", be.num_ranks)
"""


def run(count: int, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a file, which pools that do not fork import again."""
    command = [str(MPIEXEC), "-n", str(count), sys.executable, str(file), *arguments]
    return subprocess.run(command, env=rank_environment(), capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "arguments", [("before",), ("program",), ("pool", "fork"), ("pool", "spawn"), ("pool", "forkserver"), ("fork",)]
)
def test_children_of_ranks_are_alone(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = run(2, file, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done 2\n"
    assert ("this process is a copy of rank 0, not a rank" in done.stderr) == (arguments == ("fork",))


@pytest.mark.parametrize("count", [0, 1])
def test_a_process_alone_has_neither_mpi_nor_threads(count: int, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import sys, threading\nhook = sys.excepthook\nfrom neonlike.backends import gen_backend\n"
        "be = gen_backend('cpu', batch_size=4)\nbe.barrier()\n"
        "print(be.num_ranks, 'mpi4py' in sys.modules, threading.active_count(), sys.excepthook is hook)"
    )
    command = [str(MPIEXEC), "-n", "1"] if count else []
    done = subprocess.run(
        [*command, sys.executable, str(file)], env=rank_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 False 1 True\n"


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, 1),  # the script of sbatch
        ({"SLURM_NTASKS": "4"}, 0),  # a shell of salloc
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, 4),  # srun
        ({"SLURM_STEP_NUM_TASKS": "4", "PMI_SIZE": "1"}, 1),  # mpiexec inside of an allocation
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        ({"OMPI_COMM_WORLD_SIZE": "3", settings.RANK_PROCESS: "1"}, 0),  # a child of a rank
        ({"PMI_SIZE": "3", settings.PMI_SOCKET: "999"}, 0),
    ],
)
def test_launchers(variables: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*settings.LAUNCHERS, settings.PMI_SOCKET, settings.RANK_PROCESS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings.launched() == count
