"""Adaptive optimizers: per-parameter step sizes from running statistics of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentError
from neonlike.optimizers.base import Group, Optimizer, mantissa_bits, require_averages, require_rate
from neonlike.optimizers.schedules import CONSTANT_RATE, require_schedule
from neonlike.optimizers.states import by_counts
from neonlike.optimizers.step import Parameter
from neonlike.optree import dialect

if TYPE_CHECKING:
    from neonlike.optimizers.schedules import LearningRates

__public_module__ = "neonlike.optimizers.optimizer"


class RMSProp(Optimizer):
    """RMSProp: a ← d·a + (1 − d)·g²;  p ← p − lr·g / (sqrt(a + ε) + ε).

    Source: Tieleman & Hinton, lecture 6.5 of "Neural networks for machine learning" (2012).

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    decay_rate : float
        The weight d of what was before, in [0, 1).
    learning_rate : float
        Base rate, which the schedule adjusts.
    epsilon : float
        The summand ε, which keeps from dividing by 0.
    gradient_clip_norm, gradient_clip_value, param_clip_value : float, optional
        Bounds on the norm of all gradients, on each gradient element, and on each parameter; None: no bound.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    schedule : Schedule
        Learning-rate schedule; constant by default.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import RMSProp
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> RMSProp(learning_rate=0.01, decay_rate=0.0).optimize([w], epoch=0)
    >>> print(w.get().round(3))  # 2 − 0.01
    [[1.99]]
    """

    number_of_states = 1
    hyperparameters = ("decay_rate", "epsilon")
    by_elements = True

    def __init__(
        self,
        stochastic_round: bool | int = False,
        decay_rate: float = 0.95,
        learning_rate: float = 2e-3,
        epsilon: float = 1e-6,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        param_clip_value: float | None = None,
        name: str | None = None,
        schedule: LearningRates = CONSTANT_RATE,
    ) -> None:
        super().__init__(name=name)
        require_averages(self.classnm, decay_rate=decay_rate)
        self.stochastic_round, self.decay_rate = mantissa_bits(self.classnm, stochastic_round), decay_rate
        self.learning_rate, self.epsilon = require_rate(self.classnm, learning_rate), epsilon
        self.gradient_clip_norm, self.gradient_clip_value = gradient_clip_norm, gradient_clip_value
        self.param_clip_value = param_clip_value
        self.schedule: LearningRates = require_schedule(schedule, self.classnm)

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        return (scale * self._rate(epoch),)

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        (rate,) = numbers
        be, d, eps = self.be, self.decay_rate, self.epsilon
        clipped = self._mean_gradient(grad)
        mean_square = d * states[0] + (1.0 - d) * be.square(clipped)
        move = rate * clipped / (be.sqrt(mean_square + eps) + eps)
        return [(states[0], mean_square), (param, self.clip_value(param - move, self.param_clip_value))]


class Adagrad(Optimizer):
    """Adagrad: a ← a + g²;  p ← p − lr·g / sqrt(a + ε).

    Source: Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization" (2011).

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    learning_rate : float
        Factor lr of the steps.
    epsilon : float
        The summand ε, which keeps from dividing by 0.
    gradient_clip_norm, gradient_clip_value, param_clip_value : float, optional
        Bounds on the norm of all gradients, on each gradient element, and on each parameter; None: no bound.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import Adagrad
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> Adagrad(learning_rate=0.01).optimize([w], epoch=0)
    >>> print(w.get().round(3))  # 2 − 0.01
    [[1.99]]
    """

    number_of_states = 1
    hyperparameters = ("epsilon",)
    by_elements = True

    def __init__(
        self,
        stochastic_round: bool | int = False,
        learning_rate: float = 0.01,
        epsilon: float = 1e-6,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        param_clip_value: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.stochastic_round = mantissa_bits(self.classnm, stochastic_round)
        self.learning_rate, self.epsilon = require_rate(self.classnm, learning_rate), epsilon
        self.gradient_clip_norm, self.gradient_clip_value = gradient_clip_norm, gradient_clip_value
        self.param_clip_value = param_clip_value

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        return (scale * self._rate(epoch),)

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        (rate,) = numbers
        be = self.be
        clipped = self._mean_gradient(grad)
        total = states[0] + be.square(clipped)
        move = rate * clipped / be.sqrt(total + self.epsilon)
        return [(states[0], total), (param, self.clip_value(param - move, self.param_clip_value))]


class Adadelta(Optimizer):
    """Adadelta: steps in the units of the parameter, without a learning rate.

    States E[g²], E[Δ²], Δ:  s0 ← d·s0 + (1 − d)·g²;  Δ = sqrt((s1 + ε) / (s0 + ε))·g;  s1 ← d·s1 + (1 − d)·Δ²;
    p ← p − Δ.

    Source: Zeiler, "ADADELTA: an adaptive learning rate method" (2012).

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    decay : float
        The weight d of what was before, in [0, 1).
    epsilon : float
        The summand ε, by which the first steps are made.
    param_clip_value : float, optional
        Bound on each parameter; None: no bound.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import Adadelta
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> Adadelta(decay=0.75, epsilon=0.01).optimize([w], epoch=0)  # g = 2: sqrt(0.01 / 1.01) · 2
    >>> print(w.get().round(3))
    [[1.801]]
    """

    number_of_states = 3
    hyperparameters = ("decay", "epsilon")
    by_elements = True

    def __init__(
        self,
        stochastic_round: bool | int = False,
        decay: float = 0.95,
        epsilon: float = 1e-6,
        param_clip_value: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.stochastic_round = mantissa_bits(self.classnm, stochastic_round)
        require_averages(self.classnm, decay=decay)
        self.decay, self.epsilon = decay, epsilon
        self.param_clip_value = param_clip_value

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        return ()

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        be, d, eps = self.be, self.decay, self.epsilon
        gradient = self._mean_gradient(grad)
        mean_square = d * states[0] + (1.0 - d) * be.square(gradient)
        move = be.sqrt((states[1] + eps) / (mean_square + eps)) * gradient
        mean_move = d * states[1] + (1.0 - d) * be.square(move)
        return [
            (states[0], mean_square),
            (states[2], move),
            (states[1], mean_move),
            (param, self.clip_value(param - move, self.param_clip_value)),
        ]


class Adam(Optimizer):
    """Adaptive moments: m and v average g and g²;  p ← p − l·m / (sqrt(v) + ε), l = lr·sqrt(1 − β2ᵗ) / (1 − β1ᵗ).

    Steps t count from each parameter's first step; they are saved with the states of its layer. In neon's dialect one
    number counts all calls of ``optimize``.

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    learning_rate : float
        Factor lr of the steps.
    beta_1, beta_2 : float
        Weights β1, β2 of what was before, in [0, 1), in the averages of g and g².
    epsilon : float
        The summand ε, which keeps from dividing by 0.
    gradient_clip_norm, gradient_clip_value, param_clip_value : float, optional
        Bounds on the norm of all gradients, on each gradient element, and on each parameter; None: no bound.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    t : int
        Number of steps of the most recently updated parameters. Setting it sets the steps of the parameters updated
        next.

    References
    ----------
    Kingma & Ba, "Adam: a method for stochastic optimization" (2014).

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import Adam
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> adam = Adam(learning_rate=0.01)
    >>> adam.optimize([w], epoch=0)
    >>> print(w.get().round(3), adam.t)  # the first step is as long as the rate
    [[1.99]] 1
    """

    number_of_states = 2
    hyperparameters: ClassVar[tuple[str, ...]] = ("beta_1", "beta_2", "epsilon")
    advancing = frozenset(("t", "t_left"))
    by_elements = True

    def __init__(
        self,
        stochastic_round: bool | int = False,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        param_clip_value: float | None = None,
        name: str | None = "adam",
    ) -> None:
        super().__init__(name=name)
        self.stochastic_round = mantissa_bits(self.classnm, stochastic_round)
        self.learning_rate, self.epsilon = require_rate(self.classnm, learning_rate), epsilon
        require_averages(self.classnm, beta_1=beta_1, beta_2=beta_2)
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.gradient_clip_norm, self.gradient_clip_value = gradient_clip_norm, gradient_clip_value
        self.param_clip_value = param_clip_value
        self.t = self.t_left = 0

    def progress(self) -> dict[str, Any]:
        """The number of steps, for a saved model."""
        return {"t": self.t}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore the saved number of steps."""
        steps = saved.get("t", self.t)
        if not isinstance(steps, int | np.integer) or steps < 0:
            raise ArgumentError(f"{self.classnm}: t={brief(steps)} is no number of steps that were made")
        self.t = self.t_left = int(steps)

    def _find(self, layer_list: Iterable[Any]) -> Group:
        found = super()._find(layer_list)
        found.parts = self._by_counts(found)
        return found

    def _by_counts(self, group: Group) -> list[Group]:
        """Split the parameters of ``group`` by their number of steps."""
        parts = []
        for count, entries in by_counts(group, self.t).items():
            parts.append(part := Group(entries))
            part.count = count
        return parts

    def _advance_parts(self, group: Group, scale: float, epoch: int, known: bool) -> None:
        parts = group.parts or []
        for part in parts:
            if part.count.parameters != len(part):  # some were updated without the others
                group.parts = parts = self._by_counts(group)
                break
        calls = self.t
        if calls != self.t_left:  # set by a user
            for part in parts:
                part.count.steps = calls
        for part in parts:
            count = part.count
            self.t = calls if dialect.is_neon() else count.steps
            numbers = self._numbers(scale, epoch)
            count.steps += 1
            if known and part.step is not None:
                part.step(numbers)
            else:
                self._apply(part, numbers)
        self.t_left = self.t

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        self.t += 1
        rate = self._rate(epoch) * math.sqrt(1.0 - self.beta_2**self.t) / (1.0 - self.beta_1**self.t)
        return (scale * rate,)

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        (rate,) = numbers
        be, b1, b2 = self.be, self.beta_1, self.beta_2
        clipped = self._mean_gradient(grad)
        first = b1 * states[0] + (1.0 - b1) * clipped
        second = b2 * states[1] + (1.0 - b2) * be.square(clipped)
        move = rate * first / (be.sqrt(second) + self.epsilon)
        return [
            (states[0], first),
            (states[1], second),
            (param, self.clip_value(param - move, self.param_clip_value)),
        ]


