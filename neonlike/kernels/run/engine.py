"""The base of all engines: a plan becomes a list of executable stages, which is kept on the plan and run in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run.program import Program
from neonlike.kernels.run.stage import CopyBack, ExecutableStage, Layouts, Run


class Engine:
    """Executes plans. An engine says what executes one stage, :meth:`stage`; the rest follows.

    Attributes
    ----------
    name : str
    repeats : bool
        Whether :meth:`program` may find anything.
    pairs : int
        The form of pairs of bfloat16 that factors of float32 are rounded to, see ``pairs.h``; 0: they are not.
    """

    name: str = ""
    repeats: ClassVar[bool] = False
    pairs: int = 0

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """The executable stage of ``plan`` at ``position``, made for a plan that ``graph`` has the key of.

        Parameters
        ----------
        plan : Plan
        position : int
            Number of the stage.
        graph : Graph
        """
        raise NotImplementedError

    def copy_back(self, target: int) -> ExecutableStage:
        """The copy that ends a run for a target that was still read: the copy from the array that stood in for it."""
        return CopyBack(target)

    def make_stages(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """The executable stages of ``plan``, then the copies that end a run.

        They are made of shapes of the plan and of ``graph``, which is another than the plan was made of if its first
        run was stopped before this, or another thread is faster.
        """
        if plan.sizes != graph.sizes():
            plan = make_plan(graph)  # the same stages for other sizes
        made = [self.stage(plan, position, graph) for position in range(len(plan.stages))]
        stores = [store for stage in plan.stages for store in stage.stores if store.buffered]
        return made + [self.copy_back(store.target) for store in stores]

    def compile(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """As :meth:`make_stages`; they are kept on the plan, once all are made, for other threads to find."""
        made = plan.executable[self.name] = self.make_stages(plan, graph)
        return made

    def stages(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """The stages that are kept on ``plan``, made now if there are none."""
        return plan.executable.get(self.name) or self.compile(plan, graph)

    def new_run(self, graph: Graph) -> Run:
        """A run on the tensors of ``graph``."""
        return Run(graph)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        run_stages(self.stages(plan, graph), plan, self.new_run(graph))

    def ready(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A callable that computes every assignment of ``graph`` once; an engine may do now what can fail."""
        return partial(self.execute, plan, graph)

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again."""
        stages = self.stages(plan, graph)
        bound = stages[0].bind(self.new_run(graph)) if len(stages) == 1 else None
        return partial(self.execute, plan, graph) if bound is None else bound

    def in_one(self, bound: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        """One call for several of :meth:`prepare` that have run before; None if it would take no less time."""
        return None

    def sources(self, plan: Plan, graph: Graph) -> list[KernelSource]:
        """The kernels that ``plan`` needs on tensors that lie like those of ``graph``; allocates nothing."""
        layouts = Layouts(graph)
        return [kernel for stage in self.stages(plan, graph) for kernel in stage.sources(layouts)]

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether :meth:`build` has nothing to compile."""
        raise NotImplementedError

    def build(self, kernel: KernelSource) -> object:
        """Compile ``kernel`` unless it is in the cache; needs no device.

        Raises
        ------
        KernelCompileError
        """
        raise NotImplementedError

    def program(self, plan: Plan, graph: Graph) -> Program | None:
        """The program of ``plan`` on tensors like those of ``graph``, on which it just ran; None if there is none.

        Its operands are the leaves of the graph, then the targets.
        """
        return None


def run_stages(stages: Sequence[ExecutableStage], plan: Plan, run: Run) -> None:
    """Run the ``stages`` of ``plan``; memory of a temporary is let go after the last stage that reads it.

    Parameters
    ----------
    stages : sequence of ExecutableStage
    plan : Plan
    run : Run
    """
    temps = run.temps
    for stage, spent in zip(stages, plan.spent, strict=True):
        stage.run(run)
        for value in spent:
            temps.pop(value, None)
