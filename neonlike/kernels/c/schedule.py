"""Schedules: the loop structure of a stage's C kernel. A kernel is compiled for each different schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

REVERSED, TURNED = -1, 3
"""Classes of arrays with stride -1 along the innermost axis, and of transposed inputs, whose stride is 1 along the axis
before it (``-TURNED``: -1)."""
REPEATED, SPREAD = 4, 5
"""Classes of inputs of short rows: the same in all rows, and the same along a row."""

Form: TypeAlias = Literal["flat", "nested", "turned", "blocks", "rows", "split", "segments", "columns", "deep", "lanes"]


@dataclass(frozen=True, slots=True, repr=False)
class CSchedule:
    """The loop structure of a kernel, see ``forms`` and ``elementwise``.

    Attributes
    ----------
    form : str
        Elementwise "flat" (one axis), "nested" (rows of any strides), "turned" (transposed inputs, by tiles) or
        "blocks" (of short rows); a reduction by "rows", by rows "split" among threads, by "segments" of rows, by
        "columns", by "deep" columns of more axes, by "lanes".
    rank : int
        Axes of an elementwise kernel.
    inner : tuple of int
        Class of each array: its innermost stride if that is 0 or 1, ``REVERSED``, ``TURNED``, ``REPEATED``, ``SPREAD``,
        or 2 for another stride.
    streamed : bool
        Results are written with streaming stores.
    packed : bool
        The part of a column block that several passes read is copied to a contiguous buffer.
    piped : bool
        As ``packed``, with passes over a block interleaved with those over the blocks before and after it, and with
        streaming stores.
    unrolled : int
        Rows of each column if the loop over them is unrolled, with accumulators in registers; 0: any number.
    """

    form: Form
    rank: int
    inner: tuple[int, ...]
    streamed: bool = False
    packed: bool = False
    piped: bool = False
    unrolled: int = 0

    @property
    def may_stream(self) -> bool:
        """Whether there is a kernel of this form with streaming stores."""
        return self.packed or self.form in ("flat", "nested", "blocks", "rows", "split")

    def __repr__(self) -> str:
        options = [f", {f.name}={value}" for f in fields(self)[3:] if (value := getattr(self, f.name))]
        return f"CSchedule({self.form!r}, {self.rank}, {self.inner}{''.join(options)})"


@dataclass(frozen=True, slots=True)
class Fit:
    """A schedule for given arrays, what its kernel is called with (see ``Sizes``), and its rows."""

    schedule: CSchedule
    sizes: list[int]
    count: int
