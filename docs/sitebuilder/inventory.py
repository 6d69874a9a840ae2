"""Public names: those in ``__all__`` of the modules that programs import from, and the public methods of their classes.

A module without ``__all__`` has the public names that it defines. A name that several modules have is public in the
first of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PACKAGE = "neonlike"


@dataclass(frozen=True)
class Group:
    """Names of a module under one heading of a page.

    Attributes
    ----------
    module : str
        Where programs import them from.
    within : str
        The module or package, relative to ``neonlike``, that defines them; empty for any.
    title : str
        The heading; empty for none.
    """

    module: str
    within: str = ""
    title: str = ""


@dataclass(frozen=True)
class Page:
    """A page of the reference."""

    name: str
    title: str
    groups: tuple[Group, ...]
    text: str = ""


def _families(module: str, within: str, *names: str) -> tuple[Group, ...]:
    """Groups of names, each from one module of the package ``within``, with its name as heading."""
    return tuple(Group(module, f"{within}.{name}", name.capitalize()) for name in names)


LAYERS = ("neonlike.layers", "neonlike.layers.layer", "neonlike.layers.container", "neonlike.layers.recurrent")


def _layers(within: str) -> tuple[Group, ...]:
    return tuple(Group(module, f"layers.{within}") for module in LAYERS)


PAGES = (
    Page("backends", "Backends", (Group("neonlike.backends", "backends"),),
         "The methods of a backend, ``be``, are on pages of their own: see :doc:`index`."),
    Page("tensors", "Tensors and expressions", (
        Group("neonlike.backends.backend"), Group("neonlike.optree.autodiff"), Group("neonlike.optree.functions"),
        Group("neonlike.optree.ops"),
    ), "The ops are in a table, :doc:`/ops`; their builders are methods of a backend, :doc:`be_expressions`.\n"
       "``neonlike.backends`` exports ``Autodiff``, too."),
    Page("layers_core", "Layers: basics and costs", _layers("core")),
    Page("layers_dense", "Layers: products and attention", _layers("dense")),
    Page("layers_images", "Layers: images", _layers("images")),
    Page("layers_norm", "Layers: normalization", _layers("norm")),
    Page("layers_recurrent", "Layers: sequences", _layers("recurrent")),
    Page("layers_container", "Layers: containers", _layers("container")),
    Page("blueprints", "Blueprints", (Group("neonlike.layers.blueprint"),)),
    Page("transforms", "Activations, costs and metrics", _families(
        "neonlike.transforms", "transforms", "activation", "cost", "metric", "bleu", "transform")),
    Page("initializers", "Initializers", (Group("neonlike.initializers"),)),
    Page("optimizers", "Optimizers and schedules", (Group("neonlike.optimizers"),)),
    Page("models", "Models", (Group("neonlike.models"), Group("neonlike.benchmark"))),
    Page("exchange", "Exchange with other libraries", (Group("neonlike.exchange"),)),
    Page("callbacks", "Callbacks", (Group("neonlike.callbacks.callbacks"),)),
    Page("reports", "Reports of runs", (Group("neonlike.report.write"), Group("neonlike.report.run"))),
    Page("data", "Data", (
        Group("neonlike.data"), Group("neonlike.data.dataiterator"), Group("neonlike.data.dataloaderadapter"),
        Group("neonlike.data.dataloader_transformers"), Group("neonlike.data.text_preprocessing"),
        Group("neonlike.data.convert_manifest"),
    )),
    Page("autograd", "Variables", (
        Group("neonlike.autograd", "autograd.variable"), Group("neonlike.autograd", "autograd.leaves"),
        Group("neonlike.autograd", "autograd.blocks"), Group("neonlike.autograd", "autograd.op"),
        Group("neonlike.autograd", "autograd.lifetimes"), Group("neonlike.autograd", "autograd.precision"),
        Group("neonlike.autograd", "autograd.report"),
    )),
    Page("autograd_ops", "Ops of variables", _families(
        "neonlike.autograd", "autograd.ops", "elementwise", "shape", "reduction", "linalg", "decompositions", "sparse",
        "network", "pooling", "loss", "common")),
    Page("dynamic_graph", "Dynamic graphs", (
        Group("neonlike.autograd.dynamic"), Group("neonlike.autograd.dynamic.commands"))),
    Page("distributed", "Distributed", (Group("neonlike.distributed"),)),
    Page("experiments", "Experiments and the command line", (
        Group("neonlike.experiments.argparser"), Group("neonlike.experiments.yaml_parse"),
        Group("neonlike.experiments.load_experiment"), Group("neonlike.script"),
        Group("neonlike.visualizations.nvis"), Group("neonlike.visualizations.data"),
        Group("neonlike.visualizations.figure"),
    )),
    Page("util", "Files and utilities", (
        Group("neonlike"), Group("neonlike.util.persist"), Group("neonlike.util.modeldesc"),
        Group("neonlike.util.shelver"), Group("neonlike.util.display_information"), Group("neonlike.util.compat"),
    )),
    Page("errors", "Errors", (Group("neonlike.errors"),)),
)  # fmt: skip

INTERNAL = {
    "neonlike.compat": "neon's names",
    "neonlike.kernels": "the compiler",
    "neonlike.layers.core": "what layers are made of",
    "neonlike.models.": "parts of Model",
    "neonlike.data.": "classes that neonlike.data exports, and readers of theirs",
    "neonlike.autograd.ops": "families of the ops that neonlike.autograd exports",
    "neonlike.transforms.cost": "classes that neonlike.transforms exports",
    "neonlike.optimizers.optimizer": "classes that neonlike.optimizers exports",
    "neonlike.callbacks": "the class that neonlike.callbacks.callbacks has",
    "neonlike.backends.cpu": "the class that neonlike.backends exports",
    "neonlike.backends.nervanagpu": "names of neon's library before gen_backend",
    "neonlike.util.update_dataset_cache": "a command",
}
"""Modules with ``__all__`` that no page of the reference lists, by the beginnings of their names, and why."""


@dataclass(frozen=True)
class Public:
    """A public name.

    Attributes
    ----------
    path : str
        The name that programs use, as ``neonlike.layers.Conv`` or ``neonlike.layers.Conv.fprop``.
    kind : str
        "class", "exception", "function", "method", "property" or "data".
    value : object
        The function, class or constant; of a property, its getter.
    """

    path: str
    kind: str
    value: Any

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """The path without its last part."""
        return self.path.rpartition(".")[0]


def names_of(module: str) -> list[str]:
    """The public names of a module, in the order of its ``__all__``, else of its definitions.

    Modules, and what is of another library, are left out.
    """
    found = importlib.import_module(module)
    listed = getattr(found, "__all__", None)
    if listed is not None:
        return [name for name in listed if _is_own(getattr(found, name))]
    return [
        name for name, value in vars(found).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module
    ]  # fmt: skip


def _is_own(value: Any) -> bool:
    """Whether an object is the library's and no module."""
    return not inspect.ismodule(value) and (_kind(value) == "data" or value.__module__.startswith(PACKAGE))


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) and not isinstance(value, type) and hasattr(value, "__name__") else "data"


