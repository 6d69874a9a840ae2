"""Layers of ONNX's operators for convolution, pooling and normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.reader import Layers, Read, Reader
from neonlike.exchange.onnx.windows import WINDOW, Window
from neonlike.initializers import Constant
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.structure import Reshape
from neonlike.layers.images.convolution import Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconvolution
from neonlike.layers.images.lrn import LRN
from neonlike.layers.images.pad import Pad
from neonlike.layers.images.pooling import Pooling
from neonlike.layers.norm.normalization import BatchNorm
from neonlike.layers.norm.samplenorm import GroupNorm, LayerNorm
from neonlike.nervanaobject import NervanaObject

ZERO = Constant(0.0)
LOWEST = float(np.finfo(np.float32).min)
"""What pads the windows of maxima."""

# -- windows -----------------------------------------------------------------------------------------------------------


def _filters(weight: np.ndarray) -> np.ndarray:
    """(K, C, ...) as our ``(C * ..., K)``."""
    return np.moveaxis(weight, 0, -1).reshape(-1, len(weight))


def _in_line(weight: np.ndarray) -> np.ndarray:
    """Filters of sequences as those of images of height 1."""
    return weight[:, :, None] if weight.ndim == 3 else weight


def convolution(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Convolution, with a bias or without."""
    own = node.attributes(group=1, **WINDOW)
    weight, bias = node.needed(1, "weight"), node.constant(2, "bias")
    window = Window(node, own, list(weight.shape[2:]), flow)
    weight = _in_line(weight)
    maps = len(weight)
    before = window.padded_before(0.0)
    arguments = {"fshape": (*window.kernel, maps), "init": ZERO, "groups": own.group, **window.layer_arguments()}
    if bias is None:
        layer = reader.holding(Convolution(**arguments), W=_filters(weight))
    else:
        layer = Convolution_bias(**arguments, bias=ZERO)
        reader.holding(layer, W=_filters(weight), weight_bias=bias.reshape(-1, 1))
    return window.around([*before, layer], maps, window.results())


