"""Derivatives of blocks of a graph: by chosen variables, computed again instead of kept, and checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neonlike.autograd import lifetimes
from neonlike.autograd.leaves import const, param
from neonlike.autograd.variable import Variable, made, upstream
from neonlike.backends.expressions.grad_check import Case, compare, replayed
from neonlike.checks import brief, number
from neonlike.errors import DTypeError, GradientError, ShapeError
from neonlike.optree import tape
from neonlike.optree.backward import TapeSweep
from neonlike.optree.dtypes import F64, is_float
from neonlike.optree.node import OpTreeNode
from neonlike.optree.sweep import gradients


def grad(
    root: Any,
    inputs: Sequence[Any],
    incoming: Any = None,
    create_graph: bool = False,
    absent: str = "error",
) -> list[Variable]:
    """Derivatives of ``root`` by ``inputs`` as variables; the graph stays, and no ``partial_derivative`` changes.

    They are derived in each call: only passes of ``backprop`` are recorded and repeated.

    Parameters
    ----------
    root : variable
    inputs : variables
        Parameters, or others that ``root`` was made of.
    incoming : variable or tensor of the shape of ``root``, optional
        What multiplies the derivatives, by elements; ones, for a scalar only, if not given.
    create_graph : bool
        Whether the results can be differentiated again; nothing is computed before their values are asked for.
    absent : "error" or "zeros"
        What an input gets that ``root`` was not made of. Zeros are what it gets where the derivative is 0 wherever
        it is taken, as the third of x**2.

    Raises
    ------
    ShapeError
        If ``incoming`` has another shape, or is missing where ``root`` has more than one element.
    GradientError
        If ``root`` does not depend on an input, or its graph was freed.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.param([[1.0, 2.0]])
    >>> (slope,) = autograd.grad(autograd.sum(x * x * x), [x], create_graph=True)
    >>> (curvature,) = autograd.grad(autograd.sum(slope), [x])
    >>> curvature.tolist()
    [[6.0, 12.0]]
    """
    listed = _checked(root, inputs, absent)
    made_of = {id(variable._expr) for variable in upstream(root)}
    error = _incoming(root, incoming)
    found = _derivatives(root, [v for v in listed if v.needs_grad], error, create_graph)
    results = []
    for place, variable in enumerate(listed):
        derivative = found.get(id(variable._expr))
        parents = (root, error) if isinstance(incoming, Variable) else (root,)
        if derivative is None:
            if absent == "error" and id(variable._expr) not in made_of:
                raise GradientError(
                    f"grad: {root!r} does not depend on input {place}, {variable!r}; leave it out, or pass "
                    "absent='zeros'"
                )
            derivative = variable.backend.zeros(variable.shape, dtype=variable.dtype)
        results.append(made("grad", derivative, parents) if create_graph else const(derivative))
    return results


def _checked(root: Any, inputs: Any, absent: Any) -> list[Variable]:
    listed = [inputs] if isinstance(inputs, Variable) else list(inputs)
    for one in (root, *listed):
        if not isinstance(one, Variable):
            raise DTypeError(f"grad: takes variables, got {brief(one)}")
    if absent not in ("error", "zeros"):
        raise GradientError(f"grad: absent must be 'error' or 'zeros', got {brief(absent)}")
    if not root.needs_grad and absent == "error":
        raise GradientError(f"grad: {root!r} depends on no parameter")
    return listed


def _incoming(root: Variable, incoming: Any) -> Variable:
    if incoming is None:
        if root.size != 1:
            raise ShapeError(f"grad: {root!r} has {root.size} elements; pass incoming, of its shape, or sum it first")
        return const(root.backend.ones(root.shape, dtype=root.dtype))
    error = incoming if isinstance(incoming, Variable) else const(incoming, backend=root.backend)
    if error.shape != root.shape:
        raise ShapeError(f"grad: incoming must have the shape of {root!r}, {root.shape}; got {error.shape}")
    return error


def _derivatives(root: Variable, inputs: list[Variable], error: Variable, lazy: bool) -> dict[int, Any]:
    """Gradients by the ids of the inputs' expressions."""
    wanted = [v._expr for v in inputs]
    if lazy:
        return gradients(root._expr, error._expr, wanted)
    root.value  # noqa: B018  computes it, and what is worth keeping
    return TapeSweep(root._expr, True, {id(one) for one in wanted}).compute(error.value, keep_graph=True)


