"""Losses, with the reductions "mean", "sum" and "none", which leaves one loss an element or a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.autograd.ops.common import F, as_numbers, brief, derived, plain, variable
from neonlike.autograd.variable import Variable
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from neonlike.optree import builders, moves
from neonlike.optree.node import Expression

__all__ = ["binary_cross_entropy_with_logits_loss", "mse_loss", "nll_loss", "smooth_l1_loss"]

_REDUCE: dict[str, Callable[[Any], Any]] = {"mean": F.mean, "sum": F.sum, "none": lambda losses: losses}


def _reducer(name: str, reduction: Any) -> Callable[[Any], Any]:
    if not isinstance(reduction, str) or reduction not in _REDUCE:
        raise ArgumentError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {brief(reduction)}")
    return _REDUCE[reduction]


def _pair(name: str, a: Any, target: Any) -> tuple[Variable, Variable]:
    """Input and target as variables of one shape."""
    a = variable(name, a, target if isinstance(target, (Variable, Expression)) else None)
    target = variable(name, target, a)
    if a.shape != target.shape:
        raise ShapeError(f"{name}: input {a.shape} and target {target.shape} must have one shape; reshape one of them")
    return a, target


def mse_loss(a: Any, target: Any, reduction: str = "mean") -> Variable:
    """Squared differences of ``a`` and ``target``, of one shape.

    Parameters
    ----------
    a, target : variables
        Of one shape.
    reduction : "mean", "sum" or "none"
        "none": one loss for each element.

    Raises
    ------
    ShapeError
        If the shapes differ.
    ArgumentError
        On another ``reduction`` than "mean", "sum" or "none".

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.mse_loss([[1.0, 2.0]], [[1.0, 4.0]]).item()
    2.0
    """
    reduce = _reducer("mse_loss", reduction)
    return derived("mse_loss", lambda a, t: reduce(F.square(a - t)), *_pair("mse_loss", a, target))


def smooth_l1_loss(a: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Variable:
    """Absolute differences less beta / 2; below ``beta`` their squares divided by 2 beta. Girshick 2015.

    Parameters
    ----------
    a, target, reduction
        As of :func:`mse_loss`.
    beta : float
        Difference at which squares go over into absolute values, 0 or more.

    Raises
    ------
    ShapeError, ArgumentError
        As :func:`mse_loss`; also if ``beta`` is below 0.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.smooth_l1_loss([[0.0, 3.0]], [[1.0, 0.0]], "none").tolist()
    [[0.5, 2.5]]
    """
    reduce = _reducer("smooth_l1_loss", reduction)
    (beta,) = as_numbers("smooth_l1_loss", beta=beta)
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {brief(beta)}")

    def build(a: Any, t: Any) -> Any:
        far = F.absolute(a - t)
        if beta == 0:
            return reduce(far)
        near = F.minimum(far, beta)
        return reduce(F.square(near) * (0.5 / beta) + (far - near))

    return derived("smooth_l1_loss", build, *_pair("smooth_l1_loss", a, target))


def binary_cross_entropy_with_logits_loss(
    a: Any, target: Any, pos_weight: Any = None, reduction: str = "mean"
) -> Variable:
    """-(w t log(sigmoid(a)) + (1 - t) log(1 - sigmoid(a))), without overflow.

    Parameters
    ----------
    a : variable (N, T)
        Before the sigmoid, for T tasks.
    target : the same shape, in [0, 1]
    pos_weight : (1, T), or T numbers, optional
        The weight w of positive targets.
    reduction : "mean", "sum" or "none"

    Raises
    ------
    ShapeError
        If the shapes differ, or there are not T weights.
    ArgumentError
        On another ``reduction``.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.binary_cross_entropy_with_logits_loss([[100.0]], [[0.0]]).item()
    100.0
    """
    name = "binary_cross_entropy_with_logits_loss"
    reduce = _reducer(name, reduction)
    a, target = _pair(name, a, target)
    weight = None if pos_weight is None else _row(name, "pos_weight", pos_weight, a)

    def build(a: Any, t: Any) -> Any:
        wrong = F.softplus(-a)
        if weight is not None:
            wrong = wrong * (1 + (weight - 1) * t)
        return reduce((1 - t) * a + wrong)

    return derived(name, build, a, target)


def _row(name: str, what: str, value: Any, a: Variable) -> Any:
    """``value`` as a constant (1, T), one number for each column of ``a``."""
    given = plain(name, value, a)
    columns = a.shape[-1]
    if math.prod(given.shape) != columns:
        raise ShapeError(f"{name}: {what} must hold {columns} numbers, one a column of {a.shape}; got {given.shape}")
    return given.reshape(1, -1)


def nll_loss(a: Any, target: Any, weights: Any = None, reduction: str = "mean", ignore: int = -100) -> Variable:
    """Minus the log-probability of the target's class, as :func:`log_softmax` gives it.

    Parameters
    ----------
    a : variable (N, C)
        Log-probabilities of C classes.
    target : N integers
        Classes, as a list, an array or an integer tensor (N, 1).
    weights : (1, C), or C numbers, optional
        Of the classes. The mean is over the weights of the targets.
    reduction : "mean", "sum" or "none"
    ignore : int
        A class whose rows do not count.

    Returns
    -------
    variable (1, 1), or (N, 1) without reduction

    Raises
    ------
    ShapeError
        If there are not N targets, or not C weights.
    IndexRangeError
        If a class in a list or array is out of range; those of a tensor are not looked at, and count as ignored.
    DTypeError
        If the target holds no integers.
    ArgumentError
        On another ``reduction``.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.nll_loss([[-1.0, -2.0], [-3.0, -4.0]], [0, 1]).item()
    2.5
    """
    _reducer("nll_loss", reduction)
    a = variable("nll_loss", a)
    if a.ndim != 2:
        raise ShapeError(f"nll_loss: needs log-probabilities (N, C), got {a.shape}")
    classes = _classes(target, a, ignore)
    weight = None if weights is None else _row("nll_loss", "weights", weights, a)
    be, shape = a.backend, a.shape

    def at_target(values: Any) -> Any:
        # A selection, not a product: log-probabilities of other classes may be -inf.
        there = F.where(F.onehot(classes, 1, be, checked=False), values, 0)  # those to ignore are none
        return F.where(F.equal(classes, ignore), 0, there) if 0 <= ignore < shape[1] else there

    def build(a: Any) -> Any:
        each = at_target(a if weight is None else a * weight)
        if reduction == "none":
            return -F.sum(each, 1)
        if reduction == "sum":
            return -F.sum(each)
        one = be.ones((1, 1), dtype=a.dtype) if weight is None else weight
        return -(F.sum(each) / F.sum(at_target(moves.broadcast_to(one, shape))))

    return derived("nll_loss", build, a)


def _classes(target: Any, a: Variable, ignore: int) -> Any:
    """The target as an integer column (N, 1)."""
    if not isinstance(ignore, (int, np.integer)):
        raise DTypeError(f"nll_loss: ignore must be an integer, got {brief(ignore)}")
    if isinstance(target, (Variable, Expression)):
        found = builders.index_operand("nll_loss", plain("nll_loss", target, a), None, a.backend)
    else:
        host = np.asarray(target)
        found = builders.index_operand("nll_loss", host.reshape(-1, 1), None, a.backend, vector=False)
        wrong = host[(host != ignore) & ((host < 0) | (host >= a.shape[1]))]
        if wrong.size:
            raise IndexRangeError(f"nll_loss: class {wrong[0]} is out of range for {a.shape[1]} classes")
    if math.prod(found.shape) != a.shape[0]:
        raise ShapeError(f"nll_loss: needs a class for each of {a.shape[0]} rows, got {math.prod(found.shape)}")
    return found.reshape(-1, 1)


DOCUMENT_NAMES = {
    "MseLoss": mse_loss, "SmoothL1Loss": smooth_l1_loss, "NllLoss": nll_loss,
    "BinaryCrossEntropyWithLogitsLoss": binary_cross_entropy_with_logits_loss,
}  # fmt: skip
"""The source document's names."""
