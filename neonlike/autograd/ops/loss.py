"""Losses."""

from __future__ import annotations

__all__: list[str] = []
DOCUMENT_NAMES: dict[str, object] = {}
