"""The ops of ``neonlike.autograd``, each as a call on variables beside NumPy in float64 and PyTorch, with operands."""

# ruff: noqa: E501  (a case, a line or a few: the tables read across)

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neonlike import autograd as ag

REAL, POSITIVE, UNIT = (-2.0, 2.0), (0.3, 3.0), (-0.9, 0.9)


class Case(NamedTuple):
    """One call of an op.

    Attributes
    ----------
    op : str
        The source document's name.
    call, numpy, torch : callable
        Of variables; of float64 arrays; of the module torch and tensors (None: not there, or another definition).
    shapes : tuple of shapes
    domains : tuple of (low, high)
        Where the operands lie; the last one for all that follow.
    smooth : bool
        Whether second derivatives are to be checked.
    """

    op: str
    call: Callable[..., Any]
    numpy: Callable[..., Any]
    torch: Callable[..., Any] | None
    shapes: tuple[tuple[int, ...], ...]
    domains: tuple[tuple[float, float], ...] = (REAL,)
    smooth: bool = True

    def operands(self, seed: int = 0) -> list[Any]:
        """Float64 arrays in the domains, no two elements closer than a thousandth: away from kinks and ties."""
        rng = np.random.default_rng(seed)
        found = []
        for place, shape in enumerate(self.shapes):
            low, high = self.domains[min(place, len(self.domains) - 1)]
            count = math.prod(shape)
            steps = (rng.permutation(count) + 0.25 + 0.3 * rng.random(count) + 0.1 * place) / (count + 0.5)
            found.append((low + (high - low) * steps).reshape(shape))
        return found


def title(case: Case) -> str:
    """A name for a test."""
    return f"{case.op}-{'-'.join('x'.join(map(str, shape)) for shape in case.shapes)}"


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def _softplus(x: Any, beta: float = 1.0) -> Any:
    return np.logaddexp(0, beta * x) / beta


def _log_softmax(x: Any, axis: int) -> Any:
    top = x.max(axis, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis, keepdims=True))


MASK = np.array([[1, 0, 0, 1, 0], [0, 1, 0, 1, 1], [0, 0, 1, 0, 1]])
ROWS, WIDE = ((3, 5),), ((3, 5), (1, 5))

