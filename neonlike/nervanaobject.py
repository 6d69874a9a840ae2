"""The root class of everything that lives on a backend and can be described, saved and rebuilt.

A description is a plain dictionary ``{"type": dotted path, "config": {argument: value}}``: saved models are made
of these, so a constructor keeps its arguments in attributes of the same names. The dotted path is the *public* one:
a module that holds a part of a larger public module says so with a global ``__public_module__``, so that saved
files do not depend on how the source is split into files.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from neonlike.errors import ArgumentError, BackendUnavailable
from neonlike.logger import logger

Description = dict[str, Any]
Self = TypeVar("Self", bound="NervanaObject")

PACKAGE = "neonlike"
_FOREIGN_ROOT = "neon"
_SEARCHED_FIRST = ("layers", "initializers", "transforms", "optimizers", "data", "callbacks", "models")


def get_args(func: Callable[..., Any]) -> dict[str, Any]:
    """Argument names of ``func`` with their defaults; None where there is no default.

    ``*args`` and ``**kwargs`` are left out. For a class, the arguments of its constructor.

    Examples
    --------
    >>> get_args(lambda x, y=3: None)
    {'x': None, 'y': 3}
    """
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(func).parameters.items()
        if parameter.kind in named
    }


def load_class(name: str) -> type[Any]:
    """Find a class by its dotted path, or by a bare name searched in this package.

    A leading ``neon.`` means this package, so that descriptions written by neon are understood.

    Raises
    ------
    ArgumentError
        If there is no such class.

    Examples
    --------
    >>> load_class("neon.initializers.initializer.Gaussian").__name__
    'Gaussian'
    """
    module_name, _, class_name = name.rpartition(".")
    found = _from_module(module_name, class_name) if module_name else _from_package(class_name)
    if found is None:
        where = f"module {module_name!r}" if module_name else f"package {PACKAGE!r}"
        raise ArgumentError(
            f"load_class: no class {class_name!r} in {where}; a custom class must be importable under that path"
        )
    return found


def _from_module(module_name: str, class_name: str) -> type[Any] | None:
    root, dot, rest = module_name.partition(".")
    if root == _FOREIGN_ROOT:
        module_name = PACKAGE + dot + rest
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module exists, but something that it imports does not
        return None
    found = getattr(module, class_name, None)
    return found if isinstance(found, type) else None


def _from_package(class_name: str) -> type[Any] | None:
    for subpackage in _SEARCHED_FIRST:
        if found := _from_module(f"{PACKAGE}.{subpackage}", class_name):
            return found
    for subpackage in _SEARCHED_FIRST:
        path = import_module(f"{PACKAGE}.{subpackage}").__path__
        for info in pkgutil.iter_modules(path, f"{PACKAGE}.{subpackage}."):
            if found := _from_module(info.name, class_name):
                return found
    return None


class NervanaObject:
    """Base class: a name, the current backend, and a description that rebuilds the object.

    Parameters
    ----------
    name : str, optional
        Given name; otherwise ``"<ClassName>_<k>"``, k counting the objects of the class.

    Attributes
    ----------
    be
        The process-wide current backend, or None before ``gen_backend``; read at each use.
    """

    be: ClassVar[Any] = None
    _instance_counts: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            k = self._instance_counts.get(self.classnm, 0)
            self._instance_counts[self.classnm] = k + 1
            name = f"{self.classnm}_{k}"
        self.name = name
        self._desc: Description | None = None

    @property
    def classnm(self) -> str:
        """Name of the class."""
        return type(self).__name__

    @property
    def modulenm(self) -> str:
        """Dotted public path of the class, as written in descriptions."""
        return public_path(type(self))

    def require_backend(self, operation: str = "") -> Any:
        """The current backend; without one an error that names the class and ``operation``.

        Raises
        ------
        BackendUnavailable
            Before ``gen_backend``.
        """
        if self.be is None:
            where = f"{self.classnm}.{operation}" if operation else self.classnm
            raise BackendUnavailable(
                f"{where}: there is no backend; make one first, e.g. gen_backend('cpu', batch_size=128)"
            )
        return self.be

    def get_description(self, skip: Collection[str] = (), **kwargs: Any) -> Description:
        """Describe the object by the constructor arguments that differ from their defaults.

        Parameters
        ----------
        skip : collection of str
            Arguments to leave out.

        Returns
        -------
        dict
            ``{"type": dotted path, "config": {argument: value}}``; values that are objects of this kind are
            descriptions themselves. An argument without an attribute of its name is left out with a warning.
        """
        config: dict[str, Any] = {}
        for argument, default in get_args(type(self)).items():
            if argument in skip:
                continue
            if not hasattr(self, argument):
                logger.warning(
                    "%s keeps no attribute for its argument %r: a saved %s forgets it",
                    self.name, argument, self.classnm,
                )  # fmt: skip
                continue
            value = getattr(self, argument)
            if differs(value, default):
                config[argument] = value.get_description() if isinstance(value, NervanaObject) else value
        self._desc = {"type": self.modulenm, "config": config}
        return self._desc

    @staticmethod
    def recursive_gen(pdict: Any, key: Any) -> None:
        """Replace ``pdict[key]`` by the object it describes, if it is a description; in place."""
        value = pdict[key]
        if type(value) is dict and "type" in value:
            pdict[key] = load_class(value["type"]).gen_class(value.setdefault("config", {}))

    @classmethod
    def gen_class(cls: type[Self], pdict: dict[str, Any]) -> Self:
        """Build an object from the ``config`` part of a description; descriptions inside are built too.

        ``pdict`` is changed in place: nested descriptions are replaced by the objects.
        """
        for key, value in pdict.items():
            if type(value) is tuple:
                pdict[key] = value = list(value)
                for i in range(len(value)):
                    cls.recursive_gen(value, i)
                pdict[key] = tuple(value)
            elif type(value) is list:
                for i in range(len(value)):
                    cls.recursive_gen(value, i)
            else:
                cls.recursive_gen(pdict, key)
        return cls(**pdict)


def public_path(cls: type) -> str:
    """Dotted path under which ``cls`` is documented and saved."""
    defined_in = sys.modules.get(cls.__module__)
    module = getattr(defined_in, "__public_module__", cls.__module__)
    return f"{module}.{cls.__name__}"


def differs(value: Any, default: Any) -> bool:
    """Whether ``value != default``, also for arrays and tensors, for which ``!=`` is not a truth value."""
    if value is default:
        return False
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return not np.array_equal(value, default)
    return bool(value != default)  # on tensors an expression, which is true: they differ from any default
