"""Assignment of different optimizers to different layers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from neonlike.checks import require_method
from neonlike.errors import ArgumentError, DTypeError
from neonlike.nervanaobject import Description, NervanaObject, build
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.base import Optimizer, keep

__public_module__ = "neonlike.optimizers.optimizer"


class LayersOfOptimizers(dict[Any, Any]):
    """Maps the id of a layer list to {optimizer: layers}, and an optimizer to its layers in the last list."""

    def __missing__(self, key: Any) -> Any:
        latest: dict[Any, Any] = next(reversed(self.values()), {})
        return latest[key]


class MultiOptimizer(Optimizer):
    """Selects an optimizer per layer: by the layer's name, else by its class, else the default.

    Parameters
    ----------
    optimizer_mapping : dict
        Layer name or class name -> optimizer; the key ``'default'`` is required. A class name matches exactly that
        class, not its subclasses.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If there is no default, or a value is a :class:`GradientAccumulation`.
    DTypeError
        If a value is no optimizer.

    Examples
    --------
    >>> from neonlike.optimizers import Adam, GradientDescentMomentum, MultiOptimizer
    >>> descent = GradientDescentMomentum(learning_rate=0.1, momentum_coef=0.9)
    >>> optimizer = MultiOptimizer({"default": Adam(), "Bias": descent})
    >>> sorted(optimizer.optimizer_mapping)
    ['Bias', 'default']
    """

    def __init__(self, optimizer_mapping: dict[str, Optimizer], name: str | None = None) -> None:
        super().__init__(name=name)
        self._map_cache: dict[int, tuple[list[Any], dict[Optimizer, list[Any]]]] = {}
        self._reset_mapping(optimizer_mapping)

    @property
    def map_list(self) -> LayersOfOptimizers:
        """The layers of each optimizer, keyed by the identity of the layer list or by the optimizer."""
        return LayersOfOptimizers((key, groups) for key, (_, groups) in self._map_cache.items())

    def _reset_mapping(self, new_mapping: dict[str, Optimizer]) -> None:
        """Replace the mapping and clear earlier assignments."""
        if "default" not in new_mapping:
            raise ArgumentError(
                f"MultiOptimizer: the mapping has keys {sorted(new_mapping)}, but needs one for 'default'"
            )
        for key, optimizer in new_mapping.items():
            if not isinstance(optimizer, Optimizer):
                raise DTypeError(
                    f"MultiOptimizer: the value for {key!r} is a {type(optimizer).__name__}; expected an optimizer"
                )
            if isinstance(optimizer, GradientAccumulation):
                raise ArgumentError(
                    f"MultiOptimizer: the value for {key!r} is a GradientAccumulation, which goes around all: "
                    "GradientAccumulation(MultiOptimizer(...), minibatches)"
                )
        self.optimizer_mapping = new_mapping
        self._map_cache.clear()

    def _groups(self, layer_list: Sequence[Any]) -> dict[Optimizer, list[Any]]:
        layers, mapping = list(layer_list), self.optimizer_mapping
        chosen_by: list[Any] = [*layers, *[getattr(layer, "name", None) for layer in layers]]
        chosen_by += [*mapping, *mapping.values()]
        cached = self._map_cache.get(id(layer_list))
        # An identity may be reused by another list, and names and the mapping may be written: compare them, too.
        if cached and len(cached[0]) == len(chosen_by) and all(map(is_, cached[0], chosen_by)):
            return cached[1]
        for layer in layers:
            require_method("MultiOptimizer.optimize", "each layer", layer, "get_params", "Linear")
        groups = self._map_optimizers(layers)
        self._map_cache.pop(id(layer_list), None)  # the latest is to be the last
        keep(self._map_cache, id(layer_list), (chosen_by, groups))
        return groups

    def _map_optimizers(self, layer_list: Sequence[Any]) -> dict[Optimizer, list[Any]]:
        """Map each optimizer to its layers, including those without parameters; for neon's scripts."""
        groups: dict[Optimizer, list[Any]] = {}
        mapping = self.optimizer_mapping
        for layer in layer_list:
            chosen = mapping.get(layer.name) or mapping.get(type(layer).__name__) or mapping["default"]
            groups.setdefault(chosen, []).append(layer)
        return groups

    def optimize(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Update the parameters of each layer with its optimizer, in place.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        epoch : int
            Number of the epoch, from 0.
        """
        for optimizer, layers in self._groups(layer_list).items():
            optimizer.optimize(layers, epoch)

    def use_scale(self, scale: Any) -> None:
        """Pass the scale to each optimizer."""
        for optimizer in self.optimizer_mapping.values():
            optimizer.use_scale(scale)

    def progress(self) -> dict[str, Any]:
        """Progress of each optimizer, by its key in the mapping."""
        every = {key: optimizer.progress() for key, optimizer in self.optimizer_mapping.items()}
        return {key: progress for key, progress in every.items() if progress}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore the saved progress of each optimizer by its key."""
        for key, optimizer in self.optimizer_mapping.items():
            if isinstance(progress := saved.get(key), dict):
                optimizer.set_progress(progress)

    def get_description(self, skip: Any = (), **kwargs: Any) -> Description:
        """Describe this optimizer and the optimizers in its mapping."""
        mapping = {key: value.get_description() for key, value in self.optimizer_mapping.items()}
        self._desc = {"type": self.modulenm, "config": {"optimizer_mapping": mapping, "name": self.name}}
        return self._desc

    @classmethod
    def gen_class(cls, pdict: dict[str, Any]) -> MultiOptimizer:
        """Build this optimizer and the optimizers in its mapping from their descriptions."""
        mapping: dict[str, Any] = {}
        for key, value in pdict["optimizer_mapping"].items():
            mapping[key] = value if isinstance(value, NervanaObject) else build(value)
        return cls(mapping, name=pdict.get("name"))
