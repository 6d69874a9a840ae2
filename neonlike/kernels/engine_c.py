"""The C engine: each loop stage of a plan becomes a compiled function, called through ctypes.

A stage is compiled for the layout it meets (flat, nested, rows or columns; see ``forms``) when it first meets it.
What has no C form, and everything when compiling fails, runs on the NumPy engine: slower, never different.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from neonlike.errors import KernelCompileError
from neonlike.kernels import compile_c, moves_c
from neonlike.kernels.blocks import Run
from neonlike.kernels.compile_c import KernelSource
from neonlike.kernels.dot_stage import DotStage
from neonlike.kernels.fastpath import Recipe
from neonlike.kernels.graph import Graph
from neonlike.kernels.interp import NumpyEngine, StageFunction
from neonlike.kernels.plan import Plan, StageKind
from neonlike.kernels.stage_c import CStage
from neonlike.kernels.threads import thread_count


class CEngine(NumpyEngine):
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
            elif stage.kind is StageKind.CONTRACTION:
                product = plan.values[stage.values[0]].spec.name == "dot"
                made[position] = DotStage(plan, stage, graph).run if product else made[position]
        return made

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        stages: Any = plan.engine.get(self.name) or self._start(plan, graph)
        run = Run(graph)
        for stage in stages:
            stage(run)

    def _start(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """The stages of a plan that runs for the first time; if it has several kernels they compile side by side."""
        made = self.compile(plan, graph)
        if sum(isinstance(_owner(function), (CStage, moves_c.MoveStage)) for function in made) > 1:
            self.compile_ahead(plan, graph)
        return made

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again; its kernels start to compile now."""
        self.compile_ahead(plan, graph)
        run: Callable[[], None] | None = None

        def call() -> None:
            nonlocal run
            if run is None:
                run = self._bind(plan, graph)
            run()

        return call

    def _bind(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """Every stage on its arrays; stages without a bound form run as in :meth:`execute`."""
        stages: Any = plan.engine.get(self.name) or self.compile(plan, graph)
        run = Run(graph)
        calls: list[Callable[[], None]] = []
        for stage in stages:
            owner = _owner(stage)
            call = owner.bind(run) if hasattr(owner, "bind") else None
            if call is None:
                return lambda: self.execute(plan, graph)
            calls.append(call)
        if len(calls) == 1:
            return calls[0]

        def together() -> None:
            for call in calls:
                call()

        return together

    def recipe(self, plan: Plan, graph: Graph) -> Recipe | None:
        """How to start what ``plan`` just ran on ``graph`` without planning; None if it is more than one kernel."""
        stages: Any = plan.engine[self.name]
        owner = _owner(stages[0])
        return owner.recipe(graph) if len(stages) == 1 and isinstance(owner, CStage) else None

    # Compiling before anything runs

    def sources(self, plan: Plan, graph: Graph) -> list[KernelSource]:
        """The C kernels ``plan`` needs on the tensors of ``graph``, those of other layouts not included."""
        run = Run(graph)
        found: list[KernelSource] = []
        stages: Any = plan.engine.get(self.name) or self.compile(plan, graph)
        for stage in stages:
            owner = _owner(stage)
            source = owner.kernel_source(run) if hasattr(owner, "kernel_source") else None
            if source is not None:
                found.append(source)
        return found

    def compile_ahead(self, plan: Plan, graph: Graph) -> None:
        """Start compiling what ``plan`` needs in the background; who runs it first waits for what is not ready."""
        for kernel in self.sources(plan, graph):
            if not compile_c.is_built(kernel):
                _compilers(os.getpid()).submit(_try_build, kernel)


def _owner(function: Any) -> Any:
    """The stage that ``function`` is the ``run`` of."""
    return getattr(function, "__self__", None)


@lru_cache(maxsize=1)
def _compilers(process: int) -> ThreadPoolExecutor:
    """Threads that wait for compilers; a fork has to make its own."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix=f"neonlike-cc-{process}")


def _try_build(kernel: KernelSource) -> None:
    """Compile ``kernel``; an error is reported by the run that needs it."""
    with contextlib.suppress(KernelCompileError):
        compile_c.build_kernel(kernel)
