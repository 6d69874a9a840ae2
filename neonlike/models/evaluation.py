"""A network over a whole data set: what ``eval``, ``get_outputs`` and the loss on an evaluation set go through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neonlike.layers.base import interpret_in_shape


def predictions(model: Any, dataset: Any) -> Iterator[tuple[Any, Any, int, int]]:
    """Outputs of ``model`` in inference for each batch of a data set, from its start, with what is to be counted.

    A batch may have fewer columns than the backend's batch size, such as the last one of an iterator that does not
    fill it up with samples that were there before, as ArrayIterator does.

    Yields
    ------
    tuple
        Outputs (in buffers that the next batch overwrites), targets, the number of samples that are new, and the
        number of time steps of the outputs.
    """
    dataset.reset()
    samples = 0
    for x, t in dataset:
        y = model.fprop(x, inference=True)
        shape = model.layers.in_shape
        _, steps = interpret_in_shape(shape[0] if isinstance(shape, list) else shape)
        batch = max(1, _first(x).shape[1] // steps)
        valid = min(dataset.ndata - samples, batch)
        yield y, t, valid, max(1, _first(y).shape[1] // batch)
        samples += valid


def _first(tensors: Any) -> Any:
    """A tensor, or the first of several."""
    return tensors[0] if isinstance(tensors, list | tuple) else tensors