ELEMENTWISE = (
    Case("Add", ag.add, np.add, lambda t, a, b: a + b, WIDE),
    Case("Add", lambda a, b: a + b, np.add, None, ((2, 1, 4), (3, 1))),
    Case("Minus", ag.subtract, np.subtract, lambda t, a, b: a - b, ((3, 1), (1, 5))),
    Case("Mult", ag.mul, np.multiply, lambda t, a, b: a * b, WIDE),
    Case("Mult", lambda a: a * a, np.square, None, ((7, 1),)),
    Case("Div", ag.div, np.divide, lambda t, a, b: a / b, ((3, 5), (3, 1)), (REAL, POSITIVE)),
    Case("ConstAdd", lambda a: 1.5 + a, lambda a: a + 1.5, lambda t, a: a + 1.5, ROWS),
    Case("ConstMult", lambda a: -2.5 * a, lambda a: a * -2.5, lambda t, a: a * -2.5, ((1, 1),)),
    Case("Pow", ag.pow, np.power, lambda t, a, b: a**b, WIDE, (POSITIVE, REAL)),
    Case("PowConst", lambda a: a**3, lambda a: a**3, lambda t, a: a**3, ROWS),
    Case("PowConst", lambda a: ag.pow(a, -0.5), lambda a: a**-0.5, lambda t, a: a**-0.5, ROWS, (POSITIVE,)),
    Case("Exp", ag.exp, np.exp, lambda t, a: a.exp(), ROWS),
    Case("Log", ag.log, np.log, lambda t, a: a.log(), ROWS, (POSITIVE,)),
    Case("Log1p", ag.log1p, np.log1p, lambda t, a: a.log1p(), ROWS, (UNIT,)),
    Case("Sin", ag.sin, np.sin, lambda t, a: a.sin(), ROWS),
    Case("Cos", ag.cos, np.cos, lambda t, a: a.cos(), ROWS),
    Case("Tan", ag.tan, np.tan, lambda t, a: a.tan(), ROWS, (UNIT,)),
    Case("ArcTan", ag.arctan, np.arctan, lambda t, a: a.atan(), ROWS),
    Case("Tanh", ag.tanh, np.tanh, lambda t, a: a.tanh(), ROWS),
    Case("Sigmoid", ag.sigmoid, lambda a: 1 / (1 + np.exp(-a)), lambda t, a: a.sigmoid(), ROWS),
    Case("Relu", ag.relu, lambda a: np.maximum(a, 0), lambda t, a: a.relu(), ROWS, smooth=False),
    Case(
        "LeakyRelu", lambda a: ag.leaky_relu(a, 0.2), lambda a: np.where(a > 0, a, 0.2 * a),
        lambda t, a: t.nn.functional.leaky_relu(a, 0.2), ROWS, smooth=False,
    ),
    Case(
        "Gelu", ag.gelu, lambda a: a * 0.5 * (1 + _erf(a / math.sqrt(2))), lambda t, a: t.nn.functional.gelu(a), ROWS
    ),
    Case("silu", ag.silu, lambda a: a / (1 + np.exp(-a)), lambda t, a: t.nn.functional.silu(a), ROWS),
    Case(
        "HardSwish", ag.hard_swish, lambda a: a * np.clip(a + 3, 0, 6) / 6,
        lambda t, a: t.nn.functional.hardswish(a), ROWS, ((-5.0, 5.0),), smooth=False,
    ),
    Case(
        "Softplus", lambda a: ag.softplus(a, 2.0, 3.0), lambda a: np.where(2 * a > 3, a, _softplus(a, 2.0)),
        lambda t, a: t.nn.functional.softplus(a, 2.0, 3.0), ROWS, smooth=False,
    ),
    Case(
        "CappedShiftedNegativeExponential", lambda a: ag.capped_shifted_negative_exponential(a, 0.4),
        lambda a: np.where(a <= 0.4, 1, np.exp(0.4 - a)), lambda t, a: t.where(a <= 0.4, 0.0, 0.4 - a).exp(), ROWS,
        smooth=False,
    ),
    Case("ElementWiseMaximum", ag.elementwise_maximum, np.maximum, lambda t, a, b: t.maximum(a, b), WIDE, smooth=False),
    Case("ElementWiseMinimum", ag.elementwise_minimum, np.minimum, lambda t, a, b: t.minimum(a, b), WIDE, smooth=False),
    Case(
        "Where", lambda a, b: ag.where(MASK, a, b * b), lambda a, b: np.where(MASK, a, b * b),
        lambda t, a, b: t.where(t.tensor(MASK != 0), a, b * b), WIDE,
    ),
    Case(
        "EqWhere", lambda a: a * ag.eq_where(ag.mask_fill(a, MASK, 1.0), 1), lambda a: a * MASK,
        lambda t, a: a * (a.masked_fill(t.tensor(MASK != 0), 1.0) == 1), ROWS, smooth=False,
    ),
    Case(
        "MaskFill", lambda a: ag.mask_fill(a, MASK, -7), lambda a: np.where(MASK, -7.0, a),
        lambda t, a: a.masked_fill(t.tensor(MASK != 0), -7.0), ROWS,
    ),
    Case("Dropout", lambda a: ag.dropout(a, 0.0), lambda a: a, lambda t, a: a * 1.0, ROWS),
    Case("CastToPrecision", lambda a: ag.cast(a, "float64") * 2, lambda a: a * 2, lambda t, a: a.double() * 2, ROWS),
    Case("Debug", lambda a: ag.debug(a, lambda value: None) * 2, lambda a: a * 2, None, ROWS),
)  # fmt: skip

CUBE = ((2, 3, 4),)
INDEX, EACH = [2, 0, 2, 1], np.array([[0, 3, 1, 1, 0], [2, 2, 0, 3, 1], [1, 0, 0, 2, 3]])

