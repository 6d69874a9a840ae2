"""Constants that a graph of ONNX computes: of shapes, and of other constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SAMPLES = 8191
"""Number of samples for which shapes are computed, if it is open: a prime, which no other size is likely to be."""
MOST_ELEMENTS = 1 << 28
"""Number of elements of the largest constant that is computed."""
BROADCAST = frozenset("Add And Div Equal Greater Less Max Min Mod Mul Or Pow Sub Where".split())
"""Operators whose result has the broadcast shape of their inputs."""
FOLDED = BROADCAST | frozenset(
    "Abs Cast Ceil Concat Constant ConstantOfShape Exp Expand Floor Gather Identity MatMul Neg Not Reciprocal "
    "ReduceMax ReduceMin ReduceProd ReduceSum Reshape Shape Slice Sqrt Squeeze Transpose Unsqueeze".split()
)
"""Operators that are computed: those that programs make shapes and first states by."""


def shapes_of(onnx: Any, model: Any, given: str) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Number of samples of the input named ``given``, and the shapes of all values that follow from it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = (one.type.tensor_type for one in copy.graph.input if one.name == given)
    samples = SAMPLES
    if tensor.shape.dim:
        first = tensor.shape.dim[0]
        samples = first.dim_value or SAMPLES
        first.dim_value = samples
    for one in copy.graph.output:  # their shapes are of an open number of samples
        one.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(copy, data_prop=True).graph
    found = {}
    for one in (*inferred.input, *inferred.value_info, *inferred.output):
        sizes = one.type.tensor_type.shape.dim
        if sizes and all(size.dim_value for size in sizes):
            found[one.name] = tuple(size.dim_value for size in sizes)
    return samples, found


def folded(onnx: Any, node: Any, proto: Any, opsets: dict[str, int], constants: dict[str, np.ndarray]) -> np.ndarray:
    """The first output of a node whose inputs are constants.

    Raises
    ------
    NotDefined
        If it is none of the operators that are computed, or the constant is too large.
    """
    given = {name: constants[name] for name in node.inputs if name}
    if node.operator not in FOLDED:
        node.refuse("it computes a constant, which cannot be read; let the program that wrote the file fold constants")
    if (elements := _most_elements(node, given)) > MOST_ELEMENTS:
        node.refuse(f"its constant is too large, of up to {elements} elements")
    found = onnx.reference.ReferenceEvaluator(proto, opsets=opsets).run(None, given)
    return np.asarray(found[0])


def _most_elements(node: Any, given: dict[str, np.ndarray]) -> int:
    """A number of elements that the result of a node does not exceed."""
    arrays = [given[name] for name in node.inputs if name]
    if node.operator in ("ConstantOfShape", "Expand"):
        asked = math.prod(max(1, abs(int(size))) for size in arrays[-1].ravel())
        return asked if node.operator == "ConstantOfShape" else asked * arrays[0].size
    if node.operator in BROADCAST:
        return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    if node.operator in ("Gather", "MatMul"):
        return math.prod(array.size for array in arrays)
    return sum(array.size for array in arrays)
