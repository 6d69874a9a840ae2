"""Execution of a stage on host copies by the NumPy engine, for stages without a device kernel.

:class:`HostStage` replaces one stage of an engine with temporaries on the device: every input tensor is copied to the
host, the NumPy engine runs, and the targets are copied back at the end, if everything succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from neonlike.backends.gpu.memory.array import contiguous_array
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.kernels.run.stage import ExecutableStage, Layouts, Run
from neonlike.optree.npfuncs import Array
from neonlike.optree.shapes import Shape


class Shadow:
    """A device tensor with the attributes that the NumPy engine needs; its host copy is made on first read.

    Shadows share no memory, and need not: a plan never writes a target before reading everything that overlaps it.
    """

    root: None = None

    def __init__(self, device: Any, tensor: Any) -> None:
        self.device, self.tensor = device, tensor
        self.shape: Shape = tensor.shape
        self.dtype = tensor.dtype
        self.plan_key: int = tensor.plan_key

    @cached_property
    def array(self) -> Array:
        """A host copy."""
        array: Array = self.device.to_host(self.tensor.array)
        return array

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.tensor.size)

    def alias_of(self, other: Any) -> int:
        """1 if ``other`` is this shadow, else 0."""
        return int(other is self)


class Target(Shadow):
    """A tensor that is only written: its initial elements are undefined."""

    @cached_property
    def array(self) -> Array:
        """Host memory that the stage writes."""
        return np.empty(self.shape, self.dtype)

    def store(self) -> None:
        """Copy the elements to the device."""
        self.device.from_host(self.array, self.tensor.array)


class _Temporaries(dict[int, Any]):
    """Host copies of a device run's temporaries, made on first read."""

    def __init__(self, device: Any, on_device: dict[int, Any]) -> None:
        super().__init__()
        self._device, self._on_device = device, on_device

    def __missing__(self, index: int) -> Array:
        array: Array = self._device.to_host(self._on_device[index])
        self[index] = array
        return array


def shadow(device: Any, graph: Graph) -> Graph:
    """Wrap ``graph`` in host copies, which are made later."""
    made = Graph([Target(device, target) for target in graph.targets])
    made.nodes, made.args, made.numbers = graph.nodes, graph.args, graph.numbers
    made.roots, made.sized, made.key = graph.roots, graph.sized, graph.key
    made.leaves = [Shadow(device, leaf) for leaf in graph.leaves]
    return made


class HostStage(ExecutableStage):
    """One stage of a plan run by the NumPy engine, for an engine with arrays on a device.

    Parameters
    ----------
    device : Device
    position : int
        Position of the stage in the plan.
    """

    def __init__(self, device: Any, plan: Plan, position: int, graph: Graph) -> None:
        self.device = device
        self.stage: Stage = plan.stages[position]
        self.on_host = NumpyEngine().stage(plan, position, shadow(device, graph))

    def run(self, run: Run) -> None:
        """Execute the stage on the arrays of ``run``, with temporaries on the device."""
        graph = shadow(self.device, run.graph)
        host_run = Run(graph)
        on_device = run.temps
        host_run.temps = temps = _Temporaries(self.device, on_device)
        with np.errstate(all="ignore"):
            self.on_host.run(host_run)
        for index, host in temps.items():
            if index not in on_device:
                on_device[index] = self._upload(host)
        for store in self.stage.stores:
            if not store.buffered:
                graph.targets[store.target].store()

    def bind(self, run: Run) -> Callable[[], None] | None:
        """None: tensors are copied to the host anew each time."""
        return None

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Empty: NumPy computes it."""
        return self.on_host.sources(layouts)

    def _upload(self, host: Array) -> Any:
        block = self.device.allocate(max(host.nbytes, 1))
        array = contiguous_array(block, block.address, host.shape, host.dtype)
        self.device.from_host(host, array)
        return array
