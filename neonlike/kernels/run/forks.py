"""Whether this process was forked from one that had this library loaded.

Kernels run on one thread then: programs fork to use the machine's cores by processes, where more threads would only be
in each other's way, and the threads of the parent's pool are not there. Workers started with ``spawn`` have threads.
"""

from __future__ import annotations

import os

forked = False


def _after_fork() -> None:
    global forked
    forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
