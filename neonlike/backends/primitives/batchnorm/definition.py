"""Definition of batch normalisation in NumPy, by blocks of rows in float64, and the requests to its hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.tensors.operands import Array, host, written
from neonlike.optree import npfuncs
from neonlike.optree.dtypes import DType, compute_dtype

_ROW_BLOCK = 1 << 18
"""Elements that the definition holds in float64 at a time, at least one row."""


@dataclass(frozen=True, slots=True)
class BatchNormForward:
    """Request of a forward call; see ``BatchNormFamily.compound_fprop_bn``.

    Attributes
    ----------
    dims : (int, int)
        Rows, and elements per row: (nfm, M), both at least 1.
    given_sum : bool
        Whether xsum holds the sums.
    """

    dims: tuple[int, int]
    eps: float
    rho: float
    alpha: float
    accumbeta: float
    given_sum: bool
    inference: bool
    relu: bool
    binary: bool


@dataclass(frozen=True, slots=True)
class BatchNormBackward:
    """Request of a backward call; see ``BatchNormFamily.compound_bprop_bn``. ``dims``: (nfm, M)."""

    dims: tuple[int, int]
    eps: float
    alpha_data: float
    beta_data: float
    alpha_param: float
    beta_param: float
    binary: bool
    own_sum: bool = False


def blocks(dims: tuple[int, int]) -> Iterator[slice]:
    """Row blocks of the definition."""
    step = max(1, _ROW_BLOCK // dims[1])
    return (slice(first, first + step) for first in range(0, dims[0], step))


def normalise(x: Array, rows: dict[str, Array], y: Array, how: BatchNormForward) -> None:
    """Normalise rows x (rows, M) into y, in float64; ``rows`` (rows,) by argument, with batch statistics written.

    Parameters
    ----------
    x, y : arrays (rows, M)
        Data and result; they may be the same.
    rows : dict
        Statistics and parameters, (rows,).
    how : BatchNormForward
    """
    if how.inference:
        mean, var = (_column(rows[name]) for name in ("gmean", "gvar"))
        centred = x - mean
    else:
        if how.given_sum:
            mean = _column(rows["xsum"]) / x.shape[1]
        else:
            total = x.sum(axis=1, dtype=np.float64, keepdims=True)
            rows["xsum"][:] = total[:, 0]
            mean = total / x.shape[1]
        centred = x - mean
        rows["xvar"][:] = _product(centred, centred, how.binary).mean(axis=1)
        var = _column(rows["xvar"])
        for running, now in ((rows["gmean"], mean), (rows["gvar"], var)):
            running[:] = _blend(how.rho, running, (1 - how.rho) * now[:, 0])
    xhat = _product(centred, 1 / np.sqrt(var + how.eps), how.binary)
    result = _product(xhat, _column(rows["gamma"]), how.binary) + _column(rows["beta"])
    if how.relu:
        np.maximum(result, 0, out=result)
    y[...] = _blend(how.accumbeta, y, how.alpha * result)


def differentiate(error: Array, x: Array, rows: dict[str, Array], out: Array, how: BatchNormBackward) -> None:
    """Compute the gradient by x in ``out``, in float64, and those by gamma and beta in ``rows``.

    Parameters
    ----------
    error : array (rows, M)
        Of float64.
    x : array (rows, M)
    rows : dict
        Statistics, gamma and gradients, (rows,).
    out : array (rows, M)
        Written.
    how : BatchNormBackward
    """
    binary, size = how.binary, x.shape[1]
    inverse_std = 1 / np.sqrt(_column(rows["xvar"]) + how.eps)
    mean = _mean(rows["xsum"], x) if how.own_sum else _column(rows["xsum"]) / size
    xhat = _product(x - mean, inverse_std, binary)
    gradients = {"grad_gamma": (xhat * error).sum(axis=1), "grad_beta": error.sum(axis=1)}
    spread = _product(xhat, gradients["grad_gamma"][:, None], binary) + gradients["grad_beta"][:, None]
    scaled = _product(error - spread / size, _column(rows["gamma"]), binary)
    out[...] = _blend(how.beta_data, out, how.alpha_data * _product(scaled, inverse_std, binary))
    for name, gradient in gradients.items():
        rows[name][:] = _blend(how.beta_param, rows[name], how.alpha_param * gradient)


def _column(values: Array) -> Array:
    """Convert (nfm,) to float64 (nfm, 1)."""
    return values.astype(np.float64)[:, None]


def _mean(sums: Array, x: Array) -> Array:
    """Means of rows x from their sums, (nfm, 1), corrected for the rounding of the sums."""
    stored, true = _column(sums), x.sum(axis=1, dtype=np.float64, keepdims=True)
    rounded = np.abs(true - stored) <= 4 * np.finfo(sums.dtype).eps * np.abs(stored)
    return np.asarray(np.where(rounded, true, stored) / x.shape[1])


def _product(a: Array, b: Array, binary: bool) -> Array:
    """Product a * b, with b rounded to a power of two in binary networks."""
    if not binary:
        return a * b
    shifted: Array = np.empty_like(a)
    npfuncs.shift(a, b, shifted)
    return shifted


def _blend(factor: float, old: Array, new: Array) -> Array:
    """factor * old + new, where an unused old value may be nan."""
    return new if factor == 0 else factor * old + new


# Arrays of a call


@contextmanager
def forward_arrays(
    request: BatchNormForward,
    x: Any,
    xsum: Any,
    xvar: Any,
    gmean: Any,
    gvar: Any,
    gamma: Any,
    beta: Any,
    y: Any,
    *,
    stored: DType | None = None,
    dtype_of: Callable[[Any], DType] | None = None,
) -> Iterator[tuple[Array, dict[str, Array], Array]]:
    """Contiguous arrays x and y (nfm, M), possibly identical, and between them the per-row arrays by name (nfm,).

    y and the statistics are stored when the block ends.

    Parameters
    ----------
    request : BatchNormForward
    x, xsum, xvar, gmean, gvar, gamma, beta, y : tensors
        As of ``compound_fprop_bn``.
    stored : dtype, optional
        Of the arrays x and y; the compute dtype by default.
    dtype_of : callable, optional
        The dtype of a per-row tensor's array; the compute dtype by default.
    """
    dtype = dtype_of or _compute_dtype_of(x)
    statistics = {"gmean": gmean, "gvar": gvar}
    changed = {} if request.inference else {"xsum": xsum, "xvar": xvar, **statistics}
    read = {"gamma": gamma, "beta": beta, **(statistics if request.inference else {})}
    with _row_values(changed, dtype) as rows, written(y, request.dims, request.accumbeta != 0, stored) as out:
        rows.update({name: _read_rows(tensor, dtype) for name, tensor in read.items()})
        yield host(x, request.dims, stored), rows, out


@contextmanager
def backward_arrays(
    request: BatchNormBackward,
    delta_out: Any,
    grad_gamma: Any,
    grad_beta: Any,
    delta_in: Any,
    x: Any,
    xsum: Any,
    xvar: Any,
    gamma: Any,
    y: Any,
    *,
    stored: DType | None = None,
    dtype_of: Callable[[Any], DType] | None = None,
) -> Iterator[tuple[Array, Array, Array | None, dict[str, Array], Array]]:
    """Arrays of a backward call: delta_in, x, y or None, per-row arrays, and delta_out.

    Parameters
    ----------
    request : BatchNormBackward
    delta_out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y : tensors
        As of ``compound_bprop_bn``.
    stored : dtype, optional
        Of the arrays delta_in, x, y and delta_out; the compute dtype by default.
    dtype_of : callable, optional
        As of :func:`forward_arrays`.
    """
    dims, dtype = request.dims, dtype_of or _compute_dtype_of(x)
    gradients = {"grad_gamma": grad_gamma, "grad_beta": grad_beta}
    with _row_values(gradients, dtype) as rows, written(delta_out, dims, request.beta_data != 0, stored) as out:
        rows.update({name: _read_rows(t, dtype) for name, t in (("xsum", xsum), ("xvar", xvar), ("gamma", gamma))})
        results = None if y is None else host(y, dims, stored)
        yield host(delta_in, dims, stored), host(x, dims, stored), results, rows, out


def _compute_dtype_of(x: Any) -> Callable[[Any], DType]:
    dtype = compute_dtype(x.dtype)
    return lambda _: dtype


def _read_rows(tensor: Any, dtype_of: Callable[[Any], DType]) -> Array:
    """Values of a per-row tensor as (nfm,), in its own memory if possible."""
    array: Array = np.ascontiguousarray(tensor.asnumpyarray(), dtype_of(tensor))
    return array.reshape(-1)


@contextmanager
def _row_values(tensors: dict[str, Any], dtype_of: Callable[[Any], DType]) -> Iterator[dict[str, Array]]:
    """Writable values of several per-row tensors by name, stored at the end of the block if they are copies."""
    arrays = {name: tensor.asnumpyarray() for name, tensor in tensors.items()}
    contiguous = {name: np.ascontiguousarray(arrays[name], dtype_of(tensor)) for name, tensor in tensors.items()}
    yield {name: array.reshape(-1) for name, array in contiguous.items()}
    for name, tensor in tensors.items():
        if contiguous[name] is not arrays[name] or not tensor.live_host:
            tensor.set(contiguous[name])
