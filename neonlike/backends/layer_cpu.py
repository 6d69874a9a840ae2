"""neon's module path of the CPU's layer objects, the results of ``be.conv_layer``, ``be.pool_layer`` and similar."""

from neonlike.backends.geometry.conv import ConvGeometry as ConvLayer
from neonlike.backends.geometry.conv import DeconvGeometry as DeconvLayer
from neonlike.backends.geometry.pool import PoolGeometry as PoolLayer

__all__ = ["ConvLayer", "DeconvLayer", "PoolLayer"]
