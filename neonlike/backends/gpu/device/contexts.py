"""Makes contexts current in threads, and takes them away when threads, forks and programs end.

PyCUDA keeps a stack of contexts for every thread and aborts the process when a thread ends with one on it. So what
is pushed is always popped again: when the thread ends, before a fork, and when the interpreter exits. Threads that
go on while it exits are held: see ``endings``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from typing import Any

import pycuda.driver as driver

from neonlike.backends.gpu.device import endings


class _Here(threading.local):
    """The device and stream that are current in this thread."""

    device: Any = None
    stream: Any = None
    entry: _Entry | None = None


class _Entry:
    """A context on this thread's stack, popped at the latest when the thread ends and its locals are freed."""

    def __init__(self, context: Any) -> None:
        self._thread, self._thread_now = threading.get_ident(), threading.get_ident
        self._pop, self._error, self._hold = driver.Context.pop, driver.Error, endings.hold
        context.push()
        self._there = True
        self._hold(True)

    def leave(self) -> None:
        """Pop it."""
        if self._there and self._thread_now() == self._thread:
            self._there = False
            with contextlib.suppress(self._error):
                self._pop()
            self._hold(False)

    def __del__(self) -> None:
        if getattr(self, "_there", False):
            self.leave()


here = _Here()
"""``here.device`` is the device whose context is current in this thread, or None: read before each call of a driver.
``here.stream`` is where this thread queues then: the device's stream, or the one that captures a graph."""

_devices: list[Any] = []
"""Every device and cuBLAS handle that was opened; told of forks and of the interpreter's exit."""


def enter(device: Any, context: Any, stream: Any = None) -> None:
    """Make the context of ``device`` current in this thread, instead of that of another; work goes to ``stream``.

    Parameters
    ----------
    device : GpuDevice
    context : PyCUDA context
    stream : PyCUDA stream, optional
        None: the default stream.
    """
    leave()
    here.entry = _Entry(context)
    here.device, here.stream = device, stream


def leave() -> None:
    """Pop the current context."""
    entry, here.entry, here.device, here.stream = here.entry, None, None, None
    if entry is not None:
        entry.leave()


def remember(device: Any) -> None:
    """Have ``device.forked()`` called in children of a fork, and ``device.close()`` when the interpreter exits."""
    _devices.append(device)


def _in_child() -> None:
    for device in _devices:
        device.forked()


def _at_exit() -> None:
    for device in reversed(_devices):
        device.close()
    leave()
    if _devices:
        endings.wait_for_calls()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=leave, after_in_child=_in_child)
