"""Layers of ONNX's operators for products, elementwise functions, words, shapes and joins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.exchange.onnx.constants import SAMPLES
from neonlike.exchange.onnx.functions import (
    backward,
    elementwise,
    first_half,
    maps_last,
    scaled,
    second_half,
    shifted,
)
from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.patterns import STATE
from neonlike.exchange.onnx.reader import Join, Layers, Read, Reader, chain
from neonlike.initializers import Constant
from neonlike.layers.container import MergeBroadcast, MergeSum
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.core.lambdas import Lambda
from neonlike.layers.core.structure import Reshape
from neonlike.layers.dense.attention import MultiHeadAttention
from neonlike.layers.dense.linear import Linear
from neonlike.layers.dense.lookup import LookupTable
from neonlike.layers.images.convolution import Convolution
from neonlike.layers.recurrent import RecurrentLast
from neonlike.transforms import (
    GELU,
    Explin,
    Logistic,
    Normalizer,
    PixelwiseSoftmax,
    Rectlin,
    Rectlinclip,
    SiLU,
    Softmax,
    Swish,
    Tanh,
)

ZERO = Constant(0.0)

# -- products ----------------------------------------------------------------------------------------------------------


def _linear(reader: Reader, weight: np.ndarray) -> Any:
    return reader.holding(Linear(weight.shape[0], ZERO), W=weight)


def _bias(reader: Reader, node: Node, values: np.ndarray, flow: Flow) -> Any:
    """The layer of a bias of ``values`` that are equal for all but the features or maps; None of others."""
    features_last = flow.form != "plain" or len(flow.shape) == 1
    rows = flow.shape[0]
    wanted = (rows,) if features_last else (rows, *[1] * (len(flow.shape) - 1))
    if values.size == 1:
        values = np.full(rows, values.ravel()[0], values.dtype)
    elif values.shape[values.ndim - len(wanted) :] != wanted or values.size != rows:
        return None
    return reader.holding(Bias(ZERO), W=values.reshape(-1, 1))


def _shift(reader: Reader, node: Node, values: np.ndarray, flow: Flow) -> tuple[Layers, Flow]:
    """A bias, or a summand of each element."""
    layer = _bias(reader, node, values, flow)
    return ([layer], flow) if layer else elementwise(reader, node, flow, shifted, "summand", values)


def gemm(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Linear, and a bias."""
    own = node.attributes(alpha=1.0, beta=1.0, transA=0, transB=0)
    if own.transA or node.data[0] != node.inputs[0]:
        node.refuse("its attribute transA, or a product with the input on the right, cannot be read")
    if len(flow.shape) != 1:
        node.refuse(f"it needs features, (N, features); its input has samples of shape {flow.shape}")
    weight, bias = node.needed(1, "weight"), node.constant(2, "bias")
    weight = own.alpha * (weight if own.transB else weight.T)
    flow = Flow((weight.shape[0],))
    made = [_linear(reader, weight)]
    return (made if bias is None else [*made, *_shift(reader, node, own.beta * bias, flow)[0]]), flow