class AdamW(Adam):
    """Adam with decoupled weight decay:  p ← p − lr·(m̂ / (sqrt(v̂) + ε) + wdecay·p).

    m̂ = m / (1 − β1ᵗ) and v̂ = v / (1 − β2ᵗ) are the corrected averages. They do not scale the decay, as they would if
    it were part of the gradient. Norm clipping scales the gradient before averaging. To exclude biases and
    normalization from the decay, give them another optimizer (:class:`MultiOptimizer`).

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    learning_rate : float
        Base rate, which the schedule adjusts.
    beta_1, beta_2, epsilon
        As of :class:`Adam`.
    wdecay : float
        Weight decay, as a fraction of the parameter at a learning rate of 1.
    gradient_clip_norm, gradient_clip_value, param_clip_value : float, optional
        Bounds on the norm of all gradients, on each gradient element, and on each parameter; None: no bound.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    schedule : Schedule
        Learning-rate schedule.

    Attributes
    ----------
    t : int
        Number of steps of the most recently updated parameters.

    References
    ----------
    Loshchilov & Hutter, "Decoupled weight decay regularization" (2017), algorithm 2.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import AdamW
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> AdamW(learning_rate=0.01, wdecay=0.5).optimize([w], epoch=0)
    >>> print(w.get().round(3))  # 2 − 0.01 · (1 + 0.5 · 2)
    [[1.98]]
    """

    hyperparameters = ("beta_1", "beta_2", "epsilon", "wdecay")
    by_elements = True

    def __init__(
        self,
        stochastic_round: bool | int = False,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        wdecay: float = 0.01,
        gradient_clip_norm: float | None = None,
        gradient_clip_value: float | None = None,
        param_clip_value: float | None = None,
        name: str | None = "adamw",
        schedule: LearningRates = CONSTANT_RATE,
    ) -> None:
        super().__init__(
            stochastic_round, learning_rate, beta_1, beta_2, epsilon,
            gradient_clip_norm, gradient_clip_value, param_clip_value, name,
        )  # fmt: skip
        self.wdecay = wdecay
        self.schedule: LearningRates = require_schedule(schedule, self.classnm)

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        self.t += 1
        rate = self._rate(epoch)
        first, second = 1.0 - self.beta_1**self.t, 1.0 - self.beta_2**self.t
        return rate / first, 1.0 / math.sqrt(second), 1.0 - rate * self.wdecay, scale

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        be, b1, b2 = self.be, self.beta_1, self.beta_2
        rate, correction, kept, scale = numbers
        gradient = self._mean_gradient(grad)
        if self.gradient_clip_norm:
            gradient = scale * gradient
        first = b1 * states[0] + (1.0 - b1) * gradient
        second = b2 * states[1] + (1.0 - b2) * be.square(gradient)
        moved = kept * param - rate * first / (correction * be.sqrt(second) + self.epsilon)
        return [(states[0], first), (states[1], second), (param, self.clip_value(moved, self.param_clip_value))]


