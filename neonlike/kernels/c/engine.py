"""The C engine: each loop stage of a plan becomes a compiled function, called through ctypes.

A stage is compiled for the layout it meets (flat, nested, rows or columns; see ``forms``) when it first meets it.
What has no C form, and everything when compiling fails, runs on the NumPy engine: slower, never different.
"""

from __future__ import annotations

from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import lines as lines_c
from neonlike.kernels.c import moves as moves_c
from neonlike.kernels.c.products import DotStage
from neonlike.kernels.c.stage import CStage
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, StageKind
from neonlike.kernels.run.ahead import CompilesAhead, owner_of
from neonlike.kernels.run.recipe import Recipe
from neonlike.kernels.run.stage import Run, StageFunction


class CEngine(CompilesAhead, NumpyEngine):
    """Runs plans with compiled C where it can."""

    name = "c"

    def stage_functions(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """One function a stage, and the copies that end a run."""
        made = super().stage_functions(plan, graph)
        for position, stage in enumerate(plan.stages):
            if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE):
                fallback = made[position].__self__  # type: ignore[attr-defined]
                made[position] = CStage(plan, stage, graph, fallback).run
            elif stage.kind is StageKind.MOVE and moves_c.usable(plan, stage):
                fallback = made[position].__self__  # type: ignore[attr-defined]
                made[position] = moves_c.MoveStage(plan, stage, graph, fallback).run
            elif stage.kind is StageKind.MOVE and moves_c.usable(plan, stage, lines_c.FORMS):
                fallback = made[position].__self__  # type: ignore[attr-defined]
                made[position] = lines_c.LineStage(plan, stage, graph, fallback).run
            elif stage.kind is StageKind.CONTRACTION:
                product = plan.values[stage.values[0]].spec.name == "dot"
                made[position] = DotStage(plan, stage, graph).run if product else made[position]
        return made

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        stages: Any = plan.engine.get(self.name) or self.start(plan, graph)
        run = Run(graph)
        for stage in stages:
            stage(run)

    def recipe(self, plan: Plan, graph: Graph) -> Recipe | None:
        """How to start what ``plan`` just ran on ``graph`` without planning; None if it is more than one kernel."""
        stages: Any = plan.engine[self.name]
        owner = owner_of(stages[0])
        return owner.recipe(graph) if len(stages) == 1 and isinstance(owner, CStage) else None

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether the library of ``kernel`` is loaded or in the cache."""
        return compile_c.is_built(kernel)

    def build(self, kernel: KernelSource) -> object:
        """The library of ``kernel``, loaded."""
        return compile_c.build_kernel(kernel)
