"""Size of the vector registers, and instructions, for which the C compiler generates code on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from neonlike.kernels.c.compile import build
from neonlike.kernels.c.toolchain import Compiler
from neonlike.logger import logger

_SOURCE = """\
#if defined(__linux__) && defined(__x86_64__) && (defined(__AMX_BF16__) || defined(__AMXBF16__))
#include <sys/syscall.h>
#include <unistd.h>
int neonlike_tiles(void) { return 1; }
int neonlike_ask_for_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; } /* ARCH_REQ_XCOMP_PERM */
#else
int neonlike_tiles(void) { return 0; }
int neonlike_ask_for_tiles(void) { return 0; }
#endif
#if defined(__AMX_INT8__) || defined(__AMXINT8__)
int neonlike_byte_tiles(void) { return neonlike_tiles(); }
#else
int neonlike_byte_tiles(void) { return 0; }
#endif
#if defined(__AVX512F__)
int neonlike_vector_bytes(void) { return 64; }
#elif defined(__AVX__)
int neonlike_vector_bytes(void) { return 32; }
#else
int neonlike_vector_bytes(void) { return 16; }
#endif
#if defined(__AVX512BF16__)
int neonlike_pairs(void) { return 1; }
#else
int neonlike_pairs(void) { return 0; }
#endif
"""


@cache
def _library(compiler: Compiler) -> Any:
    return build(_SOURCE, "nl_vector_bytes", "the width of vectors", compiler)


@cache
def vector_bytes(compiler: Compiler | None) -> int:
    """Bytes of a vector register: 64, 32 or 16; 16 without a compiler."""
    return 16 if compiler is None else int(_library(compiler).neonlike_vector_bytes())


@cache
def pair_form(compiler: Compiler | None) -> int:
    """1 where compiled code multiplies pairs of bfloat16 by the processor's instruction (``pairs.h``), else 0."""
    return 0 if compiler is None else int(_library(compiler).neonlike_pairs())


@cache
def has_tiles(compiler: Compiler | None) -> bool:
    """Whether compiled code may multiply bfloat16 by Intel's tiles (``tiles.h``), once the system permits it."""
    return compiler is not None and bool(_library(compiler).neonlike_tiles())


@cache
def has_byte_tiles(compiler: Compiler | None) -> bool:
    """Whether compiled code may multiply int8 by Intel's tiles, which it may only beside bfloat16."""
    return compiler is not None and bool(_library(compiler).neonlike_byte_tiles())


def ask_for_tiles(compiler: Compiler) -> bool:
    """Ask the system to let this process use tiles, all of its threads and its forks; whether it does.

    Linux saves tiles only for processes that have asked: it refuses if a thread has an alternate stack for signals that
    is too small for them.
    """
    return bool(_library(compiler).neonlike_ask_for_tiles())


def tiles_work(permitted: bool, trials: Iterable[bool], instruction: str, instead: str) -> bool:
    """Whether products by tiles may be used: the system permits them and all trials pass; otherwise this is logged.

    Kernels of tiles were tested on an emulation alone.

    Parameters
    ----------
    permitted : bool
        What :func:`ask_for_tiles` returned.
    trials : iterable of bool
        Whether small products are exact; computed only if tiles are permitted.
    instruction : str
        The one that multiplies tiles.
    instead : str
        By what products are computed instead, for the log.
    """
    if not permitted:
        logger.info("the system does not permit tiles (AMX): %s", instead)
        return False
    if all(trials):
        return True
    logger.warning(
        "products by tiles (AMX, %s) do not work on this machine: %s. NEONLIKE_AMX=0 leaves out this test",
        instruction,
        instead,
    )
    return False
