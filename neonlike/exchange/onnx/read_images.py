"""Layers of ONNX's operators for convolution, pooling and normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.reader import Layers, Read, Reader
from neonlike.initializers import Constant
from neonlike.layers.core.bias import Bias
from neonlike.layers.images.convolution import Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconvolution
from neonlike.layers.images.lrn import LRN
from neonlike.layers.images.pooling import Pooling
from neonlike.layers.norm.normalization import BatchNorm
from neonlike.layers.norm.samplenorm import GroupNorm, LayerNorm
from neonlike.nervanaobject import NervanaObject

ZERO = Constant(0.0)

# -- windows -----------------------------------------------------------------------------------------------------------


class Window:
    """The window of a convolution or pooling of images or volumes.

    Attributes
    ----------
    kernel, strides, pads, dilations : list of int
        By axis; ``pads`` are those on either side.
    """

    def __init__(self, node: Node, own: Any, kernel: list[int], flow: Flow) -> None:
        axes = len(kernel)
        if flow.form != "plain" or axes != len(flow.shape) - 1 or axes not in (2, 3):
            node.refuse(f"a window of {axes} axes on samples of shape {flow.shape} is none of images or volumes")
        self.kernel, self.sizes = kernel, flow.shape[1:]
        self.strides = list(own.strides or [1] * axes)
        self.dilations = list(own.dilations or [1] * axes)
        both = list(own.pads or [0] * (2 * axes))
        if own.auto_pad.startswith("SAME"):
            total = self._missing()
            both = [size // 2 for size in total] + [size - size // 2 for size in total]
        if both[:axes] != both[axes:]:
            node.refuse(f"its attribute pads={both} differs at both ends, which layers here cannot")
        self.pads = both[:axes]

    def _missing(self) -> list[int]:
        """Elements of padding along each axis for as many windows as strides fit the input."""
        extents = [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations)]
        axes = zip(self.sizes, self.strides, extents)
        return [max(0, (-(-size // stride) - 1) * stride + extent - size) for size, stride, extent in axes]

    def arguments(self, prefix: str, sizes: list[int]) -> dict[str, int]:
        """Sizes by name, as ``{"str_h": 2, "str_w": 2}``."""
        return {f"{prefix}_{axis}": size for axis, size in zip("dhw"[-len(sizes) :], sizes)}

    def results(self, ceil: bool = False) -> tuple[int, ...]:
        """Sizes of the output."""
        return tuple(
            -(-room // stride) + 1 if ceil else room // stride + 1
            for room, stride in zip(self._rooms(), self.strides)
        )

    def _rooms(self) -> list[int]:
        extents = [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations)]
        return [size + 2 * pad - extent for size, pad, extent in zip(self.sizes, self.pads, extents)]

    def widened(self) -> tuple[int, ...]:
        """Sizes of the output of a transposed convolution."""
        extents = [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations)]
        return tuple(s * (n - 1) + e - 2 * p for n, s, e, p in zip(self.sizes, self.strides, extents, self.pads))

    def layer_arguments(self) -> dict[str, Any]:
        """Arguments of a convolution layer."""
        return {
            "strides": self.arguments("str", self.strides),
            "padding": self.arguments("pad", self.pads),
            "dilation": self.arguments("dil", self.dilations),
        }


WINDOW: dict[str, Any] = {"auto_pad": "NOTSET", "dilations": None, "kernel_shape": None, "pads": None, "strides": None}


def _filters(weight: np.ndarray) -> np.ndarray:
    """(K, C, ...) as our ``(C * ..., K)``."""
    return np.moveaxis(weight, 0, -1).reshape(-1, len(weight))


def convolution(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Convolution, with a bias or without."""
    own = node.attributes(group=1, **WINDOW)
    weight, bias = node.needed(1, "weight"), node.constant(2, "bias")
    window = Window(node, own, list(weight.shape[2:]), flow)
    maps = len(weight)
    arguments = {"fshape": (*window.kernel, maps), "init": ZERO, "groups": own.group, **window.layer_arguments()}
    result = Flow((maps, *window.results()))
    if bias is None:
        return [reader.holding(Convolution(**arguments), W=_filters(weight))], result
    layer = Convolution_bias(**arguments, bias=ZERO)
    return [reader.holding(layer, W=_filters(weight), weight_bias=bias.reshape(-1, 1))], result