def deconvolution(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Deconvolution; what is cut off or added at one end; and a bias."""
    node.require(group=1)
    own = node.attributes(output_padding=None, output_shape=None, **WINDOW)
    if own.output_shape or own.auto_pad.startswith("SAME"):
        node.refuse("its attributes output_shape and auto_pad cannot be read; write its pads and output_padding")
    weight, bias = node.needed(1, "weight"), node.constant(2, "bias")
    window = Window(node, own, list(weight.shape[2:]), flow, transposed=True)
    weight = _in_line(weight)
    maps, axes = weight.shape[1], len(window.kernel)
    more = [0] * (axes - len(own.output_padding or [])) + list(own.output_padding or [0] * axes)[-axes:]
    before, after = window.more
    before, after = [-size for size in before], [wider - size for size, wider in zip(after, more)]
    spared = [min(pad, max(0, *ends)) for pad, *ends in zip(window.pads, before, after)]  # less is cut off at both ends
    window.pads = [pad - size for pad, size in zip(window.pads, spared)]
    before, after = ([size - less for size, less in zip(ends, spared)] for ends in (before, after))
    layer = Deconvolution((*window.kernel, maps), init=ZERO, **window.layer_arguments())
    made = [reader.holding(layer, W=_filters(weight))]
    if any(before) or any(after):
        made.append(Pad(tuple(before), tuple(after)))
    if bias is not None:
        made.append(reader.holding(Bias(ZERO), W=bias.reshape(-1, 1)))
    return window.around(made, maps, [b + size + a for size, b, a in zip(window.widened(), before, after)])


def pad(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Pad, of maps."""
    mode = node.attributes(mode="constant", pads=None, value=0.0)
    sizes, value = node.constant(1, "pads"), node.constant(2, "value")
    both = [int(size) for size in (mode.pads if sizes is None else sizes.ravel())]
    axes = 1 + len(flow.shape)
    listed = node.constant(3, "axes")
    if listed is not None:
        places = [int(axis) % axes for axis in listed.ravel()]
        given = dict(zip(places, zip(both[: len(places)], both[len(places) :])))
        both = [given.get(axis, (0, 0))[end] for end in (0, 1) for axis in range(axes)]
    before, after = both[:axes], both[axes:]
    if not any(both):
        return [], flow
    if mode.mode != "constant" or flow.form != "plain" or axes not in (3, 4, 5) or any(before[:2]) or any(after[:2]):
        node.refuse(
            f"its mode={mode.mode} with pads={both} of {flow.form} {flow.shape} cannot be read, only a constant around "
            "the maps of (N, C, L), (N, C, H, W) or (N, C, D, H, W)"
        )
    number = mode.value if value is None else float(value.ravel()[0])
    return _padded(before[2:], after[2:], number, flow)


def _padded(before: list[int], after: list[int], value: float, flow: Flow) -> tuple[Layers, Flow]:
    """Pad of images, of volumes, or of sequences as images of height 1."""
    maps, *sizes = flow.shape
    result = (maps, *(b + size + a for size, b, a in zip(sizes, before, after)))
    if len(sizes) > 1:
        return [Pad(tuple(before), tuple(after), value)], Flow(result)
    return [Reshape((maps, 1, -1)), Pad((0, *before), (0, *after), value), Reshape(result)], Flow(result)


def _pooling(op: str, **more: Any) -> Read:
    """Reader of a pooling; ``more`` are the further attributes of its operator."""

    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        own = node.attributes(ceil_mode=0, **WINDOW, **more)
        window = Window(node, own, list(own.kernel_shape), flow)
        if any(size != 1 for size in window.dilations):
            node.refuse(f"its attribute dilations={window.dilations} cannot be read, only 1; layers pool neighbours")
        if getattr(own, "p", 2) != 2:
            node.refuse(f"its attribute p={own.p} cannot be read, only 2")
        if any(node.outputs[1:]):
            node.refuse("the places of its maxima, output 1, cannot be read")
        counted = bool(getattr(own, "count_include_pad", 0)) or op == "l2"
        uneven = any(any(ends) for ends in window.more)
        if op == "avg" and uneven and not counted:
            node.refuse("its padding, which differs at both ends and does not count, cannot be read; make it even")
        if own.ceil_mode and op == "max" and not uneven:
            window.overhang(node)
        before = window.padded_before(LOWEST if op == "max" else 0.0, all_of_it=op == "avg" and counted)
        if own.ceil_mode and window.results(ceil=True) != window.results():
            node.refuse("its attribute ceil_mode=1 makes windows that overhang the end, which MaxPool alone may here")
        if NervanaObject.be.compat_mode == "caffe" and window.results(ceil=True) != window.results():
            node.refuse("its windows do not reach the end, where compat_mode='caffe' adds one; import without the mode")
        names = "TRS"[-len(window.kernel) :]
        strides, padding = window.arguments("str", window.strides), window.arguments("pad", window.pads)
        layer = Pooling(dict(zip(names, window.kernel)), op, strides, padding)
        return window.around([*before, layer], flow.shape[0], window.results())

    return read


def _global(op: str) -> Read:
    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        node.attributes()
        if flow.form != "plain" or len(flow.shape) < 2:
            node.refuse(f"{flow.form} samples of shape {flow.shape} are no maps")
        result = Flow((flow.shape[0], *[1] * (len(flow.shape) - 1)))
        if len(flow.shape) == 2:
            line = (flow.shape[0], 1, flow.shape[1])
            return [Reshape(line), whole_maps(op, Flow(line)), Reshape(result.shape)], result
        return [whole_maps(op, flow)], result

    return read


def whole_maps(op: str, flow: Flow) -> Pooling:
    """Pooling of each map, or volume, as one window."""
    names = "TRS"[-(len(flow.shape) - 1) :]
    return Pooling(dict(zip(names, flow.shape[1:])), op)


def local_response(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """LRN."""
    own = node.attributes(alpha=1e-4, beta=0.75, bias=1.0, size=0)
    if own.size % 2 == 0 or len(flow.shape) != 3 or flow.form != "plain" or own.bias <= 0:
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
    unknown = flow.form not in ("plain", "steps", "time") or (flow.form == "plain" and len(flow.shape) == 2)
    if axis != first or any(node.outputs[1:]) or unknown:
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
    "Pad": pad,
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
