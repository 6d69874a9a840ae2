"""Inputs accepted by neon's layers: other rows and columns, and calls in forms that are refused elsewhere."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import (
    LSTM,
    Activation,
    Affine,
    BatchNorm,
    BiLSTM,
    BranchNode,
    Conv,
    DeepBiLSTM,
    DeepBiRNN,
    GeneralizedCost,
    Linear,
    LookupTable,
    MergeMultistream,
    MergeSum,
    RecurrentLast,
    Reshape,
    Sequential,
    Tree,
)
from neonlike.layers.container import DeltasTree
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import (
    CrossEntropyMulti,
    Logistic,
    MeanSquared,
    Rectlin,
    Rectlinclip,
    SmoothL1Loss,
    Softmax,
    SquareHingeLoss,
    SumSquared,
    Tanh,
)
from tests.support.lone_layers import MAKERS, Alone

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4)]


# Inputs in other rows and columns -----------------------------------------------------------------------------------


IN_PLACE = ("Activation tanh", "Activation rectlin", "Activation softmax", "Bias", "Dropout", "Reshape")


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in IN_PLACE])
def test_inputs_of_as_many_elements_are_reshaped(be: Backend, name: str) -> None:
    net, reference = Alone(be, name), Alone(be, name)
    net.x = net.x.reshape(net.x.shape[0] // 2, -1)
    with pytest.raises(ShapeError, match="configure it for the new shape"):
        net.forward()
    with neon_dialect():
        for _ in range(2):
            y, wanted = net.forward(), reference.forward()
            np.testing.assert_array_equal(y.get(), wanted.get())
            expected = reference.found(be.array(wanted.get()))
            for ours, its in zip(net.found(be.array(y.get())), expected, strict=True):
                np.testing.assert_allclose(ours, its, rtol=1e-6, atol=1e-6)


def test_inputs_of_other_sizes_are_refused(be: Backend) -> None:
    net = Alone(be, "Linear")
    net.x = be.ones((5, 4))
    with neon_dialect(), pytest.raises(ShapeError, match="configured for 6 features"):
        net.forward()


# Error buffers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MAKERS if "Merge" not in name])
def test_a_layer_has_deltas_of_its_own_without_a_trees_buffers(be: Backend, name: str) -> None:
    net, reference = Alone(be, name), Alone(be, name)
    for layer in (net.layer, reference.layer):
        assert layer.prev_layer
    net.layer.set_deltas(DeltasTree())
    error = be.array(np.random.default_rng(2).standard_normal(net.forward().shape))
    reference.forward()
    for ours, its in zip(net.found(be.array(error.get())), reference.found(be.array(error.get())), strict=True):
        np.testing.assert_array_equal(ours, its)
    net.layer.set_deltas([])


@pytest.mark.parametrize("name", ["MergeSum", "MergeBroadcast"])
def test_branches_share_the_buffers_of_a_tree(be: Backend, name: str) -> None:
    net = Alone(be, name)
    with pytest.raises(ArgumentError, match=r"no buffers; call allocate_deltas\(tree\) of the container"):
        net.layer.set_deltas(DeltasTree())


# Shapes -------------------------------------------------------------------------------------------------------------


class Described:
    """An object that is no dataset of ours, with the shape of a sample under neon's name."""

    lshape = (3, 2)


def test_branches_read_their_shapes_from_tensors_layers_and_datasets(be: Backend) -> None:
    before = Linear(6, Constant(1)).configure(4)
    data = ArrayIterator(np.zeros((8, 6), np.float32), nclass=2, lshape=(1, 2, 3))
    given = [be.ones((6, 4)), be.ones((6, 8)), 6, (2, 3), np.int64(6), before, data, Described()]
    shapes = [(6, 1), (6, 2), 6, (2, 3), 6, (6, 1), (1, 2, 3), (3, 2)]
    for source, shape in zip(given, shapes, strict=True):
        merged = MergeMultistream([[Linear(3, Constant(1))], [Linear(2, Constant(1))]], merge="stack")
        merged.configure([source, given[0]])
        assert merged.in_shape == [shape, (6, 1)]
        assert [run.layers[0].in_shape for run in merged.layers] == [shape, (6, 1)]
        assert Linear(3, Constant(1)).configure(source).in_shape == shape
    with pytest.raises(ShapeError, match="2 branches need a list of as many input shapes"):
        merged.configure(given[:3])
    with pytest.raises(DTypeError, match="cannot read an input shape from a str"):
        merged.configure([given[0], "six"])


