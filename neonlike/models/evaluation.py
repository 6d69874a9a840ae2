"""Inference over a whole data set, for ``eval``, ``get_outputs`` and the evaluation loss.

Several ranks evaluate a share of each batch each. Then they tell each other what they found, so that all return what a
process alone would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.tensor import Tensor
from neonlike.data.sharing import require_shares
from neonlike.errors import ArgumentError
from neonlike.models.arguments import DATASET_EXAMPLE, require
from neonlike.models.beam import BeamSearch
from neonlike.models.statistics import average_statistics
from neonlike.optree import dialect
from neonlike.optree.values import values

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.models.protocol import TrainedModel


def shares(model: TrainedModel, dataset: DataIterator) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield this rank's share of each batch of a data set, from its start; all ranks have to go through it.

    The last batch may be padded, by samples from the start of the data. A share of padding alone is left out.

    Yields
    ------
    tuple
        Inputs, targets, number of samples in them, and number of samples without padding.
    """
    require_shares(dataset, "evaluation")
    average_statistics(model)
    ranks, start = model.be.ranks, 0
    dataset.reset()
    for x, t in dataset:
        if start >= dataset.ndata:  # all following samples were counted already
            return
        batch = model.layers.samples_in(x)
        share = batch if ranks.size == 1 else model.be.bsz
        valid = min(dataset.ndata - start - ranks.rank * share, batch)
        if valid > 0:
            yield x, t, batch, valid
        start += ranks.size * share


Seen = Callable[[Any, Any, Any, int, int], None]
"""Gets inputs, outputs, targets, number of samples without padding, and number of time steps of a batch."""


