"""Layers as units: a layer with weights together with the bias layer behind it, as other libraries have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from neonlike.exchange.places import leaves
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.parameter import StoredLayer
from neonlike.layers.dense.linear import Linear
from neonlike.layers.images.convolution import Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconvolution
from neonlike.layers.images.depthwise import DepthwiseConvolution

if TYPE_CHECKING:
    from neonlike.layers.container import LayerContainer
    from neonlike.layers.core.base import Layer

TAKES_BIAS = (Linear, Convolution, DepthwiseConvolution, Deconvolution)
"""Layers whose bias is a layer of its own behind them."""


class Unit(NamedTuple):
    """A layer with weights, and the bias layer behind it.

    Attributes
    ----------
    path : str
        Place of the layer, see :func:`~neonlike.exchange.places.leaves`.
    layer : Layer
    bias : Bias or None
    """

    path: str
    layer: Any
    bias: Bias | None

    @property
    def bias_parameter(self) -> tuple[Layer, str] | None:
        """Layer and name of the bias; None without one."""
        if self.bias is not None:
            return self.bias, "W"
        return (self.layer, "weight_bias") if isinstance(self.layer, Convolution_bias) else None


def units(network: LayerContainer) -> list[Unit]:
    """The units of a network, in the order of the forward pass."""
    found: list[Unit] = []
    before: Layer | None = None
    for path, layer in leaves(network):
        if isinstance(layer, Bias) and before is not None and type(before) in TAKES_BIAS and layer.prev_layer is before:
            found[-1] = found[-1]._replace(bias=layer)
        elif isinstance(layer, StoredLayer):
            found.append(Unit(path, layer, None))
        before = layer
    return found
