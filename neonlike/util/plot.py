"""Plots of curves as images, without a plotting library."""

from __future__ import annotations

import numpy as np

from neonlike.errors import ShapeError

WHITE, GREY, BLUE, BLACK = (255, 255, 255), (190, 190, 190), (31, 119, 180), (0, 0, 0)
MARGIN = 8


def running_median(y: np.ndarray, window: int) -> np.ndarray:
    """Median of ``window`` (odd) neighbours of each value; edge values are repeated.

    Parameters
    ----------
    y : ndarray ``(n,)``
    window : int

    Examples
    --------
    >>> import numpy as np
    >>> running_median(np.array([1.0, 9.0, 2.0]), 3).tolist()
    [1.0, 2.0, 2.0]
    """
    padded = np.pad(y, window // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)


def curves(x: np.ndarray, ys: list[np.ndarray], width: int, height: int) -> np.ndarray:
    """Draw curves in one frame from their minimum to their maximum; the last is blue, others are grey.

    Parameters
    ----------
    x : ndarray ``(n,)``
        Ascending, not empty.
    ys : list of ndarray ``(n,)``
        Finite values.
    width, height : int
        Size of the image in pixels.

    Returns
    -------
    ndarray
        uint8 ``(height, width, 3)``.

    Raises
    ------
    ShapeError
        If curves and ``x`` differ in length, or are empty, or the image is too small.
    """
    if not len(x) or any(len(y) != len(x) for y in ys) or min(width, height) <= 2 * MARGIN:
        raise ShapeError(
            f"curves: {len(x)} places, curves of {[len(y) for y in ys]} values and an image of {width} x {height}; "
            f"expected as many values as places, one or more, and more than {2 * MARGIN} pixels each way"
        )
    image = np.full((height, width, 3), WHITE, np.uint8)
    top, bottom, left, right = MARGIN, height - 1 - MARGIN, MARGIN, width - 1 - MARGIN
    image[[top, bottom], left : right + 1] = image[top : bottom + 1, left] = image[top : bottom + 1, right] = BLACK
    across = _scaled(x, x.min(), x.max(), left, right)
    low, high = min(y.min() for y in ys), max(y.max() for y in ys)
    for colour, y in zip([GREY] * (len(ys) - 1) + [BLUE], ys, strict=True):
        _draw(image, across, _scaled(y, low, high, bottom, top), colour)
    return image


def _scaled(values: np.ndarray, low: float, high: float, first: int, last: int) -> np.ndarray:
    """Map ``values`` from ``low`` to ``high`` to pixels ``first`` to ``last``; to the middle if all are equal."""
    share = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return first + share * (last - first)


def _draw(image: np.ndarray, x: np.ndarray, y: np.ndarray, colour: tuple[int, int, int]) -> None:
    """Draw a line through points, with at least one pixel in each row and column that it crosses."""
    lengths = np.maximum(np.abs(np.diff(x)), np.abs(np.diff(y)))
    at = np.concatenate([[0.0], np.cumsum(np.ceil(lengths) + 1)])
    steps = np.arange(at[-1] + 1)
    columns, rows = (np.rint(np.interp(steps, at, one)).astype(int) for one in (x, y))
    image[rows, columns] = colour
