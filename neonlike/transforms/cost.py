"""Cost functions: ``cost(y, t)`` per column, and ``cost.bprop(y, t)``, its derivative with respect to the outputs y.

Both are sums, not divided by the batch size; optimizers divide the gradients once.
Metrics are importable from here too, as in neon.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.checks import brief
from neonlike.errors import ArgumentError
from neonlike.transforms.activation import Logistic, PixelwiseSoftmax, Softmax
from neonlike.transforms.bleu import BLEUScore
from neonlike.transforms.metric import (
    Accuracy,
    LogLoss,
    Misclassification,
    MultiMetric,
    ObjectDetection,
    PrecisionRecall,
    TopKMisclassification,
)
from neonlike.transforms.transform import Cost, Metric, Transform, smooth_l1, smooth_l1_of_each

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

__all__ = [
    "Accuracy",
    "BLEUScore",
    "Cost",
    "CrossEntropyBinary",
    "CrossEntropyMulti",
    "GANCost",
    "LogLoss",
    "MeanAbsolute",
    "MeanSquared",
    "Metric",
    "Misclassification",
    "MultiMetric",
    "ObjectDetection",
    "PrecisionRecall",
    "SmoothL1Loss",
    "SquareHingeLoss",
    "SumSquared",
    "TopKMisclassification",
]


LEAST = math.exp(-50)
"""Outputs below this have a floored logarithm, so that costs do not depend on them."""


def _inverse(be: Backend, y: Any) -> Any:
    """Derivative of the floored logarithm: 1 / y, and 0 in the floored range."""
    above = be.greater(y, LEAST)
    return above / be.where(above, y, 1)


class CrossEntropyBinary(Cost):
    """−Σ [t log y + (1 − t) log(1 − y)] of each column; logarithms are floored at −50.

    Parameters
    ----------
    scale : float
        Factor of the gradient.

    Notes
    -----
    ``bprop`` is scale · (y − t), which includes the derivative of a logistic output: the gradient behind
    ``Logistic(shortcut=True)``. Networks with any other last activation are trained by :meth:`slope`.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import CrossEntropyBinary
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5, 0.25]]), be.array([[1.0, 0.0]])
    >>> cost = CrossEntropyBinary()
    >>> print(cost(y, t).get().round(3))  # −log 0.5, −log 0.75
    [[0.693 0.288]]
    >>> cost.bprop(y, t).tolist()
    [[-0.5, 0.25]]
    """

    by_outputs = True

    def __init__(self, scale: float = 1) -> None:
        super().__init__()
        self.scale = scale

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        be = self.be
        return -be.sum(t * be.safelog(y) + (1 - t) * be.safelog(1 - y), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression scale · (y − t)."""
        self._check_shapes(y, t)
        return y - t if self.scale == 1 else self.scale * (y - t)

    def slope(self, y: Any, t: Any) -> Any:
        """Expression scale · ((1 − t) / (1 − y) − t / y), the derivative by y alone; 0 where logarithms are floored."""
        self._check_shapes(y, t)
        slope = (1 - t) * _inverse(self.be, 1 - y) - t * _inverse(self.be, y)
        return slope if self.scale == 1 else self.scale * slope

    def fits(self, activation: Transform) -> bool:
        """Whether ``activation`` is logistic."""
        return isinstance(activation, Logistic)

    def slope_before(self, activation: Transform, y: Any, t: Any, mask: Any = None) -> Any:
        """As for every cost; for a logistic output, scale · (y − t).

        Parameters
        ----------
        activation : Transform
            The last activation of the network.
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        mask : Tensor, optional
            Mask of 0 and 1, of a shape that broadcasts to theirs.
        """
        if not self.fits(activation):
            return super().slope_before(activation, y, t, mask)
        return self.bprop(y, t) if mask is None else self.bprop(y, t) * mask


