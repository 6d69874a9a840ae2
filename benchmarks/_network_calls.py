"""Calls of one layer of a network: forward, backward, and for the gradient of its weights.

Written with the public methods of the backend, as a library of layers would. Tensors have neon's layout, (maps, N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _layers import Conv, Maps, Pool, Product
from _libraries import Neonlike
from _networks import BatchNorm, Relu, Residual, Split
from _primitives import Problem, values
from conv import Convolution
from gemm import Multiplication
from lrn import Lrn
from pool import Pooling

Calls = dict[str, Callable[[], object]]
"""Pass -> what it calls; a layer has no update that has no weights, no fprop that hands on what it got."""

PASSES = ("fprop", "bprop", "update")
"""Forward, gradient of the data, gradient of the weights."""

EPS, RHO = 1e-5, 0.9
"""Batch normalization adds the first to variances; its running statistics keep the second of the past."""


def _random(be: Any, *shapes: Any) -> Any:
    """Normal values for each shape. They come from the host: a kernel that makes them would be in the report."""
    return [be.array(values(shape, seed=sum(shape))) for shape in shapes]


def of_problems(problem: type[Problem], *passes: str) -> Callable[[Any, Any, int], Calls]:
    """The calls that a script of primitives measures, each on operands of its own."""
    return lambda be, layer, N: {name: problem(layer, N, name).ours(Neonlike(be)).run for name in passes}


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
    Conv: of_problems(Convolution, *PASSES), Pool: of_problems(Pooling, *PASSES[:2]),
    Product: of_problems(Multiplication, *PASSES), Maps: of_problems(Lrn, *PASSES[:2]),
    BatchNorm: batchnorm, Relu: relu, Residual: residual, Split: split,
}  # fmt: skip
KINDS = {
    Conv: "convolution", Pool: "pooling", Product: "fully connected", BatchNorm: "batch normalization", Maps: "LRN",
    Relu: "activation", Residual: "sums of branches", Split: "sums of branches",
}  # fmt: skip
"""Class of a layer -> the row of the totals that it counts to."""
