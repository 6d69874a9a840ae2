"""Loading of a whole experiment: the model, its data and its callbacks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from neonlike.callbacks.callbacks import Callbacks
from neonlike.checks import shown
from neonlike.errors import ArgumentError
from neonlike.logger import logger
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.util.persist import load_obj

__all__ = ["deserialize"]


def deserialize(
    fn: str | os.PathLike[str] | dict[str, Any], datasets: Any = None, inference: bool = False
) -> tuple[Model, Any, Callbacks | None]:
    """Rebuild the model, data and callbacks described by ``neonlike.util.persist.serialize``.

    Parameters
    ----------
    fn : path or dict
        The file, or the dictionary itself.
    datasets : dict of iterators, Dataset or iterator, optional
        Replacement for the file's data. Array iterators are described without their arrays, so they have to be given.
    inference : bool
        Omit optimizer states and callbacks.

    Returns
    -------
    tuple
        (Model, data sets, Callbacks); the latter two are None if the file has none.

    Raises
    ------
    ArgumentError
        If the file is not an experiment, or its callbacks need data that it does not describe.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.experiments.load_experiment import deserialize
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.models import Model
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.5))])
    >>> model.initialize(3)
    >>> copy, data, callbacks = deserialize(model.serialize())
    >>> copy.layers.layers[0].W.tolist()
    [[0.5, 0.5, 0.5]]
    """
    described = fn if isinstance(fn, dict) else load_obj(fn)
    if not isinstance(described, dict) or "model" not in described:
        raise ArgumentError(
            f"deserialize: expected what persist.serialize returns, with a model, got {shown(described)}"
        )
    if datasets is None and "datasets" in described:
        datasets = _built(described["datasets"])
    elif datasets is not None and "datasets" in described:
        logger.warning("deserialize: the data sets in the file are not used, as others were given")
    model = Model(described, weights_only=inference)
    if inference or "callbacks" not in described:
        return model, datasets, None
    iterators = _iterators(datasets)
    saved = described["callbacks"]
    entries = [{**entry, "config": _with_data(entry["config"], iterators)} for entry in saved["callbacks"]]
    return model, datasets, Callbacks.load_callbacks({**saved, "callbacks": entries}, model)


def _built(described: Any) -> Any:
    """Build the data sets of a description, or of a list or dictionary of descriptions."""
    if isinstance(described, list | tuple):
        return [_built(one) for one in described]
    if isinstance(described, dict) and "type" not in described:
        return {key: _built(one) for key, one in described.items()}
    try:
        return build(described)
    except ArgumentError as error:
        raise ArgumentError(
            f"deserialize: the data of the file cannot be made of their description alone ({error}); give datasets="
        ) from error


def _iterators(datasets: Any) -> dict[str, Any]:
    """Map iterators by their names and by the names of their parts."""
    parts = getattr(datasets, "data_dict", datasets)
    if isinstance(parts, Mapping):
        named = {key: one for key, one in parts.items() if hasattr(one, "__iter__")}
    else:
        of_list = parts if isinstance(parts, list | tuple) else () if parts is None else (parts,)
        named = {str(i): one for i, one in enumerate(of_list)}
    by_name = {one.name: one for one in named.values() if isinstance(getattr(one, "name", None), str)}
    return {**named, **by_name}


def _with_data(config: dict[str, Any], iterators: dict[str, Any]) -> dict[str, Any]:
    """Replace iterator names in a callback's arguments by iterators; unknown names stay, and loading reports them."""
    found = dict(config)
    for key, value in config.items():
        if isinstance(value, dict) and value.get("type") == "data" and value.get("name") in iterators:
            found[key] = iterators[value["name"]]
    return found