SHAPE = (
    Case("Transpose", ag.transpose, lambda a: a.T, lambda t, a: a.T, ROWS),
    Case("Transpose", lambda a: ag.transpose(a, 0, 2), lambda a: a.swapaxes(0, 2), lambda t, a: a.transpose(0, 2), CUBE),
    Case("Reshape", lambda a: ag.reshape(a, (-1, 3)), lambda a: a.reshape(-1, 3), lambda t, a: a.reshape(-1, 3), ROWS),
    Case("View", lambda a: ag.view(a * a, (4, 6)), lambda a: (a * a).reshape(4, 6), lambda t, a: (a * a).view(4, 6), CUBE),
    Case("Flatten", lambda a: ag.flatten(a, 1), lambda a: a.reshape(2, 12), lambda t, a: a.flatten(1), CUBE),
    Case("Expand", lambda a: ag.expand(a, (2, 3, -1)), lambda a: np.broadcast_to(a, (2, 3, 5)), lambda t, a: a.expand(2, 3, -1), ((1, 5),)),
    Case("ExpandAs", lambda a, b: ag.expand_as(a, b) * b, lambda a, b: a * b, lambda t, a, b: a.expand_as(b) * b, ((3, 1), (3, 5))),
    Case(
        "Concatenate", lambda a, b: ag.concatenate([a, b, a], 1), lambda a, b: np.concatenate([a, b, a], 1),
        lambda t, a, b: t.cat([a, b, a], 1), ((3, 5), (3, 2)),
    ),
    Case(
        "Stack", lambda a, b: ag.stack([a, b * a], 1), lambda a, b: np.stack([a, b * a], 1),
        lambda t, a, b: t.stack([a, b * a], 1), ((3, 5), (3, 5)),
    ),
    Case("Slice", lambda a: ag.slice(a, 1, 1, 5, 2), lambda a: a[:, 1:5:2], lambda t, a: a[:, 1:5:2], ROWS),
    Case("Slice", lambda a: (a * a)[1:, ::-1], lambda a: (a * a)[1:, ::-1], None, ROWS),
    Case("Select", lambda a: ag.select(a, 1, 2), lambda a: a[:, 2], lambda t, a: a.select(1, 2), CUBE),
    Case("IndexSelect", lambda a: ag.index_select(a, 0, INDEX), lambda a: a[INDEX], lambda t, a: a.index_select(0, t.tensor(INDEX)), ROWS),
    Case(
        "IndexAdd", lambda a: ag.index_add(a, INDEX, 0, 3), lambda a: np.stack([a[np.equal(INDEX, i)].sum(0) for i in range(3)]),
        lambda t, a: t.zeros(3, 5, dtype=a.dtype).index_add(0, t.tensor(INDEX), a), ((4, 5),),
    ),
    Case(
        "IndexAddToTarget", lambda g, a: ag.index_add_to_target(g, a, INDEX, 0),
        lambda g, a: g + np.stack([a[np.equal(INDEX, i)].sum(0) for i in range(3)]),
        lambda t, g, a: g.index_add(0, t.tensor(INDEX), a), ((3, 5), (4, 5)),
    ),
    Case(
        "IndexFill", lambda a: ag.index_fill(a, 1, [1, 3], 9), lambda a: np.where(np.isin(np.arange(5), [1, 3]), 9, a),
        lambda t, a: a.index_fill(1, t.tensor([1, 3]), 9.0), ROWS,
    ),
    Case(
        "MaskSelect", lambda a: ag.mask_select(a, MASK), lambda a: a[MASK != 0][:, None],
        lambda t, a: a.masked_select(t.tensor(MASK != 0))[:, None], ROWS,
    ),
    Case(
        "ScatterAdd", lambda a: ag.scatter_add(a, EACH, 0, 4),
        lambda a: np.stack([np.where(i == EACH, a, 0).sum(0) for i in range(4)]),
        lambda t, a: t.zeros(4, 5, dtype=a.dtype).scatter_add(0, t.tensor(EACH), a), ROWS,
    ),
    Case(
        "RepeatInterleave", lambda a: ag.repeat_interleave(a, [2, 0, 3], 0), lambda a: np.repeat(a, [2, 0, 3], 0),
        lambda t, a: a.repeat_interleave(t.tensor([2, 0, 3]), 0), ROWS,
    ),
    Case("Assign", lambda a, b: ag.assign(a, b * 2), lambda a, b: b * 2, lambda t, a, b: b * 2 + 0 * a, ((3, 5), (3, 5))),
    Case("Diag", lambda a: ag.diag(a, 1), lambda a: np.diag(a, 1)[:, None], lambda t, a: a.diag(1)[:, None], ROWS),
    Case("Diag", lambda a: ag.diag(a, -1), lambda a: np.diag(a[:, 0], -1), lambda t, a: a[:, 0].diag(-1), ((4, 1),)),
)  # fmt: skip


