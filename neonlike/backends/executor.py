"""The executor of a backend: finds plans for assignments, and runs them on the engine."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from neonlike.kernels.bench.engine import TimedEngine, key_of
from neonlike.kernels.bench.recorder import Bench
from neonlike.kernels.c.replay import Replay
from neonlike.kernels.planning.graph import Graph, linearize
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.kernels.planning.plan_cache import PlanCache
from neonlike.kernels.run import threads
from neonlike.kernels.run.depends import Depends
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.explain import explain
from neonlike.kernels.run.program import Replayed
from neonlike.kernels.run.trace import current
from neonlike.markup import Explanation
from neonlike.optree import dialect
from neonlike.optree.node import OpTreeNode

_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def forget_all() -> None:
    """Drop the plans of every backend: they depend on the number of threads, and repeated passes on the dialect."""
    for executor in list(_executors):
        executor.clear()


threads.when_changed.append(forget_all)
dialect.when_changed.append(forget_all)


class Executor:
    """Plans and runs the assignments of one backend; arguments are already checked.

    Parameters
    ----------
    engine : Engine
    tensor_type : type
        Class of the backend's tensors.

    Attributes
    ----------
    engine : Engine
        The backend's engine; in bench mode with clocks around its stages.
    plans : PlanCache
    replay : Replay
        Programs of assignments, calls of primitives and passes of variables that were run before.
    bench : Bench or None
        The recorder in bench mode.
    recorder : Bench or None
        The last recorder, whether bench mode is on or off.
    """

    def __init__(self, engine: Engine, tensor_type: type) -> None:
        self.own_engine = self.engine = engine
        self.plans, self.replay = PlanCache(), Replay(tensor_type)
        self.bench: Bench | None = None
        self.recorder: Bench | None = None
        _executors.add(self)

    def depends_on(self) -> Depends:
        """A repeated pass depends on the engine, and on what :class:`Replay` says."""
        return Depends(opened=frozenset(("replay",)))

    def record(self, bench: Bench | None) -> None:
        """Time all following work with ``bench``, and repeat nothing; None ends that, and starts the replay.

        A new backend starts its replay here too (``TimingFamily._switch_bench``); only engines that repeat have one.
        """
        self.bench, self.engine = bench, self.own_engine
        self.plans = PlanCache()  # plans keep their stages with or without clocks
        self.replay.stop()
        if bench is not None:
            self.recorder = bench
            self.engine = TimedEngine(self.engine, bench)
        elif self.engine.repeats:
            self.replay.start()

    def clear(self) -> None:
        """Drop all plans and learned assignments."""
        self.plans.clear()
        self.replay.clear()

    def run(self, pairs: Sequence[tuple[Any, Any]], answer: Replayed, fresh: bool = False) -> None:
        """Compute ``pairs`` (target, expression or number), for which ``replay`` returned ``answer``.

        ``fresh``: the targets are discarded should this fail.

        Parameters
        ----------
        pairs : sequence of (Tensor, expression or number)
        answer : Replayed
            What replay said of them.
        fresh : bool
        """
        graph = linearize(pairs, fresh)
        plan = self.plan(graph)
        trace = current()
        before = None if trace is None else trace.mark()
        self.engine.execute(plan, graph)
        if trace is None and answer is not Replayed.NEW:
            return
        program = None if _reads_windows(graph) else self.engine.program(plan, graph)
        if trace is not None and before is not None:
            trace.assignment(graph, program, before)
        if answer is Replayed.NEW:
            self.replay.learn(pairs[0][0].backend, pairs, program, fresh)

    def plan(self, graph: Graph) -> Plan:
        """Return the plan of ``graph``, creating it if missing; the extension is asked for when a plan has run before.

        Raises
        ------
        ReadOnlyError
            If a target is read-only.
        """
        for target in graph.targets:
            if not target.writeable:
                target.check_writeable("assignment")
        plan = self.plans.find(graph)
        if self.replay.to_ask and plan.executable:  # a new plan has no executable stages yet
            self.replay.request()
        return plan

    def ready(self, pairs: Sequence[tuple[Any, Any]]) -> Callable[[], None]:
        """Return a callable that computes ``pairs`` once, with the contents at that time; memory is taken now."""
        graph = linearize(pairs)
        return self.engine.ready(self.plan(graph), graph)

    def prepare(
        self, pairs: Sequence[tuple[Any, Any]], draw: Callable[[], OpTreeNode]
    ) -> tuple[Graph, Callable[[], None]]:
        """The graph of ``pairs``, and a callable that recomputes them; ``draw`` creates a new ``rand`` node."""
        graph = linearize(pairs)
        plan = self.plan(graph)
        drawn = [index for index, node in enumerate(graph.nodes) if node.spec.name == "rand"]
        return graph, self._drawing(plan, graph, drawn, draw) if drawn else self.engine.prepare(plan, graph)

    def _drawing(
        self, plan: Plan, graph: Graph, drawn: list[int], draw: Callable[[], OpTreeNode]
    ) -> Callable[[], None]:
        """Wrap a run of ``plan`` to replace the ``rand`` nodes at ``drawn`` after the first run."""
        first = True

        def run() -> None:
            nonlocal first
            if not first:
                for index in drawn:
                    graph.redraw(index, draw())
            first = False
            self.engine.execute(plan, graph)

        return run

    def explain(self, target: Any, source: Any) -> Explanation:
        """Describe how ``source`` would be computed into ``target``, see ``Backend.explain``."""
        graph = linearize(((target, source),))
        plan = self.plan(graph)

        def reached(stage: Stage) -> str:
            return "" if self.recorder is None else self.recorder.reached(*key_of(plan, graph, stage))

        return explain(plan, graph, self.engine, reached)


def _reads_windows(graph: Graph) -> bool:
    """Whether a tensor that is written in windows is read, too.

    Which of the windows share memory with what is read does not follow from the whole tensor's sharing memory with it.
    """
    return bool(graph.windows) and any(leaf.alias_of(target) for leaf in graph.leaves for target in graph.assigned)
