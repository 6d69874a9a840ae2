"""Gradients against central differences: the implementation of ``be.check_grad``.

A gradient g is right if the slope of f along any direction v is the product of g and v. One random v reveals nearly
every error at the cost of a few evaluations; single elements are examined only if it does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.expressions.activation import derivative
from neonlike.errors import ArgumentError, DTypeError, GradientError
from neonlike.optree.autodiff import Autodiff
from neonlike.optree.dtypes import F64, is_float
from neonlike.optree.node import Expression

Array = npt.NDArray[np.float64]
_STEPS = (1e-4, 1e-6)
"""Step sizes of the differences, relative to the values; by Richardson's extrapolation the error is of fourth order.

The second is for cases that the first leaves undecided: it is less exact, but less likely to reach a kink.
"""
_ALONE, _PARTS = 64, 8
"""Number of elements tried one by one, and of parts that larger tensors are cut into, to find the worst."""


_inside: ContextVar[bool] = ContextVar("inside_grad", default=False)


def is_differentiating() -> bool:
    """Whether a function is being called to take its gradient; gradients inside it are expressions."""
    return _inside.get()


@contextmanager
def differentiating() -> Iterator[None]:
    """Mark the call of a function whose gradient is taken."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


@dataclass
class Case:
    """A function at a point: ``compute`` returns its value, ``gradients`` its gradients by some of ``points``.

    ``weights`` are the weights of single elements in the value, for an activation.
    """

    name: str
    compute: Callable[[], float]
    points: dict[int, Any]
    gradients: list[Array]
    weights: Array | None = None
    step: float = _STEPS[0]

    def slope(self, position: int, direction: Array) -> tuple[float, float]:
        """Slope along ``direction`` at one of the points, and its uncertainty."""
        step = self._step(position)
        low, half_low, half_high, high = self._along(position, direction, [-step, -step / 2, step / 2, step])
        coarse, fine = (high - low) / (2 * step), (half_high - half_low) / step
        return (4 * fine - coarse) / 3, abs(fine - coarse)

    def bend(self, position: int, direction: Array) -> float:
        """Difference of the slopes before and after the point, nearly 0 except at a kink."""
        step = self._step(position) / 2
        low, here, high = self._along(position, direction, [-step, 0.0, step])
        return abs(high - 2 * here + low) / step

    def _step(self, position: int) -> float:
        values = self.points[position].get()
        return self.step * max(1.0, float(np.sqrt(np.mean(values * values))))

    def _along(self, position: int, direction: Array, lengths: list[float]) -> list[float]:
        """Values at ``lengths`` from the point, which is restored."""
        point = self.points[position]
        start, found = point.get(), []
        try:
            for length in lengths:
                point.set(start + length * direction)
                found.append(self.compute())
        finally:
            point.set(start)
        return found


def check(be: Any, f: Any, tensors: list[Any], rtol: float, seed: int) -> float:
    """See ``GradientFamily.check_grad``.

    Parameters
    ----------
    be : Backend
    f, tensors, rtol, seed
        As in ``GradientFamily.check_grad``.
    """
    rng = np.random.default_rng(seed)
    points = [be.array(t.get(), dtype=np.float64) if is_float(t.dtype) else t for t in tensors]
    floats = {n: point for n, point in enumerate(points) if is_float(point.dtype)}
    if not floats:
        raise DTypeError("check_grad: all tensors hold integers; there is nothing to differentiate by")
    make = _of_transform if hasattr(f, "bprop") else _of_function
    case = make(be, f, points, floats, rng)
    worst = 0.0
    for position, gradient in zip(case.points, case.gradients):
        worst = max(worst, compare(case, position, gradient, rtol, rng))
    return worst


def compare(case: Case, position: int, gradient: Array, rtol: float, rng: Any) -> float:
    """Relative difference along a random direction; raises GradientError if it is too large.

    Parameters
    ----------
    case : Case
    position : int
        Which of its points.
    gradient : array
        The gradient to judge, of the point's shape.
    rtol : float
        Allowed difference.
    rng : numpy.random.Generator
        Source of the direction.
    """
    direction = rng.standard_normal(gradient.shape)
    found = float((gradient * direction).sum())
    for case.step in _STEPS:
        slope, doubt = case.slope(position, direction)
        size = float(np.sqrt(np.square(gradient * direction).sum())) + abs(slope) + 1e-3
        if np.isfinite(found) and doubt <= 1e-2 * size and abs(found - slope) <= rtol * size + 10 * doubt:
            case.step = _STEPS[0]
            return abs(found - slope) / size
    raise GradientError(_wrong(case, position, gradient, rng, found, slope))


