"""Helpers that the stages of compiled engines share: which arrays a kernel meets, and how launches are remembered."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeVar

from neonlike.kernels.codegen.emit import Array, Kernel
from neonlike.kernels.codegen.layout import Counter, element_strides
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Stage, StageKind
from neonlike.kernels.run.stage import Run
from neonlike.optree.shapes import Shape
from neonlike.optree.show import infix

MAX_LAUNCHES = 256
"""Layouts that a stage remembers how to launch."""

Picker = Callable[[list[Any]], tuple[Any, ...]]
Found = TypeVar("Found")


def remember(launches: dict[Any, Found], key: Any, launch: Found) -> Found:
    """Keep ``launch`` as that of ``key`` and return it; all others are forgotten where there are too many.

    Parameters
    ----------
    launches : dict
        Changed in place.
    key : hashable
    launch : object
    """
    if len(launches) >= MAX_LAUNCHES:
        launches.clear()
    launches[key] = launch
    return launch


def picker(slots: list[int]) -> Picker:
    """The function that takes what lies at ``slots`` out of a list."""
    if len(slots) > 1:
        return itemgetter(*slots)
    return itemgetter(slice(slots[0], slots[0] + 1)) if slots else lambda _: ()


def expression_text(graph: Graph) -> str:
    """The expression that ``graph`` computes, for people."""
    if not graph.text:
        roots = [graph.nodes[r] for r in graph.roots if 0 <= r < len(graph.nodes)]
        graph.text = "; ".join(infix(root) for root in roots)[:400] or "copy"
    return graph.text


def is_flat(kernel: Kernel, stage: Stage, graph: Graph) -> bool:
    """True if ``kernel``, which touches tensors alone, maps arrays contiguous over the whole space or of one element.

    The plan's key says so. In C a launch then depends on a target's shape alone; in CUDA also on alignment.

    Parameters
    ----------
    kernel : Kernel
    stage : Stage
    graph : Graph
    """
    if stage.kind is not StageKind.ELEMENTWISE:
        return False
    single = [array for array in kernel.inputs if math.prod(array.shape) == 1]
    return all(
        array.shape == stage.shape and array.perm is None and tensors[array.index].is_contiguous
        for arrays, tensors in ((kernel.inputs, graph.leaves), (kernel.outputs, graph.targets))
        for array in arrays
        if array not in single
    )


def input_array(kernel: Kernel, run: Run, array: Array) -> Any:
    """The memory that ``kernel`` reads as ``array`` in ``run``.

    Parameters
    ----------
    kernel : Kernel
    run : Run
    array : Array
    """
    if array.kind == "counter":
        return _counter(kernel, run.graph, array.index)
    found = run.graph.leaves[array.index].array if array.kind == "leaf" else run.temps[array.index]
    return found if array.perm is None else found.transpose(array.perm)


def _counter(kernel: Kernel, graph: Graph, index: int) -> Counter:
    value = kernel.plan.values[index]
    shape: Shape = value.source.of(graph)
    if value.spec.name == "onehot":
        return Counter(shape, [int(axis in value.axes) for axis in range(len(shape))])
    return Counter(shape, element_strides(shape, value.perm))
