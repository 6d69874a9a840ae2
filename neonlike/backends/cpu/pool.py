"""Compiled kernels of the pool family, for the hooks of ``families/pool.py``."""

from __future__ import annotations

from neonlike.backends.families.pool import PoolFamily


class PoolKernels(PoolFamily):
    """Overrides of PoolFamily's hooks."""
