"""Step 4 of an assignment (docs/tour.md): the bounded cache of plans, one per backend."""

from __future__ import annotations

from neonlike.kernels.planning.graph import Graph, Key
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.planning.planner import make_plan

MAX_PLANS = 2048


class PlanCache:
    """Map from key to plan; when full, the oldest half is dropped.

    Attributes
    ----------
    misses : int
        Number of plans made, for tests.
    """

    def __init__(self, limit: int = MAX_PLANS) -> None:
        self.limit = limit
        self.plans: dict[Key, Plan] = {}
        self.misses = 0

    def __len__(self) -> int:
        return len(self.plans)

    def find(self, graph: Graph) -> Plan:
        """Return the plan of ``graph``, creating it if missing."""
        plan = self.plans.get(graph.key)
        return self._add(graph) if plan is None else plan

    def clear(self) -> None:
        """Remove all plans."""
        self.plans.clear()

    def _add(self, graph: Graph) -> Plan:
        self.misses += 1
        plan = make_plan(graph)
        if len(self.plans) >= self.limit:
            for key in list(self.plans)[: self.limit // 2]:
                self.plans.pop(key, None)
        self.plans[graph.key] = plan
        return plan
