"""Pooling of images and series, in neon's layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.autograd.leaves import const
from neonlike.autograd.ops import shape as shapes
from neonlike.autograd.ops.common import brief, derived, per_axis, variable
from neonlike.autograd.variable import Variable
from neonlike.errors import ArgumentError, ShapeError

__all__ = ["avg_pool2d", "max_pool1d", "max_pool2d"]


def avg_pool2d(x: Any, window: Any, strides: Any = None, padding: Any = 0) -> Variable:
    """Means of windows of an image (C, H, W, N), over the positions inside it; strides default to the window.

    Parameters
    ----------
    x : variable (C, H, W, N)
    window : int or tuple
        One number for both axes, or one each; so are the others.
    strides : int or tuple, optional
    padding : int or tuple

    Raises
    ------
    ShapeError
        If x is no image, or the window is larger than it is with its padding.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.avg_pool2d(be.array([[[[1.], [3.]], [[5.], [7.]]]]), 2).item()
    4.0
    """
    return _pool("avg_pool2d", "avg", variable("avg_pool2d", x), 4, window, strides, padding)


def max_pool2d(x: Any, window: Any, strides: Any = None, padding: Any = 0, dilation: Any = 1) -> Variable:
    """Maxima of windows of an image (C, H, W, N); strides default to the window.

    Parameters
    ----------
    x : variable (C, H, W, N)
    window, strides, padding, dilation : int or tuple
        One number for both axes, or one each. ``dilation``: steps between the positions of a window.

    Raises
    ------
    ShapeError
        If x is no image, or the window is larger than it is with its padding.
    ArgumentError
        On numbers that are none, or padding of more than half a dilated window.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.max_pool2d(be.array([[[[1.], [3.]], [[5.], [7.]]]]), 2).item()
    7.0
    """
    return _pool("max_pool2d", "max", variable("max_pool2d", x), 4, window, strides, padding, dilation)


def max_pool1d(x: Any, window: int, strides: int | None = None, padding: int = 0, dilation: int = 1) -> Variable:
    """Maxima of windows of a series (C, W, N); as :func:`max_pool2d`.

    Parameters
    ----------
    x : variable (C, W, N)
    window : int
        Elements of a window.
    strides : int, optional
        The window by default.
    padding, dilation : int
        Margin on both sides, and steps between the positions of a window.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.max_pool1d(be.array([[[1.], [3.], [5.], [4.]]]), 2).tolist()
    [[[3.0], [5.0]]]
    """
    x = variable("max_pool1d", x)
    sizes = (window, window if strides is None else strides, padding, dilation)
    if any(not isinstance(size, int) or isinstance(size, bool) for size in sizes):
        raise ArgumentError(f"max_pool1d: window, strides, padding and dilation must be integers, got {sizes}")
    if x.ndim != 3:
        raise ShapeError(f"max_pool1d: needs x (C, W, N), got {x.shape}")
    image = shapes.reshape(x, (x.shape[0], 1, *x.shape[1:]))
    found = _pool("max_pool1d", "max", image, 4, (1, window), (1, sizes[1]), (0, padding), (1, dilation))
    return shapes.reshape(found, (found.shape[0], *found.shape[2:]))


def _pool(
    name: str, op: str, x: Variable, ndim: int, window: Any, strides: Any, padding: Any, dilation: Any = 1
) -> Variable:
    if x.ndim != ndim:
        raise ShapeError(f"{name}: needs an image (C, H, W, N), got {x.shape}")
    steps = per_axis(name, "dilation", dilation, 2)
    if min(steps) < 1:
        raise ArgumentError(f"{name}: dilation must be at least 1, got {brief(dilation)}")
    if steps != (1, 1):
        frame = per_axis(name, "window", window, 2)
        moves = frame if strides is None else per_axis(name, "strides", strides, 2)
        for axis, sizes in enumerate(zip(frame, moves, per_axis(name, "padding", padding, 2), steps), 1):
            x = _spread(name, x, axis, *sizes)
        window, strides, padding = frame, None, 0
    return derived(name, lambda x: x.backend.pool(x, window, op, strides, padding), x)


def _spread(name: str, x: Variable, axis: int, window: int, stride: int, margin: int, dilation: int) -> Variable:
    """The dilated windows along ``axis`` of x side by side, -inf where they lie in the padding."""
    size, reach = x.shape[axis], dilation * (window - 1)
    if min(window, stride) < 1 or not 0 <= margin <= (reach + 1) // 2:
        raise ArgumentError(
            f"{name}: window {window} and strides {stride} must be at least 1, padding {margin} from 0 to half of the "
            f"{reach + 1} positions that the window reaches over"
        )
    if size + 2 * margin <= reach:
        raise ShapeError(f"{name}: a window over {reach + 1} positions does not fit axis {axis} of {x.shape}")
    starts = np.arange(0, size + 2 * margin - reach, stride)[:, None] - margin
    places = (starts + dilation * np.arange(window)).ravel()
    outside = (places < 0) | (places >= size)
    if outside.any():
        edge = x.backend.empty((*x.shape[:axis], 1, *x.shape[axis + 1 :]), dtype=x.dtype)
        edge.fill(-np.inf)
        x = shapes.concatenate([x, const(edge)], axis)
    return shapes.index_select(x, axis, np.where(outside, size, places))


DOCUMENT_NAMES = {"AvgPool2D": avg_pool2d, "MaxPool1D": max_pool1d, "MaxPool2D": max_pool2d}
"""The source document's names."""
