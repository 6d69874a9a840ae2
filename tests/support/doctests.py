"""Sessions of docstrings, run as doctest does."""

from __future__ import annotations

import doctest
import gc
from typing import Any


def session_of(value: Any, name: str) -> doctest.DocTest:
    """Make a session of the docstring of ``value``; its globals are empty."""
    return doctest.DocTestParser().get_doctest(value.__doc__ or "", {}, name, None, None)


def failure(session: doctest.DocTest) -> str:
    """The message of a session that fails or has no example; empty for one that shows what comes out.

    No garbage of others is collected meanwhile, since some show how much memory is in use.
    """
    said: list[str] = []
    gc.disable()
    try:
        result = doctest.DocTestRunner().run(session, out=said.append)
    finally:
        gc.enable()
    return "".join(said) if result.failed else "" if result.attempted else f"{session.name} has no example"
