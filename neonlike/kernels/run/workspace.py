"""Memory that kernels work in: kept from call to call, for each thread that calls.

Fresh memory costs as much as what is done in it: its pages are cleared by the system when they are first touched.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.kernels.run.memory import ALIGNED_FROM, aligned_empty
from neonlike.kernels.run.reuse import pieces
from neonlike.optree.dtypes import DType

kept = threading.local()
"""Its ``memory`` is what :func:`held_workspace` returned last in this thread."""
KEPT_BYTES = 64 << 20
"""Larger memory is lent for the call alone (see :mod:`.reuse`)."""

_BYTE = np.dtype(np.uint8)


def workspace(elements: int, dtype: DType) -> npt.NDArray[Any]:
    """An uninitialised vector that starts at a cache line, valid until the same thread asks for another."""
    needed = elements * dtype.itemsize
    found: npt.NDArray[Any] = held_workspace(needed)[0][:needed].view(dtype)
    return found


def held_workspace(needed: int) -> tuple[npt.NDArray[Any], int, int]:
    """At least so many bytes, as :func:`workspace`, where they lie, and how many; hold the array while you use them."""
    held: tuple[npt.NDArray[Any], int, int] | None = getattr(kept, "memory", None)
    if held is None or held[2] < needed:
        keep = needed <= KEPT_BYTES
        memory = aligned_empty((max(needed, ALIGNED_FROM),), _BYTE) if keep else pieces.piece(needed)
        held = memory, int(memory.__array_interface__["data"][0]), memory.nbytes
        kept.memory = held if keep else None
    return held


def kept_bytes() -> int:
    """Bytes that the calling thread keeps."""
    held = getattr(kept, "memory", None)
    return 0 if held is None else int(held[2])


def release_workspace() -> None:
    """Give back what the calling thread keeps; what other threads keep goes when they end."""
    kept.memory = None
