"""The contenders of ``expressions.py`` and ``gpu.py``: an expression at one size, in every library installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import _expressions
import _machine
import numpy as np
from _cases import LEFT_OUT, NOT_INSTALLED, Case, Contender, Refused
from _expressions import Expression
from _libraries import Jax, Library, Made, Neonlike, Run, Torch, contender, need

OURS = ASSIGN, PREPARED = "neonlike assign", "neonlike prepared"


class Problem:
    """One expression at one size, with its float32 operands.

    Attributes
    ----------
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
        wide = [array.astype(np.float64) for array in self.inputs.values()]
        return _as_tuple(self.expression.array(functions(np, _erf() or np.vectorize(math.erf, [np.float64])))(*wide))

    def case(self, found: list[Contender], refused: dict[str, str]) -> Case:
        """The case of these contenders."""
        nbytes = _expressions.nbytes(self.expression, self.size)
        name, text = self.expression.name, self.expression.text
        return Case(name, text, self.size, found, self.reference, nbytes, refused=refused)


def functions(module: Any, erf: Any) -> SimpleNamespace:
    """The functions of NumPy's namespace that the definitions call, and the error function."""
    names = "exp log sqrt tanh max sum mean var where".split()
    return SimpleNamespace(erf=erf, **{name: getattr(module, name) for name in names})


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


class Place:
    """Operands of a problem in a library, and its results where it can write into them."""

    def __init__(self, problem: Problem, library: Library) -> None:
        self.library = library
        self.first = {name: problem.inputs[name] for name in problem.expression.targets}
        self.operands = {name: library.put(array) for name, array in problem.inputs.items()}
        self.targets = [self.operands[name] for name in self.first]
        if not self.first and not library.returns:
            self.targets.append(library.room(problem.out_shape))

    def reset(self) -> None:
        """Restore replaced operands; if there are none, fill results with nan."""
        for name, values in self.first.items():
            self.library.set(self.operands[name], values)
        for target in () if self.first else self.targets:
            self.library.set(target, np.float32(np.nan))

    def arguments(self) -> list[Any]:
        """The target, unless operands are replaced, and the operands."""
        return [*([] if self.first else self.targets), *self.operands.values()]

    def made(self, run: Run) -> Made:
        """A call that writes into the targets."""
        return Made(run, lambda: self.targets, reset=self.reset)


# Ours -----------------------------------------------------------------------------------------------------------


def neonlike_set(problem: Problem, library: Any, prepared: bool) -> Made:
    """Ours: an assignment, which builds the expression each time, or a prepared one."""
    place, build = Place(problem, library), problem.expression.neonlike(library.be)
    return place.made(our_run(library.be, build, list(place.operands.values()), place.targets, prepared))


def our_run(be: Any, build: Callable[..., Any], operands: list[Any], targets: list[Any], prepared: bool) -> Run:
    """Assign ``build(*operands)`` to ``targets``: prepared, or building the expression each time."""
    if prepared:
        return be.prepare(list(zip(targets, _as_tuple(build(*operands)))))
    if len(targets) > 1:
        return lambda: be.assign_many(list(zip(targets, build(*operands))))
    (out,) = targets

    def run() -> None:
        out[:] = build(*operands)

    return run


# The function of an expression in each library ------------------------------------------------------------------


def _erf() -> Callable[..., Any] | None:
    """SciPy's error function, since NumPy has none."""
    if _machine.peer_versions()["scipy"] == NOT_INSTALLED:
        return None
    from scipy.special import erf

    return erf


def numpy_function(problem: Problem, library: Any) -> Callable[..., Any]:
    """The formula as one writes it in NumPy, the last operation with ``out=``."""
    xp: Any = np
    if problem.expression.name == "gelu":
        if (erf := _erf()) is None:
            raise Refused("no erf in NumPy, and scipy, which has one, is missing")
        xp = SimpleNamespace(erf=erf, multiply=np.multiply)
    return problem.expression.numpy(xp)


def numexpr_function(problem: Problem, library: Any) -> Callable[..., Any]:
    """numexpr on all threads."""
    import numexpr

    if problem.expression.numexpr is None:
        raise Refused("not expressible: no erf, and reductions only outermost")
    numexpr.set_num_threads(_machine.cores())
    return partial(problem.expression.numexpr, numexpr.evaluate)


def numba_function(problem: Problem, library: Any) -> Callable[..., Any]:
    """Parallel loops compiled by Numba."""
    import _numba_loops
    from numba import set_num_threads

    set_num_threads(_machine.cores())
    return _numba_loops.loop(problem.expression.name)


def torch_function(problem: Problem, library: Any, compiled: bool = False) -> Callable[..., Any]:
    """The expression in PyTorch, eager or compiled; what it makes by itself is on the library's device."""
    torch, expression = library.torch, problem.expression
    with torch.device(library.device):
        if not compiled:
            return (expression.eager or expression.torch)(torch)
        torch._dynamo.reset()  # or it would give up on a function that came with many sizes
        return torch.compile(expression.torch(torch), dynamic=False)


