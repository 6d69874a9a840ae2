"""A trace of kernels by thread, in the JSON format of Chrome's tracing, which Perfetto reads."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from neonlike.kernels.bench.report import shapes_text
from neonlike.kernels.bench.row import Row

MOST = 1_000_000
"""Calls that are kept, the latest: a file of some 200 MB."""
DEVICE = 0
"""Thread number of the calls of a device, which run one after the other in its queue."""


class Timed(Protocol):
    """A measured time that may not be known yet."""

    @property
    def seconds(self) -> float:
        """The time, after waiting for it."""
        ...


class Call(NamedTuple):
    """One call: its kernel, start in seconds, duration (known now or later), and number of its thread."""

    row: Row
    start: float
    seconds: float | Timed
    thread: int


class Trace:
    """Collects calls from any number of threads and writes them as a file of trace events.

    Attributes
    ----------
    began : float
        Time zero of the file, on the clock of the calls.
    """

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._calls: deque[Call] = deque(maxlen=MOST)
        self._names: dict[int, str] = {DEVICE: "device"}
        self._lock = threading.Lock()

    def add(self, row: Row, start: float, seconds: float) -> None:
        """Add a call that this thread made.

        Parameters
        ----------
        row : Row
            The kernel.
        start : float
            On the clock of the recorder, in seconds.
        seconds : float
        """
        thread = threading.current_thread()
        with self._lock:
            self._names[thread.ident or 1] = thread.name
            self._calls.append(Call(row, start, seconds, thread.ident or 1))

    def queued(self, row: Row, queued: float, span: Timed) -> None:
        """Add a call of a device, which was queued at a time and runs after those before it.

        Parameters
        ----------
        row : Row
            The kernel.
        queued : float
            Time of queueing, in seconds.
        span : Timed
            Its duration, which may not be known yet.
        """
        with self._lock:
            self._calls.append(Call(row, queued, span, DEVICE))

    def events(self) -> Iterator[dict[str, Any]]:
        """The names of the process and its threads, then the calls by their starts, in microseconds.

        A call of a device starts when it was queued, or at the end of the one before it if that is later.
        """
        with self._lock:
            calls, names = list(self._calls), dict(self._names)
        process, end = os.getpid(), float("-inf")
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "neonlike"}}
        for thread in sorted({call.thread for call in calls}):
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": names[thread]}}
        for row, start, timed, thread in sorted(calls, key=lambda call: call.start):
            seconds = timed if isinstance(timed, float) else timed.seconds
            if thread == DEVICE:
                start = max(start, end)
                end = start + seconds
            yield {
                "ph": "X", "name": row.name[:200], "cat": row.kind, "pid": process, "tid": thread,
                "ts": 1e6 * (start - self.began), "dur": 1e6 * seconds,
                "args": {"shapes": shapes_text(row.shapes), "dtype": row.dtype, "inside": row.inside},
            }  # fmt: skip

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the file and return the number of calls in it."""
        events = list(self.events())
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        Path(path).write_text(text + "\n", encoding="utf-8")
        return sum(event["ph"] == "X" for event in events)
