"""Time marks, execution blocks, bench mode."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.errors import ArgumentError
from neonlike.kernels.bench import Bench


class TimingFamily(Family):
    """``init_mark``, ``record_mark``, ``synchronize_mark``, ``get_time``; ``begin``, ``end``; ``bench_report``.

    Attributes
    ----------
    bench : Bench or None
        The recorder of bench mode; None when it is off.
    """

    bench: Bench | None

    def init_mark(self) -> dict[str, float]:
        """A new mark."""
        return {"time": 0.0}

    def record_mark(self, marker: dict[str, float]) -> None:
        """Record now in ``marker``."""
        marker["time"] = time.perf_counter()

    def synchronize_mark(self, marker: dict[str, float]) -> None:
        """Wait until ``marker`` is reached; on the CPU work is done when a call returns."""

    def get_time(self, start: dict[str, float], end: dict[str, float]) -> float:
        """Milliseconds from ``start`` to ``end``."""
        return (end["time"] - start["time"]) * 1000.0

    def begin(self, block: Any, identifier: Any) -> None:
        """Start of a block (epoch, minibatch, ...); for backends that want to know."""

    def end(self, block: Any, identifier: Any) -> None:
        """End of a block."""

    def bench_report(self, format: str | None = None, path: str | os.PathLike[str] | None = None) -> str:
        """What ran so far in bench mode and how fast, the longest total time first; docs/bench.md explains the columns.

        The first report of a process measures the machine's memory copy and matrix product, in about 0.3 s.

        Parameters
        ----------
        format : "text", "json" or "csv"
            Default: that of the suffix of ``path``, else "text".
        path : path, optional
            File to write it to as well.

        Returns
        -------
        str
            The report, also after the backend was cleaned up.

        Raises
        ------
        ArgumentError
            If bench mode is off, or on another format.
        """
        if self.bench is None:
            raise ArgumentError(
                "bench_report: bench mode is off, so nothing was timed; make the backend with gen_backend(bench=True), "
                "or set NEONLIKE_BENCH=1"
            )
        return self.bench.report(format, path)

    def bench_measure(
        self,
        name: str,
        shapes: Sequence[Sequence[int]] = (),
        nbytes: int = 0,
        flops: int = 0,
        kind: str = "loop",
        dtype: Any = "",
    ) -> AbstractContextManager[None]:
        """``with be.bench_measure("fprop_conv", shapes, nbytes, flops, "product", dtype):`` times a compound primitive.

        Nothing happens unless bench mode is on; see ``Bench.record`` for the arguments. Kernels that run in the block
        are reported as parts of it.
        """
        if self.bench is None:
            return nullcontext()
        return self.bench.measure(name, shapes, nbytes, flops, kind, dtype)
