"""Weights of a model from and to PyTorch's ``state_dict``, matched by order or by names."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.exchange import tensorfile
from neonlike.exchange.differences import Differences
from neonlike.exchange.places import Arrays, assign
from neonlike.exchange.torch_layers import Translation, translation_of
from neonlike.exchange.units import Unit, units
from neonlike.exchange.weights import require_set_up

if TYPE_CHECKING:
    from neonlike.exchange.protocol import ExchangedModel

LEVEL = re.compile(r"((?:weight|bias)_(?:ih|hh|hr)_l)(\d+)((?:_reverse)?)")
"""A parameter of a level of a stack of recurrent layers."""
OUT = "out_proj"
"""The module within an attention of PyTorch."""


def load_torch(model: ExchangedModel, weights: Any, names: Any, eps: float | None) -> None:
    """See :meth:`Model.load_torch`."""
    require_set_up(model, "load_torch")
    modules = modules_of(_state_of(weights, names))
    matched = _matched(units(model.layers), modules, names)
    translated = [(unit, translation_of(unit), name) for unit, name in matched]
    _check(translated, modules)
    assigned = []
    for unit, translation, name in translated:
        wanted = translation.give(unit)
        filled = {key: _missing(key, array) for key, array in wanted.items() if key not in modules[name]}
        assigned += translation.take(unit, {**modules[name], **filled})
    numbers = _numbers([(unit, name) for unit, _, name in translated], weights, eps)
    assign(assigned)
    for layer, attribute, number in numbers:
        setattr(layer, attribute, number)


def to_torch(model: ExchangedModel, names: Any) -> Arrays:
    """See :meth:`Model.to_torch`."""
    require_set_up(model, "to_torch")
    found: Arrays = {}
    modules: dict[str, Module] = {}
    parts = units(model.layers)
    if names is None:
        names = {unit.path: unit.path for unit in parts}
    elif not _is_mapping_of_names(names) and not isinstance(names, Sequence):
        modules = modules_of(_state_of(names, None))
        names = list(modules)
    for unit, name in _matched(parts, None, names):
        for key, array in translation_of(unit).give(unit).items():
            found[modules[name].full_name(key) if modules else _full_name(name, key)] = array
    return found


# -- reading a state_dict ----------------------------------------------------------------------------------------------


def _state_of(weights: Any, names: Any) -> Arrays:
    """The arrays of a state_dict, of a module's, or of a file of the safetensors format."""
    if isinstance(weights, str | os.PathLike):
        arrays, _ = tensorfile.read(weights, "load_torch")
        if names is None and not all(re.fullmatch(r"(\d+\.)+\w+", key) for key in arrays):
            raise ArgumentError(
                f"load_torch: the file {weights} does not keep the order of its modules; give names=[...], the "
                "modules in the order of the layers"
            )
        return arrays
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        raise DTypeError(
            f"load_torch: expected a state_dict, a module or the path of a safetensors file, got {shown(weights)}"
        )
    return {str(key): _as_array(key, value) for key, value in weights.items()}


def _as_array(key: Any, value: Any) -> np.ndarray:
    for method in ("detach", "cpu"):
        if hasattr(value, method):
            value = getattr(value, method)()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()
    if isinstance(value, Mapping):
        raise DTypeError(
            f"load_torch: {key} is no array but {shown(value)}; if it is the state_dict in a checkpoint, pass "
            f"checkpoint[{key!r}]"
        )
    found = np.asarray(value)
    if found.dtype.kind not in "biufV":
        raise DTypeError(f"load_torch: {key} is no array of numbers but {shown(value)}")
    return found


class Module(dict[str, np.ndarray]):
    """The parameters of a module of PyTorch, or of a level of a stack of recurrent layers, by their own names.

    Attributes
    ----------
    prefix : str
        Name of the module in the state_dict.
    level : str
        Number of the level in the stack; the names have level 0.
    """

    def __init__(self, prefix: str, level: str = "0") -> None:
        super().__init__()
        self.prefix, self.level = prefix, level

    def full_name(self, name: str) -> str:
        """Name of a parameter in the state_dict."""
        return _joined(self.prefix, LEVEL.sub(rf"\g<1>{self.level}\g<3>", name))


def modules_of(state: Arrays) -> dict[str, Module]:
    """Group a state_dict by module: name of the module -> its parameters.

    A level of a stack of recurrent layers is a module of its own, as ``rnn_l1`` of ``rnn``; its parameters have the
    names of level 0. An attention has the parameters of the module in it.
    """
    found: dict[tuple[str, str | None], Module] = {}
    for key, value in state.items():
        prefix, _, name = key.rpartition(".")
        outer = prefix.removesuffix(OUT).removesuffix(".")
        if prefix.endswith(OUT) and any(_joined(outer, f"in_proj_{kind}") in state for kind in ("weight", "bias")):
            prefix, name = outer, f"{OUT}.{name}"
        level = LEVEL.fullmatch(name)
        number = level[2] if level else None
        module = found.setdefault((prefix, number), Module(prefix, number or "0"))
        module[f"{level[1]}0{level[3]}" if level else name] = value
    return {_name_of(prefix, number, found): module for (prefix, number), module in found.items()}


