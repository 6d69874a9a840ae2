"""The expressions of ``expressions.py`` as one writes them for Numba: parallel loops that fill an existing array.

Constants are float32, as Numba computes in float64 otherwise. Sums may be re-associated, or they would not be vectors.
Importing this file needs Numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import _expressions
import numba
import numpy as np
from numba import prange

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
ALPHA, SLOPE, EPS = np.float32(_expressions.ALPHA), np.float32(_expressions.SLOPE), np.float32(_expressions.EPS)
SQRT_HALF, SQRT_2_PI = np.float32(_expressions.SQRT_HALF), np.float32(_expressions.SQRT_2_PI)
CUBIC = np.float32(0.044715)
LR, ADAM_EPS = np.float32(_expressions.LR), np.float32(_expressions.ADAM_EPS)
BETA1, BETA2 = np.float32(_expressions.BETA1), np.float32(_expressions.BETA2)
REST1, REST2 = np.float32(1 - _expressions.BETA1), np.float32(1 - _expressions.BETA2)
LOWEST = np.float32(-np.inf)
BLOCK = 64
"""Columns that one turn of a loop over columns takes."""


def sigmoid(out: Any, a: Any, b: Any, c: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = ONE / (ONE + math.exp(-(a[i, j] * b[i, j] + c[i, j])))


def axpy(out: Any, x: Any, y: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = ALPHA * x[i, j] + y[i, j]


def chain(out: Any, a: Any, b: Any, c: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            p, q, r = a[i, j], b[i, j], c[i, j]
            out[i, j] = ((((p + q) * r - p) * q + r) * p - q) * r + p * q


def gelu(out: Any, x: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = HALF * x[i, j] * (ONE + math.erf(x[i, j] * SQRT_HALF))


def gelu_tanh(out: Any, x: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            p = x[i, j]
            out[i, j] = HALF * p * (ONE + math.tanh(SQRT_2_PI * (p + CUBIC * p * p * p)))


def softmax0(out: Any, x: Any) -> None:
    rows, columns = out.shape
    for k in prange((columns + BLOCK - 1) // BLOCK):
        first, last = k * BLOCK, min(columns, (k + 1) * BLOCK)
        top, total = np.full(BLOCK, LOWEST), np.zeros(BLOCK, np.float32)
        for i in range(rows):
            for j in range(first, last):
                top[j - first] = max(top[j - first], x[i, j])
        for i in range(rows):
            for j in range(first, last):
                power = math.exp(x[i, j] - top[j - first])
                out[i, j] = power
                total[j - first] += power
        for i in range(rows):
            for j in range(first, last):
                out[i, j] /= total[j - first]


def softmax1(out: Any, x: Any) -> None:
    for i in prange(out.shape[0]):
        top, total = LOWEST, ZERO
        for j in range(out.shape[1]):
            top = max(top, x[i, j])
        for j in range(out.shape[1]):
            power = math.exp(x[i, j] - top)
            out[i, j] = power
            total += power
        for j in range(out.shape[1]):
            out[i, j] /= total


def log_softmax(out: Any, x: Any) -> None:
    for i in prange(out.shape[0]):
        top, total = LOWEST, ZERO
        for j in range(out.shape[1]):
            top = max(top, x[i, j])
        for j in range(out.shape[1]):
            total += math.exp(x[i, j] - top)
        shift = top + math.log(total)
        for j in range(out.shape[1]):
            out[i, j] = x[i, j] - shift


def layer_norm(out: Any, x: Any, gain: Any, bias: Any) -> None:
    length = np.float32(out.shape[1])
    for i in prange(out.shape[0]):
        total, squares = ZERO, ZERO
        for j in range(out.shape[1]):
            total += x[i, j]
        mean = total / length
        for j in range(out.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = ONE / math.sqrt(squares / length + EPS)
        for j in range(out.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * gain[0, j] + bias[0, j]


def variance(out: Any, x: Any) -> None:
    total, squares = 0.0, 0.0
    for i in prange(x.shape[0]):
        here = ZERO
        for j in range(x.shape[1]):
            here += x[i, j]
        total += here
    mean = np.float32(total / x.size)
    for i in prange(x.shape[0]):
        here = ZERO
        for j in range(x.shape[1]):
            here += (x[i, j] - mean) * (x[i, j] - mean)
        squares += here
    out[0, 0] = squares / x.size


def sum_squares(out: Any, x: Any) -> None:
    total = 0.0
    for i in prange(x.shape[0]):
        here = ZERO
        for j in range(x.shape[1]):
            here += x[i, j] * x[i, j]
        total += here
    out[0, 0] = total


def outer(out: Any, u: Any, v: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = u[i, 0] * v[0, j]


def mask(out: Any, a: Any, b: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a[i, j] if a[i, j] > ZERO else SLOPE * b[i, j]


def adam(p: Any, m: Any, v: Any, g: Any) -> None:
    for i in prange(p.shape[0]):
        for j in range(p.shape[1]):
            m1 = BETA1 * m[i, j] + REST1 * g[i, j]
            v1 = BETA2 * v[i, j] + REST2 * g[i, j] * g[i, j]
            m[i, j], v[i, j] = m1, v1
            p[i, j] -= LR * m1 / (math.sqrt(v1) + ADAM_EPS)


_compiled: dict[str, Callable[..., None]] = {}


def loop(name: str) -> Callable[..., None]:
    """The compiled loop of an expression; of the target (unless operands are replaced) and the operands."""
    if name not in _compiled:
        options = {"parallel": True, "fastmath": {"reassoc", "nsz", "contract"}, "error_model": "numpy"}
        _compiled[name] = numba.njit(**options)(globals()[name])
    return _compiled[name]
