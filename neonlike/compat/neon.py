"""Alias of this library: importing this module makes ``import neon`` mean ``neonlike``, path by path.

The same module objects appear under both names, so classes compare and pickle as one. If a real package called neon can
be imported, it is not shadowed silently: the import raises, unless the environment variable ``NEONLIKE_COMPAT_FORCE``
is set. Forms listed in :mod:`neonlike.optree.dialect` get neon's meaning, functions listed in
:mod:`neonlike.compat.calls` neon's arguments, and NumPy its dropped names.

``import nervanagpu``, neon's earlier GPU library, is answered, too. With ``NEONLIKE_BACKEND=cpu`` its programs run on
the CPU, and ``pycuda`` is a stand-in with events.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from neonlike import settings
from neonlike.compat import calls, contract
from neonlike.compat.contract import ORIGINAL, PACKAGE
from neonlike.compat.numpy_names import restore
from neonlike.optree.dialect import use_neon

OTHERS = {
    "nervanagpu": "compat.nervanagpu", "nervanagpu.nervanagpu": "compat.nervanagpu",
    "nervanagpu.layers": "compat.nervanagpu_layers",
    "pycuda": "compat.cuda_events", "pycuda.driver": "compat.cuda_events", "pycuda.autoinit": "compat.cuda_events",
    "pycuda.autoprimaryctx": "compat.cuda_events",
}  # fmt: skip
"""Further alias names -> modules of this library."""


class _AliasLoader(Loader):
    """Replaces the module that Python creates for a neon name by this library's module."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        other = OTHERS.get(name)
        target = f"{PACKAGE}.{other}" if other else PACKAGE + name.removeprefix(ORIGINAL)
        try:
            sys.modules[name] = importlib.import_module(target)
        except ModuleNotFoundError as error:
            if error.name != target:
                raise
            raise ModuleNotFoundError(
                f"No module named {name!r}: neither neon nor {PACKAGE} has it", name=name
            ) from None


class AliasFinder(MetaPathFinder):
    """Finds ``neon`` and everything below it, and :data:`OTHERS`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module below ``neon``, which loading makes one of this library.

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
            None: the name is not neon's.
        """
        if fullname.partition(".")[0] != ORIGINAL and not _answers(fullname):
            return None
        return ModuleSpec(fullname, _AliasLoader(), is_package=True)


def _answers(name: str) -> bool:
    """Whether to answer for a name of :data:`OTHERS`: PyCUDA's on the CPU, nervanagpu's if no real one exists."""
    if name not in OTHERS:
        return False
    root = name.partition(".")[0]
    if root == "pycuda":
        return settings.BACKEND.get() == "cpu"
    spec = PathFinder.find_spec(root)
    return spec is None or spec.origin is None


def _real_neon() -> str | None:
    """Location of another package called neon, if one can be imported."""
    loaded = sys.modules.get(ORIGINAL)
    if loaded is not None:
        return None if loaded.__name__ == PACKAGE else str(getattr(loaded, "__file__", "memory"))
    spec = PathFinder.find_spec(ORIGINAL)
    return None if spec is None else spec.origin  # a bare folder called neon has no origin and hides nothing


def install(force: bool = False) -> None:
    """Make ``neon`` an alias of this library; a second call changes nothing.

    Raises
    ------
    ImportError
        If there is a real package called neon and ``force`` is not set.
    """
    contract.install()
    calls.install()
    use_neon()
    restore()
    if any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        return
    if (place := _real_neon()) is not None:
        if not force:
            raise ImportError(
                f"a real package called {ORIGINAL} is at {place}: {PACKAGE}.compat.neon does not hide it. "
                f"Uninstall it, or set {settings.COMPAT_FORCE.name}=1 to use {PACKAGE} in its place",
                name=ORIGINAL,
            )
        for name in [name for name in sys.modules if name.partition(".")[0] == ORIGINAL]:
            del sys.modules[name]
    sys.meta_path.insert(0, AliasFinder())


install(force=settings.COMPAT_FORCE.get())
