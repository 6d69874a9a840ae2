"""Time marks, execution blocks, bench mode."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from neonlike.backends.family import Family
from neonlike.errors import ArgumentError
from neonlike.kernels.bench.recorder import Bench, Meter, make_bench
from neonlike.kernels.bench.report import format_of
from neonlike.kernels.run.calls import KernelCall, Unrolled
from neonlike.kernels.run.trace import Operands, Pinned, current
from neonlike.logger import logger


class TimingFamily(Family):
    """``init_mark``, ``record_mark``, ``synchronize_mark``, ``get_time``; ``begin``, ``end``; ``bench_report``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.bench is None
    True
    """


    @property
    def bench(self) -> Bench | None:
        """The recorder of bench mode; None when it is off.

        Settable, as in neon's scripts: True, a number or a file, as for ``gen_backend(bench=)``, or a recorder switches
        it on; None, False or 0 switches it off. Switched on again, it continues with the existing records.

        Raises
        ------
        ArgumentError
            If it is set to anything else; the mode is unchanged then.
        """
        return self.executor.bench

    @bench.setter
    def bench(self, option: Any) -> None:
        recorder, last = self._recorder_for(option), self.executor.recorder
        if recorder is not self.executor.bench:
            if recorder is not None and last is not None and recorder is not last:
                last.finish()
            self._switch_bench(recorder)

    def _recorder_for(self, option: Any) -> Bench | None:
        if option is None or isinstance(option, Bench):
            return option
        if isinstance(option, int) and option and self.executor.recorder is not None:
            return self.executor.recorder
        return make_bench(option)

    def _switch_bench(self, recorder: Bench | None) -> None:
        """Time all following work with ``recorder``, or stop timing."""
        if recorder is not None and recorder.meter is None:
            recorder.meter = self._make_meter()
        self.executor.record(recorder)

    def _make_meter(self) -> Meter | None:
        """Create the meter for kernels in bench mode; None if they have finished when a call returns."""
        return None

    def init_mark(self) -> dict[str, float]:
        """Create a mark.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> start, end = be.init_mark(), be.init_mark()
        >>> be.record_mark(start)
        >>> be.record_mark(end)
        >>> be.synchronize_mark(end)
        >>> be.get_time(start, end) >= 0
        True
        """
        return {"time": 0.0}

    def record_mark(self, marker: dict[str, float]) -> None:
        """Record the current time in ``marker``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.record_mark(be.init_mark())
        """
        marker["time"] = time.perf_counter()

    def synchronize_mark(self, marker: dict[str, float]) -> None:
        """Wait until ``marker`` is reached; on the CPU work is done when a call returns.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.synchronize_mark(be.init_mark())
        """

    def get_time(self, start: dict[str, float], end: dict[str, float]) -> float:
        """Milliseconds from ``start`` to ``end``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> mark = be.init_mark()
        >>> be.get_time(mark, mark)
        0.0
        """
        return (end["time"] - start["time"]) * 1000.0

    def begin(self, block: Any, identifier: Any) -> None:
        """Start of a block (epoch, minibatch, ...), for backends that use it.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.begin("minibatch", 0)
        """

    def end(self, block: Any, identifier: Any) -> None:
        """End of a block.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.end("minibatch", 0)
        """

    def bench_report(self, format: str | None = None, path: str | os.PathLike[str] | None = None) -> str:
        """Report kernels of bench mode and their speed, by decreasing time; docs/bench.md explains the columns.

        The first report of a process measures the machine's memory copy and matrix product, in about 0.3 s.

        Parameters
        ----------
        format : "text", "json", "csv" or "html"
            Default: format of the suffix of ``path``, else "text".
        path : path, optional
            File for a copy of the report; rank 0 writes it.

        Returns
        -------
        str
            The report, also after the backend's cleanup.

        Raises
        ------
        ArgumentError
            If bench mode is off, or for another format.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.errors import ArgumentError
        >>> try:
        ...     gen_backend("cpu", bench=False).bench_report()
        ... except ArgumentError:
        ...     print("make it with gen_backend(bench=True)")
        make it with gen_backend(bench=True)
        """
        recorder = self.executor.recorder
        if recorder is None:
            raise ArgumentError(
                "bench_report: bench mode is off, so nothing was timed; make the backend with gen_backend(bench=True), "
                "or set NEONLIKE_BENCH=1"
            )
        return recorder.report(format_of(format, path), path if self.ranks.rank == 0 else None)

    def bench_measure(
        self,
        name: str,
        shapes: Sequence[Sequence[int]] = (),
        nbytes: int = 0,
        flops: int = 0,
        kind: str = "loop",
        dtype: Any = "",
    ) -> AbstractContextManager[None]:
        """Context manager that times a compound primitive in bench mode.

        It does nothing unless bench mode is on; see ``Bench.record`` for the arguments. Kernels inside the block are
        reported as its parts.

        Parameters
        ----------
        name : str
            Name of the primitive.
        shapes : sequence of tuples
            Shapes of its operands.
        nbytes, flops : int
            Bytes moved, and operations, of a call.
        kind : "loop" or "product"
            What its speed is compared with: memory copies or matrix products.
        dtype : dtype or str
            Dtype of the results.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> with be.bench_measure("my primitive", nbytes=16):
        ...     total = be.sum(be.ones((2, 2))).item()
        """
        bench = self.executor.bench
        if bench is None:
            return nullcontext()
        return bench.measure(name, shapes, nbytes, flops, kind, dtype)

    def _run_primitive(
        self,
        name: str,
        run: Callable[[], KernelCall | Unrolled | None],
        outputs: Sequence[Any],
        shapes: Sequence[Sequence[int]] = (),
        nbytes: int = 0,
        flops: int = 0,
        kind: str = "loop",
        repeat: int = 1,
        operands: Operands | Pinned | None = None,
    ) -> Sequence[float] | None:
        """Run a checked compound primitive; public methods of families end here, but those of products.

        ``LinalgFamily._run_product`` runs small products in less time.

        ``repeat`` above 1 runs it ``max(repeat // 10, 1)`` times for warm-up and ``repeat`` times timed, each time from
        the original values of ``outputs`` (None is skipped), and logs the mean.

        Where ``run`` returns the launch that it made on ``operands``, the call may be repeated by the extension.

        Returns
        -------
        (milliseconds, GFLOP/s) or None
            Mean of one run, if timed: if ``repeat`` is above 1 or bench mode is on. While a device is still working,
            reading the values waits for it.
        """
        for tensor in outputs:
            if tensor is not None and not tensor.writeable:
                tensor.check_writeable(name)
        dtype = next((t.dtype for t in outputs if t is not None), "")
        if repeat <= 1:
            bench = self.executor.bench
            if bench is None:
                launch = run()
                if (trace := current()) is not None:
                    trace.primitive(launch, operands, outputs)
                if (replay := self.executor.replay).to_ask:
                    replay.note_call()
                return None
            start, end = self.init_mark(), self.init_mark()
            self.record_mark(start)
            with self.bench_measure(name, shapes, nbytes, flops, kind, dtype):
                run()
            self.record_mark(end)
            later = _Rate(lambda: self.get_time(start, end), flops)
            return later if bench.meter is not None else (later[0], later[1])
        mean = self._mean_time(run, [tensor for tensor in outputs if tensor is not None], repeat)
        rate = tuple(_Rate(lambda: mean, flops))
        logger.display("%s %s: %.4f ms, %.1f GFLOP/s, mean of %d runs", name, list(shapes), *rate, repeat)  # type: ignore[attr-defined]
        return rate

    def _mean_time(self, run: Callable[[], Any], changed: Sequence[Any], repeat: int) -> float:
        """Mean milliseconds of ``repeat`` runs after a warm-up, each from the original values of ``changed``."""
        saved = [tensor.get() for tensor in changed]
        total = 0.0
        warm = max(repeat // 10, 1)
        start, end = self.init_mark(), self.init_mark()
        for turn in range(warm + repeat):
            for tensor, values in zip(changed, saved):
                tensor.set(values)
            self.record_mark(start)
            run()
            self.record_mark(end)
            total += self.get_time(start, end) * (turn >= warm)
        return total / repeat


class _Rate(Sequence[float]):
    """Milliseconds and GFLOP/s, evaluated when one of them is read."""

    def __init__(self, milliseconds: Callable[[], float], flops: int) -> None:
        self._milliseconds, self._flops = milliseconds, flops

    @cached_property
    def _pair(self) -> tuple[float, float]:
        milliseconds = self._milliseconds()
        return milliseconds, self._flops / milliseconds / 1e6 if milliseconds > 0 else 0.0

    def __getitem__(self, index: Any) -> Any:
        return self._pair[index]

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return repr(self._pair)
