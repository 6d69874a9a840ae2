"""Linear algebra by LAPACK: inverses, determinants, Cholesky's factorization. For a GPU the host computes from copies.

Values are computed in the tensor's dtype, of float16 in float32. Gradients are expressions, so they have gradients too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.autograd.ops.common import F, derived, variable
from neonlike.autograd.ops.reduction import norm2
from neonlike.autograd.ops.shape import concatenate, slice, transpose
from neonlike.autograd.variable import Variable
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.arrange import one_axis
from neonlike.optree.dtypes import compute_dtype

__all__ = ["cholesky", "cholesky_solve", "cross", "inv", "log_det", "pinv", "weight_norm"]


def cross(a: Any, b: Any, axis: int = 0) -> Variable:
    """Cross products of the vectors of three elements along ``axis``.

    Parameters
    ----------
    a, b : variables
        Of one shape.
    axis : int
        Axis of size 3.

    Raises
    ------
    ShapeError
        If the shapes differ, or ``axis`` has another size than 3.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.cross([[1.0], [0.0], [0.0]], [[0.0], [1.0], [0.0]]).tolist()
    [[0.0], [0.0], [1.0]]
    """
    a, b = variable("cross", a), variable("cross", b)
    axis = one_axis("cross", axis, a.shape)
    if a.shape != b.shape or a.shape[axis] != 3:
        raise ShapeError(f"cross: needs two shapes that are equal, with 3 along axis {axis}; got {a.shape}, {b.shape}")
    parts: Any = ([slice(v, axis, i, i + 1) for i in range(3)] for v in (a, b))
    (x1, y1, z1), (x2, y2, z2) = parts
    return concatenate([y1 * z2 - z1 * y2, z1 * x2 - x1 * z2, x1 * y2 - y1 * x2], axis)


def inv(a: Any) -> Variable:
    """The inverse of a square matrix.

    Raises
    ------
    ShapeError
        If it is not square.
    ArgumentError
        When computed, if it is singular.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return derived("inv", _inverse, _square("inv", a))


def pinv(a: Any, rcond: float = 1e-15) -> Variable:
    """The Moore-Penrose pseudoinverse (n, m) of a matrix (m, n) whose rank stays what it is nearby.

    Parameters
    ----------
    a : variable (m, n)
    rcond : float
        Singular values below this times the largest count as 0.

    References
    ----------
    Golub & Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems" (1973).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.pinv([[2.0], [0.0]]).get().round(4).tolist()
    [[0.5, 0.0]]
    """
    a = _matrix("pinv", a)
    run = _on_the_host("pinv", lambda a: np.linalg.pinv(a, rcond), _pinv_gradient, lambda shape: shape[::-1])
    return derived("pinv", run, a)


def log_det(a: Any) -> Variable:
    """Logarithm (1, 1) of the determinant of a square matrix; nan where that is negative, -inf where it is 0.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.log_det([[1.0, 0.0], [0.0, 1.0]]).item()
    0.0
    """

    def compute(a: Any) -> Any:
        sign, log = np.linalg.slogdet(a)
        return np.reshape(log if sign > 0 else -np.inf if sign == 0 else np.nan, (1, 1))

    run = _on_the_host("log_det", compute, lambda d, z, a: (d * _inverse(a).T,), lambda shape: (1, 1))
    return derived("log_det", run, _square("log_det", a))


