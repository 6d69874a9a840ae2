"""Random expressions of tensors with axes of size 0 have the values, shapes and errors of NumPy's, and gradients.

Reductions of nothing are their neutral elements, or an error where there is none; moves and assignments of nothing do
nothing; what is reduced, stored and joined has the gradient that it has in NumPy's derivatives: 0 or nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neonlike.errors import NeonlikeError
from tests.fuzz.pairs import softmax

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float32", "float64", "int32", "float16", "bfloat16")


def logsumexp(a: Array, axis: Any) -> Array:
    """The logsumexp of nothing is that of an empty sum: -inf."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(a).sum(axis=axis, keepdims=True)))


def reduced(name: str) -> Callable[[Array, Any], Array]:
    return lambda a, axis: getattr(np, name)(a, axis=axis, keepdims=True)


def picked(a: Array, at: Array, axis: int) -> Array:
    """By an index, which NumPy checks in every case; its ``take`` does not where the result is empty."""
    return np.asarray(a[(slice(None),) * axis + (at,)])


class Move(NamedTuple):
    """A function of the backend, an expression and an axis, and NumPy's of an array and the axis."""

    lazy: Callable[[Any, Any, int], Any]
    plain: Callable[[Array, int], Array]


def edges(ndim: int, axis: int) -> list[tuple[int, int]]:
    """Widths of a pad along one axis."""
    return [(1, 2) if a == axis else (0, 0) for a in range(ndim)]


MOVES: dict[str, Move] = {
    **{
        name: Move(lambda be, x, axis, name=name: getattr(be, name)(x, axis=axis), reduced(name))
        for name in ("sum", "prod", "max", "min", "mean", "argmax", "argmin", "any", "all")
    },
    "logsumexp": Move(lambda be, x, axis: be.logsumexp(x, axis=axis), logsumexp),
    "softmax": Move(lambda be, x, axis: be.softmax(x, axis=axis), lambda a, axis: softmax(a, axis) if a.size else a),
    "cumsum": Move(lambda be, x, axis: be.cumsum(x, axis=axis), lambda a, axis: np.cumsum(a, axis)),
    "cumprod": Move(lambda be, x, axis: be.cumprod(x, axis=axis), lambda a, axis: np.cumprod(a, axis)),
    "sort": Move(lambda be, x, axis: be.sort(x, axis=axis), lambda a, axis: np.sort(a, axis)),
    "argsort": Move(lambda be, x, axis: be.argsort(x, axis=axis), lambda a, axis: np.argsort(a, axis, kind="stable")),
    "roll": Move(lambda be, x, axis: be.roll(x, 1, axis=axis), lambda a, axis: np.roll(a, 1, axis)),
    "flip": Move(lambda be, x, axis: be.flip(x, axis=axis), lambda a, axis: np.flip(a, axis)),
    "pad": Move(
        lambda be, x, axis: be.pad(x, edges(len(x.shape), axis)), lambda a, axis: np.pad(a, edges(a.ndim, axis)),
    ),
    "concatenate": Move(
        lambda be, x, axis: be.concatenate([x, x * 2], axis=axis), lambda a, axis: np.concatenate([a, a * 2], axis),
    ),
    "stack": Move(lambda be, x, axis: be.stack([x, x], axis=axis), lambda a, axis: np.stack([a, a], axis)),
    "take": Move(
        lambda be, x, axis: be.take(x, np.zeros(2, int), axis=axis), lambda a, axis: picked(a, np.zeros(2, int), axis),
    ),
    "take none": Move(
        lambda be, x, axis: be.take(x, np.zeros(0, int), axis=axis), lambda a, axis: np.take(a, np.zeros(0, int), axis),
    ),
    "repeat": Move(lambda be, x, axis: be.repeat(x, 2, axis=axis), lambda a, axis: np.repeat(a, 2, axis)),
    "repeat none": Move(lambda be, x, axis: be.repeat(x, 0, axis=axis), lambda a, axis: np.repeat(a, 0, axis)),
    "plus a row": Move(lambda be, x, axis: x + be.sum(x, axis=0), lambda a, axis: a + a.sum(0, keepdims=True)),
    "where": Move(lambda be, x, axis: be.where(x > 1, x, 0), lambda a, axis: np.where(a > 1, a, np.zeros_like(a))),
    "flat": Move(lambda be, x, axis: x.reshape((1, int(np.prod(x.shape)))), lambda a, axis: a.reshape(1, a.size)),
    "over all": Move(lambda be, x, axis: be.sum(x), lambda a, axis: a.sum(keepdims=True)),
    "product over all": Move(lambda be, x, axis: be.prod(x), lambda a, axis: a.prod(keepdims=True)),
    "product": Move(lambda be, x, axis: be.dot(x, x.T), lambda a, axis: a @ a.T),
}  # fmt: skip
WITH_GRADIENTS = (
    "sum", "prod", "mean", "cumsum", "roll", "flip", "pad", "concatenate", "stack", "take none", "repeat", "plus a row",
    "flat", "over all", "where", "logsumexp", "softmax",
)  # fmt: skip
"""Those that stay finite or empty, and have derivatives."""


