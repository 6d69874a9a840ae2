"""The library's one logger, called ``neon``, with neon's extra level between ERROR and CRITICAL.

It is an ordinary logger: records propagate to handlers of the application, of pytest, or of any other configuration
of :mod:`logging`. Without such handlers, the library's own handler writes to standard error. The level is WARNING, so
that slow or ignored operations are reported once; a level or handlers set before the import are kept.

``logger.display(message)`` is for output that the user asked for (a table, a progress line): unlike ``info`` it is
shown at the default threshold. As in neon, every logger of :mod:`logging` gets the method.
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
    """A standard logger with a ``display`` method.

    Examples
    --------
    >>> from neonlike import logger
    >>> logger.isEnabledFor(41)
    True
    """

    def display(self, message: object, *args: object, **kwargs: object) -> None:
        """Log ``message`` at level 41, which is shown unless logging is silenced.

        Parameters
        ----------
        message : object
            Text with ``%`` places, as of :mod:`logging`.
        *args : objects
            Values for the places.
        **kwargs
            ``exc_info`` and others, as of :mod:`logging`.
        """
        if self.isEnabledFor(DISPLAY_LEVEL_NUM):
            self._log(DISPLAY_LEVEL_NUM, message, args, **kwargs)  # type: ignore[arg-type]


if not hasattr(logging.Logger, "display"):
    logging.Logger.display = NeonLogger.display  # type: ignore[attr-defined]  # scripts have loggers of their own


class ConsoleFormatter(logging.Formatter):
    """Formats console records: displayed text unchanged, other messages with their level."""

    def format(self, record: logging.LogRecord) -> str:
        """Format ``record`` as text."""
        text = super().format(record)
        return text if record.levelno == DISPLAY_LEVEL_NUM else f"{record.levelname}: {text}"


class FallbackHandler(logging.Handler):
    """Writes otherwise unhandled records to standard error, like ``logging.lastResort``.

    Additional handlers of the library (a log file) are listed in ``companions`` and do not count as handling a record.
    """

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.setFormatter(ConsoleFormatter())
        self.companions: list[logging.Handler] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write ``record``, unless a handler of the application receives it."""
        if not self._is_handled_elsewhere(record.name):
            try:
                stream: TextIO | None = sys.stderr  # looked up now: it may have been redirected
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
    made.__class__ = NeonLogger  # the logger may exist already
    if made.level == logging.NOTSET:
        made.setLevel(logging.WARNING)
    made.addHandler(FallbackHandler())
    return made  # type: ignore[return-value]


logger = _make_logger()
"""The logger's name stays ``neon``, for scripts that configure ``logging.getLogger('neon')``."""

display = logger.display


class ErrorsOfRank(logging.Filter):
    """Lets errors of a rank pass, with its number before them; rank 0 logs what else they have in common."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is an error."""
        is_error = record.levelno >= logging.ERROR and record.levelno != DISPLAY_LEVEL_NUM
        if is_error:
            record.msg = f"rank {self.rank}: {record.msg}"
        return is_error


def log_errors_of(rank: int) -> None:
    """Log nothing but errors from now on, with the number of this process; rank 0 logs everything."""
    for other in [one for one in logger.filters if isinstance(one, ErrorsOfRank)]:
        logger.removeFilter(other)
    if rank:
        logger.addFilter(ErrorsOfRank(rank))


def log_to(file: logging.Handler | None, console_level: int = logging.NOTSET) -> None:
    """Replace the library's handlers by ``file``, if given, and a console handler from ``console_level`` up.

    Handlers of the application stay. The file of an earlier call is closed.
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
