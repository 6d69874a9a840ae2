"""Layers, containers and costs run on the GPU alone, both ways, without copying to the host or waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import neonlike.layers
from neonlike.backends import cleanup_backend, gen_backend
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    GRU,
    LRN,
    LSTM,
    Activation,
    Affine,
    BatchNorm,
    BatchNormAutodiff,
    Bias,
    BiBNRNN,
    BiLSTM,
    BinaryAffine,
    BinaryLinear,
    BiRNN,
    BranchNode,
    Conv,
    Convolution,
    DataTransform,
    Deconv,
    Deconvolution,
    DeepBiLSTM,
    DeepBiRNN,
    DepthwiseConv,
    DepthwiseConvolution,
    DepthwiseSeparableConv,
    Dropout,
    Embedding,
    GeneralizedCost,
    GeneralizedCostMask,
    GeneralizedGANCost,
    GroupNorm,
    Lambda,
    LayerNorm,
    Linear,
    LookupTable,
    MergeBroadcast,
    MergeMultistream,
    MergeSum,
    Multicost,
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
    RoiPooling,
    Seq2Seq,
    Sequential,
    ShiftBatchNorm,
    SingleOutputTree,
    SkipNode,
    SkipThought,
    Tree,
)
from neonlike.transforms import CrossEntropyMulti, GANCost, Logistic, Normalizer, Rectlin, Softmax, Tanh
from tests.support.gpu.device_only import traffic

N, IMAGES, SEQUENCE = 4, (4, 6, 6), (5, 3)
INIT = Gaussian(scale=0.3)
FULL = {"init": INIT, "bias": Constant(0.1), "activation": Rectlin()}
WAYS = {"init": INIT, "activation": Tanh()}
GATED = {**WAYS, "gate_activation": Logistic()}


@dataclass(frozen=True)
class Net:
    """Layers to be run.

    Attributes
    ----------
    make : callable
        Makes the layers, or the container.
    shape : shape, or list of shapes
        Of the input.
    words : int
        Above 0: the input is of integers below this.
    answers : int
        Copies to the host that a forward and a backward pass take. (A first layer passes no error on.)
    """

    make: Callable[[], Any]
    shape: Any
    words: int = 0
    answers: int = 0


def branches(cls: Any) -> Any:
    """A tree of two outputs."""
    node = BranchNode("one")
    return cls([[Affine(5, **FULL), node, Linear(2, INIT)], [node, Linear(3, INIT)]])


def linears(*sizes: int) -> list[Any]:
    """Branches of one layer each."""
    return [Linear(size, INIT) for size in sizes]


NETS = {
    "Activation": Net(lambda: [Activation(Tanh())], 7),
    "Affine": Net(lambda: [Affine(5, batch_norm=True, **WAYS), Affine(3, **FULL)], 7),
    "BatchNorm": Net(lambda: [BatchNorm()], IMAGES),
    "BatchNormAutodiff": Net(lambda: [BatchNormAutodiff()], IMAGES),
    "BiBNRNN": Net(lambda: [BiBNRNN(4, **WAYS)], SEQUENCE),
    "BiLSTM": Net(lambda: [BiLSTM(4, **GATED)], SEQUENCE),
    "BiRNN": Net(lambda: [BiRNN(4, **WAYS)], SEQUENCE),
    "Bias": Net(lambda: [Bias(Constant(0.1))], IMAGES),
    "BinaryAffine": Net(lambda: [BinaryAffine(5, INIT, batch_norm=True)], 7),
    "BinaryLinear": Net(lambda: [BinaryLinear(5, INIT)], 7),
    "BranchNode": Net(lambda: branches(Tree), 7),
    "Conv": Net(
        lambda: [Conv((3, 3, 6), padding=1, batch_norm=True, **WAYS), Conv((3, 3, 4), strides=2, **FULL)], IMAGES
    ),
    "Convolution": Net(lambda: [Convolution((3, 3, 6), init=INIT)], IMAGES),
    "DataTransform": Net(lambda: [DataTransform(Normalizer(divisor=2.0)), Linear(3, INIT)], 7),
    "Deconv": Net(lambda: [Deconv((3, 3, 3), strides=2, **FULL)], IMAGES),
    "Deconvolution": Net(lambda: [Deconvolution((3, 3, 3), init=INIT)], IMAGES),
    "DeepBiLSTM": Net(lambda: [DeepBiLSTM(4, depth=2, init_inner=None, **GATED)], SEQUENCE),
    "DeepBiRNN": Net(lambda: [DeepBiRNN(4, depth=2, **WAYS)], SEQUENCE),
    "DepthwiseConv": Net(lambda: [DepthwiseConv((3, 3, 1), **FULL)], IMAGES),
    "DepthwiseConvolution": Net(lambda: [DepthwiseConvolution((3, 3, 2), init=INIT)], IMAGES),
    "DepthwiseSeparableConv": Net(lambda: [DepthwiseSeparableConv((3, 3, 5), **FULL)], IMAGES),
    "Dropout": Net(lambda: [Dropout(0.5)], 7),
    "Embedding": Net(lambda: [Embedding(9, 4, INIT)], (3,), words=9),
    "GRU": Net(lambda: [GRU(4, **GATED)], SEQUENCE),
    "GroupNorm": Net(lambda: [GroupNorm(2)], IMAGES),
    "LRN": Net(lambda: [LRN(3)], IMAGES),
    "LSTM": Net(lambda: [LSTM(4, **GATED)], SEQUENCE),
    "Lambda": Net(lambda: [Lambda(lambda x, w: x * w, {"w": np.ones((7, 1), np.float32)})], 7),
    "LayerNorm": Net(lambda: [LayerNorm()], IMAGES),
    "Linear": Net(lambda: [Linear(5, INIT)], 7),
    "LookupTable": Net(lambda: [LookupTable(9, 4, INIT)], (3,), words=9),
    "MergeBroadcast": Net(lambda: [MergeBroadcast(linears(3, 4), "stack")], 7),
    "MergeMultistream": Net(lambda: MergeMultistream(linears(3, 4), "stack"), [7, 5]),
    "MergeSum": Net(lambda: [MergeSum(linears(3, 3))], 7),
    "MultiHeadAttention": Net(lambda: [MultiHeadAttention(2, INIT, causal=True)], (4, 3)),
    "Pad": Net(lambda: [Pad((1, 0), (-1, 1))], IMAGES),
    "Pooling": Net(lambda: [Pooling(2), Pooling(2, op="avg", strides=1), Pooling(2, op="l2", strides=1)], IMAGES),
    "Recurrent": Net(lambda: [Recurrent(4, **WAYS)], SEQUENCE),
    "RecurrentLast": Net(lambda: [Recurrent(4, **WAYS), RecurrentLast()], SEQUENCE),
    "RecurrentMean": Net(lambda: [Recurrent(4, **WAYS), RecurrentMean()], SEQUENCE),
    "RecurrentSum": Net(lambda: [Recurrent(4, **WAYS), RecurrentSum()], SEQUENCE),
    "Reshape": Net(lambda: [Reshape((4, 36)), Linear(3, INIT)], IMAGES),
    "Residual": Net(lambda: [Residual([Conv((3, 3, 4), padding=1, **FULL)], activation=Rectlin())], IMAGES),
    "RoiPooling": Net(lambda: [RoiPooling((2, 2), spatial_scale=0.25)], [IMAGES, (5, 2)], answers=1),
    "ResetAfterGRU": Net(lambda: [ResetAfterGRU(4, INIT)], SEQUENCE),
    "Seq2Seq": Net(lambda: Seq2Seq([[GRU(5, reset_cells=True, **GATED)] for _ in range(2)]), [SEQUENCE, SEQUENCE]),
    "Sequential": Net(lambda: [Sequential([Linear(5, INIT), Activation(Softmax())])], 7),
    "ShiftBatchNorm": Net(lambda: [ShiftBatchNorm()], IMAGES),
    "SingleOutputTree": Net(lambda: branches(SingleOutputTree), 7),
    "SkipNode": Net(lambda: [MergeSum([SkipNode(), Linear(7, INIT)])], 7),
    "SkipThought": Net(
        lambda: SkipThought(9, 3, INIT, 4, GRU, INIT, Tanh(), Logistic(), INIT, Constant(0.1)), [(3,)] * 3, words=9
    ),
    "Tree": Net(lambda: branches(Tree), 7),
}  # fmt: skip
COSTS: dict[str, tuple[Callable[[], Any], int]] = {
    "GeneralizedCost": (lambda: GeneralizedCost(CrossEntropyMulti()), 1),
    "GeneralizedCostMask": (lambda: GeneralizedCostMask(CrossEntropyMulti()), 1),
    "GeneralizedGANCost": (lambda: GeneralizedGANCost(GANCost()), 1),
    "Multicost": (lambda: Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(CrossEntropyMulti())]), 2),
}
"""What makes each, and the copies to the host that its value takes."""


@pytest.fixture(scope="module")
def gpu(gpu_driver: object) -> Any:
    """A GPU backend for the whole file."""
    yield gen_backend("gpu", rng_seed=0, batch_size=N)
    cleanup_backend()


def test_nothing_is_left_out() -> None:
    assert NETS.keys() | COSTS.keys() == set(neonlike.layers.__all__)


def batch(be: Any, net: Net) -> Any:
    """A batch for the layers: one tensor, or one for each shape."""
    if isinstance(net.shape, list):
        made = [batch(be, Net(net.make, shape, net.words)) for shape in net.shape]
        return (made[0], regions(be)) if net.answers else made
    rng, shape = np.random.default_rng(0), net.shape if isinstance(net.shape, tuple) else (net.shape,)
    if net.words:
        return be.array(rng.integers(net.words, size=(shape[0], N)), dtype=np.int32)
    columns = N * (shape[1] if len(shape) == 2 else 1)
    return be.array(rng.uniform(0.1, 1, (int(np.prod(shape)) * N // columns, columns)), dtype=np.float32)


def before(net: Net) -> list[Any]:
    """A layer that keeps the shape, so that those after it have to pass errors on."""
    if net.words or isinstance(net.shape, list) or net is NETS["DataTransform"]:  # which stands first
        return []
    if isinstance(net.shape, tuple) and len(net.shape) == 3:
        return [Convolution((1, 1, net.shape[0]), init=INIT)]
    return [Linear(net.shape[0] if isinstance(net.shape, tuple) else net.shape, INIT)]


def regions(be: Any) -> Any:
    """Two regions of each image."""
    found = [[n, *sides] for n in range(N) for sides in ((0, 0, 12, 12), (4, 8, 8, 12))]
    return be.array(np.array(found).T, dtype=np.float32)


def each(values: Any) -> list[Any]:
    """The tensors of one or several outputs."""
    return [tensor for value in values for tensor in each(value)] if isinstance(values, (list, tuple)) else [values]


@pytest.mark.parametrize("name", NETS)
def test_a_layer_runs_on_the_device_alone(gpu: Any, name: str) -> None:
    """Training passes, from the third on, and inference."""
    net = NETS[name]
    made = net.make()
    chain = Sequential([*before(net), *made]) if isinstance(made, list) else made
    chain.configure(net.shape if name != "Seq2Seq" else (*SEQUENCE, *SEQUENCE))
    chain.allocate()
    chain.allocate_deltas()
    inputs = batch(gpu, net)
    inputs = tuple(inputs) if name == "Seq2Seq" else inputs
    outputs = chain.fprop(inputs)
    errors = [gpu.array(np.full(y.shape, 0.5), dtype=np.float32) for y in each(outputs)]

    def step() -> None:
        chain.fprop(inputs)
        chain.bprop(errors if isinstance(outputs, (list, tuple)) else errors[0])

    for _ in range(2):
        step()
    with traffic(gpu) as seen:
        for _ in range(3):
            step()
    assert (len(seen.down), len(seen)) == (3 * net.answers,) * 2, f"{name} crosses:\n{seen}"
    chain.fprop(inputs, inference=True)
    with traffic(gpu) as seen:
        chain.fprop(inputs, inference=True)
    assert len(seen) == min(net.answers, 1), f"{name} crosses in inference:\n{seen}"


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_reads_its_value_alone(gpu: Any, name: str) -> None:
    make, values = COSTS[name]
    cost = make()
    chain = branches(Tree) if name == "Multicost" else Sequential([Linear(1 if "GAN" in name else 3, INIT)])
    chain.configure(7)
    cost.initialize(chain)
    chain.allocate()
    chain.allocate_deltas()
    y = chain.fprop(batch(gpu, Net(list, 7)))
    targets = [gpu.array(np.ones(each_y.shape) / 3, dtype=np.float32) for each_y in each(y)]
    t: Any = targets if isinstance(y, (list, tuple)) else targets[0]
    if "Mask" in name:
        t = (t, gpu.ones(t.shape))

    def step() -> None:
        cost.get_cost(y, t)
        if "GAN" not in name:  # whose gradients are those of the cost function
            cost.get_errors(y, t)

    for _ in range(2):
        step()
    with traffic(gpu) as seen:
        step()
    assert (len(seen.down), len(seen)) == (values, values), f"{name} crosses:\n{seen}"
