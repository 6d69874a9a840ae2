"""Translation of neon's arguments where their names, order or existence differ here.

:data:`CALLS` lists them; :func:`install` replaces each function by one that accepts both: neon's arguments by name and
position, ours by name. :mod:`neonlike.compat.neon` calls it for neon scripts; without that import functions stay as
they are.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from neonlike.checks import brief
from neonlike.compat import contract
from neonlike.errors import ArgumentError

_NONE = inspect.Parameter.empty

_STATES = "inference:- alpha=1.0 beta=0.0"
_BLEND = "alpha:1.0 beta:0.0"
_DELTAS = "global_deltas:delta_buffers"
_BATCH = "mini_batch:mb"
CALLS: dict[str, str] = {
    "backends.backend.OpTreeNode.list_to_optree": "l:parts",
    "backends.backend.OpTreeNode.traverse": "stack:ls",
    "data.hdf5iterator.HDF5Iterator.gen_input": _BATCH,
    "data.hdf5iterator.HDF5Iterator.gen_output": _BATCH,
    "data.hdf5iterator.HDF5IteratorOneHot.gen_output": _BATCH,
    "data.hdf5iterator.HDF5IteratorAutoencoder.gen_output": _BATCH,
    "data.indexer.Indexer.__init__": "path:repo_dir index_file='index.csv' pattern='*'",
    "data.questionanswer.BABI.parse_babi": "babi_file:path",
    "layers.container.Decoder.bprop": f"error {_STATES}",
    "layers.container.Decoder.fprop": "x:inputs inference=False init_state_list:init_state=None",
    "layers.container.Encoder.bprop": f"hidden_error_list:error {_STATES}",
    "layers.container.LayerContainer.propagate_parallelism": "p:parallelism",
    "layers.container.LayerContainer.set_deltas": _DELTAS,
    "layers.container.Seq2Seq.bprop": f"error inference:- {_BLEND}",
    "layers.container.Seq2Seq.fprop": "inputs inference=False beta:0.0",
    "layers.container.Sequential.set_deltas": _DELTAS,
    "layers.container.SkipThought.bprop": f"error {_BLEND}",
    "layers.container.Tree.bprop": f"error {_BLEND}",
    "layers.container.Tree.set_deltas": _DELTAS,
    "layers.layer.GeneralizedCostMask.get_cost": "inputs targets_mask:targets",
    "layers.layer.GeneralizedCostMask.get_errors": "inputs targets_mask:targets",
    "layers.layer.GeneralizedGANCost.get_cost": "inputs:y_data targets:y_noise cost_type",
    "layers.layer.Layer.accumulates": "f:bprop",
    "layers.layer.interpret_in_shape": "xshape:shape",
    "layers.recurrent.interpret_in_shape": "xshape:shape",
    "util.compat.pickle_load": "filepath:file",
    "util.modeldesc.ModelDescription.__init__": "pdict:model",
    "util.modeldesc.ModelDescription.find_by_name": "layers:container layer_name",
    "util.modeldesc.ModelDescription.match": "o1:a o2:b",
    "util.persist.load_class": "ctype:name",
    "util.yaml_parse.format_yaml_dict": "yamldict:ldict type_prefix=''",
}
"""Neon's arguments in its order, by neon's dotted function names.

