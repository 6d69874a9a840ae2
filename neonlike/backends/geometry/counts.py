"""Whole numbers rounded up: how many blocks hold something, and of what sizes."""

from __future__ import annotations


def ceil_div(n: int, size: int) -> int:
    """How many blocks of ``size`` hold ``n``: n / size rounded up."""
    return -(-n // size)


def round_up(n: int, size: int) -> int:
    """The first multiple of ``size`` that is not below ``n``."""
    return ceil_div(n, size) * size


def even(n: int, most: int) -> int:
    """Size of the fewest blocks of at most ``most`` that hold ``n``, made about equal."""
    return ceil_div(n, ceil_div(n, max(1, min(n, most))))


def power_of_two(n: int) -> int:
    """The first power of two that is not below ``n``, which is 1 or more."""
    return 1 << (n - 1).bit_length()