def matmul(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Linear, of the features of a sample or of each step."""
    node.attributes()
    weight = node.needed(1, "weight")
    if weight.ndim == 2 and flow.form == "maps last":  # of each pixel
        layer = Convolution((1, 1, weight.shape[1]), init=ZERO)
        return [reader.holding(layer, W=weight)], flow._replace(shape=(weight.shape[1], *flow.shape[1:]))
    if weight.ndim != 2 or (flow.form == "plain" and len(flow.shape) != 1):
        node.refuse(f"a product of {flow.form} {flow.shape} with a constant of shape {weight.shape} cannot be read")
    return [_linear(reader, weight.T)], flow._replace(shape=(weight.shape[1], *flow.shape[1:]))


def add(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A bias."""
    node.attributes()
    place = 0 if node.inputs[1] in node.data else 1
    return _shift(reader, node, node.needed(place, "bias"), flow)


def subtract(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A bias of the other sign."""
    node.attributes()
    return _shift(reader, node, -node.needed(1, "bias"), flow)


def _scaled(reader: Reader, node: Node, factors: np.ndarray, flow: Flow) -> tuple[Layers, Flow]:
    """One factor of all elements, or one of each."""
    if not np.all(factors) or not np.all(np.isfinite(factors)):
        node.refuse("a factor of 0, or one that is not finite, cannot be read")
    if factors.size == 1:
        return [Activation(Normalizer(divisor=float(1 / factors.ravel()[0])))], flow
    return elementwise(reader, node, flow, scaled, "factor", factors)


def _factor(node: Node, place: int) -> float:
    factor = node.needed(place, "factor")
    if factor.size != 1:
        node.refuse(f"a factor of shape {factor.shape} cannot be read, only a number")
    return float(factor.ravel()[0])


def multiply(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A factor for all elements, or for each."""
    node.attributes()
    return _scaled(reader, node, node.needed(0 if node.inputs[1] in node.data else 1, "factor"), flow)


def divide(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A divisor for all elements, or for each."""
    node.attributes()
    divisor = node.needed(1, "divisor")
    if not np.all(divisor):
        node.refuse("a divisor of 0 cannot be read")
    return _scaled(reader, node, 1 / divisor.astype(np.float64), flow)


# -- elementwise functions ---------------------------------------------------------------------------------------------


def _activation(make: Any, **defaults: Any) -> Read:
    def read(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        return [Activation(make(**vars(node.attributes(**defaults))))], flow

    return read


def softmax(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Softmax over features, or over the maps of each pixel."""
    flattens = reader.graph.opset < 13  # all axes from this one on are one, then
    axis = node.attributes(axis=1 if flattens else -1).axis
    sequence = flow.form != "plain"
    axes = 1 + len(flow.shape)
    axis = axis + axes if axis < 0 else axis
    if flattens:
        axis = _only_axis(node, axis, flow)
    if flow.form == "maps last" and axis == axes - 1:
        return [Activation(PixelwiseSoftmax(flow.shape[0]))], flow
    if (flow.form in ("steps", "time") and axis == axes - 1) or (not sequence and len(flow.shape) < 3 and axis == 1):
        return [Activation(Softmax())], flow
    if not sequence and len(flow.shape) > 2 and axis == 1:
        return [Activation(PixelwiseSoftmax(flow.shape[0]))], flow
    return node.refuse(f"its attribute axis={axis} of samples of shape {flow.shape} cannot be read")  # type: ignore[no-any-return]


def _only_axis(node: Node, first: int, flow: Flow) -> int:
    """The only axis from the first one on that has several elements."""
    features, steps = flow.shape[0], flow.shape[-1]
    sizes = {"plain": (0, *flow.shape), "steps": (0, steps, features), "time": (steps, 0, features)}
    several = [axis for axis, size in enumerate(sizes.get(flow.form, (0, 0, 0))) if axis >= first and size != 1]
    if len(several) > 1:
        node.refuse(
            f"its attribute axis={first} of samples of shape {flow.shape} flattens several axes below opset 13, which "
            "cannot be read"
        )
    return several[0] if several else first


def gelu(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """GELU, of later versions."""
    node.require(approximate="none")
    node.attributes()
    return [Activation(GELU())], flow


def clip(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A rectifier with an upper limit."""
    node.attributes()
    low, high = node.constant(1, "min"), node.constant(2, "max")
    if low is not None and float(low) == 0:
        return [Activation(Rectlin() if high is None else Rectlinclip(xcut=float(high)))], flow
    if low is None and high is not None:
        return [Activation(Rectlinclip(slope=1, xcut=float(high)))], flow
    return node.refuse(f"a lower limit of {low} cannot be read, only 0 or none")  # type: ignore[no-any-return]


def identity(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """No layer."""
    return [], flow


def dropout(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """No layer, as in inference."""
    if any(node.outputs[1:]):
        node.refuse("its mask, output 1, cannot be read")
    training = node.constant(2, "training_mode")
    if training is not None and training.any():
        node.refuse("its training_mode, input 2, is true; a file of a model in inference is expected")
    return [], flow


def cast(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """No layer: floats stay floats, and word numbers are integers already."""
    kinds = reader.graph.onnx.TensorProto
    to = node.attributes(to=kinds.FLOAT).to
    floats = to in (kinds.FLOAT, kinds.DOUBLE)
    words = to in (kinds.INT32, kinds.INT64) and node.outputs[0] != reader.graph.output.name
    following = reader.graph.consumers(node.outputs[0])
    if not floats and not (words and all(one.operator == "Gather" for one in following)):
        node.refuse(f"its attribute to={to} cannot be read")
    return [], flow


def state(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The last state of a direction, from the outputs of all steps (see ``pick_states``)."""
    units = flow.shape[0]
    if node.attribute("directions", 1) == 1:
        return [RecurrentLast()], Flow((units,))
    if node.attribute("direction", 0) == 0:
        return [RecurrentLast(), Lambda(first_half)], Flow((units // 2,))
    return [Lambda(backward), RecurrentLast(), Lambda(second_half)], Flow((units // 2,))  # it ended at the first step


# -- words and attention -----------------------------------------------------------------------------------------------


def gather(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """A lookup table, or the last step of a sequence."""
    axis = node.attributes(axis=0).axis
    if node.data[0] == node.inputs[0]:
        index = node.needed(1, "index")
        if flow.form == "final" and axis == 0 and index.ndim == 0 and int(index) in (0, -1):
            return [], flow._replace(form="plain")  # the only direction
        places = {"steps": (1, -2), "time": (0, -3)}.get(flow.form, ())
        last = index.ndim == 0 and int(index) in (-1, flow.shape[-1] - 1)
        if axis not in places or not last:
            node.refuse(
                f"index {brief(index.tolist())} along axis {axis} of {flow.form} {flow.shape} cannot be read, only the "
                "last step of a sequence, and one last state of recurrent layers"
            )
        return [RecurrentLast()], Flow(flow.shape[:1])
    table = node.needed(0, "table")
    if table.ndim != 2 or axis != 0 or len(flow.shape) != 1:
        node.refuse(f"rows of a table of shape {table.shape} for words of shape {flow.shape} cannot be read")
    layer = LookupTable(table.shape[0], table.shape[1], ZERO)
    return [reader.holding(layer, W=table)], Flow((table.shape[1], flow.shape[0]), "steps")


def attention(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The attention that this library writes as a function."""
    own = node.attributes(heads=1, causal=0)
    weights = {"W": 1, "bias_in": 2, "W_out": 3, "bias_out": 4}
    arrays = {name: node.needed(place, name) for name, place in weights.items()}
    arrays = {name: array.reshape(-1, 1) if array.ndim == 1 else array.T for name, array in arrays.items()}
    layer = MultiHeadAttention(own.heads, ZERO, nout=arrays["W_out"].shape[0], causal=bool(own.causal))
    return [reader.holding(layer, **arrays)], flow._replace(shape=(arrays["W_out"].shape[0], *flow.shape[1:]))


# -- shapes ------------------------------------------------------------------------------------------------------------

TURNS = {
    ("steps", (0, 2, 1)): "plain", ("plain", (0, 2, 1)): "steps", ("steps", (1, 0, 2)): "time",
    ("time", (1, 0, 2)): "steps", ("time", (1, 2, 0)): "plain", ("plain", (2, 0, 1)): "time",
    ("ways", (0, 2, 1, 3)): "by way", ("maps last", (0, 3, 1, 2)): "plain", ("plain", (0, 2, 3, 1)): "maps last",
}  # fmt: skip
"""Form of a sequence or of images, and order of the axes -> the form in that order."""


def transpose(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Another form of a sequence, or of images."""
    perm = tuple(node.attributes(perm=()).perm)
    if perm and perm == tuple(range(len(perm))):
        return [], flow
    form = TURNS.get((flow.form, perm))
    if form is None or len(flow.shape) != (3 if "maps last" in (form, flow.form) else 2):
        node.refuse(f"its attribute perm={list(perm)} of samples of shape {flow.shape} cannot be read")
    return [], flow._replace(form=str(form))


def _into(node: Node, flow: Flow, shape: tuple[int, ...]) -> tuple[Layers, Flow]:
    """Samples of another shape, of the same elements in the same order."""
    if math.prod(shape) != math.prod(flow.shape):
        node.refuse(f"samples of shape {flow.shape} cannot become {shape}")
    return ([] if shape == flow.shape else [Reshape(shape)]), Flow(shape)


def _without_steps(read: Read) -> Read:
    """Reader that takes a sequence of one step, (N, 1, features), as (N, 1, features) of maps."""

    def of_maps(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
        if flow.form != "steps" or flow.shape[1] != 1:
            return read(reader, node, flow)
        turned = (1, flow.shape[0])
        layers, result = read(reader, node, Flow(turned))
        return [Reshape(turned), *layers], result

    return of_maps


FEATURES_LAST = ("steps", "maps last")
"""Forms with the samples first and the features last."""


def _flat(flow: Flow) -> tuple[Layers, Flow]:
    """All elements of a sample as features, in the order (steps, features) or (H, W, C)."""
    before = [Reshape((flow.shape[0], 1, flow.shape[1]))] if flow.form == "steps" else []
    return [*before, Lambda(maps_last)], Flow((math.prod(flow.shape),))


def flatten(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """All elements of a sample as features."""
    axis = node.attributes(axis=1).axis
    if axis == 1 and flow.form in FEATURES_LAST:
        return _flat(flow)
    if axis != 1 or flow.form != "plain":
        node.refuse(f"only samples, axis=1, can be flattened; it has {flow.form} {flow.shape}")
    return _into(node, flow, (math.prod(flow.shape),))


def reshape(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Samples of another shape, or both directions of a recurrent layer side by side."""
    wanted = [int(size) for size in node.needed(1, "shape")]
    if node.attributes(allowzero=0).allowzero and 0 in wanted:
        node.refuse(f"shape {wanted} with its attribute allowzero=1 cannot be read")
    batch = reader.graph.batch
    if flow.form == "by way":
        features, steps = flow.shape
        fits = len(wanted) == 3 and wanted[0] in (0, -1, steps) and wanted[1] in (0, -1, batch)
        if not fits or wanted[2] not in (-1, features):
            node.refuse(f"shape {wanted} cannot be read; expected [0, 0, -1]")
        return [], flow._replace(form="time")
    samples_stay = bool(wanted) and wanted[0] in (0, -1, batch)
    if flow.form in FEATURES_LAST and samples_stay and wanted[1:] in ([math.prod(flow.shape)], [-1]):
        return _flat(flow)
    if flow.form != "plain" or not samples_stay:
        told = ["N" if size == SAMPLES else size for size in wanted]
        node.refuse(f"shape {told} of {flow.form} {flow.shape} cannot be read; only samples of it can be reshaped")
    sizes = [flow.shape[i] if not size and i < len(flow.shape) else size for i, size in enumerate(wanted[1:])]
    if -1 in sizes:
        sizes[sizes.index(-1)] = math.prod(flow.shape) // max(1, -math.prod(sizes))
    return _into(node, flow, tuple(sizes))


def _axes(node: Node) -> list[int]:
    axes = node.constant(1, "axes")
    return [int(axis) for axis in axes.ravel()] if axes is not None else node.refuse("its axes are missing")


def squeeze(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """Without an axis of one direction, of one step, or of one element."""
    node.attributes()
    axes = _axes(node)
    if flow.form == "ways" and axes == [1]:
        return [], flow._replace(form="time")
    if flow.form == "final" and axes == [0]:
        return [], flow._replace(form="plain")
    if flow.form != "plain" or any(axis == 0 for axis in axes):
        node.refuse(f"axes {axes} of {flow.form} {flow.shape} cannot be removed")
    places = {axis % (1 + len(flow.shape)) for axis in axes}
    return _into(node, flow, tuple(size for i, size in enumerate(flow.shape, start=1) if i not in places))


def unsqueeze(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """With an axis of one step, or of one element."""
    node.attributes()
    axes = _axes(node)
    if flow.form != "plain" or 0 in axes:
        node.refuse(f"axes {axes} cannot be added to {flow.form} {flow.shape}")
    if len(flow.shape) == 1 and axes == [1]:
        return [], Flow((*flow.shape, 1), "steps")
    rest, total = iter(flow.shape), 1 + len(flow.shape) + len(axes)
    places = {axis % total for axis in axes}
    return _into(node, flow, tuple(1 if i in places else next(rest) for i in range(1, total)))


# -- joins -------------------------------------------------------------------------------------------------------------


def _same_form(node: Node, branches: list[tuple[Layers, Flow]]) -> Flow:
    forms = {flow.form for _, flow in branches}
    if len(forms) > 1:
        node.refuse(f"branches of the forms {', '.join(sorted(forms))} cannot be joined")
    return branches[0][1]


def join_sum(reader: Reader, node: Node, flow: Flow, branches: list[tuple[Layers, Flow]]) -> tuple[Layers, Flow]:
    """A sum of branches."""
    node.attributes()
    result = _same_form(node, branches)
    if len(node.data) != len(node.inputs) or len({one.shape for _, one in branches}) > 1:
        node.refuse(f"summands of shapes {[one.shape for _, one in branches]} cannot be read; all must have one shape")
    return [MergeSum([chain(layers) for layers, _ in branches])], result


def join_concat(reader: Reader, node: Node, flow: Flow, branches: list[tuple[Layers, Flow]]) -> tuple[Layers, Flow]:
    """Branches side by side: their features or maps, or their steps."""
    axis = node.attributes(axis=1).axis
    result = _same_form(node, branches)
    shapes = [one.shape for _, one in branches]
    axis = axis + 1 + len(result.shape) if axis < 0 else axis
    layers = [chain(layers) for layers, _ in branches]
    if len(node.data) != len(node.inputs):
        node.refuse("a constant among the values that it joins cannot be read")
    if result.form == "steps" and axis == 1:
        return [MergeBroadcast(layers, "recurrent")], Flow((shapes[0][0], sum(s[1] for s in shapes)), "steps")
    if axis != {"plain": 1, "steps": 2, "maps last": 3}.get(result.form):
        node.refuse(f"its attribute axis={axis} of {result.form} {result.shape} cannot be read")
    merge = "stack" if len(result.shape) == 1 else "depth"
    total = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    return [MergeBroadcast(layers, merge)], result._replace(shape=total)


def join_product(reader: Reader, node: Node, flow: Flow, branches: list[tuple[Layers, Flow]]) -> tuple[Layers, Flow]:
    """x · sigmoid(x)."""
    made = sorted((layers for layers, _ in branches), key=len)
    gate = made[-1]
    is_gate = len(made) == 2 and not made[0] and len(gate) == 1 and isinstance(gate[0], Activation)
    if not is_gate or type(gate[0].transform) is not Logistic:
        node.refuse("a product of computed values cannot be read, except x · sigmoid(x)")
    return [Activation(SiLU())], flow


def swish(reader: Reader, node: Node, flow: Flow) -> tuple[Layers, Flow]:
    """The function that this library writes for Swish."""
    beta = _factor(node, 1)
    return [Activation(SiLU() if beta == 1 else Swish(beta))], flow


READERS: dict[str, Read] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": add,
    "Sub": subtract,
    "Mul": multiply,
    "Div": divide,
    "Relu": _activation(Rectlin),
    "LeakyRelu": _activation(lambda alpha: Rectlin(alpha), alpha=0.01),
    "Elu": _activation(lambda alpha: Explin(alpha), alpha=1.0),
    "Tanh": _activation(Tanh),
    "Sigmoid": _activation(Logistic),
    "Gelu": gelu,
    "Clip": clip,
    "Softmax": softmax,
    "Identity": identity,
    "Dropout": dropout,
    "Cast": cast,
    "Gather": gather,
    "Transpose": transpose,
    "Flatten": _without_steps(flatten),
    "Reshape": _without_steps(reshape),
    "Squeeze": _without_steps(squeeze),
    "Unsqueeze": _without_steps(unsqueeze),
    STATE: state,
    "neonlike.Swish": swish,
    "neonlike.GELU": _activation(GELU),
    "neonlike.MultiHeadAttention": attention,
}
"""Operator -> its reader."""
JOINS: dict[str, Join] = {"Add": join_sum, "Sum": join_sum, "Concat": join_concat, "Mul": join_product}
"""Operator of several computed inputs -> its reader."""
