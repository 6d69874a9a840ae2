"""ONNX files of other programs: graphs made by hand, compared with ONNX Runtime; refusals that name the cause."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnx

from neonlike.errors import ArgumentError, NotDefined
from neonlike.initializers import Gaussian
from neonlike.layers import Affine
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers.base import get_param_list
from neonlike.util.persist import UnreadableFile
from tests.exchange.networks import columns, outputs, ready
from tests.exchange.onnx_runs import check_read, made, node

N = 3
pytestmark = [pytest.mark.engines("numpy", batch_size=N), pytest.mark.cpu_only("files are the same on every backend")]
FIRST = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    found: np.ndarray = FIRST.uniform(-1, 1, shape).astype(np.float32)
    return found


LAST = ("N", 3, 4, 2)  # height, width, channels
SEQUENCE = ("N", 4, 5)  # steps, features
OF_LSTM = {"W": array(1, 12, 5), "R": array(1, 12, 3), "B": array(1, 24)}
TURN = node("Transpose", "x", "t", perm=[1, 0, 2])
BACK = node("Transpose", "c", perm=[0, 2, 1])
AXIS = {"one": np.array([1])}

BOTH_WAYS = node("LSTM", "t W R B", "all last", hidden_size=3, direction="bidirectional")
OF_BOTH_WAYS = {"W": array(2, 12, 5), "R": array(2, 12, 3), "B": array(2, 24), "back": np.array(-1),
                "first": np.array(0)}  # fmt: skip
DOUBLE = {"s": np.array([1, 1, 2, 2], np.float32)}


def resized(**attributes: Any) -> Any:
    return onnx.helper.make_node("Resize", ["x", "", "s"], ["y"], **{"mode": "nearest", **attributes})


GRAPHS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any]]] = {
    "Gemm with factors": ([node("Gemm", "x W b", alpha=0.5, beta=2.0)], ("N", 4), {"W": array(4, 4), "b": array(4)}),
    "Gemm of a transposed weight": ([node("Gemm", "x W", transB=1)], ("N", 4), {"W": array(4, 4)}),
    "MatMul and Add from the left": ([node("MatMul", "x W", "a"), node("Add", "b a")], SEQUENCE,
                                     {"W": array(5, 5), "b": array(5)}),
    "Sub": ([node("MatMul", "x W", "a"), node("Sub", "a b")], ("N", 4), {"W": array(4, 3), "b": np.float32(0.3)}),
    "Mul and Div": ([node("Mul", "two x", "a"), node("Div", "a three")], ("N", 4),
                    {"two": np.float32(2), "three": np.array([3], np.float32)}),
    "a bias of maps": ([node("Add", "x b")], ("N", 3, 3, 3), {"b": array(1, 3, 1, 1)}),
    "SiLU": ([node("Sigmoid", "x", "a"), node("Mul", "x a")], ("N", 4), {}),
    "Clip": ([node("Clip", "x zero six")], ("N", 4), {"zero": np.float32(0), "six": np.float32(0.5)}),
    "Softmax of axis 1": ([node("Softmax", "x", axis=1)], ("N", 4, 4, 4), {}),
    "LRN with a bias": ([node("LRN", "x", size=3, bias=2.0, alpha=0.3)], ("N", 5, 2, 2), {}),
    "GlobalAveragePool": ([node("GlobalAveragePool", "x", "a"), node("Flatten", "a")], ("N", 5, 2, 3), {}),
    "GlobalMaxPool": ([node("GlobalMaxPool", "x", "a"), node("Squeeze", "a axes")], ("N", 5, 2, 3),
                      {"axes": np.array([2, 3])}),
    "ReduceMean of pixels": ([node("ReduceMean", "x", axes=[2, 3], keepdims=0)], ("N", 5, 2, 3), {}),
    "ReduceMean of steps": ([node("ReduceMean", "x", axes=[-2], keepdims=0)], SEQUENCE, {}),
    "MaxPool with ceil_mode": ([node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)],
                               ("N", 2, 4, 4), {}),
    "AveragePool counting no padding": ([node("AveragePool", "x", kernel_shape=[2, 2], count_include_pad=1)],
                                        ("N", 2, 4, 4), {}),
    "a reshape to all": ([node("Reshape", "x s", "a"), node("Gemm", "a W")], ("N", 2, 2, 2),
                         {"s": np.array([-1, 8]), "W": array(8, 3)}),
    "the last state of an LSTM": ([node("Transpose", "x", "t", perm=[1, 0, 2]),
                                   node("LSTM", "t W R B", "all last", hidden_size=3), node("Squeeze", "last zero")],
                                  SEQUENCE, {**OF_LSTM, "zero": np.array([0])}),
    "an LSTM without bias, first state 0": ([node("Transpose", "x", "t", perm=[1, 0, 2]),
                                             onnx.helper.make_node("LSTM", ["t", "W", "R", "", "", "h"], ["a"],
                                                                   hidden_size=3),
                                             node("Squeeze", "a one", "b"), node("Transpose", "b", perm=[1, 0, 2])],
                                            SEQUENCE, {**OF_LSTM, **AXIS, "h": np.zeros((1, N, 3), np.float32)}),
    "the last step of steps": ([node("Gather", "x last", axis=1)], SEQUENCE, {"last": np.array(3)}),
    "constants of nodes": ([onnx.helper.make_node("Constant", [], ["c"], value_float=0.25), node("Add", "x c")],
                           ("N", 4), {}),
    "Dropout and Identity": ([node("Dropout", "x", "a"), node("Identity", "a")], ("N", 4), {}),
    "Dropout of inference": ([node("Dropout", "x half training")], ("N", 4),
                             {"half": np.float32(0.5), "training": np.array(False)}),
    "a sum within a sum": ([node("Relu", "x", "a"), node("Tanh", "x", "b"), node("Add", "a b", "c"),
                            node("Add", "c x")], ("N", 4), {}),
    "Sum and Concat": ([node("Relu", "x", "a"), node("Tanh", "x", "a2"), node("Sum", "a x a2", "b"),
                        node("Concat", "b x", axis=-1)], ("N", 4), {}),
    "the same value twice": ([node("Relu", "x", "a"), node("Add", "a a")], ("N", 4), {}),
    "automatic padding that is even": ([node("Conv", "x W", "a", auto_pad="SAME_UPPER", strides=[1, 2]),
                                        node("MaxPool", "a", kernel_shape=[3, 3], auto_pad="SAME_LOWER")],
                                       ("N", 2, 4, 5), {"W": array(3, 2, 3, 3)}),
    "ConvTranspose in both axes": ([node("ConvTranspose", "x W b", strides=[2, 1], pads=[1, 0, 1, 0])], ("N", 2, 3, 4),
                                   {"W": array(2, 2, 3, 3), "b": array(2)}),
}  # fmt: skip
GELU_BEGINS = [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c")]
OF_GELU = {"root": np.float32(math.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
GRAPHS |= {
    "GELU, halved last": ([*GELU_BEGINS, node("Mul", "x c", "d"), node("Mul", "d half")], SEQUENCE, OF_GELU),
    "GELU, halved first": ([*GELU_BEGINS, node("Mul", "x half", "d"), node("Mul", "d c")], ("N", 4), OF_GELU),
    "GELU, halved between": ([*GELU_BEGINS, node("Mul", "half c", "d"), node("Mul", "d x")], ("N", 4), OF_GELU),
    "GELU of an activation, in a sum": ([node("Tanh", "z", "x"), *GELU_BEGINS, node("Mul", "x c", "d"),
                                         node("Mul", "d half", "e"), node("Add", "e x")], ("N", 4), OF_GELU),
    "a GRU without bias that resets behind": (
        [node("Transpose", "x", "t", perm=[1, 0, 2]), node("GRU", "t W R", "a", hidden_size=3, linear_before_reset=1),
         node("Squeeze", "a one", "b"), node("Transpose", "b", perm=[1, 0, 2])],
        SEQUENCE, {"W": array(1, 9, 5), "R": array(1, 9, 3), **AXIS}),
    "a first state of the batch's shape": (
        [node("Shape", "x", "s", end=1), node("Concat", "unit s units", "shape", axis=0),
         node("ConstantOfShape", "shape", "h"), node("Transpose", "x", "t", perm=[1, 0, 2]),
         onnx.helper.make_node("LSTM", ["t", "W", "R", "B", "", "h", "h"], ["a"], hidden_size=3),
         node("Squeeze", "a one", "b"), node("Gather", "b last", axis=0)],
        SEQUENCE, {**OF_LSTM, **AXIS, "unit": np.array([1]), "units": np.array([3]), "last": np.array(-1)}),
    "uneven padding": ([node("Conv", "x W", strides=[2, 1], pads=[0, 2, 1, 0])], ("N", 2, 5, 4),
                       {"W": array(3, 2, 3, 2)}),
    "automatic padding at the end": ([node("Conv", "x W", "a", auto_pad="SAME_UPPER", strides=[2, 2]),
                                      node("MaxPool", "a", kernel_shape=[2, 2], auto_pad="SAME_UPPER")],
                                     ("N", 2, 4, 6), {"W": array(3, 2, 3, 3)}),
    "automatic padding at the beginning": ([node("Conv", "x W", auto_pad="SAME_LOWER", strides=[2, 2])],
                                           ("N", 2, 4, 6), {"W": array(3, 2, 3, 3)}),
    "maxima below 0, padded": ([node("Sub", "x far", "a"),
                                node("MaxPool", "a", kernel_shape=[2, 2], pads=[0, 1, 1, 0])],
                               ("N", 2, 3, 3), {"far": np.float32(9)}),
    "windows that overhang": ([node("Sub", "x far", "a"),
                               node("MaxPool", "a", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)],
                              ("N", 2, 6, 5), {"far": np.float32(9)}),
    "padding that counts": ([node("AveragePool", "x", kernel_shape=[2, 3], pads=[1, 1, 0, 1], count_include_pad=1)],
                            ("N", 2, 4, 4), {}),
    "a padding apart": ([node("Pad", "x p", "a"), node("Relu", "a", "b"), node("Pad", "b q half")], ("N", 2, 3, 4),
                        {"p": np.array([0, 0, 1, 0, 0, 0, 0, 2]), "q": np.array([0, 0, 0, -1, 0, 0, -2, 1]),
                         "half": np.float32(0.5)}),
    "a padding of named axes": ([node("Pad", "x p zero axes")], ("N", 2, 3, 4),
                                {"p": np.array([1, 2]), "zero": np.float32(0), "axes": np.array([-1])}),
    "a padding of an earlier version": ([node("Pad", "x", pads=[0, 0, 1, 0, 0, 0, 1, 2], value=0.5)], ("N", 2, 3, 4),
                                        {}),
    "padding before a convolution": ([node("Pad", "x p", "a"), node("Conv", "a W", pads=[0, 1, 0, 0])], ("N", 2, 3, 4),
                                     {"p": np.array([0, 0, 1, 0, 0, 0, 1, 1]), "W": array(3, 2, 2, 2)}),
    "padding before two convolutions": ([node("Pad", "x p", "a"), node("Conv", "a W", "b"), node("Conv", "a V", "c"),
                                         node("Add", "b c")], ("N", 2, 3, 4),
                                        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "W": array(3, 2, 2, 2),
                                         "V": array(3, 2, 2, 2)}),
    "a convolution of sequences": ([node("Conv", "x W b", "a", strides=[2], pads=[2, 1], dilations=[2]),
                                    node("Relu", "a", "c"), BACK], ("N", 2, 9), {"W": array(4, 2, 3), "b": array(4)}),
    "groups of a convolution of sequences": ([node("Relu", "x", "a"), node("Conv", "a W", "c", group=2, pads=[1, 1]),
                                              BACK],
                                             ("N", 4, 9), {"W": array(4, 2, 3)}),
    "a transposed convolution of sequences": ([node("ConvTranspose", "x W b", "c", strides=[2], output_padding=[1]),
                                               BACK], ("N", 3, 4), {"W": array(3, 2, 3), "b": array(2)}),
    "poolings of sequences": ([node("MaxPool", "x", "a", kernel_shape=[2], strides=[2]),
                               node("AveragePool", "a", "b", kernel_shape=[3], pads=[1, 1]), node("Pad", "b p", "c"),
                               node("GlobalAveragePool", "c", "d"), node("Flatten", "d")], ("N", 3, 8),
                              {"p": np.array([0, 0, 1, 0, 0, 2])}),
    "normalized sequences, then steps": ([node("BatchNormalization", "x g g g v", "a"),
                                          node("Softmax", "a", "b", axis=1),
                                          node("Transpose", "b", "c", perm=[0, 2, 1]), node("MatMul", "c W")],
                                         ("N", 3, 4), {"g": array(3), "v": np.ones(3, np.float32), "W": array(3, 3)}),
    "the largest of the steps": ([node("ReduceMax", "x", axes=[1], keepdims=0)], SEQUENCE, {}),
    "means along sequences": ([node("Conv", "x W", "a"), node("ReduceMean", "a", axes=[2], keepdims=0)], ("N", 2, 5),
                              {"W": array(3, 2, 2)}),
    "axes of one element": ([node("Unsqueeze", "x one", "a"), node("Flatten", "a", "b"),
                             node("Unsqueeze", "b one", "c"),
                             node("Reshape", "c s", "d"), node("Unsqueeze", "d one", "e"), node("Squeeze", "e one")],
                            ("N", 4), {**AXIS, "s": np.array([-1, 4])}),
    "the only direction's last state": ([TURN, node("GRU", "t W R", "all last", hidden_size=3),
                                         node("Gather", "last end")], SEQUENCE,
                                        {"W": array(1, 9, 5), "R": array(1, 9, 3), "end": np.array(-1)}),
    "transposed convolutions that end later": (
        [node("ConvTranspose", "x W", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])], ("N", 2, 3, 3),
        {"W": array(2, 3, 3, 3)}),
    "transposed convolutions that end far behind": (
        [node("ConvTranspose", "x W b", strides=[3, 3], pads=[0, 1, 2, 0], output_padding=[2, 1])], ("N", 2, 3, 3),
        {"W": array(2, 3, 2, 2), "b": array(3)}),
    "computed factors": ([node("Pow", "five half", "a"), node("Mod", "a two", "b", fmod=1), node("MatMul", "W W", "c"),
                          node("MatMul", "x c", "d"), node("Mul", "d b")], ("N", 3),
                         {"five": np.float32(5), "half": np.float32(0.5), "two": np.float32(2), "W": array(3, 3)}),
    "a summand of columns": ([node("Add", "x b")], ("N", 5, 5, 5), {"b": array(5)}),
    "a summand of each step": ([node("Add", "b x")], SEQUENCE, {"b": array(1, 4, 5)}),
    "a factor of each step of samples": ([TURN, node("Mul", "t b", "c"), node("Transpose", "c", perm=[1, 0, 2])],
                                         SEQUENCE, {"b": array(4, 1, 5)}),
    "means and deviations of colours": ([node("Sub", "x m", "a"), node("Div", "a d")], ("N", 3, 2, 4),
                                        {"m": array(1, 3, 1, 1), "d": 2 + array(3, 1, 1)}),
    "hard functions": ([node("HardSwish", "x", "a"), node("HardSigmoid", "a", "b", alpha=1 / 6), node("Softplus", "b")],
                       ("N", 3, 2, 4), {}),
    "PRelu": ([node("PRelu", "x s")], ("N", 3, 2, 4), {"s": array(3, 1, 1)}),
    "PRelu of features": ([node("PRelu", "x s")], ("N", 3), {"s": array(3)}),
    "logarithms of a softmax": ([node("LogSoftmax", "x")], SEQUENCE, {}),
    "logarithms of a softmax of maps": ([node("LogSoftmax", "x", axis=1)], ("N", 3, 2, 4), {}),
    "repeated pixels": ([resized()], ("N", 2, 3, 2), DOUBLE),
    "pixels repeated 4 times": ([node("Resize", "x none none s", mode="nearest", nearest_mode="floor",
                                      coordinate_transformation_mode="asymmetric")], ("N", 2, 3, 2),
                                {"none": np.array([], np.float32), "s": np.array([N, 2, 12, 8])}),
    "a backward LSTM": ([TURN, node("LSTM", "t W R B", "a", hidden_size=3, direction="reverse"),
                         node("Squeeze", "a one", "b"), node("Transpose", "b", perm=[1, 0, 2])], SEQUENCE,
                        OF_LSTM | AXIS),
    "the last state of a backward RNN": ([TURN, node("RNN", "t W R", "all last", hidden_size=3, direction="reverse"),
                                          node("Squeeze", "last zero")], SEQUENCE,
                                         {"W": array(1, 3, 5), "R": array(1, 3, 3), "zero": np.array([0])}),
    **{f"both ways of a GRU, linear_before_reset={after}": (
        [TURN, node("GRU", "t W R B", "a", hidden_size=3, direction="bidirectional", linear_before_reset=after),
         node("Transpose", "a", "b", perm=[0, 2, 1, 3]), node("Reshape", "b s", "c"),
         node("Transpose", "c", perm=[1, 0, 2])], SEQUENCE,
        {"W": array(2, 9, 5), "R": array(2, 9, 3), "B": array(2, 18), "s": np.array([0, 0, -1])}) for after in (0, 1)},
    "last states of both ways": ([TURN, BOTH_WAYS, node("Gather", "last back", "a"), node("Gather", "last first", "b"),
                                  node("Concat", "a b", axis=1)], SEQUENCE, OF_BOTH_WAYS),
    "a state of several levels": (
        [TURN, node("LSTM", "t W R B", "all last", hidden_size=3), node("Squeeze", "all one", "u"),
         node("GRU", "u V Q", "a2 last2", hidden_size=3), node("Concat", "last last2", "states", axis=0),
         node("Gather", "states end")], SEQUENCE,
        {**OF_LSTM, **AXIS, "V": array(1, 9, 3), "Q": array(1, 9, 3), "end": np.array(-1)}),
    "a state beside all outputs": (
        [TURN, node("LSTM", "t W R B", "all last", hidden_size=3), node("Squeeze", "last zero", "a"),
         node("Squeeze", "all one", "b"), node("Gather", "b zeroth", "c"), node("Concat", "a c", axis=1)], SEQUENCE,
        {**OF_LSTM, **AXIS, "zero": np.array([0]), "zeroth": np.array(3)}),
    "nodes that nothing reads": ([node("Relu", "x", "y"), node("Erf", "x", "unread")], ("N", 4), {}),
    "images with the maps last": (
        [node("Sub", "x m", "a"), node("Mul", "a f", "n"), node("Transpose", "n", "t", perm=[0, 3, 1, 2]),
         node("Conv", "t W", "b"), node("Transpose", "b", "c", perm=[0, 2, 3, 1]), node("Add", "c v", "d"),
         node("Flatten", "d", "e"), node("Gemm", "e V")], LAST,
        {"m": array(2), "f": 2 + array(3, 4, 2), "W": array(3, 2, 2, 2), "v": array(3), "V": array(18, 4)}),
    "pixels with the maps last": (
        [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Relu", "t", "b"),
         node("Transpose", "b", "c", perm=[0, 2, 3, 1]), node("MatMul", "c W", "d"), node("Softmax", "d", "e"),
         node("Concat", "c e", "f", axis=3), node("Transpose", "f", perm=[0, 3, 1, 2])], LAST, {"W": array(2, 3)}),
    "means of images with the maps last": (
        [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Relu", "t", "b"),
         node("Transpose", "b", "c", perm=[0, 2, 3, 1]), node("ReduceMean", "c", axes=[1, 2], keepdims=0)], LAST, {}),
    "steps as features": ([node("Reshape", "x s", "a"), node("MatMul", "a W")], SEQUENCE,
                          {"s": np.array([0, -1]), "W": array(20, 3)}),
    "steps flattened": ([node("Flatten", "x", "a"), node("MatMul", "a W")], SEQUENCE, {"W": array(20, 3)}),
    "a reshape by the shape": ([node("Shape", "x", "s", start=0, end=1), node("Concat", "s rest", "t", axis=0),
                                node("Reshape", "x t", allowzero=1)], ("N", 2, 2, 2), {"rest": np.array([8])}),
}  # fmt: skip


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_are_read(be, rng, case, tmp_path):
    nodes, shape, constants = GRAPHS[case]
    given = "z" if case == "GELU of an activation, in a sum" else "x"
    opset = {"a padding of an earlier version": 10, "a padding of named axes": 18}.get(case, 17)
    path = made(tmp_path / "g.onnx", nodes, shape, constants, given=given, opset=opset)
    x = rng.normal(size=(N, *shape[1:])).astype(np.float32)
    ours = x.transpose(0, 3, 1, 2) if shape == LAST else x if case in MAPS else None
    check_read(path, x, ours)


MAPS = {case for case, (nodes, shape, _) in GRAPHS.items() if len(shape) == 3 and "sequences" in case}
"""Graphs of three axes that have the features before the steps."""


def test_what_was_read_is_saved_and_trained(be, rng, tmp_path):
    """Layers that pad, and those that run functions of operators, have a backward pass and come back from a file."""
    nodes = [node("Conv", "x W", "a", strides=[2, 2], pads=[0, 0, 1, 1]), node("HardSwish", "a", "b"),
             node("PRelu", "b s", "c"), node("Transpose", "c", "d", perm=[0, 2, 3, 1]), node("Flatten", "d", "e"),
             node("Gemm", "e V")]  # fmt: skip
    constants = {"W": array(3, 2, 3, 3), "s": array(3, 1, 1), "V": array(12, 4)}
    x = rng.normal(size=(N, 2, 4, 4)).astype(np.float32)
    model = check_read(made(tmp_path / "g.onnx", nodes, ("N", 2, 4, 4), constants), x)
    model.save_params(tmp_path / "m.prm")
    again = Model(tmp_path / "m.prm")
    again.initialize((2, 4, 4))
    np.testing.assert_array_equal(outputs(again, x), outputs(model, x))

    batch = be.array(columns(x))
    before = model.fprop(batch).get()
    model.bprop(be.array(before))  # of the sum of squares, halved
    for layer in model.layers_to_optimize:
        for (parameter, gradient), _ in get_param_list([layer]):
            parameter[:] = parameter - 1e-3 * gradient
            assert np.any(gradient.get())
    after = model.fprop(batch).get()
    assert np.square(after).sum() < np.square(before).sum()


def test_gelu_of_a_later_version(be, rng, tmp_path):
    path = made(tmp_path / "g.onnx", [node("Gelu", "x")], ("N", 4), {}, opset=20)
    check_read(path, rng.normal(size=(N, 4)).astype(np.float32))


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [(("N", 4), {}), (("N", 5, 1, 1), {}), (SEQUENCE, {"axis": 2}), (SEQUENCE, {"axis": -1})],
)
def test_softmax_of_an_earlier_version(be, rng, shape, attributes, tmp_path):
    path = made(tmp_path / "g.onnx", [node("Softmax", "x", **attributes)], shape, {}, opset=11)
    check_read(path, rng.normal(size=(N, *shape[1:])).astype(np.float32))


@pytest.mark.parametrize(("shape", "axis"), [(SEQUENCE, 1), (("N", 5, 2, 1), 1), (("N", 5, 1, 2), -3)])
def test_softmax_of_an_earlier_version_over_several_axes_is_refused(be, shape, axis, tmp_path):
    for attributes in [{"axis": axis}, {}]:
        path = made(tmp_path / "g.onnx", [node("Softmax", "x", **attributes)], shape, {}, opset=12)
        with pytest.raises(NotDefined, match=r"axis=1 of samples .* flattens several axes below opset 13"):
            Model.from_onnx(path)


IMAGES = ("N", 2, 5, 5)
FILTERS = {"W": array(3, 2, 2, 2)}
GRU_WEIGHTS = {"W": array(1, 9, 5), "R": array(1, 9, 3)}

REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "half of a GELU": ([*GELU_BEGINS, node("Mul", "x c", "d"), node("Mul", "d one")], ("N", 4), OF_GELU,
                       "operator Erf: no layer is made of this operator"),
    "a constant that fills the memory": ([node("ConstantOfShape", "s", "c"), node("Add", "x c")], ("N", 4),
                                         {"s": np.array([1 << 40, 4])}, "operator ConstantOfShape: its constant"),
    "an unknown operator": ([node("Erf", "x")], ("N", 4), {}, "node 'Erf of y', operator Erf: no layer"),
    "an average of uneven padding": ([node("AveragePool", "x", kernel_shape=[2, 2], auto_pad="SAME_UPPER")], IMAGES, {},
                                     "operator AveragePool: its padding, which differs at both ends and does not"),
    "means that overhang": ([node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], IMAGES, {},
                            "its attribute ceil_mode=1"),
    "windows of padding alone": ([node("MaxPool", "x", kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)], IMAGES, {},
                                 "its attribute ceil_mode=1 makes windows of padding alone"),
    "an unknown padding": ([node("Pad", "x p", mode="reflect")], IMAGES, {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
                           "operator Pad: its mode=reflect with pads="),
    "padding of channels": ([node("Pad", "x p")], IMAGES, {"p": np.array([0, 1, 0, 0, 0, 0, 0, 0])},
                            "operator Pad: its mode=constant with pads=[0, 1, 0"),
    "another attribute": ([node("Gemm", "x W", transA=1)], ("N", 3), {"W": array(3, 3)}, "its attribute transA"),
    "groups of a transposed convolution": ([node("ConvTranspose", "x W", group=2)], IMAGES, {"W": array(2, 2, 2, 2)},
                                           "its attribute group=2 cannot be read, only 1"),
    "an axis of pixels": ([node("Softmax", "x", axis=3)], IMAGES, {}, "its attribute axis=3"),
    "features against samples": ([node("Transpose", "x", perm=[1, 0])], ("N", 3), {}, "its attribute perm=[1, 0]"),
    "a summand of each sample": ([node("Add", "x b")], ("N", 5), {"b": array(N, 5)},
                                 "its constant of shape (3, 5) does not fit plain samples of shape (5,); expected one"),
    "a divisor of 0": ([node("Div", "x b")], ("N", 5), {"b": np.float32(0)}, "a divisor of 0 cannot be read"),
    "another hard sigmoid": ([node("HardSigmoid", "x")], ("N", 5), {}, "its attributes alpha=0.2, beta=0.5 cannot"),
    "logarithms of a softmax of pixels": ([node("LogSoftmax", "x", axis=3)], IMAGES, {},
                                          "its attribute axis=3 of plain"),
    "layers of pixels": ([node("Transpose", "x", "c", perm=[0, 2, 3, 1]), node("LayerNormalization", "c g")], IMAGES,
                         {"g": array(2)}, "its attribute axis=-1 of maps last (2, 5, 5) cannot be read"),
    "layers of whole images": ([node("Transpose", "x", "c", perm=[0, 2, 3, 1]),
                                node("LayerNormalization", "c g", axis=1)], IMAGES, {"g": array(5, 5, 2)},
                               "its attribute axis=1 of maps last (2, 5, 5) cannot be read"),
    "pixels between others": ([resized(mode="linear")], IMAGES, DOUBLE, "operator Resize: its mode=linear, half_pixel"),
    "pixels that are not repeated": ([resized(nearest_mode="ceil")], IMAGES, DOUBLE,
                                     "its mode=nearest, half_pixel, ceil"),
    "pixels of one axis": ([resized()], IMAGES, {"s": np.array([1, 1, 2, 1], np.float32)},
                           "with scales=[1.0, 1.0, 2.0, 1.0] of plain (2, 5, 5) cannot be read"),
    "a GRU that resets behind a rectifier": ([TURN, node("GRU", "t W R", hidden_size=3, linear_before_reset=1,
                                                         activations=["Sigmoid", "Relu"])], SEQUENCE, GRU_WEIGHTS,
                                             "operator GRU: its attribute activations of linear_before_reset=1"),
    "all states at once": ([TURN, node("LSTM", "t W R B", "all last", hidden_size=3), node("Gather", "last both")],
                           SEQUENCE, {**OF_LSTM, "both": np.array([0, 0])},
                           "index [0, 0] along axis 0 of final (3,) cannot be read, only"),
    "an LSTM that clips": ([TURN, node("LSTM", "t W R", hidden_size=3, clip=1.0)], SEQUENCE, OF_LSTM,
                           "its attribute clip=1.0 cannot be read"),
    "other activations": ([TURN, node("LSTM", "t W R", hidden_size=3, activations=["Elu", "Tanh", "Tanh"])], SEQUENCE,
                          OF_LSTM, "its attribute activations=['Elu', 'Tanh', 'Tanh']"),
    "a first state": ([TURN, onnx.helper.make_node("LSTM", ["t", "W", "R", "", "", "h"], ["y"])], SEQUENCE,
                      {**OF_LSTM, "h": np.ones((1, 3, 3), np.float32)}, "its input 5, lengths, a first state"),
    "computed constants": ([node("Erf", "a", "c"), node("Add", "x c")], ("N", 1), {"a": np.float32(1)},
                           "operator Erf: it computes a constant"),
    "a product of values": ([node("Relu", "x", "a"), node("Tanh", "x", "b"), node("Mul", "a b")], ("N", 4), {},
                            "operator Mul: a product of computed values cannot be read"),
    "crossing branches": ([node("Relu", "x", "a"), node("Tanh", "a", "b"), node("Tanh", "x", "c"),
                           node("Add", "a c", "d"), node("Concat", "b d", axis=1)], ("N", 4), {},
                          "operator Relu: its result is read by branches that do not end at one place"),
    "an open size": ([node("Relu", "x")], ("N", "F"), {}, "the input 'x' has shape ['N', 'F']; expected samples first"),
    "a constant behind the steps": ([node("Relu", "x", "a"), node("Concat", "x a c", axis=1)], SEQUENCE,
                                    {"c": array(N, 2, 5)}, "operator Concat: a constant among the values"),
    "dropout in training": ([node("Dropout", "x half training")], ("N", 4),
                            {"half": np.float32(0.5), "training": np.array(True)}, "its training_mode, input 2, is"),
    "steps first": ([TURN, node("Relu", "t")], SEQUENCE, {}, "its output is time (5, 4); expected samples first"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_node_operator_and_attribute(be, case, tmp_path):
    nodes, shape, constants, text = REFUSED[case]
    path = made(tmp_path / "g.onnx", nodes, shape, constants)
    with pytest.raises(NotDefined, match=re.escape(text)):
        Model.from_onnx(path)


def test_integers_as_outputs_are_refused(be, tmp_path):
    kind = onnx.TensorProto.INT64
    path = made(tmp_path / "g.onnx", [node("Relu", "x", "a"), node("Cast", "a", to=kind)], ("N", 4), {}, result=kind)
    with pytest.raises(NotDefined, match="operator Cast: its attribute to=7 cannot be read"):
        Model.from_onnx(path)


def test_windows_that_caffe_adds_are_refused(be, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(be, "compat_mode", "caffe")
    pool = node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    check_read(made(tmp_path / "even.onnx", [pool], ("N", 2, 4, 4), {}), rng.normal(size=(N, 2, 4, 4)).astype("f"))
    with pytest.raises(NotDefined, match=r"operator MaxPool: its windows .* where compat_mode='caffe' adds one"):
        Model.from_onnx(made(tmp_path / "odd.onnx", [pool], IMAGES, {}))


def test_data_of_a_file_lies_in_its_own_folder(be, rng, tmp_path, monkeypatch):
    path = made(tmp_path / "g.onnx", [node("Gemm", "x W")], ("N", 300), {"W": array(300, 4)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin")
    monkeypatch.setenv("MODELS", str(tmp_path))
    x = rng.normal(size=(N, 300)).astype(np.float32)
    wanted = outputs(check_read(path, x), x)
    np.testing.assert_array_equal(outputs(Model.from_onnx("$MODELS/g.onnx"), x), wanted)


def test_constants_do_not_grow_without_end(be, tmp_path, monkeypatch):
    monkeypatch.setattr("neonlike.exchange.onnx.constants.MOST_ELEMENTS", 1 << 10)
    nodes = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(10)]
    nodes += [node("Slice", "c10 zero one", "d"), node("Add", "x d")]
    constants = {"c0": array(4, 4), "zero": np.array([0]), "one": np.array([1])}
    path = made(tmp_path / "g.onnx", nodes, ("N", 4), constants)
    with pytest.raises(NotDefined, match="node 'Concat of c7', operator Concat: its constant is too large"):
        Model.from_onnx(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, math.inf])
def test_damaged_files_are_unreadable(be, rng, part, tmp_path):
    path = tmp_path / "m.onnx"
    ready([Affine(3, Gaussian())], 4, rng).to_onnx(path)
    content = path.read_bytes()
    path.write_bytes(b"nothing of the kind" if part == math.inf else content[: int(part * len(content))])
    with pytest.raises(UnreadableFile, match=r"m\.onnx is not a file of the ONNX format"):
        Model.from_onnx(path)


def test_a_backend_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(NervanaObject, "be", None)
    with pytest.raises(ArgumentError, match="call gen_backend"):
        Model.from_onnx(tmp_path / "m")
