"""A dictionary in a file, for exclusive access by one process at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from neonlike import system
from neonlike.checks import shown
from neonlike.errors import DTypeError
from neonlike.util.persist import ensure_dirs_exist, expand, load_obj, save_obj

__all__ = ["atomic_shelve"]


@contextlib.contextmanager
def atomic_shelve(filename: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Load the dictionary of a file for changes, and save it when the block ends without an error.

    Other processes wait at the start of the block until it ends. The file has the format of ``save_obj`` and is
    replaced atomically: unlike Python's ``shelve``, reading it executes no code.

    Parameters
    ----------
    filename : path
        ``~`` and environment variables are expanded; a missing file counts as an empty dictionary.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         with atomic_shelve(f"{folder}/counts.p") as counts:
    ...             counts["runs"] = counts.get("runs", 0) + 1
    ...     load_obj(f"{folder}/counts.p")
    {'runs': 2}
    """
    path = ensure_dirs_exist(expand(filename))
    with open(f"{path}.lock", "ab") as guard:
        system.lock(guard)
        kept = load_obj(path) if os.path.exists(path) else {}
        if not isinstance(kept, dict):
            raise DTypeError(f"atomic_shelve: {path} holds no dictionary, but {shown(kept)}")
        yield kept
        save_obj(kept, path)
