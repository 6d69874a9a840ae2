"""Size of the vector registers for which the C compiler generates code on this machine."""

from __future__ import annotations

from functools import cache

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
"""


@cache
def vector_bytes(compiler: Compiler | None) -> int:
    """Bytes of a vector register: 64, 32 or 16; 16 without a compiler."""
    if compiler is None:
        return 16
    return int(build(_SOURCE, "nl_vector_bytes", "the width of vectors", compiler).neonlike_vector_bytes())
