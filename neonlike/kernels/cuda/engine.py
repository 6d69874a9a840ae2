"""The CUDA engine: each stage of a plan becomes device kernels, queued in order on the stream.

A stage is compiled for a layout at its first use, the stages of a plan in parallel. Before anything of a run is queued,
the memory of all its stages is allocated and their kernels are compiled: a failing run leaves its targets unchanged.
Stages without a kernel run through the engine's ``fallback``: slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda.device_stages import make_device_stage
from neonlike.kernels.cuda.queue import DeviceRun, Queue
from neonlike.kernels.cuda.stage import CudaStage
from neonlike.kernels.cuda.step import Call, in_turn
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, StageKind
from neonlike.kernels.run.ahead import CompilesAhead
from neonlike.kernels.run.arrays import expression_text
from neonlike.kernels.run.call_stage import CallStage
from neonlike.kernels.run.program import Program
from neonlike.kernels.run.stage import CopyBack, ExecutableStage, Run, buffer_key

Fallback = Callable[[Plan, int, Graph], ExecutableStage]
"""(plan, position, graph) -> executable stage without a kernel, with temporaries on the device."""


class CudaEngine(CompilesAhead):
    """Runs plans on a device.

    Parameters
    ----------
    queue : Queue
    fallback : callable
        Creates the executable of a stage that has no kernel.
    """

    name = "cuda"
    repeats = True

    def __init__(self, queue: Queue, fallback: Fallback) -> None:
        self.queue, self.fallback = queue, fallback

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """The stage at ``position`` as CUDA kernels; see ``Engine.stage``.

        Parameters
        ----------
        plan, position, graph
            As of ``Engine.stage``.
        """
        stage = plan.stages[position]
        if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE):
            return CudaStage(self.queue, plan, stage, graph, partial(self.fallback, plan, position))
        if stage.kind is StageKind.CALL:
            return CallStage(plan, stage, graph)
        return make_device_stage(self.queue, plan, stage, graph, expression_text(graph))

    def copy_back(self, target: int) -> ExecutableStage:
        """The final copy of a run on the device; see ``Engine.copy_back``."""
        return DeviceCopyBack(self.queue, target)

    def new_run(self, graph: Graph) -> Run:
        """Create a run with temporaries on the device."""
        return DeviceRun(graph, self.queue)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``; returns when all work is queued."""
        stages: list[ExecutableStage] = plan.executable.get(self.name) or self.start(plan, graph)
        if len(stages) == 1:
            stages[0].run(self.new_run(graph))
        else:
            self.ready(plan, graph)()

    def ready(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """Return a callable that queues every assignment of ``graph``; everything that may fail happens now."""
        stages: list[ExecutableStage] = plan.executable.get(self.name) or self.start(plan, graph)
        run = self.new_run(graph)
        return partial(in_turn, [stage.ready(run) for stage in stages])

    def program(self, plan: Plan, graph: Graph) -> Program | None:
        """See ``Engine.program``: of plans of one stage, which has queued its kernels and writes whole targets."""
        stages: list[ExecutableStage] = plan.executable[self.name]
        one = stages[0] if len(stages) == 1 and not graph.windows and not graph.draws else None
        return one.program(graph) if isinstance(one, CudaStage) else None

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that queues ``plan`` for these very tensors again and again; its kernels start to compile now."""
        self.compile_ahead(plan, graph)
        bound: Call | None = None

        def run() -> None:
            nonlocal bound
            if bound is None:
                bound = self._bound(plan, graph)
            bound()

        return run

    def _bound(self, plan: Plan, graph: Graph) -> Call:
        """Every stage on its arrays; where one has no bound form, all run as in :meth:`execute`."""
        run = self.new_run(graph)
        calls: list[Call] = []
        for stage in self.stages(plan, graph):
            call = stage.bind(run)
            if call is None:
                return partial(self.execute, plan, graph)
            calls.append(call)
        return calls[0] if len(calls) == 1 else partial(in_turn, calls)

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether the module of ``kernel`` is cached."""
        return compile_cuda.is_built(kernel, self.queue.device.capabilities.arch)

    def build(self, kernel: KernelSource) -> object:
        """Compile the module of ``kernel`` without loading it, which requires the caller's thread."""
        return compile_cuda.build_cubin(kernel, self.queue.device.capabilities.arch)


class DeviceCopyBack(CopyBack):
    """Final copy of a run for a target that was still read: moves its values from a substitute array."""

    def __init__(self, queue: Queue, target: int) -> None:
        super().__init__(target)
        self.queue = queue

    def run(self, run: Run) -> None:
        """Queue the copy."""
        self.bind(run)()

    def ready(self, run: Run) -> Callable[[], object]:
        """Return a callable that queues the copy."""
        if buffer_key(self.target) not in run.temps:  # created by a stage that is not ready yet
            return partial(self.run, run)
        return self.bind(run)

    def bind(self, run: Run) -> Call:
        """Bind the copy to the arrays of ``run``."""
        return self.queue.copy(run.temps[buffer_key(self.target)], run.graph.targets[self.target].array)
