"""Containers that merge branches: ``fprop_mergesum``, ``fprop_mergebroadcast`` and their backward forms."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class MergeFamily(Family):
    """Containers that merge branches: ``fprop_mergesum``, ``fprop_mergebroadcast`` and their backward forms."""
