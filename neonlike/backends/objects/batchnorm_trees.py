"""Batch normalisation as op-trees, for cases without row kernels: strided rows, and nan treated as missing.

For strided rows, such as channels of NCHW, this reads the operands in place, whereas kernels would need reordered
copies. With m = 1, or 0 where x is nan and excluded, n the number of included elements of a row, and s = 1 /
sqrt(variance + epsilon):

    mean = sum(m x) / n     variance = sum(m (x - mean)**2) / n     xhat = m (x - mean) s     y = scale xhat + bias
    dscale = sum(xhat dy)   dbias = sum(m dy)                       dx = m scale s (dy - (xhat dscale + dbias) / n)

where a nan in dy counts as 0 if nan in x is excluded. The mean is computed in two parts: the first is rounded, the
second is the mean of the remainder, so that rows far from 0 are as accurate as others. All targets of a call are
assigned together, from the old values of all.
"""

from __future__ import annotations

from typing import Any


class _Rows:
    """View of x by rows: the op's axes of a row's statistics first, then the others."""

    def __init__(self, op: Any, x: Any) -> None:
        self.be, self.count = op.backend, op.count
        self.kind = op.scale_bias_desc().dtype
        self.x = x if x.dtype == self.kind else x.astype(self.kind)  # sums of float16 would be stored as float16
        self.absent = self.be.isnan(self.x) if op.nan == "ignore" else None
        self.axes = tuple(range(op.row_axes, x.ndim))
        self.stretched = (*x.shape[: op.row_axes], *[1] * len(self.axes))

    def column(self, values: Any) -> Any:
        """Reshape (rows, 1) to broadcast over x."""
        return values.reshape(self.stretched)

    def sums(self, *values: Any) -> list[Any]:
        """Row sums of each value, (rows, 1), computed now in one pass."""
        found = [self.be.fresh(self.stretched, self.kind) for _ in values]
        self.be.assign_many([(out, self.be.sum(one, axis=self.axes)) for out, one in zip(found, values)])
        return [out.reshape(-1, 1) for out in found]

    def present(self, values: Any) -> Any:
        """``values``, with 0 where x is excluded."""
        return values if self.absent is None else self.be.where(self.absent, 0, values)

    def numbers(self, missing: Any) -> Any:
        """n of each row, at least 1; ``missing``: number of excluded elements per row."""
        return self.count if missing is None else self.be.maximum(self.count - missing, 1).astensor()

    def missing(self) -> Any:
        """Number of excluded elements per row; None without any."""
        return None if self.absent is None else self.sums(self.absent)[0]

    def normal(self, centred: Any, variance: Any, epsilon: float) -> Any:
        """xhat computed from x - mean."""
        return self.present(centred * (1 / self.be.sqrt(self.column(variance) + epsilon)))


def _blended(alpha: float, new: Any, beta: float, old: Any) -> Any:
    return alpha * new + beta * old if beta else alpha * new


def _result(rows: _Rows, xhat: Any, columns: dict[str, Any]) -> Any:
    return xhat * rows.column(columns["scale"]) + rows.column(columns["bias"])


def forward_training(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.forward_training``; kept: saved sum and variance, running mean and variance.

    Parameters
    ----------
    op : BatchNormOp
    data : dict
        x and y as rows.
    columns : dict
        scale and bias, (rows, 1).
    kept : tuple of Tensor
    numbers : tuple of float
        alpha, beta, averaging factor, epsilon.
    """
    alpha, beta, factor, epsilon = numbers
    saved_sum, saved_variance, *running = kept
    rows, be = _Rows(op, data["x"]), op.backend
    missing = rows.missing()
    count = rows.numbers(missing)
    (total,) = rows.sums(rows.present(rows.x))
    pivot = (total / count).astensor()
    centred = rows.x - rows.column(pivot)
    left, squares = rows.sums(rows.present(centred), rows.present(be.square(centred)))
    rest = (left / count).astensor()
    variance = be.maximum(squares / count - be.square(rest), 0).astensor()
    xhat = rows.normal(centred - rows.column(rest), variance, epsilon)
    pairs = [
        (data["y"], _blended(alpha, _result(rows, xhat, columns), beta, data["y"])),
        (saved_sum, (pivot + rest) * op.count),
        (saved_variance, variance),
    ]
    for old, now in zip(running, (pivot + rest, variance)):
        moved = (1 - factor) * old + factor * now if factor < 1 else now
        pairs.append((old, moved if missing is None else be.where(be.equal(missing, op.count), old, moved)))
    be.assign_many(pairs)


def forward_inference(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.forward_inference``; kept: running mean and variance.

    Parameters
    ----------
    op, data, columns
        As of :func:`forward_training`.
    kept : tuple of Tensor
    numbers : tuple of float
        alpha, beta, epsilon.
    """
    alpha, beta, epsilon = numbers
    mean, variance = kept
    rows = _Rows(op, data["x"])
    result = _result(rows, rows.normal(rows.x - rows.column(mean), variance, epsilon), columns)
    op.backend.assign(data["y"], _blended(alpha, result, beta, data["y"]))


def backward(op: Any, data: dict[str, Any], columns: dict[str, Any], kept: Any, numbers: Any) -> None:
    """See ``BatchNormOp.backward``; kept: saved sum and variance.

    Parameters
    ----------
    op : BatchNormOp
    data : dict
        x, dx and dy as rows.
    columns : dict
        scale, dscale and dbias, (rows, 1).
    kept : tuple of Tensor
    numbers : tuple of float
        epsilon, and the factors of ``BatchNormOp.backward``.
    """
    epsilon, alpha_data, beta_data, alpha_param, beta_param = numbers
    saved_sum, variance = kept
    rows, be, error = _Rows(op, data["x"]), op.backend, data["dy"]
    if error.dtype != rows.kind:
        error = error.astype(rows.kind)
    if rows.absent is not None:
        error = rows.present(be.where(be.isnan(error), 0, error))
    mean = (saved_sum / op.count).astensor()
    centred = rows.present(rows.x - rows.column(mean))
    products, dbias, left = rows.sums(centred * error, error, centred)
    count = rows.numbers(rows.missing())
    rest = (left / count).astensor()
    xhat = rows.normal(centred - rows.column(rest), variance, epsilon)
    dscale = ((products - rest * dbias) / be.sqrt(variance + epsilon)).astensor()
    of_row = [(column / count).astensor() for column in (dscale, dbias)]
    spread = xhat * rows.column(of_row[0]) + rows.column(of_row[1])
    dx = rows.present(rows.column(columns["scale"]) / be.sqrt(rows.column(variance) + epsilon) * (error - spread))
    be.assign_many([
        (data["dx"], _blended(alpha_data, dx, beta_data, data["dx"])),
        (columns["dscale"], _blended(alpha_param, dscale, beta_param, columns["dscale"])),
        (columns["dbias"], _blended(alpha_param, dbias, beta_param, columns["dbias"])),
    ])  # fmt: skip
