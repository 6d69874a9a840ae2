"""The C engine: each loop stage of a plan becomes a compiled function, called through ctypes.

A stage is compiled for a layout (flat, nested, rows or columns; see ``forms``) when it first runs on one. What has no C
form, and everything if compiling fails, runs on the NumPy engine: slower, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import fastpath
from neonlike.kernels.c import lines as lines_c
from neonlike.kernels.c import moves as moves_c
from neonlike.kernels.c.copies import CCallStage, CClassesStage, CCopyBack, ConcatStage, CViewStage
from neonlike.kernels.c.products import DotStage
from neonlike.kernels.c.stage import CStage
from neonlike.kernels.numpy_engine.engine import NumpyCallStage, NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, StageKind
from neonlike.kernels.run import forks
from neonlike.kernels.run.ahead import CompilesAhead
from neonlike.kernels.run.arrays import expression_text
from neonlike.kernels.run.engine import run_stages
from neonlike.kernels.run.memory import aligned_empty
from neonlike.kernels.run.placing import Placing
from neonlike.kernels.run.program import NO_MEMORY, Fragment, Made, Program, join, runner
from neonlike.kernels.run.stage import ExecutableStage, Run

_COPIES: dict[str, type[NumpyCallStage]] = {
    "view": CViewStage, "unview": CViewStage, "concat": ConcatStage, "classes": CClassesStage,
}  # fmt: skip
_WITH_STEPS = (
    CStage, DotStage, CViewStage, ConcatStage, CClassesStage, CCallStage, CCopyBack, moves_c.MoveStage,
    lines_c.LineStage,
)  # fmt: skip
_BYTE = np.dtype(np.uint8)


class Bound:
    """A plan on fixed tensors, bound to them when it first runs: then its kernels have been compiled.

    Parameters
    ----------
    bind : callable
        Gives its program, or None.
    execute : callable
        Runs the plan where there is no program.

    Attributes
    ----------
    program : Program or None
        Known from the first run on.
    """

    def __init__(self, bind: Callable[[], Program | None], execute: Callable[[], None]) -> None:
        self._bind, self._execute = bind, execute
        self._run: Callable[[], None] | None = None
        self.program: Program | None = None

    def __call__(self) -> None:
        if self._run is None:
            self.program = program = self._bind()
            self._run = self._execute if program is None else runner(program)
        if forks.forked and self.program is not None and not self.program.forks:
            self._execute()
        else:
            self._run()


class CEngine(CompilesAhead, NumpyEngine):
    """Runs plans with compiled C where it can."""

    name = "c"
    repeats = True

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """The stage at ``position`` as compiled C where there is a form for it; see ``Engine.stage``.

        Parameters
        ----------
        plan, position, graph
            As of ``Engine.stage``.
        """
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
            return DotStage(plan, stage, graph, self.pairs)
        return super().stage(plan, position, graph)

    def copy_back(self, target: int) -> ExecutableStage:
        """See ``Engine.copy_back``."""
        return CCopyBack(target)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        run_stages(plan.executable.get(self.name) or self.start(plan, graph), plan, Run(graph))

    def program(self, plan: Plan, graph: Graph) -> Program | None:
        """The program of ``plan`` on tensors like those of ``graph``; None where not all of it is C.

        Prepared assignments ask for it also where the extension is not used (``NEONLIKE_FASTPATH=0``).
        """
        if any(fastpath.keyed(node.spec) is None for node in graph.nodes):
            return None
        run, found = Placing(graph), list[Fragment]()
        for stage, spent in zip(self.stages(plan, graph), plan.spent, strict=True):
            steps = stage.steps(run) if isinstance(stage, _WITH_STEPS) else None
            if steps is None:
                return None
            found.append(steps)
            run.end_stage(spent)
        return Program(
            tuple(step for one in found for step in one.steps), len(graph.leaves) + len(graph.assigned),
            len(graph.numbers), run.arena.nbytes, False, any(one.release for one in found),
            all(one.forks for one in found), f"{expression_text(graph)}: {NO_MEMORY}",
            tuple(one.keep for one in found),
        )  # fmt: skip

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again; its kernels start to compile now."""
        self.compile_ahead(plan, graph)
        return Bound(partial(self._bound, plan, graph), partial(self.execute, plan, graph))

    def _bound(self, plan: Plan, graph: Graph) -> Program | None:
        """The program of ``plan`` on the tensors of ``graph`` alone, in memory of its own; None where not all is C."""
        program = self.program(plan, graph)
        if program is None:
            return None
        tensors = (*graph.leaves, *graph.assigned)
        memory = aligned_empty((program.memory,), _BYTE)
        run = Made(program, tuple([tensor.address for tensor in tensors]), tuple(graph.numbers))
        working = int(memory.__array_interface__["data"][0])
        return join([run], (tensors, memory), working=working, refused=program.refused)

    def in_one(self, bound: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        """See ``Engine.in_one``: where all are compiled C, and the extension is there; else it is asked for."""
        extension = fastpath.asked_for()
        programs = [one.program for one in bound if isinstance(one, Bound) and one.program is not None]
        if extension is None or len(programs) < len(bound):
            return None

        def in_turn(addresses: Sequence[object], functions: Sequence[object]) -> bool:
            for one in bound:
                one()
            return True

        refused = programs[0].refused if len(programs) == 1 else ""
        joined = join([Made(program, ()) for program in programs], None, refused=refused)._replace(python=in_turn)
        found: Callable[[], None] = extension.Program(*joined)
        return found

    def is_built(self, kernel: KernelSource) -> bool:
        """Whether the library of ``kernel`` is loaded or in the cache."""
        return compile_c.is_built(kernel)

    def build(self, kernel: KernelSource) -> object:
        """The loaded library of ``kernel``, compiled if need be."""
        return compile_c.build_kernel(kernel)
