"""K ranks train as one process does on the whole batch: the same costs and weights, on every rank the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distributed.test_faults import training
from tests.distributed.training import TRAININGS
from tests.support.ranks import MPIEXEC, rank_environment, run_ranks

TOLERANCE = 2e-5
"""Of float32 after some 20 steps: sums over samples are taken in another order."""
FACTS = {"different", "collectives"}
"""What the program writes beside results."""


def trained(ranks: int, path: Path, *names: str, **variables: str) -> dict[str, np.ndarray]:
    """Run trainings on so many ranks; returns the arrays that they write."""
    launcher = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, "-m", "tests.distributed.training", *names, str(path)]
    done = subprocess.run(
        command, env=rank_environment(**variables), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as saved:
        return dict(saved)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The results of one process."""
    return trained(1, tmp_path_factory.mktemp("alone") / "results.npz")


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """The results of several ranks are those of one process, on every rank."""
    assert not found["different"].size, f"ranks differ in {found['different']}"
    assert found.keys() == expected.keys()
    for name in expected.keys() - FACTS:
        scale = max(1e-3, np.abs(expected[name]).max())
        assert np.abs(found[name] - expected[name]).max() / scale < TOLERANCE, name


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_equals_one_process(ranks: int, alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = trained(ranks, tmp_path / "results.npz")
    assert {name.partition(".")[0] for name in found} == {*TRAININGS, *FACTS}
    check(found, alone)


def test_equals_one_process_on_numpy(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    check(trained(2, tmp_path / "results.npz", NEONLIKE_CPU_JIT="0"), alone)


def test_is_reproducible(tmp_path: Path) -> None:
    first, second = (trained(3, tmp_path / f"{run}.npz", "mlp", "convnet") for run in (1, 2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.gpu
def test_equals_one_process_on_gpus(gpu_driver: Any, tmp_path: Path) -> None:
    """By NCCL between emulated GPUs, whose streams run late; through the host without it."""
    late = {"RANKS_BACKEND": "gpu", "CUEMU_DEVICES": "3", "CUEMU_ASYNC": "1", "CUEMU_THREADS": "1"}
    expected = trained(1, tmp_path / "alone.npz", "clipped", "convnet", "lstm", "variables", RANKS_BACKEND="gpu")
    for ranks, nccl, names in (2, "", "clipped lstm variables"), (3, "", "convnet"), (2, "none", "clipped convnet"):
        found = trained(ranks, tmp_path / "results.npz", *names.split(), **late, NEONLIKE_NCCL=nccl)
        check(found, {name: expected[name] for name in expected if name.partition(".")[0] in {*names.split(), *FACTS}})
        if gpu_driver.emulator is not None:
            assert (found["collectives"] > 100) == (nccl == "")


def test_reports_show_what_ranks_send() -> None:
    done = run_ranks(2, training(after="print(model.explain())"), NEONLIKE_BENCH="1")
    assert done.returncode == 0, done.stderr
    assert "Gradients of 2 parameters" in done.stdout and "are summed over 2 ranks" in done.stdout
    assert "gradients summed over ranks" in done.stdout + done.stderr
    assert "updated rows sent to ranks" not in done.stdout, "no parameter is large"
