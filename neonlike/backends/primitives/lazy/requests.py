"""Requests of lazy compound primitives, and their gradient rules; see ``family.py``.

A gradient rule receives ``z``, the node whose gradient is taken, and builds nodes of the primitives' gradients.
Gradients that are linear in their inputs have rules, too, and so second derivatives; otherwise the rule raises an
error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.errors import GradientError
from neonlike.optree.calls import Request, call, call_spec, of_result, part
from neonlike.optree.dtypes import DType
from neonlike.optree.functions import F as Functions
from neonlike.optree.shapes import Shape, stretches_to
from neonlike.optree.sweep import differentiated

F: Any = Functions

Result = tuple[Shape, DType]


def no_second(name: str) -> Callable[..., NoReturn]:
    """Gradient rule of a gradient without second derivative."""

    def rule(F: Any, d: Any, z: Any, *operands: Any) -> NoReturn:
        raise GradientError(
            f"Autodiff: {name} has a gradient, but no second derivative; write it in ops of docs/ops.md where you "
            "need one"
        )

    return rule


# Convolution ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Conv(Request):
    """One pass of a convolution: ``fprop`` of (I, F[, bias]), ``bprop`` of (E, F[, bias]), or ``update`` of (I, E)."""

    geometry: ConvGeometry
    kind: str
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the pass.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            The output, or gradient.
        operands : sequence of Tensor
            As the class says.
        """
        first, second, *bias = operands
        more = {"bias": bias[0]} if bias else {}
        if self.kind == "update":
            be.update_conv(self.geometry, I=first, E=second, grad_F=results[0])
        elif self.kind == "bprop":
            be.bprop_conv(self.geometry, F=second, E=first, grad_I=results[0], **more)
        else:
            be.fprop_conv(self.geometry, I=first, F=second, O=results[0], **more)

    @property
    def products(self) -> tuple[Any, str]:
        """See :attr:`Request.products`."""
        return self.geometry, self.kind

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.{self.kind}_conv, {self.geometry.describe()}"


def conv_node(kind: str, g: ConvGeometry, operands: Sequence[Any], shape: Shape, transposed: bool = False) -> Any:
    """A pass of a convolution as an expression; ``transposed``: the user calls it deconvolution.

    Parameters
    ----------
    kind : "fprop", "bprop" or "update"
    g : ConvGeometry
    operands : sequence of expressions
        Checked.
    shape : tuple of int
        Of the result.
    transposed : bool
    """
    request = Conv(g, kind, ((shape, g.dtype),), (g.dtype,) * len(operands))
    return call(DECONV if transposed else _CONV_SPECS[kind], request, operands)


def _conv_gradients(F: Any, d: Any, z: Any, first: Any, second: Any, *bias: Any) -> tuple[Any, ...]:
    """Gradients of a pass: each is linear in both operands, and the gradient of one pass is another."""
    request: Conv = z.attrs["request"]
    g = request.geometry
    if request.kind == "fprop":  # of I, F
        gradients = conv_node("bprop", g, (d, second), first.shape), conv_node("update", g, (first, d), second.shape)
    elif request.kind == "bprop":  # of E, F
        gradients = conv_node("fprop", g, (d, second), first.shape), conv_node("update", g, (d, first), second.shape)
    else:  # of I, E
        gradients = conv_node("bprop", g, (second, d), first.shape), conv_node("fprop", g, (first, d), second.shape)
    if not bias:
        return gradients
    sums = F.sum(d, axis=tuple(range(1, len(d.shape))))
    return (*gradients, sums.reshape(bias[0].shape))


_CONV_SPECS = {
    "fprop": call_spec("conv", _conv_gradients),
    "bprop": call_spec("conv_data_gradient", _conv_gradients),
    "update": call_spec("conv_filter_gradient", _conv_gradients),
}
DECONV = call_spec("deconv", _conv_gradients)


