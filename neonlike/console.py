"""Wraps the main function of every program of this project."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from neonlike.errors import MissingExtra


def run(main: Callable[[], object]) -> int:
    """Call ``main`` and return the exit status: its result if that is an int, else 0.

    If the reader of the output is gone (``program | head``), the program ends silently with status 1. If an optional
    package is missing, it ends with an installation hint.
    """
    try:
        result = main()
        sys.stdout.flush()
    except MissingExtra as error:
        raise SystemExit(str(error)) from error
    except BrokenPipeError:
        if not _output_is_cut():
            raise
        # Python flushes again at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _output_is_cut() -> bool:
    """Whether the broken pipe is the standard output, not a pipe or socket of the program."""
    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
    except OSError:  # not a pollable file
        return False
    return bool(poll.poll(0))
