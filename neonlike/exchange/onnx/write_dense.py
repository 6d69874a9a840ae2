"""Fully connected layers, lookup tables, attention and activations as ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange.onnx.library import DOMAIN
from neonlike.exchange.onnx.writer import Value, Writer
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.elementwise import Activation, DataTransform, Dropout
from neonlike.layers.dense.attention import MultiHeadAttention
from neonlike.layers.dense.linear import Linear
from neonlike.layers.dense.lookup import Embedding, LookupTable
from neonlike.transforms import (
    GELU,
    Explin,
    Identity,
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

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

# -- layers ------------------------------------------------------------------------------------------------------------


def refuse_int8(w: Writer, layer: Layer) -> None:
    """Raise for a layer that multiplies in int8."""
    if getattr(layer, "int8_step", None) is not None:
        w.refuse("it is quantized to int8; call model.dequantize() before")


def linear(w: Writer, layer: Linear, x: Value) -> Any:
    """Gemm, or for sequences MatMul."""
    refuse_int8(w, layer)
    if len(x.shape) == 2:
        return w.node("MatMul", [x, w.constant("W", layer.W.get().T)])
    return w.node("Gemm", [w.flat(x), w.constant("W", layer.W.get())], transB=1)


def bias(w: Writer, layer: Bias, x: Value) -> Any:
    """Add, of a bias for each feature or map."""
    values = layer.W.get().ravel()
    if len(x.shape) > 2:
        values = values.reshape(-1, *[1] * (len(x.shape) - 1))
    return w.node("Add", [x, w.constant("W", values)])


def lookup(w: Writer, layer: LookupTable | Embedding, x: Value) -> Any:
    """Gather, of the rows of words."""
    words = x.name
    if words in w.inputs:
        w.words.add(words)
    else:
        words = w.node("Cast", [words], to=w.onnx.TensorProto.INT64)
    found = w.node("Gather", [w.constant("W", layer.W.get()), words], axis=0)
    return w.without_steps(found, layer.nin)


def dropout(w: Writer, layer: Dropout, x: Value) -> Any:
    """A product with the part that is kept, or in Caffe mode nothing."""
    return x.name if layer.caffe_mode or layer.keep == 1 else w.node("Mul", [x, w.constant("keep", layer.keep)])


def activation(w: Writer, layer: Activation | DataTransform, x: Value) -> Any:
    """The nodes of the layer's transform."""
    function = TRANSFORMS.get(type(layer.transform))
    if function is None:
        return w.refuse(f"ONNX has no operator for its transform {type(layer.transform).__name__}")
    return function(w, layer.transform, x)


# -- transforms --------------------------------------------------------------------------------------------------------


def _rectlin(w: Writer, transform: Any, x: Value) -> str:
    found: str = w.node("LeakyRelu", [x], alpha=float(transform.slope)) if transform.slope else w.node("Relu", [x])
    return found


def _rectlinclip(w: Writer, transform: Any, x: Value) -> Any:
    top = w.constant("xcut", transform.xcut)
    if not transform.slope:
        return w.node("Clip", [x, w.constant("zero", 0.0), top])
    return w.node("Clip", [_rectlin(w, transform, x), None, top])


def _softmax(w: Writer, transform: Any, x: Value) -> Any:
    if transform.axis != 0:
        return w.refuse(f"its Softmax along axis {transform.axis} is over the samples of a batch")
    if len(x.shape) <= 2:
        return w.node("Softmax", [x], axis=-1)
    return w.reshaped(Value(w.node("Softmax", [w.flat(x)], axis=-1), (math.prod(x.shape),)), x.shape)


def _pixelwise(w: Writer, transform: Any, x: Value) -> Any:
    if len(x.shape) < 3 or x.shape[0] != transform.c:
        return w.refuse(f"its PixelwiseSoftmax({transform.c}) is not over the maps of an input of shape {x.shape}")
    return w.node("Softmax", [x], axis=1)


def _swish(w: Writer, transform: Any, x: Value) -> Any:
    make = w.onnx.helper.make_node
    body = [make("Mul", ["x", "beta"], ["scaled"]), make("Sigmoid", ["scaled"], ["s"]), make("Mul", ["x", "s"], ["y"])]
    w.function("Swish", ["x", "beta"], body)
    return w.node("Swish", [x, w.constant("beta", transform.beta)], domain=DOMAIN)


