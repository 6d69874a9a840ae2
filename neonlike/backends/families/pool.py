"""Pooling: ``pool_layer``, ``fprop_pool``, ``bprop_pool``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class PoolFamily(Family):
    """Pooling: ``pool_layer``, ``fprop_pool``, ``bprop_pool``."""
