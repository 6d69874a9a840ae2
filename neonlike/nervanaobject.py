"""The root class of all objects that use a backend and can be described, saved and rebuilt.

A description is a plain dictionary ``{"type": dotted path, "config": {argument: value}}``. Saved models consist of
descriptions, so a constructor stores its arguments in attributes of the same names. The dotted path is the *public*
one: a module that is part of a larger public module names it in a global ``__public_module__``, so that saved files
do not depend on the division of the source into files.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from neonlike.checks import check_methods, checked
from neonlike.errors import ArgumentError, BackendUnavailable, did_you_mean
from neonlike.logger import logger
from neonlike.optree.dialect import is_neon

Description = dict[str, Any]
Self = TypeVar("Self", bound="NervanaObject")

PACKAGE = "neonlike"
_FOREIGN_ROOT = "neon"
_SEARCHED_FIRST = ("layers", "initializers", "transforms", "optimizers", "data", "callbacks", "models")
_SEARCHED = frozenset((*_SEARCHED_FIRST, "benchmark"))


def get_args(func: Callable[..., Any]) -> dict[str, Any]:
    """Return the argument names of ``func`` with their defaults; None for arguments without default.

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
    """Find the class for a description by its dotted path, or by a bare name within this package.

    A leading ``neon.`` means this package, for descriptions written by neon. Descriptions may come from untrusted
    files, so nothing outside of this package is imported: user classes are found if they derive from
    :class:`NervanaObject` and their module is already imported.

    Raises
    ------
    ArgumentError
        If there is no such class.

    Examples
    --------
    >>> load_class("neon.initializers.initializer.Gaussian").__name__
    'Gaussian'
    """
    if not isinstance(name, str):
        raise ArgumentError(f"load_class: expected the dotted path of a class, got {type(name).__name__}")
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        found = _from_package(class_name)
    else:
        found = _from_module(of_this_package(module_name), class_name) or _defined(name)
    if found is None:
        where = f"module {module_name!r}" if module_name else f"package {PACKAGE!r}"
        raise ArgumentError(
            f"load_class: no class {class_name!r} in {where} that descriptions may name: parts of models in "
            f"{PACKAGE}, and your own classes derived from NervanaObject, once the module that defines them is imported"
            f"{did_you_mean(class_name, _known_names())}"
        )
    return found


def is_in_package(module: str | None) -> bool:
    """Whether a module is one of the library's, and no user's."""
    return module is not None and module.partition(".")[0] == PACKAGE


def of_this_package(module_name: str) -> str:
    """Translate a dotted path that may begin with ``neon`` to this library's path."""
    root, dot, rest = module_name.partition(".")
    return PACKAGE + dot + rest if root == _FOREIGN_ROOT else module_name


def _from_module(module_name: str, class_name: str) -> type[Any] | None:
    """Find a class in a module of this package; None if there is none, or the module may not be searched."""
    root, _, rest = module_name.partition(".")
    if root != PACKAGE or rest.partition(".")[0] not in _SEARCHED:
        return None
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module exists, but one of its imports does not
        return None
    return _describable(vars(module).get(class_name))


def _defined(name: str) -> type[Any] | None:
    """Find an existing class by its public path; the latest one if several share it."""
    classes: list[type[Any]] = [NervanaObject]
    for cls in classes:
        classes += type.__subclasses__(cls)
    return next((cls for cls in reversed(classes) if public_path(cls) == name and _describable(cls)), None)


def _describable(found: Any) -> type[Any] | None:
    return found if isinstance(found, type) and getattr(found, "from_description", False) is True else None


def build(described: Any) -> Any:
    """Build the object of a description (``type`` and ``config``); ``described`` is not modified.

    Raises
    ------
    ArgumentError
        If it is not a description, or its class is missing or takes other arguments.
    """
    if not isinstance(described, dict) or not isinstance(described.get("config", {}), dict):
        raise ArgumentError(
            f"expected the description of an object, a dictionary with 'type' and 'config', got {str(described)[:80]}"
        )
    cls = load_class(described.get("type"))  # type: ignore[arg-type]
    if not hasattr(cls, "gen_class"):
        raise ArgumentError(f"{cls.__name__}: objects of this class are not built from descriptions")
    return cls.gen_class(dict(described.get("config", {})))


