"""Fusion of a bias and a rectifier into the call of a convolution, or of a product in int8."""

from __future__ import annotations

from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import Layer
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.chain import taken_over
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.transforms import Rectlin


def rectifier(layer: Layer) -> Rectlin | None:
    """Return the transform of ``layer`` if it is a plain in-place rectifier, not a subclass."""
    plain = type(layer) is Activation and type(layer.transform) is Rectlin and not layer.owns_output
    return layer.transform if plain else None  # type: ignore[attr-defined]


class EpilogueLayer(ParameterLayer):
    """Base of layers that can add a bias per map, or feature, and rectify in the same call."""

    has_bias = False
    """Whether the layer has a bias of its own, available from ``own_bias`` after allocation."""

    def own_bias(self) -> Any:
        """The layer's own bias (maps, 1), or None."""
        return None

    def takes_over(self, following: Layer) -> bool:
        """Take over a bias layer if there is no bias yet, then a rectifier; neither if the outputs are summed."""
        if self.batch_sum_shape is not None or any(isinstance(layer, Activation) for layer in self.folded):
            return False
        if type(following) is Bias:
            return not (self.folded or self.has_bias or following.owns_output)
        return rectifier(following) is not None

    def epilogue(self, outputs: Tensor) -> tuple[Any, bool, float]:
        """Bias, whether to rectify, and the slope below zero, for the call that writes ``outputs``."""
        bias = self.own_bias()
        if not (following := taken_over(self)):
            return bias, False, 0.0
        self.finished = outputs
        first, last = following[0], following[-1]
        if isinstance(first, Bias):
            bias = first.W
        transform = rectifier(last)
        return bias, transform is not None, 0.0 if transform is None else float(transform.slope)
