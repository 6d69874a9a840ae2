"""Integer rounding: numbers and sizes of blocks."""

from __future__ import annotations


def ceil_div(n: int, size: int) -> int:
    """Number of blocks of ``size`` that hold ``n``: n / size rounded up."""
    return -(-n // size)


def round_up(n: int, size: int) -> int:
    """The smallest multiple of ``size`` not below ``n``."""
    return ceil_div(n, size) * size


def even(n: int, most: int) -> int:
    """Size of nearly equal blocks, as few as possible and of at most ``most``, that hold ``n``."""
    return ceil_div(n, ceil_div(n, max(1, min(n, most))))


def power_of_two(n: int) -> int:
    """The smallest power of two not below ``n``, which is at least 1."""
    return 1 << (n - 1).bit_length()
