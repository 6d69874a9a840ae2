"""What the hooks that run compiled kernels share: their backend's C compiler, and which results pass the caches by."""

from __future__ import annotations

from neonlike.backends.families.base import Family
from neonlike.backends.families.operands import Array
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.memory import LINE

STREAMED_RESULT_BYTES = 32 << 20
"""Results of convolution and pooling larger than this leave the caches before anything reads them."""


class CompiledFamily(Family):
    """Base of the families' overrides.

    Attributes
    ----------
    compiler : Compiler or None
        As it was found when the backend was made: asking the environment at each call takes longer than small kernels.
        None: the families' definitions run.
    """

    compiler: Compiler | None


def in_lines(out: Array) -> bool:
    """Whether each row of a contiguous array is whole lines of memory, as stores past the caches need."""
    return (int(address(out) or 0) | out.shape[-1] * out.itemsize) % LINE == 0
