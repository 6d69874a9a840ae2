"""Training of one model by several ranks: they start from the same, take the same steps, and stop together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.distributed.agreement import agree
from neonlike.distributed.gradients import RankSum
from neonlike.layers.core.multicost import Multicost
from neonlike.models.overlap import Handover
from neonlike.models.progress import data_id
from neonlike.models.statistics import complete
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.base import Optimizer, get_param_list
from neonlike.optimizers.loss_scaling import LossScaling
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optimizers.shards import can_be_shared

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.data.protocol import DataIterator
    from neonlike.layers.core.base import Layer
    from neonlike.models.protocol import TrainedModel
    from neonlike.util.interrupts import InterruptGuard

SUMMING = (Optimizer, MultiOptimizer, LossScaling, GradientAccumulation)
"""Classes whose ``optimize`` sums gradients over the ranks; that of a user's own takes what it is given."""
ADDRESS = re.compile(" at 0x[0-9a-f]+")


class Together:
    """The ranks that train ``model``, from the start of ``fit`` to its end.

    Parameters
    ----------
    model : Model
        The model in training.
    interrupts : InterruptGuard
        Interrupts of one rank are those of all.
    """

    def __init__(self, model: TrainedModel, interrupts: InterruptGuard) -> None:
        self._model, self._interrupts, self._ranks = model, interrupts, model.be.ranks
        self._mean: tuple[Any, RankSum] | None = None
        self._averages = not _sums(model.optimizer)
        self._handover = Handover.of(model)
        interrupts.shared, interrupts.agreed = True, False

    @classmethod
    def of(cls, model: TrainedModel, interrupts: InterruptGuard) -> Together | None:
        """The ranks that train ``model``; None if this process is alone."""
        return cls(model, interrupts) if model.be.ranks.size > 1 else None

    def check(self, dataset: DataIterator, num_epochs: int) -> None:
        """Raise RankError on all ranks unless they are about to train the same model on the same data."""
        model, be = self._model, self._model.be
        agree(self._ranks, f"{model.name}.fit", {
            "model": str(model),
            "parameters": [(p.shape, p.dtype.name) for (p, _), _ in get_param_list(model.layers_to_optimize)],
            "cost": _text(model.cost),
            "optimizer": _text(model.optimizer),
            "number of epochs": num_epochs,
            "epochs done": model.epoch_index,
            "end of the training before": model.ended_early,
            "number of samples": dataset.ndata,
            "number of batches": int(dataset.nbatches),
            "data": data_id(dataset),
            "batch size": be.bsz,
            "backend": be.backend_name,
            "gradient compression": be.gradient_compression,
            "overlap of gradients": be.overlap_gradients,
            "state of be.rng (a seed, or draws that not all ranks make)": _state(be),
        })  # fmt: skip

    def start(self) -> None:
        """Give all ranks the weights, running statistics and optimizer states of rank 0."""
        be = self._model.be
        if self._model.ended_early:
            complete(self._model)
        self._model.ended_early = True
        for layer in self._model.layers.layers_fprop():
            for tensor in _tensors_of(layer):
                be.broadcast(tensor)

    def trained(self, train: Callable[..., Any], *given: Any) -> Any:
        """The cost, over all ranks, of a minibatch that ``train(*given)`` trains."""
        handover = self._handover
        if handover is None:
            return self.agreed(train(*given))
        chain: Any = self._model.layers
        chain.handover = handover  # not for a backward pass of a callback
        try:
            cost = train(*given)
        finally:
            chain.handover = None
        handover.follow()
        return self.agreed(cost)

    def agreed(self, cost: Any) -> Any:
        """The ``cost`` of a minibatch, (1, 1), and those of branches become their means over all ranks; returns it.

        All ranks learn whether one was interrupted, or is to stop.
        """
        model, branches = self._model, [cost]
        if isinstance(model.cost, Multicost):
            branches += [one.cost for one in model.cost.costs]
        numbers = np.array([self._interrupts.pending, model.finished, *(one.item() for one in branches)], np.float64)
        self._ranks.reduce(numbers)
        self._interrupts.agreed, model.finished = bool(numbers[0]), bool(numbers[1])
        for branch, total in zip(branches, numbers[2:]):
            branch[...] = total / self._ranks.size
        return cost

    def settle(self) -> None:
        """Stop all ranks if a callback of one has stopped it, or it was interrupted."""
        self.agreed(self._model.total_cost.copy())

    def require_all(self) -> None:
        """Wait until all ranks are interrupted, since they save together; a rank that is alone is found to wait."""
        if not self._interrupts.agreed:
            self._ranks.tell(None, "interrupt of a training")

    def end(self) -> None:
        """Let each rank have the running statistics and optimizer states of all."""
        complete(self._model)
        self._model.ended_early = False

    def average_for(self, layers: list[Any]) -> None:
        """Average the gradients over the ranks, if the optimizer is a user's own, which does not sum them."""
        if not self._averages:
            return
        gradients = [grad for (_, grad), _ in get_param_list(layers)]
        known = self._mean
        if known is None or len(known[0]) != len(gradients) or any(a is not b for a, b in zip(known[0], gradients)):
            compression = self._model.be.gradient_compression
            self._mean = known = gradients, RankSum(self._ranks, gradients, mean=True, compression=compression)
        known[1]()


