"""The library's one logger, called ``neon``, with neon's extra level between ERROR and CRITICAL.

It is a logger as any other: what is logged propagates to the handlers of the application, of pytest, of whoever
configured :mod:`logging`. Where nobody did, a handler of our own writes to the standard error stream. The level is
WARNING, so that whatever makes a program slow or is ignored is said once; a level or handlers that were set before
this module is imported stay.

``logger.display(message)`` is for what the user asked to see (a table, a progress line): it is shown at the
default threshold, unlike ``info``. As in neon, every logger of :mod:`logging` gets the method.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

DISPLAY_LEVEL_NUM = 41
"""Numeric level of :func:`display`; just above ``logging.ERROR`` (40)."""

NAME = "neon"

logging.addLevelName(DISPLAY_LEVEL_NUM, "DISPLAY")


class NeonLogger(logging.Logger):
    """A standard logger with a ``display`` method."""

    def display(self, message: object, *args: object, **kwargs: object) -> None:
        """Log ``message`` at level 41, shown unless logging is silenced."""
        if self.isEnabledFor(DISPLAY_LEVEL_NUM):
            self._log(DISPLAY_LEVEL_NUM, message, args, **kwargs)  # type: ignore[arg-type]


if not hasattr(logging.Logger, "display"):
    logging.Logger.display = NeonLogger.display  # type: ignore[attr-defined]  # scripts have loggers of their own


class ConsoleFormatter(logging.Formatter):
    """Formats records for the console: displayed text as it is, other messages with their level."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of ``record``."""
        text = super().format(record)
        return text if record.levelno == DISPLAY_LEVEL_NUM else f"{record.levelname}: {text}"


class FallbackHandler(logging.Handler):
    """Writes to the standard error stream what nobody else handles, as ``logging.lastResort`` does.

    Handlers that the library adds beside it (a log file) are listed in ``companions`` and do not count as others.
    """

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.setFormatter(ConsoleFormatter())
        self.companions: list[logging.Handler] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write ``record``, unless a handler of the application gets it too."""
        if not self._is_handled_elsewhere(record.name):
            try:
                stream: TextIO | None = sys.stderr  # the one of now: it may have been redirected since
                if stream is not None:
                    stream.write(self.format(record) + "\n")
                    stream.flush()
            except Exception:
                self.handleError(record)

    def _is_handled_elsewhere(self, name: str) -> bool:
        place: logging.Logger | None = logging.getLogger(name)
        while place is not None:
            for handler in place.handlers:
                if not isinstance(handler, FallbackHandler) and handler not in self.companions:
                    return True
            place = place.parent if place.propagate else None
        return False


def _make_logger() -> NeonLogger:
    previous = logging.getLoggerClass()
    logging.setLoggerClass(NeonLogger)
    try:
        made = logging.getLogger(NAME)
    finally:
        logging.setLoggerClass(previous)
    made.__class__ = NeonLogger  # someone may have asked for the name before we were imported
    if made.level == logging.NOTSET:
        made.setLevel(logging.WARNING)
    made.addHandler(FallbackHandler())
    return made  # type: ignore[return-value]


logger = _make_logger()
"""Named ``neon`` so that scripts which configure ``logging.getLogger('neon')`` keep working."""

display = logger.display


def log_to(file: logging.Handler | None, console_level: int = logging.NOTSET) -> None:
    """Have the library's own handlers be ``file``, if there is one, and the console from ``console_level`` up.

    Handlers of others stay. A file of an earlier call is closed.
    """
    for handler in [handler for handler in logger.handlers if isinstance(handler, FallbackHandler)]:
        logger.removeHandler(handler)
        for companion in handler.companions:
            logger.removeHandler(companion)
            companion.close()
    console = FallbackHandler(console_level)
    logger.addHandler(console)
    if file is not None:
        console.companions.append(file)
        logger.addHandler(file)
