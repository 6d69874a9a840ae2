"""The bounded cache of plans, one a backend, and before it the assignments that need no look at their plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.planning.graph import Graph, Key
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run import threads
from neonlike.kernels.run.recipe import Recipe

MAX_PLANS = 2048

_caches: weakref.WeakSet[PlanCache] = weakref.WeakSet()


def forget_all() -> None:
    """Forget the plans of every backend; what they keep was made for another number of threads."""
    for cache in list(_caches):
        cache.clear()


threads.when_changed.append(forget_all)


class PlanCache:
    """key -> plan; the oldest half is dropped when full.

    Attributes
    ----------
    misses : int
        Counted for tests and for ``explain``.
    launches : object or None
        The extension's table of assignments that were seen before, see :mod:`neonlike.kernels.c.fastpath`.
    replay, replay_many : callable or None
        Its methods, when it is there: ``replay(backend, target, value)`` and ``replay_many(backend, pairs)`` run an
        assignment that was seen before. They return True if it is done, False if it is left to Python, and None if
        that is so until :meth:`learn` is asked to learn it.
    """

    def __init__(self, limit: int = MAX_PLANS) -> None:
        self.limit = limit
        self.plans: dict[Key, Plan] = {}
        self.misses = 0
        self.launches: Any = None
        self.replay: Callable[[Any, Any, Any], bool | None] | None = None
        self.replay_many: Callable[[Any, Any], bool | None] | None = None
        self._tensor_type: type | None = None
        self._asks = False
        _caches.add(self)

    def __len__(self) -> int:
        return len(self.plans)

    def find(self, graph: Graph) -> Plan:
        """The plan of ``graph``, made if there is none."""
        plan = self.plans.get(graph.key)
        if plan is None:
            return self._add(graph)
        if self._asks:
            self._asks = False
            fastpath.request(self._adopt)
        return plan

    def clear(self) -> None:
        """Forget all plans."""
        self.plans.clear()
        if self.launches is not None:
            self.launches.clear()

    def _add(self, graph: Graph) -> Plan:
        self.misses += 1
        plan = make_plan(graph)
        if len(self.plans) >= self.limit:
            for key in list(self.plans)[: self.limit // 2]:
                self.plans.pop(key, None)
        self.plans[graph.key] = plan
        return plan

    # Assignments that were seen before

    def learn(self, backend: Any, pairs: Sequence[tuple[Any, Any]], recipe: Recipe | None) -> None:
        """Have ``replay`` run ``pairs`` by ``recipe`` from now on; None: leave them to Python without a word."""
        self.launches.learn(backend, pairs, recipe)

    def hurry(self, tensor_type: type) -> None:
        """Ask for the extension when a plan is first met again, to run assignments among such tensors."""
        self._tensor_type, self._asks = tensor_type, True

    def _adopt(self, extension: Any) -> None:
        self._asks = False
        self.launches = extension.Launches(self._tensor_type)
        self.replay, self.replay_many = self.launches.run, self.launches.run_many
        if self._tensor_type is not None:
            fastbuild.attach(extension, self._tensor_type)
