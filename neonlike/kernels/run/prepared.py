"""Assignments bound to their tensors for hot loops: ``step = be.prepare(out, expr); step()``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.run.trace import at_work, lose


class Prepared:
    """A planned assignment on fixed tensors and numbers; call it to run it again.

    Tensor contents may change between calls, the tensors may not. Each call draws new random numbers.

    Parameters
    ----------
    backend : Backend
    graph : Graph
    bound : callable
        Runs it once.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x, y = be.ones((1, 2)), be.empty((1, 2))
    >>> step = be.prepare(y, x * 2)
    >>> step().tolist()
    [[2.0, 2.0]]
    """

    __slots__ = ("_backend", "_left", "_run", "_targets", "_wait", "bound")

    def __init__(self, backend: Any, graph: Graph, bound: Callable[[], None]) -> None:
        self._backend = backend
        self.bound = self._run = bound
        self._left = self._wait = 1
        self._targets = graph.assigned

    def __call__(self) -> Any:
        """Run; returns the target, or the list of targets if there are several."""
        if self._backend.closed:
            self._backend.check_open("prepared assignment")
        if at_work:
            lose()
        self._run()
        if self._left:
            self._left -= 1
            if not self._left:
                self._hasten()
        targets = self._targets
        return targets[0] if len(targets) == 1 else list(targets)

    def _hasten(self) -> None:
        """Have the extension start the kernels from now on; if it is not there yet, ask again after twice as many runs.

        It is compiled in the background once it was asked for.
        """
        fast = self._backend.engine.in_one([self.bound])
        if fast is not None:
            self._run = fast
        else:
            self._left = self._wait = 2 * self._wait


class PreparedSequence:
    """Several prepared assignments of one backend, run one after the other by one call; it returns nothing.

    Where all are kernels of the C engine and the extension of ``kernels/c/fastpath.py`` is there, they are one program.
    """

    __slots__ = ("_backend", "_fast", "_steps")

    def __init__(self, backend: Any, steps: Sequence[Prepared]) -> None:
        self._backend, self._steps = backend, tuple(steps)
        self._fast: Callable[[], None] | None = None

    def __call__(self) -> None:
        """Run them."""
        if at_work:
            lose()
        if self._fast is not None and not self._backend.closed:
            self._fast()
            return
        for step in self._steps:
            step()
        if self._fast is None:
            self._fast = self._backend.engine.in_one([step.bound for step in self._steps])