def explain(model: TrainedModel) -> list[str]:
    """Describe in a line where gradients of several ranks are summed; no line for a process alone."""
    be = model.be
    if be is None or be.num_ranks == 1 or not model.initialized:
        return []
    pairs = [pair for pair, _ in get_param_list(model.layers_to_optimize)]
    nbytes = sum(grad.nbytes for _, grad in pairs)
    sent = f", sent in {be.gradient_compression}," if be.gradient_compression else ","
    shared = sum(be.shard_optimizer and can_be_shared(*pair, be.num_ranks) for pair in pairs)
    size = f"{len(pairs)} parameters, {nbytes / 1e6:.1f} MB{sent}"
    return [
        f"Gradients of {size} are summed over {be.num_ranks} ranks before each optimizer step; {shared} of the "
        "parameters are updated by rows, a part on each rank"
    ]


def _sums(optimizer: Any) -> bool:
    """Whether an optimizer sums gradients over the ranks."""
    if next(kind for kind in type(optimizer).__mro__ if "optimize" in vars(kind)) not in SUMMING:
        return False
    if isinstance(optimizer, MultiOptimizer):
        return all(map(_sums, optimizer.optimizer_mapping.values()))
    return not isinstance(optimizer, LossScaling | GradientAccumulation) or _sums(optimizer.optimizer)


def _text(thing: Any) -> str:
    """The class of an optimizer or a cost with its arguments, a line each; of one that describes nothing the class."""
    if not isinstance(thing, NervanaObject):
        return type(thing).__name__
    return "\n".join([type(thing).__name__, *_lines(thing.get_description()["config"])])


def _lines(value: Any, name: str = "") -> list[str]:
    """A line for each argument in a description: without addresses, and names of objects, which may differ by rank."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return [f"{name} = {ADDRESS.sub('', str(value))}"]
    inner = ((f"{name}.{key}".lstrip("."), entry) for key, entry in value.items() if key != "name")
    return sorted(line for path, entry in inner for line in _lines(entry, path))


def _state(be: Backend) -> str:
    """The state of ``be.rng``, shortened."""
    _, words, place, *_ = be.rng.get_state()
    return f"{int(words[0]):08x}-{int(words[-1]):08x}-{place}"


def _tensors_of(layer: Layer) -> list[Any]:
    """Parameters, running statistics and optimizer states of a layer, in an order that all ranks share."""
    found: dict[int, Any] = {}
    entries = get_param_list([layer]) if layer.has_params else []
    for (param, _), states in entries:
        found.update((id(tensor), tensor) for tensor in (param, *states))
    found.update((id(tensor), tensor) for tensor in getattr(layer, "inf_params", []))
    return list(found.values())
