"""The weighted sum of several costs, for networks with several outputs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from neonlike.errors import ArgumentError, DTypeError
from neonlike.nervanaobject import NervanaObject

__public_module__ = "neonlike.layers.container"


class Multicost(NervanaObject):
    """Weighted sum of costs, one for each output of the network.

    Parameters
    ----------
    costs : list of GeneralizedCost
        One cost per output, in order.
    weights : list of float, optional
        Factors, 1 by default; 0 switches a branch off.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If there are no costs, or other numbers of costs and weights.
    DTypeError
        If a cost is no cost layer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import GeneralizedCost, Multicost
    >>> from neonlike.transforms import CrossEntropyMulti
    >>> be = gen_backend("cpu", batch_size=2)
    >>> costs = [GeneralizedCost(CrossEntropyMulti()) for _ in range(2)]
    >>> Multicost(costs, weights=[1, 0.3]).weights
    [1, 0.3]
    """

    def __init__(self, costs: Sequence[Any], weights: Sequence[float] | None = None, name: str | None = None) -> None:
        super().__init__(name)
        if not len(costs):
            raise ArgumentError("Multicost: the list of costs is empty")
        if any(not hasattr(cost, "get_cost") for cost in costs):
            raise DTypeError("Multicost: costs must be cost layers, e.g. GeneralizedCost(CrossEntropyMulti())")
        if weights is not None and len(weights) != len(costs):
            raise ArgumentError(f"Multicost: {len(costs)} costs but {len(weights)} weights; give one each")
        self.costs = list(costs)
        self.weights = [1.0] * len(costs) if weights is None else list(weights)
        self.deltas: Any = None

    def initialize(self, in_obj: Any) -> None:
        """Allocate the buffers of all costs.

        Parameters
        ----------
        in_obj : Layer or list of Layer
            The container, or its terminal layers.
        """
        terminals = in_obj if isinstance(in_obj, list) else in_obj.get_terminal()
        terminals = terminals if isinstance(terminals, list) else [terminals] * len(self.costs)
        if len(terminals) != len(self.costs):
            raise ArgumentError(
                f"Multicost: {len(self.costs)} costs for {len(terminals)} outputs of the network; give one each"
            )
        for cost, terminal in zip(self.costs, terminals, strict=True):
            cost.initialize(terminal)

    def count_samples(self, samples: int | None) -> None:
        """As :meth:`GeneralizedCost.count_samples`, for all costs.

        Parameters
        ----------
        samples : int, optional
            Number of samples that count.
        """
        for cost in self.costs:
            if hasattr(cost, "count_samples"):
                cost.count_samples(samples)

    @property
    def outputs(self) -> Any:
        """Cost per column of the first cost."""
        return self.costs[0].outputs

    @property
    def costfunc(self) -> Any:
        """Cost function of the first cost."""
        return self.costs[0].costfunc

    @property
    def cost(self) -> Any:
        """Last value of the first cost."""
        return self.costs[0].cost

    def get_cost(self, inputs: Any, targets: Any) -> Any:
        """Σ weight · cost over the outputs with a target, ``(1, 1)``.

        Inputs that are not a list are the first output alone; a target that is not a sequence is used for all.

        Parameters
        ----------
        inputs : list of Tensor
            Outputs of the network.
        targets : list of Tensor
            Target of each output; None leaves it out.
        """
        if not isinstance(inputs, list | tuple):
            return self.costs[0].get_cost(inputs, targets)
        total: Any = 0
        for cost, weight, y, t in self._branches(inputs, targets):
            if t is not None:
                total = total + weight * cost.get_cost(y, t)
        return total

    def get_errors(self, inputs: Any, targets: Any) -> list[Any]:
        """Gradients of the costs, scaled by their weights, in the order of the outputs; 0 without a target.

        Parameters
        ----------
        inputs : list of Tensor
            Outputs of the network.
        targets : list of Tensor
            Target of each output; None leaves it out.
        """
        if not isinstance(inputs, list | tuple):
            raise ArgumentError(
                f"{self.name}.get_errors: the network has one output, and each of the {len(self.costs)} costs needs "
                "its own; use a GeneralizedCost alone"
            )
        errors = []
        for cost, weight, y, t in self._branches(inputs, targets):
            error = cost.deltas.fill(0) if t is None else cost.get_errors(y, t)
            if weight != 1:
                error[:] = error * weight
            errors.append(error)
        self.deltas = errors
        return errors

    def __call__(self, inputs: Sequence[Any], targets: Any) -> Any:
        """Σ weight · cost of the outputs of a tree called on variables, each summed over its columns."""
        given = [(cost, weight, y, t) for cost, weight, y, t in self._branches(inputs, targets) if t is not None]
        if not given:
            raise ArgumentError(f"{self.name}: no output has a target; give one at least")
        return functools.reduce(operator.add, [weight * cost(y, t) for cost, weight, y, t in given])

    def _branches(self, inputs: Sequence[Any], targets: Any) -> Iterable[tuple[Any, float, Any, Any]]:
        """Cost, weight, output and target of each branch."""
        targets = targets if isinstance(targets, list | tuple) else [targets] * len(self.costs)
        if not len(self.costs) == len(inputs) == len(targets):
            raise ArgumentError(
                f"{self.name}: {len(self.costs)} costs for {len(inputs)} outputs and {len(targets)} targets; "
                "give one each, None where there is no target"
            )
        return zip(self.costs, self.weights, inputs, targets, strict=True)
