"""The end of a rank is the end of all: errors, exits and interrupts of one rank must not leave the others waiting.

Before a rank has joined the others, :func:`end_before_joining` sees its errors; from then on a :class:`Watch` does.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any

from neonlike.distributed.waiting import RULE, Call, Left, Standstill, place_of
from neonlike.errors import RankError

if TYPE_CHECKING:
    from neonlike.distributed.mpi import MpiRanks

POLL_S = 0.5
"""Seconds between two looks for ranks that have left, or wait for each other."""
REPORT_S = 5.0
"""Seconds that rank 0 has to report an error of all ranks; another reports it then."""
FIRST_S = 0.7
"""Seconds that rank 0 has to report an error that it has, too: one of the script."""
SHOW_S = 0.3
"""Seconds that the launcher has to pass on what a rank has written last."""
LEFT, WAITS = 32001, 32002
"""Tags of the messages of a rank that leaves, and of one that has waited for long."""


_before_joining: list[Any] = []
"""The hook for exceptions that was there before :func:`end_before_joining`, while its own is."""


def end_before_joining() -> None:
    """End all ranks if an exception ends the program of this one before it has joined them.

    The others wait for it in the start of MPI, for ever. They end when a signal ends this process, on which every
    launcher ends the rest.
    """

    def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if _before_joining and not issubclass(kind, KeyboardInterrupt):
            sys.stderr.write("a rank failed before it had joined the others, which would wait for it: all end\n")
            sys.stderr.flush()
            time.sleep(SHOW_S)
            os.kill(os.getpid(), signal.SIGTERM)

    before = sys.excepthook
    _before_joining.append(before)
    sys.excepthook = failed


def stay_alone() -> None:
    """Leave exceptions alone from now on: no other rank waits for this process."""
    _before_joining.clear()


class Watch:
    """Ends all ranks when one fails, when one waits for a rank that has ended its program, and when all wait for ever.

    Parameters
    ----------
    ranks : MpiRanks
    mpi : module
        ``mpi4py.MPI``.
    ends : bool
        Whether this ends MPI when the program of this rank has ended.
    """

    def __init__(self, ranks: MpiRanks, mpi: Any, ends: bool) -> None:
        self._ranks, self._mpi, self._ends = ranks, mpi, ends
        self._comm = mpi.COMM_WORLD.Dup()
        self._process = os.getpid()
        self._left: dict[int, Left] = {}
        self._interrupted = False
        self._standstill = Standstill(ranks.size)
        self._stop = threading.Event()
        self._sent: list[Any] = []
        self._thread = threading.Thread(target=self._look, name="neonlike-ranks", daemon=True)
        self._before = sys.excepthook

    def start(self) -> None:
        """Watch from now to the end of the process."""
        stay_alone()
        sys.excepthook = self._failed
        atexit.register(self._leave)
        if self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE:
            self._thread.start()

    def _failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """An exception ended the program of this rank: report it and end all.

        An interrupt came to all ranks: each ends its program, in which one may still be saving.
        """
        ranks = self._ranks
        self._interrupted = issubclass(kind, KeyboardInterrupt)
        if self._interrupted or os.getpid() != self._process:
            self._before(kind, error, trace)
            return
        if ranks.rank and isinstance(error, RankError) and error.on_all:
            time.sleep(REPORT_S)  # rank 0 reports it, and ends all, unless its program has caught it
        elif ranks.rank:
            time.sleep(FIRST_S)
        text = "".join(traceback.format_exception(kind, error, trace))
        self._end(f"rank {ranks.rank} of {ranks.size} failed, and all ranks end:\n{text}")

    def _leave(self) -> None:
        """The program of this rank has ended: tell the others after how many calls."""
        if os.getpid() != self._process:  # a child that was forked from a rank
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        others = [rank for rank in range(self._ranks.size) if rank != self._ranks.rank]
        left = Left(self._ranks.calls, "was interrupted" if self._interrupted else "ended its program")
        self._sent += [self._comm.isend(left, rank, LEFT) for rank in others]
        if self._ends:
            self._mpi.Finalize()

    def _look(self) -> None:
        """Look for ranks that have left before a call that this rank waits in, and for ranks that all wait."""
        while not self._stop.wait(POLL_S):
            self._left.update(self._received(LEFT))
            call = self._ranks.current
            gone = [rank for rank, left in self._left.items() if call and left.calls < call.number]
            if call and gone and call is self._ranks.current:
                self._give_up(call, gone[0])
            self._look_for_standstill(call)

    def _look_for_standstill(self, call: Call | None) -> None:
        """Tell rank 0 that this rank has waited for long in ``call``; rank 0 ends all if none can go on."""
        waits = call.told() if call is not None and call.is_long() else None
        if self._ranks.rank:
            if waits is not None:
                self._sent = [one for one in self._sent if not one.Test()]
                self._sent.append(self._comm.isend(waits, 0, WAITS))
            return
        for source, other in self._received(WAITS):
            self._standstill.hear(source, other)
        if waits is None:
            self._standstill.forget()
            return
        self._standstill.hear(0, waits)
        said = self._standstill.found(self._left)
        if said and call is self._ranks.current:
            self._end(f"the ranks wait for each other in different calls, and all end:\n{said}\n{RULE}\n")

    def _received(self, tag: int) -> list[tuple[int, Any]]:
        """The messages that have come with ``tag``, with the ranks that sent them."""
        status, found = self._mpi.Status(), []
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, tag, status):
            found.append((status.source, self._comm.recv(source=status.source, tag=tag)))
        return found

    def _give_up(self, call: Call, gone: int) -> None:
        ranks = self._ranks
        self._end(
            f"rank {ranks.rank} of {ranks.size} waits in call {call.number} of the ranks, {call.what}{place_of()}, but "
            f"rank {gone} {self._left[gone]}. {RULE}. All ranks end\n"
        )

    def _end(self, text: str) -> None:
        """Say ``text``, and end all ranks."""
        sys.stderr.write(text)
        sys.stderr.flush()
        time.sleep(SHOW_S)
        self._ranks.abort(1)


def watch(ranks: MpiRanks, mpi: Any, ends: bool) -> None:
    """Watch ``ranks`` to the end of the process, which ``ends`` MPI or leaves that to others.

    Parameters
    ----------
    ranks : MpiRanks
    mpi : module
        ``mpi4py.MPI``.
    ends : bool
        Whether this process ends MPI.
    """
    Watch(ranks, mpi, ends).start()


def mute() -> None:
    """Drop what this process prints from now on; its errors are still shown."""
    nowhere = os.open(os.devnull, os.O_WRONLY)  # open to the end, as stdout is: Python would warn of a file left open
    sys.stdout = open(nowhere, "w", encoding="utf-8", closefd=False)