def replayed(be: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``f`` to use the same random numbers in each call."""
    state = be.rng_get_state()

    def again(*points: Any) -> Any:
        be.rng_set_state(state)
        return f(*points)

    return again


def _check_takes(f: Any, name: str, count: int) -> None:
    try:
        inspect.signature(f).bind(*range(count))
    except ValueError:  # nothing is known about built-in functions
        return
    except TypeError as error:
        raise ArgumentError(f"check_grad: {name} does not take {count} tensors: {error}") from None


def _of_function(be: Any, f: Any, points: list[Any], floats: dict[int, Any], rng: Any) -> Case:
    """Case of a function that returns an expression; its gradient is Autodiff's."""
    name = getattr(f, "__name__", type(f).__name__)
    _check_takes(f, name, len(points))
    drawing = replayed(be, f)

    def expression() -> Any:  # rebuilt for each point: f may compute tensors from the points' current values
        with differentiating():
            return drawing(*points)

    with differentiating():
        value = drawing(*points)
    if not isinstance(value, Expression):
        raise GradientError(f"check_grad: {name} must return an expression of tensors, got {type(value).__name__}")
    if value.dtype != F64:
        raise DTypeError(
            f"check_grad: {name} computes in {value.dtype.name}, but differences need float64; pass all tensors of "
            "floats that it reads as arguments"
        )
    weights = np.ones((1, 1)) if value.shape == (1, 1) else rng.standard_normal(value.shape)
    error, out = be.array(weights, dtype=np.float64), be.empty(value.shape, dtype=np.float64)
    gradients = Autodiff(value, be, error).get_grad_tensor(list(floats.values()))

    def compute() -> float:
        return float((be.assign(out, expression()).get() * error.get()).sum())

    return Case(name, compute, floats, [gradient.get() for gradient in gradients])


def _of_transform(be: Any, f: Any, points: list[Any], floats: dict[int, Any], rng: Any) -> Case:
    """Case of an activation of one tensor, or a cost of outputs and targets; its gradient is ``bprop``."""
    name = type(f).__name__
    if hasattr(f, "fprop") or len(points) > 2 or 0 not in floats:
        raise ArgumentError(
            f"check_grad: {name} with {len(points)} tensors is neither an activation (of one tensor of floats) nor a "
            "cost (of outputs and targets); pass a function that returns an expression"
        )
    x, *targets = points
    scratch = be.empty(x.shape, dtype=np.float64)
    error: Any = None

    def value() -> Any:
        be.assign(scratch, x)  # some transforms work in place
        return f(scratch, *targets)

    first = value()
    out, deltas = be.empty(first.shape, dtype=np.float64), be.empty(x.shape, dtype=np.float64)
    be.assign(out, first)
    if targets:
        be.assign(deltas, f.bprop(x, *targets))
    else:
        error = be.array(rng.standard_normal(out.shape), dtype=np.float64)
        be.assign(deltas, derivative(f, outputs=out, inputs=x) * error)

    def compute() -> float:
        host = be.assign(out, value()).get()
        return float((host if error is None else host * error.get()).sum())

    return Case(f"{name}.bprop", compute, {0: x}, [deltas.get()], None if error is None else error.get())


# Messages -------------------------------------------------------------------------------------------------------------


def _wrong(case: Case, position: int, gradient: Array, rng: Any, found: float, slope: float) -> str:
    index, mine, wanted, doubt = _worst_element(case, position, gradient, rng)
    if not np.isfinite(wanted) or doubt > 0.1 * (abs(mine - wanted) + 1e-9):
        return _undecided(case, position, wanted, doubt)
    if case.weights is not None and case.weights.shape == gradient.shape:
        mine, wanted = mine / case.weights[index], wanted / case.weights[index]
    return (
        f"check_grad: the gradient of {case.name} by tensor {position} of shape {gradient.shape} is wrong; worst at "
        f"element {index}: {mine:.6g} by the gradient, {wanted:.6g} by central differences (along a random direction "
        f"{found:.6g} and {slope:.6g})"
    )


def _undecided(case: Case, position: int, slope: float, doubt: float) -> str:
    return (
        f"check_grad: differences of {case.name} by tensor {position} do not settle ({slope:.6g}, give or take "
        f"{doubt:.2g}): it has a kink or is not finite near these values; choose others"
    )


def _worst_element(
    case: Case, position: int, gradient: Array, rng: Any
) -> tuple[tuple[int, ...], float, float, float]:
    """Index of the element with the largest difference, its two values, and the uncertainty of the second."""
    candidates = np.arange(gradient.size)
    while len(candidates) > _ALONE:
        parts = np.array_split(candidates, _PARTS)
        candidates = parts[int(np.argmax([_difference(case, position, gradient, part, rng) for part in parts]))]
    tried = []
    for n in candidates:
        direction = np.zeros(gradient.shape)
        direction.reshape(-1)[n] = 1.0
        mine, (slope, doubt) = float(gradient.reshape(-1)[n]), case.slope(position, direction)
        off = abs(mine - slope)
        tried.append((off if np.isfinite(off) else np.inf, int(n), mine, slope, doubt))
    _, worst, mine, slope, doubt = max(tried)
    direction = np.zeros(gradient.shape)
    direction.reshape(-1)[worst] = 1.0
    doubt = max(doubt, case.bend(position, direction))
    return tuple(int(i) for i in np.unravel_index(worst, gradient.shape)), mine, slope, doubt


def _difference(case: Case, position: int, gradient: Array, part: Any, rng: Any) -> float:
    """Difference of gradient and slope along a random direction in the elements ``part``."""
    direction = np.zeros(gradient.shape)
    direction.reshape(-1)[part] = rng.standard_normal(len(part))
    off = abs(float((gradient * direction).sum()) - case.slope(position, direction)[0])
    return off if np.isfinite(off) else np.inf
