"""Batch normalisation: ``compound_fprop_bn``, ``compound_bprop_bn`` (S. Ioffe, C. Szegedy 2015).

Every row of ``(nfm, M)`` is normalised by the mean and variance of its M elements. The shape determines the elements of
a row, since N is the innermost axis of (C, H, W, N):

* spatial: statistics (C, 1), x of shape (C*H*W, N) or (C, H*W*N): a row is a feature map of all samples;
* per activation: statistics (C*H*W, 1), x of shape (C*H*W, N): a row is one position of one feature map.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.primitives.batchnorm import synchronised
from neonlike.backends.primitives.batchnorm.definition import (
    BatchNormBackward,
    BatchNormForward,
    backward_arrays,
    blocks,
    differentiate,
    forward_arrays,
    normalise,
)
from neonlike.backends.tensors.operands import as_numbers, check_apart, check_floats, check_size, check_tensors
from neonlike.errors import AliasError, DTypeError, ShapeError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.dtypes import is_float
from neonlike.optree.forms import owner
from neonlike.optree.shapes import is_regrouped

_FLOPS_STATISTICS, _FLOPS_NORMALISE, _FLOPS_BACKWARD = 4, 3, 9
"""Operations per element: difference, square, two sums; difference, product, sum; both passes backward."""


@owner
class BatchNormFamily(Family):
    """Batch normalisation: ``compound_fprop_bn``, ``compound_bprop_bn``.

    Data (x, y, the deltas) are tensors of one float dtype with nfm * M elements: of shape (nfm, M), or one that splits
    or merges its axes such as (nfm * H * W, N); any view. Statistics, parameters and their gradients have one value per
    row, (nfm, 1), and are float32 for float16 data; another float dtype is converted on entry and exit. The number of
    gammas defines a row: a feature map, or one position of it, see the module.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.sync_batchnorm
    False
    """

    _sync_batchnorm = False

    @property
    def sync_batchnorm(self) -> bool:
        """Whether the statistics in training are those of all ranks, not of a rank's own samples; settable."""
        return self._sync_batchnorm

    @sync_batchnorm.setter
    def sync_batchnorm(self, wanted: bool) -> None:
        self._sync_batchnorm = bool(wanted)
        self.executor.replay.clear()  # calls normalise as was set when they were made

    @repeatable()
    def compound_fprop_bn(
        self, x: Any, xsum: Any, xvar: Any, gmean: Any, gvar: Any, gamma: Any, beta: Any, y: Any,
        eps: float, rho: float, compute_batch_sum: bool, accumbeta: float = 0.0, relu: bool = False,
        threads: int | None = None, repeat: int = 1, binary: bool = False, inference: bool = False,
        outputs: Any = None, layer: Any = None, *, alpha: float = 1.0,
    ) -> Any:  # fmt: skip
        """y = alpha * (gamma * xhat + beta) + accumbeta * y, with xhat = (x - mean) / sqrt(variance + eps) by rows.

        In training the mean is ``xsum / M`` and the variance, ``mean((x - mean)**2)``, is biased; both update the
        running
        statistics: ``gmean = rho * gmean + (1 - rho) * mean``, and gvar likewise. Means are kept in more than the
        precision of x, so that rows far from 0 are as accurate as others. Results do not depend on the number of
        threads.

        Parameters
        ----------
        x, y : data
            y may be x. With ``accumbeta`` 0 the old y is not read.
        xsum : (nfm, 1)
            Row sums of x: read if ``compute_batch_sum`` is false (the ``bsum`` of a convolution or product), else
            written. Its contents afterwards are for ``compound_bprop_bn``. May be None in inference.
        xvar : (nfm, 1)
            Receives the variance. May be None in inference.
        gmean, gvar : (nfm, 1)
            Updated in training (old values are not read if ``rho`` is 0); in ``inference`` used instead of batch
            statistics.
        gamma, beta : (nfm, 1)
            Factors and offsets.
        eps : float
            Added to the variance.
        rho : float
            Share of the old running statistics.
        compute_batch_sum : bool
            Whether ``xsum`` is written rather than read.
        accumbeta : float
            Factor of the old y.
        relu : bool
            Clamp ``gamma * xhat + beta`` at 0; nan stays nan.
        threads, outputs, layer
            neon's hints; ignored.
        repeat : int
            Number of timed runs if above 1.
        binary : bool
            Shift-based (M. Courbariaux et al. 2016): products by the inverse deviation and by gamma, and the square in
            the variance, multiply by the nearest power of two, see ``shift``.
        inference : bool
            Normalise by the running statistics, which stay unchanged.
        alpha : float
            Factor of the result.

        Returns
        -------
        None, or (milliseconds, GFLOP/s) for a timed call

        Raises
        ------
        ShapeError
            If sizes do not fit, or there are no elements for statistics.
        DTypeError
            If the data do not have one float dtype, or a required argument is not a float tensor or number.
        AliasError
            If y overlaps x without being it, or another output overlaps any tensor.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x, y = be.array([[1., 3.]]), be.empty((1, 2))
        >>> xsum, xvar, gmean, gvar, beta = (be.zeros((1, 1)) for _ in range(5))
        >>> be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, be.ones((1, 1)), beta, y, 0, 0.9, True)
        >>> y.tolist(), xvar.item()
        ([[-1.0, 1.0]], 1.0)
        """
        sums = (None, None) if inference else (xsum, xvar)
        operands = Operands((x, *sums, gmean, gvar, gamma, beta, y), 0 if y is x else -1)
        eps, rho, alpha, accumbeta = as_numbers("compound_fprop_bn", eps=eps, rho=rho, alpha=alpha, accumbeta=accumbeta)
        settings = eps, rho, alpha, accumbeta, not compute_batch_sum, inference, relu, binary
        return self._forward("compound_fprop_bn", operands, settings, repeat)

    @repeatable()
    def compound_bprop_bn(
        self, delta_out: Any, grad_gamma: Any, grad_beta: Any, delta_in: Any, x: Any, xsum: Any, xvar: Any, gamma: Any,
        eps: float, threads: int | None = None, repeat: int = 1, binary: bool = False, layer: Any = None,
        *, y: Any = None, alpha_data: float = 1.0, beta_data: float = 0.0,
        alpha_param: float = 1.0, beta_param: float = 0.0, own_sum: bool = False,
    ) -> Any:  # fmt: skip
        """Gradients of a training call of ``compound_fprop_bn`` (with alpha 1) with respect to x, gamma and beta.

        With d = delta_in and xhat as in the forward pass, by rows of M elements: ``dgamma = sum(xhat * d)``,
        ``dbeta = sum(d)``, ``dx = gamma / sqrt(xvar + eps) * (d - (xhat * dgamma + dbeta) / M)``. Results are
        ``delta_out = alpha_data * dx + beta_data * delta_out`` and, for both parameters,
        ``grad = alpha_param * dparam + beta_param * grad``; with a factor of 0 old values are not read.

        Parameters
        ----------
        delta_out, delta_in, x : data
            delta_out may be delta_in (or x, or y). x has its contents of the forward call.
        grad_gamma, grad_beta : (nfm, 1)
        xsum, xvar, gamma : (nfm, 1)
            As left by the forward call: xsum holds the sums, computed there or given.
        eps : float
            As in the forward call.
        threads, layer
            neon's hints; ignored.
        repeat : int
            Number of timed runs if above 1.
        binary : bool
            As in the forward call; dgamma enters dx as a power of two, ``xhat * d`` stays a product.
        y : data, optional
            Result of a forward call with ``relu`` and without ``accumbeta``: d counts as 0 where y is not above 0,
            which includes the gradient of the clamp in this call.
        alpha_data, beta_data : float
            Factors of dx and of the old delta_out.
        alpha_param, beta_param : float
            Factors of the new and the old gradients of the parameters.
        own_sum : bool
            Whether the forward call computed xsum: its rounding error, in rows far from 0, is then recovered.

        Returns
        -------
        None, or (milliseconds, GFLOP/s) for a timed call

        Raises
        ------
        ShapeError
            If sizes do not fit.
        DTypeError
            If the data do not have one float dtype, or a required argument is not a float tensor.
        AliasError
            If delta_out overlaps delta_in, x or y without being it, or another output overlaps any tensor.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x, y = be.array([[1., 3.]]), be.empty((1, 2))
        >>> xsum, xvar, gmean, gvar, beta, dgamma, dbeta = (be.zeros((1, 1)) for _ in range(7))
        >>> gamma, error, dx = be.ones((1, 1)), be.array([[1., 2.]]), be.empty((1, 2))
        >>> be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, gamma, beta, y, 0, 0.9, True)
        >>> be.compound_bprop_bn(dx, dgamma, dbeta, error, x, xsum, xvar, gamma, 0)
        >>> dgamma.item(), dbeta.item()
        (1.0, 3.0)
        """
        shared = 3 if delta_out is delta_in else 4 if delta_out is x else 8 if delta_out is y else -1
        operands = Operands((delta_out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y), shared)
        eps, alpha_data, beta_data, alpha_param, beta_param = as_numbers(
            "compound_bprop_bn", eps=eps, alpha_data=alpha_data, beta_data=beta_data, alpha_param=alpha_param,
            beta_param=beta_param,
        )  # fmt: skip
        settings = eps, alpha_data, beta_data, alpha_param, beta_param, binary, own_sum
        return self._backward("compound_bprop_bn", operands, settings, repeat)

    # Checks

    def _forward(self, operation: str, operands: Operands, settings: tuple[Any, ...], repeat: int) -> Any:
        """Check and run a forward call; settings: of ``BatchNormForward``, without its sizes."""
        x, *rows, y = operands.tensors
        named = dict(zip(("xsum", "xvar", "gmean", "gvar", "gamma", "beta"), rows))
        *_, inference, _, _ = settings
        changed = {} if inference else {name: named[name] for name in ("xsum", "xvar", "gmean", "gvar")}
        read = {name: named[name] for name in ("gmean", "gvar", "gamma", "beta") if name not in changed}
        dims = self._check_rows(operation, x, {**changed, **read}, {"y": y})
        if not inference and dims[0] and not dims[1]:
            raise ShapeError(f"{operation}: x has shape {x.shape}, no elements to take statistics of; pass a batch")
        _check_overlap(operation, changed, read, "y", y, {"x": x})
        request = BatchNormForward(dims, *settings)

        def run() -> KernelCall | None:
            if self._is_synchronised and not inference:
                synchronised.forward(self, request, operands.tensors)
                return None
            return self._fprop_bn(request, *operands.tensors) if x.size else None

        flops = x.size * (_FLOPS_NORMALISE + (0 if inference else _FLOPS_STATISTICS))
        nbytes = x.nbytes + y.nbytes * (1 if request.accumbeta == 0 else 2)
        outputs = [*changed.values(), y]
        return self._run_primitive(operation, run, outputs, [dims], nbytes, flops, "loop", repeat, operands)

    def _backward(self, operation: str, operands: Operands, settings: tuple[Any, ...], repeat: int) -> Any:
        """Check and run a backward call; settings: of ``BatchNormBackward``, without its sizes."""
        out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y = operands.tensors
        rows = {"xsum": xsum, "xvar": xvar, "gamma": gamma}
        gradients = {"grad_gamma": grad_gamma, "grad_beta": grad_beta}
        others = {"delta_in": delta_in} if y is None else {"delta_in": delta_in, "y": y}
        dims = self._check_rows(operation, x, {**rows, **gradients}, {**others, "delta_out": out})
        _check_overlap(operation, gradients, rows, "delta_out", out, {**others, "x": x})
        request = BatchNormBackward(dims, *settings)

        def run() -> KernelCall | None:
            if self._is_synchronised:
                synchronised.backward(self, request, operands.tensors)
                return None
            return self._bprop_bn(request, *operands.tensors) if x.size else None

        read = x.nbytes + sum(tensor.nbytes for tensor in others.values())
        nbytes = read + out.nbytes * (1 if request.beta_data == 0 else 2)
        outputs = [out, *gradients.values()]
        flops = x.size * _FLOPS_BACKWARD
        return self._run_primitive(operation, run, outputs, [dims], nbytes, flops, "loop", repeat, operands)

    def _check_rows(self, operation: str, x: Any, rows: dict[str, Any], data: dict[str, Any]) -> tuple[int, int]:
        """Check all tensors except for overlap, and return (nfm, M) of x."""
        needed = {"x": x, **rows, **data}
        for name, tensor in needed.items():
            if tensor is None:
                raise DTypeError(f"{operation}: {name} must be a tensor, got None; make one with be.zeros((nfm, 1))")
        check_tensors(self, operation, **needed)
        check_floats(operation, x=x, **data)
        nfm = rows["gamma"].size
        for name, tensor in rows.items():
            if not is_float(tensor.dtype):
                raise DTypeError(f"{operation}: {name} must hold floats, got {tensor.dtype.name}; make it float32")
            if tensor.size != nfm:
                check_size(operation, name, tensor, (nfm, 1), "gamma")
        dims = _dims(operation, x, nfm)
        for name, tensor in data.items():
            if not is_regrouped(tensor.shape, x.shape):  # rows of x may be parts of rows of gamma
                check_size(operation, name, tensor, dims, "x with one row for each of gamma")
        return dims

    @property
    def _is_synchronised(self) -> bool:
        return self._sync_batchnorm and self.ranks.size > 1

    # Hooks, with the definitions

    def _fprop_bn(
        self,
        request: BatchNormForward,
        x: Any,
        xsum: Any,
        xvar: Any,
        gmean: Any,
        gvar: Any,
        gamma: Any,
        beta: Any,
        y: Any,
    ) -> KernelCall | None:
        """``compound_fprop_bn`` of checked tensors; xsum and xvar are None in inference.

        Returns the kernel launch, if that was all; see ``kernels/run/calls.py``.
        """
        with forward_arrays(request, x, xsum, xvar, gmean, gvar, gamma, beta, y) as (values, rows, out):
            with np.errstate(all="ignore"):
                for block in blocks(request.dims):
                    part = {name: row[block] for name, row in rows.items()}
                    normalise(values[block], part, out[block], request)
        return None

    def _bprop_bn(
        self,
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
    ) -> KernelCall | None:
        """``compound_bprop_bn`` of checked tensors, y may be None; returns as :meth:`_fprop_bn`."""
        tensors = delta_out, grad_gamma, grad_beta, delta_in, x, xsum, xvar, gamma, y
        with backward_arrays(request, *tensors) as (delta, values, given, rows, out):
            with np.errstate(all="ignore"):
                for block in blocks(request.dims):
                    error = np.array(delta[block], np.float64)
                    if given is not None:
                        error[~(given[block] > 0)] = 0
                    part = {name: row[block] for name, row in rows.items()}
                    differentiate(error, values[block], part, out[block], request)
        return None


