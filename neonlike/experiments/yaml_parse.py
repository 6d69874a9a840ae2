"""Models described in YAML: layers, cost and optimizer from a file.

::

    epochs: 10                       # epochs, batchsize, backend and dataset are for the command `neon model.yaml`
    layers:
    - type: Linear
      config: {nout: 100, init: &init {type: GlorotUniform}}
    - type: Activation
      config: {transform: {type: Rectlin}}
    - type: Linear
      config: {nout: 10, init: *init}
    - type: Activation
      config: {transform: {type: Softmax}}
    cost: CrossEntropyMulti
    optimizer:
      type: GradientDescentMomentum
      config: {learning_rate: 0.1, momentum_coef: 0.9}
"""

from __future__ import annotations

import os
import re
from typing import IO, Any

import numpy as np

from neonlike.backends import gen_backend
from neonlike.checks import shown
from neonlike.errors import ArgumentError, MissingExtra, NeonlikeError, did_you_mean
from neonlike.layers import GeneralizedCost, Multicost, Sequential
from neonlike.layers.container import LayerContainer
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.logger import logger
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject, build, get_args, load_class
from neonlike.optimizers.optimizer import Optimizer
from neonlike.transforms.transform import Cost
from neonlike.util.persist import TEXT

__all__ = ["create_objects", "format_yaml_dict", "load_yaml"]

Source = str | os.PathLike[str] | dict[str, Any] | IO[str]
KEYS = ("backend", "batchsize", "epochs", "dataset", "layers", "cost", "optimizer")
"""Valid keys of a file; the first four are for the command."""
EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers that YAML 1.1, unlike 1.2, reads as strings: 1e-3, 1.0e3."""


def load_yaml(source: Source) -> dict[str, Any]:
    """Load the dictionary of a YAML file, by path or open; a dictionary is returned unchanged.

    Parameters
    ----------
    source : path, open file or dict
        The file.

    Raises
    ------
    MissingExtra
        If PyYAML is not installed.
    ArgumentError
        If it is not YAML, or not a mapping. Tags that name Python objects are refused.

    Examples
    --------
    >>> import io
    >>> from neonlike.experiments.yaml_parse import load_yaml
    >>> load_yaml(io.StringIO("cost: SumSquared"))
    {'cost': 'SumSquared'}
    """
    if isinstance(source, dict):
        return source
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("YAML models need PyYAML; install it with: pip install 'neonlike[data]'") from error
    where = str(getattr(source, "name", source))
    try:
        if isinstance(source, str | os.PathLike):
            with open(source, encoding=TEXT) as file:
                root = yaml.load(file, _loader())
        else:
            root = yaml.load(source, _loader())
    except yaml.YAMLError as error:
        raise ArgumentError(f"{where}: no YAML that can be read: {' '.join(str(error).split())}") from error
    if not isinstance(root, dict):
        raise ArgumentError(f"{where}: expected a mapping with layers, cost and optimizer, got {shown(root)}")
    return root


def _loader() -> Any:
    """PyYAML's loader for plain values, extended to read ``1e-3`` as a number."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))
    return Loader


def format_yaml_dict(ldict: dict[str, Any], type_prefix: str = "") -> dict[str, Any]:
    """Convert YAML data to a description ``{type, config}``, also for nested ones; a missing ``config`` is empty.

    Parameters
    ----------
    ldict : dict
        Has ``type`` and, unless all arguments have defaults, ``config``. It is not modified, nor are shared anchors.
    type_prefix : str
        Prefix of the type, such as ``"neon.layers."``.

    Raises
    ------
    ArgumentError
        If there is no type, or the config is not a mapping.

    Examples
    --------
    >>> from neonlike.experiments.yaml_parse import format_yaml_dict
    >>> format_yaml_dict({"type": "Rectlin"})
    {'type': 'Rectlin', 'config': {}}
    """
    if not isinstance(ldict, dict) or not isinstance(ldict.get("type"), str):
        raise ArgumentError(f"expected a mapping with the key 'type', such as {{type: Linear}}, got {shown(ldict)}")
    config = ldict.get("config") or {}
    if not isinstance(config, dict):
        raise ArgumentError(f"{ldict['type']}: config must be a mapping of arguments, got {shown(config)}")
    if others := ldict.keys() - {"type", "config"}:  # neon ignored them
        logger.warning("%s: not used, as arguments belong under config: %s", ldict["type"], ", ".join(map(str, others)))
    return {"type": type_prefix + ldict["type"], "config": {key: _described(value) for key, value in config.items()}}


