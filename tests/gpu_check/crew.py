"""Processes side by side that run cases (``kernels.py``): one that hangs or crashes costs the case that it was at.

A process tells when it begins a case and how that ended. One that is too long at a case is stopped, and one that ends
in the middle of a case has crashed; another process goes on with the cases behind. It begins anew behind a case that
failed, too, since an error of the GPU stays with a process.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.gpu_check.steps import ROOT

PROGRAM = (sys.executable, str(Path(__file__).resolve().parent / "kernels.py"))
HUNG, CRASHED, NOT_RUN = "hung", "crashed", "not run"
"""How a case ends besides what ``kernels.py`` says."""
STARTING = 60
"""Seconds a process may take until it begins its first case: it imports the library, maybe compiles its extension."""
Tell = Callable[[dict[str, Any]], object]


@dataclass
class Crew:
    """Crew of processes that run cases, and their conditions.

    Attributes
    ----------
    environment : dict
    log : Path
        What the processes say besides, one after the other.
    count : int
        Processes side by side.
    each : float
        Seconds for a case.
    prefix : tuple of str
        What a process is started under: a memory checker.
    """

    environment: dict[str, str]
    log: Path
    count: int = 1
    each: float = 45.0
    prefix: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, names: Iterable[str], seconds: float, tell: Tell) -> None:
        """Run these cases; ``tell`` gets the end of each. Cases not begun after so many seconds are not run."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        listed = list(names)
        for name in listed:
            waiting.put(name)
        end = time.monotonic() + seconds
        members = [
            threading.Thread(target=self._work, args=(waiting, end, tell)) for _ in range(self._side_by_side(listed))
        ]
        for member in members:
            member.start()
        for member in members:
            member.join()

    def _side_by_side(self, names: list[str]) -> int:
        return max(1, min(self.count, len(names)))

    def _work(self, waiting: queue.SimpleQueue[str], end: float, tell: Tell) -> None:
        """Take cases, some at a time, until there are none."""
        while names := _taken(waiting):
            why = "no time was left"
            while names and time.monotonic() < end:
                try:
                    names = self._process(names, end, tell)
                except Exception as error:
                    why = f"the check itself failed: {error!r}"
                    break
            for name in names:
                tell({"end": name, "state": NOT_RUN, "text": why, "seconds": 0.0})

    def _process(self, names: list[str], end: float, tell: Tell) -> list[str]:
        """Run cases in one process; those that are left when it is over."""
        with self.log.open("a", encoding="utf-8") as log:
            place = log.tell()
            process = subprocess.Popen(
                (*self.prefix, *PROGRAM, *names), cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
            assert process.stdout is not None
            lines = _lines(process.stdout)
            now, begun, left = "", time.monotonic(), list(names)
            stopped = ""
            while True:
                limit = begun + (self.each if now else STARTING)
                try:
                    line = lines.get(timeout=max(0.05, min(limit, end) - time.monotonic()))
                except queue.Empty:
                    stopped = "its time was up" if time.monotonic() >= end else f"it took more than {self.each:.0f} s"
                    break
                if line is None:
                    break
                said = _said(line)
                if "begin" in said:
                    now, begun = said["begin"], time.monotonic()
                elif "end" in said:
                    left.remove(said["end"])
                    tell(said)
                    now, begun = "", time.monotonic()
            _stop(process)
        words = self._words(place)
        if now:
            state, text = (HUNG, stopped) if stopped else (CRASHED, f"{_status(process.returncode)}; {words}")
            tell({"end": now, "state": state, "text": text, "seconds": round(time.monotonic() - begun, 2)})
            left.remove(now)
        elif len(left) == len(names):  # it never began: the next ones would not either
            why = f"the process did not begin: {stopped or _status(process.returncode)}; {words}"
            tell({"end": left.pop(0), "state": CRASHED, "text": why, "seconds": 0.0})
        return left

    def _words(self, place: int) -> str:
        """The last words of a process that is over."""
        with self.log.open("rb") as log:
            log.seek(place)
            lines = log.read()[-4000:].decode(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-3:])[:600]


AT_ONCE = 8
"""Cases that a process takes: starting one takes seconds."""


def _taken(waiting: queue.SimpleQueue[str]) -> list[str]:
    names = []
    while len(names) < AT_ONCE:
        try:
            names.append(waiting.get_nowait())
        except queue.Empty:
            break
    return names


def _lines(pipe: IO[str]) -> queue.SimpleQueue[str | None]:
    """The lines of a pipe as they come; None at its end."""
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in pipe:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


def _said(line: str) -> dict[str, Any]:
    """The message in a line of a process; nothing if it is no line of ours."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _stop(process: subprocess.Popen[str]) -> None:
    """Wait for a process that is ending, and end it if it is not."""
    try:
        process.wait(0.2 if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
