"""Folding: layers include the work of their successors in the same backend call.

A convolution adds a bias and rectifies its results, and so does a fully connected layer that multiplies in int8. Other
fully connected layers rectify. Batch normalization rectifies, and includes the rectifier's derivative in its backward
pass. A bias layer with one bias per feature includes the activation that follows, any of ``bias.EXPRESSIONS``: that is
all that is folded in a multilayer perceptron with biases. Batch normalization also sums its inputs itself, since it has
to read them anyway: a convolution that sums its results takes 4 to 7 % longer (2 cores of an AMD EPYC, 64 images of
64 x 32 x 32 and 256 x 8 x 8).

A chain (Sequential) asks each layer for the following layers that it takes over. These layers recognize by the tensor
that an input is already finished, or that an error is left to them. Outside the passes of a chain, all layers do their
own work.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import Layer
from neonlike.layers.core.chain import running


def fold(layers: Sequence[Layer]) -> None:
    """Let each layer of a chain take over its successors, as far as ``takes_over`` allows."""
    unfold(layers)
    for layer in layers:
        layer.neighbours = tuple(layers)
    taker: Layer | None = None
    for layer in layers:
        if taker is not None and taker.takes_over(layer):
            taker.folded = (*taker.folded, layer)
            layer.folded_into = taker
        else:
            taker = layer
    for layer, following in itertools.pairwise(layers):
        if layer.batch_sum_shape is not None:
            layer.sums_left = following.takes_sums


def unfold(layers: Sequence[Layer]) -> None:
    """Let each layer do its own work again."""
    for layer in layers:
        layer.folded, layer.folded_into, layer.finished, layer.sums_left, layer.neighbours = (), None, None, False, ()


def fold_again(layer: Layer) -> None:
    """Fold the chain of ``layer`` anew, if it was folded: what the layer takes over has changed."""
    if layer.neighbours:
        fold(layer.neighbours)


def is_finished(layer: Layer, inputs: Tensor) -> bool:
    """Whether ``inputs`` already include the work of ``layer``; true once per call."""
    taker = layer.folded_into
    if taker is None or not running.depth or taker.finished is not inputs:
        return False
    if taker.folded[-1] is layer:
        taker.finished = None
    return True


def leave_error(layer: Layer, error: Tensor) -> bool:
    """Leave the derivative of ``layer`` to the layer that took it over, if its next error is this one."""
    taker = layer.folded_into
    if taker is None or not running.depth or not hasattr(taker, "error_left"):
        return False
    taker.error_left = error
    return True