def predictions(
    model: TrainedModel, dataset: DataIterator, seen: Seen | None = None
) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield inference outputs of ``model`` for this rank's share of each batch of a data set, from its start.

    A batch may have fewer columns than the backend's batch size: the last batch of an iterator without padding.
    (ArrayIterator pads with samples from the start.) For sequences the missing columns are left out of each step;
    otherwise padding columns come last.

    Parameters
    ----------
    seen : callable, optional
        Called with each batch before it is yielded.

    Yields
    ------
    tuple
        Outputs (in buffers that the next batch overwrites), targets, number of samples without padding, and number
        of time steps of the outputs.
    """
    for x, t, batch, valid in shares(model, dataset):
        y = model.fprop(x, inference=True)
        steps = max(1, _first(y).shape[1] // batch)
        if valid < batch and steps > 1:
            y, t = _of_samples(y, batch, valid), _of_samples(t, batch, valid)
        if seen is not None:
            seen(x, y, t, valid, steps)
        yield y, t, valid, steps


def _of_samples(tensors: Any, batch: int, valid: int) -> Any:
    """The columns of the first ``valid`` of ``batch`` samples, in each step; ``tensors`` may be nested or None."""
    if isinstance(tensors, list | tuple):
        return [_of_samples(one, batch, valid) for one in tensors]
    if not isinstance(tensors, Tensor) or tensors.ndim != 2 or tensors.shape[1] % batch:
        return tensors
    rows, steps = tensors.shape[0], tensors.shape[1] // batch
    found = tensors.backend.empty((rows, steps * valid), dtype=tensors.dtype)
    for step in range(steps):
        found[:, step * valid : (step + 1) * valid] = tensors[:, step * batch : step * batch + valid]
    return found


def summed(
    who: str,
    model: TrainedModel,
    dataset: DataIterator,
    measured: Callable[[Any, Any, int, int], Any],
    seen: Seen | None = None,
) -> tuple[Any, int]:
    """Sum ``measured`` over the batches of a data set and all ranks; return the sum and the number of samples.

    Parameters
    ----------
    who : str
        The caller, for the message.
    model : Model
        The model.
    dataset : iterator
        Data to evaluate.
    measured : callable
        ``measured(y, t, valid, steps)`` gives the sum over the first ``valid`` samples of a batch.
    seen : callable, optional
        Called with each batch of this rank, see :func:`predictions`.

    Raises
    ------
    ArgumentError
        If there is no batch; the message names ``who``.
    """
    total: Any = 0
    samples = 0
    for y, t, valid, steps in predictions(model, dataset, seen):
        total = total + measured(y, t, valid, steps)
        samples += valid
    everyone = model.be.ranks.tell((total, samples), "evaluation")
    total, samples = (sum(parts) for parts in zip(*everyone, strict=True))
    if not samples:
        raise ArgumentError(f"{who}: the data iterator {dataset!r} yielded no batch")
    return total, samples


def average(model: TrainedModel, dataset: DataIterator, metric: Any) -> np.ndarray:
    """Value of a metric over all samples: float32, one number per metric name.

    It is the mean over samples, or computed from summed counts if the metric accumulates counts.

    Parameters
    ----------
    model : Model
        The model.
    dataset : iterator
        Data to evaluate.
    metric : Metric
        The metric.
    """
    require(metric, ("metric_names",), "metric", "Misclassification()")
    require(dataset, ("reset", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
    model.initialize(dataset)
    accumulates, none = getattr(metric, "accumulates", False), np.zeros(len(metric.metric_names))

    def measured(y: Any, t: Any, valid: int, steps: int) -> Any:
        columns = slice(0, valid * steps)
        if accumulates:
            return metric.counts(y, t, calcrange=columns)
        return none + np.asarray(metric(y, t, calcrange=columns)) * valid

    total, samples = summed(f"{model.name}.eval", model, dataset, measured)
    found = metric.of_counts(total) if accumulates else total / samples
    return values(np.asarray(found).astype(np.float32))


def outputs(model: TrainedModel, dataset: DataIterator) -> np.ndarray:
    """Outputs of ``model`` for all samples, ``(ndata, nout)`` or ``(ndata, steps, nout)``."""
    require(dataset, ("reset", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
    model.initialize(dataset)
    batches = []
    for y, _, valid, steps in predictions(model, dataset):
        if isinstance(y, list | tuple):
            raise ArgumentError(f"{model.name}.get_outputs: the network has {len(y)} outputs; use fprop")
        by_sample = y.get().reshape(y.shape[0], steps, -1)[:, :, :valid].transpose(2, 1, 0)
        batches.append(by_sample[:, 0] if steps == 1 else by_sample)
    return _of_all_ranks(f"{model.name}.get_outputs", model, dataset, batches)


def outputs_beam(model: TrainedModel, dataset: DataIterator, num_beams: int, steps: int | None) -> np.ndarray:
    """See :meth:`Model.get_outputs_beam`.

    Parameters
    ----------
    model, dataset, num_beams, steps
        The model, and the arguments of its method.
    """
    search = BeamSearch(model.layers)
    if not num_beams:
        found = outputs(model, dataset)
        return found if steps is None else found.reshape(len(found), -1, found.shape[-1])[:, :steps]
    require(dataset, ("reset", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
    model.initialize(dataset)
    batches = [search.beamsearch(x, num_beams, steps).get().T[:valid] for x, _, _, valid in shares(model, dataset)]
    words = _of_all_ranks(f"{model.name}.get_outputs_beam", model, dataset, batches)
    return words[:, :, np.newaxis] if dialect.is_neon() else words


def _of_all_ranks(who: str, model: TrainedModel, dataset: DataIterator, batches: list[np.ndarray]) -> np.ndarray:
    """The samples of all ranks in the order of the data set, from each rank's shares of the batches.

    Raises
    ------
    ArgumentError
        If no rank has a sample; the message names ``who``.
    """
    everyone = model.be.ranks.tell(batches, "outputs")
    found = [part for batch in zip_longest(*everyone) for part in batch if part is not None]
    if not found:
        raise ArgumentError(f"{who}: the data iterator {dataset!r} yielded no batch")
    return np.concatenate(found)


def _first(tensors: Any) -> Any:
    """Return a tensor, or the first of several."""
    return tensors[0] if isinstance(tensors, list | tuple) else tensors
