"""Names of ``nervanagpu.layers``: neon's layers for timing kernels, not geometries."""

from neonlike.compat.layer_gpu import BatchNorm, DataLayer, FullLayer, Inception, Layer
from neonlike.compat.layer_gpu import Convolution as ConvLayer
from neonlike.compat.layer_gpu import Pooling as PoolLayer

__all__ = ["BatchNorm", "ConvLayer", "DataLayer", "FullLayer", "Inception", "Layer", "PoolLayer"]
