"""Names from the time when scripts ran on Python 2 as well."""

from __future__ import annotations

import pickle
from typing import IO, Any

__all__ = ["PY3", "pickle", "pickle_load", "xrange"]

PY3 = True
xrange = range


def pickle_load(file: IO[bytes]) -> Any:
    """Unpickle from an open file; strings that Python 2 wrote are read as Latin-1.

    Only for files you trust: unpickling can run code.
    """
    return pickle.load(file, encoding="latin1")
