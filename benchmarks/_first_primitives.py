"""Compound primitives whose first calls ``coldstart.py`` measures beside those of expressions: one layer of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], object]
N, C, SIZE = 32, 64, 14
"""Images, channels and their height: a layer as networks have it, as kernels differ with the shape."""


def _convolution(pass_: str, **window: int) -> Callable[[Any], Call]:
    def prepare(be: Any) -> Call:
        layer = be.conv_layer("float32", N, C, C, H=SIZE, W=SIZE, T=1, **window)
        x, f, y = be.ones(layer.dimI), be.ones(layer.dimF), be.ones(layer.dimO)
        operands = {"fprop": (x, f, y), "bprop": (f, y, x), "update": (x, y, f)}[pass_]
        return lambda: getattr(be, f"{pass_}_conv")(layer, *operands)

    return prepare


def _pooling(op: str, back: bool) -> Callable[[Any], Call]:
    def prepare(be: Any) -> Call:
        layer = be.pool_layer("float32", op, N, C, H=SIZE, W=SIZE, R=2, S=2, str_h=2, str_w=2)
        x, y, argmax = be.ones(layer.dimI), be.ones(layer.dimO), be.zeros(layer.dimO, dtype="uint8")
        places = {"argmax": argmax} if op == "max" else {}
        if back:
            return lambda: be.bprop_pool(layer, y, x, **places)
        return lambda: be.fprop_pool(layer, x, y, **places)

    return prepare


def _batchnorm(back: bool) -> Callable[[Any], Call]:
    def prepare(be: Any) -> Call:
        x, y = be.ones((C, SIZE * SIZE * N)), be.ones((C, SIZE * SIZE * N))
        xsum, xvar, gmean, gvar, gamma, beta = (be.ones((C, 1)) for _ in range(6))
        if back:
            return lambda: be.compound_bprop_bn(y, gmean, gvar, y, x, xsum, xvar, gamma, 1e-5)
        return lambda: be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, gamma, beta, y, 1e-5, 0.9, True)

    return prepare


PRIMITIVES: dict[str, Callable[[Any], Call]] = {
    **{f"{name}_conv": _convolution(name, R=3, S=3, pad_h=1, pad_w=1) for name in ("fprop", "bprop", "update")},
    **{f"{name}_conv 1x1": _convolution(name, R=1, S=1) for name in ("fprop", "bprop", "update")},
    **{f"{way}_pool {op}": _pooling(op, way == "bprop") for op in ("max", "avg") for way in ("fprop", "bprop")},
    "fprop_bn": _batchnorm(False),
    "bprop_bn": _batchnorm(True),
}
"""Name -> function of a backend that gives the call to be timed."""
