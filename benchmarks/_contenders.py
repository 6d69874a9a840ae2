"""The contenders of ``optree.py``: one expression at one size, in every library that is installed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import _expressions
import _machine
import numpy as np
from _cases import Case, Contender
from _expressions import Expression
from _terms import LEFT_OUT, NOT_INSTALLED

Arrays = dict[str, Any]
OURS = ASSIGN, PREPARED = "neonlike assign", "neonlike prepared"


class Refused(Exception):
    """A library does not take part in a case; the text says why."""


class Problem:
    """One expression at one size, with its float32 operands.

    Attributes
    ----------
    expression : Expression
    inputs : dict of float32 arrays
    out_shape : tuple
        Shape of the result of an expression that replaces none of its operands.
    """

    def __init__(self, expression: Expression, size: int) -> None:
        self.expression, self.size = expression, size
        self.inputs = _expressions.operands(expression, size)
        self.out_shape = _expressions.shape(expression.out, _expressions.space(size))

    def reference(self) -> tuple[Any, ...]:
        """The definition in float64."""
        xp = SimpleNamespace(erf=_erf() or np.vectorize(math.erf, [np.float64]), **_functions(np))
        wide = [array.astype(np.float64) for array in self.inputs.values()]
        return _as_tuple(self.expression.array(xp)(*wide))


class State:
    """What one contender writes: a result array, or copies of the operands that are replaced."""

    def __init__(self, problem: Problem) -> None:
        names = problem.expression.targets
        self.first = {name: problem.inputs[name] for name in names}
        self.operands = problem.inputs | {name: array.copy() for name, array in self.first.items()}
        self.targets = [self.operands[name] for name in names] or [np.zeros(problem.out_shape, np.float32)]

    def reset(self) -> None:
        """Restore the operands that a run replaces."""
        for name, array in self.first.items():
            self.operands[name][...] = array

    def arguments(self) -> list[Any]:
        """What ``run`` takes: the target, unless operands are replaced, and the operands."""
        return [*([] if self.first else self.targets), *self.operands.values()]

    def contender(self, name: str, run: Callable[[], object]) -> Contender:
        """A contender whose ``run`` writes into this state."""
        return Contender(name, run, lambda: self.targets, self.reset)


def names() -> list[str]:
    """Names of all contenders, ours first."""
    return [*OURS, *PEERS]


def make_case(be: Any, expression: Expression, size: int, slow: bool, only: str) -> Case:
    """``expression`` at ``size`` with the contender ``only``; ``slow`` admits those that take seconds to compile."""
    problem = Problem(expression, size)
    found: list[Contender] = []
    refused: dict[str, str] = {}
    try:
        if not slow and only in SLOW_TO_COMPILE:
            raise Refused(f"{LEFT_OUT}, compiling takes seconds")
        found.append(_neonlike(be, problem, only == PREPARED) if only in OURS else PEERS[only](problem))
    except Refused as why:
        refused[only] = str(why)
    nbytes = _expressions.nbytes(expression, size)
    return Case(expression.name, expression.text, size, found, problem.reference, nbytes, refused=refused)


def _functions(module: Any) -> dict[str, Any]:
    """The functions of NumPy's namespace that the definitions call."""
    return {name: getattr(module, name) for name in "exp log sqrt tanh max sum mean var where".split()}


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


# Ours -----------------------------------------------------------------------------------------------------------


def assignment(be: Any, problem: Problem) -> Contender:
    """Ours as one writes it, which builds the expression each time."""
    return _neonlike(be, problem, prepared=False)


def _neonlike(be: Any, problem: Problem, prepared: bool) -> Contender:
    build, names = problem.expression.neonlike(be), problem.expression.targets
    tensors = {key: be.array(array) for key, array in problem.inputs.items()}
    targets = [tensors[name] for name in names] or [be.zeros(problem.out_shape)]
    operands = list(tensors.values())
    run = our_run(be, build, operands, targets, prepared)

    def reset() -> None:
        for name in names:
            tensors[name].set(problem.inputs[name])

    name = PREPARED if prepared else ASSIGN
    return Contender(name, run, lambda: [target.get() for target in targets], reset, ours=True)


def our_run(
    be: Any, build: Callable[..., Any], operands: list[Any], targets: list[Any], prepared: bool
) -> Callable[[], object]:
    """What assigns ``build(*operands)`` to ``targets``: prepared, or building the expression each time."""
    if prepared:
        prepared_step: Callable[[], object] = be.prepare(list(zip(targets, _as_tuple(build(*operands)))))
        return prepared_step
    if len(targets) > 1:
        return lambda: be.assign_many(list(zip(targets, build(*operands))))
    return _assignment(targets[0], build, operands)


