"""A made-up engine: elementwise stages of floats by NumPy on whole arrays, one value after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neonlike.backends.nervanacpu import NervanaCPU
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.convert import converter
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import ExecutableStage, Layouts, Run, input_of, leaf_types, loop_outputs
from neonlike.optree.dtypes import compute_dtype


class PlainStage(ExecutableStage):
    """An elementwise stage: every value an array of its own."""

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        self.plan, self.stage, self.leaves = plan, stage, leaf_types(graph)

    def run(self, run: Run) -> None:
        """Execute the stage."""
        found: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for index in self.stage.values:
                value = self.plan.values[index]
                found[index] = value.spec.numpy(*[self._operand(run, arg, found) for arg in value.args])
            results = [found[index] for index in self.stage.saved]
            results += [self._operand(run, store.arg, found) for store in self.stage.stores]
            for result, out in zip(results, loop_outputs(self.plan, self.stage, run), strict=True):
                converter(out.dtype)(result, out)

    def _operand(self, run: Run, arg: Arg, found: dict[int, Any]) -> Any:
        if isinstance(arg, NumberArg):
            return run.graph.numbers[arg.slot]
        if not isinstance(arg, LeafArg) and arg.value in found:
            return found[arg.value] if arg.perm is None else found[arg.value].transpose(arg.perm)
        return run.array(input_of(self.plan, self.leaves, arg, 0, {}), 0)

    def bind(self, run: Run) -> Callable[[], None]:
        """The stage on the arrays of ``run``."""
        loop_outputs(self.plan, self.stage, run)
        return partial(self.run, run)

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Return None: the stage is NumPy calls. The layouts of a kernel's operands are left in ``layouts``."""
        loop_outputs(self.plan, self.stage, layouts)
        return []


class PlainEngine(Engine):
    """Engine that leaves unsupported stages to the NumPy engine."""

    name = "plain"

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """Executable of the stage of ``plan`` at ``position``."""
        stage = plan.stages[position]
        values = [plan.values[index] for index in stage.values]
        dtypes = {leaf.dtype for leaf in graph.leaves} | {value.dtype for value in values}
        known = all(isinstance(value.spec.numpy, np.ufunc) for value in values)
        if stage.kind is StageKind.ELEMENTWISE and known and len(dtypes) == 1 and _is_exact(dtypes.pop()):
            return PlainStage(plan, stage, graph)
        return NumpyEngine().stage(plan, position, graph)


def _is_exact(dtype: Any) -> bool:
    """Whether values are computed in the dtype that they have."""
    return bool(dtype.kind == "f" and compute_dtype(dtype) == dtype)


class PlainCPU(NervanaCPU):
    """The CPU's backend on the made-up engine."""

    backend_name = ""

    def _make_engine(self) -> Engine:
        super()._make_engine()
        return PlainEngine()
