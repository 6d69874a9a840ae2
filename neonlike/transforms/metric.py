"""Metrics: measures of outputs against targets, as numbers on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentError, ArgumentTypeError, ShapeError
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.functions import onehot
from neonlike.transforms.transform import Metric, column_mean, smooth_l1

__public_module__ = "neonlike.transforms.cost"

EVERYTHING = slice(0, None)


class Misclassification(Metric):
    """Fraction of columns with a largest output other than the target class.

    Parameters
    ----------
    steps : int
        Time steps of the outputs; a hint for the buffer size.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Misclassification
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.9, 0.2], [0.1, 0.8]]), be.array([[1.0, 1.0], [0.0, 0.0]])
    >>> Misclassification()(y, t)
    0.5
    """

    def __init__(self, steps: int = 1) -> None:
        super().__init__()
        self.steps = steps
        self.metric_names = ["Top1Misclass"]
        self._row_buffer("outputs")

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> float:
        """Top-1 error over the columns ``calcrange``; ``outputs`` holds it per column."""
        self._check_shapes(y, t)
        outputs = self._row_buffer("outputs", y.shape[1])
        outputs[:] = self.be.not_equal(self.be.argmax(y, axis=0), self.be.argmax(t, axis=0))
        return float(column_mean(outputs, calcrange)[0])


class Accuracy(Metric):
    """Fraction of columns with the largest output at the target class.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Accuracy
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.9, 0.2], [0.1, 0.8]]), be.array([[1.0, 1.0], [0.0, 0.0]])
    >>> Accuracy()(y, t)
    0.5
    """

    def __init__(self) -> None:
        super().__init__()
        self.metric_names = ["Accuracy"]
        self._row_buffer("outputs")

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> float:
        """Accuracy over the columns ``calcrange``; ``outputs`` holds it per column."""
        self._check_shapes(y, t)
        outputs = self._row_buffer("outputs", y.shape[1])
        outputs[:] = self.be.equal(self.be.argmax(y, axis=0), self.be.argmax(t, axis=0))
        return float(column_mean(outputs, calcrange)[0])


class LogLoss(Metric):
    """Mean −log probability of the target class; the logarithm is floored at −50.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import LogLoss
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5, 0.25], [0.5, 0.75]]), be.array([[1.0, 1.0], [0.0, 0.0]])
    >>> round(LogLoss()(y, t), 3)  # mean of −log 0.5 and −log 0.25
    1.04
    """

    def __init__(self) -> None:
        super().__init__()
        self.metric_names = ["LogLoss"]
        self._row_buffer("outputs")

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> float:
        """Log loss over the columns ``calcrange``, in nats."""
        self._check_shapes(y, t)
        outputs = self._row_buffer("outputs", y.shape[1])
        outputs[:] = -self.be.safelog(self.be.sum(y * t, axis=0))
        return float(column_mean(outputs, calcrange)[0])


class TopKMisclassification(Metric):
    """Log loss, top-1 error and top-k error in one pass; ties share the credit.

    With p the probability of the true class, ``above`` the number of larger outputs and ``tied`` the number equal
    to p, the true class is among the first k with probability (k − ``above``) / ``tied``, at most 1, at least 0.

    Parameters
    ----------
    k : int
        Number of largest outputs among which the true class counts as found.

    Raises
    ------
    ArgumentError
        If ``k`` is no positive integer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import TopKMisclassification
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5], [0.3], [0.2]]), be.array([[0.0], [1.0], [0.0]])
    >>> metric = TopKMisclassification(k=2)
    >>> print(metric.metric_names, metric(y, t).round(3))
    ['LogLoss', 'Top1Misclass', 'Top2Misclass'] [1.204 1.    0.   ]
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        if not isinstance(k, int | np.integer) or k < 1:
            raise ArgumentError(f"TopKMisclassification: k={brief(k)}; expected a positive integer")
        self.k = k
        self.metric_names = ["LogLoss", "Top1Misclass", f"Top{k}Misclass"]
        for name in ("outputs", "top1", "topk"):
            self._row_buffer(name)

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> np.ndarray:
        """Array (log loss, top-1 error, top-k error) over the columns ``calcrange``."""
        self._check_shapes(y, t)
        be, columns = self.be, y.shape[1]
        logloss, top1, topk = (self._row_buffer(name, columns) for name in ("outputs", "top1", "topk"))
        p = be.sum(y * t, axis=0)
        tied = be.sum(be.equal(y, p), axis=0)
        places = self.k - be.sum(be.greater(y, p), axis=0)
        share = places / tied
        be.assign_many(
            [
                (logloss, -be.safelog(p)),
                (top1, 1 - be.equal(be.max(y, axis=0), p) / tied),
                (topk, 1 - be.greater(places, 0) * be.minimum(share, 1)),
            ]
        )
        return np.array([column_mean(buffer, calcrange)[0] for buffer in (logloss, top1, topk)])


