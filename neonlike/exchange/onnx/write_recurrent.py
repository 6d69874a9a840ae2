"""Recurrent layers, and reductions of their outputs, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange.onnx.library import DOMAIN
from neonlike.exchange.onnx.write_dense import refuse_int8
from neonlike.exchange.onnx.writer import Value, Writer
from neonlike.exchange.torch_layers import gates_in_order, own_biases, ways
from neonlike.layers.recurrent import (
    GRU,
    LSTM,
    BiLSTM,
    BiRNN,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
    ResetAfterGRU,
)
from neonlike.layers.recurrent.recurrent_output import BiSum
from neonlike.transforms import Logistic, Rectlin, Tanh

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

ACTIVATIONS = {Tanh: "Tanh", Logistic: "Sigmoid", Rectlin: "Relu"}
"""Class of a transform -> name of the activation in recurrent operators."""
LSTM_GATES = (0, 2, 1, 3)
"""Places of ONNX's gates i, o, f, c among ours, i, f, o, g; and the reverse, which is the same."""
GRU_GATES = (1, 0, 2)
"""Places of ONNX's gates z, r, h among ours, r, z, n; and the reverse, which is the same."""


def _activation(w: Writer, transform: Any) -> str:
    name = ACTIVATIONS.get(type(transform))
    if name is None or getattr(transform, "slope", None):
        w.refuse(f"recurrent operators of ONNX have no activation {type(transform).__name__} of this kind")
    return str(name)


def _parts(layer: Layer, order: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of the inputs and states, and biases, of each direction, with gates in ONNX's order."""
    found = []
    for place, way in enumerate(ways(layer)):
        parts = [getattr(layer, f"{name}{way}").get() for name in ("W_input", "W_recur", "b")]
        if getattr(layer, "split_inputs", False):  # each direction reads its half: the weights of the other are 0
            parts[0] = np.concatenate([parts[0], 0 * parts[0]] if place == 0 else [0 * parts[0], parts[0]], axis=1)
        found.append([gates_in_order(part, order) for part in parts])
    inputs, states, biases = (np.stack(parts) for parts in zip(*found))
    return inputs, states, np.concatenate([biases[:, :, 0], 0 * biases[:, :, 0]], axis=1)


def _unroll(
    w: Writer, layer: Layer, x: Value, operator: str, parts: tuple[Any, ...], activations: list[str], **more: Any
) -> Any:
    """The operator on the steps first, and its outputs as a sequence."""
    units, steps = parts[1].shape[-1], layer.out_shape[1]
    refuse_int8(w, layer)
    turned = w.node("Transpose", [w.steps(x, from_image=True)], perm=[1, 0, 2])
    inputs = [turned, *(w.constant(name, part) for name, part in zip(("W", "R", "B"), parts))]
    both = len(parts[0]) == 2
    direction = "bidirectional" if both else "forward"
    names = activations * len(parts[0])
    y = w.node(operator, inputs, hidden_size=units, direction=direction, activations=names, **more)
    if both:
        apart = w.node("Transpose", [y], perm=[0, 2, 1, 3])
        y = w.node("Reshape", [apart, w.sizes("shape", 0, 0, -1)])
    else:
        y = w.node("Squeeze", [y, w.sizes("axes", 1)])
    return w.without_steps(w.node("Transpose", [y], perm=[1, 0, 2]), steps)


def simple(w: Writer, layer: Recurrent | BiRNN, x: Value) -> Any:
    """RNN."""
    return _unroll(w, layer, x, "RNN", _parts(layer, (0,)), [_activation(w, layer.activation)])


def lstm(w: Writer, layer: LSTM | BiLSTM, x: Value) -> Any:
    """LSTM."""
    gate, inner = _activation(w, layer.gate_activation), _activation(w, layer.activation)
    return _unroll(w, layer, x, "LSTM", _parts(layer, LSTM_GATES), [gate, inner, inner])


def gru(w: Writer, layer: GRU, x: Value) -> Any:
    """GRU; its update gate is 1 minus ours, which is the gate of negative sums."""
    if type(layer.gate_activation) is not Logistic:
        return w.refuse("its update gate is 1 minus that of ONNX, which is a gate of negative sums for Logistic alone")
    parts = _parts(layer, GRU_GATES)
    for part in parts:
        part[:, : layer.nout] *= -1
    parts[2][:, 3 * layer.nout :] = 0
    activations = ["Sigmoid", _activation(w, layer.activation)]
    return _unroll(w, layer, x, "GRU", parts, activations, linear_before_reset=0)


def reset_after(w: Writer, layer: Any, x: Value) -> Any:
    """GRU with linear_before_reset."""
    inputs, states = (layer.W_input.get(), layer.W_recur.get())
    biases = [gates_in_order(one, GRU_GATES) for one in (layer.b.get().ravel(), own_biases(layer))]
    parts = (
        gates_in_order(inputs, GRU_GATES)[None], gates_in_order(states, GRU_GATES)[None], np.concatenate(biases)[None],
    )  # fmt: skip
    return _unroll(w, layer, x, "GRU", parts, ["Sigmoid", "Tanh"], linear_before_reset=1)


def last(w: Writer, layer: RecurrentLast, x: Value) -> Any:
    """Gather of the last step."""
    return w.node("Gather", [w.steps(x, from_image=True), w.constant("last", -1, np.int64)], axis=1)


def total(w: Writer, layer: RecurrentSum, x: Value) -> Any:
    """ReduceSum over the steps."""
    return w.node("ReduceSum", [w.steps(x, from_image=True), w.sizes("axes", 1)], keepdims=0)


def mean(w: Writer, layer: RecurrentMean, x: Value) -> Any:
    """ReduceMean over the steps."""
    return w.node("ReduceMean", [w.steps(x, from_image=True)], axes=[1], keepdims=0)


def sum_of_ways(w: Writer, layer: BiSum, x: Value) -> Any:
    """A call of a function of the file: the sum of both halves of the features."""
    make = w.onnx.helper.make_node
    w.function("BiSum", ["x"], [make("Split", ["x"], ["a", "b"], axis=-1), make("Add", ["a", "b"], ["y"])])
    return w.without_steps(w.node("BiSum", [w.steps(x, from_image=True)], domain=DOMAIN), layer.nsteps)


WRITERS: dict[type, Callable[[Writer, Any, Any], Any]] = {
    Recurrent: simple,
    BiRNN: simple,
    LSTM: lstm,
    BiLSTM: lstm,
    GRU: gru,
    ResetAfterGRU: reset_after,
    RecurrentLast: last,
    RecurrentSum: total,
    RecurrentMean: mean,
    BiSum: sum_of_ways,
}
"""Class of a layer -> function that writes it."""
