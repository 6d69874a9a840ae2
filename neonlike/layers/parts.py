"""Parts of buffers, for fewer samples than a batch."""

from __future__ import annotations

from typing import Any

from neonlike.backends.backend import Tensor


def first_part(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """A contiguous tensor (rows, columns) in the memory of a larger ``buffer``, in new memory if that is strided."""
    if not buffer.is_contiguous:
        found: Tensor = buffer.backend.empty((rows, columns), dtype=buffer.dtype)
        return found
    return buffer.reshape(1, -1)[:, : rows * columns].reshape(rows, columns)


def part_of(layer: Any, role: str, buffer: Tensor, columns: int) -> Tensor:
    """:func:`first_part` of a layer's ``buffer`` with all its rows, kept under ``role`` for the next call that asks."""
    parts = layer.__dict__.setdefault("_parts", {})
    kept = parts.get(role)
    if kept is None or kept[0] is not buffer or kept[1].shape[1] != columns:
        parts[role] = kept = (buffer, first_part(buffer, buffer.shape[0], columns))
    found: Tensor = kept[1]
    return found
