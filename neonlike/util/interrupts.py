"""Deferral of Ctrl-C: during training to the end of a minibatch, and while a metrics file is opened.

Python raises KeyboardInterrupt at any point. In a destructor or a weak-reference callback (h5py has many) it only
prints the exception, "Exception ignored in ...", and continues; in the middle of a minibatch it leaves a half-done
step, which no saved model can continue.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from typing import Any

GRACE_S = 1.0
"""Seconds from Ctrl-C until the running code is interrupted in any case."""


class InterruptGuard:
    """Context manager that defers SIGINT until :meth:`check`, for at most a second.

    A second Ctrl-C is raised at once. It has no effect outside of the main thread, or if the program has its own
    handler.

    Attributes
    ----------
    shared : bool
        Whether several ranks train together: then nothing is raised before they have ``agreed`` to stop.
    agreed : bool
    """

    def __init__(self) -> None:
        self._pending = self._installed = False
        self.shared = self.agreed = False
        self._main = self._trainings = 0

    def __enter__(self) -> InterruptGuard:
        self._pending = self.agreed = False
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

    @property
    def pending(self) -> bool:
        """Whether a SIGINT has come that was not raised yet."""
        return self._pending

    def check(self) -> None:
        """Raise KeyboardInterrupt if a SIGINT is pending; of ranks that train together, if they agreed to stop."""
        if self.agreed if self.shared else self._pending:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: Any) -> None:
        again, self._pending = self._pending, True
        if again:
            raise KeyboardInterrupt
        if self.shared:  # the others would wait for this rank
            return
        # Not threading.Timer: this thread may hold a lock that it needs when the signal arrives.
        _thread.start_new_thread(self._insist, (self._trainings,))

    def _insist(self, training: int) -> None:
        """Interrupt the running code, from another thread."""
        time.sleep(GRACE_S)
        if self._installed and training == self._trainings:
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._main, signal.SIGINT)  # also interrupts a blocking system call
            else:
                _thread.interrupt_main()
