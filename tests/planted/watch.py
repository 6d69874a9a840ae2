"""A plugin of pytest for planted faults: it orders tests, and tells of those that failed and of refused kernels."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

REFUSED = "a kernel was refused by the compiler"
FAILED = "failed test:"
"""What a line of the output begins with that names a test that failed."""
FIRST = "NEONLIKE_TESTS_FIRST"
"""Variable of the environment with the tests that run before others, a line each, as pytest names them in tests/."""


class _Watch(logging.Handler):
    seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or "could not be compiled" in record.getMessage()


_watch = _Watch(logging.ERROR)
_failed: list[str] = []


def pytest_sessionstart() -> None:
    """Listen to the library's log."""
    logging.getLogger("neon").addHandler(_watch)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have the tests that ``FIRST`` names run first, then each test's first case, then each one's second.

    A fault fails in most cases of the test that sees it, and its neighbours are often seen by the same test.
    """
    begun = Counter[str]()
    first = {f"tests/{name}": rank for rank, name in enumerate(os.environ.get(FIRST, "").splitlines())}
    turns = {}
    for item in items:
        test, _, _ = item.nodeid.partition("[")
        turns[item] = first.get(item.nodeid, len(first) + begun[test])
        begun[test] += 1
    items.sort(key=turns.__getitem__)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the name of a test that fails, itself or as what it needs is set up."""
    if report.failed and report.when != "teardown":
        _failed.append(report.nodeid.removeprefix("tests/"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the tests that failed, and that a kernel was refused, which NumPy computed then."""
    for name in _failed:
        terminalreporter.write_line(f"{FAILED} {name}")
    if _watch.seen:
        terminalreporter.write_line(REFUSED)