def cupy_function(problem: Problem, library: Any, fused: bool = False) -> Callable[..., Any]:
    """The definition, and the same as one kernel where ``cupy.fuse`` can do it."""
    from cupyx.scipy import special

    function = problem.expression.array(functions(library.cupy, special.erf))
    return library.cupy.fuse(function) if fused else function


def jax_function(problem: Problem, library: Any) -> Callable[..., Any]:
    """The expression, compiled."""
    jax, expression = library.jax, problem.expression
    formula = expression.jax(jax) if expression.jax else expression.array(functions(jax.numpy, jax.scipy.special.erf))
    return jax.jit(formula, donate_argnums=tuple(range(len(expression.targets))))  # they come first


# Calls of such a function ---------------------------------------------------------------------------------------


def writing_set(problem: Problem, library: Library, function: Callable[..., Any]) -> Made:
    """A function that writes into its target, or into operands."""
    place = Place(problem, library)
    arguments = place.arguments()
    return place.made(lambda: function(*arguments))


def evaluating_set(problem: Problem, library: Library, function: Callable[..., Any]) -> Made:
    """A function of operands by name, and of the target."""
    place = Place(problem, library)
    return place.made(lambda: function(place.operands, place.targets[0]))


def torch_set(problem: Problem, library: Library, function: Callable[..., Any]) -> Made:
    """PyTorch, eager or compiled: what the function returns is the result."""
    place, last = Place(problem, library), [None]
    arguments = place.arguments()

    def run() -> None:
        last[0] = function(*arguments)

    def results() -> list[Any]:
        return place.targets if place.first else [last[0].reshape(problem.out_shape)]

    return Made(run, results, reset=place.reset)


def cupy_set(problem: Problem, library: Library, function: Callable[..., Any]) -> Made:
    """CuPy: results are new arrays, or replace the operands they belong to."""
    place, last = Place(problem, library), list[Any]()
    operands, targets = list(place.operands.values()), place.targets if place.first else []

    def run() -> None:
        last[:] = _as_tuple(function(*operands))
        for target, value in zip(targets, last):
            target[...] = value

    return Made(run, lambda: targets or last, reset=place.reset)


def jax_set(problem: Problem, library: Any, function: Callable[..., Any]) -> Made:
    """JAX: results are new arrays, in the memory of operands that are replaced; on a CPU they are waited for."""
    count, last, operands = len(problem.expression.targets), list[Any](), list[Any]()
    wait = library.jax.block_until_ready if library.device == "cpu" else lambda made: made

    def reset() -> None:
        operands[:] = [library.put(array) for array in problem.inputs.values()]

    def run() -> None:
        library.last = last[:] = _as_tuple(wait(function(*operands)))
        operands[:count] = last[:count]

    return Made(run, lambda: last, reset=reset)


# Peers ----------------------------------------------------------------------------------------------------------


class Peer(NamedTuple):
    """A way of a library: its function of a problem, and the call that runs it."""

    library: str
    function: Callable[..., Callable[..., Any]]
    made: Callable[..., Made]


PEERS = {
    "numpy": Peer("numpy", numpy_function, writing_set),
    "numexpr": Peer("numexpr", numexpr_function, evaluating_set),
    "torch": Peer("torch", torch_function, torch_set),
    "torch.compile": Peer("torch", partial(torch_function, compiled=True), torch_set),
    "numba": Peer("numba", numba_function, writing_set),
    "cupy": Peer("cupy", cupy_function, cupy_set),
    "cupy.fuse": Peer("cupy", partial(cupy_function, fused=True), cupy_set),
    "jax": Peer("jax", jax_function, jax_set),
}
ON_CPU = ("numpy", "numexpr", "torch", "torch.compile", "numba", "jax")
ON_GPU = ("torch", "torch.compile", "cupy", "cupy.fuse", "jax")
SLOW_TO_COMPILE = ("torch.compile", "numba", "cupy.fuse")
TOO_SLOW = f"{LEFT_OUT}, compiling takes seconds"


@lru_cache
def library_on_cpu(name: str) -> Library:
    """A library on all threads; PyTorch in inference mode once for the process, as entering it takes a microsecond."""
    if name == "jax":
        return Jax("cpu")
    if name != "torch":
        need(name)
        return Library()
    library = Torch("cpu")
    library.torch.set_num_threads(_machine.cores())
    library.torch.inference_mode().__enter__()
    return library


def peer_made(problem: Problem, name: str, library: Library) -> Made:
    """The call of a peer on a CPU."""
    peer = PEERS[name]
    return peer.made(problem, library, peer.function(problem, library))


def make_case(be: Any, expression: Expression, size: int, slow: bool, only: str) -> Case:
    """``expression`` at ``size`` with the contender ``only``; ``slow`` admits those that take seconds to compile."""
    problem = Problem(expression, size)
    try:
        if only in OURS:
            ours = Neonlike(be)
            return problem.case([contender(ours, only, neonlike_set(problem, ours, only == PREPARED), ours=True)], {})
        if not slow and only in SLOW_TO_COMPILE:
            raise Refused(TOO_SLOW)
        library = library_on_cpu(PEERS[only].library)
        return problem.case([contender(library, only, peer_made(problem, only, library))], {})
    except Refused as why:
        return problem.case([], {only: str(why)})