def _known_names() -> set[str]:
    """Names of the classes that descriptions may use without a path."""
    packages = [vars(import_module(f"{PACKAGE}.{subpackage}")) for subpackage in _SEARCHED_FIRST]
    return {name for package in packages for name, thing in package.items() if _describable(thing)}


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
        Explicit name; by default ``"<ClassName>_<k>"``, with k counting the objects of the class.

    Attributes
    ----------
    be
        The process-wide current backend, or None before ``gen_backend``; looked up at each use.
    from_description : bool
        Whether objects of the class may be built from descriptions. False if construction reads or writes files.

    Examples
    --------
    >>> from neonlike.transforms import Tanh
    >>> Tanh(name="squash").get_description()
    {'type': 'neonlike.transforms.activation.Tanh', 'config': {'name': 'squash'}}
    """

    be: ClassVar[Any] = None
    from_description: ClassVar[bool] = True
    _instance_counts: ClassVar[dict[str, int]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] == PACKAGE:  # annotations of user classes are not checked
            check_methods(cls, ("__init__", "__call__"))

    @checked
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
        """Dotted public path of the class for descriptions; in neon's dialect it begins with ``neon``."""
        path = public_path(type(self))
        return _FOREIGN_ROOT + path.removeprefix(PACKAGE) if is_neon() and path.startswith(f"{PACKAGE}.") else path

    def require_backend(self, operation: str = "") -> Any:
        """Return the current backend; without one, raise an error that names the class and ``operation``.

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
            ``{"type": dotted path, "config": {argument: value}}``; values of this class, or lists of them, are
            descriptions themselves. An argument without an attribute of its name is left out with a warning.
        """
        config: dict[str, Any] = {}
        parameters = inspect.signature(type(self)).parameters
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
            if differs(value, default) or parameters[argument].default is inspect.Parameter.empty:
                config[argument] = _described(value)
        self._desc = {"type": self.modulenm, "config": config}
        return self._desc

    @staticmethod
    def recursive_gen(pdict: Any, key: Any) -> None:
        """Replace ``pdict[key]``, if it is a description, by its object; ``pdict`` is modified in place."""
        value = pdict[key]
        if type(value) is dict and "type" in value:
            pdict[key] = build(value)

    @classmethod
    def gen_class(cls: type[Self], pdict: dict[str, Any]) -> Self:
        """Build an object from the ``config`` of a description, including nested descriptions.

        ``pdict`` is modified in place: nested descriptions are replaced by objects.
        """
        for key, value in pdict.items():
            if type(value) in (list, tuple):
                entries = list(value)
                for i in range(len(entries)):
                    cls.recursive_gen(entries, i)
                pdict[key] = type(value)(entries)
            else:
                cls.recursive_gen(pdict, key)
        try:
            inspect.signature(cls).bind(**pdict)
        except TypeError as error:
            raise ArgumentError(
                f"{cls.__name__}: its description has other arguments: {_misspelt(cls, pdict) or error}"
            ) from None
        return cls(**pdict)


check_methods(NervanaObject)


def _misspelt(cls: type, config: dict[str, Any]) -> str:
    """Message about arguments in ``config`` unknown to the class; empty if all are known or any is accepted."""
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(cls).parameters.values()):
        return ""
    known = get_args(cls)
    return ", ".join(f"there is no {key!r}{did_you_mean(str(key), known)}" for key in config if key not in known)


def _described(value: Any) -> Any:
    """Convert a value for a description: our objects, alone or in lists, become descriptions."""
    if isinstance(value, NervanaObject):
        return value.get_description()
    if type(value) in (list, tuple) and any(isinstance(entry, NervanaObject) for entry in value):
        return type(value)(_described(entry) for entry in value)
    return value


def public_path(cls: type) -> str:
    """Dotted path of ``cls`` in documentation and saved files."""
    defined_in = sys.modules.get(cls.__module__)
    module = getattr(defined_in, "__public_module__", cls.__module__)
    return f"{module}.{cls.__name__}"


def differs(value: Any, default: Any) -> bool:
    """Whether ``value != default``, also for arrays and tensors, where ``!=`` is not a bool."""
    if value is default:
        return False
    if isinstance(value, np.ndarray) or isinstance(default, np.ndarray):
        return not np.array_equal(value, default)
    unequal = value != default
    # For tensors it is an expression: they differ from any default.
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else True
