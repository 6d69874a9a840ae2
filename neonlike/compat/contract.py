"""Completion of this library's modules from the table: each path and name of neon is found or reported as missing.

:func:`install` puts a finder in front of Python's own. For ``neonlike.<path of the table>`` it loads the real module if
there is one, or else creates a module with names from the row's homes. Either way the module gets a fallback for names
that it does not define itself. A missing name of neon raises :class:`NotBuiltYet`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from neonlike.compat.table import CONTRACT, Row
from neonlike.errors import NeonlikeError
from neonlike.optree import dialect

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # to import the class takes 8 ms in Python 3.11, and Python asks for its methods alone

PACKAGE = "neonlike"
ORIGINAL = "neon"


class NotBuiltYet(NeonlikeError, ImportError):
    """The module or name exists in neon, but not in this library yet."""

    def __init__(self, key: str, name: str = "") -> None:
        dotted = _join(ORIGINAL, key, name)
        super().__init__(
            f"{PACKAGE} does not have {dotted} yet; `python -m {PACKAGE}.compat --list` shows what there is",
            name=dotted,
        )


class _Fallback:
    """The ``__getattr__`` of a completed module: first the module's own, then the homes of its row."""

    def __init__(self, module: ModuleType, key: str) -> None:
        self.module, self.key = module, key
        self.own: Callable[[str], Any] | None = vars(module).get("__getattr__")
        # A module with its own __getattr__ may read its list; the list of any other is taken here, to be completed.
        self.listed: Sequence[str] | None = vars(module).pop("__all__", None) if self.own is None else None

    def __call__(self, name: str) -> Any:
        if name == "__all__" and (names := self.starred()) is not None:
            return names
        if self.own is not None:
            try:
                return self.own(name)
            except AttributeError:
                pass
        row = CONTRACT[self.key]
        if name in row.names:
            for home in _homes(row):
                if hasattr(home, name):
                    return getattr(home, name)
            raise AttributeError(str(NotBuiltYet(self.key, name)))
        if (child := _join(self.key, name)) in CONTRACT:
            try:
                return importlib.import_module(_join(PACKAGE, child))
            except NotBuiltYet as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(f"module {self.module.__name__!r} has no attribute {name!r}")

    def starred(self) -> Sequence[str] | None:
        """Names imported by ``from module import *``; None: all public names.

        In neon's dialect neon's names are included, and loaded submodules, as in neon's packages; those of a module
        without a file always are. The list is computed on demand, because homes may still be loading when the module
        is completed.
        """
        own = vars(self.module)
        if not dialect.is_neon() and "__file__" in own:
            return self.listed
        public = [name for name in own if not name.startswith("_")] if self.listed is None else self.listed
        loaded = [name for name in own if _join(self.key, name) in CONTRACT]
        there = [name for name in sorted(CONTRACT[self.key].names) if hasattr(self.module, name)]
        return list(dict.fromkeys([*public, *there, *loaded]))


def _join(*parts: str) -> str:
    """Join a dotted name; empty parts (the root of the table is ``""``) leave no dot."""
    return ".".join(part for part in parts if part)


def _homes(row: Row) -> Iterator[ModuleType]:
    """The further modules of a row that exist."""
    roots = sys.modules[PACKAGE].__path__
    for home in row.homes:
        name = _join(PACKAGE, home)
        folders = home.split(".")[:-1]
        if _real_spec(name, [os.path.join(root, *folders) for root in roots]) is not None:
            yield importlib.import_module(name)


_then: list[Callable[[ModuleType, str], None]] = []


def when_complete(then: Callable[[ModuleType, str], None]) -> None:
    """Call ``then`` with each module of the table imported from now on, and its key."""
    if then not in _then:
        _then.append(then)


def _complete(module: ModuleType, key: str) -> None:
    """Make ``module`` answer for every name of its row."""
    if isinstance(vars(module).get("__getattr__"), _Fallback):
        return
    vars(module)["__getattr__"] = _Fallback(module, key)
    for then in _then:
        then(module, key)
    # For `from m import X` Python asks the finders about X only if m has a __path__: then we can report what is
    # missing, and hasattr(m, "X") still is False.
    if not hasattr(module, "__path__"):
        module.__path__ = []


