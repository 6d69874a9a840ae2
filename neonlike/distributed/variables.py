"""Training of variables (:mod:`neonlike.autograd`) by several ranks, in a program's own loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from neonlike.checks import require_method, shown
from neonlike.distributed.agreement import agree
from neonlike.distributed.gradients import RankSum
from neonlike.errors import ArgumentError


class TrainedVariable(Protocol):
    """A parameter of a program. :class:`neonlike.autograd.Variable` implements it."""

    @property
    def value(self) -> Any:
        """Its tensor, which an optimizer updates."""
        ...

    @property
    def partial_derivative(self) -> Any:
        """Tensor of its derivative, in the shape of ``value``; None before a backward pass."""
        ...


def average_gradients(parameters: Sequence[TrainedVariable]) -> None:
    """Replace the derivatives of ``parameters`` by their means over all ranks, in place.

    Call it on every rank after ``backprop`` and before the parameters are updated. A process alone changes nothing.

    Parameters
    ----------
    parameters : sequence of Variable
        The same parameters in the same order on all ranks, each with a ``partial_derivative``.

    Raises
    ------
    ArgumentError
        If a parameter has no derivative.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike import distributed
    >>> weight = autograd.param([[2.0]])
    >>> (weight * 3).backprop()
    >>> distributed.average_gradients([weight])
    >>> weight.partial_derivative.item()
    3.0
    """
    parameters = list(parameters)
    for place, parameter in enumerate(parameters):
        require_method("average_gradients", "each parameter", parameter, "zero_grad", "ag.param(values)")
        if parameter.partial_derivative is None:
            raise ArgumentError(
                f"average_gradients: parameter {place}, {shown(parameter)}, has no derivative on this rank; call "
                "loss.backprop() of a loss that depends on it, or leave it out on all ranks"
            )
    if not parameters:
        return
    be = parameters[0].partial_derivative.backend
    if be.ranks.size > 1:
        derivatives = [parameter.partial_derivative for parameter in parameters]
        RankSum(be.ranks, derivatives, mean=True, compression=be.gradient_compression)()


class Synchronised:
    """Parameters that all ranks train together: ``with`` it, derivatives are averaged at the end of each block.

    All ranks start from the values of rank 0, which are sent when this is made.

    Parameters
    ----------
    parameters : sequence of Variable
        The same on all ranks, in one order.

    Raises
    ------
    RankError
        On all ranks, if their parameters differ in number, shape or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike import autograd as ag, distributed
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> weight = ag.param(np.ones((2, 1)))
    >>> together = distributed.Synchronised([weight])
    >>> with together:
    ...     (weight * weight).sum().backprop()
    >>> weight.partial_derivative.tolist(), together.mean(3.0)
    ([[2.0], [2.0]], 3.0)
    """

    def __init__(self, parameters: Sequence[TrainedVariable]) -> None:
        self.parameters = list(parameters)
        if not self.parameters:
            raise ArgumentError("Synchronised: there are no parameters; give those that are trained")
        backend = self.parameters[0].value.backend
        self._ranks = backend.ranks
        kinds = [(tuple(one.value.shape), one.value.dtype.name) for one in self.parameters]
        agree(self._ranks, "Synchronised", {"number of parameters": len(kinds), "list of shapes and dtypes": kinds})
        for one in self.parameters if self._ranks.size > 1 else ():
            backend.broadcast(one.value)

    def __enter__(self) -> Synchronised:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            average_gradients(self.parameters)

    def mean(self, number: float) -> float:
        """The mean of a number, such as a loss, over all ranks.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike import distributed
        >>> distributed.Synchronised([autograd.param([[2.0]])]).mean(1.5)
        1.5
        """
        found = np.array([number], np.float64)
        self._ranks.reduce(found, "mean")
        return float(found[0])
