"""A plugin of pytest for planted faults: it takes the cases of tests in turn, and says whether a kernel was refused."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

REFUSED = "a kernel was refused by the compiler"


class _Watch(logging.Handler):
    seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or "could not be compiled" in record.getMessage()


_watch = _Watch(logging.ERROR)


def pytest_sessionstart() -> None:
    """Listen to the library's log."""
    logging.getLogger("neon").addHandler(_watch)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have each test run its first case, then each its second: a fault fails in most cases of the test that sees it."""
    begun = Counter[str]()
    turns = {}
    for item in items:
        test, _, _ = item.nodeid.partition("[")
        turns[item] = begun[test]
        begun[test] += 1
    items.sort(key=turns.__getitem__)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print that a kernel was refused, which NumPy computed then."""
    if _watch.seen:
        terminalreporter.write_line(REFUSED)
