"""The C engine: each loop stage of a plan becomes a compiled function, called through ctypes.

A stage is compiled for a layout (flat, nested, rows or columns; see ``forms``) when it first runs on one. What has no C
form, and everything if compiling fails, runs on the NumPy engine: slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import fastpath
from neonlike.kernels.c import lines as lines_c
from neonlike.kernels.c import moves as moves_c
from neonlike.kernels.c.copies import CCallStage, CClassesStage, CCopyBack, ConcatStage, CViewStage
from neonlike.kernels.c.products import DotStage
from neonlike.kernels.c.stage import CStage
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, StageKind
from neonlike.kernels.run.ahead import BoundLater, CompilesAhead
from neonlike.kernels.run.engine import run_stages
from neonlike.kernels.run.recipe import MOST_STEPS, MOST_WORDS, Placing, Recipe, StageSteps
from neonlike.kernels.run.stage import ExecutableStage, Run
from neonlike.kernels.run.workspace import KEPT_BYTES

_COPIES = {"view": CViewStage, "unview": CViewStage, "concat": ConcatStage, "classes": CClassesStage}
_WITH_STEPS = (CStage, DotStage, CViewStage, ConcatStage, CClassesStage, CCallStage, CCopyBack)
MOST_MEMORY = KEPT_BYTES
"""Bytes of temporaries of an assignment that the extension starts: a thread keeps so much."""


class CEngine(CompilesAhead, NumpyEngine):
    """Runs plans with compiled C where it can."""

    name = "c"
    replays = True

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """The stage at ``position`` as compiled C where there is a form for it; see ``Engine.stage``."""
        stage = plan.stages[position]
        if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE):
            return CStage(plan, stage, graph)
        if stage.kind is StageKind.MOVE and moves_c.usable(plan, stage):
            return moves_c.MoveStage(plan, stage, graph)
        if stage.kind is StageKind.MOVE and moves_c.usable(plan, stage, lines_c.FORMS):
            return lines_c.LineStage(plan, stage, graph)
        if stage.kind is StageKind.CALL:
            return CCallStage(plan, stage, graph)
        if stage.kind is StageKind.MOVE and (found := _COPIES.get(plan.values[stage.values[0]].spec.name)):
            return found(plan, stage, graph)
        if stage.kind is StageKind.CONTRACTION and plan.values[stage.values[0]].spec.name == "dot":
            return DotStage(plan, stage, graph)
        return super().stage(plan, position, graph)

    def copy_back(self, target: int) -> ExecutableStage:
        """See ``Engine.copy_back``."""
        return CCopyBack(target)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        run_stages(plan.engine.get(self.name) or self.start(plan, graph), plan, Run(graph))

    def recipe(self, plan: Plan, graph: Graph) -> Recipe | None:
        """How to run ``plan`` on tensors like those of ``graph`` without planning; None where not all is C."""
        run, found = Placing(graph), list[StageSteps]()
        for stage, spent in zip(plan.engine[self.name], plan.spent, strict=True):
            of_stage = stage.steps(run) if isinstance(stage, _WITH_STEPS) else None
            if of_stage is None or run.memory > MOST_MEMORY:
                return None
            found.append(of_stage)
            run.end_stage(spent)
        steps, keep = tuple(step for one in found for step in one.steps), tuple(one.keep for one in found)
        if len(steps) > MOST_STEPS or sum(len(step.words) for step in steps) > MOST_WORDS:
            return None
        release, forks = any(one.release for one in found), all(one.forks for one in found)
        return Recipe(len(graph.leaves), len(graph.numbers), steps, run.memory, False, release, forks, keep)

    def chain(self, runs: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        """See ``Engine.chain``: where all are compiled C, and the extension is there; else it is asked for."""
        extension = fastpath.asked_for()
        if extension is None or not all(isinstance(run, BoundLater) for run in runs):
            return None
        calls = [call for run in runs for call in run.calls()]  # type: ignore[attr-defined]
        links = [getattr(call, "link", None) for call in calls]
        if None in links:
            return None
        found: Callable[[], None] = extension.Chain(tuple(links), tuple(calls))
        return found

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether the library of ``kernel`` is loaded or in the cache."""
        return compile_c.is_built(kernel)

    def build(self, kernel: KernelSource) -> object:
        """The loaded library of ``kernel``, compiled if need be."""
        return compile_c.build_kernel(kernel)
