"""Batch normalisation in which nan counts as no element, in op-trees: the policy "ignore" of ``BatchNormOp``.

With m = 1 where x is no nan, n the number of such elements of a row, and s = 1 / sqrt(variance + epsilon):

    mean = sum(m x) / n     variance = sum(m (x - mean)**2) / n     xhat = m (x - mean) s     y = scale xhat + bias
    dscale = sum(xhat dy)   dbias = sum(m dy)                       dx = m scale s (dy - (xhat dscale + dbias) / n)

where a dy that is nan counts as 0. All targets of a call are assigned together, from the old values of all.
"""

from __future__ import annotations

from typing import Any


class _Rows:
    """x by rows: the op's axes of a row's statistics first, the others behind them."""

    def __init__(self, op: Any, x: Any) -> None:
        self.be, self.count = op.backend, op.count
        kind = op.scale_bias_desc().dtype
        self.x = x if x.dtype == kind else x.astype(kind)  # sums of float16 would be stored as float16
        self.absent = self.be.isnan(self.x)
        self.axes = tuple(range(op.row_axes, x.ndim))
        self.stretched = (*x.shape[: op.row_axes], *[1] * len(self.axes))

    def column(self, values: Any) -> Any:
        """(rows, 1) in the shape that is stretched over x."""
        return values.reshape(self.stretched)

    def sum(self, values: Any) -> Any:
        """Sums of the rows, (rows, 1), computed now."""
        return self.be.sum(values, axis=self.axes).astensor().reshape(-1, 1)

    def present(self, values: Any) -> Any:
        """``values``, 0 where x is nan."""
        return self.be.where(self.absent, 0, values)

    def numbers(self) -> Any:
        """n of each row, at least 1."""
        return self.be.maximum(self.count - self.sum(self.absent), 1).astensor()

    def normal(self, mean: Any, variance: Any, epsilon: float) -> Any:
        """xhat, by columns of statistics."""
        inverse = 1 / self.be.sqrt(self.column(variance) + epsilon)
        return self.present((self.x - self.column(mean)) * inverse)


def _blended(alpha: float, new: Any, beta: float, old: Any) -> Any:
    return alpha * new + beta * old if beta else alpha * new


def _result(rows: _Rows, xhat: Any, columns: dict[str, Any]) -> Any:
    return xhat * rows.column(columns["scale"]) + rows.column(columns["bias"])


def forward_training(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.forward_training``; kept: saved sum and variance, running mean and variance."""
    alpha, beta, factor, epsilon = numbers
    saved_sum, saved_variance, running_mean, running_variance = kept
    rows, be = _Rows(op, data["x"]), op.backend
    count = rows.numbers()
    mean = (rows.sum(rows.present(rows.x)) / count).astensor()
    deviations = rows.present(rows.x - rows.column(mean))
    variance = (rows.sum(be.square(deviations)) / count).astensor()
    empty = be.equal(rows.sum(rows.absent), op.count)  # there is nothing that could move the running statistics
    xhat = rows.normal(mean, variance, epsilon)
    pairs = [
        (data["y"], _blended(alpha, _result(rows, xhat, columns), beta, data["y"])),
        (saved_sum, mean * op.count),
        (saved_variance, variance),
    ]
    for running, now in ((running_mean, mean), (running_variance, variance)):
        pairs.append((running, be.where(empty, running, (1 - factor) * running + factor * now)))
    be.assign_many(pairs)


def forward_inference(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.forward_inference``; kept: running mean and variance."""
    alpha, beta, epsilon = numbers
    mean, variance = kept
    rows = _Rows(op, data["x"])
    result = _result(rows, rows.normal(mean, variance, epsilon), columns)
    op.backend.assign(data["y"], _blended(alpha, result, beta, data["y"]))


def backward(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.backward``; kept: saved sum and variance."""
    epsilon, alpha_data, beta_data, alpha_param, beta_param = numbers
    saved_sum, variance = kept
    rows, be = _Rows(op, data["x"]), op.backend
    mean = (saved_sum / op.count).astensor()
    error = be.where(be.isnan(data["dy"]), 0, data["dy"])
    if error.dtype != rows.x.dtype:
        error = error.astype(rows.x.dtype)
    error = rows.present(error)
    xhat = rows.normal(mean, variance, epsilon)
    dscale, dbias = rows.sum(xhat * error), rows.sum(error)
    spread = (xhat * rows.column(dscale) + rows.column(dbias)) / rows.column(rows.numbers())
    inverse = rows.column(columns["scale"]) / be.sqrt(rows.column(variance) + epsilon)
    dx = rows.present(inverse * (error - spread))
    be.assign_many([
        (data["dx"], _blended(alpha_data, dx, beta_data, data["dx"])),
        (columns["dscale"], _blended(alpha_param, dscale, beta_param, columns["dscale"])),
        (columns["dbias"], _blended(alpha_param, dbias, beta_param, columns["dbias"])),
    ])  # fmt: skip
