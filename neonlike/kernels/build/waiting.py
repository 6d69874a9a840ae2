"""Messages while the program waits for a compiler, so that a slow first use does not look like a hang.

One line goes to the library's logger after PATIENCE_S seconds of waiting, and not again before QUIET_S: a warning for
interactive sessions, else at INFO, so that pipes and log files stay unchanged. Kernels compiled in the background
report nothing, because nobody waits for them yet.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator

from neonlike.kernels.build.cache import default_cache
from neonlike.kernels.build.source import KernelSource
from neonlike.logger import logger

PATIENCE_S = 1.0
QUIET_S = 10.0
THREADS = "neonlike-cc"
"""Prefix of the names of threads that compile ahead for later runs."""

_compiling: list[str] = []
"""Names of the kernels that this process is compiling."""
_last = -QUIET_S


@contextlib.contextmanager
def compiling(kernel: KernelSource) -> Iterator[None]:
    """Mark ``kernel`` as being compiled inside this context; messages state their number."""
    _compiling.append(kernel.name)
    try:
        yield
    finally:
        _compiling.remove(kernel.name)


@contextlib.contextmanager
def waiting(*kernels: KernelSource) -> Iterator[None]:
    """Wait for ``kernels`` inside this context; waits above ``PATIENCE_S`` seconds are logged."""
    if threading.current_thread().name.startswith(THREADS):
        yield
        return
    timer = threading.Timer(PATIENCE_S, _tell, kernels)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # the program is ending, or the system has no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # a later fork finds no unexpected thread


def _tell(*kernels: KernelSource) -> None:
    global _last
    now = time.monotonic()
    if now - _last < QUIET_S:
        return
    _last = now
    names = dict.fromkeys(" ".join((kernel.expression or kernel.name).split()) for kernel in kernels)
    shown = ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in list(names)[:3])
    count = len(_compiling)
    logger.log(
        logging.WARNING if _somebody_watches() else logging.INFO,
        "Compiling for the first use of %s (%d kernel%s in work). What is compiled is kept in %s and found there from "
        "then on",
        shown + (", ..." if len(names) > 3 else ""),
        count,
        "" if count == 1 else "s",
        default_cache().path(),
    )


def _somebody_watches() -> bool:
    """Whether a person is likely to see messages at once: stderr is a terminal, or this is a notebook."""
    return _in_notebook() or bool(sys.stderr and sys.stderr.isatty())


def _in_notebook() -> bool:
    """Whether code runs in a cell of a notebook; scripts may have imported the same packages."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__module__.startswith("ipykernel")


def _after_fork() -> None:
    """Reset the state in a forked child, where nothing is being compiled."""
    _compiling.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
