"""Requests of lazy normalisations and of their gradients, with the formulas for second derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from neonlike.backends.geometry.lrn import LrnGeometry
from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.backends.primitives.lazy.requests import Result, pool_node
from neonlike.optree.calls import Request, call, call_spec, of_result, part
from neonlike.optree.dtypes import DType, compute_dtype
from neonlike.optree.functions import F as Functions
from neonlike.optree.functions import moments
from neonlike.optree.node import OpTreeNode
from neonlike.optree.sweep import differentiated

F: Any = Functions

# Batch normalisation --------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class BatchNorm(Request):
    """``compound_fprop_bn`` of (x, gamma, beta) in training; further results are the row sums and variances."""

    eps: float
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute it, discarding the running statistics.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            y, row sums, variances.
        operands : sequence of Tensor
            x, gamma, beta.
        """
        y, xsum, xvar = results
        x, gamma, beta = operands
        gmean, gvar = be.fresh(xsum.shape, xsum.dtype), be.fresh(xsum.shape, xsum.dtype)
        be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, gamma, beta, y, self.eps, 0.0, True)

    def describe(self) -> str:
        """Name of the backend's method."""
        return f"be.compound_fprop_bn, eps {self.eps:g}"


@dataclass(frozen=True, eq=False)
class BatchNormGradient(Request):
    """``compound_bprop_bn`` of (error, x, xsum, xvar, gamma): the gradients of x, gamma and beta."""

    eps: float
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the gradients.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            Gradients of x, gamma, beta.
        operands : sequence of Tensor
            error, x, xsum, xvar, gamma.
        """
        delta, grad_gamma, grad_beta = results
        error, x, xsum, xvar, gamma = operands
        be.compound_bprop_bn(delta, grad_gamma, grad_beta, error, x, xsum, xvar, gamma, self.eps, own_sum=True)

    def slopes(self, position: int, d: Any, *operands: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients of the formula, with sums and variances recomputed from x.

        Parameters
        ----------
        position : int
            Which gradient is differentiated: of x (0), gamma (1) or beta (2).
        d : expression
            The gradient that arrives at it.
        *operands : expressions
            As of :meth:`run`.
        """
        error, x, _, _, gamma = operands
        define = partial(_batchnorm_gradient, self.eps, self.results[position][0], position)
        by_error, by_x, by_gamma = differentiated(define, d, (error, x, gamma))
        return by_error, by_x, None, None, by_gamma

    def describe(self) -> str:
        """Name of the backend's method."""
        return f"be.compound_bprop_bn, eps {self.eps:g}"