def _identity(name: str, value: Any) -> int | str:
    """Equal for two names of one function or class; of a constant, which may be a number, the name."""
    return name if _kind(value) == "data" else id(value)


def _is_within(value: Any, within: str) -> bool:
    """Whether an object is defined in a module or package, named relative to ``neonlike``."""
    module = getattr(value, "__module__", "")
    return not within or f"{module}.".startswith(f"{PACKAGE}.{within}.")


@functools.cache
def contents() -> dict[str, list[tuple[Group, list[Public]]]]:
    """Page of the reference -> its groups with their public names; each object is listed once."""
    found: dict[str, list[tuple[Group, list[Public]]]] = {}
    seen: set[int | str] = set()
    for page in PAGES:
        found[page.name] = []
        for group in page.groups:
            module = importlib.import_module(group.module)
            names = [(name, getattr(module, name)) for name in names_of(group.module)]
            kept = [
                Public(f"{group.module}.{name}", _kind(value), value)
                for name, value in names
                if _identity(name, value) not in seen and _is_within(value, group.within)
            ]
            seen |= {_identity(public.name, public.value) for public in kept}
            if kept:
                found[page.name].append((group, kept))
    return found


def listed() -> Iterator[Public]:
    """All public classes, functions and constants."""
    for groups in contents().values():
        for _, names in groups:
            yield from names


