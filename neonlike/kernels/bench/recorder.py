"""The recorder of bench mode: kernels with shapes, counts and times. See docs/bench.md.

``Backend.bench`` is a :class:`Bench` in bench mode, else None. Engines report stages of plans to it (see
``bench/engine.py``), and compound primitives report themselves; ``bench/report.py`` formats its rows as text, JSON and
CSV.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from neonlike import settings
from neonlike.checks import brief
from neonlike.distributed.first import present_ranks
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.kernels.bench.machine_rates import GEMM_SIZES, MachineRates, best_square_rate, machine_rates
from neonlike.kernels.bench.report import FORMATS, format_of, reached_text, record_of, render
from neonlike.kernels.bench.row import Row
from neonlike.kernels.bench.trace import Trace
from neonlike.logger import logger
from neonlike.optree.dtypes import BFLOAT16
from neonlike.optree.shapes import Shape

KINDS = ("loop", "product")
"""Kinds: a loop is compared with memory copy bandwidth, a product with the matrix product rate."""

PENDING = 1000
"""Maximum number of calls with unread device times before the oldest are read."""

_written: Counter[str] = Counter()
"""Reports written by this process at the end of a backend, by path."""

_collections: list[Collection] = []
"""Those of :func:`collected` that are open, the innermost last."""

_measured = threading.local()
"""``by``: the recorder measuring on this thread, if there is one."""


@contextmanager
def compiling() -> Iterator[None]:
    """Exclude the time of the block from measurements on this thread, see :meth:`Bench.compiling`."""
    recorder: Bench | None = getattr(_measured, "by", None)
    with nullcontext() if recorder is None else recorder.compiling():
        yield


class Meter(Protocol):
    """The clock of a device with asynchronous work, and the rates of the device."""

    def mark(self) -> Any:
        """Mark the moment when all previously queued work is done."""
        ...

    def occupy(self) -> None:
        """Keep the device busy briefly, so that work queued meanwhile runs without waiting for the host."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks, after waiting for the second; both are consumed.

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
    """Interval between two marks of a meter (None: the host's clock); the first read consumes the marks.

    Parameters
    ----------
    meter : Meter or None
    start, end : marks
        Of the meter, or seconds.
    """

    def __init__(self, meter: Meter | None, start: Any, end: Any) -> None:
        self.meter, self.start, self.end = meter, start, end

    @cached_property
    def seconds(self) -> float:
        """See :meth:`Meter.seconds`."""
        seconds: float = self.end - self.start if self.meter is None else self.meter.seconds(self.start, self.end)
        return seconds


@dataclass
class Collection:
    """The recorders that a program makes, see :func:`collected`.

    Attributes
    ----------
    trace : Trace or None
        Every call with its start and its thread, if that was asked for.
    recorders : list of Bench
    """

    trace: Trace | None = None
    recorders: list[Bench] = field(default_factory=list)


@contextmanager
def collected(trace: Trace | None = None) -> Iterator[Collection]:
    """Collect the recorders of backends that are made in the block, in bench mode unless they are told otherwise.

    They show no table by themselves.
    """
    found = Collection(trace)
    _collections.append(found)
    try:
        yield found
    finally:
        _collections.remove(found)


