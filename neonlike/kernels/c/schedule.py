"""How the loops of a stage's C kernel are written: for each different schedule a kernel is compiled."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

REVERSED, TURNED = -1, 3
"""Classes of arrays that run backwards along the innermost axis, and of inputs that run along the one before it (where
backwards, ``-TURNED``)."""

Form: TypeAlias = Literal["flat", "nested", "turned", "rows", "split", "segments", "columns", "deep", "lanes"]


@dataclass(frozen=True, slots=True, repr=False)
class CSchedule:
    """How the loops of a kernel are written, see ``forms`` and ``elementwise``.

    Attributes
    ----------
    form : str
        Elementwise "flat" (one axis), "nested" (rows of any steps) or "turned" (by tiles); a reduction by "rows", by
        rows that threads "split", by "segments" of rows, by "columns", by "deep" columns of more axes, by "lanes".
    rank : int
        Axes of an elementwise kernel.
    inner : tuple of int
        Class of each array: its innermost step if that is 0 or 1, ``REVERSED``, ``TURNED``, or 2 for another step.
    streamed : bool
        Results are stored past the caches.
    packed : bool
        What several passes need of a block of columns is copied to memory of its own.
    piped : bool
        So it is, and the passes over a block and over its neighbours take turns; results are stored past the caches.
    unrolled : int
        Rows of each column, if there are so few that all are added up in registers; 0: any number.
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
        """Whether there is a kernel of this form that stores results past the caches."""
        return self.packed or self.form in ("flat", "nested", "rows", "split")

    def __repr__(self) -> str:
        options = [f", {f.name}={value}" for f in fields(self)[3:] if (value := getattr(self, f.name))]
        return f"CSchedule({self.form!r}, {self.rank}, {self.inner}{''.join(options)})"


@dataclass(frozen=True, slots=True)
class Fit:
    """A schedule for certain arrays, the sizes and steps to call its kernel with, and the count of rows."""

    schedule: CSchedule
    meta: list[int]
    count: int
