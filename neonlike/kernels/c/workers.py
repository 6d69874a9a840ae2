"""The worker threads on which compiled kernels share their work: ``templates/c/workers.c``, compiled once.

A kernel that shares work (it includes ``team.h``) is given the workers when it is loaded. Where their code does not
compile, kernels run on the thread that calls them.
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

SUFFIX = ".workers"
"""Of the file in the cache: not that of kernels, which are counted."""
HEADER = "team.h"

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_asked = False


def give(library: ctypes.CDLL, compiler: Compiler) -> None:
    """Let the kernels of ``library`` share work, if they can; compiles the code of the workers if nobody did before."""
    use = getattr(library, "nl_use_workers", None)
    if use is not None and (address := _address(compiler)) is not None:
        use.argtypes, use.restype = (ctypes.c_void_p,), None
        use(address)


def _address(compiler: Compiler) -> int | None:
    """Address of the workers, those of the process whichever compiler made them; None where there are none."""
    global _library, _asked
    with _lock:
        if not _asked:
            try:
                _library = _load(compiler)
            except (CompilerRefused, OSError, ValueError) as error:
                logger.warning("kernels run on one thread, as the code of worker threads does not compile: %s", error)
            _asked = True  # not before: a fork that another thread makes meanwhile asks itself
        return None if _library is None else ctypes.addressof(ctypes.c_char.in_dll(_library, "nl_the_workers"))


def _load(compiler: Compiler) -> ctypes.CDLL:
    text, header = (template_text(f"c/{name}") for name in ("workers.c", HEADER))
    command = (*compiler.command, *compiler.flags, "-pthread")
    key = key_of("c-workers", architecture(), compiler.identity, json.dumps([command, LIBRARIES]), text, header)
    library = load_cached(key, "the worker threads", SUFFIX)
    return library or store_and_load(key, compile_object(command, "workers", text, {HEADER: header}), SUFFIX)


def _after_fork() -> None:
    """In the child no thread is left that would release the lock, or put back another library's number of threads.

    The workers themselves start anew there: see workers.c.
    """
    global _lock
    _lock = threading.Lock()
    if _library is not None:
        _library.nl_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
