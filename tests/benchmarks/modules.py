"""Fixtures of the tests of the benchmarks: their modules, with the shortest of measurements and few peers."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT

FOLDER = ROOT / "benchmarks"
MODULES = (
    "_terms", "_machine", "_report", "_cases", "_picture", "harness", "_apart", "_expressions", "_contenders",
    "_verdicts", "optree", "coldstart",
)  # fmt: skip


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
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the benchmarks folder, with the shortest of measurements and a small copy."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    shortest = found.harness.Effort(sample=0.0, pause=0.0, min_rounds=2, max_rounds=2, budget=0.0)
    monkeypatch.setattr(found.harness, "QUICK", shortest)
    monkeypatch.setattr(found.harness, "Effort", lambda: shortest)
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    monkeypatch.setattr(found.optree, "start", lambda argv, name: Here(found.optree.desk(name)))
    yield found
    for name in MODULES:
        sys.modules.pop(name)


@pytest.fixture
def few_peers(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy and a stand-in for a library that is not there, whatever this machine has."""

    def absent(problem: Any) -> Any:
        raise bench._contenders.Refused(bench._terms.NOT_INSTALLED)

    monkeypatch.setattr(bench._contenders, "PEERS", {"numpy": bench._contenders.plain_numpy, "torch": absent})


def run_optree(bench: Any, *argv: str) -> tuple[int, Any]:
    """Exit status and session of the script with these options."""
    sessions: list[Any] = []

    class Kept(bench.harness.Session):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            sessions.append(self)

    bench.optree.Session = Kept
    return bench.optree.main(list(argv)), sessions[0]