class CrossEntropyMulti(Cost):
    """−Σ t log y of each column; logarithms are floored at −50.

    Parameters
    ----------
    scale : float
        Factor of the gradient.
    usebits : bool
        Measure in bits (log2) instead of nats.
    label_smoothing : float
        a in [0, 1): targets become (1 − a) · t + a / classes, which limits the network's confidence.

    Raises
    ------
    ArgumentError
        If ``label_smoothing`` is not in [0, 1).

    Notes
    -----
    ``bprop`` is scale · (y − t), which includes the derivative of a preceding softmax, for targets with columns that
    sum to one. Training uses the gradient of the cost for any targets and any last activation: scale · (y Σ t − t) for
    a softmax, :meth:`slope` for others.

    References
    ----------
    Szegedy et al., "Rethinking the Inception architecture for computer vision" (2015), section 7: label smoothing.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import CrossEntropyMulti
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5, 0.25], [0.5, 0.75]]), be.array([[1.0, 0.0], [0.0, 1.0]])
    >>> cost = CrossEntropyMulti(usebits=True)
    >>> print(cost(y, t).get().round(3))  # −log2 0.5, −log2 0.75
    [[1.    0.415]]
    """

    by_outputs = True

    def __init__(self, scale: float = 1, usebits: bool = False, label_smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ArgumentError(f"CrossEntropyMulti: label_smoothing={brief(label_smoothing)}; expected one in [0, 1)")
        self.scale, self.usebits, self.label_smoothing = scale, usebits, label_smoothing

    @property
    def logscale(self) -> float:
        """Factor of the logarithm: 1 / ln 2 for bits, else 1."""
        return 1.0 / math.log(2.0) if self.usebits else 1.0

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``.

        Raises
        ------
        ShapeError
            If the shapes of ``y`` and ``t`` differ.
        """
        self._check_shapes(y, t)
        t = self._smoothed(t)
        return -self.logscale * self.be.sum(t * self.be.safelog(y), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression L · scale · (y − t), L = 1 / ln 2 in bits, else 1."""
        self._check_shapes(y, t)
        t = self._smoothed(t)
        return self._scaled(y - t)

    def slope(self, y: Any, t: Any) -> Any:
        """Expression −L · scale · t / y, the derivative by y alone; 0 where the logarithm is floored."""
        self._check_shapes(y, t)
        return self._scaled(-self._smoothed(t) * _inverse(self.be, y))

    def fits(self, activation: Transform) -> bool:
        """Whether ``activation`` is a softmax."""
        return isinstance(activation, Softmax | PixelwiseSoftmax)

    def slope_before(self, activation: Transform, y: Any, t: Any, mask: Any = None) -> Any:
        """As for every cost; for a softmax, L · scale · (y Σ t − t).

        Parameters
        ----------
        activation : Transform
            The last activation of the network.
        y, t : Tensor or expression
            Outputs and targets, ``(classes, columns)``.
        mask : Tensor, optional
            Mask of 0 and 1, of a shape that broadcasts to theirs.
        """
        if not isinstance(activation, Softmax | PixelwiseSoftmax):
            return super().slope_before(activation, y, t, mask)
        self._check_shapes(y, t)
        t = self._smoothed(t)
        return self._scaled(activation.cross_entropy_slope(y, t if mask is None else t * mask))

    def _scaled(self, slope: Any) -> Any:
        factor = self.logscale * self.scale
        return slope if factor == 1 else factor * slope

    def _smoothed(self, t: Any) -> Any:
        a = self.label_smoothing
        return (1 - a) * t + a / t.shape[0] if a else t


class ByOutputs(Cost):
    """Base of costs with ``bprop`` equal to the gradient by the outputs; ``func`` and ``funcgrad`` are neon's names."""

    by_outputs = True

    def func(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        return self(y, t)

    def funcgrad(self, y: Any, t: Any) -> Any:
        """Expression of its gradient by ``y``."""
        return self.bprop(y, t)


class SumSquared(ByOutputs):
    """½ Σ (y − t)² of each column.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[1.0], [3.0]]), be.zeros((2, 1))
    >>> SumSquared()(y, t).tolist(), SumSquared().bprop(y, t).tolist()
    ([[5.0]], [[1.0], [3.0]])
    """

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        return 0.5 * self.be.sum(self.be.square(y - t), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression y − t."""
        self._check_shapes(y, t)
        return y - t


class MeanSquared(ByOutputs):
    """½ mean (y − t)² over the rows of each column.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import MeanSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[1.0], [3.0]]), be.zeros((2, 1))
    >>> MeanSquared()(y, t).tolist(), MeanSquared().bprop(y, t).tolist()
    ([[2.5]], [[0.5], [1.5]])
    """

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        return 0.5 * self.be.mean(self.be.square(y - t), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression (y − t) / rows."""
        self._check_shapes(y, t)
        return (y - t) / y.shape[0]


class MeanAbsolute(Cost):
    """mean ``|y − t|`` over the rows of each column.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import MeanAbsolute
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[1.0], [-3.0]]), be.zeros((2, 1))
    >>> MeanAbsolute()(y, t).tolist(), MeanAbsolute().bprop(y, t).tolist()
    ([[2.0]], [[0.5], [-0.5]])
    """

    by_outputs = True

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        return self.be.mean(self.be.absolute(y - t), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression sign(y − t) / rows."""
        self._check_shapes(y, t)
        return self.be.sgn(y - t) / y.shape[0]


class SmoothL1Loss(ByOutputs):
    """Σ of ``½ x² σ²`` where ``|x| < 1/σ²``, else ``|x| − ½/σ²``, with x = y − t.

    Source: Girshick, "Fast R-CNN" (2015), equation 3.

    Parameters
    ----------
    sigma : float
        σ: up to a difference of 1/σ², the cost is quadratic.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import SmoothL1Loss
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5, 3.0]]), be.zeros((1, 2))
    >>> SmoothL1Loss()(y, t).tolist(), SmoothL1Loss().bprop(y, t).tolist()
    ([[0.125, 2.5]], [[0.5, 1.0]])
    """

    def __init__(self, sigma: float = 1.0) -> None:
        super().__init__()
        self.sigma = sigma

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        return smooth_l1(self.be, y - t, self.sigma**2)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression x σ² where ``|x| < 1/σ²``, else the sign of x."""
        self._check_shapes(y, t)
        return self.smoothL1grad(y - t)

    def smoothL1(self, x: Any) -> Any:  # noqa: N802  neon's name
        """Expression of the loss of differences ``x``, element by element.

        Parameters
        ----------
        x : Tensor or expression
            Differences of outputs and targets.
        """
        return smooth_l1_of_each(self.be, x, self.sigma**2)

    def smoothL1grad(self, x: Any) -> Any:  # noqa: N802  neon's name
        """Expression of its derivative by ``x``.

        Parameters
        ----------
        x : Tensor or expression
            Differences of outputs and targets.
        """
        return self.be.clip(x * self.sigma**2, -1, 1)


