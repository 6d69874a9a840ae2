"""Functions of ONNX's operators that no layer computes, for :class:`~neonlike.layers.Lambda`.

``x`` has all axes: (features, N), (features, steps, N) or (C, H, W, N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.autograd import ops
from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.reader import Layers, Read, Reader
from neonlike.layers.core.lambdas import Lambda


def log_softmax(x: Any) -> Any:
    """Logarithm of the softmax over the features or maps."""
    return ops.log_softmax(x, axis=0)


def hard_sigmoid(x: Any) -> Any:
    """x / 6 + 1 / 2, between 0 and 1."""
    return ops.clip(x * (1 / 6) + 0.5, 0.0, 1.0)


def mish(x: Any) -> Any:
    """x · tanh(log(1 + e^x))."""
    return x * ops.tanh(ops.softplus(x))


def prelu(x: Any, slope: Any) -> Any:
    """x above 0, and slope · x below."""
    return ops.relu(x) - slope * ops.relu(-x)


def scaled(x: Any, factor: Any) -> Any:
    """x · factor."""
    return x * factor


def shifted(x: Any, summand: Any) -> Any:
    """x + summand."""
    return x + summand


def backward(x: Any) -> Any:
    """A sequence from its last step to the first."""
    return ops.index_select(x, 1, np.arange(x.shape[1])[::-1].copy())


def first_half(x: Any) -> Any:
    """The features of the first direction of two, which are side by side."""
    return x[: x.shape[0] // 2]


def second_half(x: Any) -> Any:
    """The features of the second direction of two, which are side by side."""
    return x[x.shape[0] // 2 :]


def maps_last(x: Any) -> Any:
    """Images as features, in the order (H, W, C)."""
    turned = ops.transpose(ops.transpose(x, 0, 1), 1, 2)
    return ops.reshape(turned, turned.shape[0] * turned.shape[1] * turned.shape[2], x.shape[-1])


def doubled(x: Any) -> Any:
    """Images with each pixel four times, in two rows and two columns."""
    return ops.repeat_interleave(ops.repeat_interleave(x, 2, 1), 2, 2)


REGISTERED = (
    log_softmax, hard_sigmoid, mish, prelu, scaled, shifted, backward, first_half, second_half, maps_last, doubled,
    ops.hard_swish, ops.softplus,
)  # fmt: skip
for _each in REGISTERED:
    Lambda.register(_each)


def function_layer(function: Callable[..., Any], **checks: Any) -> Read:
    """Reader of an operator with one input; ``checks`` are the values that its attributes must have."""

    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        node.require(**checks)
        node.attributes()
        return [Lambda(function)], flow

    return read


def elementwise(
    reader: Reader, node: Node, flow: Flow, function: Callable[..., Any], name: str, values: np.ndarray
) -> tuple[Layers, Flow]:
    """A function of the input and of a constant for each element, or for each of some axes.

    Raises
    ------
    NotDefined
        If the constant differs between samples, or has other axes than a sample.
    """
    axes = 1 + len(flow.shape)
    steps, features = flow.shape[-1], flow.shape[0]
    orders = {
        "steps": (1, steps, features), "time": (steps, 1, features), "maps last": (1, *flow.shape[1:], features),
    }  # fmt: skip
    order = orders.get(flow.form, (1, *flow.shape))
    shape = (*[1] * (axes - values.ndim), *values.shape)
    fits = len(shape) == axes == len(order) and all(size in (1, wanted) for size, wanted in zip(shape, order))
    if not fits:
        node.refuse(
            f"its constant of shape {values.shape} does not fit {flow.form} samples of shape {flow.shape}; expected "
            f"one that broadcasts to {order}, the same for all samples"
        )
    turned = {"steps": (2, 1, 0), "time": (2, 0, 1), "maps last": (3, 1, 2, 0)}
    places = turned.get(flow.form, (*range(1, axes), 0))
    values = values.reshape(shape).transpose(places)
    layer = Lambda(function, parameters={name: values.shape})
    return [reader.holding(layer, **{name: values})], flow


def softmax_of_logs(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Logarithm of a softmax over features or maps."""
    axis = node.attributes(axis=1 if node.graph.opset < 13 else -1).axis
    axes = 1 + len(flow.shape)
    wanted = axes - 1 if flow.form != "plain" else 1
    if axis % axes != wanted or (node.graph.opset < 13 and axes > 2):
        node.refuse(f"its attribute axis={axis} of {flow.form} {flow.shape} cannot be read, only that of the features")
    return [Lambda(log_softmax)], flow


def sixths(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The hard sigmoid of PyTorch and Keras."""
    own = node.attributes(alpha=0.2, beta=0.5)
    if abs(own.alpha - 1 / 6) > 1e-6 or own.beta != 0.5:
        node.refuse(f"its attributes alpha={own.alpha:g}, beta={own.beta:g} cannot be read, only 1/6 and 0.5")
    return [Lambda(hard_sigmoid)], flow


def slope(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A rectifier with a slope for each map, which is a parameter."""
    node.attributes()
    return elementwise(reader, node, flow, prelu, "slope", node.needed(1, "slope"))


REPEATING = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
"""Ways to find the nearest pixel that repeat each one."""


def resize(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Images enlarged 2, 4, 8 ... times, each pixel repeated."""
    own = node.attributes(
        mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_floor",
        cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, antialias=0, axes=None,
        keep_aspect_ratio_policy="stretch",
    )  # fmt: skip
    places = (2, 3) if len(node.inputs) > 2 else (1, 1)
    scales, sizes = node.constant(places[0], "scales"), node.constant(places[1], "sizes")
    found = None
    if scales is not None and scales.size == len(flow.shape) + 1:
        found = [float(one) for one in scales.ravel()]
    elif sizes is not None and sizes.size == len(flow.shape) + 1:
        found = [1.0, *(float(size) / old for size, old in zip(sizes.ravel()[1:], flow.shape))]
    times = found[-1] if found else 0.0
    even = found == [1.0, 1.0, times, times] and times >= 2 and np.log2(times) == round(np.log2(times))
    if (own.coordinate_transformation_mode, own.nearest_mode) not in REPEATING:
        even = False
    if own.mode != "nearest" or flow.form != "plain" or not even:
        node.refuse(
            f"its mode={own.mode}, {own.coordinate_transformation_mode}, {own.nearest_mode} with scales={found} of "
            f"{flow.form} {flow.shape} cannot be read, only repeated pixels by 2, 4, 8 ... in both axes"
        )
    count = int(np.log2(times))
    return [Lambda(doubled) for _ in range(count)], Flow((flow.shape[0], *(int(s * times) for s in flow.shape[1:])))


READERS: dict[str, Read] = {
    "LogSoftmax": softmax_of_logs,
    "HardSwish": function_layer(ops.hard_swish),
    "HardSigmoid": sixths,
    "Softplus": function_layer(ops.softplus),
    "Mish": function_layer(mish),
    "PRelu": slope,
    "Resize": resize,
}
"""Operator -> its reader."""
