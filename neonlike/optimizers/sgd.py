"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.errors import ArgumentError
from neonlike.optimizers.base import Optimizer, mantissa_bits, require_rate
from neonlike.optimizers.schedules import CONSTANT_RATE, require_schedule

if TYPE_CHECKING:
    from neonlike.optimizers.schedules import LearningRates

__public_module__ = "neonlike.optimizers.optimizer"


class GradientDescentMomentum(Optimizer):
    """Gradient descent with momentum, weight decay and clipping.

    With g the mean gradient (clipped) and G = g + wdecay · p:  v ← m·v − lr·G, then p ← p + v, or with ``nesterov``
    p ← p + m·v − lr·G. Without momentum there is no velocity: p ← p − lr·G.

    Parameters
    ----------
    learning_rate : float
        Base rate, adjusted by the schedule.
    momentum_coef : float
        Momentum m; 0 gives plain gradient descent without state.
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 rounds to nearest. GPU only.
    wdecay : float
        Weight decay (L2).
    gradient_clip_norm, gradient_clip_value, param_clip_value : float, optional
        Bounds on the norm of all gradients, on each gradient element, and on each parameter.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    schedule : Schedule
        Learning-rate schedule.
    nesterov : bool
        Nesterov's accelerated gradient (needs momentum).

    Raises
    ------
    ArgumentError
        If the rate is negative or not finite, or ``nesterov`` has no momentum.

    References
    ----------
    Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013).

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()  # gradients are divided by the batch size, 2
    >>> GradientDescentMomentum(learning_rate=0.25, momentum_coef=0.0).optimize([w], epoch=0)
    >>> w.tolist()
    [[1.5]]
    """

    hyperparameters = ("momentum_coef", "wdecay", "nesterov")
    by_elements = True

    def __init__(
        self,
        learning_rate: float,
        momentum_coef: float,
        stochastic_round: bool | int = False,
        wdecay: float = 0.0,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        param_clip_value: float | None = None,
        name: str | None = None,
        schedule: LearningRates = CONSTANT_RATE,
        nesterov: bool = False,
    ) -> None:
        super().__init__(name=name)
        if momentum_coef == 0.0 and nesterov:
            raise ArgumentError(
                "GradientDescentMomentum: nesterov=True with momentum_coef=0; give a momentum or leave nesterov off"
            )
        self.learning_rate = require_rate(self.classnm, learning_rate)
        self.momentum_coef = momentum_coef
        self.stochastic_round, self.wdecay = mantissa_bits(self.classnm, stochastic_round), wdecay
        self.gradient_clip_norm, self.gradient_clip_value = gradient_clip_norm, gradient_clip_value
        self.param_clip_value = param_clip_value
        self.schedule: LearningRates = require_schedule(schedule, self.classnm)
        self.nesterov = nesterov

    @property
    def number_of_states(self) -> int:  # type: ignore[override]
        """One velocity, or none without momentum."""
        return 1 if self.momentum_coef else 0

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        rate = self._rate(epoch)
        return (rate, scale) if self.gradient_clip_norm else (rate,)

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        lr, *scale = numbers
        gradient = self._mean_gradient(grad)
        if scale:
            gradient = scale[0] * gradient
        if self.wdecay:
            gradient = gradient + self.wdecay * param
        if not self.momentum_coef:
            return [(param, self.clip_value(param - lr * gradient, self.param_clip_value))]
        velocity = self.momentum_coef * states[0] - lr * gradient
        move = self.momentum_coef * velocity - lr * gradient if self.nesterov else velocity
        return [(states[0], velocity), (param, self.clip_value(param + move, self.param_clip_value))]