class SquareHingeLoss(ByOutputs):
    """mean max(margin − (2t − 1) y, 0)² over the rows, for targets 0 or 1.

    Parameters
    ----------
    margin : float
        Output from which a target 1 costs nothing; with the other sign for 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import SquareHingeLoss
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t = be.array([[0.5, 0.5, 2.0]]), be.array([[1.0, 0.0, 1.0]])
    >>> SquareHingeLoss()(y, t).tolist()
    [[0.25, 2.25, 0.0]]
    """

    def __init__(self, margin: float = 1) -> None:
        super().__init__()
        self.margin = margin

    def _slack(self, y: Any, t: Any) -> tuple[Any, Any]:
        sign = 2 * t - 1
        return sign, self.be.maximum(self.margin - sign * y, 0)

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost, shape ``(1, N)``."""
        self._check_shapes(y, t)
        return self.squarehinge(y, t)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression −2 (2t − 1) max(…) / rows."""
        self._check_shapes(y, t)
        return self.squarehingegrad(y, t)

    def squarehinge(self, y: Any, t: Any) -> Any:
        """Expression of the cost, for any operands that broadcast.

        Parameters
        ----------
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        """
        return self.be.mean(self.be.square(self._slack(y, t)[1]), axis=0)

    def squarehingegrad(self, y: Any, t: Any) -> Any:
        """Expression of its gradient by ``y``.

        Parameters
        ----------
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        """
        sign, slack = self._slack(y, t)
        return sign * slack * (-2.0 / y.shape[0])


