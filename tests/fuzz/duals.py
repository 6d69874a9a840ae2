"""NumPy values with derivatives, which random graphs are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Dual:
    """A NumPy value with its derivatives by all numbers of all parameters: forward mode, which has nothing of ours."""

    def __init__(self, value: Array, slope: Array) -> None:
        self.value, self.slope = value, slope  # slope: (*value.shape, numbers of parameters)

    def map(self, f: Callable[[Array], Array], df: Callable[[Array], Array]) -> Dual:
        return Dual(f(self.value), df(self.value)[..., None] * self.slope)

    def move(self, f: Callable[[Array], Array]) -> Dual:
        return Dual(f(self.value), np.stack([f(part) for part in np.moveaxis(self.slope, -1, 0)], -1))


def independent(hosts: Sequence[Array]) -> list[Dual]:
    """Arrays by whose elements, all of them, gradients are taken."""
    count, start = sum(host.size for host in hosts), 0
    made = []
    for host in hosts:
        slope = np.zeros((host.size, count))
        slope[range(host.size), range(start, start + host.size)] = 1
        start += host.size
        made.append(Dual(host, slope.reshape(*host.shape, count)))
    return made


def add(a: Dual, b: Dual) -> Dual:
    return Dual(a.value + b.value, a.slope + b.slope)


def mul(a: Dual, b: Dual) -> Dual:
    return Dual(a.value * b.value, a.slope * b.value[..., None] + a.value[..., None] * b.slope)


def dot(a: Dual, b: Dual) -> Dual:
    slope = np.einsum("ijp,jk->ikp", a.slope, b.value) + np.einsum("ij,jkp->ikp", a.value, b.slope)
    return Dual(a.value @ b.value, slope)


def softmax(d: Dual) -> Dual:
    """Along rows."""
    shifted = np.exp(d.value - d.value.max(1, keepdims=True))
    value = shifted / shifted.sum(1, keepdims=True)
    weighted = value[..., None] * d.slope
    return Dual(value, weighted - value[..., None] * weighted.sum(1, keepdims=True))