def _name_of(prefix: str, number: str | None, found: Container[tuple[str, str | None]]) -> str:
    """The name of a module, or of a level of one that has further levels or parameters."""
    alone = number == "0" and (prefix, "1") not in found and (prefix, None) not in found
    if number is None or alone:
        return prefix
    name = f"{prefix}_l{number}"
    taken = (name, None) in found or (name, "0") in found
    return f"{prefix}.l{number}" if taken else name


def _joined(module: str, name: str) -> str:
    """Name of a parameter in a state_dict: that of its module, a dot, and its own."""
    return f"{module}.{name}" if module else name


def _full_name(module: str, name: str) -> str:
    """Name of a parameter in a state_dict, by the name of its module alone: ``rnn_l1`` is level 1 of ``rnn``."""
    if LEVEL.fullmatch(name) and (level := re.fullmatch(r"(.*)_l(\d+)", module)):
        return Module(level[1], level[2]).full_name(name)
    return _joined(module, name)


# -- matching ----------------------------------------------------------------------------------------------------------


def _is_mapping_of_names(names: Any) -> bool:
    return isinstance(names, Mapping) and all(isinstance(name, str) for name in names.values())


def _matched(parts: list[Unit], modules: Mapping[str, Module] | None, names: Any) -> list[tuple[Unit, str]]:
    """Pair each unit with the name of a module."""
    ours = [unit.path for unit in parts]
    if names is None:
        names = list(modules or {})
    if isinstance(names, Mapping):
        if set(names) != set(ours):
            raise ArgumentError(
                f"names: expected a module for each of the layers {', '.join(ours)}, got {', '.join(map(str, names))}"
            )
        pairs = [(unit, names[unit.path]) for unit in parts]
    else:
        if len(names) != len(parts):
            told = ", ".join(f"{unit.path} {unit.layer.classnm}" for unit in parts)
            raise ArgumentError(
                f"the model has {len(parts)} layers with weights ({told}), PyTorch's has {len(names)} modules "
                f"({', '.join(map(repr, names))}); nothing was changed. Give names=[...], one module for each of these "
                "layers, or add the layers that are missing"
            )
        pairs = list(zip(parts, names))
    unknown = [name for _, name in pairs if modules is not None and name not in modules]
    if unknown:
        there = ", ".join(map(repr, modules or ()))
        raise ArgumentError(f"names: there is no module {', '.join(map(repr, unknown))}; there are {there}")
    return pairs


def _check(translated: list[tuple[Unit, Translation, str]], modules: Mapping[str, Module]) -> None:
    """Raise ShapeError with everything in which modules differ from their layers."""
    given: dict[str, tuple[int, ...]] = {}
    wanted: dict[str, tuple[int, ...] | None] = {}
    optional = set()
    for unit, translation, name in translated:
        module = modules[name]
        given.update({module.full_name(key): array.shape for key, array in module.items()})
        for key, array in translation.give(unit).items():
            wanted[module.full_name(key)] = array.shape
            if key in translation.optional:
                optional.add(module.full_name(key))
    found = Differences.between(given, wanted, frozenset(optional))
    if found.are_there:
        raise ShapeError(
            f"load_torch: the weights are of another network: {found.words()}. Nothing was loaded; build the model "
            "with these sizes and biases, or pair modules and layers by names= if their order differs"
        )


def _missing(key: str, array: np.ndarray) -> np.ndarray:
    """The value of a parameter that a module lacks."""
    return np.ones_like(array) if key == "weight" else np.zeros_like(array)


def _numbers(matched: list[tuple[Unit, str]], weights: Any, eps: Any) -> list[tuple[Any, str, float]]:
    """The numbers of normalizations that are not in a state_dict: layer, attribute, number."""
    modules = dict(weights.named_modules()) if hasattr(weights, "named_modules") else {}
    found = []
    for unit, name in matched:
        if not hasattr(unit.layer, "eps"):
            continue
        module = modules.get(name)
        own = getattr(module, "eps", eps)
        if own is not None:
            found.append((unit.layer, "eps", _number(own, "eps")))
        momentum = getattr(module, "momentum", None)
        if momentum is not None and hasattr(unit.layer, "rho"):
            found.append((unit.layer, "rho", 1.0 - _number(momentum, "momentum")))
    return found


def _number(given: Any, name: str) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise DTypeError(f"load_torch: the module's {name} must be a number, got {shown(given)}") from None