# Pooling --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pool(Request):
    """``fprop_pool`` of (I,), with the positions of maxima as second result of max pooling."""

    geometry: PoolGeometry
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute it.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            O, and for max pooling the positions.
        operands : sequence of Tensor
            I.
        """
        be.fprop_pool(self.geometry, operands[0], *results)

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.fprop_pool, {self.geometry}"


@dataclass(frozen=True, eq=False)
class Unpool(Request):
    """``bprop_pool`` of (error,), of (error, positions) for max pooling, of (error, inputs) for l2."""

    geometry: PoolGeometry
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute it.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            Gradient of the input.
        operands : sequence of Tensor
            As the class says.
        """
        error, *more = operands
        names = {"max": ("argmax",), "l2": ("inputs",), "avg": ()}[self.geometry.op]
        be.bprop_pool(self.geometry, error, results[0], **dict(zip(names, more)))

    def slopes(self, position: int, d: Any, error: Any, *more: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients: for max, d at the maxima; for avg, the pooled d; for l2, those of the formula.

        Parameters
        ----------
        position : int
            0, as there is one result.
        d : expression
            The gradient that arrives at it.
        error, *more : expressions
            As of :meth:`run`.
        """
        g = self.geometry
        if g.op == "max":
            return _at_positions(g, d, more[0]), None
        if g.op == "avg":
            return (pool_node(g, d, error.shape),)
        return differentiated(partial(_unpool_norms, g), d, (error, *more))

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.bprop_pool, {self.geometry}"


def pool_node(g: PoolGeometry, x: Any, shape: Shape) -> Any:
    """Pooling as an expression.

    Parameters
    ----------
    g : PoolGeometry
    x : expression
        Checked.
    shape : tuple of int
        Of the result.
    """
    results: tuple[Result, ...] = ((shape, g.dtype),)
    if g.op == "max":
        results = (*results, (shape, g.argmax_dtype))
    return call(_POOL, Pool(g, results, (g.dtype,)), (x,))


def _at_positions(g: PoolGeometry, values: Any, positions: Any) -> Any:
    """Elements of ``values``, in the input's shape, at ``positions`` in the windows, in the output's shape."""
    be, N = values.backend, values.shape[-1]
    corners = np.zeros((1, 1, 1), np.int64)  # window corners; none is entirely in the padding
    for size, count, step, margin in zip(g.DHW, g.MPQ, g.strides[1:], g.padding[1:]):
        corners = (corners * size + (np.arange(count) * step - margin)).reshape(-1, 1, 1)
    depths, rows, columns = g.window_places[:, 1:].T
    steps = be.array(((depths * g.H + rows) * g.W + columns)[:, None], dtype=np.int64)
    there = F.take(steps, positions.reshape(1, math.prod(positions.shape)), 0).reshape(g.K, -1, N)
    places = there + be.array(corners.reshape(1, -1, 1), dtype=np.int64)
    return F.take_along(values.reshape(g.C, -1, N), places, 1).reshape(positions.shape)


def _unpool_norms(g: PoolGeometry, error: Any, x: Any) -> Any:
    """Gradient of l2 pooling: x times the sum of error / norm over its windows."""
    mean = replace(g, op="avg", seen={}, batches={})
    counts = x.backend.array(g.counts.reshape(*error.shape[:-1], 1), dtype=error.dtype)
    norms = F.root(pool_node(mean, x * x, error.shape) * counts)
    shares = F.where(F.equal(norms, 0), 0, error / F.where(F.equal(norms, 0), 1, norms)) * counts
    unpool = Unpool(mean, ((x.shape, g.dtype),), (g.dtype,))
    return x * call(_UNPOOL, unpool, (shares,))


def _pool_gradient(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    g: PoolGeometry = z.attrs["request"].geometry
    more: tuple[Any, ...] = ()
    if g.op != "avg":
        more = (part(z, 1) if g.op == "max" else x,)
    dtypes = (g.dtype, *(operand.dtype for operand in more))
    return (call(_UNPOOL, Unpool(g, ((x.shape, g.dtype),), dtypes), (d, *more)),)


_POOL, _UNPOOL = call_spec("pool", _pool_gradient), call_spec("pool_gradient", of_result)


# Batched products -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BatchedDot(Request):
    """``batched_dot`` of (A, B)."""

    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the products.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            C.
        operands : sequence of Tensor
            A, B.
        """
        be.batched_dot(*operands, results[0])

    def describe(self) -> str:
        """Name of the backend's method."""
        return "be.batched_dot"


def matmul_node(a: Any, b: Any, shape: Shape, dtype: DType) -> Any:
    """Matrix products over a leading axis as an expression; summed over it if ``shape`` has two axes.

    Parameters
    ----------
    a, b : expressions
        Checked; at least one 3-D.
    shape : tuple of int
        Of the result.
    dtype : dtype
    """
    return call(_MATMUL, BatchedDot(((shape, dtype),), (dtype, dtype)), (a, b))


def _matmul_gradients(F: Any, d: Any, z: Any, a: Any, b: Any) -> tuple[Any, ...]:
    dtype: DType = z.dtype
    return (
        matmul_node(d, F.transpose(b), a.shape, dtype),
        matmul_node(F.transpose(a), d, b.shape, dtype),
    )


_MATMUL = call_spec("matmul", _matmul_gradients)


# User-defined primitives ----------------------------------------------------------------------------------------------


class Primitive:
    """Result of ``be.primitive``; calling it builds a node.

    Attributes
    ----------
    name : str
    forward, backward, shape, dtype
        As passed to ``be.primitive``.
    """

    def __init__(self, forward: Any, backward: Any, shape: Any, dtype: DType | None, name: str) -> None:
        self.forward, self.backward, self.shape, self.dtype, self.name = forward, backward, shape, dtype, name
        self.spec = call_spec(name, _custom_gradients)

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


@dataclass(frozen=True, eq=False)
class Custom(Request):
    """Call of a user's function; ``arguments`` holds all but operands, and None for each operand."""

    primitive: Primitive
    arguments: tuple[Any, ...]
    places: tuple[int, ...]
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]
    direct: ClassVar[bool] = False

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Call the function to write the result.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            What the function writes.
        operands : sequence of Tensor
            Its tensor arguments.
        """
        self.primitive.forward(results[0], *self.filled(operands))

    def describe(self) -> str:
        """Name of the user's function."""
        forward = self.primitive.forward
        return f"{getattr(forward, '__module__', '')}.{getattr(forward, '__qualname__', forward)}"

    def filled(self, operands: Sequence[Any]) -> list[Any]:
        """Arguments of the function, with ``operands`` filled in."""
        arguments = list(self.arguments)
        for place, operand in zip(self.places, operands):
            arguments[place] = operand
        return arguments


