"""Weights of a model from and to PyTorch's ``state_dict``, matched by order or by names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.exchange import tensorfile
from neonlike.exchange.differences import Differences
from neonlike.exchange.places import Arrays, assign
from neonlike.exchange.torch_layers import Translation, translation_of
from neonlike.exchange.units import Unit, units
from neonlike.exchange.weights import require_set_up

LEVEL = re.compile(r"((?:weight|bias)_(?:ih|hh|hr)_l)(\d+)((?:_reverse)?)")
"""A parameter of a level of a stack of recurrent layers."""
OUT = "out_proj"
"""The module within an attention of PyTorch."""


def load_torch(model: Any, weights: Any, names: Any, eps: float | None) -> None:
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
    assign(assigned)
    _set_numbers([(unit, name) for unit, _, name in translated], weights, eps)


def to_torch(model: Any, names: Any) -> Arrays:
    """See :meth:`Model.to_torch`."""
    require_set_up(model, "to_torch")
    found: Arrays = {}
    parts = units(model.layers)
    if names is None:
        names = {unit.path: unit.path for unit in parts}
    elif not _is_mapping_of_names(names) and not isinstance(names, Sequence):
        names = list(modules_of(_state_of(names, None)))
    for unit, name in _matched(parts, None, names):
        for key, array in translation_of(unit).give(unit).items():
            found[_full_name(name, key)] = array
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
    found = np.asarray(value)
    if found.dtype.kind not in "biufV":
        raise DTypeError(f"load_torch: {key} is no array of numbers but {shown(value)}")
    return found


def modules_of(state: Arrays) -> dict[str, Arrays]:
    """Group a state_dict by module: name of the module -> its parameters.

    A level of a stack of recurrent layers is a module of its own, as ``rnn_l1`` of ``rnn``; its parameters have the
    names of level 0. An attention has the parameters of the module in it.
    """
    found: dict[str, Arrays] = {}
    levels: dict[str, set[str]] = {}
    for key, value in state.items():
        module, _, name = key.rpartition(".")
        outer = module.removesuffix(OUT).removesuffix(".")
        if module.endswith(OUT) and any(_full_name(outer, f"in_proj_{kind}") in state for kind in ("weight", "bias")):
            module, name = outer, f"{OUT}.{name}"
        if level := LEVEL.fullmatch(name):
            levels.setdefault(module, set()).add(level[2])
            module, name = f"{module}_l{level[2]}", f"{level[1]}0{level[3]}"
        found.setdefault(module, {})[name] = value
    alone = {f"{module}_l0": module for module, numbers in levels.items() if numbers == {"0"}}
    return {alone.get(module, module): arrays for module, arrays in found.items()}


def _full_name(module: str, name: str) -> str:
    """Name of a parameter in a state_dict: that of its module, a dot, and its own."""
    if LEVEL.fullmatch(name) and (level := re.fullmatch(r"(.*)_l(\d+)", module)):
        module, name = level[1], LEVEL.sub(rf"\g<1>{level[2]}\g<3>", name)
    return f"{module}.{name}" if module else name


# -- matching ----------------------------------------------------------------------------------------------------------


def _is_mapping_of_names(names: Any) -> bool:
    return isinstance(names, Mapping) and all(isinstance(name, str) for name in names.values())


def _matched(parts: list[Unit], modules: Mapping[str, Arrays] | None, names: Any) -> list[tuple[Unit, str]]:
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
                f"({', '.join(map(repr, names))}); if some of these have no part in the model, give names="
            )
        pairs = list(zip(parts, names))
    unknown = [name for _, name in pairs if modules is not None and name not in modules]
    if unknown:
        there = ", ".join(map(repr, modules or ()))
        raise ArgumentError(f"names: there is no module {', '.join(map(repr, unknown))}; there are {there}")
    return pairs


def _check(translated: list[tuple[Unit, Translation, str]], modules: Mapping[str, Arrays]) -> None:
    """Raise ShapeError with everything in which modules differ from their layers."""
    given: dict[str, tuple[int, ...]] = {}
    wanted: dict[str, tuple[int, ...] | None] = {}
    optional = set()
    for unit, translation, module in translated:
        given.update({_full_name(module, key): array.shape for key, array in modules[module].items()})
        for key, array in translation.give(unit).items():
            wanted[_full_name(module, key)] = array.shape
            if key in translation.optional:
                optional.add(_full_name(module, key))
    found = Differences.between(given, wanted, frozenset(optional))
    if found.are_there:
        raise ShapeError(f"load_torch: the weights are of another network: {found.words()}. Nothing was loaded")


def _missing(key: str, array: np.ndarray) -> np.ndarray:
    """The value of a parameter that a module lacks."""
    return np.ones_like(array) if key == "weight" else np.zeros_like(array)


def _set_numbers(matched: list[tuple[Unit, str]], weights: Any, eps: float | None) -> None:
    """Give normalizations the numbers that are not in a state_dict."""
    modules = dict(weights.named_modules()) if hasattr(weights, "named_modules") else {}
    for unit, name in matched:
        if not hasattr(unit.layer, "eps"):
            continue
        module = modules.get(name)
        own = getattr(module, "eps", eps)
        if own is not None:
            unit.layer.eps = float(own)
        momentum = getattr(module, "momentum", None)
        if momentum is not None and hasattr(unit.layer, "rho"):
            unit.layer.rho = 1.0 - float(momentum)
