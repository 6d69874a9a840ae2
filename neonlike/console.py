"""Wraps the main function of every program of this project."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from neonlike.errors import MissingExtra


def run(main: Callable[[], object]) -> int:
    """Call ``main`` and return the exit status: what it returns if that is an int, else 0.

    Where nobody reads the output any more (``program | head``) the program ends, with status 1 and without a word.
    Where an optional package is missing, it ends with what to install.
    """
    try:
        result = main()
        sys.stdout.flush()
    except MissingExtra as error:
        raise SystemExit(str(error)) from error
    except BrokenPipeError:
        if not _output_is_cut():
            raise
        # Python flushes again when it exits, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _output_is_cut() -> bool:
    """Whether it is the standard output that nobody reads, and not a pipe or socket of the program's own."""
    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are reported always
    except OSError:  # it is no file
        return False
    return bool(poll.poll(0))
