"""Lower bounds of a stage's cost: bytes to read and write, and flops."""

from __future__ import annotations

import math

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg, ValueArg
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.ops import Kind


def cost(plan: Plan, graph: Graph, stage: Stage) -> tuple[int, int, int]:
    """Bytes read, bytes written and flops of ``stage``, counting each distinct input and output once.

    For ``take``, only the gathered slices of its tensor count.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    stage : Stage
    """
    here = set(stage.values)
    inputs: dict[tuple[str, int], int] = {}
    args = [arg for index in stage.values for arg in plan.values[index].args] + [s.arg for s in stage.stores]
    for arg in args:
        if isinstance(arg, LeafArg):
            leaf = graph.leaves[arg.slot]
            inputs["leaf", arg.slot] = leaf.size * leaf.dtype.itemsize
        elif isinstance(arg, ValueArg) and arg.value not in here:
            inputs["value", arg.value] = _bytes(plan, graph, arg.value)
    for value in [plan.values[index] for index in stage.values]:
        if value.spec.name == "take":
            key = _input_key(value.args[0])
            inputs[key] = min(inputs[key], _bytes(plan, graph, value.index))
    written = sum(_bytes(plan, graph, index) for index in plan.kept(stage))
    written += sum(graph.targets[s.target].size * graph.targets[s.target].dtype.itemsize for s in stage.stores)
    return sum(inputs.values()), written, sum(_flops(plan, graph, stage, index) for index in stage.values)


def _input_key(arg: Arg) -> tuple[str, int]:
    assert not isinstance(arg, NumberArg)
    return ("leaf", arg.slot) if isinstance(arg, LeafArg) else ("value", arg.value)


def _bytes(plan: Plan, graph: Graph, index: int) -> int:
    value = plan.values[index]
    return math.prod(value.source.of(graph)) * compute_dtype(value.dtype).itemsize


def _flops(plan: Plan, graph: Graph, stage: Stage, index: int) -> int:
    value = plan.values[index]
    if value.spec.kind is Kind.REDUCTION:
        return math.prod(stage.space.of(graph)) * value.spec.flops
    elements = math.prod(value.source.of(graph))
    if value.spec.kind is Kind.CONTRACTION:
        node = graph.nodes[value.node]
        elements *= node.operands[0].shape[1]
    return elements * value.spec.flops
