"""Overlap of gradient messages with the backward pass: the ranks exchange gradients as soon as they are computed."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import TYPE_CHECKING, Any

from neonlike.kernels.run.depends import Dependent, Depends
from neonlike.layers.container import Sequential
from neonlike.optimizers.base import Optimizer, get_param_list
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optimizers.shards import Shard

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer
    from neonlike.models.protocol import TrainedModel

__all__ = ["Handover"]


class Handover(Dependent):
    """Hands the gradients of a layer over to the messages of the optimizers that update it, once they are computed.

    Only those of parameters that ranks share: there is a message for each, of the optimizer's last step. The others are
    few bytes, and are summed before the step.

    Parameters
    ----------
    chain : Sequential
        The network.
    optimizers : list of Optimizer
        The optimizers that update its layers.
    """

    def __init__(self, chain: Sequential, optimizers: list[Any]) -> None:
        self._chain, self._optimizers = chain, optimizers
        self._known: list[Mapping[int, Shard]] = []
        self._of_layer: dict[int, list[Shard]] = {}

    @classmethod
    def of(cls, model: TrainedModel) -> Handover | None:
        """The handover of a model's training; None if gradients are not to be sent before the step."""
        optimizer, chain = model.optimizer, model.layers
        several = optimizer.optimizer_mapping.values() if type(optimizer) is MultiOptimizer else [optimizer]
        fits = all(isinstance(one, Optimizer) and type(one).optimize is Optimizer.optimize for one in several)
        return cls(chain, list(several)) if model.be.overlap_gradients and fits and type(chain) is Sequential else None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a model has none

    def depends_on(self) -> Depends:
        """A repeated pass depends on which messages there are."""
        return Depends(opened=frozenset())

    def __call__(self, layer: Layer) -> None:
        """Begin to send the gradients that are complete now that this layer's are computed."""
        for shard in self._of_layer.get(id(layer), ()):
            shard.begin()

    def follow(self) -> None:
        """Use the messages of the optimizers' last step from now on."""
        present = [one.shards for one in self._optimizers]
        if len(present) == len(self._known) and all(map(is_, present, self._known)):
            return
        self._known, last = present, {}
        for layer in reversed(self._chain.layers):  # as the backward pass goes
            owner = getattr(layer, "folded_into", None) or layer  # which may compute them
            for (_, grad), _ in get_param_list(_trained(layer)):
                last[id(grad)] = owner  # of tied weights, the first in the network
        self._of_layer = {}
        for key, owner in last.items():
            for shards in present:
                if key in shards:
                    self._of_layer.setdefault(id(owner), []).append(shards[key])


def _trained(layer: Layer) -> list[Any]:
    """The layers with parameters in a layer of a chain."""
    if hasattr(layer, "layers_to_optimize"):
        return list(layer.layers_to_optimize)
    return [layer] if layer.has_params else []
