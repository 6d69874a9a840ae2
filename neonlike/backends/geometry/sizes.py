"""Base of geometries: output sizes of sliding windows, checks, and switches set by neon scripts."""

from __future__ import annotations

import numbers
from dataclasses import fields
from typing import Any, ClassVar

from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError


def window_extent(size: int, dilation: int = 1) -> int:
    """Number of positions from the first to the last element of a window, inclusive."""
    return dilation * (size - 1) + 1


def output_size(
    length: int, window: int, padding: int, stride: int, pooling: bool = False, dilation: int = 1, caffe: bool = False
) -> int:
    """Number of windows along an axis of ``length`` elements with ``padding`` on either side.

    Rounded down; in Caffe mode, pooling rounds up and drops a window that would start in the padding at the end.

    Parameters
    ----------
    length, window : int
        Elements of the axis and of a window.
    padding, stride : int
        Elements added on either side, and between the starts of windows.
    pooling : bool
        Whether the windows are those of pooling.
    dilation : int
        Distance of the elements of a window.
    caffe : bool
        Whether pooling follows Caffe's rule.

    Raises
    ------
    ArgumentError
        If pooling windows could lie entirely in the padding (``padding`` not less than the window).
    """
    length, window, padding, stride, dilation = plain((length, window, padding, stride, dilation))
    extent = window_extent(window, dilation)
    if pooling and padding >= extent:
        raise ArgumentError(f"output_dim: padding {padding} must be less than the pooling window's extent {extent}")
    room = length - extent + 2 * padding
    if not (caffe and pooling):
        return room // stride + 1
    size = -(-room // stride) + 1
    return size - 1 if padding > 0 and (size - 1) * stride >= length + padding else size


def whole(operation: str, least: int = 1, **sizes: Any) -> None:
    """Raise unless each of ``sizes`` is an integer of at least ``least``.

    Parameters
    ----------
    operation : str
        Method, for messages.
    least : int
    **sizes : int
        By the names of the arguments.

    Raises
    ------
    DTypeError, ArgumentError
        If one is no integer, or below ``least``.
    """
    for name, size in sizes.items():
        if not isinstance(size, numbers.Integral) or isinstance(size, bool):
            raise DTypeError(f"{operation}: {name} must be an integer, got {brief(size)}")
        if size < least:
            raise ArgumentError(f"{operation}: {name} must be at least {least}, got {size}")


def make_plain(geometry: Any) -> None:
    """Convert the sizes of a new geometry to Python integers: products of NumPy's narrow ones would overflow."""
    for field in fields(geometry):
        value = getattr(geometry, field.name)
        if isinstance(value, tuple):
            object.__setattr__(geometry, field.name, plain(value))
        elif isinstance(value, numbers.Integral) and not isinstance(value, bool):
            object.__setattr__(geometry, field.name, int(value))


def plain(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert ``sizes`` to Python integers."""
    return tuple(map(int, sizes))


class MklSwitches:
    """neon's switches for its MKL engine, without effect here."""

    is_mklop: ClassVar[bool] = False

    def get_is_mklop(self) -> bool:
        """Return False: there is no engine but this backend."""
        return False

    def set_is_mklop(self) -> None:
        """Accepted but ignored."""

    def set_not_mklop(self) -> None:
        """Accepted but ignored."""
