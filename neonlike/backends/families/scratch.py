"""Scratch memory that primitives and scripts share: sized ahead, handed out by offset, never freed in between."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from neonlike.backends.families.base import Family
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, OutOfMemory

GRANULE = 128
"""Sizes are multiples of so many bytes, and buffers start at one."""


class ScratchTooSmall(NeonlikeError, RuntimeError):
    """More scratch memory was asked for than ``set_scratch_size`` provided."""


class ScratchFamily(Family):
    """``set_scratch_size`` ahead of use; then ``scratch_buffer``, and ``scratch_buffer_offset`` for more beside it.

    Attributes
    ----------
    scratch_size : int
        Bytes there are. Memory is taken when it is first asked for.
    scratch_offset : int
        Bytes handed out.
    """

    scratch_size: int = 0
    scratch_offset: int = 0
    _scratch: Any = None
    _scratch_outgrown: tuple[Any, ...] = ()

    def set_scratch_size(self, *args: int) -> None:
        """Provide for buffers of the sizes ``args``, in bytes, at the same time; never less than before.

        Raises
        ------
        DTypeError, ArgumentError
            If a size is no integer, or negative.
        """
        self.scratch_size = max(self.scratch_size, sum(_rounded("set_scratch_size", size) for size in args))

    def scratch_buffer(self, size: int) -> int:
        """Address of ``size`` bytes, from the start of the scratch memory: what was handed out before is given up.

        Raises
        ------
        ScratchTooSmall
            If there are fewer (a RuntimeError too).
        """
        needed = self._fitting("scratch_buffer", size, 0)
        base = self._scratch_base()
        self.scratch_offset = needed
        return base

    def scratch_buffer_offset(self, size: int) -> int:
        """Address of ``size`` bytes beside all that was handed out.

        Raises
        ------
        ScratchTooSmall
            If there are fewer left (a RuntimeError too).
        """
        needed = self._fitting("scratch_buffer_offset", size, self.scratch_offset)
        address = self._scratch_base() + self.scratch_offset
        self.scratch_offset += needed
        return address

    def scratch_buffer_init(self) -> None:
        """Give up all that was handed out."""
        self.scratch_offset = 0
        self._scratch_outgrown = ()

    def scratch_buffer_reset(self) -> None:
        """Give up all that was handed out, the memory, and its size."""
        self.scratch_buffer_init()
        self.scratch_size = 0
        self._scratch = None

    def _fitting(self, name: str, size: int, used: int) -> int:
        """``size`` rounded up, if so many bytes follow the ``used`` ones."""
        self.check_open(name)
        needed = _rounded(name, size)
        if used + needed > self.scratch_size:
            raise ScratchTooSmall(
                f"{name}: {needed} bytes asked for, {self.scratch_size - used} of {self.scratch_size} are left; "
                "call set_scratch_size with all sizes first"
            )
        return needed

    def _scratch_base(self) -> int:
        """Address of the scratch memory, taken now if it is not there or too small."""
        if self._scratch is None or self._scratch.size < self.scratch_size + GRANULE:
            if self._scratch is not None and self.scratch_offset:  # its addresses stay good until the next init
                self._scratch_outgrown = (*self._scratch_outgrown, self._scratch)
            try:
                self._scratch = np.empty(self.scratch_size + GRANULE, np.uint8)
            except (MemoryError, ValueError):
                raise OutOfMemory(f"scratch_buffer: no memory for {self.scratch_size} bytes; ask for fewer") from None
        start: int = self._scratch.__array_interface__["data"][0]
        return start + -start % GRANULE


def _rounded(name: str, size: Any) -> int:
    """``size`` as the next multiple of the granule."""
    if not isinstance(size, numbers.Integral) or isinstance(size, bool):
        raise DTypeError(f"{name}: sizes are integers, in bytes; got {brief(size)}")
    if size < 0:
        raise ArgumentError(f"{name}: sizes must not be negative, got {size}")
    return -(-int(size) // GRANULE) * GRANULE
