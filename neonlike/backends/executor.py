"""The executor of a backend: from the pairs of an assignment to plans, and from these to its engine."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from neonlike.kernels.bench.engine import TimedEngine
from neonlike.kernels.bench.recorder import Bench
from neonlike.kernels.c.replay import Replay
from neonlike.kernels.planning.graph import Graph, linearize
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.planning.plan_cache import PlanCache
from neonlike.kernels.run import threads
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.explain import explain
from neonlike.kernels.run.program import Replayed
from neonlike.kernels.run.trace import current
from neonlike.optree.node import OpTreeNode

_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def forget_all() -> None:
    """Forget the plans of every backend; what they keep was made for another number of threads."""
    for executor in list(_executors):
        executor.clear()


threads.when_changed.append(forget_all)


class Executor:
    """Plans the assignments of one backend and runs them; arguments have been checked.

    Parameters
    ----------
    engine : Engine
    tensor_type : type
        Of the backend's tensors.

    Attributes
    ----------
    engine : Engine
        The backend's own; in bench mode the same with clocks around its stages.
    plans : PlanCache
    replay : Replay
        Assignments that were seen before.
    bench : Bench or None
        The recorder while bench mode is on.
    recorder : Bench or None
        The one that was in use last, on or off.
    """

    def __init__(self, engine: Engine, tensor_type: type) -> None:
        self._own_engine = self.engine = engine
        self.plans, self.replay = PlanCache(), Replay(tensor_type)
        self.bench: Bench | None = None
        self.recorder: Bench | None = None
        _executors.add(self)

    def record(self, bench: Bench | None) -> None:
        """Time what runs from now on with ``bench``; None: time nothing."""
        self.bench, self.engine = bench, self._own_engine
        self.plans = PlanCache()  # plans keep their stages with or without clocks around them
        self.replay.stop()
        if bench is not None:
            self.recorder = bench
            self.engine = TimedEngine(self.engine, bench)
        elif self.engine.repeats:
            self.replay.start()

    def clear(self) -> None:
        """Forget plans and what was learned of assignments."""
        self.plans.clear()
        self.replay.clear()

    def run(self, pairs: Sequence[tuple[Any, Any]], answer: Replayed, fresh: bool = False) -> None:
        """Compute ``pairs`` (target, expression or number), of which ``replay`` gave ``answer``.

        ``fresh``: nobody will look at the targets should this fail.
        """
        graph = linearize(pairs, fresh)
        plan = self.plan(graph)
        trace = current()
        before = None if trace is None else trace.mark()
        self.engine.execute(plan, graph)
        if trace is None and answer is not Replayed.NEW:
            return
        program = None if graph.windows else self.engine.program(plan, graph)
        if trace is not None and before is not None:
            trace.assignment(graph, program, before)
        if answer is Replayed.NEW:
            self.replay.learn(pairs[0][0].backend, pairs, program, fresh)

    def plan(self, graph: Graph) -> Plan:
        """The plan of ``graph``, made if there is none; the first that is met again is when replay pays.

        Raises
        ------
        ReadOnlyError
            If a target must not be written.
        """
        for target in graph.targets:
            if not target.writeable:
                target.check_writeable("assignment")
        plan = self.plans.find(graph)
        if self.replay.wanted and plan.engine:
            self.replay.request()
        return plan

    def ready(self, pairs: Sequence[tuple[Any, Any]]) -> Callable[[], None]:
        """A callable that computes ``pairs`` once, of what tensors hold then; on a device memory is taken now."""
        graph = linearize(pairs)
        return self.engine.ready(self.plan(graph), graph)

    def prepare(
        self, pairs: Sequence[tuple[Any, Any]], draw: Callable[[], OpTreeNode]
    ) -> tuple[Graph, Callable[[], None]]:
        """The graph of ``pairs``, and what computes them again and again; ``draw`` gives a new ``rand`` node."""
        graph = linearize(pairs)
        plan = self.plan(graph)
        drawn = [index for index, node in enumerate(graph.nodes) if node.spec.name == "rand"]
        return graph, self._drawing(plan, graph, drawn, draw) if drawn else self.engine.prepare(plan, graph)

    def _drawing(
        self, plan: Plan, graph: Graph, drawn: list[int], draw: Callable[[], OpTreeNode]
    ) -> Callable[[], None]:
        """A run of ``plan`` that replaces the ``rand`` nodes at ``drawn`` after the first time."""
        first = True

        def run() -> None:
            nonlocal first
            if not first:
                for index in drawn:
                    graph.redraw(index, draw())
            first = False
            self.engine.execute(plan, graph)

        return run

    def explain(self, target: Any, source: Any) -> str:
        """How ``source`` would be computed into ``target``, see ``Backend.explain``."""
        graph = linearize(((target, source),))
        return explain(self.plan(graph), graph, self.engine)
