"""Reductions. Reduced axes stay as size 1; ``keepdims=False`` drops them where two are left, as ``be.sum`` does."""

from __future__ import annotations

import math
from typing import Any

from neonlike.autograd.ops.common import F, derived, variable, with_rule
from neonlike.autograd.variable import Variable
from neonlike.errors import ArgumentError
from neonlike.optree import arrange, shapes
from neonlike.optree.functions import log_softmax as _log_softmax
from neonlike.optree.functions import logsumexp as _logsumexp
from neonlike.optree.functions import softmax as _softmax

__all__ = [
    "argmax", "euclidean_distance", "log_softmax", "logsumexp", "max", "mean", "min", "norm2", "prod", "softmax",
    "squared_frobenius_matrix_norm", "sum", "variance",
]  # fmt: skip


def _reduction(name: str, a: Any, axis: Any, keepdims: bool) -> Variable:
    a = variable(name, a)
    method = getattr(a.backend, name)
    return derived(name, lambda a: method(a, axis, None, keepdims), a)


def sum(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Sum over ``axis``: an int, a tuple of ints, or None for all.

    Parameters
    ----------
    a : variable
    axis : int, tuple of int, or None
    keepdims : bool
        False drops the reduced axes.

    Raises
    ------
    ShapeError
        On a wrong axis, or if ``keepdims=False`` would leave fewer than two axes.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.sum([[1.0, 2.0], [3.0, 4.0]], axis=1).tolist()
    [[3.0], [7.0]]
    """
    return _reduction("sum", a, axis, keepdims)


def prod(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Product over ``axis``; as :func:`sum`. Its derivative is exact also where factors are 0.

    Parameters
    ----------
    a, axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.prod([[1.0, 2.0], [3.0, 4.0]], axis=1).tolist()
    [[2.0], [12.0]]
    """
    return _reduction("prod", a, axis, keepdims)


def max(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Maximum over ``axis``; as :func:`sum`. Equal maxima share the derivative equally.

    Parameters
    ----------
    a, axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.max([[1.0, 2.0], [4.0, 3.0]], axis=1).tolist()
    [[2.0], [4.0]]
    """
    return _reduction("max", a, axis, keepdims)


def min(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Minimum over ``axis``; as :func:`max`.

    Parameters
    ----------
    a, axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.min([[1.0, 2.0], [4.0, 3.0]], axis=1).tolist()
    [[1.0], [3.0]]
    """
    return _reduction("min", a, axis, keepdims)


def argmax(a: Any, axis: int = 1, keepdims: bool = True) -> Variable:
    """First position of the maximum along ``axis``, as int64; without derivative.

    Parameters
    ----------
    a, keepdims
        As of :func:`sum`.
    axis : int

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.argmax([[1.0, 2.0], [4.0, 3.0]]).tolist()
    [[1], [0]]
    """
    return _reduction("argmax", a, axis, keepdims)


def mean(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Arithmetic mean over ``axis``; as :func:`sum`.

    Parameters
    ----------
    a, axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.mean([[1.0, 2.0], [3.0, 4.0]], axis=1).tolist()
    [[1.5], [3.5]]
    """
    a = variable("mean", a)
    method = a.backend.mean
    return derived("mean", lambda a: method(a, axis, keepdims=keepdims), a)


def variance(a: Any, axis: Any = None, keepdims: bool = True, unbiased: bool = True) -> Variable:
    """Variance over ``axis``: squared distances from the mean, summed and divided by their number less one.

    Parameters
    ----------
    a : variable
    axis : int, tuple of int or None
    keepdims : bool
        False drops the reduced axes.
    unbiased : bool
        False: divide by their number.

    Raises
    ------
    ArgumentError
        If ``unbiased`` and there is one element only.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.variance([[1.0, 3.0]], axis=1).tolist()
    [[2.0]]
    """
    a = variable("variance", a)
    axes = shapes.normalize_axes("variance", axis, a.shape)
    count = math.prod(a.shape[i] for i in axes) - bool(unbiased)
    if unbiased and count < 1:
        raise ArgumentError(f"variance: axis {axis} of {a.shape} has too few elements; pass unbiased=False, or more")
    share = math.prod(a.shape[i] for i in axes) / (count or 1)
    method = a.backend.var

    def build(a: Any) -> Any:
        value = method(a, axes, keepdims=keepdims)
        return value * share if unbiased else value

    return derived("variance", build, a)


def norm2(a: Any, axis: Any = None, keepdims: bool = True) -> Variable:
    """Euclidean norm over ``axis``; its derivative is 0 where the norm is.

    Parameters
    ----------
    a, axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.norm2([[3.0, 4.0]], axis=1).tolist()
    [[5.0]]
    """
    a = variable("norm2", a)
    axes = shapes.normalize_axes("norm2", axis, a.shape)

    def build(a: Any) -> Any:
        value = F.norm2(a, axes)
        return value if keepdims else arrange.squeeze(value, axes)

    return derived("norm2", build, a)


def squared_frobenius_matrix_norm(a: Any) -> Variable:
    """Sum of the squares of the elements of each matrix, which the last two axes hold.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.squared_frobenius_matrix_norm([[1.0, 2.0], [3.0, 4.0]]).item()
    30.0
    """
    return sum(derived("square", F.square, a), (-2, -1))


def euclidean_distance(a: Any, b: Any, axis: Any = 1, keepdims: bool = True) -> Variable:
    """Euclidean norm of a - b over ``axis``; its derivative is 0 where they are equal.

    Parameters
    ----------
    a, b : variables
        Shapes broadcast.
    axis, keepdims
        As of :func:`sum`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.euclidean_distance([[3.0, 4.0]], [[0.0, 0.0]]).tolist()
    [[5.0]]
    """
    return norm2(derived("subtract", F.subtract, a, b), axis, keepdims)


def logsumexp(a: Any, axis: Any = None) -> Variable:
    """log(sum(exp(a))) over ``axis``, without overflow; where all are -inf the derivative is 0.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.logsumexp([[1000.0, -1000.0]], axis=1).tolist()
    [[1000.0]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        return (d * F.exp(a - F.where(F.equal(z, -math.inf), 0, z)),)

    return derived("logsumexp", lambda a: with_rule("logsumexp", _logsumexp(a, axis), (a,), grad, options=()), a)


def log_softmax(a: Any, axis: int = 1) -> Variable:
    """log(softmax(a)) along ``axis``, without underflow.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.log_softmax([[0.0, 1000.0]]).tolist()
    [[-1000.0, 0.0]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        return (d - F.exp(z) * F.sum(d, axis),)

    def build(a: Any) -> Any:
        return with_rule("log_softmax", _log_softmax(a, axis), (a,), grad, options=(axis,))

    return derived("log_softmax", build, a)


def softmax(a: Any, axis: int = 1) -> Variable:
    """exp(a) / sum(exp(a)) along ``axis``, without overflow.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.softmax([[0.0, 0.0]]).tolist()
    [[0.5, 0.5]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        return (z * (d - F.sum(d * z, axis)),)

    return derived("softmax", lambda a: with_rule("softmax", _softmax(a, axis), (a,), grad, options=(axis,)), a)


DOCUMENT_NAMES = {
    "Sum": sum, "Mean": mean, "Variance": variance, "Norm2": norm2, "ArgMax": argmax, "LogSoftMax": log_softmax,
    "SquaredFrobeniusMatrixNorm": squared_frobenius_matrix_norm, "EuclideanDistance": euclidean_distance,
}  # fmt: skip
"""The source document's names."""
