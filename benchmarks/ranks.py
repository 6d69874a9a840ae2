"""Training steps on several ranks of one thread each, against one rank, and against PyTorch's DistributedDataParallel.

Every figure is the median of the steps of processes of their own, and contenders run in turns; the global batch is the
same for all. Ranks of ours talk by MPI (mpiexec of ``neonlike[mpi]``), PyTorch's by gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import _machine
from _cases import NOT_INSTALLED, markdown, time_text
from _nets import NETS
from harness import Session, arguments, some_of

CHILD = Path(__file__).resolve().parent / "_rank_steps.py"
MPIEXEC = Path(sys.executable).with_name("mpiexec")
CHOSEN = ("mlp", "vgg")
STEPS = {"mlp": 200, "digits": 200, "vgg": 12}
RANKS = 2
SPEEDUPS = {"vgg": 1.9, "mlp": 1.5}
"""Time of one rank divided by that of two, at least."""
ROUNDS, QUICK_ROUNDS = 3, 1
ONE, SEVERAL, THREADS, LAUNCHED = "1 rank", f"{RANKS} ranks", f"1 rank, {RANKS} threads", "mpiexec -n 1"
TORCH, DDP = "torch, 1 thread", f"torch DDP, {RANKS} ranks"
LAUNCH_TARGET = 1.02
"""Time of one rank under mpiexec divided by that without."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument("--only", type=some_of(NETS), metavar="NAME,NAME", help=f"some of {', '.join(NETS)}")
    options = parser.parse_args(argv)
    options.chosen = options.only or list(CHOSEN)
    return options


def measure(contender: str, name: str) -> float:
    """Seconds of a step: the median in new processes.

    Raises
    ------
    RuntimeError
        A process failed; the text is what it said.
    """
    steps = str(STEPS.get(name, 12))
    threads = str(RANKS if contender == THREADS else 1)
    environment = os.environ | {"NEONLIKE_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    way = "torch" if contender in (TORCH, DDP) else "ours"
    command = [sys.executable, str(CHILD), way, name, steps]
    if contender == DDP:
        return _by_hand(command, environment)
    if contender in (SEVERAL, LAUNCHED):
        command = [str(MPIEXEC), "-n", str(RANKS if contender == SEVERAL else 1), *command]
    pipe = subprocess.PIPE
    return _figure(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))


def _by_hand(command: list[str], environment: dict[str, str]) -> float:
    """Start the ranks of PyTorch."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            command, env=environment | where | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    figure = _figure(ranks[0])
    for rank in ranks[1:]:
        rank.communicate()
    return figure


def _figure(process: subprocess.Popen[str]) -> float:
    out, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors)
    return float(json.loads(out.splitlines()[-1])["median"])


def verdicts(name: str, found: dict[str, list[float]]) -> list[str]:
    """A line for each target, with what was measured."""
    ratio = _ratios(found)
    lines = [f"{name}: one rank under mpiexec takes {ratio[LAUNCHED, ONE]:.3f} times as long (target {LAUNCH_TARGET})"]
    target = f" (target {SPEEDUPS[name]})" if name in SPEEDUPS else ""
    lines.append(f"{name}: {RANKS} ranks are {ratio[ONE, SEVERAL]:.2f} times as fast as one{target}")
    if DDP in found:
        lines.append(f"{name}: {RANKS} ranks are {ratio[DDP, SEVERAL]:.2f} times as fast as PyTorch's (target 1)")
    return lines


def _ratios(found: dict[str, list[float]]) -> dict[tuple[str, str], float]:
    """Medians of the ratios within a round."""
    pairs = [(a, b) for a in found for b in found if a != b]
    return {(a, b): statistics.median(x / y for x, y in zip(found[a], found[b])) for a, b in pairs}


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = parse(argv)
    session = Session("ranks", options)
    has_torch = _machine.peer_versions()["torch"] != NOT_INSTALLED
    contenders = [ONE, LAUNCHED, THREADS, SEVERAL, *([TORCH, DDP] if has_torch else [])]
    lines: list[str] = [] if has_torch else ["not installed: torch"]
    rows: list[dict[str, Any]] = []
    for name in options.chosen:
        found: dict[str, list[float]] = {contender: [] for contender in contenders}
        for turn in range(QUICK_ROUNDS if options.quick else ROUNDS):
            for contender in contenders if turn % 2 else reversed(contenders):
                found[contender].append(measure(contender, name))
        for contender in contenders:
            median = statistics.median(found[contender])
            rows.append({"network": name, "contender": contender, "median": median, "all": found[contender]})
            session.say(f"{name:<10}{contender:<22}{time_text(median):>10}")
        lines += verdicts(name, found)
    cells = [
        [name, *(time_text(row["median"]) for row in rows if row["network"] == name)] for name in options.chosen
    ]
    session.tables = {"A step of the global batch": markdown(["network", *contenders], cells)}
    session.more = {"ranks": rows}
    return session.finish(lines)


if __name__ == "__main__":
    sys.exit(main())
