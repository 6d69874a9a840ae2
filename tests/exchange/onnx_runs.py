"""Runs of ONNX files by ONNX Runtime, and graphs made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime

from neonlike.models import Model
from tests.exchange.networks import outputs


def run(path: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of a file, in ONNX's layout."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {one.name: x for one, x in zip(session.get_inputs(), inputs)}))


def turned(x: np.ndarray) -> np.ndarray:
    """Sequences ``(N, features, steps)`` as ``(N, steps, features)``, and back; anything else as it is."""
    return np.ascontiguousarray(x.transpose(0, 2, 1)) if x.ndim == 3 else x


def check(model: Model, path: Path, x: np.ndarray, rtol: float = 1e-5) -> None:
    """Write the model, compare its outputs with ONNX Runtime's, read it again and compare once more."""
    model.to_onnx(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    wanted = outputs(model, x)
    compare(run(path, turned(x))[0], wanted, rtol)
    compare(run(path, turned(x)[:1])[0], wanted[:1], rtol)  # of any number of samples
    again = Model.from_onnx(path)
    np.testing.assert_allclose(outputs(again, x), wanted, rtol=rtol, atol=rtol)
    again.to_onnx(path)
    compare(run(path, turned(x))[0], wanted, rtol)


def compare(found: np.ndarray, wanted: np.ndarray, rtol: float = 1e-5) -> None:
    wanted = turned(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def made(path: Path, nodes: Sequence[Any], shape: Sequence[Any], constants: dict[str, Any], **options: Any) -> Path:
    """Write a graph of ``nodes`` from ``x``, of this shape, to ``y``."""
    floats = onnx.TensorProto.FLOAT
    given = onnx.helper.make_tensor_value_info(options.get("given", "x"), floats, shape)
    result = onnx.helper.make_tensor_value_info("y", options.get("result", floats), None)
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = onnx.helper.make_graph(list(nodes), "g", [given], [result], tensors)
    opsets = [onnx.helper.make_opsetid("", options.get("opset", 17))]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def node(operator: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    """A node of inputs by their names."""
    name = f"{operator} of {output.split()[0]}"
    return onnx.helper.make_node(operator, inputs.split(), output.split(), name=name, **attributes)


def check_read(path: Path, x: np.ndarray, ours: np.ndarray | None = None) -> Model:
    """Read a file and compare the model's outputs with ONNX Runtime's; ``ours`` is x in our order of axes."""
    model = Model.from_onnx(path)
    compare(run(path, x)[0], outputs(model, turned(x) if ours is None else ours))
    return model
