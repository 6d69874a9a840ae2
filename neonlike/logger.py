"""The library's one logger, with neon's extra level between ERROR and CRITICAL.

``logger.display(message)`` is for what the user asked to see (a table, a progress line): it is shown at the
default threshold, unlike ``info`` and ``warning``. As in neon, every logger of :mod:`logging` gets the method.
"""

from __future__ import annotations

import logging

DISPLAY_LEVEL_NUM = 41
"""Numeric level of :func:`display`; just above ``logging.ERROR`` (40)."""

logging.addLevelName(DISPLAY_LEVEL_NUM, "DISPLAY")


class NeonLogger(logging.Logger):
    """A standard logger with a ``display`` method."""

    def display(self, message: object, *args: object, **kwargs: object) -> None:
        """Log ``message`` at level 41, shown unless logging is silenced."""
        if self.isEnabledFor(DISPLAY_LEVEL_NUM):
            self._log(DISPLAY_LEVEL_NUM, message, args, **kwargs)  # type: ignore[arg-type]


if not hasattr(logging.Logger, "display"):
    logging.Logger.display = NeonLogger.display  # type: ignore[attr-defined]  # scripts have loggers of their own


def _make_logger(name: str) -> NeonLogger:
    previous = logging.getLoggerClass()
    logging.setLoggerClass(NeonLogger)
    try:
        made = logging.getLogger(name)
    finally:
        logging.setLoggerClass(previous)
    made.__class__ = NeonLogger  # someone may have asked for the name before we were imported
    if not made.handlers:
        made.addHandler(logging.StreamHandler())
        made.setLevel(logging.ERROR)
        made.propagate = False
    return made  # type: ignore[return-value]


logger = _make_logger("neon")
"""Named ``neon`` so that scripts which configure ``logging.getLogger('neon')`` keep working."""

display = logger.display
