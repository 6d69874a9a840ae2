"""Models as ONNX files: ONNX Runtime computes the same, and models read from them do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnx

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, MissingExtra, NotDefined
from neonlike.exchange.places import arrays_of
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    GRU,
    LRN,
    LSTM,
    Activation,
    Affine,
    BatchNorm,
    BiLSTM,
    BinaryAffine,
    BiRNN,
    BranchNode,
    Conv,
    DataTransform,
    Deconv,
    DeepBiRNN,
    DepthwiseConv,
    DepthwiseSeparableConv,
    Dropout,
    Embedding,
    GroupNorm,
    Lambda,
    LayerNorm,
    Linear,
    LookupTable,
    MergeBroadcast,
    MergeMultistream,
    MergeSum,
    MultiHeadAttention,
    Pad,
    Pooling,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
    ResetAfterGRU,
    Reshape,
    Residual,
    Sequential,
    SingleOutputTree,
    SkipNode,
    Tree,
)
from neonlike.models import Model
from neonlike.transforms import (
    GELU,
    Explin,
    Identity,
    Logistic,
    Normalizer,
    PixelwiseSoftmax,
    Rectlin,
    Rectlinclip,
    Sign,
    SiLU,
    Softmax,
    Swish,
    Tanh,
)
from tests.exchange.networks import columns, outputs, ready
from tests.exchange.onnx_runs import check, compare, run, turned

N = 3
pytestmark = [pytest.mark.engines("numpy", batch_size=N), pytest.mark.cpu_only("files are the same on every backend")]
INIT, ZERO = Gaussian(scale=0.1), Constant(0)
GATES: dict[str, Any] = {"activation": Tanh(), "gate_activation": Logistic(), "reset_cells": True}


def lstm(units: int) -> LSTM:
    return LSTM(units, INIT, **GATES)


def after_affine(transform: Any) -> Any:
    return lambda: [Affine(6, INIT, activation=transform)]


TRANSFORMS = [
    Identity(), Rectlin(), Rectlin(slope=0.1), Rectlinclip(xcut=0.5), Rectlinclip(slope=0.2, xcut=0.3), Explin(0.7),
    Normalizer(divisor=3.0), Softmax(), Tanh(), Logistic(), Swish(1.7), SiLU(), GELU(),
]  # fmt: skip

CASES: dict[str, tuple[Any, Any]] = {
    "affine": (lambda: [Affine(5, INIT, bias=ZERO, activation=Rectlin()), Linear(4, INIT)], 6),
    "square affine": (lambda: [Affine(6, INIT, bias=ZERO, activation=Tanh()), Affine(6, INIT, bias=ZERO)], 6),
    "affine of steps": (lambda: [Affine(5, INIT, bias=ZERO, activation=Softmax())], (4, 3)),
    "square affine of steps": (lambda: [Affine(4, INIT, bias=ZERO)], (4, 4)),
    "normalized affine": (lambda: [Affine(4, INIT, batch_norm=True, activation=Rectlin())], 6),
    "normalized steps": (lambda: [Affine(4, INIT, batch_norm=True)], (4, 4)),
    **{f"transform {type(one).__name__} {i}": (after_affine(one), 4) for i, one in enumerate(TRANSFORMS)},
    "softmax of images": (lambda: [Conv((2, 2, 3), INIT, activation=Softmax())], (2, 3, 3)),
    "pixelwise softmax": (lambda: [Conv((2, 2, 3), INIT, activation=PixelwiseSoftmax(3))], (2, 4, 4)),
    "transform of the data": (lambda: [DataTransform(Normalizer()), Affine(3, INIT)], 4),
    "dropout": (lambda: [Affine(5, INIT), Dropout(0.4), Affine(3, INIT)], 4),
    "conv": (lambda: [Conv((3, 2, 4), INIT, {"str_h": 2, "str_w": 1}, {"pad_h": 1, "pad_w": 0}, bias=ZERO)], (2, 6, 5)),
    "square conv": (lambda: [Conv((3, 3, 3), INIT, padding=1, dilation=2)], (3, 7, 7)),
    "conv in groups": (lambda: [Conv((2, 3, 6), INIT, groups=2, bias=ZERO, activation=Rectlin(0.1))], (4, 5, 5)),
    "conv of volumes": (lambda: [Conv((2, 3, 2, 4), INIT, bias=ZERO), Pooling((2, 1, 2))], (2, 4, 5, 4)),
    "conv of whole depth": (lambda: [Conv((2, 3, 2, 4), INIT), Conv((2, 2, 3), INIT)], (2, 2, 5, 4)),
    "depthwise": (lambda: [DepthwiseConv((3, 3, 2), INIT, padding=1, batch_norm=True)], (3, 4, 5)),
    "separable": (lambda: [DepthwiseSeparableConv((3, 3, 4), INIT, bias=ZERO)], (3, 5, 4)),
    "deconv": (lambda: [Deconv((3, 2, 4), INIT, 2, 1, bias=ZERO, activation=Tanh())], (3, 4, 5)),
    "square deconv": (lambda: [Deconv((3, 3, 3), INIT, {"str_h": 2, "str_w": 1})], (3, 3, 3)),
    "padding": (lambda: [Pad((1, 0), (-1, 2), 0.5), Conv((2, 2, 3), INIT), Pad((0, 1), (0, 0))], (2, 4, 5)),
    "sequences as images": (lambda: [SkipNode(), Reshape((2, 1, -1)), Conv((1, 3, 4), INIT), Reshape((4, 5)),
                                     BatchNorm()], (2, 7)),
    "max pooling": (lambda: [Pooling((3, 2), strides=2, padding=1)], (2, 6, 6)),
    "avg pooling": (lambda: [Pooling(3, "avg", strides=2, padding=1), Affine(3, INIT)], (2, 6, 5)),
    "l2 pooling": (lambda: [Pooling(2, "l2", strides={"str_h": 1, "str_w": 2})], (2, 5, 4)),
    "pooling of all": (lambda: [Pooling("all", "avg"), Affine(2, INIT)], (3, 4, 5)),
    "local response": (lambda: [Conv((1, 1, 6), INIT), LRN(3, 2.0, 0.0, 0.5, 0.75), Pooling(2)], (2, 4, 4)),
    "batch norm": (lambda: [BatchNorm(0.8, 0.1), Activation(Rectlin())], (4, 4, 4)),
    "layer norm": (lambda: [LayerNorm(0.1), Affine(4, INIT)], (4, 4)),
    "layer norm of features": (lambda: [LayerNorm()], 6),
    "layer norm of images": (lambda: [LayerNorm()], (2, 3, 3)),
    "group norm": (lambda: [GroupNorm(2, 0.1), GroupNorm(4)], (4, 3, 2)),
    "group norm of steps": (lambda: [GroupNorm(2)], (4, 4)),
    "rnn": (lambda: [Recurrent(4, INIT, activation=Rectlin(), reset_cells=True), RecurrentSum()], (4, 4)),
    "rnn both ways": (lambda: [BiRNN(3, INIT, activation=Tanh(), reset_cells=True), RecurrentMean()], (4, 5)),
    "deep rnn": (lambda: [DeepBiRNN(3, INIT, activation=Tanh(), reset_cells=True, depth=2)], (4, 5)),
    "deep rnn of sums": (lambda: [DeepBiRNN(3, INIT, activation=Tanh(), reset_cells=True, depth=2, bi_sum=True)],
                         (4, 5)),
    "lstm": (lambda: [lstm(4), lstm(4), RecurrentLast(), Affine(2, INIT)], (4, 4)),
    "lstm of other sizes": (lambda: [lstm(5), Affine(3, INIT, bias=ZERO)], (4, 3)),
    "lstm of a step": (lambda: [lstm(5), lstm(5)], 4),
    "lstm both ways": (lambda: [BiLSTM(4, INIT, **GATES)], (4, 3)),
    "gru": (lambda: [GRU(4, INIT, **GATES)], (4, 4)),
    "gru of other sizes": (lambda: [GRU(5, INIT, **GATES), RecurrentLast()], (3, 4)),
    "gru that resets behind": (lambda: [ResetAfterGRU(4, INIT), ResetAfterGRU(3, INIT)], (4, 4)),
    "gru that resets behind, of a step": (lambda: [ResetAfterGRU(3, INIT)], 4),
    "attention": (lambda: [MultiHeadAttention(2, INIT, bias=ZERO)], (6, 6)),
    "causal attention": (lambda: [MultiHeadAttention(3, INIT, nout=4, causal=True)], (6, 5)),
    "attention of a step": (lambda: [MultiHeadAttention(2, INIT)], 4),
    "reshaped": (lambda: [SkipNode(), Reshape((2, 6)), Affine(4, INIT), Reshape(24), Affine(3, INIT)], (3, 2, 2)),
    "reshaped to images": (lambda: [Affine(18, INIT), Reshape((2, 3, 3)), Conv((2, 2, 3), INIT)], 4),
    "flattened by a layer": (lambda: [SkipNode(), Reshape((0, -1)), Affine(3, INIT), Reshape((-1,)), Linear(2, INIT)],
                             (2, 3, 2)),
    "residual": (lambda: [Residual([Affine(4, INIT, activation=Rectlin())], activation=Rectlin())], 4),
    "residual of images": (lambda: [Residual([Conv((3, 3, 5), INIT, padding=1), Conv((1, 1, 4), INIT, 2)],
                                             Conv((1, 1, 4), INIT, 2, bias=ZERO))], (4, 5, 5)),
    "sum of three": (lambda: [MergeSum([Linear(3, INIT), Affine(3, INIT, bias=ZERO),
                                        [Linear(5, INIT), Linear(3, INIT)]])], 4),
    "branches in branches": (lambda: [Linear(4, INIT), MergeSum([
        [Linear(4, INIT), MergeSum([SkipNode(), Linear(4, INIT)])], SkipNode()]), Linear(3, INIT)], 4),
    "maps side by side": (lambda: [MergeBroadcast([Conv((1, 1, 2), INIT), Conv((3, 3, 3), INIT, padding=1)], "depth")],
                          (2, 4, 4)),
    "features side by side": (lambda: [MergeBroadcast([Linear(3, INIT), Linear(2, INIT)], "depth"), Linear(2, INIT)],
                              4),
    "features of steps": (lambda: [MergeBroadcast([lstm(3), lstm(4)], "depth"), RecurrentLast()], (4, 4)),
    "steps one after another": (lambda: [MergeBroadcast([Linear(3, INIT), Linear(3, INIT)], "recurrent")], (4, 3)),
    "stacked": (lambda: [MergeBroadcast([Conv((2, 2, 2), INIT), Linear(3, INIT)], "stack"), Linear(2, INIT)],
                (2, 3, 3)),
}  # fmt: skip
"""Layers, and the shape of their input."""


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_equal(be, rng, case, tmp_path):
    make, shape = CASES[case]
    model = ready(make(), shape, rng)
    x = rng.normal(size=(N, *((shape,) if isinstance(shape, int) else shape))).astype(np.float32)
    check(model, tmp_path / "m.onnx", x)


@pytest.mark.parametrize("layer", [LookupTable, Embedding])
def test_words(be, rng, layer, tmp_path):
    model = ready([layer(7, 4, INIT), lstm(3), RecurrentLast()], (5,), rng)
    words = rng.integers(7, size=(N, 5))
    model.to_onnx(tmp_path / "m")
    wanted = outputs_of_words(model, words)
    compare(run(tmp_path / "m", words)[0], wanted)
    np.testing.assert_allclose(outputs_of_words(Model.from_onnx(tmp_path / "m"), words), wanted, rtol=1e-5, atol=1e-6)
    one = ready([Embedding(7, 4), Affine(2, INIT)], (1,), rng)
    one.to_onnx(tmp_path / "m")
    compare(run(tmp_path / "m", words[:, :1])[0], outputs_of_words(one, words[:, :1]))
    Model.from_onnx(tmp_path / "m")


def outputs_of_words(model: Model, words: np.ndarray) -> np.ndarray:
    found: np.ndarray = model.fprop(model.be.array(words.T.copy()), inference=True).get().T
    return found


def test_the_layers_are_those_that_were_written(be, rng, tmp_path):
    layers = [Conv((3, 3, 4), INIT, bias=ZERO, activation=Rectlin()), Pooling(2), Affine(3, INIT, activation=Softmax())]
    model = ready(layers, (2, 6, 6), rng)
    model.to_onnx(tmp_path / "m")
    names = [layer.classnm for layer in Model.from_onnx(tmp_path / "m").layers.layers]
    assert names == ["Convolution_bias", "Activation", "Pooling", "Reshape", "Linear", "Activation"]
    graph = onnx.load(tmp_path / "m").graph
    assert {one.name for one in graph.initializer} == {"0.W", "0.weight_bias", "3.W"}
    (given,), (result,) = graph.input, graph.output
    assert [one.dim_param or one.dim_value for one in given.type.tensor_type.shape.dim] == ["N", 2, 6, 6]
    assert (given.name, result.name) == ("input", "output")
    model.to_onnx(tmp_path / "m", batch_size=2)
    (given,) = onnx.load(tmp_path / "m").graph.input
    assert given.type.tensor_type.shape.dim[0].dim_value == 2
    with pytest.raises(ArgumentError, match="batch_size must be a positive integer or None, got 0"):
        model.to_onnx(tmp_path / "m", batch_size=0)


def test_a_model_that_is_read_trains(be, rng, tmp_path):
    from neonlike.data import ArrayIterator
    from neonlike.layers import GeneralizedCost
    from neonlike.optimizers import GradientDescentMomentum
    from neonlike.transforms import CrossEntropyMulti

    model = ready([Affine(4, INIT, activation=Rectlin()), Affine(2, INIT, activation=Softmax())], 3, rng)
    model.to_onnx(tmp_path / "m")
    again = Model.from_onnx(tmp_path / "m")
    x = rng.normal(size=(9, 3)).astype(np.float32)
    data = ArrayIterator(x, (x[:, 0] > 0).astype(np.int32), nclass=2)
    for one in (model, again):
        one.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 2)
    np.testing.assert_allclose(outputs(again, x[:N]), outputs(model, x[:N]), rtol=1e-5)


def test_several_outputs_and_inputs(be, rng, tmp_path):
    node = BranchNode("exchange")
    layers = [[Affine(4, INIT, activation=Rectlin()), node, Affine(2, INIT)], [node, Linear(3, INIT)]]
    tree = ready(Tree(layers), 5, rng)
    x = rng.normal(size=(N, 5)).astype(np.float32)
    tree.to_onnx(tmp_path / "m")
    assert {one.name for one in onnx.load(tmp_path / "m").graph.initializer} == set(arrays_of(tree.layers))
    for found, wanted in zip(run(tmp_path / "m", x), tree.fprop(be.array(columns(x)), inference=True), strict=True):
        np.testing.assert_allclose(found, wanted.get().T, rtol=1e-5, atol=1e-6)
    with pytest.raises(NotDefined, match=r"2 outputs \(output_0, output_1\)"):
        Model.from_onnx(tmp_path / "m")
    node = BranchNode("exchange trunk")
    layers = [[Affine(4, INIT, activation=Rectlin()), node, Affine(2, INIT)], [node, Linear(3, INIT)]]
    check(ready(SingleOutputTree(layers), 5, rng), tmp_path / "m", x)
    streams = MergeMultistream([Linear(3, INIT), [lstm(2), RecurrentLast()]], "stack")
    both = ready([streams, Linear(2, INIT)], [4, (3, 5)], rng)
    z = rng.normal(size=(N, 3, 5)).astype(np.float32)
    given = x[:, :4].copy()
    both.to_onnx(tmp_path / "m")
    wanted = both.fprop([be.array(columns(given)), be.array(columns(z))], inference=True).get().T
    compare(run(tmp_path / "m", given, turned(z))[0], wanted)
    with pytest.raises(NotDefined, match=r"2 inputs \(input, input_1\)"):
        Model.from_onnx(tmp_path / "m")


def test_sequences_in_the_columns_of_images(be, rng, tmp_path):
    model = ready([Conv((2, 2, 3), INIT), lstm(4), RecurrentLast()], (2, 4, 5), rng)
    x = rng.normal(size=(N, 2, 4, 5)).astype(np.float32)
    model.to_onnx(tmp_path / "m")
    compare(run(tmp_path / "m", x)[0], outputs(model, x))
    with pytest.raises(NotDefined, match=r"operator Transpose: its attribute perm=\[0, 3, 1, 2\]"):
        Model.from_onnx(tmp_path / "m")


def test_windows_of_caffe_overhang_the_end(engine, rng, tmp_path, no_backend_left):
    gen_backend("cpu", batch_size=N, compat_mode="caffe")
    model = ready([Pooling(3, strides=2, padding=1), Dropout(0.5), Pooling(2, "avg", strides=2)], (2, 8, 8), rng)
    x = rng.normal(size=(N, 2, 8, 8)).astype(np.float32)
    model.to_onnx(tmp_path / "m")
    compare(run(tmp_path / "m", x)[0], outputs(model, x))
    assert "Mul" not in {one.op_type for one in onnx.load(tmp_path / "m").graph.node}
    with pytest.raises(NotDefined, match="operator AveragePool: its padding, which differs at both ends and does not"):
        Model.from_onnx(tmp_path / "m")


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16"])
def test_dtypes(engine, rng, name, tmp_path, no_backend_left):
    gen_backend("cpu", batch_size=N, datatype=name if name == "bfloat16" else np.dtype(name).type)
    model = ready([Affine(5, INIT, batch_norm=True, activation=Rectlin()), Affine(3, INIT)], 4, rng)
    x = rng.normal(size=(N, 4))
    model.to_onnx(tmp_path / "m")
    (found,) = run(tmp_path / "m", x.astype(np.float64 if name == "float64" else np.float32))
    tolerance = {"float64": 1e-9, "float16": 1e-2, "bfloat16": 5e-2}[name]
    np.testing.assert_allclose(found, outputs(model, x).astype(np.float64), rtol=tolerance, atol=tolerance)
    Model.from_onnx(tmp_path / "m")


class Own(Sequential):
    """A container of a user's, whose passes may be others."""


