"""Logging as a program has it that configures nothing; pytest keeps handlers of its own on the root logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody_configured_logging() -> Iterator[None]:
    """Take the root logger's handlers away for a while, pytest's too."""
    handlers = logging.root.handlers[:]
    logging.root.handlers[:] = []
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
