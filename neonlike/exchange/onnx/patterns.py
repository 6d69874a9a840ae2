"""Nodes that together are one layer: activations written out, padding before a convolution."""

from __future__ import annotations

import math

import numpy as np

from neonlike.exchange.onnx.graph import Graph, Node

STATE = "neonlike.State"
"""Operator of a node that picks the last state of a direction from the outputs of all steps."""


def fuse_gelu(graph: Graph) -> None:
    """Make one node of x / 2 · (1 + erf(x / sqrt 2)), in any order of the factors."""
    for erf in [node for node in graph.producers.values() if node.operator == "Erf"]:
        x = _of_multiple(graph, erf.data[0], math.sqrt(0.5))
        above = _reader(graph, erf, "Add")
        product = None if above is None or _number(above) != 1 else _reader(graph, above, "Mul")
        if x is None or above is None or product is None:
            continue
        other = [value for value in product.data if value != above.outputs[0]]
        if other == [x] and (half := _half(graph, product)) is not None:
            graph.fuse(half, "Gelu", x)
        elif len(other) == 1 and _of_multiple(graph, other[0], 0.5) == x:
            graph.fuse(product, "Gelu", x)
        elif not other and (last := _reader(graph, product, "Mul")) is not None and _number(product) == 0.5:
            if [value for value in last.data if value != product.outputs[0]] == [x]:
                graph.fuse(last, "Gelu", x)


def _number(node: Node) -> float | None:
    """The constant operand of a node, if it is a number."""
    found = [node.graph.constants[name] for name in node.inputs if name in node.graph.constants]
    return float(found[0].ravel()[0]) if len(found) == 1 and found[0].size == 1 else None


def _reader(graph: Graph, node: Node, operator: str) -> Node | None:
    """The node that alone reads the result, if it has this operator."""
    found = graph.consumers(node.outputs[0])
    return found[0] if len(found) == 1 and found[0].operator == operator else None


def _factor(node: Node | None) -> float | None:
    """The number by which a product or quotient multiplies its input."""
    number = None if node is None or node.operator not in ("Mul", "Div") else _number(node)
    if node is None or number is None or (node.operator == "Div" and (not number or node.inputs[0] not in node.data)):
        return None
    return number if node.operator == "Mul" else 1 / number


def _of_multiple(graph: Graph, value: str, factor: float) -> str | None:
    """The value that, times ``factor``, is ``value``."""
    node = graph.producers.get(value)
    found = _factor(node)
    return node.data[0] if node is not None and found is not None and abs(found - factor) < 1e-6 else None


def _half(graph: Graph, product: Node) -> Node | None:
    """The node that halves the result of ``product``."""
    found = graph.consumers(product.outputs[0])
    return found[0] if len(found) == 1 and abs((_factor(found[0]) or 0.0) - 0.5) < 1e-6 else None


def fold_pads(graph: Graph) -> None:
    """Give zeros around images, volumes or sequences to the convolution that alone reads them."""
    for node in [node for node in graph.producers.values() if node.operator == "Pad"]:
        read = _reader(graph, node, "Conv")
        value = graph.constants.get(node.inputs[2], 0.0) if len(node.inputs) > 2 and node.inputs[2] else 0.0
        pads = graph.constants.get(node.inputs[1]) if len(node.inputs) == 2 or len(node.inputs) == 3 else None
        if read is None or pads is None or np.any(value) or node.attribute("mode", "constant") != "constant":
            continue
        before, after = np.split(pads.ravel().astype(int), 2)
        if read.attribute("auto_pad", "NOTSET") != "NOTSET" or pads.min() < 0 or any(before[:2]) or any(after[:2]):
            continue
        own = read.attribute("pads", [0] * (len(pads) - 4))
        read.set("pads", [int(a + b) for a, b in zip(own, [*before[2:], *after[2:]])])
        graph.bypass(node, read)


def pick_states(graph: Graph) -> None:
    """Let nodes that read one last state of recurrent nodes, or of several levels, read the outputs of its steps."""
    for node in graph.nodes():
        place = _picked(graph, node)
        if place is None:
            continue
        states = _states(graph, node.data[0])
        if not states or not -len(states) <= place < len(states):
            continue
        of, direction, directions = states[place]
        graph.name_output(of)
        node.operator, node.inputs, node.data = STATE, [of.outputs[0]], [of.outputs[0]]
        node.replace_attributes(direction=direction, directions=directions)


def _picked(graph: Graph, node: Node) -> int | None:
    """The place along axis 0 that a node picks from its input."""
    if len(node.data) != 1 or node.operator not in ("Gather", "Squeeze"):
        return None
    index = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if index is None or index.size != 1 or (node.operator == "Gather" and (node.attribute("axis", 0) or index.ndim)):
        return None
    place = int(index.ravel()[0])
    if node.operator == "Squeeze":  # of one direction
        return 0 if place == 0 and len(_states(graph, node.data[0])) == 1 else None
    return place


def _states(graph: Graph, value: str) -> list[tuple[Node, int, int]]:
    """The recurrent node, direction and number of directions of each of the states along axis 0 of a value."""
    node = graph.producers.get(value)
    joins = node is not None and node.operator == "Concat" and node.attribute("axis", 0) == 0
    if node is not None and joins and len(node.data) == len(node.inputs):
        parts = [_states(graph, one) for one in node.data]
        return [state for part in parts for state in part] if all(parts) else []
    if node is None or node.operator not in ("RNN", "LSTM", "GRU") or value not in node.outputs[1:2]:
        return []
    if node.attribute("direction", "forward") == "reverse":
        return []
    directions = len(node.needed(2, "recurrent weight"))
    return [(node, place, directions) for place in range(directions)]