def twice(x):
    return x + x


CANNOT = {
    "Own": (lambda: Own([Affine(3, INIT)]), 4, "the whole network: ONNX has no operator for it"),
    "Lambda": (lambda: [Affine(3, INIT), Lambda(twice)], 4, "at 1: ONNX has no operator for it"),
    "BinaryLinear": (lambda: [BinaryAffine(3, INIT)], 4, "at 0: ONNX has no operator for it"),
    "Activation": (lambda: [Affine(3, INIT, activation=Sign())], 4, "no operator for its transform Sign"),
    "LRN": (lambda: [LRN(3, beta=0.5)], (3, 2, 2), "at 0: its beta=0.5 adds the outputs of the batch before"),
    "Pooling": (lambda: [Pooling({"J": 2, "R": 1, "S": 1})], (4, 2, 2), "its windows extend over channels"),
    "LSTM": (lambda: [LSTM(3, INIT, activation=SiLU(), gate_activation=Logistic())], (4, 2),
             "recurrent operators of ONNX have no activation SiLU"),
    "GRU": (lambda: [GRU(3, INIT, activation=Tanh(), gate_activation=Tanh())], (4, 2), "for Logistic alone"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CANNOT)
def test_a_layer_that_onnx_cannot_say_is_named(be, rng, kind, tmp_path):
    make, shape, reason = CANNOT[kind]
    model = ready(make(), shape, rng)
    with pytest.raises(NotDefined, match=rf"to_onnx: {kind} '\w+', .*{re.escape(reason)}"):
        model.to_onnx(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_quantized_layer_is_named(be, rng, tmp_path):
    if not be.multiplies_int8:
        pytest.skip("no int8 here")
    model = ready([Affine(3, INIT)], 4, rng)
    model.quantize(rng.normal(size=(N, 4)).astype(np.float32))
    with pytest.raises(NotDefined, match=r"it is quantized to int8; call model\.dequantize"):
        model.to_onnx(tmp_path / "m")


def test_what_is_missing_is_named(be, rng, tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match=r"call model\.initialize"):
        Model([Affine(3, INIT)]).to_onnx(tmp_path / "m")
    model = ready([Affine(3, INIT)], 4, rng)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    for call in (model.to_onnx, Model.from_onnx):
        with pytest.raises(MissingExtra, match=r"pip install 'neonlike\[onnx\]'"):
            call(tmp_path / "m")
