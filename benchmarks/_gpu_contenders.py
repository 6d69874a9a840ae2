"""The contenders of ``gpu.py``: expressions, matrix products and copies between host and GPU, in every library.

A large case has several sets of operands and results, and each run takes the next: what a run reads is not in the L2
cache any more. Results are poisoned before they are checked, and all sets must give the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import _expressions
import numpy as np
from _cases import Case, Contender
from _contenders import Problem, _as_tuple, _functions, our_run
from _expressions import Expression
from _gpu_libraries import Library, Run
from _terms import LEFT_OUT

ROTATE_FROM = 1 << 20
"""Cases that move fewer bytes use one set: they cost what calling costs, wherever the data is."""
CACHES, MOST_SETS = 4, 16
"""All sets together are so many times as large as the L2 cache; but there are not more than this."""


def sets_for(nbytes: int, cache: int) -> int:
    """How many sets of operands a case of ``nbytes`` takes turns with."""
    return 1 if nbytes < ROTATE_FROM else max(1, min(MOST_SETS, math.ceil(CACHES * cache / nbytes)))


@dataclass(frozen=True)
class Field:
    """Who takes part.

    Parameters
    ----------
    ours : Neonlike
    peers : dict of Library, by name
    absent : dict
        Name of a library -> why it takes no part.
    cache : int
        Bytes of the L2 cache.
    """

    ours: Any
    peers: dict[str, Library]
    absent: dict[str, str]
    cache: int


@dataclass
class Set:
    """Operands and results of one run.

    Parameters
    ----------
    run : callable
    results : callable
        The arrays on the GPU that the last run left.
    reset : callable
        First values to operands that are replaced, nan to results.
    """

    run: Run
    results: Callable[[], Sequence[Any]]
    reset: Callable[[], None]


def contender(library: Library, name: str, sets: Sequence[Set], ours: bool = False) -> Contender:
    """A contender that takes the next of ``sets`` in each run."""
    following = itertools.cycle([each.run for each in sets])
    run: Run = sets[0].run if len(sets) == 1 else lambda: next(following)()

    def reset() -> None:
        nonlocal following
        following = itertools.cycle([each.run for each in sets])
        for each in sets:
            each.reset()

    def result() -> list[Any]:
        """Of the first set; of ours, once the others have run too."""
        library.synchronize()
        found = [library.get(array) for array in sets[0].results()]
        for each in sets[1:] if ours else ():
            next(following)()
            others = [library.get(array) for array in each.results()]
            if not all(np.array_equal(a, b) for a, b in zip(found, others)):
                raise ArithmeticError("the same operands elsewhere in memory give another result")
        return found

    return Contender(name, run, result, reset, ours, lambda loops: library.elapsed(run, loops))


# Expressions ----------------------------------------------------------------------------------------------------


class Place:
    """Operands of a problem in a library, and its results where it can write into them."""

    def __init__(self, problem: Problem, library: Library) -> None:
        self.problem, self.library = problem, library
        self.first = {name: problem.inputs[name] for name in problem.expression.targets}
        self.operands = {name: library.put(array) for name, array in problem.inputs.items()}
        made = [] if self.first or library.returns else [np.full(problem.out_shape, np.nan, np.float32)]
        self.targets = [self.operands[name] for name in self.first] or [library.put(array) for array in made]

    def reset(self) -> None:
        """Restore replaced operands; if there are none, fill results with nan."""
        for name, values in self.first.items():
            self.library.set(self.operands[name], values)
        if not self.first:
            for target in self.targets:
                self.library.set(target, np.float32(np.nan))

    def arguments(self) -> list[Any]:
        """What functions of ``_expressions`` take: the target, unless operands are replaced, and the operands."""
        return [*([] if self.first else self.targets), *self.operands.values()]


def neonlike_set(problem: Problem, library: Any, prepared: bool) -> Set:
    """Ours: an assignment, which builds the expression each time, or a prepared one."""
    be, place = library.be, Place(problem, library)
    build, operands, targets = problem.expression.neonlike(be), list(place.operands.values()), place.targets
    run = our_run(be, build, operands, targets, prepared)
    return Set(run, lambda: targets, place.reset)


def torch_set(problem: Problem, library: Any, function: Callable[..., Any]) -> Set:
    """PyTorch, eager or compiled."""
    place, last = Place(problem, library), [None]
    arguments = place.arguments()

    def run() -> None:
        last[0] = function(*arguments)

    def results() -> list[Any]:
        return place.targets if place.first else [last[0].reshape(problem.out_shape)]  # type: ignore[attr-defined]

    return Set(run, results, place.reset)


def torch_function(problem: Problem, library: Any, compiled: bool) -> Callable[..., Any]:
    """The expression in PyTorch; what it makes by itself is on the GPU."""
    torch, expression = library.torch, problem.expression
    with torch.device(library.device):
        if not compiled:
            return (expression.eager or expression.torch)(torch)
        torch._dynamo.reset()  # or it would give up on a function that came with many sizes
        function: Callable[..., Any] = torch.compile(expression.torch(torch), dynamic=False)
        return function


def cupy_set(problem: Problem, library: Any, function: Callable[..., Any]) -> Set:
    """CuPy: results are new arrays, or replace the operands they belong to."""
    place, last = Place(problem, library), list[Any]()
    operands, targets = list(place.operands.values()), place.targets if place.first else []

    def run() -> None:
        last[:] = _as_tuple(function(*operands))
        for target, value in zip(targets, last):
            target[...] = value

    return Set(run, lambda: targets or last, place.reset)


def cupy_function(problem: Problem, library: Any, fused: bool) -> Callable[..., Any]:
    """The definition, and the same as one kernel where ``cupy.fuse`` can do it."""
    from cupyx.scipy import special

    function = problem.expression.array(SimpleNamespace(erf=special.erf, **_functions(library.cupy)))
    made: Callable[..., Any] = library.cupy.fuse(function) if fused else function
    return made


def jax_set(problem: Problem, library: Any, function: Callable[..., Any]) -> Set:
    """JAX: results are new arrays, in the memory of operands that are replaced."""
    count, last, operands = len(problem.expression.targets), list[Any](), list[Any]()

    def reset() -> None:
        operands[:] = [library.put(array.copy()) for array in problem.inputs.values()]

    def run() -> None:
        library.last = last[:] = _as_tuple(function(*operands))
        operands[:count] = last[:count]

    return Set(run, lambda: last, reset)


def jax_function(problem: Problem, library: Any) -> Callable[..., Any]:
    """The expression, compiled."""
    jax, expression = library.jax, problem.expression
    xp = SimpleNamespace(erf=jax.scipy.special.erf, **_functions(jax.numpy))
    formula = expression.jax(jax) if expression.jax else expression.array(xp)
    function: Callable[..., Any] = jax.jit(formula, donate_argnums=tuple(range(len(expression.targets))))
    return function


Maker = tuple[str, Callable[[Problem, Any], Callable[..., Any]], Callable[..., Set]]
"""Library, what makes the function of a problem, what makes a set that runs it."""

PEERS: dict[str, Maker] = {
    "torch": ("torch", lambda problem, library: torch_function(problem, library, False), torch_set),
    "torch.compile": ("torch", lambda problem, library: torch_function(problem, library, True), torch_set),
    "cupy": ("cupy", lambda problem, library: cupy_function(problem, library, False), cupy_set),
    "cupy.fuse": ("cupy", lambda problem, library: cupy_function(problem, library, True), cupy_set),
    "jax": ("jax", jax_function, jax_set),
}
SLOW_TO_COMPILE = ("torch.compile", "cupy.fuse")


def expression_case(expression: Expression, size: int, field: Field, slow: bool) -> Case:
    """All contenders of ``expression`` at ``size``; ``slow`` admits those that take seconds to compile."""
    problem, nbytes = Problem(expression, size), _expressions.nbytes(expression, size)
    count, ours, peers = sets_for(nbytes, field.cache), field.ours, field.peers
    found = [
        contender(ours, f"neonlike {way}", [neonlike_set(problem, ours, prepared) for _ in range(count)], ours=True)
        for way, prepared in (("assign", False), ("prepared", True))
    ]
    refused = {name: field.absent[library] for name, (library, _, _) in PEERS.items() if library in field.absent}
    for name, (library, function, make) in PEERS.items():
        if library not in peers:
            continue
        if not slow and name in SLOW_TO_COMPILE:
            refused[name] = f"{LEFT_OUT}, compiling takes seconds"
            continue
        made = function(problem, peers[library])
        found.append(contender(peers[library], name, [make(problem, peers[library], made) for _ in range(count)]))
    return Case(expression.name, expression.text, size, found, problem.reference, nbytes, refused=refused)


# Products -------------------------------------------------------------------------------------------------------

TOLERANCES = {"float32": 2e-5, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 2e-2}
"""Largest error of a product, in parts of its largest value; float16 results have 11 bits, those of bfloat16 8."""
SAMPLED = 8
"""Rows and columns of a product that are compared."""


def stored(precision: str) -> np.dtype[Any]:
    """The dtype of arrays in a precision: that of this name, float32 where only products are rounded."""
    from neonlike.optree import dtypes

    return dtypes.as_dtype("float32" if precision == "tf32" else precision)


def product_case(size: int, precision: str, field: Field) -> Case:
    """Square matrices of ``size``, multiplied by our layer over cuBLAS and by what calls the same library."""
    dtype = stored(precision)
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal((size, size), dtype=np.float32).astype(dtype) for _ in range(2))
    some = np.unique(np.linspace(0, size - 1, SAMPLED).astype(int))
    count, ours, peers = sets_for(3 * a.nbytes, field.cache), field.ours, field.peers

    def reference() -> list[Any]:
        wide = a.astype(np.float64), b.astype(np.float64)
        return [wide[0][some] @ wide[1], wide[0] @ wide[1][:, some]]

    def made(library: Library, name: str, multiply: Callable[[Any, Any, Any], Run], is_ours: bool = False) -> Contender:
        sets = []
        for _ in range(count):
            out = library.put(np.full((size, size), np.nan, dtype))
            run = multiply(library.put(a), library.put(b), out)
            sets.append(Set(run, lambda out=out: [out], lambda out=out: library.set(out, np.nan)))
        each = contender(library, name, sets, is_ours)
        whole = each.result
        return Contender(name, each.run, lambda: _sample(whole()[0], some), each.reset, is_ours, each.elapsed)

    found = [made(ours, "neonlike prepared", lambda x, y, out: ours.be.prepare(out, ours.be.dot(x, y)), True)]
    refused = {name: why for name, why in field.absent.items() if name != "jax"}
    if torch := peers.get("torch"):
        found.append(made(torch, "torch", lambda x, y, out: _torch_product(torch, x, y, out, precision == "tf32")))
    if (cupy := peers.get("cupy")) and precision in ("float32", "float16"):
        found.append(made(cupy, "cupy", lambda x, y, out: lambda: cupy.cupy.matmul(x, y, out=out)))  # type: ignore[attr-defined]
    return Case(
        precision, f"{precision} product, {size} x {size} x {size}", size, found, reference, 3 * a.nbytes,
        TOLERANCES[precision], refused, flops=2 * size**3,
    )  # fmt: skip


def _sample(product: Any, some: Any) -> list[Any]:
    """The rows and columns of a product that are compared."""
    return [product[some], product[:, some]]


def _torch_product(library: Any, x: Any, y: Any, out: Any, tf32: bool) -> Run:
    torch = library.torch

    def run() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.mm(x, y, out=out)

    return run


# Copies between host and GPU ------------------------------------------------------------------------------------


def copy_case(size: int, down: bool, field: Field) -> Case:
    """``size`` float32 elements from the host's memory to the GPU, or back; PyTorch from pinned memory is the limit."""
    host, peers = np.random.default_rng(size).standard_normal((size, 1), dtype=np.float32), field.peers
    methods = (lambda array, values: array.set(values)), (lambda array: array.get())
    found = [_copy(field.ours, "neonlike", host, down, *methods)]
    if torch := peers.get("torch"):
        found.append(_copy(torch, "torch", host, down, torch.set, torch.get))
        found.append(_pinned_copy(torch, host, down))
    if cupy := peers.get("cupy"):
        found.append(_copy(cupy, "cupy", host, down, *methods))
    name, refused = "to the host" if down else "to the GPU", {n: why for n, why in field.absent.items() if n != "jax"}
    return Case(name, name, size, found, lambda: [host], host.nbytes, 0.0, refused)


def _copy(library: Library, name: str, host: Any, down: bool, put: Any, get: Any) -> Contender:
    there = library.put(host)
    last = [np.full_like(host, np.nan)]

    def run() -> None:
        if down:
            last[0] = get(there)
        else:
            put(there, host)

    def reset() -> None:
        if not down:
            library.set(there, np.float32(np.nan))

    def result() -> list[Any]:
        return last if down else [library.get(there)]

    return Contender(name, run, result, reset, name == "neonlike", lambda loops: library.wall(run, loops))


def _pinned_copy(library: Any, host: Any, down: bool) -> Contender:
    pinned, there = library.torch.from_numpy(host).pin_memory(), library.put(host)
    target, source = (pinned, there) if down else (there, pinned)

    def run() -> None:
        target.copy_(source, non_blocking=True)

    def reset() -> None:
        if not down:
            there.fill_(math.nan)

    def result() -> list[Any]:
        return [target.cpu().numpy()]

    return Contender("torch pinned", run, result, reset, False, lambda loops: library.wall(run, loops))
