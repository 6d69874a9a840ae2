"""Layers made of a graph of ONNX, by tables of readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange.onnx.graph import Flow, Graph, Node
from neonlike.layers.container import LayerContainer
from neonlike.layers.core.structure import SkipNode

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

Layers = list[Any]
Read = Callable[["Reader", Node, Flow], tuple[Layers, Flow]]
"""Function of (reader, node, form of its input) that returns the node's layers and the form of its output."""
Join = Callable[["Reader", Node, Flow, list[tuple[Layers, Flow]]], tuple[Layers, Flow]]
"""As :data:`Read`, for a node that joins branches, with the layers of each and the form of its result."""


class Reader:
    """Makes layers of nodes.

    Attributes
    ----------
    weights : list of (layer, dict)
        Layers made so far, with the values of their parameters.
    """

    def __init__(self, graph: Graph, readers: Mapping[str, Read], joins: Mapping[str, Join]) -> None:
        self.graph, self.readers, self.joins = graph, readers, joins
        self.weights: list[tuple[Any, dict[str, np.ndarray]]] = []
        self._read: set[int] = set()

    def holding(self, layer: Layer, **params: np.ndarray) -> Any:
        """Note the values of a layer's parameters; return the layer."""
        self.weights.append((layer, params))
        return layer

    def layers(self, start: str, end: str, flow: Flow) -> tuple[Layers, Flow]:
        """The layers that compute one value from another, and the form of the result."""
        found: Layers = []
        for node in self.graph.way(start, end):
            if id(node) in self._read:
                node.refuse(
                    "its result is read by branches that do not end at one place, which layers cannot say; write this "
                    "network with variables (docs/autograd.md)"
                )
            self._read.add(id(node))
            made, flow = self._one(node, flow)
            found += made
        return found, flow

    def _one(self, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        if len(node.data) > 1 and node.operator in self.joins:
            start = self.graph.dominator(node)
            branches = [self.layers(start, end, flow) for end in node.data]
            return self.joins[node.operator](self, node, flow, branches)
        reader = self.readers.get(node.operator)
        if reader is None or len(node.data) > 1:
            reason = "no layer is made of this operator" if reader is None else "it has several computed inputs"
            reason += "; docs/exchange.md lists what can be read. Write this network of layers, and load its weights"
            return node.refuse(reason)  # type: ignore[no-any-return]
        return reader(self, node, flow)


def chain(layers: Layers) -> Layers:
    """The layers, behind a layer with an output of its own if the first works in place."""
    if layers and (layers[0].owns_output or isinstance(layers[0], LayerContainer)):
        return layers
    return [SkipNode(), *layers]
