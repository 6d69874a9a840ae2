"""Scratch memory and staging: ``scratch_buffer`` and the like, ``consume``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class ScratchFamily(Family):
    """Scratch memory and staging: ``scratch_buffer`` and the like, ``consume``."""
