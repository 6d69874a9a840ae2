"""The end of a rank is the end of all: errors, exits and interrupts of one rank must not leave the others waiting."""

from __future__ import annotations

import atexit
import io
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any

from neonlike.errors import RankError

POLL_S = 0.5
"""Seconds between two looks for ranks that have left."""
REPORT_S = 5.0
"""Seconds that rank 0 has to report an error of all ranks."""
SHOW_S = 0.3
"""Seconds that the launcher has to pass on what a rank has written last."""
LEFT = 32001
"""Tag of the message of a rank that leaves."""


class Watch:
    """Ends all ranks when one fails, and when one waits for a rank that has ended its program.

    Parameters
    ----------
    ranks : MpiRanks
    mpi : module
        ``mpi4py.MPI``.
    """

    def __init__(self, ranks: Any, mpi: Any) -> None:
        self._ranks, self._mpi = ranks, mpi
        self._comm = mpi.COMM_WORLD.Dup()
        self._left: dict[int, int] = {}
        self._stop = threading.Event()
        self._sent: list[Any] = []
        self._thread = threading.Thread(target=self._look, name="neonlike-ranks", daemon=True)
        self._before = sys.excepthook

    def start(self) -> None:
        """Watch from now to the end of the process."""
        sys.excepthook = self._failed
        atexit.register(self._leave)
        if self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE:
            self._thread.start()

    def _failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """An exception ended the program of this rank: report it and end all.

        An interrupt came to all ranks: each ends its program, in which one may still be saving.
        """
        ranks = self._ranks
        if issubclass(kind, KeyboardInterrupt):
            self._before(kind, error, trace)
            return
        if ranks.rank and isinstance(error, RankError) and error.on_all:
            time.sleep(REPORT_S)  # rank 0 reports it, and ends all
            ranks.abort(1)
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(f"rank {ranks.rank} of {ranks.size} failed, and all ranks end:\n{text}")
        sys.stderr.flush()
        time.sleep(SHOW_S)
        ranks.abort(1)

    def _leave(self) -> None:
        """The program of this rank has ended: tell the others after how many calls."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        others = [rank for rank in range(self._ranks.size) if rank != self._ranks.rank]
        self._sent = [self._comm.isend(self._ranks.calls, rank, LEFT) for rank in others]

    def _look(self) -> None:
        """Look for ranks that have left before a call that this rank waits in."""
        while not self._stop.wait(POLL_S):
            status = self._mpi.Status()
            while self._comm.Iprobe(self._mpi.ANY_SOURCE, LEFT, status):
                self._left[status.source] = self._comm.recv(source=status.source, tag=LEFT)
            waiting, number = self._ranks.pending, self._ranks.calls
            gone = [rank for rank, calls in self._left.items() if calls < number]
            if waiting and gone and waiting == self._ranks.pending and number == self._ranks.calls:
                self._give_up(waiting, number, gone[0])

    def _give_up(self, waiting: str, number: int, gone: int) -> None:
        ranks = self._ranks
        sys.stderr.write(
            f"rank {ranks.rank} of {ranks.size} waits in call {number} of the ranks, {waiting}, but rank {gone} ended "
            f"its program after call {self._left[gone]}; all ranks have to make the same calls, such as the steps of "
            "a training. All ranks end\n"
        )
        sys.stderr.flush()
        time.sleep(SHOW_S)
        ranks.abort(1)


def watch(ranks: Any, mpi: Any) -> None:
    """Watch ``ranks`` to the end of the process."""
    Watch(ranks, mpi).start()


class _Nowhere(io.TextIOBase):
    """A text stream that drops what is written to it."""

    def write(self, text: str) -> int:
        """Drop ``text``."""
        return len(text)

    def writable(self) -> bool:
        """Text is taken."""
        return True


def mute() -> None:
    """Drop what this process prints from now on; its errors are still shown."""
    sys.stdout = _Nowhere()
