"""The one pool of threads on which compiled kernels share their work: ``templates/c/pool.c``, compiled once.

A kernel that shares work (it includes ``team.h``) is given the pool when it is loaded. Where the pool does not compile,
kernels run on the thread that calls them.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading

from neonlike.kernels.build.cache import key_of
from neonlike.kernels.build.process import CompilerRefused
from neonlike.kernels.c.toolchain import (
    LIBRARIES,
    Compiler,
    architecture,
    compile_object,
    load_cached,
    store_and_load,
)
from neonlike.kernels.codegen.render import template_text
from neonlike.logger import logger

SUFFIX = ".pool"
"""Of the file in the cache: not that of kernels, which are counted."""
HEADER = "team.h"

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_asked = False


def give(library: ctypes.CDLL, compiler: Compiler) -> None:
    """Let the kernels of ``library`` share work on the pool, if they can; compiles the pool if nobody did before."""
    use = getattr(library, "nl_use_pool", None)
    if use is not None and (pool := _pool(compiler)) is not None:
        use.argtypes, use.restype = (ctypes.c_void_p,), None
        use(pool)


def _pool(compiler: Compiler) -> int | None:
    """Address of the pool, one for the process whichever compiler made it; None where there is none."""
    global _library, _asked
    with _lock:
        if not _asked:
            try:
                _library = _load(compiler)
            except (CompilerRefused, OSError, ValueError) as error:
                logger.warning("kernels run on one thread, because their pool of threads does not compile: %s", error)
            _asked = True  # not before: a fork that another thread makes meanwhile asks itself
        return None if _library is None else ctypes.addressof(ctypes.c_char.in_dll(_library, "nl_the_pool"))


def _load(compiler: Compiler) -> ctypes.CDLL:
    text, header = (template_text(f"c/{name}") for name in ("pool.c", HEADER))
    command = (*compiler.command, *compiler.flags, "-pthread")
    key = key_of("c-pool", architecture(), compiler.identity, json.dumps([command, LIBRARIES]), text, header)
    library = load_cached(key, "the pool of threads", SUFFIX)
    return library or store_and_load(key, compile_object(command, "pool", text, {HEADER: header}), SUFFIX)


def _after_fork() -> None:
    """In the child no thread is left that would release the lock, or put back another library's number of threads.

    The pool itself starts anew there: see pool.c.
    """
    global _lock
    _lock = threading.Lock()
    if _library is not None:
        _library.nl_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
