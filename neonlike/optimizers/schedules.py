"""Learning-rate schedules: the rate of an epoch, from the optimizer's base rate.

All depend on the epoch alone, so that a resumed training continues with the right rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from neonlike.checks import brief, number
from neonlike.errors import ArgumentError, DTypeError
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject

__public_module__ = "neonlike.optimizers.optimizer"


def _plain(value: Any) -> Any:
    """Convert a NumPy number or list to Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.integer) else value


def _check_numbers(what: str, **given: Any) -> None:
    for name, values in given.items():
        for value in values if isinstance(values, list | tuple) else () if values is None else (values,):
            number(what, name, value)


class LearningRates(Protocol):
    """The learning rate of each epoch. The schedules of this module implement it, and other classes may."""

    def get_learning_rate(self, learning_rate: float, epoch: int, /) -> float:
        """Rate in ``epoch``, counted from 0.

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch.
        """
        ...


class Schedule(NervanaObject):
    """Constant rate, or a rate multiplied by ``change`` at given epochs.

    Parameters
    ----------
    step_config : None, int or list of int
        None: constant rate. An int k: a change every k epochs. A list: changes at these epochs.
    change : float or list of float
        Factor; with two lists of equal length, absolute rates from those epochs on (see StepSchedule).

    Raises
    ------
    ArgumentError
        If the lists have other lengths, or a number of epochs is not above 0.

    Examples
    --------
    >>> from neonlike.optimizers import Schedule
    >>> schedule = Schedule([10, 20], change=0.5)
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 10, 20)]
    [0.25, 0.125, 0.0625]
    """

    def __init__(self, step_config: int | Sequence[int] | None = None, change: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        step_config, change = _plain(step_config), _plain(change)
        if isinstance(step_config, list | tuple) and isinstance(change, list | tuple):
            _check_equal_length(self.classnm, step_config, change)
            logger.warning("Schedule with two lists is deprecated: use StepSchedule")
        elif isinstance(change, list | tuple):
            raise ArgumentError("Schedule: a list of changes needs a list of as many epochs as step_config")
        elif isinstance(step_config, int):
            if step_config < 1:
                raise ArgumentError(f"Schedule: step_config={step_config}; expected a number of epochs above 0")
            logger.warning("Schedule with an integer step_config is deprecated: use PowerSchedule")
        _check_numbers(self.classnm, step_config=step_config, change=change)
        self.step_config, self.change = step_config, change

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0) for the base rate ``learning_rate``.

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        if self.step_config is None:
            return learning_rate
        if isinstance(self.step_config, int):
            return learning_rate * self.change ** (epoch // self.step_config)  # type: ignore[operator]
        if isinstance(self.change, list | tuple):
            rate = _step_rate(self.step_config, self.change, epoch)
            return learning_rate if rate is None else rate
        return learning_rate * self.change ** sum(step <= epoch for step in self.step_config)  # type: ignore[operator]


class StepSchedule(Schedule):
    """Absolute rates from given epochs on; the base rate before the first.

    Parameters
    ----------
    step_config : list of int
        Increasing epochs.
    change : list of float
        The rate from each of these epochs on.

    Attributes
    ----------
    steps : float
        The last returned rate, 0 before the first step.

    Raises
    ------
    ArgumentError
        If these are no lists of one length.

    Examples
    --------
    >>> from neonlike.optimizers import StepSchedule
    >>> schedule = StepSchedule([10, 20], [0.1, 0.01])
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 10, 20)]
    [0.25, 0.1, 0.01]
    """

    def __init__(self, step_config: Sequence[int], change: Sequence[float]) -> None:
        NervanaObject.__init__(self)
        step_config, change = _plain(step_config), _plain(change)
        if not isinstance(step_config, list | tuple) or not isinstance(change, list | tuple):
            raise ArgumentError(
                f"StepSchedule: step_config={brief(step_config)}, change={brief(change)}; needs lists of equal length"
            )
        _check_equal_length(self.classnm, step_config, change)
        _check_numbers(self.classnm, step_config=step_config, change=change)
        self.step_config, self.change = step_config, change
        self.steps: float = 0

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        rate = _step_rate(self.step_config, self.change, epoch)  # type: ignore[arg-type]
        self.steps = rate or 0
        return learning_rate if rate is None else rate


class PowerSchedule(NervanaObject):
    """Power schedule lr · change^floor(epoch / step_config).

    Parameters
    ----------
    step_config : int
        Epochs from change to change.
    change : float
        Factor of the rate at each.

    Raises
    ------
    ArgumentError
        If ``step_config`` is no number of epochs, or ``change`` is a list.

    Examples
    --------
    >>> from neonlike.optimizers import PowerSchedule
    >>> schedule = PowerSchedule(step_config=10, change=0.5)
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 9, 10, 20)]
    [0.25, 0.25, 0.125, 0.0625]
    """

    def __init__(self, step_config: int, change: float) -> None:
        super().__init__()
        step_config, change = _plain(step_config), _plain(change)
        if not isinstance(step_config, int) or step_config < 1:
            raise ArgumentError(f"PowerSchedule: step_config={brief(step_config)}; expected a number of epochs above 0")
        if isinstance(change, list | tuple):
            raise ArgumentError(f"PowerSchedule: change={brief(change)}; expected one factor, not a list")
        self.step_config, self.change = step_config, change

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        return float(learning_rate * self.change ** (epoch // self.step_config))


class ExpSchedule(NervanaObject):
    """Hyperbolic schedule lr / (1 + decay · epoch).

    Parameters
    ----------
    decay : float
        The larger, the faster the rate falls; it is half the base rate at epoch 1 / decay.

    Examples
    --------
    >>> from neonlike.optimizers import ExpSchedule
    >>> schedule = ExpSchedule(decay=0.5)
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 2, 6)]
    [0.25, 0.125, 0.0625]
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        return learning_rate / (1.0 + self.decay * epoch)


class PolySchedule(NervanaObject):
    """Polynomial schedule lr · (1 − epoch / total_epochs)^power; 0 from ``total_epochs`` on.

    Parameters
    ----------
    total_epochs : int
        Epoch from which on the rate is 0.
    power : float
        Exponent; 1 is a straight line.

    Raises
    ------
    ArgumentError
        If ``total_epochs`` is not positive.

    Examples
    --------
    >>> from neonlike.optimizers import PolySchedule
    >>> schedule = PolySchedule(total_epochs=10, power=1)
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 5, 10)]
    [0.25, 0.125, 0.0]
    """

    def __init__(self, total_epochs: int, power: float) -> None:
        super().__init__()
        if total_epochs <= 0:
            raise ArgumentError(f"PolySchedule: total_epochs={brief(total_epochs)}; expected a positive number")
        self.total_epochs, self.power = total_epochs, power

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        return float(learning_rate * max(0.0, 1.0 - epoch / self.total_epochs) ** self.power)


class ShiftSchedule(NervanaObject):
    """Shift schedule lr · 2^(−shift_size · floor(epoch / interval)): factors are powers of two.

    Parameters
    ----------
    interval : int
        Epochs from shift to shift.
    shift_size : int
        Binary places of each shift; 1 halves the rate.

    Raises
    ------
    ArgumentError
        If ``interval`` is not positive.

    Examples
    --------
    >>> from neonlike.optimizers import ShiftSchedule
    >>> schedule = ShiftSchedule(interval=10)
    >>> [schedule.get_learning_rate(0.25, epoch) for epoch in (0, 10, 20)]
    [0.25, 0.125, 0.0625]
    """

    def __init__(self, interval: int, shift_size: int = 1) -> None:
        super().__init__()
        if interval <= 0:
            raise ArgumentError(f"ShiftSchedule: interval={brief(interval)}; expected a positive number of epochs")
        self.interval, self.shift_size = interval, shift_size

    def get_learning_rate(self, learning_rate: float, epoch: int) -> float:
        """Rate in ``epoch`` (counted from 0).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : int
            Number of the epoch, from 0.
        """
        return float(learning_rate * 2.0 ** (-self.shift_size * int(epoch / self.interval)))


class CosineSchedule(NervanaObject):
    """Half a cosine down from the base rate: floor + (lr − floor) · (1 + cos(π · epoch / total_epochs)) / 2.

    From ``total_epochs`` on the rate is ``floor``.

    Parameters
    ----------
    total_epochs : int
        Duration of the descent.
    floor : float
        The final rate.

    Raises
    ------
    ArgumentError
        If ``total_epochs`` is not positive.

    References
    ----------
    Loshchilov & Hutter, "SGDR: stochastic gradient descent with warm restarts" (2016), equation 5.

    Examples
    --------
    >>> from neonlike.optimizers import CosineSchedule
    >>> schedule = CosineSchedule(total_epochs=10)
    >>> [round(schedule.get_learning_rate(0.25, epoch), 3) for epoch in (0, 5, 10)]
    [0.25, 0.125, 0.0]
    """

    def __init__(self, total_epochs: int, floor: float = 0.0) -> None:
        super().__init__()
        if total_epochs <= 0:
            raise ArgumentError(f"CosineSchedule: total_epochs={brief(total_epochs)}; expected a positive number")
        self.total_epochs, self.floor = total_epochs, floor

    def get_learning_rate(self, learning_rate: float, epoch: float) -> float:
        """Rate in ``epoch`` (counted from 0; fractions are moments within an epoch).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : float
            Number of the epoch, from 0.
        """
        descent = min(epoch / self.total_epochs, 1.0)
        return self.floor + (learning_rate - self.floor) * 0.5 * (1.0 + math.cos(math.pi * descent))


class WarmupSchedule(NervanaObject):
    """Linear warm-up over the first epochs, followed by another schedule that starts there.

    Epoch e has the rate lr · (e + 1) / (warmup_epochs + 1): the first epoch after the warm-up is the first with the
    full rate.

    Parameters
    ----------
    warmup_epochs : int
        Number of warm-up epochs.
    schedule : Schedule, optional
        The following schedule; its epoch 0 is the first after the warm-up. The base rate by default.

    Raises
    ------
    ArgumentError
        If ``warmup_epochs`` is not positive.

    References
    ----------
    Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour" (2017), section 2.2.

    Examples
    --------
    >>> from neonlike.optimizers import CosineSchedule, WarmupSchedule
    >>> schedule = WarmupSchedule(warmup_epochs=3, schedule=CosineSchedule(total_epochs=10))
    >>> [schedule.get_learning_rate(0.5, epoch) for epoch in (0, 1, 2, 3)]
    [0.125, 0.25, 0.375, 0.5]
    """

    def __init__(self, warmup_epochs: int, schedule: LearningRates | None = None) -> None:
        super().__init__()
        if warmup_epochs <= 0:
            raise ArgumentError(f"WarmupSchedule: warmup_epochs={brief(warmup_epochs)}; expected a positive number")
        self.warmup_epochs = warmup_epochs
        self.schedule: Any = None if schedule is None else require_schedule(schedule, self.classnm)

    def get_learning_rate(self, learning_rate: float, epoch: float) -> float:
        """Rate in ``epoch`` (counted from 0; fractions are moments within an epoch).

        Parameters
        ----------
        learning_rate : float
            The base rate.
        epoch : float
            Number of the epoch, from 0.
        """
        if epoch < self.warmup_epochs:
            return float(learning_rate * (epoch + 1) / (self.warmup_epochs + 1))
        if self.schedule is None:
            return learning_rate
        return float(self.schedule.get_learning_rate(learning_rate, epoch - self.warmup_epochs))


CONSTANT_RATE = Schedule()
"""The default schedule, shared because it has no state."""


def require_schedule(schedule: Any, where: str) -> Any:
    """Return ``schedule``, or raise if it has no rates.

    Parameters
    ----------
    schedule : object
        The argument.
    where : str
        Subject of the message.

    Raises
    ------
    DTypeError
        If it is no schedule object.
    """
    if isinstance(schedule, type) or not hasattr(schedule, "get_learning_rate"):
        raise DTypeError(
            f"{where}: schedule={schedule!r} is not a schedule object; construct one, e.g. Schedule([10, 20], 0.1)"
        )
    return schedule


def _check_equal_length(what: str, step_config: Sequence[Any], change: Sequence[Any]) -> None:
    if len(step_config) != len(change):
        raise ArgumentError(
            f"{what}: {len(step_config)} epochs in step_config but {len(change)} rates in change; "
            "give one rate an epoch"
        )


def _step_rate(steps: Sequence[int], rates: Sequence[float], epoch: int) -> float | None:
    """The latest rate at or before ``epoch``; None before the first."""
    reached = [(step, rate) for step, rate in zip(steps, rates, strict=True) if step <= epoch]
    return max(reached, key=lambda pair: pair[0])[1] if reached else None
