"""Sequences of calls that ``company.py`` measures, as networks make them: ours in parts, PyTorch's as one step.

Every sequence starts from the same operands in each process, and changes what it is to change, such as weights. The
steps of PyTorch are in ``_sequences_torch.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from _layers import Cell
from _libraries import Array
from _nets import EPS, MOMENTUM, RHO, Dense, Net
from _primitives import values

Operands = dict[str, Array]
Call = Callable[[], object]

BARE_RATE = 1e-5
"""Its gradients are sums, and the results themselves are their errors."""

MLP = Net("784-1024-1024-10", (784,), 128, (
    Dense(1024, relu=True, bias=False), Dense(1024, relu=True, bias=False), Dense(10, bias=False),
))  # fmt: skip
CONV = SimpleNamespace(N=64, C=32, K=64, size=32, window=3, pooled=16, out=100)
RNN = SimpleNamespace(N=64, out=256, cell=Cell("company", "rnn", 1, "rnn", 256, 256, 20))


@dataclass(frozen=True)
class Made:
    """A sequence of one contender: its calls by name, in order, and what they compute."""

    parts: dict[str, Call]
    """Name -> call."""
    result: Callable[[], list[Array]]
    """Some of the arrays that a step has written."""

    def call(self, part: str | None = None) -> Call:
        """The call of one part; without a name that of a step, all parts in order."""
        if part is not None:
            return self.parts[part]
        calls = tuple(self.parts.values())

        def step() -> None:
            for call in calls:
                call()

        return step


# A training step by the layers ----------------------------------------------------------------------------------


def mlp(be: Any, operands: Operands) -> Made:
    """A step as ``Model.fit`` makes it of a minibatch."""
    from _nets_ours import Training

    made = Training(be, MLP)
    model, cost = made.model, made.cost
    parts = {
        "fprop": lambda: model.fprop(made.x),
        "cost": lambda: cost.get_cost(model.layers.outputs, made.t),
        "errors": lambda: cost.get_errors(model.layers.outputs, made.t),
        "bprop": lambda: model.bprop(cost.deltas),
        "optimize": lambda: made.optimizer.optimize(made.layers, 0),
    }
    return Made(parts, lambda: made.result()[1:])


# The same kinds of calls, bare ----------------------------------------------------------------------------------


def calls_operands() -> Operands:
    """Operands of one layer of the network above."""
    n, m = MLP.shape[0], MLP.layers[0].outputs
    return {
        "x": values((n, MLP.N), 1),
        "W": values((m, n), 2, n**-0.5),
        "b": values((m, 1), 3, 0.1),
    }


def calls(be: Any, operands: Operands) -> Made:
    """z = relu(W·x + b), whose squares are made smaller by one step."""
    x, W, b = (be.array(array) for array in operands.values())
    z, h = be.zeros((W.shape[0], x.shape[1])), be.zeros((W.shape[0], x.shape[1]))
    dW, db, v, vb = be.zeros(W.shape), be.zeros(b.shape), be.zeros(W.shape), be.zeros(b.shape)

    def assigner(target: Any, build: Callable[[], Any]) -> Call:
        return lambda: target.__setitem__(slice(None), build())

    def optimizer() -> None:
        for parameter, gradient, velocity in ((W, dW, v), (b, db, vb)):
            moved = MOMENTUM * velocity - BARE_RATE * gradient
            be.assign_many([(velocity, moved), (parameter, parameter + moved)])

    parts = {
        "product": lambda: be.compound_dot(W, x, z),
        "bias": assigner(z, lambda: z + b),
        "relu": assigner(h, lambda: be.maximum(z, 0)),
        "product of gradients": lambda: be.compound_dot(h, x.T, dW),
        "reduction": assigner(db, lambda: be.sum(h, axis=1)),
        "optimizer": optimizer,
    }
    return Made(parts, lambda: [W.get() - operands["W"], b.get() - operands["b"]])


# Convolution, batch normalisation, relu, pooling, product -------------------------------------------------------


def conv_operands() -> Operands:
    """Images (C, H, W, N), filters (C, R, S, K), and the rest as the calls below take them."""
    p = CONV
    flat = p.K * p.pooled**2
    return {
        "I": values((p.C, p.size, p.size, p.N), 1),
        "F": values((p.C, p.window, p.window, p.K), 2, (p.C * p.window**2) ** -0.5),
        "gamma": 1 + values((p.K, 1), 3, 0.1),
        "beta": values((p.K, 1), 4, 0.1),
        "V": values((p.out, flat), 5, flat**-0.5),
        "E": values((p.out, p.N), 6),
    }


def conv(be: Any, operands: Operands) -> Made:
    """Forward, then the gradients of everything from the errors of the outputs."""
    p = CONV
    made = be.conv_layer(
        np.float32, p.N, p.C, p.K, 1, p.size, p.size, 1, p.window, p.window, 0, p.window // 2, p.window // 2
    )
    pool = be.pool_layer(
        np.float32, "max", p.N, p.K, 1, p.size, p.size, J=1, T=1, R=2, S=2, str_c=1, str_d=1, str_h=2, str_w=2
    )
    maps, rows, flat = (p.K * p.size**2, p.N), (p.K, p.size**2 * p.N), (p.K * p.pooled**2, p.N)
    I, F = (be.array(operands[name].reshape(dims)) for name, dims in (("I", (-1, p.N)), ("F", (-1, p.K))))  # noqa: E741
    gamma, beta, V, E = (be.array(operands[name]) for name in ("gamma", "beta", "V", "E"))
    O, y, dy = be.zeros(maps), be.zeros(maps), be.zeros(maps)  # noqa: E741
    x_rows, y_rows, dy_rows = (tensor.reshape(rows) for tensor in (O, y, dy))
    xsum, xvar, gmean, gvar, dgamma, dbeta = (be.zeros((p.K, 1)) for _ in range(6))
    pooled, dpooled, argmax = be.zeros(flat), be.zeros(flat), be.empty(flat, dtype=np.uint8)
    out, dV, dF, dI = be.zeros((p.out, p.N)), be.zeros(V.shape), be.zeros(F.shape), be.zeros(I.shape)

    def relu_gradient() -> None:
        dy[:] = be.greater(y, 0) * dy

    parts: dict[str, Call] = {
        "convolution": lambda: be.fprop_conv(made, I, F, O),
        "batchnorm, relu": lambda: be.compound_fprop_bn(
            x_rows, xsum, xvar, gmean, gvar, gamma, beta, y_rows, eps=EPS, rho=RHO, compute_batch_sum=True, relu=True
        ),
        "pooling": lambda: be.fprop_pool(pool, y, pooled, argmax=argmax),
        "product": lambda: be.compound_dot(V, pooled, out),
        "weights of the product": lambda: be.compound_dot(E, pooled.T, dV),
        "errors of the product": lambda: be.compound_dot(V.T, E, dpooled),
        "pooling back": lambda: be.bprop_pool(pool, dpooled, dy, argmax=argmax),
        "relu back": relu_gradient,
        "batchnorm back": lambda: be.compound_bprop_bn(
            dy_rows, dgamma, dbeta, dy_rows, x_rows, xsum, xvar, gamma, eps=EPS
        ),
        "filters": lambda: be.update_conv(made, I, dy, dF),
        "errors of the images": lambda: be.bprop_conv(made, F, dy, dI),
    }
    # dI is left out: where relu's argument is near to 0, rounding decides about single values.
    return Made(parts, lambda: [tensor.get() for tensor in (out, dV, dgamma, dbeta, dF)])


# Unroll and product ---------------------------------------------------------------------------------------------


def rnn_operands() -> Operands:
    """As ``rnn.py`` has them, weights (out, hidden) of the product, and errors (out, steps * N) of its results."""
    cell, columns = RNN.cell, RNN.cell.steps * RNN.N
    return {
        "W_input": values((cell.hidden, cell.features), 1, cell.features**-0.5),
        "W_recur": values((cell.hidden, cell.hidden), 2, cell.hidden**-0.5),
        "b": values((cell.hidden, 1), 3, 0.1),
        "x": values((cell.features, columns), 4),
        "V": values((RNN.out, cell.hidden), 5, cell.hidden**-0.5),
        "E": values((RNN.out, columns), 6),
    }


def rnn(be: Any, operands: Operands) -> Made:
    """A recurrent layer and a product of all its steps, forward and back."""
    from _cells import OwnRnn

    V, E = be.array(operands["V"]), be.array(operands["E"])
    hidden, columns = RNN.cell.hidden, E.shape[1]
    cell = OwnRnn(be, RNN.cell, operands | {"E": np.zeros((hidden, columns), np.float32)})
    out, dV, outputs = be.zeros(E.shape), be.zeros(V.shape), cell.outputs

    def backward() -> None:
        be.compound_dot(V.T, E, cell.e)
        cell.backward()  # which adds to the errors

    parts = {
        "product, unroll": cell.forward,
        "product": lambda: be.compound_dot(V, outputs, out),
        "weights of the product": lambda: be.compound_dot(E, outputs.T, dV),
        "product, unroll back, gradients": backward,
    }
    return Made(parts, lambda: [out.get(), dV.get(), *(made.get() for made in cell.results(backward=True))])


@dataclass(frozen=True)
class Sequence:
    """A sequence, ours and who else has it."""

    name: str
    text: str
    operands: Callable[[], Operands]
    ours: Callable[[Any, Operands], Made]
    peers: tuple[str, ...] = ("torch", "torch.compile")
    """Ways in which PyTorch does it, see ``_sequences_torch.py``."""


SEQUENCES = {
    made.name: made
    for made in (
        Sequence("mlp", "training step of an MLP 784-1024-1024-10, N = 128, momentum", dict, mlp),
        Sequence("calls", "product, bias, relu, product, reduction, optimizer: its first layer", calls_operands, calls),
        Sequence(
            "conv", "convolution 3x3, 32 -> 64 maps of 32x32, N = 64, batchnorm, relu, pooling, product; and back",
            conv_operands, conv, ("torch", "torch NHWC", "torch.compile"),
        ),
        Sequence("rnn", "RNN 256 -> 256, 20 steps, N = 64, and a product of all steps; and back", rnn_operands, rnn),
    )
}  # fmt: skip
