"""A graph of ONNX as it is read: nodes with their attributes and constants, and the way from one value to another."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from neonlike.checks import brief
from neonlike.errors import NotDefined
from neonlike.exchange.onnx.constants import folded, shapes_of
from neonlike.exchange.onnx.library import DOMAIN


class Flow(NamedTuple):
    """The form of a value of the graph.

    Attributes
    ----------
    shape : tuple of int
        Of a sample: features; (features, steps); (C, H, W) ...
    form : str
        ``"plain"``: (N, *shape). Of images with the channels last: ``"maps last"``, (N, H, W, C). Of a sequence:
        ``"steps"``: (N, steps, features), ``"time"``: (steps, N, features), ``"ways"``: (steps, directions, N, units),
        ``"by way"``: (steps, N, directions, units). ``"final"``, the last states: (directions, N, units).
    """

    shape: tuple[int, ...]
    form: str = "plain"


class Node:
    """A node of the graph.

    Attributes
    ----------
    operator, name : str
    inputs, outputs : list of str
        Empty names stand for what is left out.
    data : list of str
        The inputs that are computed from the graph's input, not constants.
    """

    def __init__(self, graph: Graph, proto: Any) -> None:
        self.graph = graph
        self.operator = str(proto.op_type)
        if proto.domain == DOMAIN:  # the name of a function of this library tells sizes behind the layer's class
            self.operator = f"{DOMAIN}.{self.operator.partition('_')[0]}"
        elif proto.domain not in ("", "ai.onnx"):
            self.operator = f"{proto.domain}.{self.operator}"
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.name = proto.name or (self.outputs[0] if self.outputs else "")
        self.data = [name for name in self.inputs if name and name not in graph.constants]
        self._attributes = {one.name: graph.onnx.helper.get_attribute_value(one) for one in proto.attribute}

    def __str__(self) -> str:
        return f"node {self.name!r}, operator {self.operator}"

    def refuse(self, reason: str) -> Any:
        """Raise NotDefined for this node."""
        raise NotDefined(f"from_onnx: {self}: {reason}")

    def attributes(self, **defaults: Any) -> SimpleNamespace:
        """The attributes, each with its default.

        Raises
        ------
        NotDefined
            If the node has another one.
        """
        for name, value in self._attributes.items():
            if name not in defaults:
                self.refuse(f"its attribute {name}={brief(_text(value))} cannot be read")
        return SimpleNamespace(**{**defaults, **{name: _text(value) for name, value in self._attributes.items()}})

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute."""
        return _text(self._attributes.get(name, default))

    def set(self, name: str, value: Any) -> None:
        """Give an attribute another value."""
        self._attributes[name] = value

    def replace_attributes(self, **values: Any) -> None:
        """Give the node these attributes in place of its own."""
        self._attributes = values

    def require(self, **values: Any) -> None:
        """Raise NotDefined unless the attributes have these values or are left out."""
        for name, wanted in values.items():
            found = _text(self._attributes.pop(name, wanted))
            if found != wanted:
                self.refuse(f"its attribute {name}={brief(found)} cannot be read, only {wanted!r}")

    def constant(self, place: int, what: str) -> Any:
        """The constant input at a place; None if it is left out.

        Raises
        ------
        NotDefined
            If it is computed from the input.
        """
        if place >= len(self.inputs) or not self.inputs[place]:
            return None
        found = self.graph.constants.get(self.inputs[place])
        if found is None:
            self.refuse(f"its {what}, input {place}, is computed in the graph; it must be a constant")
        return found

    def needed(self, place: int, what: str) -> np.ndarray:
        """The constant input at a place.

        Raises
        ------
        NotDefined
            If it is left out or computed from the input.
        """
        found = self.constant(place, what)
        return self.refuse(f"its {what}, input {place}, is missing") if found is None else found  # type: ignore[no-any-return]


