"""Convolution, pooling and normalization as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange.onnx.library import DOMAIN
from neonlike.exchange.onnx.write_dense import refuse_int8
from neonlike.exchange.onnx.writer import Value, Writer
from neonlike.exchange.torch_layers import filters_first
from neonlike.layers.images.convolution import Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconvolution
from neonlike.layers.images.depthwise import DepthwiseConvolution
from neonlike.layers.images.lrn import LRN
from neonlike.layers.images.pad import Pad
from neonlike.layers.images.pooling import Pooling
from neonlike.layers.norm.batchnorm_autodiff import BatchNormAutodiff
from neonlike.layers.norm.normalization import BatchNorm
from neonlike.layers.norm.samplenorm import GroupNorm, LayerNorm

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

# -- windows -----------------------------------------------------------------------------------------------------------


def _window(params: dict[str, Any], axes: str) -> dict[str, Any]:
    """Attributes of the window of a convolution along the ``axes``."""
    padding = [params[f"pad_{axis}"] for axis in axes]
    return {
        "strides": [params[f"str_{axis}"] for axis in axes],
        "pads": [*padding, *padding],
        "dilations": [params[f"dil_{axis}"] for axis in axes],
    }


def _with_depth(w: Writer, x: Value, weight: np.ndarray) -> Any:
    """The input of a convolution of volumes, with a depth of 1 if it has none."""
    if weight.ndim == 5 and len(x.shape) == 3:
        return w.node("Unsqueeze", [x, w.sizes("axes", 2)])
    return x


def _without_depth(w: Writer, y: str, layer: Layer, weight: np.ndarray) -> str:
    if weight.ndim == 5 and len(layer.out_shape) == 3:
        squeezed: str = w.node("Squeeze", [y, w.sizes("axes", 2)])
        return squeezed
    return y


def convolution(w: Writer, layer: Convolution | Convolution_bias | DepthwiseConvolution, x: Value) -> Any:
    """Conv."""
    refuse_int8(w, layer)
    weight = filters_first(layer)
    inputs = [_with_depth(w, x, weight), w.constant("W", weight)]
    if isinstance(layer, Convolution_bias):
        inputs.append(w.constant("weight_bias", layer.weight_bias.get().ravel()))
    axes = "hw" if weight.ndim == 4 else "dhw"
    window = _window(layer.convparams, axes)
    y = w.node("Conv", inputs, kernel_shape=weight.shape[2:], group=layer.nglayer.groups, **window)
    return _without_depth(w, y, layer, weight)


def deconvolution(w: Writer, layer: Deconvolution, x: Value) -> Any:
    """ConvTranspose."""
    weight = filters_first(layer)
    inputs = [_with_depth(w, x, weight), w.constant("W", weight)]
    window = _window(layer.deconvparams, "hw" if weight.ndim == 4 else "dhw")
    y = w.node("ConvTranspose", inputs, kernel_shape=weight.shape[2:], **window)
    return _without_depth(w, y, layer, weight)


POOLINGS = {"max": "MaxPool", "avg": "AveragePool", "l2": "LpPool"}


def pooling(w: Writer, layer: Pooling, x: Value) -> Any:
    """MaxPool, AveragePool or LpPool; windows that overhang the end are padded there."""
    g = layer.nglayer
    if g.JTRS[0] > 1 or g.strides[0] > 1 or g.padding[0]:
        return w.refuse("its windows extend over channels, those of ONNX do not")
    first = 4 - (len(x.shape) - 1)
    kernel, strides, before = (list(sizes[first:]) for sizes in (g.JTRS, g.strides, g.padding))
    after = list(before)
    if g.caffe:
        sizes = zip(g.KMPQ[first:], g.CDHW[first:], kernel, strides, before)
        after = [max(0, (n - 1) * stride + window - size - pad) for n, size, window, stride, pad in sizes]
    return w.node(POOLINGS[layer.op], [x], kernel_shape=kernel, strides=strides, pads=[*before, *after])


def pad(w: Writer, layer: Pad, x: Value) -> Any:
    """Pad."""
    sizes = w.sizes("pads", 0, 0, *layer.before, 0, 0, *layer.after)
    return w.node("Pad", [x, sizes, w.constant("value", layer.value)], mode="constant")


def local_response(w: Writer, layer: LRN, x: Value) -> Any:
    """LRN, and a factor."""
    if layer.beta:
        return w.refuse(f"its beta={layer.beta} adds the outputs of the batch before")
    if len(x.shape) != 3:
        return w.refuse(f"LRN of an input of shape {x.shape} is not what programs for ONNX compute")
    y = w.node("LRN", [x], alpha=float(layer.ascale), beta=float(layer.bpower), bias=1.0, size=layer.depth)
    return y if layer.alpha == 1 else w.node("Mul", [y, w.constant("alpha", layer.alpha)])


# -- normalization -----------------------------------------------------------------------------------------------------


def batch_norm(w: Writer, layer: BatchNorm | BatchNormAutodiff, x: Value) -> Any:
    """BatchNormalization, along axis 1."""
    parameters = [w.constant(name, getattr(layer, name).get().ravel()) for name in ("gamma", "beta", "gmean", "gvar")]
    if layer.binary:
        return w.refuse("it multiplies by powers of two")
    inputs = [w.in_order(x), *parameters]
    y = w.node("BatchNormalization", inputs, epsilon=float(layer.eps), momentum=float(layer.rho))
    return w.from_order(y, x.shape)


def layer_norm(w: Writer, layer: LayerNorm, x: Value) -> Any:
    """LayerNormalization, over all axes of a sample or of a step."""
    shape = x.shape if len(x.shape) > 2 else (-1,)
    parameters = [w.constant(name, getattr(layer, name).get().reshape(shape)) for name in ("gamma", "beta")]
    axis = 1 if len(x.shape) > 2 else -1
    return w.node("LayerNormalization", [x, *parameters], axis=axis, epsilon=float(layer.eps))


def group_norm(w: Writer, layer: GroupNorm, x: Value) -> Any:
    """A call of a function of the file: the operator is of a later version."""
    axes = len(x.shape)
    eps = f"{layer.eps:.9g}".replace(".", "_").replace("-", "m")
    name = f"GroupNorm_{layer.groups}_{'x'.join(map(str, x.shape))}_{eps}"
    make = w.onnx.helper.make_node
    ones = np.ones(layer.groups)
    body = [
        w.made_constant("groups_first", [0, layer.groups, -1], np.int64),
        w.made_constant("shape", [0, *x.shape], np.int64),
        w.made_constant("ones", ones), w.made_constant("zeros", 0 * ones),
        make("Reshape", ["x", "groups_first"], ["apart"]),
        make("InstanceNormalization", ["apart", "ones", "zeros"], ["normal"], epsilon=float(layer.eps)),
        make("Reshape", ["normal", "shape"], ["joined"]), make("Mul", ["joined", "gamma"], ["scaled"]),
        make("Add", ["scaled", "beta"], ["y"]),
    ]  # fmt: skip
    w.function(name, ["x", "gamma", "beta"], body, ["groups", "epsilon"])
    shape = (-1, *[1] * (axes - 1))
    parameters = [w.constant(one, getattr(layer, one).get().reshape(shape)) for one in ("gamma", "beta")]
    inputs = [w.in_order(x), *parameters]
    y = w.node(name, inputs, domain=DOMAIN, groups=layer.groups, epsilon=float(layer.eps))
    return w.from_order(y, x.shape)


WRITERS: dict[type, Callable[[Writer, Any, Any], Any]] = {
    Convolution: convolution,
    Convolution_bias: convolution,
    DepthwiseConvolution: convolution,
    Deconvolution: deconvolution,
    Pad: pad,
    Pooling: pooling,
    LRN: local_response,
    BatchNorm: batch_norm,
    BatchNormAutodiff: batch_norm,
    LayerNorm: layer_norm,
    GroupNorm: group_norm,
}
"""Class of a layer -> function that writes it."""