class GANCost(Cost):
    """Costs of a generative adversarial network, from the discriminator's outputs for data and for noise.

    Parameters
    ----------
    scale : float
        Factor of the gradients.
    cost_type : str
        ``"dis"`` or ``"gen"``: the player that the cost belongs to.
    func : str
        ``"original"``, ``"modified"`` (Goodfellow et al., 2014) or ``"wasserstein"`` (Arjovsky et al., 2017).

    Raises
    ------
    ArgumentError
        If ``cost_type`` or ``func`` is none of these.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import GANCost
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data, noise = be.array([[0.5]]), be.array([[0.5]])
    >>> cost = GANCost(func="modified")
    >>> print(cost(data, noise, cost_type="dis").get().round(3))  # −log 0.5 − log(1 − 0.5)
    [[1.386]]
    """

    by_outputs = True
    FUNCS = ("original", "modified", "wasserstein")
    COST_TYPES = ("dis", "dis_data", "dis_noise", "gen")

    def __init__(self, scale: float = 1.0, cost_type: str = "dis", func: str = "modified") -> None:
        super().__init__()
        if func not in self.FUNCS:
            raise ArgumentError(f"GANCost: func={brief(func)} is not one of {', '.join(self.FUNCS)}")
        if cost_type not in ("dis", "gen"):
            raise ArgumentError(f"GANCost: cost_type={brief(cost_type)} is not one of dis, gen")
        self.scale, self.cost_type, self.func = scale, cost_type, func

    def __call__(self, y_data: Any, y_noise: Any, cost_type: str = "dis") -> Any:
        """Expression of a cost, shape ``(1, N)``, mean over the rows.

        Parameters
        ----------
        cost_type : str
            ``"dis"``, its parts ``"dis_data"`` and ``"dis_noise"``, or ``"gen"``.
        """
        if cost_type not in self.COST_TYPES:
            raise ArgumentError(f"GANCost: cost_type={brief(cost_type)} is not one of {', '.join(self.COST_TYPES)}")
        if cost_type == "dis_data":
            rows = self._of_data(y_data)
        elif cost_type == "dis_noise":
            rows = self._of_noise(y_noise)
        elif cost_type == "dis":
            rows = self._of_data(y_data) + self._of_noise(y_noise)
        else:
            rows = self._of_generator(y_noise)
        return self.be.mean(rows, axis=0)

    def _of_data(self, y: Any) -> Any:
        return y if self.func == "wasserstein" else -self.be.safelog(y)

    def _of_noise(self, y: Any) -> Any:
        return -y if self.func == "wasserstein" else -self.be.safelog(1 - y)

    def _of_generator(self, y: Any) -> Any:
        if self.func == "wasserstein":
            return y
        return self.be.safelog(1 - y) if self.func == "original" else -self.be.safelog(y)

    def bprop_data(self, y_data: Any) -> Any:
        """Gradient of the discriminator's cost with respect to its outputs for data.

        Parameters
        ----------
        y_data : Tensor
            Outputs of the discriminator for data, ``(features, N)``.
        """
        return self.scale if self.func == "wasserstein" else -self.scale / y_data

    def bprop_noise(self, y_noise: Any) -> Any:
        """Gradient of the discriminator's cost with respect to its outputs for noise.

        Parameters
        ----------
        y_noise : Tensor
            Outputs of the discriminator for generated samples, ``(features, N)``.
        """
        return -self.scale if self.func == "wasserstein" else self.scale / (1 - y_noise)

    def bprop_generator(self, y_noise: Any) -> Any:
        """Gradient of the generator's cost with respect to the discriminator's outputs for noise.

        Parameters
        ----------
        y_noise : Tensor
            Outputs of the discriminator for generated samples, ``(features, N)``.
        """
        if self.func == "wasserstein":
            return self.scale
        return self.scale / (y_noise - 1) if self.func == "original" else -self.scale / y_noise
