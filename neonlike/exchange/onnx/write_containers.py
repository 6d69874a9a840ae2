"""Containers, junctions and reshaping as ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neonlike.exchange.onnx.writer import Value, Writer, plain
from neonlike.layers.container import MergeBroadcast, MergeMultistream, MergeSum, Sequential, SingleOutputTree, Tree
from neonlike.layers.core.structure import BranchNode, Reshape, SkipNode


def sequential(w: Writer, layer: Sequential, x: Any) -> Any:
    """All layers, one after the other."""
    for place, inner in enumerate(layer.layers):
        x = w.write(inner, x, place)
    return x


def branch_node(w: Writer, layer: BranchNode, x: Any) -> Any:
    """A name for the value at the junction; a branch that starts there gives none."""
    if x is not None:
        w.places[id(layer)] = x
    return w.places[id(layer)].name


def skip(w: Writer, layer: SkipNode, x: Value) -> Any:
    """No node: the input itself."""
    return x.name


def reshape(w: Writer, layer: Reshape, x: Value) -> Any:
    """Reshape or Flatten."""
    return w.reshaped(x, plain(layer.out_shape))


def merge_sum(w: Writer, layer: MergeSum, x: Value) -> Any:
    """Add, or Sum of more branches."""
    found = [w.write(branch, x, place) for place, branch in enumerate(layer.layers)]
    shape = plain(layer.out_shape)
    return w.node("Add" if len(found) == 2 else "Sum", [w.reshaped(y, shape) for y in found])


def merge_broadcast(w: Writer, layer: MergeBroadcast | MergeMultistream, x: Any) -> Any:
    """Concat."""
    inputs = x if isinstance(layer, MergeMultistream) else [x] * len(layer.layers)
    found = [w.write(branch, given, place) for place, (branch, given) in enumerate(zip(layer.layers, inputs))]
    shape = plain(layer.out_shape)
    if layer.merge == "stack":
        return w.node("Concat", [w.reshaped(y, (math.prod(y.shape),)) for y in found], axis=1)
    if layer.merge == "recurrent":
        joined = w.node("Concat", [w.steps(y) for y in found], axis=1)
        return w.without_steps(joined, layer.out_shape[1])
    return w.node("Concat", found, axis=2 if len(shape) == 2 else 1)


def tree(w: Writer, layer: Tree, x: Any) -> Any:
    """All branches, each with an output."""
    return [w.write(branch, None if place else x, place) for place, branch in enumerate(layer.layers)]


def trunk(w: Writer, layer: SingleOutputTree, x: Any) -> Any:
    """The trunk alone, as in inference."""
    return w.write(layer.layers[0], x, 0)


WRITERS: dict[type, Callable[[Writer, Any, Any], Any]] = {
    Sequential: sequential,
    MergeSum: merge_sum,
    MergeBroadcast: merge_broadcast,
    MergeMultistream: merge_broadcast,
    Tree: tree,
    SingleOutputTree: trunk,
    BranchNode: branch_node,
    SkipNode: skip,
    Reshape: reshape,
}
"""Class of a layer -> function that writes it."""
