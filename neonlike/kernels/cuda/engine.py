"""The CUDA engine: each stage of a plan becomes kernels of a device, queued in order on its stream.

A stage is compiled for a layout when it first meets it, the stages of a plan in parallel. Before anything of a run is
queued, the memory of all its stages is allocated and their kernels compiled: a run that fails leaves its targets as
they were. Stages without a kernel run through the device's ``fallback``: slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda.barriers import make_barrier
from neonlike.kernels.cuda.copies import Copier
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.gemm import Gemm
from neonlike.kernels.cuda.stage import CudaStage, in_turn
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.ahead import CompilesAhead
from neonlike.kernels.run.arrays import expression_text
from neonlike.kernels.run.call_stage import CallStage
from neonlike.kernels.run.stage import CopyBack, Run, StageFunction, buffer_key
from neonlike.logger import logger
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

Fallback = Callable[[Plan, int, Graph], Any]
"""(plan, position, graph) -> an object whose ``run(run)`` executes that stage, its temporaries on the device."""


class Product(Protocol):
    """What multiplies matrices: a library's, or our own (see :class:`~neonlike.kernels.cuda.gemm.Gemm`)."""

    def ready(self, a: Any, b: Any, out: Any, dtype: DType) -> Callable[[], None] | None:
        """A callable that queues ``out[...] = a @ b``, summed in ``dtype``; None if it does not take such arrays."""
        ...


class CudaEngine(CompilesAhead):
    """Runs plans on a device.

    Parameters
    ----------
    device : Device
    fallback : callable
        Makes what runs a stage that has no kernel.
    draws : callable
        ``draws(n)`` gives the key of the random stream and n numbers of calls that nothing else uses.
    product : Product, optional
        Asked first for each matrix product; what it does not take, our own kernel does.
    """

    name = "cuda"

    def __init__(
        self,
        device: Device,
        fallback: Fallback,
        draws: Callable[[int], list[int]],
        product: Product | None = None,
    ) -> None:
        self.device, self.fallback, self.draws = device, fallback, draws
        self.copier = Copier(self)
        self.gemm = Gemm(device)
        self.products: list[Product] = [self.gemm] if product is None else [product, self.gemm]

    def compile(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """One function a stage; kept on the plan, once all are made, for other threads to find."""
        made = plan.engine[self.name] = self.stage_functions(plan, graph)
        return made

    def stage_functions(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """One function a stage, and the copies that end a run."""
        made: list[StageFunction] = []
        for position, stage in enumerate(plan.stages):
            fallback = _Fallback(self, plan, position, graph)
            if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE):
                made.append(CudaStage(self, plan, stage, graph, fallback).run)
            elif stage.kind is StageKind.CALL:
                made.append(CallStage(plan, stage, graph).run)
            else:
                made.append(make_barrier(self, plan, stage, graph, expression_text(graph)).run)
        stores = [store for stage in plan.stages for store in stage.stores if store.buffered]
        return made + [DeviceCopyBack(self, store.target).run for store in stores]

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``; returns when all is queued."""
        stages: Any = plan.engine.get(self.name) or self.start(plan, graph)
        run = Run(graph)
        if len(stages) > 1 and all(hasattr(stage.__self__, "ready") for stage in stages):
            in_turn([stage.__self__.ready(run) for stage in stages])
            return
        for stage in stages:
            stage(run)

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether the module of ``kernel`` is in the cache."""
        return compile_cuda.is_built(kernel, self.device.capabilities.arch)

    def build(self, kernel: KernelSource) -> object:
        """The module of ``kernel``, not loaded: that takes the caller's thread."""
        return compile_cuda.build_cubin(kernel, self.device.capabilities.arch)

    def empty(self, shape: Shape, dtype: DType) -> Any:
        """A contiguous array in new memory, its contents undefined."""
        strides, step = [], dtype.itemsize
        for size in reversed(shape):
            strides.append(step)
            step *= size
        memory = self.device.allocate(max(step, 1))
        return self.device.view(memory, memory.address, shape, tuple(reversed(strides)), dtype)

    def copy(self, source: Any, target: Any, digits: int = 0) -> None:
        """Queue ``target[...] = source``; see :meth:`Copier.ready`."""
        self.copier.ready(source, target, digits)()

    def ready_product(self, a: Any, b: Any, out: Any, dtype: DType) -> Callable[[], None]:
        """A callable that queues ``out[...] = a @ b``, summed in ``dtype``."""
        for product in self.products:
            call = product.ready(a, b, out, dtype)
            if call is not None:
                return call
        raise AssertionError("our own kernel takes every product")

    def note_fallback(self, stage: Stage) -> None:
        """Say that a stage has no kernel here."""
        logger.debug("cuda engine: stage %d (%s) runs on host copies", stage.index, stage.reason)


class _Fallback:
    """A stage by the device's fallback, made when it is first needed."""

    def __init__(self, engine: CudaEngine, plan: Plan, position: int, graph: Graph) -> None:
        self.made: Any = None
        self.engine, self.plan, self.position = engine, plan, position

    def run(self, run: Run) -> None:
        """Execute the stage."""
        if self.made is None:
            self.made = self.engine.fallback(self.plan, self.position, run.graph)
        self.made.run(run)


class DeviceCopyBack(CopyBack):
    """The end of a run for a target that was still read: its values move from the array that stood in for it."""

    def __init__(self, engine: CudaEngine, target: int) -> None:
        super().__init__(target)
        self.engine = engine

    def run(self, run: Run) -> None:
        """Queue the copy."""
        self.bind(run)()

    def ready(self, run: Run) -> Callable[[], None]:
        """A callable that queues the copy."""
        if buffer_key(self.target) not in run.temps:  # a fallback makes it
            return partial(self.run, run)
        return self.bind(run)

    def bind(self, run: Run) -> Callable[[], None]:
        """The copy on the arrays of ``run``."""
        return self.engine.copier.ready(run.temps[buffer_key(self.target)], run.graph.targets[self.target].array)