def deconvolution(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Deconvolution, and a bias."""
    node.require(group=1)
    own = node.attributes(output_padding=None, output_shape=None, **WINDOW)
    if any(own.output_padding or []) or own.output_shape or own.auto_pad.startswith("SAME"):
        node.refuse("its attributes output_padding, output_shape and auto_pad cannot be read")
    weight, bias = node.needed(1, "weight"), node.constant(2, "bias")
    window = Window(node, own, list(weight.shape[2:]), flow)
    maps = weight.shape[1]
    layer = Deconvolution((*window.kernel, maps), init=ZERO, **window.layer_arguments())
    made = [reader.holding(layer, W=_filters(weight))]
    if bias is not None:
        made.append(reader.holding(Bias(ZERO), W=bias.reshape(-1, 1)))
    return made, Flow((maps, *window.widened()))


def _pooling(op: str, **more: Any) -> Read:
    """Reader of a pooling; ``more`` are the further attributes of its operator."""

    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        own = node.attributes(ceil_mode=0, **WINDOW, **more)
        window = Window(node, own, list(own.kernel_shape), flow)
        if any(size != 1 for size in window.dilations):
            node.refuse(f"its attribute dilations={window.dilations} cannot be read")
        if own.ceil_mode and window.results(ceil=True) != window.results():
            node.refuse("its attribute ceil_mode=1 makes windows that overhang the end, which layers here do not have")
        if NervanaObject.be.compat_mode == "caffe" and window.results(ceil=True) != window.results():
            node.refuse("its windows do not reach the end, where compat_mode='caffe' adds one; import without the mode")
        if getattr(own, "count_include_pad", 0) and any(window.pads):
            node.refuse("its attribute count_include_pad=1 cannot be read; padding does not count here")
        if getattr(own, "p", 2) != 2:
            node.refuse(f"its attribute p={own.p} cannot be read, only 2")
        if any(node.outputs[1:]):
            node.refuse("the places of its maxima, output 1, cannot be read")
        names = "TRS"[-len(window.kernel) :]
        strides, padding = window.arguments("str", window.strides), window.arguments("pad", window.pads)
        layer = Pooling(dict(zip(names, window.kernel)), op, strides, padding)
        return [layer], Flow((flow.shape[0], *window.results()))

    return read


def _global(op: str) -> Read:
    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        node.attributes()
        if flow.form != "plain" or len(flow.shape) < 3:
            node.refuse(f"samples of shape {flow.shape} are no images")
        return [_whole_maps(op, flow)], Flow((flow.shape[0], *[1] * (len(flow.shape) - 1)))

    return read


def _whole_maps(op: str, flow: Flow) -> Pooling:
    """Pooling of each map, or volume, as one window."""
    names = "TRS"[-(len(flow.shape) - 1) :]
    return Pooling(dict(zip(names, flow.shape[1:])), op)


def local_response(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """LRN."""
    own = node.attributes(alpha=1e-4, beta=0.75, bias=1.0, size=0)
    if own.size % 2 == 0 or len(flow.shape) != 3 or own.bias <= 0:
        node.refuse(f"windows of size={own.size} with bias={own.bias} of samples of shape {flow.shape} cannot be read")
    # (bias + s) ** -beta = bias ** -beta * (1 + s / bias) ** -beta
    return [LRN(own.size, alpha=own.bias**-own.beta, ascale=own.alpha / own.bias, bpower=own.beta)], flow


# -- normalization -----------------------------------------------------------------------------------------------------


def batch_norm(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """BatchNorm, along axis 1."""
    own = node.attributes(epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1)
    if own.training_mode or own.spatial != 1:
        node.refuse("its attributes training_mode=1 and spatial=0 cannot be read")
    if flow.form != "plain":
        node.refuse(f"it normalizes axis 1 of {flow.form}, which is not the features")
    names = {"gamma": 1, "beta": 2, "gmean": 3, "gvar": 4}
    arrays = {name: node.needed(place, name).reshape(-1, 1) for name, place in names.items()}
    return [reader.holding(BatchNorm(rho=own.momentum, eps=own.epsilon), **arrays)], flow


def layer_norm(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """LayerNorm."""
    own = node.attributes(axis=-1, epsilon=1e-5, stash_type=1)
    axes = 1 + len(flow.shape)
    axis = own.axis + axes if own.axis < 0 else own.axis
    first = axes - 1 if flow.form in ("steps", "time") else 1
    if axis != first or any(node.outputs[1:]):
        node.refuse(f"its attribute axis={own.axis} of {flow.form} {flow.shape} cannot be read, only all features")
    gamma, beta = node.needed(1, "scale"), node.constant(2, "bias")
    beta = 0 * gamma if beta is None else beta
    return [reader.holding(LayerNorm(own.epsilon), gamma=gamma.reshape(-1, 1), beta=beta.reshape(-1, 1))], flow


def group_norm(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The function that this library writes for GroupNorm."""
    own = node.attributes(groups=1, epsilon=1e-5)
    gamma, beta = (node.needed(place, name).reshape(-1, 1) for place, name in ((1, "scale"), (2, "bias")))
    return [reader.holding(GroupNorm(own.groups, own.epsilon), gamma=gamma, beta=beta)], flow


READERS: dict[str, Read] = {
    "Conv": convolution,
    "ConvTranspose": deconvolution,
    "MaxPool": _pooling("max", storage_order=0),
    "AveragePool": _pooling("avg", count_include_pad=0),
    "LpPool": _pooling("l2", p=2),
    "GlobalMaxPool": _global("max"),
    "GlobalAveragePool": _global("avg"),
    "LRN": local_response,
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "neonlike.GroupNorm": group_norm,
}
"""Operator -> its reader."""