def cholesky(a: Any) -> Variable:
    """The lower triangular L with ``L L^T = a``, of a symmetric positive definite matrix; its lower half is read.

    Gradients are symmetric, as those of a symmetric matrix whose halves change together.

    Raises
    ------
    ShapeError
        If it is not square.
    ArgumentError
        When computed, if it is not positive definite.

    References
    ----------
    Murray, "Differentiation of the Cholesky decomposition" (2016).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    run = _on_the_host("cholesky", np.linalg.cholesky, _cholesky_gradient, lambda shape: shape)
    return derived("cholesky", run, _square("cholesky", a))


def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Variable:
    """The x with ``L L^T x = b``, for b (n, k) and the lower triangular ``factor`` L (n, n) of :func:`cholesky`.

    Parameters
    ----------
    b : variable (n, k)
    factor : variable (n, n)
        Of which that triangle is read.
    upper : bool
        The factor is the upper triangular L^T.

    Raises
    ------
    ShapeError
        If the sizes do not fit.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.cholesky_solve([[4.0], [9.0]], [[2.0, 0.0], [0.0, 3.0]]).tolist()
    [[1.0], [1.0]]
    """
    b, factor = _matrix("cholesky_solve", b), _square("cholesky_solve", factor)
    if b.shape[0] != factor.shape[0]:
        raise ShapeError(f"cholesky_solve: b {b.shape} needs the {factor.shape[0]} rows of the factor {factor.shape}")
    return derived("cholesky_solve", _solve_by_factor, b, transpose(factor) if upper else factor)


def weight_norm(v: Any, g: Any, axis: int = 0) -> Variable:
    """``g v / |v|``, the norm taken over all axes but ``axis``; ``g`` has that axis's size there and ones elsewhere.

    Parameters
    ----------
    v : variable
        Directions.
    g : variable
        Lengths, one for each slice along ``axis``.
    axis : int
        Axis of v that numbers the directions.

    Raises
    ------
    ShapeError
        If g has another shape.

    References
    ----------
    Salimans & Kingma, "Weight normalization" (2016).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.weight_norm([[3.0, 4.0]], [[10.0]]).tolist()
    [[6.0, 8.0]]
    """
    v, g = variable("weight_norm", v), variable("weight_norm", g)
    axis = one_axis("weight_norm", axis, v.shape)
    shape = tuple(size if place == axis else 1 for place, size in enumerate(v.shape))
    if g.shape != shape:
        raise ShapeError(f"weight_norm: g needs the shape {shape} for v {v.shape} and axis {axis}, got {g.shape}")
    others = tuple(place for place in range(v.ndim) if place != axis)
    return v * (g / norm2(v, others))


# Gradients ------------------------------------------------------------------------------------------------------------


def _inverse(a: Any) -> Any:
    def gradient(d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        return (-F.dot(F.dot(z.T, d), z.T),)

    return _on_the_host("inv", np.linalg.inv, gradient, lambda shape: shape)(a)


def _pinv_gradient(d: Any, z: Any, a: Any) -> tuple[Any, ...]:
    be, (m, n) = d.backend, a.shape
    rows, columns = (be.array(np.eye(size), dtype=d.dtype) for size in (m, n))
    outside, inside = rows - F.dot(a, z), columns - F.dot(z, a)
    first = F.dot(F.dot(z.T, d), z.T)
    second = F.dot(outside, F.dot(d.T, F.dot(z, z.T)))
    third = F.dot(F.dot(F.dot(z.T, z), d.T), inside)
    return (second + third - first,)


def _cholesky_gradient(d: Any, z: Any, a: Any) -> tuple[Any, ...]:
    half = np.tril(np.ones(z.shape)) - np.eye(z.shape[0]) / 2
    inverse = _inverse(z)
    lower = F.dot(z.T, d) * d.backend.array(half, dtype=d.dtype)
    found = F.dot(F.dot(inverse.T, lower), inverse)
    return ((found + found.T) * 0.5,)


def _solve_by_factor(b: Any, factor: Any) -> Any:
    def compute(b: Any, factor: Any) -> Any:
        lower = np.tril(factor)
        return np.linalg.solve(lower.T, np.linalg.solve(lower, b))

    def gradient(d: Any, z: Any, b: Any, factor: Any) -> tuple[Any, ...]:
        error = _solve_by_factor(d, factor)
        lower = d.backend.array(np.tril(np.ones(factor.shape)), dtype=d.dtype)
        both = F.dot(error, z.T) + F.dot(z, error.T)
        return error, -F.dot(both, factor * lower) * lower

    return _on_the_host("cholesky_solve", compute, gradient, lambda b, factor: b)(b, factor)


def _on_the_host(
    name: str, compute: Callable[..., Any], gradient: Callable[..., tuple[Any, ...]], shape: Callable[..., Any]
) -> Callable[..., Any]:
    """A function of expressions whose value NumPy computes; see ``be.primitive``."""

    def run(*expressions: Any) -> Any:
        dtype = compute_dtype(expressions[0].dtype)

        def forward(out: Any, *operands: Any) -> None:
            try:
                out.set(np.asarray(compute(*(operand.get().astype(dtype, copy=False) for operand in operands))))
            except np.linalg.LinAlgError as error:
                raise ArgumentError(f"{name}: of a matrix {operands[-1].shape}: {error}") from error

        return expressions[0].backend.primitive(forward, gradient, shape, name=name)(*expressions)

    return run


def _matrix(name: str, a: Any) -> Variable:
    a = variable(name, a)
    if a.ndim != 2 or not a.size:
        raise ShapeError(f"{name}: needs a matrix, got shape {a.shape}")
    return a


def _square(name: str, a: Any) -> Variable:
    a = _matrix(name, a)
    if a.shape[0] != a.shape[1]:
        raise ShapeError(f"{name}: needs a square matrix, got shape {a.shape}")
    return a


DOCUMENT_NAMES = {
    "Cross": cross, "Inv": inv, "PInv": pinv, "LogDet": log_det, "Cholesky": cholesky, "CholeskySolve": cholesky_solve,
    "WeightNorm": weight_norm,
}  # fmt: skip
"""The source document's names."""
