"""Ranks for tests: programs under mpiexec, and one rank of several without any messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from neonlike.distributed.ranks import Ranks
from tests import ROOT

MPIEXEC = Path(sys.executable).with_name("mpiexec")


class OneOf(Ranks):
    """Rank ``rank`` of ``size`` that no other is there for: its share of data is looked at, nothing is exchanged."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.local_rank = rank, size, rank


def rank_environment(**variables: str) -> dict[str, str]:
    """The environment of ranks: one thread each, the package from here."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NEONLIKE_NUM_THREADS": "1", **variables}


def run_ranks(
    count: int, program: str, *arguments: Any, folder: Path | None = None, timeout: float = 240, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``program``, the text of a script, on so many ranks under mpiexec; ``variables`` are of the environment.

    Raises
    ------
    subprocess.TimeoutExpired
        If it takes longer than ``timeout`` seconds.
    """
    command = [MPIEXEC, "-n", count, sys.executable, "-c", program, *arguments]
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=rank_environment(**variables), timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
