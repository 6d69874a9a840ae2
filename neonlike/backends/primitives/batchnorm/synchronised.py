"""Batch normalisation by the statistics of all ranks: what ``family.py`` computes while ``be.sync_batchnorm`` is set.

Each rank has rows of M elements; those of all ranks together have M times the number of ranks. Rows of one value, sums
and means, are exchanged by two messages forward and one backward.
"""

from __future__ import annotations

from typing import Any

from neonlike.backends.primitives.batchnorm.definition import BatchNormBackward, BatchNormForward
from neonlike.distributed.gradients import RankSum
from neonlike.errors import ArgumentError
from neonlike.optree.arrange import reshape


def forward(be: Any, request: BatchNormForward, tensors: tuple[Any, ...]) -> None:
    """``compound_fprop_bn`` in training; ``xsum`` becomes the mean of the ranks' sums.

    Parameters
    ----------
    be : Backend
    request : BatchNormForward
    tensors : tuple
        x, xsum, xvar, gmean, gvar, gamma, beta, y.
    """
    x, xsum, xvar, gmean, gvar, gamma, beta, y = tensors
    _refuse_binary(request.binary)
    rows, count = request.dims
    values = reshape(x, request.dims)
    if not request.given_sum:
        xsum[:] = reshape(be.sum(values, axis=1), xsum.shape)
    be.allreduce(xsum, "mean")
    mean = reshape(xsum, (rows, 1)) / count
    xvar[:] = reshape(be.mean(be.square(values - mean), axis=1), xvar.shape)
    be.allreduce(xvar, "mean")
    for running, found in ((gmean, xsum / count), (gvar, xvar)):
        new = (1 - request.rho) * reshape(found, running.shape)
        running[:] = request.rho * running + new if request.rho else new
    normal = (values - mean) / be.sqrt(reshape(xvar, (rows, 1)) + request.eps)
    result = reshape(gamma, (rows, 1)) * normal + reshape(beta, (rows, 1))
    if request.relu:
        result = be.maximum(result, 0)
    result = reshape(result * request.alpha, y.shape)
    y[:] = result + request.accumbeta * y if request.accumbeta else result


def backward(be: Any, request: BatchNormBackward, tensors: tuple[Any, ...]) -> None:
    """``compound_bprop_bn``; gradients of the parameters are those of this rank's samples.

    Parameters
    ----------
    be : Backend
    request : BatchNormBackward
    tensors : tuple
        delta_out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y.
    """
    out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y = tensors
    _refuse_binary(request.binary)
    rows, count = request.dims
    deviation = be.sqrt(reshape(xvar, (rows, 1)) + request.eps)
    normal = (reshape(x, request.dims) - reshape(xsum, (rows, 1)) / count) / deviation
    error = reshape(delta_in, request.dims)
    if y is not None:
        error = be.where(reshape(y, request.dims) > 0, error, 0)
    sums = [be.empty((rows, 1), dtype=xvar.dtype) for _ in range(2)]
    sums[0][:], sums[1][:] = be.sum(error * normal, axis=1), be.sum(error, axis=1)
    for gradient, found in zip((grad_gamma, grad_beta), sums):
        new = request.alpha_param * reshape(found, gradient.shape)
        gradient[:] = new + request.beta_param * gradient if request.beta_param else new
    RankSum(be.ranks, sums, mean=True)()
    slope = reshape(gamma, (rows, 1)) / deviation * (error - (normal * sums[0] + sums[1]) / count)
    slope = reshape(request.alpha_data * slope, out.shape)
    out[:] = slope + request.beta_data * out if request.beta_data else slope


def _refuse_binary(binary: Any) -> None:
    if binary:
        raise ArgumentError(
            "sync_batchnorm: shift-based batch normalisation has no synchronised form; set be.sync_batchnorm = False"
        )