# Computing again ------------------------------------------------------------------------------------------------------


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of variables, of whose inside nothing is kept: the backward pass computes it again.

    Saves the memory of the values in between, for computing them twice. Parameters that ``function`` uses besides its
    arguments get their derivatives as usual; random numbers are the same ones both times.

    Raises
    ------
    DTypeError
        If ``function`` cannot be called; when called, if it returns no variable.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.param([[2.0]])
    >>> autograd.checkpoint(lambda x: x * x * x)(x).backprop()
    >>> x.partial_derivative.item()
    12.0
    """
    if not callable(function):
        raise DTypeError(f"checkpoint: needs a function of variables, got {brief(function)}")

    @functools.wraps(function)
    def block(*args: Any, **options: Any) -> Any:
        result, inside = lifetimes.recorded(lambda: function(*args, **options))
        if not isinstance(result, Variable):
            raise DTypeError(f"checkpoint: the function must return one variable, got {brief(result)}")
        if not result.needs_grad or id(result) not in inside:
            return result
        parents = _boundary(result, inside)
        name = f"checkpoint({getattr(function, '__name__', type(function).__name__)})"
        expressions = tuple(parent._expr for parent in parents)
        rule = tape.Rule(name, expressions, _Again(result._expr, expressions), heavy=True)
        return made(name, tape.ruled(result._expr, rule), tuple(parents))

    return block


def _boundary(result: Variable, inside: set[int]) -> list[Variable]:
    """The variables that those ``inside`` were made of and that were made before."""
    found: dict[int, Variable] = {}
    stack, seen = [result], {id(result)}
    while stack:
        for parent in stack.pop().parents:
            if id(parent) in seen or not parent.needs_grad:
                continue
            seen.add(id(parent))
            if id(parent) in inside and parent.op is not None:
                stack.append(parent)
            else:
                found[id(parent)] = parent
    return list(found.values())


class _Again:
    """The gradient rule of a block: the gradient of its expression, in terms of what it starts from."""

    def __init__(self, value: OpTreeNode, parents: tuple[Any, ...]) -> None:
        self.value, self.parents = value, parents

    def __call__(self, F: Any, d: Any, z: Any, *forms: Any) -> tuple[Any, ...]:
        found = gradients(self.value, d, self.parents, stop=True)
        increments = [found.get(id(parent)) for parent in self.parents]
        changed = {id(p): form for p, form in zip(self.parents, forms) if p is not form}
        return tuple(tape.replaced(increments, changed)) if changed else tuple(increments)


# Checking -------------------------------------------------------------------------------------------------------------


def check_gradient(function: Callable[..., Any], *args: Any, rtol: float = 1e-5, seed: int = 0) -> float:
    """Compare the derivatives of ``function`` with central differences, in float64, along random directions.

    Parameters
    ----------
    function : callable
        Takes variables, returns one of any shape. Called several times, with the same random numbers.
    args : variables, tensors, arrays or numbers
        Where to compare: those of floats are copied, in float64; integers are passed as constants.
    rtol : float
        Difference allowed, relative to the size of the derivative along a direction.
    seed : int
        Of the directions.

    Returns
    -------
    float
        The largest relative difference found.

    Raises
    ------
    GradientError
        If a derivative is wrong: names the element that differs most, with both values. Also if differences cannot
        tell, at a kink or where values are not finite.
    DTypeError
        If there is nothing to compare, or ``function`` computes in another dtype than float64.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.check_gradient(lambda x: autograd.tanh(x) * x, [[0.5, -1.0, 2.0]]) < 1e-5
    True
    """
    name = getattr(function, "__name__", type(function).__name__)
    tolerance = number("check_gradient", "rtol", rtol)
    rng = np.random.default_rng(seed)
    inputs = [_float64(one) for one in args]
    points = {n: one.value for n, one in enumerate(inputs) if one.needs_grad}
    if not points:
        raise DTypeError("check_gradient: no argument holds floats; there is nothing to differentiate by")
    drawing = replayed(next(iter(points.values())).backend, function)
    value = drawing(*inputs)
    if not isinstance(value, Variable) or value.dtype != F64:
        got = repr(value) if isinstance(value, Variable) else brief(value)
        raise DTypeError(f"check_gradient: {name} must return a variable of float64, got {got}")
    weights = np.ones(value.shape) if value.size == 1 else rng.standard_normal(value.shape)
    wanted = [inputs[n] for n in points]
    if value.needs_grad:
        error = const(value.backend.array(weights, dtype=F64))
        slopes = [g.get() for g in grad(value, wanted, error, absent="zeros")]
    else:
        slopes = [np.zeros(one.shape) for one in wanted]

    def compute() -> float:
        return float((drawing(*inputs).get() * weights).sum())

    case = Case(name, compute, points, slopes)
    return max(compare(case, place, slope, tolerance, rng) for place, slope in zip(points, slopes))


def _float64(value: Any) -> Variable:
    found = value if isinstance(value, Variable) else const(value)
    if not is_float(found.dtype):
        return found
    tensor = found.value
    return param(tensor.backend.array(tensor, dtype=F64))
