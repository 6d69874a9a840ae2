"""Worker processes that go through seeds and report each by a line of JSON; another one takes over where one dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MAIN = Path(__file__).with_name("__main__.py")
Hear = Callable[[int, dict[str, Any]], bool]
"""Told of each report of a seed; whether to go on."""


MOST_FAILURES = 10
"""After which no more is asked for."""


def report(seeds: range, check: Callable[[int], dict[str, Any]], text: Callable[[Exception], str] = str) -> int:
    """Go through ``seeds`` as a worker: a line of JSON that a seed begins, then what ``check`` found, or its failure.

    ``text`` says what is told of an exception. Returns the exit status.
    """
    for seed in seeds:
        print(json.dumps({"begin": seed}), flush=True)
        try:
            print(json.dumps(check(seed)), flush=True)
        except Exception as error:
            print(json.dumps({"failure": text(error)}), flush=True)
    return 0


def named(error: Exception) -> str:
    """The class of an exception, and its message."""
    return f"{type(error).__name__}: {error}"


class Findings:
    """Findings of workers for seeds of one kind: failures, printed at once, and numbers, which are added.

    ``kind`` is "graph", say, of which ``python tests/fuzz 0 --graphs 1 --first SEED`` does one; ``number`` the name of
    what is added up. ``option``: of another name than the kind's plural.
    """

    def __init__(self, kind: str, number: str, option: str = "") -> None:
        self.kind, self.number, self.option = kind, number, option or f"{kind}s"
        self.failures: list[str] = []
        self.numbers: list[int] = []  # workers are heard by several threads, to which appending is safe

    @property
    def total(self) -> int:
        """The sum of the numbers."""
        return sum(self.numbers)

    def hear(self, seed: int, report: dict[str, Any]) -> bool:
        """Take a report; whether to go on."""
        if "failure" in report:
            self.failures.append(f"{self.kind} {seed}: {report['failure']}")
            again = f"python tests/fuzz 0 --{self.option} 1 --first {seed}"
            print(f"{self.failures[-1]}\n  again: {again}", flush=True)
        self.numbers.append(report.get(self.number, 0))
        return len(self.failures) < MOST_FAILURES


def share(flag: str, first: int, step: int, last: int, variables: dict[str, str], hear: Hear) -> None:
    """Have seeds first, first + step, ... below last done by ``python tests/fuzz flag first step last``."""
    wanted = True
    while first < last and wanted:
        command, seed = [sys.executable, str(MAIN), flag, str(first), str(step), str(last)], first
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as worker:
            for line in worker.stdout or ():
                report = json.loads(line)
                seed = report.get("begin", seed)
                wanted = hear(seed, report)
                if not wanted:
                    worker.kill()
                    return
        if worker.returncode == 0:
            return
        wanted = hear(seed, {"failure": f"the process ended with {worker.returncode}"})
        first = seed + step


def spread(flag: str, seeds: range, workers: int, variables: dict[str, str], hear: Hear) -> None:
    """Have ``seeds`` done by that many workers at a time."""
    with ThreadPoolExecutor(workers) as pool:
        parts = [
            pool.submit(share, flag, seeds.start + n * seeds.step, workers * seeds.step, seeds.stop, variables, hear)
            for n in range(workers)
        ]
    for part in parts:
        part.result()