def _norm(x: Any, axis: Any) -> Any:
    return np.sqrt(np.square(x).sum(axis, keepdims=True))


REDUCTION = (
    Case("Sum", ag.sum, lambda a: a.sum(keepdims=True), lambda t, a: a.sum().view(1, 1), ROWS),
    Case("Sum", lambda a: ag.sum(a * a, (0, 2)), lambda a: (a * a).sum((0, 2), keepdims=True), lambda t, a: (a * a).sum((0, 2), keepdim=True), CUBE),
    Case("Sum", lambda a: ag.sum(a, 1, keepdims=False), lambda a: a.sum(1), lambda t, a: a.sum(1), CUBE),
    Case("Mean", lambda a: ag.mean(a, 0), lambda a: a.mean(0, keepdims=True), lambda t, a: a.mean(0, keepdim=True), ROWS),
    Case("Variance", lambda a: ag.variance(a, 1), lambda a: a.var(1, ddof=1, keepdims=True), lambda t, a: a.var(1, keepdim=True), ROWS),
    Case("Variance", lambda a: ag.variance(a, (0, 2), unbiased=False), lambda a: a.var((0, 2), keepdims=True), None, CUBE),
    Case("Norm2", lambda a: ag.norm2(a, 1), lambda a: _norm(a, 1), lambda t, a: a.norm(dim=1, keepdim=True), ROWS),
    Case("ArgMax", lambda a: a * ag.argmax(a, 0), lambda a: a * a.argmax(0)[None], lambda t, a: a * a.argmax(0, keepdim=True), ROWS, smooth=False),
    Case("LogSoftMax", ag.log_softmax, lambda a: _log_softmax(a, 1), lambda t, a: a.log_softmax(1), ROWS),
    Case("LogSoftMax", lambda a: ag.log_softmax(a, 0), lambda a: _log_softmax(a, 0), lambda t, a: a.log_softmax(0), ROWS),
    Case(
        "SquaredFrobeniusMatrixNorm", ag.squared_frobenius_matrix_norm, lambda a: (a * a).sum((1, 2), keepdims=True),
        lambda t, a: (a * a).sum((1, 2), keepdim=True), CUBE,
    ),
    Case(
        "EuclideanDistance", lambda a, b: ag.euclidean_distance(a, b, 1), lambda a, b: _norm(a - b, 1),
        lambda t, a, b: (a - b).norm(dim=1, keepdim=True), WIDE,
    ),
    Case("softmax", ag.softmax, lambda a: np.exp(_log_softmax(a, 1)), lambda t, a: a.softmax(1), ROWS),
    Case("logsumexp", lambda a: ag.logsumexp(a, 0), lambda a: np.log(np.exp(a).sum(0, keepdims=True)), lambda t, a: a.logsumexp(0, True), ROWS),
    Case("max", lambda a: ag.max(a, 1), lambda a: a.max(1, keepdims=True), lambda t, a: a.amax(1, True), ROWS, smooth=False),
    Case("min", lambda a: ag.min(a, 0), lambda a: a.min(0, keepdims=True), lambda t, a: a.amin(0, True), ROWS, smooth=False),
    Case("prod", lambda a: ag.prod(a, 1), lambda a: a.prod(1, keepdims=True), lambda t, a: a.prod(1, True), ROWS),
)  # fmt: skip

LINALG = (
    Case("MatMul", ag.matmul, np.matmul, lambda t, a, b: a @ b, ((3, 5), (5, 2))),
    Case("MatMul", lambda a: a @ a.T, lambda a: a @ a.T, lambda t, a: a @ a.T, ROWS),
    Case("BatchedMatMul", ag.batched_matmul, np.matmul, lambda t, a, b: a @ b, ((2, 3, 4), (2, 4, 5))),
    Case("BatchedMatMul", ag.batched_matmul, np.matmul, lambda t, a, b: a @ b, ((2, 3, 4), (4, 1))),
)  # fmt: skip

TARGETS, WEIGHTS = [2, 0, 3, -100, 1], [0.5, 2.0, 1.0, 3.0]


def _nll(a: Any, weights: Any, ignore: int = -100) -> tuple[Any, Any]:
    """Losses of rows, and the weights of their targets."""
    w = np.array([0.0 if t == ignore else weights[t] for t in TARGETS])[:, None]
    return -w * a[np.arange(5), np.maximum(TARGETS, 0)][:, None], w


