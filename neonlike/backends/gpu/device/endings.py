"""Daemon threads that use a GPU while the interpreter exits: they leave the driver, and are held if they end.

Before 3.14, Python ends a daemon thread where it asks for the interpreter's lock after the interpreter began to exit,
and frees none of its locals. PyCUDA aborts the process then, in two ways. A thread that is in one of its calls is
unwound through C++ that does not let it pass: the exit waits for such calls. A context that the thread has stays on
PyCUDA's stack, whose destructor refuses that. The C library calls the destructors of a thread's values in the order in
which their keys were made: the one that is made here, before PyCUDA's first context, locks a mutex that is locked
already. So the thread waits, as it does from 3.14 on, until the process is gone.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

MUTEX_BYTES = 256
"""More than a ``pthread_mutex_t`` has anywhere."""

WAIT_S = 1.0
"""The exit waits no longer for other threads."""
PACKAGE = "neonlike.backends.gpu."


def _key() -> tuple[Callable[[int, int | None], int], int, int] | None:
    """``pthread_setspecific``, the key whose destructor waits, and what it waits for; None on Windows."""
    if sys.platform == "win32":
        return None
    libc = ctypes.CDLL(None)
    libc.calloc.restype = ctypes.c_void_p
    put = libc.pthread_setspecific
    put.argtypes = (ctypes.c_uint, ctypes.c_void_p)
    key, mutex = ctypes.c_uint(), libc.calloc(1, MUTEX_BYTES)  # never freed: threads wait for it to the end
    libc.pthread_mutex_init(ctypes.c_void_p(mutex), None)
    libc.pthread_mutex_lock(ctypes.c_void_p(mutex))
    failed = libc.pthread_key_create(ctypes.byref(key), ctypes.cast(libc.pthread_mutex_lock, ctypes.c_void_p))
    return None if failed else (put, key.value, mutex)


_found = _key()


def hold(held: bool) -> None:
    """Whether this thread is to be held if it ends without another call of this function."""
    if _found is not None:
        put, key, mutex = _found
        put(key, mutex if held else None)


def wait_for_calls() -> None:
    """Wait until no other thread is inside a function of this backend; soon, as its device refuses all by now."""
    until = time.monotonic() + WAIT_S
    while any(map(_is_calling, _others())) and time.monotonic() < until:
        time.sleep(1e-3)


def _others() -> list[FrameType]:
    """Frames of the other threads."""
    mine = threading.get_ident()
    return [frame for thread, frame in sys._current_frames().items() if thread != mine]


def _is_calling(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame = frame.f_back
    return frame is not None
