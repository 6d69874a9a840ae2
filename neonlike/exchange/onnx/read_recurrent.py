"""Layers of ONNX's recurrent operators, and of reductions over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange.onnx.functions import backward
from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.read_images import whole_maps
from neonlike.exchange.onnx.reader import Layers, Read, Reader
from neonlike.exchange.onnx.write_recurrent import ACTIVATIONS, GRU_GATES, LSTM_GATES
from neonlike.exchange.torch_layers import gates_in_order, split_biases
from neonlike.initializers import Constant
from neonlike.layers.container import MergeBroadcast
from neonlike.layers.core.lambdas import Lambda
from neonlike.layers.core.structure import Reshape
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
from neonlike.transforms import Logistic, Tanh

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

ZERO = Constant(0.0)
NAMED = {name: transform for transform, name in ACTIVATIONS.items()}


def _parts(node: Node, order: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The parts of our weight, with suffixes for two directions; biases are added up."""
    inputs, states = node.needed(1, "weight"), node.needed(2, "recurrent weight")
    biases = node.constant(3, "bias")
    ways = ("",) if len(inputs) == 1 else ("_f", "_b")
    found = {}
    for place, way in enumerate(ways):
        rows = inputs.shape[1]
        bias = np.zeros(rows, inputs.dtype) if biases is None else biases[place, :rows] + biases[place, rows:]
        for name, part in (("W_input", inputs[place]), ("W_recur", states[place]), ("b", bias)):
            found[f"{name}{way}"] = gates_in_order(part, order)
    return found


def _whole(parts: dict[str, np.ndarray], gates: int) -> np.ndarray:
    """The weight ``W``: its parts in the order of layers."""
    ways = ("_f", "_b") if "b_f" in parts else ("",)
    names = [f"{name}{way}" for name in ("W_input", "W_recur", "b") for way in ways]
    columns = len(parts[names[0]])
    assert columns % gates == 0
    return np.concatenate([parts[name].ravel() for name in names]).reshape(-1, columns)


def _checked(node: Node, flow: Flow, activations: int, **more: Any) -> tuple[Any, list[Any]]:
    """The attributes, and the activations of the first direction, which those of the second must equal."""
    own = node.attributes(direction="forward", hidden_size=0, activations=None, layout=0, **more)
    if own.layout:
        node.refuse("its attribute layout=1 cannot be read; steps must come first")
    if flow.form != "time":
        node.refuse(f"its input must be (steps, N, features), not {flow.form} {flow.shape}")
    for place in range(4, len(node.inputs)):
        if node.inputs[place] and np.any(node.needed(place, "lengths or first state")):
            node.refuse(f"its input {place}, lengths, a first state or peepholes, cannot be read")
    ways = 2 if own.direction == "bidirectional" else 1
    default = ["Tanh"] if activations == 1 else ["Sigmoid", "Tanh", "Tanh"][:activations]
    names = list(own.activations or default * ways)
    if any(name not in NAMED for name in names) or names != names[:activations] * ways:
        node.refuse(f"its attribute activations={names} cannot be read; known are {', '.join(NAMED)}")
    return own, [NAMED[name]() for name in names[:activations]]


def _result(node: Node, flow: Flow, layer: Layer, units: int, own: Any) -> tuple[Layers, Flow]:
    """The layer and the form of its outputs: of all steps, or of the last one alone."""
    both = own.direction == "bidirectional"
    turns = own.direction == "reverse"
    used = [name for name in node.outputs if name and _is_read(node, name)]
    if used == node.outputs[1:2] and not both:
        return [*_turned(turns), layer, RecurrentLast()], Flow((units,), "final")
    if used in (node.outputs[:1], []):
        return [*_turned(turns), layer, *_turned(turns)], Flow(((1 + both) * units, flow.shape[1]), "ways")
    return node.refuse(  # type: ignore[no-any-return]
        "its outputs other than Y, and single states of Y_h, cannot be read; pick states with Gather along axis 0"
    )


def _turned(turns: bool) -> Layers:
    return [Lambda(backward)] if turns else []


def _is_read(node: Node, name: str) -> bool:
    return bool(node.graph.consumers(name)) or name == node.graph.output.name


