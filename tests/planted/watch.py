"""A plugin of pytest: says at the end whether the compiler refused a kernel, which NumPy computes then."""

from __future__ import annotations

import logging
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the recorded messages."""
    if _watch.seen:
        terminalreporter.write_line(REFUSED)
