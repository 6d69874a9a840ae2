"""Helpers from the time when scripts also ran on Python 2."""

from __future__ import annotations

import pickle
from typing import IO, Any

from neonlike.util.unpickle import load

__all__ = ["PY3", "pickle", "pickle_load", "xrange"]

PY3 = True
xrange = range


def pickle_load(file: IO[bytes]) -> Any:
    """Read an open pickle file with ``load_obj``; strings written by Python 2 are decoded as Latin-1.

    Examples
    --------
    >>> import io, pickle
    >>> pickle_load(io.BytesIO(pickle.dumps([1, 2])))
    [1, 2]
    """
    return load(file, str(getattr(file, "name", "the file")))