def _custom_gradients(F: Any, d: Any, z: Any, *operands: Any) -> tuple[Any, ...]:
    request: Custom = z.attrs["request"]
    name, backward = request.primitive.name, request.primitive.backward
    if backward is None:
        raise GradientError(f"Autodiff: the primitive {name} was made without backward, so it has no gradient")
    given = backward(d, z, *request.filled(operands))
    gradients = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(gradients) != len(request.arguments):
        raise GradientError(
            f"Autodiff: backward of the primitive {name} returned {len(gradients)} gradients; expected "
            f"{len(request.arguments)}, one for each argument of forward after out (None where there is none)"
        )
    found = tuple(gradients[place] for place in request.places)
    for operand, gradient in zip(operands, found):
        check_increment(f"backward of the primitive {name}", operand, gradient)
    return found


def check_increment(whose: str, operand: Any, gradient: Any) -> None:
    """Refuse a gradient, returned by the function ``whose``, that does not fit ``operand``; None is accepted.

    Parameters
    ----------
    whose : str
        Name of the function, for the message.
    operand : expression
        What was differentiated by.
    gradient : expression or None

    Raises
    ------
    GradientError
        If the shapes do not broadcast to each other.
    """
    shape = getattr(gradient, "shape", None)
    if gradient is None or shape == operand.shape:
        return
    if shape and (stretches_to(shape, operand.shape) or stretches_to(operand.shape, shape)):
        return  # summed or stretched by broadcasting
    raise GradientError(
        f"Autodiff: {whose} returned "
        f"{type(gradient).__name__ if shape is None else f'a gradient of shape {shape}'} for an operand of shape "
        f"{operand.shape}; return an expression of that shape, or None"
    )
