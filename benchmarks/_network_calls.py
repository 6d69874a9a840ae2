"""What one layer of a network calls on the way forward, on the way back, and for the gradient of its weights.

Written with the public methods of the backend, as a library of layers would. Tensors have neon's layout, (maps, N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _layers import Conv, Maps, Pool, Product
from _networks import BatchNorm, Relu, Residual, Split
from _primitives import values

Calls = dict[str, Callable[[], object]]
"""Pass -> what it calls; a layer has no update that has no weights, no fprop that hands on what it got."""

PASSES = ("fprop", "bprop", "update")
"""Forward, gradient of the data, gradient of the weights."""

EPS, RHO = 1e-5, 0.9
"""Of batch normalization: what is added to variances, and how much running statistics keep of the past."""

ASCALE, BPOWER = 1e-4, 0.75
"""Of LRN, as AlexNet has them."""


def _random(be: Any, *shapes: Any) -> Any:
    """Normal values for each shape. They come from the host: a kernel that makes them would be in the report."""
    return [be.array(values(shape, seed=sum(shape))) for shape in shapes]


def convolution(be: Any, layer: Conv, N: int) -> Calls:
    """Convolution without bias."""
    how = (*layer.size, *layer.window, *layer.pad, *layer.stride)
    geometry = be.conv_layer(None, N, layer.C, layer.K, *how)
    inputs, errors, filters = _random(be, geometry.dimI2, geometry.dimO2, geometry.dimF2)
    outputs, deltas, gradient = (be.empty(made.shape) for made in (errors, inputs, filters))
    return {
        "fprop": lambda: be.fprop_conv(geometry, inputs, filters, outputs),
        "bprop": lambda: be.bprop_conv(geometry, filters, errors, deltas),
        "update": lambda: be.update_conv(geometry, inputs, errors, gradient),
    }


def pooling(be: Any, layer: Pool, N: int) -> Calls:
    """Max pooling keeps the positions of the maxima for the way back."""
    geometry = be.pool_layer(
        None, layer.op, N, layer.C, H=layer.H, W=layer.W, R=layer.window, S=layer.window,
        pad_h=layer.pad, pad_w=layer.pad, str_h=layer.stride, str_w=layer.stride,
    )  # fmt: skip
    inputs, errors = _random(be, geometry.dimI2, geometry.dimO2)
    outputs, deltas = be.empty(errors.shape), be.empty(inputs.shape)
    positions = be.empty(errors.shape, dtype=geometry.argmax_dtype) if layer.op == "max" else None
    return {
        "fprop": lambda: be.fprop_pool(geometry, inputs, outputs, positions),
        "bprop": lambda: be.bprop_pool(geometry, errors, deltas, positions),
    }


def fully_connected(be: Any, layer: Product, N: int) -> Calls:
    """Products with weights, without bias."""
    inputs, errors, weights = _random(be, (layer.k, N), (layer.m, N), (layer.m, layer.k))
    outputs, deltas, gradient = (be.empty(made.shape) for made in (errors, inputs, weights))
    return {
        "fprop": lambda: be.compound_dot(weights, inputs, outputs),
        "bprop": lambda: be.compound_dot(weights.T, errors, deltas),
        "update": lambda: be.compound_dot(errors, inputs.T, gradient),
    }


def batchnorm(be: Any, layer: BatchNorm, N: int) -> Calls:
    """A map a row; the gradients of gamma and beta come with that of the data."""
    rows, C = (layer.C, layer.H * layer.W * N), (layer.C, 1)
    inputs, errors = _random(be, rows, rows)
    outputs, deltas, gamma, beta = be.empty(rows), be.empty(rows), be.ones(C), be.zeros(C)
    sums, variances, mean, variance, d_gamma, d_beta = (be.zeros(C) for _ in range(6))
    result = outputs if layer.relu else None
    return {
        "fprop": lambda: be.compound_fprop_bn(
            inputs, sums, variances, mean, variance, gamma, beta, outputs, EPS, RHO, True, relu=layer.relu
        ),
        "bprop": lambda: be.compound_bprop_bn(
            deltas, d_gamma, d_beta, errors, inputs, sums, variances, gamma, EPS, y=result
        ),
    }


def lrn(be: Any, layer: Maps, N: int) -> Calls:
    """Local response normalization across maps."""
    geometry = be.lrn_layer(None, N, layer.C, H=layer.H, W=layer.W, J=layer.window)
    how = {"ascale": ASCALE, "bpower": BPOWER}
    inputs, errors = _random(be, geometry.dimI2, geometry.dimI2)
    outputs, denominators, deltas = (be.empty(inputs.shape) for _ in range(3))
    return {
        "fprop": lambda: be.fprop_lrn(geometry, inputs, outputs, denominators, **how),
        "bprop": lambda: be.bprop_lrn(geometry, inputs, outputs, errors, deltas, denominators, **how),
    }


def _maps(be: Any, layer: Maps, N: int, count: int) -> Any:
    return _random(be, *[(layer.C * layer.H * layer.W, N)] * count)


def relu(be: Any, layer: Relu, N: int) -> Calls:
    """In place, as expressions."""
    outputs, errors = _maps(be, layer, N, 2)
    return {
        "fprop": lambda: be.assign(outputs, be.maximum(outputs, 0)),
        "bprop": lambda: be.assign(errors, be.greater(outputs, 0) * errors),
    }


def residual(be: Any, layer: Residual, N: int) -> Calls:
    """The sum of two branches and its rectifier are one expression."""
    first, second, errors = _maps(be, layer, N, 3)
    outputs = be.empty(first.shape)
    return {
        "fprop": lambda: be.assign(outputs, be.maximum(first + second, 0)),
        "bprop": lambda: be.assign(errors, be.greater(outputs, 0) * errors),
    }


def split(be: Any, layer: Split, N: int) -> Calls:
    """Errors of all branches are added in one expression."""
    first, *others = _maps(be, layer, N, layer.branches)
    deltas = be.empty(first.shape)
    return {"bprop": lambda: be.assign(deltas, sum(others, first))}


CALLS: dict[type, Callable[[Any, Any, int], Calls]] = {
    Conv: convolution, Pool: pooling, Product: fully_connected, BatchNorm: batchnorm, Maps: lrn, Relu: relu,
    Residual: residual, Split: split,
}  # fmt: skip
KINDS = {
    Conv: "convolution", Pool: "pooling", Product: "fully connected", BatchNorm: "batch normalization", Maps: "LRN",
    Relu: "activation", Residual: "sums of branches", Split: "sums of branches",
}  # fmt: skip
"""Class of a layer -> the row of the totals that it counts to."""