def _assignment(out: Any, build: Callable[..., Any], operands: list[Any]) -> Callable[[], object]:
    def run() -> None:
        out[:] = build(*operands)

    return run


# Peers ----------------------------------------------------------------------------------------------------------


def _need(name: str) -> None:
    if _machine.peer_versions()[name] == NOT_INSTALLED:
        raise Refused(NOT_INSTALLED)


def _erf() -> Callable[..., Any] | None:
    """SciPy's error function, since NumPy has none."""
    if _machine.peer_versions()["scipy"] == NOT_INSTALLED:
        return None
    from scipy.special import erf

    return erf  # type: ignore[no-any-return]


def plain_numpy(problem: Problem) -> Contender:
    """The formula as one writes it in NumPy, the last operation with ``out=``."""
    xp: Any = np
    if problem.expression.name == "gelu":
        erf = _erf()
        if erf is None:
            raise Refused("no erf in NumPy, and scipy, which has one, is missing")
        xp = SimpleNamespace(erf=erf, multiply=np.multiply)
    function, state = problem.expression.numpy(xp), State(problem)
    arguments = state.arguments()
    return state.contender("numpy", lambda: function(*arguments))


def numexpr(problem: Problem) -> Contender:
    """numexpr on all threads."""
    _need("numexpr")
    import numexpr as ne

    form = problem.expression.numexpr
    if form is None:
        raise Refused("not expressible: no erf, and reductions only outermost")
    ne.set_num_threads(_machine.cores())
    state = State(problem)
    target = state.targets[0]
    return state.contender("numexpr", lambda: form(ne.evaluate, state.operands, target))


def torch(problem: Problem, compiled: bool = False) -> Contender:
    """PyTorch on all threads, eager or compiled, without gradients."""
    _need("torch")
    import torch

    _set_torch_up()
    state, expression = State(problem), problem.expression
    tensors = [torch.from_numpy(array) for array in state.arguments()]
    function = (expression.eager or expression.torch)(torch)
    if compiled:
        torch._dynamo.reset()  # or it would give up on a function that came with many sizes
        function = torch.compile(expression.torch(torch), dynamic=False)
    name, last = "torch.compile" if compiled else "torch", [None]

    def run() -> None:
        last[0] = function(*tensors)

    def result() -> list[Any]:
        if expression.targets:
            return state.targets
        return [np.asarray(last[0]).reshape(problem.out_shape)]

    return Contender(name, run, result, state.reset)


@lru_cache(maxsize=1)
def _set_torch_up() -> None:
    """All threads; inference mode once for the process, as entering it takes a microsecond."""
    import torch

    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(_machine.cores())
    torch.inference_mode().__enter__()


def numba(problem: Problem) -> Contender:
    """Parallel loops compiled by Numba."""
    _need("numba")
    import _numba_loops
    from numba import set_num_threads

    set_num_threads(_machine.cores())
    function, state = _numba_loops.loop(problem.expression.name), State(problem)
    arguments = state.arguments()
    return state.contender("numba", lambda: function(*arguments))


def jax(problem: Problem) -> Contender:
    """Compiled by JAX, on the CPU; results are new arrays, but may take the place of operands that are replaced."""
    _need("jax")
    import jax
    import jax.numpy as jnp

    expression = problem.expression
    xp = SimpleNamespace(erf=jax.scipy.special.erf, **_functions(jnp))
    replaced = tuple(range(len(expression.targets)))  # they come first
    formula = expression.jax(jax) if expression.jax else expression.array(xp)
    function = jax.jit(formula, donate_argnums=replaced)
    cpu, state = jax.devices("cpu")[0], list[Any]()
    last: list[Any] = []

    def reset() -> None:
        state[:] = [jax.device_put(array.copy(), cpu) for array in problem.inputs.values()]

    def run() -> None:
        last[:] = _as_tuple(jax.block_until_ready(function(*state)))
        for place in replaced:
            state[place] = last[place]

    return Contender("jax", run, lambda: last, reset)


PEERS: dict[str, Callable[[Problem], Contender]] = {
    "numpy": plain_numpy,
    "numexpr": numexpr,
    "torch": torch,
    "torch.compile": lambda problem: torch(problem, compiled=True),
    "numba": numba,
    "jax": jax,
}
SLOW_TO_COMPILE = ("torch.compile", "numba")
