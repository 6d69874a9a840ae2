"""Running statistics of batch normalization, which each rank of a distributed training has of its own samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonlike.distributed.gradients import RankSum
from neonlike.layers.core.base import Layer
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.base import get_param_list
from neonlike.optimizers.shards import gather_states

if TYPE_CHECKING:
    from neonlike.models.protocol import TrainedModel

__all__ = ["average_statistics", "complete"]


def average_statistics(model: TrainedModel) -> None:
    """Replace the running statistics of ``model`` by their means over all ranks, which all have to call this.

    One message has those of all layers. A process alone has nothing to do.
    """
    ranks = model.be.ranks
    if ranks.size == 1 or model.layers is None:
        return
    layers = [layer for layer in model.layers.layers_fprop() if isinstance(layer, Layer)]
    found = [tensor for layer in layers for tensor in layer.inf_params if tensor is not None]
    if found:
        RankSum(ranks, found, mean=True)()


def complete(model: TrainedModel) -> None:
    """Let each rank have the running statistics and optimizer states of all, before they are saved."""
    average_statistics(model)
    if isinstance(model.optimizer, GradientAccumulation):
        model.optimizer.sum_over_ranks()
    if model.be.ranks.size > 1 and model.layers is not None:
        gather_states(model.be.ranks, get_param_list(model.layers_to_optimize))
