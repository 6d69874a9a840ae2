"""Local response normalisation in loops in float64, written here from the formulas of Krizhevsky et al. 2012."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends import Backend

Array = np.ndarray[Any, Any]
CLOSE = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-13}
"""dtype -> tolerance, relative to the size of the terms that make a value."""


def window(c: int, j: int, channels: int) -> range:
    """Channels of the window around channel ``c``."""
    return range(max(c - j // 2, 0), min(c + j // 2 + 1, channels))


def forward(x: Array, j: int, ascale: float, bpower: float) -> tuple[Array, Array]:
    """Denominators and results for ``x`` (C, anything)."""
    denom = np.ones(x.shape)
    for c in range(len(x)):
        for other in window(c, j, len(x)):
            denom[c] += ascale / j * x[other] ** 2
    return denom, x / denom**bpower


def backward(x: Array, y: Array, e: Array, denom: Array, j: int, ascale: float, bpower: float) -> tuple[Array, Array]:
    """Error of the input, and the size of the terms that it is the difference of."""
    delta, size = np.zeros(x.shape), np.zeros(x.shape)
    for c in range(len(x)):
        parts = [y[other] * e[other] / denom[other] for other in window(c, j, len(x))]
        factor = 2 * bpower * ascale / j * x[c]
        delta[c] = e[c] / denom[c] ** bpower - factor * sum(parts)
        size[c] = abs(e[c]) / denom[c] ** bpower + abs(factor) * sum(map(abs, parts))
    return delta, size


def close(actual: Array, wanted: Array, size: Any = None) -> None:
    """``actual`` is ``wanted`` within its dtype's tolerance of ``size``, which defaults to ``wanted``."""
    bound = CLOSE[actual.dtype.type] * np.abs(wanted if size is None else size) + 1e-7 * (actual.dtype == np.float16)
    assert (np.abs(actual.astype(np.float64) - wanted) <= bound).all()


class Case:
    """Tensors of one layer, and its passes on the backend and in loops."""

    def __init__(
        self, be: Backend, dims: tuple[int, int, int, int, int], j: int, ascale: float = 1.5, bpower: float = 0.75,
        dtype: Any = np.float32, seed: int = 0,
    ) -> None:  # fmt: skip
        c, d, h, w, n = dims
        rng = np.random.default_rng(seed)
        self.be, self.j, self.ascale, self.bpower, self.dtype = be, j, ascale, bpower, dtype
        self.layer = be.lrn_layer(dtype, n, c, d, h, w, J=j)
        self.shape = self.layer.dimI2
        self.x, self.e, self.old = (rng.standard_normal(self.shape).astype(dtype) for _ in range(3))
        self.I, self.E = be.array(self.x, dtype=dtype), be.array(self.e, dtype=dtype)
        self.O, self.denom, self.delta = (be.array(np.full(self.shape, np.nan), dtype=dtype) for _ in range(3))

    def fprop(self, **options: Any) -> Any:
        numbers = {"ascale": self.ascale, "bpower": self.bpower}
        return self.be.fprop_lrn(self.layer, self.I, self.O, self.denom, **numbers, **options)

    def bprop(self, **options: Any) -> Any:
        numbers = {"ascale": self.ascale, "bpower": self.bpower}
        return self.be.bprop_lrn(self.layer, self.I, self.O, self.E, self.delta, self.denom, **numbers, **options)

    def wide(self, values: Array) -> Array:
        return values.astype(np.float64).reshape(self.layer.C, -1)

    def check_fprop(self, alpha: float = 1, beta: float = 0) -> None:
        denom, y = forward(self.wide(self.x), self.j, self.ascale, self.bpower)
        close(self.wide_of(self.denom), denom)
        close(self.wide_of(self.O), *self.blended(y, y, alpha, beta))

    def check_bprop(self, alpha: float = 1, beta: float = 0) -> None:
        """Against loops over the I, O, E and denom that the pass was given."""
        given = [self.wide(t.get()) for t in (self.I, self.O, self.E, self.denom)]
        assert (given[0] == self.wide(self.x)).all()
        assert (given[2] == self.wide(self.e)).all()
        delta, size = backward(*given, self.j, self.ascale, self.bpower)
        close(self.wide_of(self.delta), *self.blended(delta, size, alpha, beta))

    def blended(self, result: Array, size: Array, alpha: float, beta: float) -> tuple[Array, Array]:
        if beta == 0:
            return alpha * result, alpha * size
        old = self.wide(self.old)
        return alpha * result + beta * old, np.abs(alpha * size) + np.abs(beta * old)

    def wide_of(self, tensor: Any) -> Array:
        return tensor.get().reshape(self.layer.C, -1)  # type: ignore[no-any-return]
