"""Factors in bfloat16: kernels round float32 operands to pairs of bfloat16 before they multiply them (``pairs.h``).

Two numbers that follow each other along the inner dimension become one word of 32 bits. Kernels for float32 multiply
arrays of such words as they multiply floats, with half the inner dimension, and add products in float32.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from neonlike.kernels.c.simd import pair_form
from neonlike.kernels.c.toolchain import Compiler
from neonlike.optree.dtypes import BFLOAT16, DType, compute_dtype
from neonlike.optree.npfuncs import Array

INSTRUCTION, PLAIN, TILES = 1, 2, 3
"""Forms of pairs, in the numbering of ``pairs.h``: by ``vdpbf16ps``, in plain arithmetic, by tiles."""
PIECE = 1024
"""Words of which an operand's working memory is a multiple, see ``nl_pair_up``."""


def half(count: int) -> int:
    """Pairs of ``count`` numbers; the last one of an odd count is paired with zero."""
    return (count + 1) // 2


class Pairs(IntEnum):
    """Numbers that form a pair, in the numbering of ``pairs.h``."""

    ROWS = 0
    NEIGHBOURS = 1
    APART = 2
    LATER = 3


class Pairing(NamedTuple):
    """Pairs of an operand that has ``rows`` rows of ``length`` numbers, ``step`` apart.

    Attributes
    ----------
    rows, length, step : int
    kind : Pairs
        Each two rows become a row of pairs; or each two neighbours in a row a pair; or each number and the one
        ``apart`` numbers behind it, from ``before`` numbers in front of the row on. What is missing is zero.
        ``LATER``: rows that the kernel itself pairs as it reads them, without working memory.
    before, apart : int
    stored : bool
        Whether the numbers are bfloat16, not float32.
    """

    rows: int
    length: int
    step: int
    kind: Pairs
    before: int = 0
    apart: int = 0
    stored: bool = False

    @property
    def line(self) -> int:
        """Words of a line of pairs."""
        return half(self.length) if self.kind is Pairs.NEIGHBOURS else self.length + self.before

    @property
    def words(self) -> int:
        """Words of working memory."""
        if self.kind is Pairs.LATER:
            return 0
        lines = half(self.rows) if self.kind is Pairs.ROWS else self.rows
        return -(-lines * self.line // PIECE) * PIECE

    @property
    def steps_of_numbers(self) -> tuple[int, int]:
        """Numbers between those that follow each other along the outer and the inner dimension of a matrix."""
        return (1, self.step) if self.kind is Pairs.ROWS else (self.step, 1)

    @property
    def steps(self) -> tuple[int, int]:
        """Words between pairs along the outer and the inner dimension of a matrix."""
        return (1, self.line) if self.kind is Pairs.ROWS else (self.line, 1)


def form_of(dtypes: set[str], pairs: int, compiler: Compiler | None) -> int:
    """The form of pairs for factors of these dtypes as they are stored, see ``pairs.h``; 0: none.

    bfloat16 is multiplied as it is wherever there is an instruction for pairs; ``pairs`` is the form for float32.

    Parameters
    ----------
    dtypes : set of str
        Names of dtypes.
    pairs : int
    compiler : Compiler or None
    """
    if dtypes == {BFLOAT16}:
        return pairs or pair_form(compiler)
    return pairs if dtypes <= {"float32", BFLOAT16} else 0


def spoken(pairs: int, dtype: DType, compiler: Compiler | None) -> str:
    """Precision in which a kernel for tensors of ``dtype`` multiplies, and the instruction, for reports.

    Parameters
    ----------
    pairs : int
        The form of pairs; 0: none.
    dtype : dtype
    compiler : Compiler or None
    """
    if not pairs:
        return compute_dtype(dtype).name
    if pairs == TILES:
        return "bfloat16 by tdpbf16ps"
    return "bfloat16 by vdpbf16ps" if pairs == INSTRUCTION == pair_form(compiler) else "bfloat16 in plain arithmetic"


def context_of(pairs: int) -> dict[str, int]:
    """Context of a template that multiplies pairs of this form; float32 has none, and kernels of it their own names."""
    return {"pairs": pairs} if pairs else {}


def factor_steps(a: Array, b: Array) -> tuple[int, ...]:
    """Numbers between elements of factors (m, k) and (k, n), by row and by column of each, to make pairs along k.

    Of each factor one step is 1, also where it has one row or column; none are returned if a factor has neither
    contiguous rows nor columns.
    """
    one, other = pairing_of(a), pairing_of(b.T)
    return () if one is None or other is None else (*one.steps_of_numbers, *reversed(other.steps_of_numbers))


def pairing_of(x: Array) -> Pairing | None:
    """The pairs of a factor (outer, inner) along its inner dimension; None if neither dimension is contiguous."""
    (outer, inner), (across, along) = x.shape, (step // x.itemsize for step in x.strides)
    if along == 1 or inner == 1:
        return Pairing(outer, inner, across, Pairs.NEIGHBOURS)
    return Pairing(inner, outer, along, Pairs.ROWS) if across == 1 or outer == 1 else None
