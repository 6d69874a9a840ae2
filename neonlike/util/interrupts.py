"""Ctrl-C is held back while a model trains, to end it between two minibatches, and while a file of metrics is opened.

Python raises KeyboardInterrupt wherever the program is. In a destructor or in the callback of a weak reference (h5py
has many) it only prints the exception, "Exception ignored in ...", and goes on; in the middle of a minibatch it leaves
a step half done, which no saved model can continue.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from typing import Any

GRACE_S = 1.0
"""Seconds from Ctrl-C until what is running is interrupted wherever it is."""


class InterruptGuard:
    """Holds SIGINT back until :meth:`check`, for a second at most; a context manager.

    A second Ctrl-C is raised at once. Nothing is changed outside of the main thread, or where the program has a handler
    of its own.
    """

    def __init__(self) -> None:
        self._pending = self._installed = False
        self._main = self._trainings = 0

    def __enter__(self) -> InterruptGuard:
        self._pending = False
        self._trainings += 1
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._main = threading.get_ident()
            self._installed = True
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pending and (kind is None or not issubclass(kind, KeyboardInterrupt)):
            raise KeyboardInterrupt from error

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a SIGINT."""
        if self._pending:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: Any) -> None:
        again, self._pending = self._pending, True
        if again:
            raise KeyboardInterrupt
        # Not threading.Timer: the signal may have come while this thread holds a lock that it needs.
        _thread.start_new_thread(self._insist, (self._trainings,))

    def _insist(self, training: int) -> None:
        """In a thread of its own: interrupt what is still running."""
        time.sleep(GRACE_S)
        if self._installed and training == self._trainings:
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._main, signal.SIGINT)  # also out of a system call that blocks
            else:
                _thread.interrupt_main()