class ShiftAdaMax(Optimizer):
    """AdaMax with multiplications replaced by shifts, for binarized networks; parameters are kept in [−1, 1].

    m averages g;  ``v ← max(β2·v, |g|)``;  p ← p − shift(shift(m, 1/(v + ε)), l), l = lr / (1 − β1^(epoch+1)).

    Source: Courbariaux et al., "Binarized neural networks" (2016), algorithm 4.

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits for stochastic rounding of the parameters; 0 and False round to nearest. GPU only.
    learning_rate : float
        Base rate, which the schedule adjusts.
    beta_1, beta_2 : float
        Weights β1, β2 of what was before, in [0, 1).
    epsilon : float
        The summand ε, which keeps from dividing by 0.
    schedule : Schedule
        Learning-rate schedule; constant by default.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import ShiftAdaMax
    >>> be = gen_backend("cpu", batch_size=2)
    >>> w = ag.param([[0.5]])
    >>> (w * 2.0).sum().backprop()
    >>> ShiftAdaMax(learning_rate=0.25, beta_1=0.5).optimize([w], epoch=0)
    >>> w.item() < 0.5
    True
    """

    number_of_states = 3

    def __init__(
        self,
        stochastic_round: bool | int = False,
        learning_rate: float = 0.002,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        schedule: LearningRates = CONSTANT_RATE,
        name: str | None = "ShiftAdaMax",
    ) -> None:
        super().__init__(name=name)
        self.stochastic_round = mantissa_bits(self.classnm, stochastic_round)
        self.learning_rate, self.epsilon = require_rate(self.classnm, learning_rate), epsilon
        require_averages(self.classnm, beta_1=beta_1, beta_2=beta_2)
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.schedule: LearningRates = require_schedule(schedule, self.classnm)

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        return (self._rate(epoch) / (1.0 - self.beta_1 ** (epoch + 1)),)

    def _apply(self, param_list: Sequence[Parameter], numbers: tuple[float, ...]) -> None:
        """Update the parameters; shifts are executed immediately, so there is nothing to prepare."""
        for (param, grad), states in param_list:
            param.rounding = self.stochastic_round
            self.be.assign_many(self._assignments(param, grad, states, *numbers))

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        be, (rate,) = self.be, numbers
        gradient = self._mean_gradient(grad)
        first = self.beta_1 * states[0] + (1.0 - self.beta_1) * gradient
        largest = be.maximum(self.beta_2 * states[1], be.absolute(gradient))
        be.assign_many([(states[0], first), (states[1], largest), (states[2], 1.0 / (largest + self.epsilon))])
        move = be.shift(be.shift(states[0], states[2]), rate)
        return [(param, be.clip(param - move, -1.0, 1.0))]