def shape_of(rng: np.random.Generator) -> tuple[int, ...]:
    """Two or three axes, one of size 0 or several."""
    sizes = [int(n) for n in rng.choice((0, 1, 2, 3, 5), rng.integers(2, 4))]
    sizes[rng.integers(len(sizes))] = 0
    return tuple(sizes)


def attempt(do: Callable[..., Any], *arguments: Any) -> Any:
    """Its result, or None if it refuses."""
    try:
        return do(*arguments)
    except (NeonlikeError, ValueError, IndexError):
        return None


def agree(found: Any, wanted: Any, what: str) -> int:
    """Fail unless the result is NumPy's, or both refuse; the number of values, and one for the shape."""
    refused = [which for which, one in (("we refuse", found), ("NumPy refuses", wanted)) if one is None]
    assert len(refused) != 1, f"{what}: {refused[0]}"
    if refused:
        return 1
    assert found.shape == wanted.shape, f"{what}: the shape is {found.shape}, not {wanted.shape}"
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=0.01, err_msg=what)
    return int(wanted.size) + 1


def evaluated(be: Any, lazy: Any) -> Any:
    """The value of an expression, stored in a tensor that held something else."""
    out = be.empty(lazy.shape, dtype=getattr(lazy, "dtype", None))
    out[:] = 7
    out[:] = lazy
    return out.get()


def chain(be: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: str, first: str) -> int:
    """One to three moves after each other, each compared; the ``first`` one is given, and along an empty axis."""
    x = be.zeros(shape, dtype=dtype)
    host, told, total = np.zeros(shape), f"{dtype}{shape}", 0
    for number in range(rng.integers(1, 4)):
        name, axis = str(rng.choice(list(MOVES))), int(rng.integers(host.ndim))
        if number == 0:
            name, axis = first, shape.index(0)
        if host.ndim != 2 and name == "product":
            continue
        told += f", {name} {axis}"
        lazy, plain = attempt(MOVES[name].lazy, be, x, axis), attempt(MOVES[name].plain, host, axis)
        total += agree(None if lazy is None else evaluated(be, lazy), plain, told)
        if lazy is None or plain is None or plain.ndim > 4 or plain.dtype.kind != "f":
            break
        x, host = lazy, plain
    return total


def gradients(be: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> int:
    """The derivatives of a sum over a move of nothing beside something: of nothing none, of the rest its own."""
    name, axis = str(rng.choice(WITH_GRADIENTS)), int(rng.integers(len(shape)))
    x, w = be.zeros(shape, dtype=np.float64), be.ones((1, 3), dtype=np.float64) * 2
    weight = be.empty((1, 3), dtype=np.float64)
    weight[:] = w
    made = MOVES[name].lazy(be, x, axis)
    if 0 not in made.shape and name in ("mean", "logsumexp"):
        made = be.where(be.finite(made), made, 0)
    by_x, by_w = be.grad(lambda a, b: be.sum(MOVES[name].lazy(be, a, axis)) + be.sum(b * b), argnums=(0, 1))(x, weight)
    what = f"gradient of {name} {axis} of {shape}"
    return agree(by_x.get(), np.zeros(shape), what) + agree(by_w.get(), np.full((1, 3), 4.0), what)


def windows(be: Any, rng: np.random.Generator, dtype: str) -> int:
    """Assignments to empty windows leave their surroundings unchanged."""
    host = rng.integers(-4, 5, (4, 6)).astype(np.float64)
    x, at = be.array(host, dtype=dtype), int(rng.integers(5))
    window = (slice(at, at), slice(None)) if rng.integers(2) else (slice(1, 3), slice(at, at))
    for value in (7, x[window] + 1, x[window].get(), be.zeros((1, 1))):
        x[window] = value
    x[window] += 1
    x[be.array(np.zeros((4, 6))) > 0] = 5
    kept = be.concatenate([x[window], x], axis=0 if window[1] == slice(None) else 1) if window[0] != slice(1, 3) else x
    return agree(evaluated(be, kept * 1), host, f"{dtype}, window {window}")


def check(be: Any, seed: int) -> int:
    """Compare expressions of the empty tensors of a seed; the number of values and shapes compared."""
    rng = np.random.default_rng(seed)
    shape, dtype = shape_of(rng), str(rng.choice(DTYPES))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's means of nothing
        return (
            chain(be, rng, shape, dtype, list(MOVES)[seed % len(MOVES)])
            + gradients(be, rng, shape)
            + windows(be, rng, dtype)
        )
