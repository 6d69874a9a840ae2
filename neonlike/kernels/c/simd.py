"""Size of the vector registers, and instructions, for which the C compiler generates code on this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

from neonlike.kernels.c.compile import build
from neonlike.kernels.c.toolchain import Compiler

_SOURCE = """\
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