def _dims(operation: str, x: Any, nfm: int) -> tuple[int, int]:
    """Sizes (nfm, M) of x as rows."""
    leading = set(itertools.accumulate(x.shape[:-1], operator.mul))
    if nfm not in leading and not (nfm and x.shape[0] % nfm == 0):
        raise ShapeError(
            f"{operation}: x of shape {x.shape} has no {nfm} rows, as gamma of {nfm} elements asks for; pass x of "
            f"shape ({nfm}, M) or (k*{nfm}, N), or parameters of shape (x.shape[0], 1)"
        )
    return nfm, x.size // nfm if nfm else 0


def _check_overlap(
    operation: str,
    written_rows: dict[str, Any],
    read_rows: dict[str, Any],
    name: str,
    data: Any,
    inputs: dict[str, Any],
) -> None:
    """Raise AliasError if an output overlaps any tensor, except that ``data`` may be one of ``inputs``."""
    tensors = [*written_rows.values(), *read_rows.values(), data, *inputs.values()]
    roots = [getattr(tensor, "root", None) for tensor in tensors]
    if None not in roots and len(set(map(id, roots))) == len(roots):
        return  # each has separate memory, by far the most frequent case
    check_apart(operation, {**written_rows, name: data}, read_rows)
    check_apart(operation, written_rows, inputs)
    for other, tensor in inputs.items():
        if data.alias_of(tensor) < 2:
            continue
        if not (data.ptr == tensor.ptr and data.is_contiguous and tensor.is_contiguous):
            raise AliasError(
                f"{operation}: {name} shares some of its memory with {other}; give it memory of its own, "
                f"or all of {other}"
            )
