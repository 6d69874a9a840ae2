"""Layers in a chain: error buffers, gradient accumulation, compound layers, Sequential."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, MissingArgument, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import Activation, Affine, Bias, BranchNode, DataTransform, Dropout, Linear, Reshape, Sequential
from neonlike.layers.container import DeltasTree, flatten, pairwise
from neonlike.layers.layer import AccumulationError, CompoundLayer, Layer
from neonlike.nervanaobject import build
from neonlike.transforms import Normalizer, Rectlin, Softmax, Tanh

N = 4
pytestmark = pytest.mark.samples(N)


def ready(layer, in_shape, tree=None, **allocate):
    """Configure and allocate a single layer, with an error buffer."""
    layer.configure(in_shape)
    layer.prev_layer = True  # as a layer inside a network
    layer.allocate(**allocate)
    tree = tree or DeltasTree()
    layer.allocate_deltas(tree)
    tree.allocate_buffers()
    layer.set_deltas(tree)
    return layer


def tensor(be, array):
    return be.array(np.asarray(array, dtype=np.float64))


class TestDeltas:
    """The two shared error buffers."""

    def test_neighbours_that_own_deltas_do_not_share_memory(self, be):
        layers = [Linear(5, Gaussian()), Bias(Constant(0)), Activation(Tanh()), Linear(7, Gaussian()),
                  Dropout(0.5), Linear(2, Gaussian()), Activation(Softmax())]  # fmt: skip
        net = Sequential(layers)
        net.configure(3)
        net.allocate()
        net.allocate_deltas()
        owners = [layer for layer in layers if layer.deltas is not None]
        assert [type(layer).__name__ for layer in owners] == ["Activation", "Linear", "Linear", "Activation"]
        for a, b in pairwise(owners):
            assert a.deltas.ptr != b.deltas.ptr
        for a, _, c in zip(owners, owners[1:], owners[2:], strict=False):
            assert a.deltas.ptr == c.deltas.ptr
        for layer in owners:
            assert layer.deltas.shape == (layer.in_shape[0], N)

    def test_defect_40_a_child_tree_ascends_to_its_parent(self, be):
        tree = DeltasTree()
        child = tree.decend()
        assert tree.decend() is child
        assert child.ascend() is tree and tree.ascend() is None

    def test_buffers_are_as_large_as_the_largest_input(self, be):
        tree = DeltasTree()
        for nin in (3, 9, 4):
            Linear(2, Gaussian()).configure(nin).allocate_deltas(tree)
        tree.decend().proc_layer(Linear(2, Gaussian()).configure(5))
        tree.allocate_buffers()
        assert [buffer.size for buffer in tree.buffers] == [9 * N, 9 * N]
        assert tree.child.buffers[0].size == 5 * N

    def test_without_a_trees_buffers_a_layer_has_one_of_its_own(self, be):
        layer = Linear(2, Gaussian()).configure(3)
        layer.prev_layer = True
        layer.set_deltas(tree := DeltasTree())
        assert layer.deltas.shape == (3, N) and tree.buffers == [None, None]


class TestAccumulation:
    """Gradients that add up over backward passes."""

    def test_linear_and_bias(self, be64, rng):
        net = Sequential([Linear(3, Gaussian()), Bias(Constant(0.0))])
        net.configure(5)
        net.allocate(accumulate_updates=True)
        net.allocate_deltas()
        x = tensor(be64, rng.normal(size=(5, N)))
        gradients = []
        for accumulate in (False, True, True, False):
            net.set_acc_on(accumulate)
            e = rng.normal(size=(3, N))
            net.fprop(x)
            net.bprop(tensor(be64, e))
            now = [e @ x.get().T, e.sum(axis=1, keepdims=True)]
            gradients = [a + b for a, b in zip(gradients, now, strict=True)] if accumulate else now
            for layer, expected in zip(net.layers, gradients, strict=True):
                np.testing.assert_allclose(layer.dW.get(), expected, rtol=1e-10, atol=1e-12)
        assert net.layers[0].acc_params == [(net.layers[0].acc_dW, net.layers[0].dW)]

    def test_a_layer_without_parameters_cannot(self, be):
        with pytest.raises(BufferError, match="accumulate"):
            Activation(Tanh()).set_acc_on(True)
        with pytest.raises(AccumulationError):
            Linear(3, Gaussian()).set_acc_on(True)

    def test_it_stays_off_without_the_buffers(self, be):
        layer = ready(Linear(3, Gaussian()), 5)
        layer.set_acc_on(True)
        assert layer.acc_on is False

    def test_the_decorator_is_for_layers(self):
        class NotALayer:
            acc_on = True

            @Layer.accumulates
            def bprop(self, error):
                return error

        with pytest.raises(TypeError, match="NotALayer"):
            NotALayer().bprop(1)


class TestCompound:
    """Affine and its parts."""

    def test_the_parts_and_their_names(self, be):
        parts = Affine(3, Gaussian(), bias=Constant(0), activation=Rectlin(), name="fc")
        assert isinstance(parts, list) and [part.name for part in parts] == ["fc", "fc_bias", "fc_Rectlin"]
        assert [type(part) for part in parts] == [Linear, Bias, Activation]
        unnamed = Affine(3, Gaussian(), activation=Tanh())
        assert [part.name for part in unnamed] == [unnamed[0].name, f"{unnamed[0].name}_Tanh"]
        assert [type(part) for part in Affine(3, Gaussian())] == [Linear]

    def test_a_bias_excludes_batch_normalization(self, be):
        with pytest.raises(AttributeError, match="batch_norm"):
            Affine(3, Gaussian(), bias=Constant(0), batch_norm=True)
        with pytest.raises(MissingArgument):
            CompoundLayer(bias=Constant(0), batch_norm=True)

    def test_one_of_ones_own_appends_what_follows_its_weight(self, be):
        class Thin(CompoundLayer):
            """A weight of few rows."""

            def __init__(self, init, **following):
                super().__init__(**following)
                self.append(Linear(2, init, name=self.name))
                self.add_postfilter_layers()

        assert [type(part) for part in Thin(Gaussian(), bias=Constant(0), activation=Tanh())] == [
            Linear, Bias, Activation
        ]  # fmt: skip
        assert [part.name for part in Thin(Gaussian(), batch_norm=True, name="a")] == ["a", "a_bnorm"]

    def test_an_activation_must_be_an_object(self, be):
        with pytest.raises(DTypeError, match="Rectlin"):
            Affine(3, Gaussian(), activation=Rectlin)


class TestSequential:
    """The chain."""

    def test_nested_lists_are_flattened(self, be):
        net = Sequential([Affine(3, Gaussian(), bias=Constant(0)), [[Linear(2, Gaussian())]]])
        assert [type(layer) for layer in net.layers] == [Linear, Bias, Linear]
        assert list(flatten([1, [2, (3, [])], "ab"])) == [1, 2, 3, "ab"]
        assert list(pairwise("abc")) == [("a", "b"), ("b", "c")] and list(pairwise([])) == []

    @pytest.mark.parametrize("inputs", [np.int8(-3), 7, [], np.ones(3)])
    def test_samples_are_counted_in_columns(self, be, inputs):
        net = Sequential([Linear(2, Gaussian())])
        net.configure((3, 4))
        assert net.samples_in(be.ones((3, 8))) == 2
        with pytest.raises(ShapeError, match="a column a sample"):
            net.samples_in(inputs)

    @pytest.mark.parametrize("layers", [[], [[]], [BranchNode("alone")]])
    def test_an_empty_list(self, be, layers):
        with pytest.raises(ArgumentError, match="empty"):
            Sequential(layers)

    @pytest.mark.parametrize("entry", ["Linear", 3, None, Linear, Affine])
    def test_an_entry_that_is_no_layer(self, be, entry):
        with pytest.raises(DTypeError, match="layer"):
            Sequential([Linear(3, Gaussian()), entry])

    @pytest.mark.parametrize("make", [lambda: Bias(Constant(0)), lambda: Activation(Tanh()), lambda: Reshape(3)])
    def test_the_first_layer_needs_an_output(self, be, make):
        with pytest.raises(AssertionError, match="first layer"):
            Sequential([make(), Linear(3, Gaussian())])

    def test_dropout_and_data_transform_may_come_first(self, be):
        for first in (Dropout(0.5), DataTransform(Normalizer())):
            assert Sequential([first, Linear(3, Gaussian())]).layers[0] is first

    def test_the_last_owner_draws_its_weights_first(self, be):
        first, last = Linear(3, Uniform()), Linear(2, Uniform())
        net = Sequential([first, last, Activation(Tanh())])
        net.configure(4)
        be.rng_reset()
        net.allocate()
        be.rng_reset()
        np.testing.assert_allclose(last.W.get(), be.rng.uniform(size=(2, 3)).astype(np.float32))
        np.testing.assert_allclose(first.W.get(), be.rng.uniform(size=(3, 4)).astype(np.float32))

    def test_shared_outputs_go_to_the_last_owner(self, be):
        shared = be.zeros((10, N))
        net = Sequential([Linear(3, Gaussian()), Linear(2, Gaussian()), Activation(Tanh())])
        net.configure(4)
        net.allocate(shared_outputs=shared)
        assert net.layers[1].outputs.ptr == shared.ptr and net.layers[0].outputs.ptr != shared.ptr

    def test_beta_goes_to_the_last_layer_and_alpha_beta_to_the_first(self, be64, rng):
        net = Sequential([Linear(3, Gaussian()), Linear(2, Gaussian())])
        net.configure(Linear(4, Gaussian()).configure(1))  # inside a larger network
        net.allocate()
        tree = DeltasTree()
        net.allocate_deltas(tree)
        tree.allocate_buffers()
        net.set_deltas(tree)
        x, e = rng.normal(size=(4, N)), rng.normal(size=(2, N))
        W1, W2 = (layer.W.get() for layer in net.layers)
        net.layers[-1].outputs.fill(1.0)
        np.testing.assert_allclose(net.fprop(tensor(be64, x), beta=2.0).get(), W2 @ W1 @ x + 2, rtol=1e-10)
        net.layers[0].deltas.fill(1.0)
        got = net.bprop(tensor(be64, e), alpha=3.0, beta=0.5)
        assert got is net.layers[0].deltas and net.deltas is got
        np.testing.assert_allclose(got.get(), 3 * W1.T @ W2.T @ e + 0.5, rtol=1e-10)

    def test_a_chain_inside_a_chain(self, be64, rng):
        inner = Sequential([Linear(3, Gaussian()), Activation(Tanh())])
        net = Sequential([Linear(5, Gaussian()), inner, Linear(2, Gaussian())])
        net.configure(4)
        net.allocate()
        net.allocate_deltas()
        x, e = rng.normal(size=(4, N)), rng.normal(size=(2, N))
        W0, W1, W2 = (layer.W.get() for layer in net.layers_to_optimize)
        h = np.tanh(W1 @ W0 @ x)
        np.testing.assert_allclose(net.fprop(tensor(be64, x)).get(), W2 @ h, rtol=1e-10)
        assert net.bprop(tensor(be64, e)) is None
        d = (W2.T @ e) * (1 - h**2)
        np.testing.assert_allclose(net.layers[0].dW.get(), W1.T @ d @ x.T, rtol=1e-10)
        assert [type(layer).__name__ for layer in net.layers_fprop()] == ["Linear", "Linear", "Activation", "Linear"]
        assert list(net.layers_bprop()) == list(net.layers_fprop())[::-1]
        assert net.get_terminal() is net.layers[-1]
        assert net.nested_str().count("\n") == 5

    def test_a_chain_inside_a_chain_as_its_first_layer(self, be64, rng):
        net = Sequential([Sequential([Linear(3, Gaussian()), Linear(50, Gaussian())]), Linear(2, Gaussian())])
        net.configure(4)
        net.allocate()
        net.allocate_deltas()
        x, e = rng.normal(size=(4, N)), rng.normal(size=(2, N))
        _, W1, W2 = (layer.W.get() for layer in net.layers_to_optimize)
        net.fprop(tensor(be64, x))
        net.bprop(tensor(be64, e))
        np.testing.assert_allclose(net.layers_to_optimize[0].dW.get(), W1.T @ W2.T @ e @ x.T, rtol=1e-10)

    def test_shared_outputs_reach_a_chain_that_ends_in_place(self, be):
        shared = be.zeros((2, N))
        inner = Sequential([Linear(2, Gaussian()), Activation(Tanh())])
        net = Sequential([Sequential([Linear(3, Gaussian()), Activation(Tanh())]), inner])
        net.configure(4)
        net.allocate(shared_outputs=shared)
        assert inner.layers[0].outputs is shared and net.owns_output

    def test_a_first_layer_that_is_told_so_has_an_error_buffer(self, be64, rng):
        first, second = Linear(3, Gaussian()), Linear(2, Gaussian())
        net = Sequential([first, second])
        net.configure(9)
        first.prev_layer = True
        net.allocate()
        net.allocate_deltas()
        x, e = rng.normal(size=(9, N)), rng.normal(size=(2, N))
        net.fprop(tensor(be64, x))
        np.testing.assert_allclose(net.bprop(tensor(be64, e)).get(), first.W.get().T @ second.W.get().T @ e, rtol=1e-10)

    def test_descriptions_rebuild_the_chain_with_its_weights(self, be):
        net = Sequential([Affine(3, Gaussian(), bias=Uniform(), activation=Rectlin(0.1)), Reshape((3, 1, 1)),
                          Dropout(0.7)], name="net")  # fmt: skip
        ready(net, 4)
        described = net.get_description(get_weights=True)
        assert described["container"] is True and described["type"] == "neonlike.layers.container.Sequential"
        assert described["config"]["name"] == "net"
        assert set(described["config"]["layers"][0]) == {"type", "config", "params", "states"}
        again = Sequential.gen_class(dict(described["config"]))
        again.load_weights(described)
        ready(again, 4)
        for a, b in zip(net.layers[:2], again.layers[:2], strict=True):
            np.testing.assert_array_equal(a.W.get(), b.W.get())
        assert again.layers[2].transform.slope == 0.1 and again.layers[4].keep == 0.7

    def test_a_chain_that_makes_its_layers_itself_comes_back_too(self, be):
        class Tower(Sequential):
            """As many layers as it has floors."""

            def __init__(self, floors, name=None):
                self.floors = floors
                super().__init__([Linear(3, Gaussian()) for _ in range(floors)], name=name)

        net = ready(Tower(2, name="tower"), 3)
        described = net.get_description(get_weights=True)
        again = build(described)
        assert type(again) is Tower and again.name == "tower"
        again.load_weights(described)
        ready(again, 3)
        for a, b in zip(net.layers, again.layers, strict=True):
            np.testing.assert_array_equal(a.W.get(), b.W.get())

    def test_a_branch_adds_its_error_to_that_of_the_trunk(self, be64, rng):
        node = BranchNode("fork")
        below, above, top, side = (Linear(n, Gaussian()) for n in (6, 5, 2, 3))
        trunk = Sequential([below, node, above, Activation(Tanh()), top])
        branch = Sequential([node, side, Activation(Tanh())])
        trunk.configure(4), branch.configure(None)
        tree = DeltasTree()
        for chain in (trunk, branch):
            chain.allocate()
            chain.allocate_deltas(tree)
        tree.allocate_buffers()
        for chain in (trunk, branch):
            chain.set_deltas(tree)
        assert above.deltas is node.deltas is side.deltas
        x, e, e_side = rng.normal(size=(4, N)), rng.normal(size=(2, N)), rng.normal(size=(3, N))
        trunk.fprop(tensor(be64, x)), branch.fprop(None)
        branch.bprop(tensor(be64, e_side), alpha=0.5, beta=0.0)
        trunk.bprop(tensor(be64, e), alpha=1.0, beta=1.0)
        W = {layer: layer.W.get() for layer in (below, above, top, side)}
        h = W[below] @ x
        error = W[above].T @ ((1 - np.tanh(W[above] @ h) ** 2) * (W[top].T @ e))
        error += 0.5 * W[side].T @ ((1 - np.tanh(W[side] @ h) ** 2) * e_side)
        np.testing.assert_allclose(node.deltas.get(), error, rtol=1e-10)
        np.testing.assert_allclose(below.dW.get(), error @ x.T, rtol=1e-10)

    def test_weights_of_another_chain_are_refused_and_nothing_changes(self, be):
        net = ready(Sequential([Linear(3, Constant(1)), Linear(2, Constant(1))]), 4)
        other = ready(Sequential([Linear(3, Constant(5)), Linear(4, Constant(5))]), 4)
        with pytest.raises(ShapeError, match=r"\(4, 3\).*\(2, 3\)"):
            net.load_weights(other.get_description(get_weights=True))
        assert all((layer.W.get() == 1).all() for layer in net.layers)
        short = ready(Sequential([Linear(3, Constant(5))]), 4)
        with pytest.raises(ArgumentError, match=r"1 layers.*2"):
            net.load_weights(short.get_description(get_weights=True))