def test_batch_normalization_of_features_and_steps(be: Backend) -> None:
    layer = BatchNorm()
    layer.configure((16, 16))
    layer.allocate(accumulate_updates=True)
    x = np.random.default_rng(0).standard_normal((256, 4)).astype(np.float32)
    with neon_dialect():
        y = layer.fprop(be.array(x))
    by_feature = x.reshape(16, -1)
    normal = (by_feature - by_feature.mean(1, keepdims=True)) / by_feature.std(1, keepdims=True)
    np.testing.assert_allclose(y.get().reshape(16, -1), normal, atol=5e-3)
    assert layer.acc_grad_beta.shape == layer.acc_grad_gamma.shape == (16, 1)
    assert layer.acc_params == [(layer.acc_grad_beta, layer.grad_beta), (layer.acc_grad_gamma, layer.grad_gamma)]
    assert BatchNorm().acc_grad_beta is None


def test_a_lookup_table_ignores_a_second_size(be: Backend, caplog: pytest.LogCaptureFixture) -> None:
    """The input is described as (steps, samples); then an image goes to a convolution, then steps to an LSTM."""
    steps, words = 6, 11

    def layers() -> list[Any]:
        return [
            LookupTable(words, 5, Gaussian(scale=0.3)),
            Reshape((1, 5, steps)),
            Conv((5, 3, 4), Gaussian(scale=0.3), padding={"pad_h": 0, "pad_w": 1}, activation=Rectlin()),
            Reshape((4, steps)),
            LSTM(4, Gaussian(scale=0.3), activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
            RecurrentLast(),
            Affine(2, Gaussian(scale=0.3), activation=Softmax()),
        ]

    with pytest.raises(ShapeError, match="expected word numbers"):
        LookupTable(words, 5, Gaussian()).configure((steps, 4))
    rng = np.random.default_rng(1)
    x = rng.integers(0, words, (steps, 4)).astype(np.float32)
    t = be.array(np.eye(2, dtype=np.float32)[:, [0, 1, 1, 0]])
    with neon_dialect():
        model, cost = Model(layers()), GeneralizedCost(CrossEntropyMulti())
        model.initialize((steps, 4), cost)
        optimizer, costs = GradientDescentMomentum(0.5, 0.5), []
        for epoch in range(40):
            y = model.fprop(be.array(x))
            costs.append(float(cost.get_cost(y, t)))
            model.bprop(cost.get_errors(y, t))
            optimizer.optimize(model.layers_to_optimize, epoch)
    assert "its second size is ignored" in caplog.text
    assert costs[-1] < 0.2 * costs[0]


# Arguments ----------------------------------------------------------------------------------------------------------


def named(be: Backend) -> list[tuple[str, Any]]:
    chain = [Linear(3, Constant(1))]
    return [
        ("Tree", lambda: Tree([chain], [1, 1])),
        ("Sequential", lambda: Sequential(chain, [1, 1])),
        ("MergeSum", lambda: MergeSum([chain], [1, 1])),
        ("Activation", lambda: Activation(Tanh(), [1, 1])),
        ("GeneralizedCost", lambda: GeneralizedCost(CrossEntropyMulti(), [1, 1])),
        ("Rectlinclip", lambda: Rectlinclip(0, [1, 1])),
        ("Logistic", lambda: Logistic([1, 1])),
        ("Gaussian", lambda: Gaussian(0, 1, [1, 1])),
        ("GradientDescentMomentum", lambda: GradientDescentMomentum(0.1, 0.9, name=[1, 1])),
        ("zeros", lambda: be.zeros((2, 2), np.float32, [1, 1])),
        ("array", lambda: be.array([[1.0]], np.float32, [1, 1])),
        ("empty", lambda: be.empty((2, 2), np.float32, [1, 1])),
    ]


def test_any_object_is_a_name(be: Backend, caplog: pytest.LogCaptureFixture) -> None:
    for who, make in named(be):
        with pytest.raises(ArgumentTypeError, match=r"name must be a string or None, got list \[1, 1\]"):
            make()
        caplog.clear()
        with neon_dialect():
            assert make().name == [1, 1], who
            make()
        assert caplog.text.count(f"{who}: name is list [1, 1]; was another argument meant?") == 1, who
        assert len(caplog.records) == 1, who
    with pytest.raises(ArgumentTypeError):
        Tree([[Linear(3, Constant(1))]], [1, 1])  # the default dialect is back
    with neon_dialect():
        node = BranchNode()
        tree = Tree([[Linear(3, Constant(1)), node], [node, Linear(3, Constant(1))]], [0.5, 0.25])
    assert tree.alphas == [1, 1], "as left out"
    for make in (Constant, Gaussian, Uniform, Adam):
        assert make(name=None).name.startswith(f"{make.__name__}_")


@pytest.mark.parametrize("name", [name for name in MAKERS if "Merge" not in name])
def test_truth_of_any_object_is_inference(be: Backend, name: str, caplog: pytest.LogCaptureFixture) -> None:
    for given in (be.zeros((6, 4)), [], "yes", object()):
        net, reference = Alone(be, name), Alone(be, name)
        with pytest.raises(ArgumentTypeError, match="inference must be True or False"):
            net.layer.fprop(net.x, given)
        with neon_dialect():
            be.rng_reset()
            y = net.layer.fprop(net.x, given).get()
            be.rng_reset()
            assert y.tobytes() == reference.layer.fprop(reference.x, bool(given)).get().tobytes()
        assert "was init_state= meant?" in caplog.text


def test_deep_layers_take_neons_defaults() -> None:
    for deep in (DeepBiLSTM, DeepBiRNN):
        parameters = inspect.signature(deep).parameters
        assert all(parameters[name].default is None for name in ("init_inner", "activation"))
    layers = DeepBiLSTM(3, Gaussian(), activation=Tanh(), gate_activation=Logistic(), depth=2)
    assert [type(layer) for layer in layers] == [BiLSTM, BiLSTM] and layers[0].init_inner is None
    with pytest.raises(DTypeError, match="BiLSTM: activation: None is not a transform object"):
        DeepBiLSTM(3, Gaussian())


def test_whole_numbers(be: Backend) -> None:
    for size in (np.array(3), np.array(3, np.uint8)):
        assert Affine(size, Gaussian())[0].nout == Affine(nout=size, init=Gaussian())[0].nout == 3
    for size in (3.0, np.float32(3)):
        with pytest.raises(ArgumentTypeError, match=r"nout must be an integer"):
            Affine(size, Gaussian())
    with neon_dialect():
        for size in (3.0, np.float32(3)):
            made = Affine(size, Gaussian())[0].nout
            assert made == 3 and type(made) is int
        for size in (2.5, float("nan"), float("inf"), np.array([3]), np.array(3.0), "3"):
            with pytest.raises(ArgumentTypeError, match=r"nout must be an integer"):
                Affine(size, Gaussian())


@pytest.mark.parametrize("cost", [SumSquared, MeanSquared, SmoothL1Loss, SquareHingeLoss])
def test_a_row_of_targets_is_for_all_outputs(be: Backend, cost: Any) -> None:
    y, t = be.array([[0.5, -2.0], [3.0, 0.25]]), be.array([[0.0, 1.0]])
    all_targets = be.array(np.tile(t.get(), (2, 1)))
    with pytest.raises(ShapeError, match="they must be equal"):
        cost()(y, t)
    with neon_dialect():
        for method in ("__call__", "bprop"):
            found, wanted = (getattr(cost(), method)(y, targets) for targets in (t, all_targets))
            np.testing.assert_array_equal(found.asnumpyarray(), wanted.asnumpyarray())
        with pytest.raises(ShapeError, match="they must be equal"):
            cost()(y, be.ones((1, 3)))