def _text(value: Any) -> Any:
    """An attribute's value with texts in place of bytes, and lists of numbers as lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value


class Graph:
    """Nodes, constants and dominators of a graph with one input and one output.

    The dominator of a value is the last value before it that all ways from the input lead through: between the two are
    the branches that a node joins.

    Attributes
    ----------
    constants : dict
        Name -> array.
    producers : dict
        Name of a value -> its node.
    input, output : ValueInfoProto
    batch : int
        Number of samples that shapes in the graph were computed with.
    opset : int
        Version of ONNX's own operators.
    """

    def __init__(self, onnx: Any, model: Any, where: Any) -> None:
        proto = model.graph
        self.onnx, self.where = onnx, where
        self._opsets = {one.domain: one.version for one in model.opset_import}
        self.opset = int(self._opsets.get("", self._opsets.get("ai.onnx", 1)))
        self.constants = {one.name: onnx.numpy_helper.to_array(one) for one in proto.initializer}
        inputs = [one for one in proto.input if one.name not in self.constants]
        for kind, found in (("inputs", inputs), ("outputs", list(proto.output))):
            if len(found) != 1:
                names = ", ".join(one.name for one in found)
                raise NotDefined(
                    f"from_onnx: {where} has {len(found)} {kind} ({names}); a graph with one can be read. "
                    "Cut a part out with onnx.utils.extract_model"
                )
        self.input, self.output = inputs[0], proto.output[0]
        self.batch, self._shapes = shapes_of(onnx, model, self.input.name)
        self.producers: dict[str, Node] = {}
        self._dominators: dict[str, str | None] = {self.input.name: None}
        for one in proto.node:
            self._add(one)
        if self.output.name not in self._dominators:
            raise NotDefined(f"from_onnx: {where}: the output {self.output.name!r} does not depend on the input")

    def _add(self, proto: Any) -> None:
        node = Node(self, proto)
        if node.operator == "Shape" and node.inputs[0] in self._shapes:
            own = node.attributes(start=0, end=None)
            self.constants[node.outputs[0]] = np.array(self._shapes[node.inputs[0]][own.start : own.end], np.int64)
            return
        if not node.data:
            self.constants[node.outputs[0]] = folded(self.onnx, node, proto, self._opsets, self.constants)
            return
        for output in filter(None, node.outputs):
            self.producers[output] = node
        self._dominate(node)

    def _dominate(self, node: Node) -> None:
        """Find the dominator of a node's outputs, which those of its inputs are known for."""
        dominator = node.data[0]
        for other in node.data[1:]:
            dominator = self._common(dominator, other)
        self._dominators.update(dict.fromkeys(filter(None, node.outputs), dominator))

    def nodes(self) -> list[Node]:
        """All nodes, in an order in which each is behind those that it reads."""
        return list({id(node): node for node in self.producers.values()}.values())

    def name_output(self, node: Node) -> None:
        """Give the first output of a node a name, if it was left out."""
        if not node.outputs[0]:
            node.outputs[0] = f"{node.name} of all"
            found: dict[str, Node] = {}
            for name, one in self.producers.items():
                found.update({node.outputs[0]: node, name: node} if one is node else {name: one})
            self.producers = found

    def settle(self) -> None:
        """Forget nodes that the output does not need, once patterns were replaced, and find dominators anew."""
        needed, open_ends = set(), [self.output.name]
        while open_ends:
            node = self.producers.get(open_ends.pop())
            if node is not None and id(node) not in needed:
                needed.add(id(node))
                open_ends += node.data
        self.producers = {name: node for name, node in self.producers.items() if id(node) in needed}
        self._dominators = {self.input.name: None}
        for node in self.nodes():
            self._dominate(node)

    def _before(self, value: str | None) -> Iterator[str]:
        """The value and its dominators, up to the input."""
        while value is not None:
            yield value
            value = self._dominators[value]

    def fuse(self, node: Node, operator: str, x: str) -> None:
        """Let a node compute another operator, of a value that all ways to it lead through."""
        node.operator, node.inputs, node.data, node._attributes = operator, [x], [x], {}

    def bypass(self, node: Node, reader: Node) -> None:
        """Let the only reader of a node read that node's input instead."""
        (x,) = node.data
        old = node.outputs[0]
        reader.inputs = [x if name == old else name for name in reader.inputs]
        reader.data = [x if name == old else name for name in reader.data]
        del self.producers[old]

    def _common(self, one: str, other: str) -> str:
        """The last value that both depend on through all their ways."""
        before = set(self._before(other))
        return next(value for value in self._before(one) if value in before)

    def dominator(self, node: Node) -> str:
        """The last value before a node that all ways to it lead through."""
        return str(self._dominators[next(filter(None, node.outputs))])

    def way(self, start: str, end: str) -> list[Node]:
        """The nodes from one value to another that it dominates; branches between them are inside of their join."""
        found = []
        while end != start:
            node = self.producers[end]
            found.append(node)
            end = node.data[0] if len(node.data) == 1 else self.dominator(node)
        return found[::-1]

    def consumers(self, value: str) -> list[Node]:
        """The nodes that read a value."""
        nodes = {id(node): node for node in self.producers.values() if value in node.inputs}
        return list(nodes.values())