def batchnorm_node(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    """Batch normalisation as an expression.

    Parameters
    ----------
    x, gamma, beta : expressions
        Checked.
    eps : float
    """
    rows = (gamma.size if not isinstance(gamma, OpTreeNode) else math.prod(gamma.shape), 1), compute_dtype(x.dtype)
    request = BatchNorm(eps, ((x.shape, x.dtype), rows, rows), (x.dtype, None, None))
    return call(_BATCHNORM, request, (x, gamma, beta))


def _batchnorm_gradients(F: Any, d: Any, z: Any, x: Any, gamma: Any, beta: Any) -> tuple[Any, ...]:
    kind = x.dtype
    parameters = ((gamma.shape, compute_dtype(gamma.dtype)), (beta.shape, compute_dtype(beta.dtype)))
    request = BatchNormGradient(z.attrs["request"].eps, ((x.shape, kind), *parameters), (kind, kind, None, None, None))
    node = call(_BATCHNORM_GRADIENT, request, (d, x, part(z, 1), part(z, 2), gamma))
    return node, part(node, 1), part(node, 2)


def _batchnorm_gradient(eps: float, shape: Any, position: int, error: Any, x: Any, gamma: Any) -> Any:
    """The gradient of x (0), gamma (1) or beta (2)."""
    rows = math.prod(gamma.shape)
    e, values, gamma = (one.reshape(rows, -1) for one in (error, x, gamma))
    middle, rest, variance = moments(values, 1)
    away, inverse = values - middle - rest, 1 / F.sqrt(variance + eps)
    by_beta, by_gamma = F.sum(e, 1), F.sum(e * away * inverse, 1)
    by_x = gamma * inverse * (e - (by_beta + away * inverse * by_gamma) * (rows / math.prod(x.shape)))
    return (by_x, by_gamma, by_beta)[position].reshape(shape)


_BATCHNORM = call_spec("batchnorm", _batchnorm_gradients)
_BATCHNORM_GRADIENT = call_spec("batchnorm_gradient", of_result)

# Local response normalisation -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lrn(Request):
    """``fprop_lrn`` of (I,); its second result is ``denom``."""

    geometry: LrnGeometry
    ascale: float
    bpower: float
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute it.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            O and denom.
        operands : sequence of Tensor
            I.
        """
        be.fprop_lrn(self.geometry, operands[0], *results, ascale=self.ascale, bpower=self.bpower)

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.fprop_lrn, {self.geometry.describe()}"


@dataclass(frozen=True, eq=False)
class LrnGradient(Request):
    """``bprop_lrn`` of (I, O, E, denom)."""

    geometry: LrnGeometry
    ascale: float
    bpower: float
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute it.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            delta.
        operands : sequence of Tensor
            I, O, E, denom.
        """
        inputs, outputs, error, denom = operands
        powers = {"ascale": self.ascale, "bpower": self.bpower}
        be.bprop_lrn(self.geometry, inputs, outputs, error, results[0], denom, **powers)

    def slopes(self, position: int, d: Any, *operands: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients of the formula, with outputs and denominators recomputed from the inputs.

        Parameters
        ----------
        position : int
            0, as there is one result.
        d : expression
            The gradient that arrives at it.
        *operands : expressions
            As of :meth:`run`.
        """
        x, _, error, _ = operands
        by_x, by_error = differentiated(self._formula, d, (x, error))
        return by_x, None, by_error, None

    def _formula(self, x: Any, error: Any) -> Any:
        """Formula of Krizhevsky, Sutskever and Hinton 2012, section 3.3, differentiated by hand."""
        g, power = self.geometry, self.bpower
        frame = (g.J, 1, 1, 1), (g.J // 2, 0, 0, 0), (1, 1, 1, 1)
        means = PoolGeometry("avg", g.dtype, g.N, (g.C, *g.DHW), *frame)
        shape = (g.C, *(1,) * (len(x.shape) - 1))
        counts = x.backend.array(means.counts.reshape(g.C, -1)[:, :1].reshape(shape), dtype=x.dtype)
        scale = self.ascale / g.J
        denom = 1 + scale * (pool_node(means, x * x, x.shape) * counts)
        shares = error * x * denom ** (-power - 1)
        return error * denom**-power - 2 * power * scale * x * (pool_node(means, shares, x.shape) * counts)

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.bprop_lrn, {self.geometry.describe()}"


def lrn_node(g: LrnGeometry, x: Any, ascale: float, bpower: float) -> Any:
    """Local response normalisation as an expression.

    Parameters
    ----------
    g : LrnGeometry
    x : expression
        Checked.
    ascale, bpower : float
    """
    result = x.shape, g.dtype
    return call(_LRN, Lrn(g, ascale, bpower, (result, result), (g.dtype,)), (x,))


def _lrn_gradient(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    had: Lrn = z.attrs["request"]
    kind = had.geometry.dtype
    request = LrnGradient(had.geometry, had.ascale, had.bpower, ((x.shape, kind),), (kind,) * 4)
    return (call(_LRN_GRADIENT, request, (x, z, d, part(z, 1))),)


_LRN, _LRN_GRADIENT = call_spec("lrn", _lrn_gradient), call_spec("lrn_gradient", of_result)
