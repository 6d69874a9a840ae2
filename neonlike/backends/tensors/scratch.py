"""Scratch memory shared by primitives and scripts: sized in advance, assigned by offset, never freed in between."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, OutOfMemory

GRANULE = 128
"""Sizes and offsets are multiples of this many bytes."""


class ScratchTooSmall(NeonlikeError, RuntimeError):
    """A request exceeds the scratch memory provided by ``set_scratch_size``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> try:
    ...     be.scratch_buffer(1024)
    ... except ScratchTooSmall:
    ...     print("call set_scratch_size first")
    call set_scratch_size first
    """


class ScratchFamily(Family):
    """``set_scratch_size`` before use; then ``scratch_buffer``, and ``scratch_buffer_offset`` for further buffers.

    Attributes
    ----------
    scratch_size : int
        Available bytes. Memory is allocated on first use.
    scratch_offset : int
        Assigned bytes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.set_scratch_size(1024)
    >>> be.scratch_size
    1024
    """

    scratch_size: int = 0
    scratch_offset: int = 0
    _scratch: Any = None
    _scratch_outgrown: tuple[Any, ...] = ()

    def set_scratch_size(self, *args: int) -> None:
        """Reserve space for buffers of the sizes ``args``, in bytes, at the same time; the size never shrinks.

        Raises
        ------
        DTypeError, ArgumentError
            If a size is not an integer, or negative.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_scratch_size(1000, 100)
        >>> be.scratch_size
        1152
        """
        self.scratch_size = max(self.scratch_size, sum(_rounded("set_scratch_size", size) for size in args))

    def scratch_buffer(self, size: int) -> int:
        """Return the address of ``size`` bytes at the start of the scratch memory, releasing earlier buffers.

        Raises
        ------
        ScratchTooSmall
            If fewer are available (a RuntimeError, too).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_scratch_size(1000)
        >>> be.scratch_buffer(100) % 128
        0
        """
        needed = self._fitting("scratch_buffer", size, 0)
        base = self._scratch_base()
        self.scratch_offset = needed
        return base

    def scratch_buffer_offset(self, size: int) -> int:
        """Return the address of ``size`` bytes after all assigned buffers.

        Raises
        ------
        ScratchTooSmall
            If fewer remain (a RuntimeError, too).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_scratch_size(512, 512)
        >>> first = be.scratch_buffer(512)
        >>> be.scratch_buffer_offset(512) - first
        512
        """
        needed = self._fitting("scratch_buffer_offset", size, self.scratch_offset)
        address = self._scratch_base() + self.scratch_offset
        self.scratch_offset += needed
        return address

    def scratch_buffer_init(self) -> None:
        """Release all buffers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_scratch_size(512)
        >>> first = be.scratch_buffer(512)
        >>> be.scratch_buffer_init()
        >>> be.scratch_offset
        0
        """
        self.scratch_offset = 0
        self._scratch_outgrown = ()

    def scratch_buffer_reset(self) -> None:
        """Release all buffers and the memory, and reset its size.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_scratch_size(512)
        >>> be.scratch_buffer_reset()
        >>> be.scratch_size
        0
        """
        self.scratch_buffer_init()
        self.scratch_size = 0
        self._scratch = None

    def _fitting(self, name: str, size: int, used: int) -> int:
        """``size`` rounded up, if that fits after the ``used`` bytes."""
        self.check_open(name)
        needed = _rounded(name, size)
        if used + needed > self.scratch_size:
            raise ScratchTooSmall(
                f"{name}: {needed} bytes asked for, {self.scratch_size - used} of {self.scratch_size} are left; "
                "call set_scratch_size with all sizes first"
            )
        return needed

    def _scratch_base(self) -> int:
        """Address of the scratch memory, allocated now if missing or too small."""
        if self._scratch is None or self._scratch.size < self.scratch_size + GRANULE:
            if self._scratch is not None and self.scratch_offset:  # addresses remain valid until the next init
                self._scratch_outgrown = (*self._scratch_outgrown, self._scratch)
            try:
                self._scratch = np.empty(self.scratch_size + GRANULE, np.uint8)
            except (MemoryError, ValueError):
                raise OutOfMemory(f"scratch_buffer: no memory for {self.scratch_size} bytes; ask for fewer") from None
        start: int = self._scratch.__array_interface__["data"][0]
        return start + -start % GRANULE


def _rounded(name: str, size: Any) -> int:
    """``size`` rounded up to a multiple of the granule."""
    if not isinstance(size, numbers.Integral) or isinstance(size, bool):
        raise DTypeError(f"{name}: sizes are integers, in bytes; got {brief(size)}")
    if size < 0:
        raise ArgumentError(f"{name}: sizes must not be negative, got {size}")
    return -(-int(size) // GRANULE) * GRANULE
