"""Runs of ``scaling.py``: each contender in new processes, alone, under mpiexec, or as ranks of PyTorch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
RANKS = 2


@dataclass(frozen=True)
class Contender:
    """One way to make steps.

    Attributes
    ----------
    name : str
        The heading of its column.
    way : str
        As ``_rank_steps.py`` takes it.
    processes, threads : int
        And threads of each process.
    mpi : bool
        Started by mpiexec.
    half : bool
        Each process has half of the network's minibatch, and knows of no other.
    """

    name: str
    way: str = "ours"
    processes: int = 1
    threads: int = 1
    mpi: bool = False
    half: bool = False


@dataclass(frozen=True)
class Effort:
    """Steps that are measured, and those before that are not."""

    steps: int
    warm: int


def step_seconds(contender: Contender, name: str, batch: int, effort: Effort) -> float:
    """Seconds of a step of a network, the median in new processes.

    Raises
    ------
    RuntimeError
        A process failed; the text is what it said.
    """
    numbers = (batch // 2 if contender.half else batch, effort.steps, effort.warm)
    command = [sys.executable, str(HERE / "_rank_steps.py"), contender.way, name, *map(str, numbers)]
    return float(_said(contender, command)["median"])


def message_seconds(repeats: int) -> dict[str, Any]:
    """Seconds of messages between two ranks, see ``_rank_messages.py``; by kind and bytes."""
    command = [sys.executable, str(HERE / "_rank_messages.py"), str(repeats)]
    found = _said(Contender("", processes=RANKS, mpi=True), command)
    return {kind: dict(times) if isinstance(times, list) else times for kind, times in found.items()}


def _said(contender: Contender, command: list[str]) -> dict[str, Any]:
    """The object that the first rank prints."""
    threads = str(contender.threads)
    environment = os.environ | {"NEONLIKE_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    if contender.mpi:
        command = [str(MPIEXEC), "-n", str(contender.processes), *command]
    by_hand = contender.processes if not contender.mpi else 1
    where = _meeting_point(by_hand) if by_hand > 1 else {}
    processes = [
        subprocess.Popen(
            command, env=environment | where | ({"RANK": str(rank)} if where else {}), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(by_hand)
    ]  # fmt: skip
    said = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, said):
        if process.returncode:
            raise RuntimeError(errors)
    return first_object(said[0][0])


def first_object(output: str) -> dict[str, Any]:
    """The first JSON object in a line of its own; another rank's object may follow it in the same line.

    mpiexec passes on what ranks write in the order in which it comes: of two ranks that print without a buffer, both
    objects may come before both ends of lines.

    Raises
    ------
    RuntimeError
        The output has none; the text is the output.
    """
    for line in output.splitlines():
        if line.startswith("{"):
            found: dict[str, Any] = json.JSONDecoder().raw_decode(line)[0]
            return found
    raise RuntimeError(f"a process printed no object of JSON, but {output!r}")


def _meeting_point(ranks: int) -> dict[str, str]:
    """Variables by which ranks of PyTorch find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
