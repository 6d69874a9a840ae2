"""``BatchNormOp``: batch normalisation as an object that keeps its statistics, for any order of axes.

This file views tensors of any layout as rows, and keeps the state between calls. Contiguous rows, as in neon's layouts,
are normalised by the kernels of ``compound_fprop_bn`` and ``compound_bprop_bn``
(:mod:`neonlike.backends.primitives.batchnorm.family`), others by op-trees (``batchnorm_trees.py``).
"""

from __future__ import annotations

import math
from typing import Any

from neonlike.backends.descriptors import BATCH, TensorDesc
from neonlike.backends.objects import batchnorm_record, batchnorm_trees
from neonlike.backends.tensors.operands import as_numbers, check_apart, check_tensors
from neonlike.checks import brief
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError, did_you_mean
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import compute_dtype, is_float

MODES = ("spatial", "per_activation", "spatial_persistent")
NAN_POLICIES = ("propagate", "ignore")
CHANNELS = "C"


class TooEarly(ArgumentError, AttributeError):
    """An attribute was read before :meth:`BatchNormOp.stage`, or before a training call.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> try:
    ...     be.batchnorm_op().running_mean
    ... except TooEarly:
    ...     print("stage it first")
    stage it first
    """


class BatchNormOp:
    """Result of ``be.batchnorm_op(mode)``; :meth:`stage` must set its shape first.

    x, y and their gradients have the staged descriptor. Scale, bias and their gradients have :meth:`scale_bias_desc`,
    or a shape that splits or merges its axes, such as (C, 1). They hold floats of at least 32 bits.

    With the policy "propagate" a nan in x makes all results of its row nan, as in arithmetic. With "ignore" it is
    excluded: mean and variance are those of the other elements, y is the bias there, the gradient by x is 0, and
    neither that position nor one with a nan gradient by y contributes to the gradients by scale and bias.

    Parameters
    ----------
    be : Backend
    mode, nan : str
        See below.

    Attributes
    ----------
    mode : "spatial", "per_activation" or "spatial_persistent"
    nan : "propagate" or "ignore"
    desc : TensorDesc or None
        The staged descriptor.
    epsilon, averaging_factor : float or None
        Values of the last training call.
    count, row_axes : int
        Elements per statistic; axes of x with separate statistics.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> op = be.batchnorm_op().stage(be.empty((1, 2)))
    >>> x, y = be.array([[1., 3.]]), be.empty((1, 2))
    >>> scale, bias = be.ones((1, 1)), be.zeros((1, 1))
    >>> op.forward_training(1.0, 0.0, 0.1, 0.0, x, scale, bias, y)
    >>> y.tolist(), op.saved_mean.item()
    ([[-1.0, 1.0]], 2.0)
    """

    def __init__(self, be: Any, mode: str = "spatial", nan: str = "propagate") -> None:
        for name, given, known in (("mode", mode, MODES), ("nan", nan, NAN_POLICIES)):
            if given not in known:
                meant = did_you_mean(given, known) if isinstance(given, str) else ""
                raise ArgumentError(f"batchnorm_op: {name} must be one of {known}, got {brief(given)}{meant}")
        self.backend, self.mode, self.nan = be, mode, nan
        self.desc: TensorDesc | None = None
        self.epsilon: float | None = None
        self.averaging_factor: float | None = None

    def __repr__(self) -> str:
        staged = "not staged" if self.desc is None else f"{self.desc.layout}{self.desc.shape} {self.desc.dtype.name}"
        return f"<BatchNormOp {self.mode}, {staged}>"

    # Shapes

    def stage(self, x_desc: Any) -> BatchNormOp:
        """Set the shape of x and reset the running mean to 0 and the running variance to 1; return this object.

        Parameters
        ----------
        x_desc : TensorDesc or Tensor
            With a batch N and channels C: NCHW, NHWC, NC, neon's CHWN and CDHWN, and others. Further axes are
            positions.

        Raises
        ------
        ShapeError
            If one of these axes is missing, or an axis has size 0.
        DTypeError
            If it is not of floats.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.batchnorm_op().stage(be.empty((3, 8)))
        <BatchNormOp spatial, CN(3, 8) float32>
        """
        desc = TensorDesc.of(x_desc)
        if not is_float(desc.dtype):
            raise DTypeError(f"batchnorm_op: x must hold floats, got {desc.dtype.name}")
        for letter in (BATCH, CHANNELS):
            desc.axis(letter)
        if not desc.size:
            raise ShapeError(f"batchnorm_op: x of shape {desc.shape} has no elements to take statistics of")
        of_row = desc.layout.replace(BATCH, "") if self.mode == "per_activation" else CHANNELS
        kept = tuple(size if letter in of_row else 1 for letter, size in zip(desc.layout, desc.shape))
        self.desc, self._stats = desc, TensorDesc(kept, compute_dtype(desc.dtype), desc.layout)
        self._turned = of_row + "".join(letter for letter in desc.layout if letter not in of_row)
        self._rows, self.row_axes = math.prod(kept), len(of_row)
        self._in_trees = self.nan == "ignore" or self._turned != desc.layout
        self.count = desc.size // self._rows
        self.epsilon = self.averaging_factor = None
        column, be = (self._rows, 1), self.backend
        self._mean, self._variance = (be.zeros(column, self._stats.dtype) for _ in range(2))
        self._variance.fill(1)
        self._saved_sum, self._saved_variance = (be.zeros(column, self._stats.dtype) for _ in range(2))
        return self

    def _staged(self, operation: str) -> TensorDesc:
        if self.desc is None:
            raise TooEarly(f"batchnorm_op.{operation}: the shape of x is not known yet; call stage(x_desc) first")
        return self.desc

    def scale_bias_desc(self) -> TensorDesc:
        """Descriptor of scale, bias and their gradients: 1xCx1x1 of NCHW, or 1xCxHxW for each activation.

        float64 for x of float64, else float32.

        Raises
        ------
        TooEarly
            If no shape was staged.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.batchnorm_op().stage(be.empty((3, 4, 4, 8))).scale_bias_desc().shape
        (3, 1, 1, 1)
        """
        self._staged("scale_bias_desc")
        return self._stats

    # Statistics

    @property
    def running_mean(self) -> Any:
        """The running mean, a tensor with :meth:`scale_bias_desc`; writing to it sets it."""
        self._staged("running_mean")
        return self._mean.viewed(self._stats.shape)

    @property
    def running_variance(self) -> Any:
        """The running variance, a tensor with :meth:`scale_bias_desc`; writing to it sets it."""
        self._staged("running_variance")
        return self._variance.viewed(self._stats.shape)

    @property
    def saved_mean(self) -> Any:
        """A copy of the mean of the last training call."""
        self._trained("saved_mean")
        return (self._saved_sum / self.count).astensor().viewed(self._stats.shape)

    @property
    def saved_inv_variance(self) -> Any:
        """1 / sqrt(variance + epsilon) of the last training call, computed now."""
        epsilon = self._trained("saved_inv_variance")
        inverse = 1 / self.backend.sqrt(self._saved_variance + epsilon)
        return inverse.astensor().viewed(self._stats.shape)

    def _trained(self, operation: str) -> float:
        """The epsilon of the last training call."""
        self._staged(operation)
        if self.epsilon is None:
            raise TooEarly(f"batchnorm_op.{operation}: no statistics are saved yet; call forward_training first")
        return self.epsilon

    # The three operations

    def forward_training(
        self, alpha: float, beta: float, averaging_factor: float, epsilon: float, x: Any, scale: Any, bias: Any, y: Any
    ) -> None:
        """``y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y`` by this batch's statistics.

        The statistics are saved for :meth:`backward`, and update the running ones: ``running = (1 - averaging_factor) *
        running + averaging_factor * this``. Both variances are biased, means of squares.

        Parameters
        ----------
        alpha, beta : float
            With a beta of 0 the old y is not read, not even nan.
        averaging_factor : float
            From 0 to 1; 1 / n in the n-th call gives the plain mean of all.
        epsilon : float
            Not negative.
        x, y : as staged
            y may be x.
        scale, bias : as ``scale_bias_desc()``

        Raises
        ------
        TooEarly
            If no shape was staged.
        ArgumentError
            If a number is out of its range, or a tensor was made in another layout.
        ShapeError, DTypeError, AliasError
            If a tensor does not fit, or y overlaps another one. Nothing is written in any of these cases.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> op, x, y = be.batchnorm_op().stage(be.empty((1, 2))), be.array([[1., 3.]]), be.empty((1, 2))
        >>> op.forward_training(1.0, 0.0, 1.0, 0.0, x, be.ones((1, 1)), be.zeros((1, 1)), y)
        >>> y.tolist(), op.running_mean.item()
        ([[-1.0, 1.0]], 2.0)
        """
        name = "forward_training"
        self._staged(name)
        factor, epsilon, alpha, beta = self._numbers(
            name, averaging_factor=averaging_factor, epsilon=epsilon, alpha=alpha, beta=beta
        )
        if not 0 <= factor <= 1:
            raise ArgumentError(f"batchnorm_op.{name}: averaging_factor must be from 0 to 1, got {factor}")
        rows, columns = self._data(name, x=x, y=y), self._columns(name, scale=scale, bias=bias)
        _check_overlap(name, {"y": rows["y"]}, {"x": rows["x"]}, {}, columns)
        kept = self._saved_sum, self._saved_variance, self._mean, self._variance
        if self._in_trees:
            batchnorm_trees.forward_training(self, rows, columns, kept, (alpha, beta, factor, epsilon))
        else:
            self.backend.compound_fprop_bn(
                _same(rows["x"], rows["y"]), *kept, *columns.values(), rows["y"], epsilon, 1 - factor, True, beta,
                alpha=alpha,
            )  # fmt: skip
        self.epsilon, self.averaging_factor = epsilon, factor

    def forward_inference(
        self, alpha: float, beta: float, epsilon: float, x: Any, scale: Any, bias: Any, y: Any
    ) -> None:
        """Forward pass by the running statistics, which stay unchanged; otherwise as :meth:`forward_training`.

        Parameters
        ----------
        alpha, beta, epsilon, x, scale, bias, y
            As of :meth:`forward_training`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> op, y = be.batchnorm_op().stage(be.empty((1, 2))), be.empty((1, 2))
        >>> op.forward_inference(1.0, 0.0, 0.0, be.array([[1., 3.]]), be.ones((1, 1)), be.zeros((1, 1)), y)
        >>> y.tolist()    # by the mean 0 and the variance 1
        [[1.0, 3.0]]
        """
        name = "forward_inference"
        self._staged(name)
        epsilon, alpha, beta = self._numbers(name, epsilon=epsilon, alpha=alpha, beta=beta)
        rows, columns = self._data(name, x=x, y=y), self._columns(name, scale=scale, bias=bias)
        _check_overlap(name, {"y": rows["y"]}, {"x": rows["x"]}, {}, columns)
        if self._in_trees:
            running = self._mean, self._variance
            batchnorm_trees.forward_inference(self, rows, columns, running, (alpha, beta, epsilon))
            return
        self.backend.compound_fprop_bn(
            _same(rows["x"], rows["y"]), None, None, self._mean, self._variance, *columns.values(), rows["y"],
            epsilon, 0.0, False, beta, inference=True, alpha=alpha,
        )  # fmt: skip

    def backward(
        self,
        alpha_data: float,
        beta_data: float,
        alpha_param: float,
        beta_param: float,
        epsilon: float,
        x: Any,
        scale: Any,
        dscale: Any,
        dbias: Any,
        dx: Any,
        dy: Any,
    ) -> None:
        """Gradients of the last training call, with an alpha of 1, with respect to x, scale and bias.

        ``dx = alpha_data * gradient + beta_data * dx``, and likewise ``dscale`` and ``dbias`` with the other two
        numbers; with a beta of 0 old values are not read.

        Parameters
        ----------
        alpha_data, beta_data, alpha_param, beta_param : float
            Factors of the new and the old gradients.
        epsilon : float
            As in the training call.
        x : as staged
            As in the training call; :meth:`forward_training` must not have written y over it.
        scale, dscale, dbias : as ``scale_bias_desc()``
        dx, dy : as staged
            Gradients by x and by y; dx may be dy, or x.

        Raises
        ------
        TooEarly
            If there was no training call after :meth:`stage`.
        ArgumentError
            If its epsilon was another, or a tensor has another layout.
        ShapeError, DTypeError, AliasError
            As in :meth:`forward_training`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> op, x, y = be.batchnorm_op().stage(be.empty((1, 2))), be.array([[1., 3.]]), be.empty((1, 2))
        >>> scale, bias, dscale, dbias = (be.ones((1, 1)) for _ in range(4))
        >>> op.forward_training(1.0, 0.0, 1.0, 0.0, x, scale, bias, y)
        >>> op.backward(1.0, 0.0, 1.0, 0.0, 0.0, x, scale, dscale, dbias, be.empty((1, 2)), be.array([[1., 2.]]))
        >>> dscale.item(), dbias.item()
        (1.0, 3.0)
        """
        name = "backward"
        trained = self._trained(name)
        epsilon, *factors = self._numbers(
            name, epsilon=epsilon, alpha_data=alpha_data, beta_data=beta_data, alpha_param=alpha_param,
            beta_param=beta_param,
        )  # fmt: skip
        if epsilon != trained:
            raise ArgumentError(f"batchnorm_op.{name}: epsilon must be {trained}, as in training, got {epsilon}")
        rows = self._data(name, x=x, dx=dx, dy=dy)
        columns = self._columns(name, scale=scale, dscale=dscale, dbias=dbias)
        gradients = {which: columns[which] for which in ("dscale", "dbias")}
        read = {which: rows[which] for which in ("x", "dy")}
        _check_overlap(name, {"dx": rows["dx"]}, read, gradients, {"scale": columns["scale"]})
        kept = self._saved_sum, self._saved_variance
        if self._in_trees:
            batchnorm_trees.backward(self, rows, columns, kept, (epsilon, *factors))
            return
        dx_rows = rows["dx"]
        self.backend.compound_bprop_bn(
            dx_rows, columns["dscale"], columns["dbias"], _same(rows["dy"], dx_rows), _same(rows["x"], dx_rows), *kept,
            columns["scale"], epsilon, alpha_data=factors[0], beta_data=factors[1], alpha_param=factors[2],
            beta_param=factors[3], own_sum=True,
        )  # fmt: skip

    # Records

    def info(self) -> dict[str, Any]:
        """State of this object as JSON values.

        Entries are ``mode``, ``nan``, ``format`` (the layout), ``dtype``, ``dims``, ``strides`` (in elements),
        ``epsilon`` and ``averaging_factor`` of the last training call or None; and the statistics, each as base64 text
        of little-endian floats: ``running_mean``, ``running_variance``, ``saved_variance``, and ``saved_sum``, which is
        the saved mean times the row length, because the mean itself would be rounded.

        Raises
        ------
        TooEarly
            If no shape was staged.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> record = be.batchnorm_op().stage(be.empty((3, 8))).info()
        >>> record["mode"], record["format"], record["dims"]
        ('spatial', 'CN', [3, 8])
        """
        self._staged("info")
        return batchnorm_record.record_of(self)

    @classmethod
    def from_info(cls, record: Any, be: Any = None) -> BatchNormOp:
        """Restore the object from the result of :meth:`info`; its further results are bit-identical.

        Parameters
        ----------
        record : mapping
        be : Backend, optional
            Backend for its statistics; default: the current one.

        Raises
        ------
        ArgumentError
            If the record is incomplete or contradictory.
        ShapeError, DTypeError
            If dims or dtype are invalid for tensors.
        BackendUnavailable
            If there is no backend.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> op = be.batchnorm_op("per_activation").stage(be.empty((3, 8)))
        >>> BatchNormOp.from_info(op.info())
        <BatchNormOp per_activation, CN(3, 8) float32>
        """
        return batchnorm_record.restored(cls, record, NervanaObject.be if be is None else be)

    # Tensors as rows

    def _numbers(self, operation: str, **numbers: float) -> list[float]:
        found = as_numbers(f"batchnorm_op.{operation}", **numbers)
        for name, value in zip(numbers, found):
            if not math.isfinite(value) or (name == "epsilon" and value < 0):
                wanted = "a number from 0 on" if name == "epsilon" else "finite"
                raise ArgumentError(f"batchnorm_op.{operation}: {name} must be {wanted}, got {value}")
        return found

    def _data(self, operation: str, **tensors: Any) -> dict[str, Any]:
        """Views of ``tensors`` in the staged layout, with axes in the order of rows."""
        name, desc = f"batchnorm_op.{operation}", self._staged(operation)
        check_tensors(self.backend, name, **tensors)
        seen = {which: desc.view(tensor, which, name) for which, tensor in tensors.items()}
        return {which: desc.arranged(view, self._turned) for which, view in seen.items()}

    def _columns(self, operation: str, **tensors: Any) -> dict[str, Any]:
        """Views (rows, 1) of ``tensors`` with ``scale_bias_desc()``."""
        name = f"batchnorm_op.{operation}"
        check_tensors(self.backend, name, **tensors)
        return {
            which: self._stats.view(tensor, which, name).viewed(self._rows, 1) for which, tensor in tensors.items()
        }

    def _statistics(self) -> dict[str, Any]:
        """The four statistics as tensors (rows, 1), by their record names."""
        kept = self._mean, self._variance, self._saved_sum, self._saved_variance
        return dict(zip(batchnorm_record.STATISTICS, kept))


def _same(given: Any, result: Any) -> Any:
    """Return ``result`` for another view of the same elements, so that kernels recognize in-place work."""
    return result if given.is_contiguous and given.alias_of(result) == 1 else given


def _check_overlap(
    operation: str, data: dict[str, Any], inputs: dict[str, Any], written: dict[str, Any], columns: dict[str, Any]
) -> None:
    """Raise AliasError if ``data`` or ``written`` overlap anything, except that ``data`` may be one of ``inputs``."""
    name = f"batchnorm_op.{operation}"
    check_apart(name, {**data, **written}, columns)
    check_apart(name, written, inputs)
    for result, tensor in data.items():
        for other, given in inputs.items():
            if tensor.alias_of(given) == 2:
                raise AliasError(
                    f"{name}: {result} shares some of its memory with {other}; give it memory of its own, or all of "
                    f"{other}"
                )
