"""A saved model as a dictionary with search and comparison."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from neonlike.errors import DTypeError
from neonlike.util.persist import load_obj


class ModelDescription(dict[str, Any]):
    """The dictionary of a saved model.

    Parameters
    ----------
    model : dict or path
        The dictionary, or a file with it.

    Examples
    --------
    >>> described = ModelDescription({"model": {"config": {"layers": [{"config": {"name": "fc1"}}]}}})
    >>> described.layers(), described.getlayer("fc1")
    (['fc1'], {'config': {'name': 'fc1'}})
    """

    def __init__(self, model: dict[str, Any] | str | bytes | os.PathLike[str]) -> None:
        content = model if isinstance(model, dict) else load_obj(model)
        if not isinstance(content, dict):
            raise DTypeError(
                f"ModelDescription: expected a dictionary or the path of one, got {type(content).__name__}"
            )
        super().__init__(content)

    @property
    def version(self) -> Any:
        """Version of the program that saved the model."""
        return self.get("neon_version")

    def layers(self, field: str = "name", regex: str | None = None) -> list[Any]:
        """Collect one field of the configuration of every layer.

        Parameters
        ----------
        field : str
            Entry of ``config``, or ``"type"``.
        regex : str, optional
            Pattern that a value must contain.

        Examples
        --------
        >>> inner = [{"type": "Linear", "config": {"name": "fc1"}}]
        >>> described = ModelDescription({"model": {"config": {"layers": inner}}})
        >>> described.layers("type"), described.layers(regex="conv")
        (['Linear'], [])
        """
        found = []
        for layer in self.find_layers(self["model"]):
            value = layer.get("type") if field == "type" else layer.get("config", {}).get(field)
            if value is not None and (regex is None or re.search(regex, str(value))):
                found.append(value)
        return found

    def getlayer(self, layer_name: str) -> dict[str, Any] | None:
        """Description of the named layer, or None.

        Examples
        --------
        >>> inner = [{"type": "Linear", "config": {"name": "fc1"}}]
        >>> described = ModelDescription({"model": {"config": {"layers": inner}}})
        >>> described.getlayer("fc1")["type"]
        'Linear'
        """
        return self.find_by_name(self["model"], layer_name)

    @staticmethod
    def find_layers(container: dict[str, Any] | list[Any]) -> Iterator[dict[str, Any]]:
        """Descriptions of the leaf layers in a description of a container, in order.

        Examples
        --------
        >>> inner = {"config": {"layers": [{"config": {"name": "a"}}]}}
        >>> [layer["config"]["name"] for layer in ModelDescription.find_layers([inner, {"config": {"name": "b"}}])]
        ['a', 'b']
        """
        for layer in _inside(container):
            if "layers" in layer.get("config", {}):
                yield from ModelDescription.find_layers(layer)
            else:
                yield layer

    @staticmethod
    def find_by_name(container: dict[str, Any] | list[Any], layer_name: str) -> dict[str, Any] | None:
        """Description of the named layer inside a container's description, or None.

        Examples
        --------
        >>> ModelDescription.find_by_name([{"config": {"name": "a", "nout": 3}}], "a")
        {'config': {'name': 'a', 'nout': 3}}
        """
        for layer in _inside(container):
            if layer.get("config", {}).get("name") == layer_name:
                return layer
            if (found := ModelDescription.find_by_name(layer, layer_name)) is not None:
                return found
        return None

    @staticmethod
    def match(a: Any, b: Any) -> bool:
        """Whether two (parts of) descriptions are equal except for names.

        Examples
        --------
        >>> ModelDescription.match({"name": "a", "nout": 3}, {"name": "b", "nout": 3})
        True
        """
        if isinstance(a, dict) and isinstance(b, dict):
            keys = a.keys() - {"name"}
            return keys == b.keys() - {"name"} and all(ModelDescription.match(a[key], b[key]) for key in keys)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(map(ModelDescription.match, a, b))
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return np.array_equal(a, b)
        return bool(a == b)

    def __eq__(self, other: object) -> bool:
        """Whether the model parts are equal except for names."""
        return isinstance(other, dict) and self.match(self.get("model"), other.get("model"))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def _inside(container: Any) -> list[dict[str, Any]]:
    """The layers in a container's description; a list of descriptions, as in neon, is already these layers."""
    if isinstance(container, list):
        return container
    inside: list[dict[str, Any]] = container.get("config", {}).get("layers", [])
    return inside