@functools.cache
def documented_classes() -> frozenset[type]:
    """The classes that the reference has."""
    return frozenset(public.value for public in listed() if public.kind in ("class", "exception"))


def methods(public: Public) -> list[Public]:
    """The public methods and properties of a class that are its own, or of bases that are not public themselves."""
    found: dict[str, Public] = {}
    for owner in public.value.__mro__:
        foreign = not owner.__module__.startswith(f"{PACKAGE}.")
        if foreign or (owner is not public.value and owner in documented_classes()):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and name not in found and (kind := method_kind(value)):
                found[name] = Public(f"{public.path}.{name}", kind, _function(value))
    bases = [base for base in public.value.__mro__[1:] if base in documented_classes()]
    own = vars(public.value)
    return [one for name, one in found.items() if name in own or not any(hasattr(base, name) for base in bases)]


def method_kind(value: Any) -> str:
    """Say what a class's attribute is: "method", "property", or neither."""
    if isinstance(value, (property, functools.cached_property)):
        return "property"
    if inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod)):
        return "method"
    return "method" if inspect.isroutine(value) and not inspect.isclass(value) else ""


def _function(value: Any) -> Any:
    """The function behind a property, class method or static method."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return value.__func__ if isinstance(value, (classmethod, staticmethod)) else value


@dataclass(frozen=True)
class Part:
    """Methods of a backend with one subject: a part of ``Backend``, or the class itself."""

    name: str
    title: str
    text: str
    families: tuple[tuple[type, tuple[Public, ...]], ...]


@functools.cache
def parts() -> tuple[Part, ...]:
    """The methods of a backend by parts and families; a method is where ``be`` finds it first."""
    from neonlike.backends.backend import Backend

    of_family: dict[type, list[Public]] = {}
    for owner, public in _backend_methods(Backend):
        of_family.setdefault(owner, []).append(public)
    found = []
    for part in (Backend, *(base for base in Backend.__bases__ if base.__module__.endswith(".parts"))):
        owners = [Backend] if part is Backend else [c for c in part.__mro__ if c in of_family and c is not Backend]
        families = tuple((owner, tuple(of_family.pop(owner))) for owner in owners if owner in of_family)
        name = part.__name__.lower()
        title = "be: running expressions" if part is Backend else f"be: {_subject(part)}"
        text = "" if part is Backend else inspect.getdoc(part) or ""
        found.append(Part(f"be_{name}", title, text, families))
    return tuple(found)


def _subject(part: type) -> str:
    return {"Differentiable": "gradients and lazy primitives", "Machine": "timing, ranks, devices"}.get(
        part.__name__, part.__name__.lower()
    )


def _backend_methods(backend: type) -> Iterator[tuple[type, Public]]:
    """Each public method of a backend with the class that defines it."""
    seen: set[str] = set()
    for owner in backend.__mro__:
        if not owner.__module__.startswith(f"{PACKAGE}."):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and name not in seen and (kind := method_kind(value)):
                seen.add(name)
                yield owner, Public(f"neonlike.backends.Backend.{name}", kind, _function(value))


@functools.cache
def everything() -> tuple[Public, ...]:
    """All public names, methods too."""
    found: dict[str, Public] = {}
    for public in listed():
        found[public.path] = public
        if public.kind in ("class", "exception") and public.name != "Backend":
            found.update((one.path, one) for one in methods(public))
    for part in parts():
        found.update((one.path, one) for _, family in part.families for one in family)
    return tuple(found.values())
