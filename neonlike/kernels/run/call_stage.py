"""A compound primitive in a plan: its backend calls it on tensors, on every engine alike.

The plan's temporaries become tensors of the backend for the call, and what the call writes becomes temporaries. The
results of one call are kept together, so that the stages of its further results find them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, Store
from neonlike.kernels.run.stage import ExecutableStage, Input, Layouts, Run, buffer_key, inputs_of
from neonlike.optree.calls import PART
from neonlike.optree.dtypes import compute_dtype


class CallStage(ExecutableStage):
    """One call, or one further result of a call that ran before.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        (index,) = stage.values
        self.value = value = plan.values[index]
        self.stores = stage.stores
        self.kept = bool(plan.kept(stage))
        self.inputs = inputs_of(plan, graph, value)

    def run(self, run: Run) -> None:
        """Execute the stage."""
        self.bind(run)()

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """None of the stage's own: the primitive chooses its kernels when it is called."""
        if layouts.graph.nodes[self.value.node].spec is not PART:
            request = layouts.attrs(self.value.node)["request"]
            results = [layouts.empty(shape, dtype) for shape, dtype in request.results]
            target = self._direct(layouts, request)
            if target is not None:
                results[0] = target.array
            layouts.results[self.value.index] = results
        result = self._own(layouts)
        if self.kept and result.dtype != compute_dtype(result.dtype):
            result = layouts.empty(result.shape, compute_dtype(result.dtype))
        layouts.temps[self.value.index] = result
        return []

    def factors(self, layouts: Layouts) -> str:
        """Precision of the primitive's products, see :meth:`ExecutableStage.factors`."""
        node = layouts.graph.nodes[self.value.node]
        request = layouts.attrs(self.value.node).get("request")
        return "" if request is None else str(node.backend.factors_of(*request.products))

    def bind(self, run: Run) -> Callable[[], None]:
        """The stage on the arrays of ``run``, whose temporaries and results it allocates."""
        copies = self._allocate(run)
        node = run.graph.nodes[self.value.node]
        be, call = node.backend, None if node.spec is PART else self._call(run, node)

        def stage() -> None:
            if call is not None:
                call()
            for target, source in copies:
                be.assign(target, source)

        return stage

    def _allocate(self, run: Run) -> list[tuple[Any, Any]]:
        """Make the results of a call and the temporary of its value; what is to be copied, pairs (target, result)."""
        node = run.graph.nodes[self.value.node]
        be, attrs = node.backend, node.attrs
        assert attrs is not None
        if node.spec is not PART:
            results = [be.fresh(shape, dtype) for shape, dtype in attrs["request"].results[1:]]
            result = self._direct(run, attrs["request"])
            if result is None:
                result = be.fresh(*attrs["request"].results[0])
            run.results[self.value.index] = [result, *results]
        result = self._own(run)
        copies = [(self._destination(run, be, store), result) for store in self.stores]
        wide = result
        if self.kept and result.dtype != compute_dtype(result.dtype):
            wide = be.fresh(result.shape, compute_dtype(result.dtype))
            copies.append((wide, result))
        run.temps[self.value.index] = wide.array
        return [(target, source) for target, source in copies if target is not source]

    def _own(self, run: Run) -> Any:
        """The one among a call's results that is the value of the stage."""
        node = run.graph.nodes[self.value.node]
        if node.spec is PART:
            return run.results[self.inputs[0].index][run.attrs(self.value.node)["part"]]
        return run.results[self.value.index][0]

    def _call(self, run: Run, node: Any) -> Callable[[], None]:
        """Function that runs the primitive of ``node`` on its operands, converted where it asks for that."""
        be, request = node.backend, node.attrs["request"]
        results = run.results[self.value.index]
        read = [_tensor(run, be, one) for one in self.inputs]
        operands = [
            tensor if wanted is None or tensor.dtype == wanted else be.fresh(tensor.shape, wanted)
            for tensor, wanted in zip(read, request.dtypes, strict=True)
        ]

        def call() -> None:
            for target, source in zip(operands, read):
                if target is not source:
                    be.assign(target, source)
            request.run(be, results, operands)

        return call

    def _direct(self, run: Run, request: Any) -> Any:
        """The target that the call may write itself; None if there is none."""
        for store in self.stores if request.direct else ():
            target = run.graph.targets[store.target]
            if not store.buffered and not target.rounding and target.dtype == request.results[0][1]:
                return target
        return None

    def _destination(self, run: Run, be: Any, store: Store) -> Any:
        """The tensor that ``store`` goes to: its target, or one that stands in for a target still to be read."""
        target = run.graph.targets[store.target]
        if not store.buffered:
            return target
        stand_in = be.fresh(target.shape, target.dtype)
        stand_in.rounding = target.rounding
        run.temps[buffer_key(store.target)] = stand_in.array
        return stand_in


def _tensor(run: Run, be: Any, read: Input) -> Any:
    """The tensor of ``be`` behind ``read``."""
    if read.kind == "leaf" and read.perm is None:
        return run.graph.leaves[read.index]
    return be.tensor_cls(be, run.array(read, 0))
