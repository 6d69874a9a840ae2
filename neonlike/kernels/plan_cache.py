"""The bounded cache of plans, one a backend, and before it the assignments that need no look at their plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.kernels import fastpath
from neonlike.kernels.fastpath import Recipe
from neonlike.kernels.graph import Graph, Key
from neonlike.kernels.plan import Plan, make_plan

MAX_PLANS = 2048
PATIENCE = 2
"""Assignments from which the extension is asked for: a program that runs one expression once does without."""


class PlanCache:
    """key -> plan; the oldest half is dropped when full.

    Attributes
    ----------
    hits, misses : int
        Counted for tests and for ``explain``.
    launches : object or None
        The extension's table of assignments that were seen before, see :mod:`neonlike.kernels.fastpath`.
    """

    def __init__(self, limit: int = MAX_PLANS) -> None:
        self.limit = limit
        self.plans: dict[Key, Plan] = {}
        self.misses = 0
        self.launches: Any = None
        self._tensor_type: type | None = None
        self._patience = PATIENCE

    def __len__(self) -> int:
        return len(self.plans)

    def find(self, graph: Graph) -> Plan:
        """The plan of ``graph``, made if there is none."""
        plan = self.plans.get(graph.key)
        return plan if plan is not None else self._add(graph)

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

    # Assignments that were seen before. The extension replaces the two methods in the instance by its own.

    def replay(self, backend: Any, target: Any, value: Any) -> bool | None:
        """Run an assignment that was seen before.

        Returns
        -------
        bool or None
            True: it is done. False: it is left to Python. None: that too, and :meth:`learn` may learn it.
        """
        if self._tensor_type is not None:
            self._ask()
        return False

    def replay_many(self, backend: Any, pairs: Sequence[tuple[Any, Any]]) -> bool | None:
        """As :meth:`replay`, for several targets and their values."""
        if self._tensor_type is not None:
            self._ask()
        return False

    def learn(self, backend: Any, pairs: Sequence[tuple[Any, Any]], recipe: Recipe | None) -> None:
        """Have :meth:`replay` run ``pairs`` by ``recipe`` from now on; None: leave them to Python without a word."""
        self.launches.learn(backend, pairs, recipe)

    def hurry(self, tensor_type: type) -> None:
        """Have the extension run assignments among tensors of ``tensor_type``, as soon as it is there."""
        self._tensor_type = tensor_type

    def _ask(self) -> None:
        self._patience -= 1
        if self._patience == 0:
            fastpath.request(self._adopt)

    def _adopt(self, extension: Any) -> None:
        self.launches = extension.Launches(self._tensor_type)
        self.replay = self.launches.run  # type: ignore[method-assign]
        self.replay_many = self.launches.run_many  # type: ignore[method-assign]