def _described(value: Any) -> Any:
    if isinstance(value, dict):
        return format_yaml_dict(value) if "type" in value else {key: _described(one) for key, one in value.items()}
    return [_described(one) for one in value] if isinstance(value, list) else value


def create_objects(
    root_yaml: Source,
    be_type: str = "gpu",
    batch_size: int = 128,
    rng_seed: int | None = None,
    device_id: int = 0,
    default_dtype: Any = np.float32,
    stochastic_rounding: bool | int = False,
) -> tuple[Model, Any, Optimizer | None]:
    """Create the model, cost and optimizer of a YAML file.

    Parameters
    ----------
    root_yaml : path, open file or dict
        See :mod:`neonlike.experiments.yaml_parse`. Types are class names of this library, or their dotted paths.
    be_type, batch_size, rng_seed, device_id, default_dtype, stochastic_rounding
        Settings for a new backend if there is none; an existing one is kept.

    Returns
    -------
    tuple
        (Model, GeneralizedCost or Multicost, Optimizer); cost and optimizer are None if the file has none.

    Raises
    ------
    ArgumentError
        If an entry is missing or cannot be built; the message names it.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.experiments.yaml_parse import create_objects
    >>> be = gen_backend("cpu", batch_size=2)
    >>> described = {
    ...     "layers": [{"type": "Linear", "config": {"nout": 2, "init": {"type": "Constant", "config": {"val": 0.5}}}}],
    ...     "cost": "SumSquared",
    ...     "optimizer": {"type": "Adam"},
    ... }
    >>> model, cost, optimizer = create_objects(described)
    >>> [type(one).__name__ for one in (model, cost, optimizer)]
    ['Model', 'GeneralizedCost', 'Adam']
    """
    if NervanaObject.be is None:
        gen_backend(
            be_type, rng_seed=rng_seed, batch_size=batch_size, device_id=device_id, datatype=default_dtype,
            stochastic_round=stochastic_rounding,
        )  # fmt: skip
    root = load_yaml(root_yaml)
    for key in root.keys() - set(KEYS):  # for example a key that only holds an anchor
        logger.warning("the YAML file: key %r is not used%s", key, did_you_mean(str(key), KEYS))
    network = _network(root.get("layers"))
    cost = None if root.get("cost") is None else _named("cost", _cost, root["cost"])
    optimizer = None if root.get("optimizer") is None else _named("optimizer", _optimizer, root["optimizer"])
    return Model(network), cost, optimizer


def _network(entries: Any) -> LayerContainer:
    """Build the chain of a list of layers, or the container of a description."""
    if _is_description(entries):
        network = _named("layers", _layer, entries)
        return network if isinstance(network, LayerContainer) else Sequential(network)
    if not isinstance(entries, list) or not entries:
        raise ArgumentError(f"create_objects: needs a list of layers, got layers: {shown(entries)}")
    return Sequential([_named(f"layer {i}", _layer, entry) for i, entry in enumerate(entries)])


def _named(place: str, make: Any, entry: Any) -> Any:
    """Return ``make(entry)``; errors are extended by the position in the file."""
    try:
        return make(entry)
    except (NeonlikeError, TypeError) as error:
        raise ArgumentError(f"create_objects: {place}: {error}") from error


def _layer(entry: Any) -> Any:
    described = format_yaml_dict(entry)
    cls = load_class(described["type"])
    if not issubclass(cls, CompoundLayer):
        return build(described)
    config = {key: build(value) if _is_description(value) else value for key, value in described["config"].items()}
    if unknown := config.keys() - get_args(cls).keys():
        raise ArgumentError(f"{cls.__name__} has no arguments {sorted(unknown)}; it has {', '.join(get_args(cls))}")
    return cls(**config)


def _is_description(value: Any) -> bool:
    return isinstance(value, dict) and "type" in value


def _cost(entry: Any) -> Any:
    made = build(format_yaml_dict({"type": entry} if isinstance(entry, str) else entry))
    if isinstance(made, GeneralizedCost | Multicost):
        return made
    if not isinstance(made, Cost):
        raise ArgumentError(f"{type(made).__name__} is no cost; name one, e.g. CrossEntropyMulti")
    return GeneralizedCost(costfunc=made)


def _optimizer(entry: Any) -> Optimizer:
    made = build(format_yaml_dict(entry))
    if not isinstance(made, Optimizer):
        raise ArgumentError(f"{type(made).__name__} is no optimizer; name one, e.g. GradientDescentMomentum")
    return made