def simple(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Recurrent or BiRNN."""
    own, (activation,) = _checked(node, flow, 1)
    both = own.direction == "bidirectional"
    parts = _parts(node, (0,))
    units = node.needed(2, "recurrent weight").shape[-1]
    layer = (BiRNN if both else Recurrent)(units, ZERO, activation=activation, reset_cells=True)
    return _result(node, flow, reader.holding(layer, W=_whole(parts, 1)), units, own)


def lstm(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """LSTM or BiLSTM."""
    own, (gate, candidate, output) = _checked(node, flow, 3, input_forget=0)
    if own.input_forget or type(candidate) is not type(output):
        node.refuse("input_forget=1, or two activations of the cell, cannot be read")
    both = own.direction == "bidirectional"
    parts = _parts(node, LSTM_GATES)
    units = node.needed(2, "recurrent weight").shape[-1]
    kind = BiLSTM if both else LSTM
    layer = kind(units, ZERO, activation=output, gate_activation=gate, reset_cells=True)
    return _result(node, flow, reader.holding(layer, W=_whole(parts, 4)), units, own)


def gru(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """GRU, whose update gate is 1 minus ONNX's; or ResetAfterGRU; two of them side by side for both directions."""
    own, (gate, activation) = _checked(node, flow, 2, linear_before_reset=0)
    if NAMED["Sigmoid"] is not type(gate):
        node.refuse(f"its attribute activations={own.activations} cannot be read; the gates must be Sigmoid")
    units = node.needed(2, "recurrent weight").shape[-1]
    make = _reset_after if own.linear_before_reset else _reset_before
    if own.direction != "bidirectional":
        return _result(node, flow, make(reader, node, units, activation, ""), units, own)
    first, second = (make(reader, node, units, activation, way) for way in ("_f", "_b"))
    both = MergeBroadcast([[first], [*_turned(True), second, *_turned(True)]], "depth")
    return _result(node, flow, both, units, own)


def _reset_before(reader: Reader, node: Node, units: int, activation: Any, way: str) -> Any:
    """The layer of one direction, ``"_f"`` or ``"_b"`` of two, of a GRU without linear_before_reset."""
    parts = {name: part for name, part in _parts(node, GRU_GATES).items() if name.endswith(way)}
    for part in parts.values():
        part[units : 2 * units] *= -1  # the rows of the gate z, in the order r, z, n
    layer = GRU(units, ZERO, activation=activation, gate_activation=Logistic(), reset_cells=True)
    return reader.holding(layer, W=_whole({name.removesuffix(way): part for name, part in parts.items()}, 3))


def _reset_after(reader: Reader, node: Node, units: int, activation: Any, way: str) -> Any:
    """The layer of one direction, ``"_f"`` or ``"_b"`` of two, of a GRU with linear_before_reset."""
    if type(activation) is not Tanh:
        node.refuse("its attribute activations of linear_before_reset=1 cannot be read, only Sigmoid and Tanh")
    row = int(way == "_b")
    weights = [gates_in_order(node.needed(place, "weight")[row], GRU_GATES) for place in (1, 2)]
    biases = node.constant(3, "bias")
    both = np.zeros(6 * units, weights[0].dtype) if biases is None else biases[row]
    parts = split_biases(*(gates_in_order(one, GRU_GATES) for one in (both[: 3 * units], both[3 * units :])))
    return reader.holding(ResetAfterGRU(units, ZERO), W_input=weights[0], W_recur=weights[1], **parts)


def _reduction(layer: type | None, op: str) -> Read:
    """Reader of a reduction over the steps of a sequence, or over the pixels of maps.

    Parameters
    ----------
    layer : type, optional
        That of a reduction over the steps; None: they are pooled as an image's pixels.
    op : str
        Kind of pooling; empty if there is none.
    """

    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        own = node.attributes(axes=None, keepdims=1, noop_with_empty_axes=0)
        listed = node.constant(1, "axes")
        axes = sorted(axis % (1 + len(flow.shape)) for axis in (own.axes or ([] if listed is None else listed.ravel())))
        of_steps = {"steps": 1, "time": 0, "plain": 2 if len(flow.shape) == 2 else -1}.get(flow.form, -1)
        if axes == [of_steps] and not own.keepdims:
            return _over_steps(layer, op, flow), Flow(flow.shape[:1])
        whole = [1, 2] if flow.form == "maps last" else list(range(2, 1 + len(flow.shape)))
        if op and flow.form in ("plain", "maps last") and len(flow.shape) > 2 and axes == whole:
            layers = [whole_maps(op, flow)]
            if own.keepdims:
                return layers, flow._replace(shape=(flow.shape[0], *[1] * len(whole)))
            return [*layers, Reshape(flow.shape[:1])], Flow(flow.shape[:1])
        return node.refuse(  # type: ignore[no-any-return]
            f"its axes={axes}, keepdims={own.keepdims} of {flow.form} {flow.shape} cannot be read, only the steps of a "
            "sequence without keepdims, and all pixels"
        )

    return read


def _over_steps(layer: type | None, op: str, flow: Flow) -> Layers:
    if layer is not None:
        return [layer()]
    line = (flow.shape[0], 1, flow.shape[1])
    return [Reshape(line), whole_maps(op, Flow(line)), Reshape(flow.shape[:1])]


def sum_of_ways(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The function that this library writes for BiSum."""
    return [BiSum()], flow._replace(shape=(flow.shape[0] // 2, *flow.shape[1:]))


READERS: dict[str, Read] = {
    "RNN": simple,
    "LSTM": lstm,
    "GRU": gru,
    "ReduceSum": _reduction(RecurrentSum, ""),
    "ReduceMean": _reduction(RecurrentMean, "avg"),
    "ReduceMax": _reduction(None, "max"),
    "neonlike.BiSum": sum_of_ways,
}
"""Operator -> its reader."""