def _gelu(w: Writer, transform: Any, x: Value) -> Any:
    make = w.onnx.helper.make_node
    body = [
        w.made_constant("root", math.sqrt(0.5)), w.made_constant("one", 1.0), w.made_constant("half", 0.5),
        make("Mul", ["x", "root"], ["scaled"]), make("Erf", ["scaled"], ["erf"]),
        make("Add", ["erf", "one"], ["above"]), make("Mul", ["x", "above"], ["twice"]),
        make("Mul", ["twice", "half"], ["y"]),
    ]  # fmt: skip
    w.function("GELU", ["x"], body)
    return w.node("GELU", [x], domain=DOMAIN)


TRANSFORMS: dict[type, Callable[[Writer, Any, Value], Any]] = {
    Identity: lambda w, transform, x: x.name,
    Rectlin: _rectlin,
    Rectlinclip: _rectlinclip,
    Explin: lambda w, transform, x: w.node("Elu", [x], alpha=float(transform.alpha)),
    Normalizer: lambda w, transform, x: w.node("Div", [x, w.constant("divisor", transform.divisor)]),
    Softmax: _softmax,
    PixelwiseSoftmax: _pixelwise,
    Tanh: lambda w, transform, x: w.node("Tanh", [x]),
    Logistic: lambda w, transform, x: w.node("Sigmoid", [x]),
    Swish: _swish,
    SiLU: _swish,
    GELU: _gelu,
}
"""Class of a transform -> function of (writer, transform, value) that returns the name of the result."""

# -- attention ---------------------------------------------------------------------------------------------------------


def attention(w: Writer, layer: MultiHeadAttention, x: Value) -> Any:
    """A call of a function of the file, which ONNX of this version has no operator for."""
    name = f"MultiHeadAttention_{layer.heads}x{layer.nin // layer.heads}"
    name += f"_causal_{layer.nsteps}" if layer.causal else ""
    parameters = ("W", "bias_in", "W_out", "bias_out")
    w.function(name, ["x", *parameters], _attention_body(w, layer), ["heads", "causal"])
    values = {one: getattr(layer, one).get() for one in parameters}
    values = {one: array.ravel() if one.startswith("bias") else array.T for one, array in values.items()}
    inputs = [w.steps(x), *(w.constant(one, array) for one, array in values.items())]
    y = w.node(name, inputs, domain=DOMAIN, heads=layer.heads, causal=int(layer.causal))
    return w.without_steps(y, layer.nsteps)


def _attention_body(w: Writer, layer: MultiHeadAttention) -> list[Any]:
    """The nodes: queries, keys and values of each head; scores, softmax, means; the product with the last weight."""
    make, size = w.onnx.helper.make_node, layer.nin // layer.heads
    mask: list[Any] = []
    if layer.causal:
        later = np.where(np.tri(layer.nsteps, dtype=bool), 0.0, -np.inf)
        mask = [w.made_constant("later", later), make("Add", ["scaled", "later"], ["masked"])]
    parts = [
        node
        for i, part in enumerate("qkv")
        for node in (w.made_constant(f"at_{i}", i, np.int64), make("Gather", ["turned", f"at_{i}"], [part], axis=0))
    ]
    return [
        w.made_constant("apart", [0, 0, 3, layer.heads, size], np.int64),
        w.made_constant("joined", [0, 0, layer.nin], np.int64),
        w.made_constant("scale", 1 / math.sqrt(size)),
        make("MatMul", ["x", "W"], ["product"]), make("Add", ["product", "bias_in"], ["projected"]),
        make("Reshape", ["projected", "apart"], ["by_head"]),
        make("Transpose", ["by_head"], ["turned"], perm=[2, 0, 3, 1, 4]),
        *parts,
        make("Transpose", ["k"], ["keys"], perm=[0, 1, 3, 2]), make("MatMul", ["q", "keys"], ["scores"]),
        make("Mul", ["scores", "scale"], ["scaled"]), *mask,
        make("Softmax", ["masked" if mask else "scaled"], ["weights"], axis=-1),
        make("MatMul", ["weights", "v"], ["means"]), make("Transpose", ["means"], ["by_step"], perm=[0, 2, 1, 3]),
        make("Reshape", ["by_step", "joined"], ["mixed"]), make("MatMul", ["mixed", "W_out"], ["last"]),
        make("Add", ["last", "bias_out"], ["y"]),
    ]  # fmt: skip


WRITERS: dict[type, Callable[[Writer, Any, Any], Any]] = {
    Linear: linear,
    Bias: bias,
    LookupTable: lookup,
    Embedding: lookup,
    Dropout: dropout,
    Activation: activation,
    DataTransform: activation,
    MultiHeadAttention: attention,
}
"""Class of a layer -> function that writes it."""
