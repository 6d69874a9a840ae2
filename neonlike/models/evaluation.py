"""Inference over a whole data set, for ``eval``, ``get_outputs`` and the evaluation loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neonlike.backends.tensor import Tensor
from neonlike.errors import ArgumentError
from neonlike.models.arguments import DATASET_EXAMPLE, require
from neonlike.models.beam import BeamSearch
from neonlike.optree import dialect
from neonlike.optree.values import values


def predictions(model: Any, dataset: Any) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield inference outputs of ``model`` for each batch of a data set, from its start.

    A batch may have fewer columns than the backend's batch size: the last batch of an iterator without padding.
    (ArrayIterator pads with samples from the start.) For sequences the missing columns are left out of each step;
    otherwise padding columns come last.

    Yields
    ------
    tuple
        Outputs (in buffers that the next batch overwrites), targets, number of samples without padding, and number
        of time steps of the outputs.
    """
    dataset.reset()
    samples = 0
    for x, t in dataset:
        if samples >= dataset.ndata:  # all following samples were counted already
            return
        y = model.fprop(x, inference=True)
        batch = model.layers.samples_in(x)
        valid = min(dataset.ndata - samples, batch)
        steps = max(1, _first(y).shape[1] // batch)
        if valid < batch and steps > 1:
            y, t = _of_samples(y, batch, valid), _of_samples(t, batch, valid)
        yield y, t, valid, steps
        samples += valid


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


def summed(who: str, model: Any, dataset: Any, measured: Callable[[Any, Any, int, int], Any]) -> tuple[Any, int]:
    """Sum ``measured`` over the batches of a data set; return the sum and the number of samples.

    Raises
    ------
    ArgumentError
        If there is no batch; the message names ``who``.
    """
    total: Any = 0
    samples = 0
    for y, t, valid, steps in predictions(model, dataset):
        total = total + measured(y, t, valid, steps)
        samples += valid
    if not samples:
        raise ArgumentError(f"{who}: the data iterator {dataset!r} yielded no batch")
    return total, samples


def average(model: Any, dataset: Any, metric: Any) -> np.ndarray:
    """Value of a metric over all samples: float32, one number per metric name.

    It is the mean over samples, or computed from summed counts if the metric accumulates counts.
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


def outputs(model: Any, dataset: Any) -> np.ndarray:
    """Outputs of ``model`` for all samples, ``(ndata, nout)`` or ``(ndata, steps, nout)``."""
    require(dataset, ("reset", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
    model.initialize(dataset)
    batches = []
    for y, _, valid, steps in predictions(model, dataset):
        if isinstance(y, list | tuple):
            raise ArgumentError(f"{model.name}.get_outputs: the network has {len(y)} outputs; use fprop")
        by_sample = y.get().reshape(y.shape[0], steps, -1)[:, :, :valid].transpose(2, 1, 0)
        batches.append(by_sample[:, 0] if steps == 1 else by_sample)
    if not batches:
        raise ArgumentError(f"{model.name}.get_outputs: the data iterator {dataset!r} yielded no batch")
    return np.concatenate(batches)


def outputs_beam(model: Any, dataset: Any, num_beams: int, steps: int | None) -> np.ndarray:
    """See :meth:`Model.get_outputs_beam`."""
    search = BeamSearch(model.layers)
    if not num_beams:
        found = outputs(model, dataset)
        return found if steps is None else found.reshape(len(found), -1, found.shape[-1])[:, :steps]
    require(dataset, ("reset", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
    model.initialize(dataset)
    dataset.reset()
    batches = [search.beamsearch(x, num_beams, steps).get().T for x, _ in dataset]
    if not batches:
        raise ArgumentError(f"{model.name}.get_outputs_beam: the data iterator {dataset!r} yielded no batch")
    words = np.concatenate(batches)[: dataset.ndata]
    return words[:, :, np.newaxis] if dialect.is_neon() else words


def _first(tensors: Any) -> Any:
    """Return a tensor, or the first of several."""
    return tensors[0] if isinstance(tensors, list | tuple) else tensors
