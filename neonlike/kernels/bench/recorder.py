"""The recorder of bench mode: what ran, on which shapes, how often, for how long. See docs/bench.md.

``Backend.bench`` is a :class:`Bench` when bench mode is on, else None. Engines report stages of plans to it (see
``bench/engine.py``), compound primitives report themselves; ``bench/report.py`` turns its rows into text, JSON and CSV.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from neonlike import settings
from neonlike.checks import brief
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.kernels.bench.machine_rates import MachineRates, machine_rates
from neonlike.kernels.bench.report import FORMATS, format_of, render
from neonlike.kernels.bench.row import Row
from neonlike.logger import logger
from neonlike.optree.shapes import Shape

KINDS = ("loop", "product")
"""A loop is set against the bandwidth of a memory copy, a product against the rate of a matrix product."""

PENDING = 1000
"""Calls whose times a device may still owe before the oldest are read."""

_written: Counter[str] = Counter()
"""Reports that this process wrote at the end of a backend, by path."""

_measured = threading.local()
"""``by``: the recorder that measures what runs on this thread, if one does."""


@contextmanager
def compiling() -> Iterator[None]:
    """Time that the block takes is not in what is measured on this thread, see :meth:`Bench.compiling`."""
    recorder: Bench | None = getattr(_measured, "by", None)
    with nullcontext() if recorder is None else recorder.compiling():
        yield


class Meter(Protocol):
    """The clock of a device that works on after a call returned, and the rates of that device."""

    def mark(self) -> Any:
        """A moment: when all that was queued before has been done."""
        ...

    def occupy(self) -> None:
        """Keep the device busy for a moment: what is queued meanwhile then runs without waiting for the host."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """From one mark to another, after waiting for it; both are used up.

        Raises
        ------
        NeonlikeError
            If the device was lost meanwhile.
        """
        ...

    def rates(self, dtypes: tuple[str, ...]) -> MachineRates:
        """Rate of a memory copy of the device, and of matrix products of ``dtypes``."""
        ...


class Span:
    """From one mark of a meter (None: the host's clock) to another; a meter's are used up when it is first read."""

    def __init__(self, meter: Meter | None, start: Any, end: Any) -> None:
        self.meter, self.start, self.end = meter, start, end

    @cached_property
    def seconds(self) -> float:
        """See :meth:`Meter.seconds`."""
        seconds: float = self.end - self.start if self.meter is None else self.meter.seconds(self.start, self.end)
        return seconds


class Bench:
    """Collects timings from any number of threads.

    Parameters
    ----------
    path : str or None
        File that :meth:`finish` writes, in the format of its suffix; None: the table goes through the logger.
    clock : callable
        Seconds of the host: of all work that is done when a call returns.

    Attributes
    ----------
    meter : Meter or None
        Times work that a device does later; None: there is none, and the host's clock tells all.
    """

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        if path is not None:
            format_of(None, path)  # rejected now rather than at the end
        self.path, self.clock = path, clock
        self.meter: Meter | None = None
        self._pending: deque[tuple[Row, Span, Sequence[Span], int, int]] = deque()
        self._settling = threading.Lock()
        self.engine = ""
        self._compiling = 0.0
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._process = os.getpid()
        self._finished = False
        atexit.register(self.finish)

    # Recording

    def record(
        self,
        name: str,
        shapes: Sequence[Sequence[int]],
        seconds: float,
        nbytes: int = 0,
        flops: int = 0,
        kind: str = "loop",
        dtype: Any = "",
    ) -> None:
        """Add one call of ``name``.

        Parameters
        ----------
        shapes : sequence of shapes
            Operands, then results. Calls of the same name, shapes, kind and dtype are one row.
        seconds : float
            How long the call took.
        nbytes, flops : int
            Bytes read and written, each operand and result counted once; operations. 0: not known.
        kind : "loop" or "product"
            What limits it at best: the bandwidth of memory, or the rate of a matrix product.
        dtype : str or dtype
            Of the result.

        Raises
        ------
        ArgumentError
            On another ``kind``.
        """
        self.add(self._row_of(name, shapes, kind, dtype), seconds, nbytes, flops)

    def _row_of(self, name: str, shapes: Sequence[Sequence[int]], kind: str, dtype: Any) -> Row:
        if kind not in KINDS:
            raise ArgumentError(f"Bench.record: kind must be 'loop' or 'product', got {kind!r}")
        sizes = tuple(tuple(int(size) for size in shape) for shape in shapes)
        return self.row(name, sizes, kind, str(dtype))

    @contextmanager
    def measure(
        self,
        name: str,
        shapes: Sequence[Sequence[int]] = (),
        nbytes: int = 0,
        flops: int = 0,
        kind: str = "loop",
        dtype: Any = "",
    ) -> Iterator[None]:
        """Time the block and :meth:`record` it, unless it raises; kernels that run in it are shown as parts of it."""
        before, self._local.inside = self._inside, name
        try:
            with self.running() as pauses:
                start = self.mark()
                yield
                end = self.mark()
        finally:
            self._local.inside = before
        self.add_span(self._row_of(name, shapes, kind, dtype), start, end, nbytes, flops, pauses)

    @contextmanager
    def running(self) -> Iterator[list[Span]]:
        """Measure the work of a block; gives the times in it that kernels were compiled in.

        A device is kept busy while the host queues the block: it would reach the first mark at once else, and the time
        of a small kernel would be that of the call.
        """
        outer, by = self._pauses, getattr(_measured, "by", None)
        if outer is None and self.meter is not None:
            self.meter.occupy()
        pauses: list[Span] = []
        self._local.pauses, _measured.by = pauses, self
        try:
            yield pauses
        finally:
            self._local.pauses, _measured.by = outer, by
            if outer is not None:
                outer += pauses

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Time that the block takes is in a figure of its own, and not in what is measured meanwhile."""
        pauses = self._pauses
        began, start = self.clock(), None if pauses is None else self.mark()
        try:
            yield
        finally:
            if pauses is not None:
                pauses.append(Span(self.meter, start, self.mark()))
            self.add_compiling(self.clock() - began)

    @property
    def _inside(self) -> str:
        """The primitive being measured on this thread."""
        return getattr(self._local, "inside", "")

    @property
    def _pauses(self) -> list[Span] | None:
        """When kernels were compiled during what is measured; a device stood idle then, unless it had other work."""
        found: list[Span] | None = getattr(self._local, "pauses", None)
        return found

    def row(self, name: str, shapes: tuple[Shape, ...], kind: str, dtype: str) -> Row:
        """The row of calls like this one, made if there is none."""
        key = (name, self._inside, kind, dtype, shapes)
        with self._lock:
            found = self._rows.get(key)
            if found is None:
                found = self._rows[key] = Row(*key)
            return found

    def mark(self) -> Any:
        """Now, or on a device the moment when all that was queued so far has been done."""
        return self.clock() if self.meter is None else self.meter.mark()

    def add_span(self, row: Row, start: Any, end: Any, nbytes: int, flops: int, pauses: Sequence[Span] = ()) -> None:
        """Count one call in ``row``, from one mark to the other without ``pauses``; a device's marks are read later."""
        span = Span(self.meter, start, end)
        if self.meter is None:
            self.add(row, span.seconds - sum(pause.seconds for pause in pauses), nbytes, flops)
            return
        self._pending.append((row, span, pauses, nbytes, flops))
        if len(self._pending) > PENDING:
            self._settle(PENDING // 2)

    def _settle(self, leave: int = 0) -> None:
        """Read the times of all but the latest ``leave`` calls, waiting for those that run still."""
        with self._settling:
            while self.meter is not None and len(self._pending) > leave:
                row, span, pauses, nbytes, flops = self._pending.popleft()
                try:
                    seconds = max(span.seconds - sum(pause.seconds for pause in pauses), 0.0)
                except NeonlikeError as error:
                    logger.error(
                        "bench mode: the times of the last %d calls are lost: %s", len(self._pending) + 1, error
                    )
                    self._pending.clear()
                    return
                self.add(row, seconds, nbytes, flops)

    def add(self, row: Row, seconds: float, nbytes: int, flops: int) -> None:
        """Count one call in ``row``."""
        with self._lock:
            row.calls += 1
            row.seconds += seconds
            row.nbytes += nbytes
            row.flops += flops
            row.samples.append(seconds)

    def add_compiling(self, seconds: float) -> None:
        """Count time spent on compiling kernels, which is in no row."""
        with self._lock:
            self._compiling += seconds

    # Reading

    def rows(self) -> list[Row]:
        """Rows with calls, the longest total time first; waits for what a device has still to do."""
        self._settle()
        with self._lock:
            return sorted((row for row in self._rows.values() if row.calls), key=lambda row: -row.seconds)

    def clear(self) -> None:
        """Forget all calls so far: after a warm-up."""
        self._settle()
        with self._lock:
            self._rows.clear()
            self._compiling = 0.0

    def report(self, format: str | None = None, path: str | os.PathLike[str] | None = None) -> str:
        """The rows as "text", "json" or "csv"; see ``Backend.bench_report``."""
        chosen = format_of(format, path)
        rows = self.rows()
        text = render(chosen, rows, self._rates(rows), self.engine, self._compiling)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def _rates(self, rows: Sequence[Row]) -> MachineRates:
        """What the rows are set against."""
        products = {row.dtype for row in rows if row.kind == "product"}
        if self.meter is not None:
            return self.meter.rates(tuple(sorted(name if "float" in name else "float32" for name in products)))
        # the host computes products of float16 in float32
        return machine_rates(tuple(sorted({"float64" if name == "float64" else "float32" for name in products})))

    def finish(self) -> None:
        """Write or show the report, once, if anything ran; what ``cleanup_backend`` and the end of the process call."""
        atexit.unregister(self.finish)
        if self._finished or os.getpid() != self._process:  # a forked child leaves it to its parent
            return
        self._finished = True
        if not self.rows():
            return
        if self.path is not None:
            try:
                self.report(path=_numbered(self.path))
                return
            except OSError as error:
                logger.error("the bench report cannot be written to %s (%s) and is shown here", self.path, error)
        logger.display("%s", self.report("text"))


def _numbered(path: str) -> str:
    """``path``; for later backends of this process ``name-2.json`` and so on."""
    _written[path] += 1
    if _written[path] == 1:
        return path
    before, suffix = os.path.splitext(path)
    return f"{before}-{_written[path]}{suffix}"


def make_bench(option: Any = None) -> Bench | None:
    """The recorder that ``bench=option`` asks for: None for off.

    Parameters
    ----------
    option : bool, int, path or None
        True or a number other than 0: the table goes through the logger. A path: the report is written there. None:
        what the environment variable ``NEONLIKE_BENCH`` says, in the same way.

    Raises
    ------
    ArgumentError
        If it is none of these.
    """
    target = bench_target(option)
    return Bench(target) if isinstance(target, str) else Bench() if target else None


def bench_target(option: Any = None) -> bool | str:
    """The report that ``option`` asks :func:`make_bench` for: whether there is one, or its file."""
    if option is None:
        option = settings.BENCH.get()
    if isinstance(option, (str, Path)) and Path(option).suffix.lower() in FORMATS:
        return str(option)
    if isinstance(option, str) and option in ("", "0", "1"):
        option = option == "1"
    if not isinstance(option, int):
        raise ArgumentError(f"bench: expected 0, 1 or a file that ends in {', '.join(FORMATS)}, got {brief(option)}")
    return bool(option)
