"""Definition of quantization and of products in int8 in NumPy.

Numbers become whole ones from -127 to 127, in steps of a size: weights in steps of their own for each row (or map),
inputs all in the same. Products and sums of whole numbers are exact; a result is the sum times both steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.primitives.conv.definition import convolved
from neonlike.backends.tensors.operands import Array
from neonlike.optree.dtypes import as_dtype

LARGEST = 127
SMALLEST_STEP = 2.0**-100
"""Least step, so that what numbers are multiplied by to count steps is finite."""


def step_of(largest: float) -> float:
    """The step, a float32, of numbers of this magnitude and less; any if all are 0."""
    return float(np.float32(max(largest / LARGEST, SMALLEST_STEP))) if largest else 1.0


def inverse_of(step: float) -> float:
    """The number of steps in 1, a float32, by which numbers are multiplied."""
    return float(np.float32(1) / np.float32(step))


def quantized(x: Array, step: float) -> Array:
    """Numbers of float32 in steps, as int8: rounded to nearest, ties to even, at most 127 steps; nan is -127."""
    with np.errstate(all="ignore"):
        steps = np.clip(x * np.float32(inverse_of(step)), np.float32(-LARGEST), np.float32(LARGEST))
        return np.rint(np.where(np.isnan(steps), np.float32(-LARGEST), steps)).astype(np.int8)


def quantized_rows(weights: Array) -> tuple[Array, Array]:
    """Rows of float32 as int8, and the step of each, (rows, 1): its largest magnitude is 127 steps."""
    largest = np.abs(weights).max(axis=1, initial=0.0)
    steps = np.array([[step_of(float(size))] for size in largest], np.float32).reshape(-1, 1)
    return np.clip(np.rint(weights / steps), -LARGEST, LARGEST).astype(np.int8), steps


def product(a: Array, b: Array) -> Array:
    """The exact product of matrices of int8, as int64."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)  # sums below 2^53 are exact


def convolution(g: ConvGeometry, images: Array, filters: Array) -> Array:
    """The exact convolution of images of int8 with filters of int8 (C / groups, T, R, S, K), as int64.

    Parameters
    ----------
    g : ConvGeometry
    images : int8 array (C, D, H, W, N)
    filters : int8 array (C / groups, T, R, S, K)
    """
    exact = replace(g, dtype=as_dtype(np.float64, "int8"))
    return convolved(exact, False, images.astype(np.float64), filters.astype(np.float64)).astype(np.int64)