class _CompletingLoader(Loader):
    """The real loader of a module, which completes the module after running it."""

    def __init__(self, real: Loader, key: str) -> None:
        self.real, self.key = real, key

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.real
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        self.real.exec_module(module)
        _complete(module, self.key)


class _ViewLoader(Loader):
    """Creates a module without a file: all of its names come from elsewhere."""

    def __init__(self, key: str) -> None:
        self.key = key

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # Python makes it

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"The module {ORIGINAL}.{self.key}: all it names is defined elsewhere in {PACKAGE}."
        _complete(module, self.key)


def _real_spec(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    spec = PathFinder.find_spec(fullname, path)
    # A folder without __init__.py has no file of its own: nothing exists there.
    return spec if spec is not None and spec.origin is not None else None


def _has_content(row: Row) -> bool:
    """Whether a module without a file would have any names."""
    return any(hasattr(home, name) for home in _homes(row) for name in row.names)


class ContractFinder:
    """Finds ``neonlike.<path of the table>`` and reports missing names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the table, with or without a file here.

        Parameters
        ----------
        fullname : str
            Dotted name.
        path : sequence of str or None
            Where the parent package looks for modules.
        target : module, optional
            Python's hint for a reload; ignored.

        Returns
        -------
        ModuleSpec or None
            None: the module is not the table's.

        Raises
        ------
        NotBuiltYet
            If neon has the module and this library does not.
        """
        package, _, key = fullname.partition(".")
        if package != PACKAGE or not key:
            return None
        parent, _, name = key.rpartition(".")
        if key not in CONTRACT and not (parent in CONTRACT and name in CONTRACT[parent].names):
            return None
        spec = _real_spec(fullname, path)
        if key not in CONTRACT:
            if spec is None and not _initializing(parent):
                raise NotBuiltYet(parent, name)
            return None
        if spec is not None and spec.loader is not None:
            spec.loader = _CompletingLoader(spec.loader, key)
            return spec
        if not _has_content(CONTRACT[key]):
            raise NotBuiltYet(key)
        return ModuleSpec(fullname, _ViewLoader(key), is_package=True)


def _initializing(key: str) -> bool:
    """Whether a module is still executing: missing names may still come (a circular import)."""
    module = sys.modules.get(_join(PACKAGE, key))
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def install() -> None:
    """Complete this library's modules from now on, including imported ones. Repeated calls are allowed."""
    if not any(isinstance(finder, ContractFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, ContractFinder())
    for key in CONTRACT:
        if (module := sys.modules.get(_join(PACKAGE, key))) is not None:
            _complete(module, key)


def resolve(dotted: str) -> Any:
    """Find the object of a dotted name in a saved model, such as ``neon.layers.layer.Linear``.

    Names may start with ``neon.`` or ``neonlike.``, or belong to any other importable module; a bare name is searched
    in every module of the table.

    Raises
    ------
    NotBuiltYet
        The name exists in neon, but not in this library yet.
    ImportError
        There is no such module or name.
    """
    install()
    module, _, name = dotted.rpartition(".")
    if not module:
        return _resolve_bare(name)
    package, _, key = module.partition(".")
    if package in (ORIGINAL, PACKAGE):
        module = _join(PACKAGE, key)
    found = importlib.import_module(module)
    if hasattr(found, name):
        return getattr(found, name)
    if package in (ORIGINAL, PACKAGE) and key in CONTRACT and name in CONTRACT[key].names:
        raise NotBuiltYet(key, name)
    raise ImportError(f"cannot find {dotted}: module {module} has no {name}", name=module)


def _resolve_bare(name: str) -> Any:
    keys = [key for key, row in CONTRACT.items() if name in row.names]
    for key in keys:
        try:
            return resolve(_join(PACKAGE, key, name))
        except NotBuiltYet:
            continue
    if keys:
        raise NotBuiltYet(keys[0], name)
    raise ImportError(f"cannot find {name!r}: no module of neon has that name; give the full dotted name")


def availability() -> Iterator[tuple[str, object]]:
    """Yield every dotted name of neon with its object, or the ImportError that explains its absence."""
    install()
    for key, row in CONTRACT.items():
        for name in ("", *sorted(row.names)):
            own = _join(PACKAGE, key, name)
            found: object
            try:
                found = resolve(own) if name else importlib.import_module(own)
            except ImportError as error:
                found = error
            yield _join(ORIGINAL, key, name), found
