"""The services of the operating system that some systems lack, each behind one function with what replaces it.

Other things that differ are behind one function each, too, where they are needed: the folder of caches
(``kernels.build.cache.default_directory``), owners of files (``distrust`` there), names and flags of compiled libraries
(``kernels.c.toolchain``), pages of a loaded library (``kernels.c.pages.load_library``), links (``util.atomic.refer``).
"""

from __future__ import annotations

import importlib.util
import os
from typing import IO


def own_processors() -> set[int]:
    """Return the numbers of the processors on which this process may run.

    Only Linux says which these are; elsewhere they are all of the machine's.
    """
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def has_locks() -> bool:
    """Return whether files can be locked against other processes; not so on Windows."""
    return importlib.util.find_spec("fcntl") is not None


def lock(file: IO[bytes] | IO[str], wait: bool = True) -> None:
    """Lock an open file against other processes until it is closed; without effect where there are no locks.

    Parameters
    ----------
    file : open file
    wait : bool
        Whether to wait until no other process holds it.

    Raises
    ------
    BlockingIOError
        Another process holds it, and ``wait`` is False.
    OSError
        The file's file system has no locks.
    """
    if not has_locks():
        return
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