def _bce(a: Any, t: Any, w: Any = 1.0) -> Any:
    return -(w * t * -np.logaddexp(0, -a) + (1 - t) * -np.logaddexp(0, a))


def _smooth(a: Any, b: Any, beta: float) -> Any:
    far = np.abs(a - b)
    return np.where(far < beta, far**2 / (2 * beta), far - beta / 2)


LOSS = (
    Case("MseLoss", ag.mse_loss, lambda a, b: np.square(a - b).mean(keepdims=True), lambda t, a, b: t.nn.functional.mse_loss(a, b).view(1, 1), ((3, 5), (3, 5))),
    Case("MseLoss", lambda a, b: ag.mse_loss(a, b, "none"), lambda a, b: np.square(a - b), lambda t, a, b: t.nn.functional.mse_loss(a, b, reduction="none"), ((3, 5), (3, 5))),
    Case(
        "SmoothL1Loss", lambda a, b: ag.smooth_l1_loss(a, b, "sum", 0.7), lambda a, b: _smooth(a, b, 0.7).sum(keepdims=True),
        lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b, reduction="sum", beta=0.7).view(1, 1), ((3, 5), (3, 5)), smooth=False,
    ),
    Case(
        "SmoothL1Loss", lambda a, b: ag.smooth_l1_loss(a, b, "none", 0), lambda a, b: np.abs(a - b),
        lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b, reduction="none", beta=0.0), ((3, 5), (3, 5)), smooth=False,
    ),
    Case(
        "NllLoss", lambda a: ag.nll_loss(ag.log_softmax(a), TARGETS), lambda a: np.array([[_nll(_log_softmax(a, 1), [1] * 4)[0].sum() / 4]]),
        lambda t, a: t.nn.functional.nll_loss(a.log_softmax(1), t.tensor(TARGETS)).view(1, 1), ((5, 4),),
    ),
    Case(
        "NllLoss", lambda a: ag.nll_loss(a, TARGETS, WEIGHTS), lambda a: np.array([[_nll(a, WEIGHTS)[0].sum() / 6.5]]),
        lambda t, a: t.nn.functional.nll_loss(a, t.tensor(TARGETS), t.tensor(WEIGHTS, dtype=a.dtype)).view(1, 1), ((5, 4),),
    ),
    Case(
        "NllLoss", lambda a: ag.nll_loss(a, TARGETS, reduction="none"), lambda a: _nll(a, [1] * 4)[0],
        lambda t, a: t.nn.functional.nll_loss(a, t.tensor(TARGETS), reduction="none")[:, None], ((5, 4),),
    ),
    Case(
        "NllLoss", lambda a: ag.nll_loss(a, [2, 0, 3, 1, 1], WEIGHTS, "sum", 1),
        lambda a: -np.array([[a[0, 2] * 1.0 + a[1, 0] * 0.5 + a[2, 3] * 3.0]]),
        lambda t, a: t.nn.functional.nll_loss(a, t.tensor([2, 0, 3, 1, 1]), t.tensor(WEIGHTS, dtype=a.dtype), reduction="sum", ignore_index=1).view(1, 1), ((5, 4),),
    ),
    Case(
        "BinaryCrossEntropyWithLogitsLoss", ag.binary_cross_entropy_with_logits_loss, lambda a, b: _bce(a, b).mean(keepdims=True),
        lambda t, a, b: t.nn.functional.binary_cross_entropy_with_logits(a, b).view(1, 1), ((3, 4), (3, 4)), ((-9.0, 9.0), (0.0, 1.0)),
    ),
    Case(
        "BinaryCrossEntropyWithLogitsLoss", lambda a: ag.binary_cross_entropy_with_logits_loss(a, np.eye(3, 4), WEIGHTS, "sum"),
        lambda a: _bce(a, np.eye(3, 4), np.array(WEIGHTS)).sum(keepdims=True),
        lambda t, a: t.nn.functional.binary_cross_entropy_with_logits(a, t.eye(3, 4, dtype=a.dtype), reduction="sum", pos_weight=t.tensor(WEIGHTS, dtype=a.dtype)).view(1, 1), ((3, 4),),
    ),
)  # fmt: skip

CASES = (*ELEMENTWISE, *SHAPE, *REDUCTION, *LINALG, *LOSS)
