"""Export of a model as an ONNX file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import shown
from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError
from neonlike.exchange.onnx import write_containers, write_dense, write_images, write_recurrent
from neonlike.exchange.onnx.library import DOMAIN, IR_VERSION, OPSET, onnx_for
from neonlike.exchange.onnx.writer import Value, Writer, plain
from neonlike.exchange.weights import require_set_up
from neonlike.layers.container import MergeMultistream, Sequential
from neonlike.util.persist import write_file
from neonlike.version import __version__

if TYPE_CHECKING:
    from neonlike.exchange.protocol import ExchangedModel
    from neonlike.layers.core.base import Layer

WRITERS = {
    **write_containers.WRITERS, **write_dense.WRITERS, **write_images.WRITERS, **write_recurrent.WRITERS,
}  # fmt: skip
"""Class of a layer -> function that writes it. Subclasses may compute something else, and are not found."""
BATCH = "N"
"""Name of the axis of samples, if its size is open."""


def to_onnx(model: ExchangedModel, path: Any, batch_size: int | None) -> None:
    """See :meth:`Model.to_onnx`."""
    onnx = onnx_for("to_onnx")
    require_set_up(model, "to_onnx")
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise ArgumentError(f"to_onnx: batch_size must be a positive integer or None, got {shown(batch_size)}")
    content = built(onnx, model, batch_size).SerializeToString()
    by_first(lambda: write_file(content, path, "to_onnx", lambda whole, file: file.write(whole)))


def built(onnx: Any, model: ExchangedModel, batch_size: int | None) -> Any:
    """The checked ModelProto of a model."""
    network, helper = model.layers, onnx.helper
    dtype = np.float64 if model.be.default_np_dtype == np.float64 else np.float32
    w = Writer(onnx, WRITERS, dtype)
    y = w.write(network, _inputs(w, network), None)
    outputs = []
    for place, value in enumerate(y if isinstance(y, list) else [y]):
        name = "output" if not isinstance(y, list) else f"output_{place}"
        w.nodes.append(helper.make_node("Identity", [value.name], [name], name=name))
        outputs.append(_described(w, name, value.shape, batch_size))
    inputs = [_described(w, name, shape, batch_size) for name, shape in w.inputs.items()]
    graph = helper.make_graph(w.nodes, "neonlike", inputs, outputs, list(w.initializers.values()))
    opsets = [helper.make_opsetid("", OPSET), *([helper.make_opsetid(DOMAIN, 1)] if w.functions else [])]
    found = helper.make_model(
        graph, opset_imports=opsets, functions=list(w.functions.values()), ir_version=IR_VERSION,
        producer_name="neonlike", producer_version=__version__,
    )  # fmt: skip
    onnx.checker.check_model(found)
    return found


def _inputs(w: Writer, layer: Layer) -> Any:
    """Values of the inputs of a network, in lists as deep as those that it takes."""
    while isinstance(layer, Sequential):
        layer = layer.layers[0]
    if isinstance(layer, MergeMultistream):
        return [_inputs(w, branch) for branch in layer.layers]
    name = "input" if not w.inputs else f"input_{len(w.inputs)}"
    w.inputs[name] = plain(layer.in_shape)
    return Value(name, plain(layer.in_shape))


def _described(w: Writer, name: str, shape: tuple[int, ...], batch_size: int | None) -> Any:
    """Type and shape of an input or output: samples first, and steps before features."""
    sizes = shape[::-1] if len(shape) == 2 else shape
    elem = w.onnx.TensorProto.INT64 if name in w.words else w.onnx.helper.np_dtype_to_tensor_dtype(w.dtype)
    return w.onnx.helper.make_tensor_value_info(name, elem, [BATCH if batch_size is None else batch_size, *sizes])
