"""The report of a run in training: written at its end, on Ctrl-C, and now and then before."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from neonlike.distributed.first import by_first
from neonlike.logger import logger
from neonlike.report.charts import require_matplotlib
from neonlike.report.run import read_store
from neonlike.report.write import write_report
from neonlike.util.persist import expand, require_writable

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records

SELDOM = 30.0
"""Seconds between two reports of a training that goes on, at least."""
SHARE = 20
"""A report is written again after so many times the seconds that the last one took."""


class RunReport:
    """Writes a page about the records of a training to a file, which is replaced atomically.

    Parameters
    ----------
    path : path
        The HTML file.

    Raises
    ------
    MissingExtra
        If matplotlib, which draws the charts, is not installed.
    OSError
        If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require_matplotlib()
        self.path = expand(path)
        by_first(lambda: require_writable("Callbacks: report", self.path))
        self._due = time.monotonic() + SELDOM

    def is_due(self) -> bool:
        """Whether a training that goes on writes its report again."""
        return time.monotonic() >= self._due

    def write(self, store: Records) -> None:
        """Write the report of what ``store`` has so far; a failure is logged, since the training is worth more."""
        start = time.monotonic()
        try:
            write_report(self.path, [read_store(store, os.path.splitext(os.path.basename(self.path))[0])])
        except Exception as error:
            logger.error("the report cannot be written to %s: %s: %s", self.path, type(error).__name__, error)
        now = time.monotonic()
        self._due = now + max(SELDOM, SHARE * (now - start))