class PrecisionRecall(Metric):
    """Precision and recall, averaged over the classes.

    Parameters
    ----------
    num_classes : int
        Rows of the outputs.
    binarize : bool
        Replace the outputs by the one-hot columns of their maxima first, **in place**.
    epsilon : float
        Added to the denominators, so that absent classes count as 0.

    Attributes
    ----------
    token_stats
        Tensor ``(num_classes, 3)``: true positives, predictions, targets of each class.
    outputs
        Tensor ``(num_classes, 2)``: precision and recall of each class.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import PrecisionRecall
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[1.0, 1.0], [0.0, 0.0]]), be.array([[1.0, 0.0], [0.0, 1.0]])
    >>> metric = PrecisionRecall(num_classes=2)
    >>> metric(y, t).round(3).tolist()  # means of 1/2 and 0, and of 1 and 0
    [0.25, 0.5]
    """

    def __init__(self, num_classes: int, binarize: bool = False, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.num_classes, self.binarize, self.epsilon = num_classes, binarize, epsilon
        self.metric_names = ["Precision", "Recall"]
        be = self.require_backend()
        dtype = compute_dtype(be.default_np_dtype)  # float16 counts exactly only to 2048
        self.outputs = be.empty((num_classes, 2), dtype=dtype)
        self.token_stats = be.empty((num_classes, 3), dtype=dtype)
        self._row_buffer("bin_buf", dtype=np.int32)

    eps = property(lambda self: self.epsilon, doc="neon's name of ``epsilon``.")

    @property
    def accumulates(self) -> bool:
        """True: precision and recall are quotients of counts."""
        return True

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> np.ndarray:
        """Array (precision, recall) over the columns ``calcrange``."""
        self._count(y, t, calcrange)
        stats = self.token_stats
        self.outputs[:, 0] = stats[:, 0] / (stats[:, 1] + self.epsilon)
        self.outputs[:, 1] = stats[:, 0] / (stats[:, 2] + self.epsilon)
        return self.outputs.get().mean(axis=0)

    def counts(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> np.ndarray:
        """True positives, predictions and targets of each class, (num_classes, 3) in float64.

        Parameters
        ----------
        y, t : Tensor
            Outputs and targets, ``(classes, N)``.
        calcrange : slice
            Columns that count; all by default.
        """
        self._count(y, t, calcrange)
        return self.token_stats.get().astype(np.float64)

    def of_counts(self, counts: np.ndarray) -> np.ndarray:
        """Array (precision, recall).

        Parameters
        ----------
        counts : ndarray
            Sum of :meth:`counts` over batches, ``(num_classes, 3)``.
        """
        return self.by_class(counts).mean(axis=0)

    def by_class(self, counts: np.ndarray) -> np.ndarray:
        """Precision and recall of each class, (num_classes, 2), from summed :meth:`counts`.

        Parameters
        ----------
        counts : ndarray
            Sum of :meth:`counts` over batches, ``(num_classes, 3)``.
        """
        return counts[:, :1] / (counts[:, 1:] + self.epsilon)

    def _count(self, y: Any, t: Any, calcrange: slice) -> None:
        """Fill ``token_stats``."""
        self._check_shapes(y, t)
        if y.shape[0] != self.num_classes:
            raise ShapeError(
                f"PrecisionRecall: made for num_classes={self.num_classes}, got outputs of shape {tuple(y.shape)}, a "
                "row a class"
            )
        be, stats = self.be, self.token_stats
        if self.binarize:
            winner = self._row_buffer("bin_buf", y.shape[1], np.int32)
            winner[:] = be.argmax(y, axis=0)
            y[:] = onehot(winner, 0, be, checked=False)
        y, t = y[:, calcrange], t[:, calcrange]
        stats[:, 0] = be.sum(y * t, axis=1)
        stats[:, 1] = be.sum(y, axis=1)
        stats[:, 2] = be.sum(t, axis=1)


class ObjectDetection(Metric):
    """Accuracy of the labels and smooth L1 loss of the boxes of detected objects.

    Source: Girshick, "Fast R-CNN" (2015), section 2.3.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import ObjectDetection
    >>> be = gen_backend("cpu", batch_size=2)
    >>> labels, boxes = be.array([[1.0, 1.0], [0.0, 0.0]]), be.zeros((4, 2))
    >>> wanted, where, mask = be.array([[1.0, 0.0], [0.0, 1.0]]), be.zeros((4, 2)), be.ones((4, 2))
    >>> ObjectDetection()((labels, boxes), (wanted, (where, mask))).tolist()
    [0.5, 0.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.metric_names = ["Accuracy", "SmoothL1Loss"]
        for name in ("outputs", "detections"):
            self._row_buffer(name)

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> np.ndarray:
        """Array (accuracy, mean smooth L1 loss of a column) over the columns ``calcrange``.

        Parameters
        ----------
        y : pair of tensors
            Labels ``(classes, N)`` and boxes ``(rows, N)``.
        t : pair
            Labels as one-hot columns, and the pair (boxes, mask): only boxes selected by the mask count.
        """
        be, (labels, boxes), (wanted, inner) = self.be, self._pair("y", y), self._pair("t", t)
        wanted_boxes, mask = self._pair("t[1]", inner)
        self._check_shapes(labels, wanted)
        self._check_shapes(boxes, wanted_boxes)
        outputs = self._row_buffer("outputs", labels.shape[1])
        outputs[:] = be.equal(be.argmax(labels, axis=0), be.argmax(wanted, axis=0))
        detections = self._row_buffer("detections", boxes.shape[1])
        detections[:] = smooth_l1(be, mask * (boxes - wanted_boxes))
        return np.array([column_mean(buffer, calcrange)[0] for buffer in (outputs, detections)])

    @staticmethod
    def _pair(name: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ArgumentTypeError(
                f"ObjectDetection: {name} must be a pair; y is (labels, boxes), t is (labels, (boxes, mask)); "
                f"got {brief(value)}"
            )
        return value


class MultiMetric(Metric):
    """Apply a metric to one of several outputs and the matching target.

    A target that is not a list, but has the output's shape, is used for every output. Other attributes are those of the
    wrapped metric.

    Parameters
    ----------
    metric : Metric
        The metric to apply.
    index : int
        Place of the output, and of its target.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Misclassification, MultiMetric
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.9, 0.2], [0.1, 0.8]]), be.array([[1.0, 1.0], [0.0, 0.0]])
    >>> MultiMetric(Misclassification(), 1)([None, y], [None, t])
    0.5
    """

    def __init__(self, metric: Metric, index: int) -> None:
        super().__init__()
        self.metric, self.index = metric, index
        self.metric_names = metric.metric_names

    @property
    def accumulates(self) -> bool:
        """Whether the wrapped metric accumulates."""
        return bool(getattr(self.metric, "accumulates", False))

    def __call__(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> Any:
        """Value of the metric on ``y[index]`` and ``t[index]``."""
        return self.metric(*self._chosen(y, t), calcrange=calcrange)

    def counts(self, y: Any, t: Any, calcrange: slice = EVERYTHING) -> np.ndarray:
        """Counts of the metric on ``y[index]`` and ``t[index]``.

        Parameters
        ----------
        y, t : list of Tensor
            Outputs and targets, ``(classes, N)`` each.
        calcrange : slice
            Columns that count; all by default.
        """
        return self.metric.counts(*self._chosen(y, t), calcrange=calcrange)

    def of_counts(self, counts: np.ndarray) -> Any:
        """Value of the metric for summed counts.

        Parameters
        ----------
        counts : ndarray
            Sum of :meth:`counts` over batches.
        """
        return self.metric.of_counts(counts)

    def _chosen(self, y: Any, t: Any) -> tuple[Any, Any]:
        outputs = y[self.index]
        return outputs, t if getattr(t, "shape", None) == outputs.shape else t[self.index]

    def __getattr__(self, name: str) -> Any:
        if name == "metric":  # not yet set: while unpickling
            raise AttributeError(name)
        return getattr(self.metric, name)
