"""Recorder of a run's facts, a line of JSON each, as they come: a run that is stopped keeps its facts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = "facts.jsonl"
Fact = dict[str, Any]


class Record:
    """A file of facts, which several threads may add to.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.facts: list[Fact] = []
        self._start, self._lock = time.monotonic(), threading.Lock()

    def add(self, kind: str, name: str, **more: Any) -> Fact:
        """Write a fact: its kind, subject and value; seconds since the run began are added."""
        fact = {"kind": kind, "name": name, "at": round(time.monotonic() - self._start, 1), **more}
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")
            self.facts.append(fact)
        return fact

    def of(self, kind: str) -> list[Fact]:
        """The facts of a kind so far."""
        with self._lock:
            return [fact for fact in self.facts if fact["kind"] == kind]


def read(path: Path) -> Iterator[Fact]:
    """The facts in a file, or in that of a folder; a line that was cut off at the end is left out."""
    file = path / FILE if path.is_dir() else path
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
