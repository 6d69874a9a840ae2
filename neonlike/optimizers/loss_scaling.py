"""Loss scaling for 16-bit networks: errors are multiplied by a factor, and gradients divided when they are read.

It keeps small errors of float16 from becoming 0. After an overflow, parameters stay unchanged: a flag on the device
decides, so that the host never waits. P. Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.autograd.parameters import store_gradients
from neonlike.checks import brief, number
from neonlike.distributed.gradients import RankSum
from neonlike.errors import ArgumentError, DTypeError
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.base import Optimizer, get_param_list, keep
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optimizers.step import Parameter

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

__public_module__ = "neonlike.optimizers.optimizer"

LEAST, MOST = 2.0**-24, 2.0**24
"""Bounds of an adjusted scale; a training recovers from them within its steps."""


class LossScaling(Optimizer):
    """Wraps an optimizer to update parameters from the gradients of a scaled loss.

    A step with non-finite gradients changes only the scale: parameters and states stay. The wrapped optimizer always
    sees the gradients of the unscaled loss, in its compute dtype: float32 for tensors of 16 bits. ``model.fit`` scales
    errors automatically; a custom loop calls :meth:`scale_errors`:
    ``model.bprop(optimizer.scale_errors(cost.get_errors(y, t)))``. Until the optimizer runs, gradients in layers are
    those of the scaled loss. Generative adversarial networks are not supported.

    Parameters
    ----------
    optimizer : Optimizer
        Any but ``ShiftAdaMax``, also a :class:`MultiOptimizer`: the step is skipped for all its layers. Adam and AdamW
        count skipped steps, too.
    scale : float
        Initial factor of the loss, from 2**-24 to 2**24. Powers of two cause no rounding.
    interval : int, optional
        Number of consecutive steps without overflow after which the scale is doubled; an overflow halves it. None:
        the scale stays constant.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError, DTypeError
        If an argument is invalid.

    Examples
    --------
    >>> from neonlike.optimizers import GradientDescentMomentum, LossScaling
    >>> LossScaling(GradientDescentMomentum(0.1, 0.9), interval=None).scale
    32768.0
    """

    scales_errors = True

    def __init__(
        self, optimizer: Optimizer, scale: float = 2.0**15, interval: int | None = 2000, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        for one in optimizer.optimizer_mapping.values() if isinstance(optimizer, MultiOptimizer) else (optimizer,):
            _require_masked(one)
        scale = number("LossScaling", "scale", scale)
        if not LEAST <= scale <= MOST:
            raise ArgumentError(f"LossScaling: scale must be from 2**-24 to 2**24, got {scale}")
        if interval is not None and (not isinstance(interval, int | np.integer) or interval < 1):
            raise ArgumentError(f"LossScaling: interval must be None or a number of steps, got {brief(interval)}")
        self.optimizer, self.scale, self.interval = optimizer, scale, interval
        self._saved = (scale, 0.0, 0.0)
        self._held: Scale | None = None
        self._sums: dict[Any, RankSum] = {}
        self._is_scaled = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_saved": self._values(), "_held": None, "_sums": {}}

    @property
    def current_scale(self) -> float:
        """Loss factor of the next step. Reading it waits for the device."""
        return self._values()[0]

    @property
    def skipped_steps(self) -> int:
        """Number of steps skipped because of overflow. Reading it waits for the device."""
        return int(self._values()[2])

    def _values(self) -> tuple[float, float, float]:
        return self._saved if self._held is None else self._held.values()

    def _present(self) -> Scale:
        """The scale on the current backend."""
        be = self.require_backend("scale_errors")
        if self._held is None or self._held.be is not be:
            self._held = Scale(be, self._values(), self.interval)
        return self._held

    def scale_errors(self, errors: Any) -> Any:
        """Multiply the ``errors`` of a cost, a tensor or a list, by the scale in place.

        Parameters
        ----------
        errors : Tensor, or list of Tensor
            Gradient of a cost by the outputs.
        """
        scale = self._present()
        for error in errors if isinstance(errors, list | tuple) else (errors,):
            error[:] = error * scale.factor
        self._is_scaled = True
        return errors

    def optimize(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Update the parameters of the layers in place with the wrapped optimizer, unless a gradient is not finite.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        epoch : int
            Number of the epoch, from 0.

        Raises
        ------
        ArgumentError
            If errors were not scaled since the last step.
        """
        if not self._is_scaled:
            raise ArgumentError(
                f"{self.name}.optimize: the gradients are not of a scaled loss; propagate "
                "optimizer.scale_errors(cost.get_errors(y, t)), as model.fit does (models of the class GAN do not)"
            )
        scale, parameters = self._present(), get_param_list(layer_list)
        if self.be.ranks.size > 1:
            self._sum_over_ranks([grad for (_, grad), _ in parameters])
            store_gradients(layer_list)
        scale.check(parameters)
        self.optimizer.use_scale(scale)
        try:
            self.optimizer.optimize(layer_list, epoch)
        finally:
            self.optimizer.use_scale(None)
        scale.advance()
        self._is_scaled = False

    def _sum_over_ranks(self, gradients: list[Any]) -> None:
        """Sum gradients over the ranks, so that all find the same overflows."""
        be = self.be
        key = be, be.gradient_compression, tuple(map(id, gradients))
        if key not in self._sums:
            keep(self._sums, key, RankSum(be.ranks, gradients, compression=be.gradient_compression))
        self._sums[key]()

    def progress(self) -> dict[str, Any]:
        """The scale, steps since its last change, skipped steps, and the wrapped optimizer's progress."""
        scale, good, skipped = self._values()
        inner = self.optimizer.progress()
        return {"scale": scale, "good": good, "skipped": skipped, **({"optimizer": inner} if inner else {})}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore saved progress."""
        names = ("scale", "good", "skipped")
        given = [float(saved.get(name, old)) for name, old in zip(names, self._values(), strict=True)]
        self._saved, self._held = (given[0], given[1], given[2]), None
        if isinstance(inner := saved.get("optimizer"), dict):
            self.optimizer.set_progress(inner)


class Scale:
    """A scale on a backend, in float32 tensors (1, 1), with a flag for finite gradients.

    Parameters
    ----------
    be : Backend
        The backend of the tensors.
    values : (float, float, float)
        The scale, steps without overflow since its last change, skipped steps.
    interval : int or None
        As in :class:`LossScaling`.

    Attributes
    ----------
    factor, inverse : Tensor
        The scale of this step, and 1 / scale.
    finite : Tensor
        1 if all gradients are finite, else 0.
    """

    def __init__(self, be: Backend, values: tuple[float, float, float], interval: int | None) -> None:
        self.be = be
        made = [be.array([[value]], dtype=np.float32) for value in (values[0], 1 / values[0], 1.0, *values[1:])]
        self.factor, self.inverse, self.finite, self.good, self.skipped = made
        self._checks: dict[Any, Any] = {}
        self._advance = be.prepare(self._next(interval))

    def _next(self, interval: int | None) -> list[tuple[Any, Any]]:
        """Assignments executed after a step."""
        be, counted = self.be, [(self.skipped, self.skipped + 1 - self.finite)]
        if interval is None:
            return counted
        good = self.finite * (self.good + 1)
        grown = be.where(good >= interval, be.minimum(2 * self.factor, MOST), self.factor)
        factor = be.where(self.finite, grown, be.maximum(0.5 * self.factor, LEAST))
        fresh = be.where(good >= interval, 0 * good, good)
        return [*counted, (self.good, fresh), (self.factor, factor), (self.inverse, 1 / factor)]

    def check(self, param_list: Sequence[Parameter]) -> None:
        """Check whether all gradients are finite."""
        be, gradients = self.be, [grad for (_, grad), _ in param_list]
        key = (be.engine, be.num_threads, *map(id, gradients))
        if key not in self._checks:
            bad: Any = 0 * self.factor
            for grad in gradients:
                bad = bad + be.sum(1 - be.isfinite(grad))
            keep(self._checks, key, (be.prepare(self.finite, bad == 0), gradients))
        self._checks[key][0]()

    def advance(self) -> None:
        """Adjust the scale after a step."""
        self._advance()

    def unscaled(self, grad: Any) -> Any:
        """Expression of the unscaled gradient."""
        return grad * self.inverse

    def masked(self, updates: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Assignments that keep their targets unchanged if a gradient is not finite."""
        return [(target, self.be.where(self.finite, value, target)) for target, value in updates]

    def values(self) -> tuple[float, float, float]:
        """Read the scale's constructor values."""
        scale, good, skipped = (float(tensor.get()[0, 0]) for tensor in (self.factor, self.good, self.skipped))
        return scale, good, skipped


def scaled_errors(optimizer: Optimizer, errors: Any) -> Any:
    """Scale the ``errors`` of a cost if ``optimizer`` uses loss scaling."""
    return optimizer.scale_errors(errors) if isinstance(optimizer, Optimizer) else errors


def _require_masked(optimizer: Optimizer) -> None:
    """Raise unless ``optimizer`` updates parameters by a step that can be skipped."""
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(f"LossScaling: optimizer is a {type(optimizer).__name__}; expected an optimizer")
    if isinstance(optimizer, GradientAccumulation):
        raise ArgumentError(
            "LossScaling: a GradientAccumulation goes around it: GradientAccumulation(LossScaling(...), minibatches)"
        )
    own = type(optimizer)
    if own.optimize is not Optimizer.optimize or own._apply is not Optimizer._apply:
        raise ArgumentError(
            f"LossScaling: a {own.__name__} updates parameters in its own way, which cannot be skipped without "
            "waiting; give an optimizer that defines _numbers and _updates, such as GradientDescentMomentum or Adam"
        )