class Bench:
    """Collects timings from any number of threads.

    Parameters
    ----------
    path : str or None
        File for the report of :meth:`finish`, in the format of its suffix; None: the table goes through the logger.
    clock : callable
        The host's clock in seconds, for work that is done when a call returns.

    Attributes
    ----------
    meter : Meter or None
        Clock for asynchronous work of a device; None: the host's clock measures everything.
    in_bfloat16 : callable or None
        A square product of factors in bfloat16, given its size; None: the host has none.
    rounds : bool
        Whether the host rounds factors of float32 products to bfloat16.
    trace : Trace or None
        Gets every call with its start and its thread; None: calls are only counted.
    """

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        if path is not None:
            format_of(None, path)  # reject a bad format now, not at the end
        self.path, self.clock = path, clock
        self.meter: Meter | None = None
        self.in_bfloat16: Callable[[int], Callable[[], Any]] | None = None
        self.rounds = False
        self._pending: deque[tuple[Row, Span, Sequence[Span], int, int]] = deque()
        self._settling = threading.Lock()
        self.engine = ""
        self._compiling = 0.0
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._process = os.getpid()
        self._finished = False
        self._reports = path is not None or not _collections  # else whoever collects does
        self.trace: Trace | None = None
        if _collections:
            _collections[-1].recorders.append(self)
            self.trace = _collections[-1].trace
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
        name : str
            Of the kernel or primitive.
        shapes : sequence of shapes
            Operands, then results. Calls of the same name, shapes, kind and dtype are one row.
        seconds : float
            Duration of the call.
        nbytes, flops : int
            Bytes read and written, counting each operand and result once; number of operations. 0: unknown.
        kind : "loop" or "product"
            Limiting resource: memory bandwidth, or the matrix product rate.
        dtype : str or dtype
            Dtype of the result.

        Raises
        ------
        ArgumentError
            For another ``kind``.
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
        """Time the block and :meth:`record` it, unless it raises; kernels inside it are shown as its parts.

        Parameters
        ----------
        name, shapes, nbytes, flops, kind, dtype
            As of :meth:`record`.
        """
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
        """Measure the work of a block; yields the list of compile times within it.

        A device is kept busy while the host queues the block: otherwise it would reach the first mark at once, and the
        time of a small kernel would be the time of the call.
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
        """Count the time of the block separately, excluded from concurrent measurements."""
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
        """Compile times during the current measurement; a device was idle then, unless it had other work."""
        found: list[Span] | None = getattr(self._local, "pauses", None)
        return found

    def row(self, name: str, shapes: tuple[Shape, ...], kind: str, dtype: str) -> Row:
        """The row of such calls, created if missing.

        Parameters
        ----------
        name : str
            Of the kernel or primitive.
        shapes : tuple of shapes
        kind : "loop" or "product"
        dtype : str
        """
        key = (name, self._inside, kind, dtype, shapes)
        with self._lock:
            found = self._rows.get(key)
            if found is None:
                found = self._rows[key] = Row(*key)
            return found

    def mark(self) -> Any:
        """The current time, or on a device a mark after all work queued so far."""
        return self.clock() if self.meter is None else self.meter.mark()

    def add_span(self, row: Row, start: Any, end: Any, nbytes: int, flops: int, pauses: Sequence[Span] = ()) -> None:
        """Count one call in ``row``, between two marks and without ``pauses``; a device's marks are read later.

        Parameters
        ----------
        row : Row
        start, end : marks
        nbytes, flops : int
            Of the call.
        pauses : sequence of Span
            Times within it that do not count.
        """
        span = Span(self.meter, start, end)
        if self.meter is None:
            self.add(row, span.seconds - sum(pause.seconds for pause in pauses), nbytes, flops)
            if self.trace is not None:
                self.trace.add(row, start, span.seconds)
            return
        if self.trace is not None:
            self.trace.queued(row, self.clock(), span)
        self._pending.append((row, span, pauses, nbytes, flops))
        if len(self._pending) > PENDING:
            self._settle(PENDING // 2)

    def _settle(self, leave: int = 0) -> None:
        """Read the times of all but the latest ``leave`` calls, waiting for running ones."""
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
        """Count one call in ``row``.

        Parameters
        ----------
        row : Row
        seconds : float
        nbytes, flops : int
            Of the call.
        """
        with self._lock:
            row.calls += 1
            row.seconds += seconds
            row.nbytes += nbytes
            row.flops += flops
            row.samples.append(seconds)

    def add_compiling(self, seconds: float) -> None:
        """Count time spent compiling kernels, which is in no row."""
        with self._lock:
            self._compiling += seconds

    # Reading

    def rows(self) -> list[Row]:
        """Rows with calls, by decreasing total time; waits for pending device work."""
        self._settle()
        with self._lock:
            return sorted((row for row in self._rows.values() if row.calls), key=lambda row: -row.seconds)

    def reached(self, name: str, shapes: tuple[Shape, ...], kind: str, dtype: str) -> str:
        """Share of the machine's rate that such calls have reached, as text; empty if there were none.

        Parameters
        ----------
        name : str
            Name of the kernel.
        shapes : tuple of tuple of int
            Shapes of the tensors it touches.
        kind : str
            Of :class:`Row`: "product" is compared with products, all else with a copy of memory.
        dtype : str
            Name of the dtype.
        """
        wanted = (name, shapes, kind, dtype)
        rows = [row for row in self.rows() if (row.name, row.shapes, row.kind, row.dtype) == wanted]
        if not rows:
            return ""
        record = record_of(rows[0], self._rates(rows))
        return f"{reached_text(record)}, {record['median_ms']:.4f} ms, the median of {record['calls']} calls"

    def seconds_and_best(self) -> tuple[float, float]:
        """Seconds of all kernels so far, and seconds that they would take at the machine's rates.

        Kernels whose bytes or operations are unknown do not count.
        """
        rows = [row for row in self.rows() if not row.inside and (row.flops if row.kind == "product" else row.nbytes)]
        rates, seconds, best = self._rates(rows), 0.0, 0.0
        for row in rows:
            rate = rates.product(row.dtype) if row.kind == "product" else rates.copy
            if rate:
                seconds += row.seconds
                best += (row.flops if row.kind == "product" else row.nbytes) / rate / 1e9
        return seconds, best

    def clear(self) -> None:
        """Remove all calls so far, for example after a warm-up."""
        self._settle()
        with self._lock:
            self._rows.clear()
            self._compiling = 0.0

    def report(self, format: str | None = None, path: str | os.PathLike[str] | None = None) -> str:
        """The rows as "text", "json", "csv" or "html"; see ``Backend.bench_report``."""
        chosen = format_of(format, path)
        rows = self.rows()
        text = render(chosen, rows, self._rates(rows), self.engine, self._compiling)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def _rates(self, rows: Sequence[Row]) -> MachineRates:
        """Machine rates to compare the rows with."""
        products = {row.dtype for row in rows if row.kind == "product"}
        if self.meter is not None:
            return self.meter.rates(tuple(sorted(name if "float" in name else "float32" for name in products)))
        # the host computes float16 products in float32
        rates = machine_rates(tuple(sorted({"float64" if name == "float64" else "float32" for name in products})))
        if self.in_bfloat16 is None or not products & {BFLOAT16, *(["float32"] if self.rounds else [])}:
            return rates
        gemm = rates.gemm | {BFLOAT16: best_square_rate(self.in_bfloat16, GEMM_SIZES)}
        return replace(rates, gemm=gemm, rounded=BFLOAT16 if self.rounds else "")

    def finish(self) -> None:
        """Write or show the report, once, if anything ran; called at the end of the backend and the process.

        Of several ranks, the first one reports.
        """
        atexit.unregister(self.finish)
        if self._finished or os.getpid() != self._process:  # a forked child leaves it to its parent
            return
        self._finished = True
        if not self.rows() or not self._reports or present_ranks().rank:
            return
        if self.path is not None:
            try:
                self.report(path=numbered(self.path))
                return
            except OSError as error:
                logger.error("the bench report cannot be written to %s (%s) and is shown here", self.path, error)
        logger.display("%s", self.report("text"))


def numbered(path: str) -> str:
    """Number ``path`` for later backends of this process: ``name-2.json`` and so on."""
    _written[path] += 1
    if _written[path] == 1:
        return path
    before, suffix = os.path.splitext(path)
    return f"{before}-{_written[path]}{suffix}"


def make_bench(option: Any = None) -> Bench | None:
    """Create the recorder for ``bench=option``; None if it is off.

    Parameters
    ----------
    option : bool, int, path or None
        True or a number other than 0: the table goes through the logger. A path: the report is written there. None: it
        is on inside of :func:`collected`, otherwise the environment variable ``NEONLIKE_BENCH`` decides.

    Raises
    ------
    ArgumentError
        If it is none of these.
    """
    target = True if option is None and _collections else bench_target(option)
    return Bench(target) if isinstance(target, str) else Bench() if target else None


def bench_target(option: Any = None) -> bool | str:
    """Destination of the report for ``option`` of :func:`make_bench`: a file, or whether there is one at all."""
    if option is None:
        option = settings.BENCH.get()
    if isinstance(option, (str, Path)) and Path(option).suffix.lower() in FORMATS:
        return str(option)
    if isinstance(option, str) and option in ("", "0", "1"):
        option = option == "1"
    if not isinstance(option, int):
        raise ArgumentError(f"bench: expected 0, 1 or a file that ends in {', '.join(FORMATS)}, got {brief(option)}")
    return bool(option)
