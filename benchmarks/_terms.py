"""Words and formats that all benchmarks share: names of contenders, why one is absent, sizes and times as text."""

from __future__ import annotations

import re

OURS = "neonlike"
"""Ours among the contenders, and how its name begins where it takes part in several ways."""

COPY, MEMORY_COPY = COPIES = ("copy", "memory copy")
"""Contenders that are rooflines: a copy of as many bytes as the case moves, and one larger than the caches."""

NOT_INSTALLED, LEFT_OUT, NOT_BUILT = "not installed", "left out by --quick", "not built"
"""How the notes of absent contenders begin. Not built: this version of ours lacks the primitive."""


def size_text(size: int) -> str:
    """64, 4k, 16M: powers of 1024 where they fit, else the number."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_size(text: str) -> int:
    """The inverse of :func:`size_text`.

    Raises
    ------
    ValueError
        If ``text`` is not a positive whole number, with k or M after it or not.
    """
    match = re.fullmatch(r"([1-9]\d*)([kM]?)", text.strip())
    if match is None:
        raise ValueError(f"a size is a whole number such as 64, 4k or 16M, got {text!r}")
    return int(match[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[match[2]]


def time_text(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            value = seconds / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {name}"
    return f"{seconds * 1e9:.0f} ns"


def met(yes: bool) -> str:
    """Last word of a verdict: whether its target was met."""
    return "met" if yes else "MISSED"