``name``, with ``:ours`` for a different name here, and ``=default`` for a default; ``name:-`` has no effect, as in
neon; ``name:1.0`` accepts only that value.
"""


@dataclass(frozen=True)
class Taken:
    """An argument of neon.

    Attributes
    ----------
    name : str
    ours : str or None
        Our name; None if there is no corresponding argument here.
    default : object
        Its default; without a counterpart, the only accepted value. ``Parameter.empty``: no default, or any value.
    """

    name: str
    ours: str | None
    default: Any = _NONE


def taken(text: str) -> list[Taken]:
    """Parse the arguments in a text of :data:`CALLS`."""
    found = []
    for word in text.split():
        left, equals, default = word.partition("=")
        name, _, ours = left.partition(":")
        value = ast.literal_eval(default) if equals else _NONE
        if ours == "-":
            found.append(Taken(name, None))
        elif ours and not ours.isidentifier():
            found.append(Taken(name, None, ast.literal_eval(ours)))
        else:
            found.append(Taken(name, ours or name, value))
    return found


def translated(function: Callable[..., Any], arguments: list[Taken], operation: str, bound: bool) -> Callable[..., Any]:
    """Wrap ``function`` to accept neon's ``arguments`` by position and name, and its own by name.

    ``bound``: the function has a first argument for the object or class that it belongs to.

    Parameters
    ----------
    function : callable
    arguments : list of Taken
        neon's arguments, in its order.
    operation : str
        Name for messages.
    bound : bool
    """
    by_name = {argument.name: argument for argument in arguments}
    skipped = int(bound)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) - skipped > len(arguments):
            return function(*args, **kwargs)  # raises the right error
        given: dict[str, Any] = {}
        named = ((by_name.get(name, Taken(name, name)), value) for name, value in kwargs.items())
        pairs = [*zip(arguments, args[skipped:]), *named]
        for argument, value in pairs:
            if argument.ours is None:
                _refuse_unless_default(operation, argument, value)
                continue
            if argument.ours in given:
                raise TypeError(f"{operation}() got multiple values for argument {argument.name!r}")
            given[argument.ours] = value
        for argument in arguments:
            if argument.ours is not None and argument.default is not _NONE:
                given.setdefault(argument.ours, argument.default)
        return function(*args[:skipped], **given)

    call.__signature__ = _signature(function, arguments, bound)  # type: ignore[attr-defined]
    return call


def _refuse_unless_default(operation: str, argument: Taken, value: Any) -> None:
    if argument.default is not _NONE and value != argument.default:
        raise ArgumentError(
            f"{operation}: {argument.name}={brief(value)} has no effect here; leave it at {argument.default}"
        )


def _signature(function: Callable[..., Any], arguments: list[Taken], bound: bool) -> inspect.Signature:
    """Neon's signature, with arguments that only our function has as keyword arguments."""
    own = inspect.signature(function).parameters
    first = list(own.values())[: int(bound)]
    names = {argument.ours for argument in arguments} | {parameter.name for parameter in first}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = []
    for argument in arguments:
        default = None if argument.ours is None and argument.default is _NONE else argument.default
        shown.append(inspect.Parameter(argument.name, kind, default=default))
    rest = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) if parameter.kind is kind else parameter
        for parameter in own.values()
        if parameter.name not in names
    ]
    return inspect.Signature([*first, *_ordered(shown), *rest])


def _ordered(shown: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Drop defaults from ``shown`` before arguments without default, which Python's signatures do not allow."""
    last = max((k for k, one in enumerate(shown) if one.default is _NONE), default=-1)
    return [one.replace(default=_NONE) if k <= last else one for k, one in enumerate(shown)]


_on = False
_replaced: list[tuple[Any, str, Any]] = []


def install() -> None:
    """Make all functions of :data:`CALLS` accept neon's arguments, in modules imported later, too."""
    global _on
    if not _on:
        _on = True
        contract.when_complete(replace_in)
        for key in _by_module():
            if (module := sys.modules.get(f"{contract.PACKAGE}.{key}")) is not None:
                replace_in(module, key)


def remove() -> None:
    """Undo :func:`install`."""
    global _on
    _on = False
    while _replaced:
        owner, name, found = _replaced.pop()
        if found is None:
            delattr(owner, name)
        else:
            setattr(owner, name, found)


def replace_in(module: ModuleType, key: str) -> None:
    """Replace the functions of a module; ``key`` is its name in neon."""
    for path, text in _by_module().get(key, ()) if _on else ():
        owner: Any = functools.reduce(getattr, path[:-1], module)
        _replace(owner, path[-1], text)


def _replace(owner: Any, name: str, text: str) -> None:
    # A module without a file has its names from elsewhere.
    found = inspect.getattr_static(owner, name) if inspect.isclass(owner) else getattr(owner, name)
    if any(place is owner and known == name for place, known, _ in _replaced):
        return
    inner = getattr(found, "__func__", found)
    bound = inspect.isclass(owner) and not isinstance(found, staticmethod)
    operation = f"{owner.__name__}.{name}" if inspect.isclass(owner) else name
    made: Any = translated(inner, taken(text), operation, bound)
    _replaced.append((owner, name, found if name in vars(owner) else None))
    setattr(owner, name, type(found)(made) if isinstance(found, staticmethod | classmethod) else made)


@functools.cache
def _by_module() -> dict[str, list[tuple[list[str], str]]]:
    """Group :data:`CALLS` by the module at the start of each dotted name: the rest of the name, and the arguments."""
    found: dict[str, list[tuple[list[str], str]]] = {}
    for dotted, text in CALLS.items():
        parts = dotted.split(".")
        cut = next((k for k, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
        found.setdefault(".".join(parts[:cut]), []).append((parts[cut:], text))
    return found
