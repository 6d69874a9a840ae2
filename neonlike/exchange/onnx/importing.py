"""Import of a model from an ONNX file."""

from __future__ import annotations

import os
from typing import Any

from neonlike.errors import ArgumentError, NeonlikeError, NotDefined
from neonlike.exchange.onnx import functions, read_dense, read_images, read_recurrent
from neonlike.exchange.onnx.graph import Flow, Graph
from neonlike.exchange.onnx.library import onnx_for
from neonlike.exchange.onnx.patterns import fold_pads, fuse_gelu, pick_states
from neonlike.exchange.onnx.reader import Reader, chain
from neonlike.exchange.places import assign
from neonlike.nervanaobject import NervanaObject
from neonlike.util.archive import Unreadable
from neonlike.util.persist import UnreadableFile, expand, read_bytes

READERS = {**functions.READERS, **read_dense.READERS, **read_images.READERS, **read_recurrent.READERS}
"""Operator -> function that makes its layers."""


def from_onnx(cls: Any, path: Any) -> Any:
    """See :meth:`Model.from_onnx`."""
    onnx = onnx_for("from_onnx")
    if not getattr(NervanaObject.be, "bsz", None):
        raise ArgumentError("from_onnx: there is no backend with a batch size; call gen_backend(batch_size=...) before")
    content = read_bytes(path)
    try:
        return _made(onnx, cls, content, path)
    except NeonlikeError:
        raise
    except Exception as error:  # a damaged file can raise any exception
        reason = " ".join(str(error).split())[:200]
        raise UnreadableFile(
            f"from_onnx: {path} is not a file of the ONNX format, or not a whole one ({reason})"
        ) from error


def _made(onnx: Any, cls: Any, content: bytes, path: Any) -> Any:
    """The model of a file's content."""
    if not content:
        raise Unreadable("it is empty")
    proto = onnx.load_model_from_string(content)
    onnx.external_data_helper.load_external_data_for_model(proto, os.path.dirname(os.path.abspath(expand(path))))
    onnx.checker.check_model(proto)
    graph = Graph(onnx, proto, path)
    fuse_gelu(graph)
    fold_pads(graph)
    pick_states(graph)
    graph.settle()
    reader = Reader(graph, READERS, read_dense.JOINS)
    flow, in_shape = _input(graph)
    layers, result = reader.layers(graph.input.name, graph.output.name, flow)
    if result.form not in ("plain", *read_dense.FEATURES_LAST):
        raise NotDefined(f"from_onnx: {path}: its output is {result.form} {result.shape}; expected samples first")
    model = cls(chain(layers))
    model.initialize(in_shape)
    assign(reader.weights)
    return model


def _input(graph: Graph) -> tuple[Flow, Any]:
    """The form of the input, and the shape that layers have for it."""
    tensor = graph.input.type.tensor_type
    sizes = [one.dim_value if one.HasField("dim_value") else None for one in tensor.shape.dim]
    if len(sizes) < 2 or any(not size for size in sizes[1:]):
        told = [one.dim_param or one.dim_value for one in tensor.shape.dim]
        raise NotDefined(
            f"from_onnx: {graph.where}: the input {graph.input.name!r} has shape {told}; expected samples first, and "
            "fixed sizes behind"
        )
    shape = tuple(int(size) for size in sizes[1:] if size)
    if len(shape) == 2 and not _is_read_as_maps(graph, graph.input.name):  # (N, steps, features)
        return Flow(shape[::-1], "steps"), shape[::-1]
    if len(shape) == 3 and _is_turned(graph, graph.input.name):  # (N, H, W, C)
        images = (shape[2], *shape[:2])
        return Flow(images, "maps last"), images
    return Flow(shape), shape


OF_MAPS = frozenset(
    "Conv ConvTranspose MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool BatchNormalization".split()
)
"""Operators whose axis 1 is the channels."""
ELEMENTWISE = frozenset("Add Sub Mul Div Relu LeakyRelu Elu Tanh Sigmoid Clip Identity Dropout Cast Pad".split())
"""Operators that leave open what the axes are."""


def _is_turned(graph: Graph, value: str) -> bool:
    """Whether channels come first by a transposition of a value, or of elementwise functions of it."""
    nodes = graph.consumers(value)
    return bool(nodes) and all(
        (one.operator == "Transpose" and list(one.attribute("perm", [])) == [0, 3, 1, 2])
        or (one.operator in ELEMENTWISE and _is_turned(graph, one.outputs[0]))
        for one in nodes
    )


def _is_read_as_maps(graph: Graph, value: str) -> bool:
    """Whether a convolution, pooling or batch normalization reads a value, or elementwise functions of it."""
    nodes = graph.consumers(value)
    return any(
        one.operator in OF_MAPS or (one.operator in ELEMENTWISE and _is_read_as_maps(graph, one.outputs[0]))
        for one in nodes
    )
