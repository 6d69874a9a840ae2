"""Losses scaled up, so that derivatives in float16 do not underflow.

Source: Micikevicius et al., "Mixed precision training" (2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neonlike.autograd.ops.elementwise import mul
from neonlike.autograd.variable import Variable
from neonlike.checks import brief, number
from neonlike.errors import ArgumentError
from neonlike.optree.functions import F as Functions

F: Any = Functions


class LossScaler:
    """Scales losses, and their derivatives back; the scale follows what float16 can hold.

    Parameters
    ----------
    scale : float
        To begin with.
    interval : int
        Steps without overflow after which it is doubled; 0: never. It is halved after each with one.

    Raises
    ------
    ArgumentError
        If ``scale`` is not above 0, or ``interval`` below 0.

    Examples
    --------
    >>> from neonlike.autograd import param
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> w, scaler = param([[2.0]]), LossScaler(1024)
    >>> scaler.backprop(w * w)
    >>> scaler.unscale([w]), w.partial_derivative.item()
    (True, 4.0)
    """

    def __init__(self, scale: float = 2.0**15, interval: int = 2000) -> None:
        self.scale = number("LossScaler", "scale", scale)
        if not self.scale > 0 or interval < 0:
            raise ArgumentError(
                f"LossScaler: scale must be above 0 and interval not below, got {brief(scale)} and {brief(interval)}"
            )
        self.interval = interval
        self.good_steps = 0

    def backprop(self, loss: Variable, keep_graph: bool = False) -> None:
        """``backprop`` of ``loss`` times the scale.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[2.0]])
        >>> autograd.LossScaler(8.0).backprop(w * w)
        >>> w.partial_derivative.item()
        32.0
        """
        mul(loss, self.scale).backprop(keep_graph)

    def unscale(self, parameters: Iterable[Variable]) -> bool:
        """Divide the derivatives of ``parameters`` by the scale, and adapt that for the next step.

        Returns
        -------
        bool
            False where one is infinite or nan: derivatives are forgotten then, and the step is to be left out.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w, scaler = autograd.param([[2.0]]), autograd.LossScaler(8.0)
        >>> scaler.backprop(w * w)
        >>> scaler.unscale([w]), w.partial_derivative.item()
        (True, 4.0)
        """
        listed = list(parameters)
        gradients = [parameter.partial_derivative for parameter in listed]
        if not gradients:
            return True
        be = gradients[0].backend
        if sum((F.sum(1 - F.finite(g)) for g in gradients[1:]), F.sum(1 - F.finite(gradients[0]))).item():
            for parameter in listed:
                parameter.zero_grad()
            self.scale, self.good_steps = self.scale / 2, 0
            return False
        be.assign_many([(g, g * (1 / self.scale)) for g in gradients])
        self.good_steps += 1
        if self.interval and self.good_steps >= self.interval:
            self.scale, self.good_steps = self.scale * 2, 0
        return True
