"""The machine's C compiler builds an extension of CPython, which runs again, without Python, work that was done before.

Between ``Tensor.__setitem__`` and a kernel, Python walks the expression, looks for its plan and collects addresses.
``templates/c/fastpath/fastpath.c`` does the same for assignments whose plan is C kernels and matrix products, or
launches on a GPU. It also runs calls of primitives and recorded passes again, and builds the nodes of expressions. It
is compiled where Python's headers are, in the background, and kept in the cache of kernels; until it is there, and for
all else, Python does the work. ``NEONLIKE_FASTPATH=0`` goes without it.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neonlike import settings
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.process import CompilerRefused
from neonlike.kernels.c import fastbuild, layout
from neonlike.kernels.c.toolchain import Compiler, architecture, compile_object, confirm, find_compiler
from neonlike.kernels.codegen.render import header_texts, template_text
from neonlike.kernels.run import forks
from neonlike.logger import logger
from neonlike.optree.calls import PART
from neonlike.optree.ops import OPS, Kind, OpSpec

NAME, SOURCE = "nlfast", "c/fastpath/fastpath.c"
SUFFIX = ".extension"
"""Of the file in the cache: not that of kernels, which are counted."""
_PARTS = (
    "places", "words", "walk", "nodes", "asked", "recalled", "views", "builders", "device", "program", "table",
    "assignments", "calls", "checked", "copies", "classes", "guard",
)  # fmt: skip
HEADERS = (*(f"fastpath/fastpath_{part}.h" for part in _PARTS), "packed.h")


class _State:
    """State of the extension in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.module: Any = None
        self.asked = False
        self.thread: threading.Thread | None = None
        self.waiting: list[weakref.WeakMethod[Callable[[Any], None]]] = []


_state = _State()


def request(adopt: Callable[[Any], None]) -> None:
    """Call the method ``adopt`` with the extension: now if it is in the cache, else once it is compiled, if ever.

    Compiling goes on in a thread, which holds no reference to the method's object.
    """
    with _state.lock:
        _ask()
        if _state.module is None:
            if _state.thread is not None and _state.thread.is_alive():
                _state.waiting.append(weakref.WeakMethod(adopt))
            return
    adopt(_state.module)


def loaded() -> Any:
    """The extension, if it is there; None while it is not."""
    return _state.module


def asked_for() -> Any:
    """The extension, if it is there or in the cache; else None, and it is compiled in the background."""
    if _state.module is None:
        with _state.lock:
            _ask()
    return _state.module


def build() -> bool:
    """Have the extension in the cache; whether it is there now. Waits for the compiler."""
    compiler = _usable_compiler()
    if compiler is None:
        return False
    return _find(compiler) is not None or _compile(compiler) is not None


def obstacle() -> str:
    """Why this interpreter or setting has no use for the extension; empty if it does."""
    if not settings.FASTPATH.get():
        return "NEONLIKE_FASTPATH=0"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python is no CPython with a global interpreter lock"
    if sys.platform == "win32":
        return "extensions are not built on Windows"
    if not (_include() / "Python.h").is_file():
        return f"there is no Python.h in {_include()}"
    return ""


def _include() -> Path:
    return Path(sysconfig.get_paths()["include"])


def _usable_compiler() -> Compiler | None:
    if reason := obstacle():
        logger.debug("Python starts all kernels: %s", reason)
        return None
    return find_compiler()


def _ask() -> None:
    """Load the extension or begin to compile it, once. The lock is held."""
    if _state.module is None and not _state.asked:
        _state.asked = True
        _load_or_compile()


def _load_or_compile() -> None:
    """Load the extension from the cache, or begin to compile it. The lock is held."""
    compiler = _usable_compiler()
    if compiler is None:
        return
    path = _find(compiler)
    if path is not None:
        _state.module = _load(path)
    else:
        thread = threading.Thread(target=_in_background, args=(compiler,), name="neonlike-cc-fastpath")
        with contextlib.suppress(RuntimeError):  # the program ends, or the system has no more threads
            thread.start()
            _state.thread = thread


def _in_background(compiler: Compiler) -> None:
    try:
        path = _compile(compiler)
        module = None if path is None else _load(path)
        if module is None:
            return
        with _state.lock:
            _state.module = module
            waiting, _state.waiting = _state.waiting, []
        for reference in waiting:
            if (adopt := reference()) is not None:
                adopt(module)
    except Exception:  # in a thread, with nobody to tell: Python goes on without
        logger.info("Python starts all kernels", exc_info=True)


def _find(compiler: Compiler) -> Path | None:
    return default_cache().get(_key(compiler), SUFFIX)


def _command(compiler: Compiler) -> tuple[str, ...]:
    flags = compiler.flags
    if sys.platform == "darwin":
        flags += ("-undefined", "dynamic_lookup")
    return (*compiler.command, *flags, f"-I{_include()}")


def _key(compiler: Compiler) -> str:
    """Where the extension lies in the cache: one for each build of Python."""
    texts = (template_text(SOURCE), *_headers().values())
    python = (sys.version, str(sysconfig.get_config_var("SOABI")))
    return key_of("fastpath", architecture(), compiler.identity, json.dumps(_command(compiler)), *python, *texts)


def _headers() -> dict[str, str]:
    return header_texts(HEADERS) | {layout.HEADER: layout.header()}


def _compile(compiler: Compiler) -> Path | None:
    """Compile the extension into the cache; None if that fails, which only costs time."""
    compiler = confirm(compiler)
    try:
        data = compile_object(_command(compiler), "fastpath", template_text(SOURCE), _headers())
        return default_cache().put(_key(compiler), data, SUFFIX)
    except (CompilerRefused, OSError) as error:
        logger.info("Python starts all kernels: the extension that does it faster does not compile: %s", error)
        return None


def _load(path: Path) -> Any:
    """The extension, ready for use; None if it does not load."""
    name = f"{__package__}.{NAME}"
    try:
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        fastbuild.set_up(module, keyed)
        fastbuild.install(module)
    except (ImportError, TypeError) as error:
        logger.info("Python starts all kernels: the extension does not load: %s", error)
        return None
    if forks.forked:
        module.after_fork()
    return module


_MOVES = {
    "transpose": ("axes",), "broadcast": ("shape",), "onehot": ("axis",), "classes": ("axis",), "concat": ("axis",),
    "view": ("layout", "picks"), "unview": ("layout", "shape"),
    "take": ("axis",), "untake": ("axis", "shape"), "take_along": ("axis",), "untake_along": ("axis", "shape"),
    "rand": ("seed", "call"),
    "cumsum": ("axis", "reverse"), "cumprod": ("axis", "reverse"), "argsort": ("axis", "descending", "shape"),
}  # fmt: skip
"""Ops that show a tensor otherwise, move elements or draw them: with what of their attributes the extension tells them
apart. Those of ``rand`` are numbers, which each run is given."""


def keyed(spec: OpSpec) -> tuple[str, ...] | None:
    """Names of the attributes of ``spec`` that belong to a plan's key; None for ops that are left to Python.

    ``CEngine.program`` asks this without the extension too: with ``NEONLIKE_FASTPATH=0`` prepared assignments are still
    programs, which Python runs.
    """
    if spec.kind in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION):
        return spec.keyed
    if spec is PART:
        return ("part",)
    if spec.kind is Kind.CALL:
        return ("request",)
    return _MOVES.get(spec.name) if OPS.get(spec.name) is spec else None


def _after_fork() -> None:
    """In the child no thread is left that would compile or release the lock."""
    global _state
    module = _state.module
    _state = _State()
    if module is not None:
        module.after_fork()
        _state.module, _state.asked = module, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
