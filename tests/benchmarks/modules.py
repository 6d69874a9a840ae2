"""Fixtures of the tests of the benchmarks: their modules, and runs in this process with the shortest measurements."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

FOLDER = ROOT / "benchmarks"


class Modules:
    """The modules of the benchmarks folder, imported when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(name)

    @property
    def shortest(self) -> Any:
        """Two samples of one call each."""
        return self._cases.Effort(sample=0.0, pause=0.0, min_rounds=2, max_rounds=2, budget=0.0)


class Here:
    """A link to a desk in this process, for contenders that are made up by a test."""

    def __init__(self, desk: AbstractContextManager[Any]) -> None:
        self.stack = ExitStack()
        self.desk = self.stack.enter_context(desk)

    def ask(self, verb: str, *given: Any) -> Any:
        """The answer, having gone through JSON."""
        verb, *given = json.loads(json.dumps([verb, *given]))
        return json.loads(json.dumps(getattr(self.desk, verb)(*given)))

    def close(self) -> None:
        """Leave the desk."""
        self.stack.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    """The modules of the benchmarks folder, with a small copy."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = Modules()
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    yield found
    monkeypatch.undo()
    for name in [name for name, module in sys.modules.items() if _is_of(module)]:
        sys.modules.pop(name)


def _is_of(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and Path(path).parent == FOLDER


@pytest.fixture
def run(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Runs a suite with the shortest of measurements, its contenders in this process: exit status and session."""
    sessions: list[Any] = []

    class Kept(bench.harness.Session):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            sessions.append(self)

    monkeypatch.setattr(bench._suite, "Session", Kept)

    def runner(suite: Any, *argv: str) -> tuple[int, Any]:
        suite.efforts = (bench.shortest, bench.shortest)
        if "start" not in vars(suite):
            suite.start = lambda given, who: Here(suite.desk(suite.parse(given), who))
        return suite.main([*argv]), sessions[-1]

    return runner
