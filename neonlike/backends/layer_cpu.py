"""neon's module path of the CPU's layer objects: what ``be.pool_layer`` and the like return."""

from neonlike.backends.geometry.pool import PoolGeometry as PoolLayer

__all__ = ["PoolLayer"]
