"""neon's module path of the CPU's layer objects: what ``be.conv_layer``, ``be.pool_layer`` and the like return."""

from neonlike.backends.geometry.conv import ConvGeometry as ConvLayer
from neonlike.backends.geometry.conv import DeconvGeometry as DeconvLayer
from neonlike.backends.geometry.pool import PoolGeometry as PoolLayer

__all__ = ["ConvLayer", "DeconvLayer", "PoolLayer"]
