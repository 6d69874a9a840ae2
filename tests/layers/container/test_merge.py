"""Containers with branches side by side: MergeSum, MergeBroadcast, and nests of them."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    Activation,
    Bias,
    Conv,
    DataTransform,
    Dropout,
    GeneralizedCost,
    Linear,
    MergeBroadcast,
    MergeSum,
    Pooling,
    Reshape,
    Sequential,
    SkipNode,
)
from neonlike.layers.container import Broadcast, DeltasTree
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optimizers.base import get_param_list
from neonlike.transforms import Logistic, Normalizer, Rectlin, SumSquared, Tanh
from tests.layers.container.branched import affine, compare, linear, set_up
from tests.support.differences import slope
from tests.support.float64.network_reference import Network
from tests.support.float64.recurrent_loops import make

N = 3
pytestmark = pytest.mark.samples(N)


SUMS = {
    "linear and skip": lambda: [[affine(5), linear(5)], SkipNode()],
    "ends in place": lambda: [affine(5), affine(5, Logistic()), [linear(5), Bias(Gaussian())]],
    "the first in place": lambda: [affine(5), linear(5)],
    "dropout changes the error": lambda: [[affine(4), linear(5)], [linear(5), Dropout(0.5)], [affine(5), Dropout(0.6)]],
    "one branch": lambda: [affine(5)],
    "begins in place": lambda: [[Dropout(0.5), linear(5)], SkipNode(), [Dropout(0.7)]],
    "sums in sums": lambda: [[MergeSum([linear(5), affine(5)])], [affine(6), MergeSum([linear(5), skip_of(5)])]],
}


def skip_of(nout):
    return Sequential([linear(nout), SkipNode()])


class TestMergeSum:
    """The sum of branches."""

    @pytest.mark.parametrize("case", SUMS)
    def test_as_written_out(self, be64, rng, case):
        net = set_up([linear(5), MergeSum(SUMS[case]()), Activation(Tanh()), linear(2)], 4)
        compare(be64, net, rng.normal(size=(4, N)), rng)

    def test_as_first_and_as_last_layer(self, be64, rng):
        net = set_up([MergeSum([[affine(3), linear(5)], linear(5)])], 4)
        compare(be64, net, rng.normal(size=(4, N)), rng)
        assert net.deltas is None and net.bprop(be64.ones((5, N))) is None

    def test_direct_branches_share_one_buffer(self, be):
        merge = MergeSum([[affine(4), linear(5)], SkipNode(), affine(5)])
        set_up([linear(5), merge], 4)
        pointers = [branch.layers[-1].outputs.ptr for branch in merge.layers[:2]]
        assert pointers == [merge.outputs.ptr] * 2
        assert merge.layers[2].layers[0].outputs.ptr != merge.outputs.ptr

    def test_branches_share_the_first_error_buffer(self, be):
        below, above = linear(5), linear(2)
        merge = MergeSum([[linear(6), linear(7), linear(5)], SkipNode()])
        set_up([below, merge, above], 4)
        firsts = [branch.layers[0].deltas.ptr for branch in merge.layers]
        assert firsts == [merge.deltas.ptr] * 2 == [merge.layers[0].deltas.ptr] * 2
        assert above.deltas.ptr != merge.deltas.ptr
        inner = [layer.deltas.ptr for layer in merge.layers[0].layers[1:]]
        assert len({*inner, merge.deltas.ptr, above.deltas.ptr}) == 4

    def test_alpha_and_beta_scale_the_errors_only(self, be64, rng):
        merge = MergeSum([linear(3), [Dropout(0.5), linear(3)], skip_of(3)])
        merge.configure(4)
        merge.prev_layer = True
        merge.allocate()
        tree = DeltasTree()
        merge.allocate_deltas(tree)
        tree.allocate_buffers()
        merge.set_deltas(tree)
        x, e, old = (rng.normal(size=(rows, N)) for rows in (4, 3, 4))
        # Dropout at the head of a branch works on a copy: the others see the input as it is.
        merge.fprop(inputs := be64.array(x))
        np.testing.assert_array_equal(inputs.get(), x)
        reference = Network(N)
        _, backward = reference.run(merge, x)
        merge.deltas[:] = be64.array(old)
        got = merge.bprop(be64.array(e), alpha=0.5, beta=2.0)
        np.testing.assert_allclose(got.get(), 0.5 * backward(e) + 2 * old, rtol=1e-10)
        for layer in merge.layers_to_optimize:
            np.testing.assert_allclose(layer.dW.get(), reference.gradients[layer], rtol=1e-10)

    @pytest.mark.parametrize("first", [True, False])
    def test_a_transform_of_the_data_hands_nothing_back(self, be64, rng, first):
        transform = [DataTransform(Normalizer()), linear(3)]
        below, beside = linear(4), linear(3)
        merge = MergeSum([transform, beside] if first else [beside, transform])
        net = set_up([below, merge], 4)
        x, e = rng.normal(size=(4, N)), rng.normal(size=(3, N))
        net.fprop(be64.array(x))
        merge.deltas.fill(7)  # as an earlier pass may leave it
        net.bprop(be64.array(e))
        np.testing.assert_allclose(below.dW.get(), beside.W.get().T @ e @ x.T, rtol=1e-10)

    def test_fewer_columns_in_inference(self, be64, rng):
        for branches in ([affine(5), linear(5)], [affine(5), affine(5)]):
            net = set_up([linear(4), MergeSum(branches), linear(2)], 4)
            x = rng.normal(size=(4, 2))
            expected, _ = Network(2, inference=True).run(net, x)
            np.testing.assert_allclose(net.fprop(be64.array(x), inference=True).get(), expected, rtol=1e-10)

    def test_branches_of_other_shapes(self, be):
        with pytest.raises(ShapeError, match=r"\(5, 1\).*\(6, 1\)"):
            MergeSum([linear(5), linear(6)]).configure(4)
        with pytest.raises(ArgumentError, match="empty"):
            MergeSum([])
        with pytest.raises(DTypeError, match="layer"):
            MergeSum([linear(5), "skip"])


MERGES = {
    "depth": ("depth", lambda: [affine(5), [affine(3), linear(2)], SkipNode()], 4),
    "depth of maps": ("depth", lambda: [[linear(12), Reshape((2, 3, 2))], [affine(6), Reshape((1, 3, 2))]], 4),
    "depth of sequences": ("depth", lambda: [affine(5), [Dropout(0.5), linear(2)]], (4, 2)),
    "stack": ("stack", lambda: [affine(5), [linear(6), Reshape((2, 3))], [linear(2), Dropout(0.5)]], 4),
    "recurrent": ("recurrent", lambda: [affine(5), [affine(3), linear(5)], [linear(10), Reshape((5, 4))]], (4, 2)),
}


class TestMergeBroadcast:
    """Branches' outputs side by side."""

    @pytest.mark.parametrize("case", MERGES)
    def test_as_written_out(self, be64, rng, case):
        merge, branches, shape = MERGES[case]
        steps = shape[1] if isinstance(shape, tuple) else 1
        below = [linear(4)] if steps > 1 else [linear(4), Activation(Rectlin())]
        net = set_up([*below, MergeBroadcast(branches(), merge, alphas=[0.5, 1, 2][: len(branches())])], shape)
        compare(be64, net, rng.normal(size=(4, steps * N)), rng)

    def test_shapes(self, be):
        def shape(merge, *branches, of=4):
            return MergeBroadcast(list(branches), merge).configure(of).out_shape

        assert shape("depth", linear(5), linear(2)) == (7, 1)
        assert shape("stack", linear(5), linear(2)) == 7
        assert shape("stack", linear(5), [linear(2), Reshape((1, 2, 2))], of=(4, 2)) == 14
        assert shape("recurrent", linear(5), linear(5), of=(4, 2)) == (5, 4)
        maps = MergeBroadcast([reshaped(2, 3, 4), reshaped(5, 3, 4)], "depth").configure(1)
        assert maps.out_shape == (7, 3, 4) and maps.slices == [slice(0, 24), slice(24, 84)]

    def test_branches_write_to_their_parts(self, be):
        merge = MergeBroadcast([affine(5), linear(2)], "depth")
        net = set_up([merge], 4)
        y = net.fprop(be.ones((4, N)))
        assert y is merge.outputs
        assert [view.ptr for view in merge.output_views] == [branch.outputs.ptr for branch in merge.layers]

    def test_another_error_buffer(self, be64, rng):
        net = set_up([linear(4), MergeBroadcast([linear(5), linear(2)], "depth")], 3)
        x = rng.normal(size=(3, N))
        _, W1, W2 = (layer.W.get() for layer in net.layers_to_optimize)
        net.fprop(be64.array(x))
        for _ in range(2):
            e = rng.normal(size=(7, N))
            net.bprop(be64.array(e))
            np.testing.assert_allclose(net.layers[0].dW.get(), (W1.T @ e[:5] + W2.T @ e[5:]) @ x.T, rtol=1e-10)

    @pytest.mark.parametrize("case", ["depth", "stack", "recurrent"])
    def test_fewer_columns_in_inference(self, be64, rng, case):
        merge, branches, shape = MERGES[case]
        steps = shape[1] if isinstance(shape, tuple) else 1
        net = set_up([linear(4), MergeBroadcast(branches(), merge)], shape)
        for samples in (2, 1, N):
            x = rng.normal(size=(4, steps * samples))
            expected, _ = Network(samples, inference=True).run(net, x)
            np.testing.assert_allclose(net.fprop(be64.array(x), inference=True).get(), expected, rtol=1e-10)

    def test_wrong_arguments(self, be):
        with pytest.raises(ArgumentError, match=r"sideways.*recurrent, depth, stack"):
            MergeBroadcast([linear(5)], "sideways")
        with pytest.raises(ArgumentError, match="2 branches but 1 alphas"):
            MergeBroadcast([linear(5), linear(5)], "depth", alphas=[1.0])
        with pytest.raises(ShapeError, match="number of features"):
            MergeBroadcast([linear(5), linear(4)], "recurrent").configure((3, 2))
        with pytest.raises(ShapeError, match="maps"):
            MergeBroadcast([reshaped(2, 3, 4), reshaped(2, 4, 3)], "depth").configure(1)


def reshaped(*shape):
    return [linear(int(np.prod(shape))), Reshape(shape)]


NESTS = {
    "a merge begins a branch": lambda: [
        [MergeBroadcast([[affine(3), linear(4)], [affine(2), affine(5)]], "depth"), affine(4), linear(6)],
        [affine(7), affine(3), linear(6)],
    ],
    "chains and merges begin branches": lambda: [
        [Sequential([MergeSum([[MergeSum([[affine(3), affine(4), linear(5)], linear(5)]), affine(6), linear(7)],
                               [affine(3), linear(7)]]), affine(5)]), affine(4), linear(6)],
        Sequential([Sequential([affine(3), affine(4)]), affine(5), linear(6)]),
    ],
    "merges within": lambda: [
        [affine(3), MergeSum([[affine(5), affine(4)], [affine(2), affine(3), affine(4)]]), affine(3),
         MergeBroadcast([affine(3), [affine(5), Dropout(0.5)]], "stack"), linear(6)],
        [affine(6), MergeBroadcast([[Dropout(0.6)], [affine(1), linear(2)]], "depth"), linear(6)],
    ],
}  # fmt: skip


class TestNests:
    """Containers in containers: no error buffer is overwritten while it is needed."""

    @pytest.mark.parametrize("case", NESTS)
    def test_as_written_out(self, be64, rng, case):
        net = set_up([affine(5), MergeSum(NESTS[case]()), affine(4), linear(2)], 4)
        compare(be64, net, rng.normal(size=(4, N)), rng)

    def test_gradient_by_differences(self, be64, rng):
        net = set_up([affine(5), MergeSum(NESTS["a merge begins a branch"]()), affine(4), linear(2)], 4)
        x, e = be64.array(rng.normal(size=(4, N))), rng.normal(size=(2, N))
        net.fprop(x)
        net.bprop(be64.array(e))
        for layer in net.layers_to_optimize[::3]:
            direction = rng.normal(size=layer.W.shape)
            found = slope(lambda: (net.fprop(x).get() * e).sum(), layer.W, direction, 1e-5)
            assert found == pytest.approx((layer.dW.get() * direction).sum(), rel=1e-6)

    def test_descriptions_rebuild_them_with_their_weights(self, be64, rng):
        layers = [affine(5), MergeSum(NESTS["merges within"](), name="sum"),
                  MergeBroadcast([linear(2), SkipNode()], "depth", alphas=[0.5, 2.0])]  # fmt: skip
        net = set_up(layers, 4)
        described = net.get_description(get_weights=True)
        again = build(described)
        again.configure(4)
        again.allocate()
        again.load_weights(described)
        x = be64.array(rng.normal(size=(4, N)))
        np.testing.assert_array_equal(again.fprop(x, inference=True).get(), net.fprop(x, inference=True).get())
        merged = again.layers[-1]
        assert (merged.merge, merged.alphas) == ("depth", [0.5, 2.0])
        assert again.nested_str() == net.nested_str()
        assert described["config"]["layers"][3]["type"].endswith("layers.container.MergeSum")

    def test_all_layers_are_found(self, be):
        net = Sequential([linear(5), MergeSum([[affine(3), linear(5)], SkipNode()])])
        assert [type(layer).__name__ for layer in net.layers_fprop()] == [
            "Linear", "Linear", "Bias", "Activation", "Linear", "SkipNode"
        ]  # fmt: skip
        assert len(net.layers_to_optimize) == 4
        assert isinstance(net.layers[1], Broadcast)
        with pytest.raises(TypeError):
            net.layers[1].allocate(accumulate_updates=True)


class TestOtherLayers:
    """Branches of recurrent layers, which overwrite their error, and of images."""

    @pytest.mark.parametrize("merge", ["sum", "depth", "recurrent", "stack"])
    def test_recurrent_layers_as_written_out(self, be64, rng, merge):
        def branches():
            gru, rnn, lstm = (
                make(kind, nout, reset_cells=True) for kind, nout in (("gru", 4), ("rnn", 3), ("lstm", 4))
            )
            return [gru, [rnn, lstm], [linear(4), Dropout(0.6)]]

        container = MergeSum(branches()) if merge == "sum" else MergeBroadcast(branches(), merge)
        net = set_up([make("gru", 5, reset_cells=True), container, linear(2)], (4, 2))
        compare(be64, net, rng.normal(size=(4, 2 * N)), rng)

    @pytest.mark.engines("numpy")
    def test_gradients_of_images_by_differences(self, be64, rng):
        def conv(size, maps, act=True, **pad):
            return Conv((size, size, maps), Gaussian(scale=0.4), padding=pad.get("pad", 0), batch_norm=True,
                        activation=Rectlin() if act else None)  # fmt: skip

        def block():
            return MergeSum([[conv(3, 4, pad=1), conv(3, 4, act=False, pad=1)], SkipNode()])

        inception = MergeBroadcast(
            [conv(1, 2), [Pooling(3, strides=1, padding=1, op="avg"), conv(1, 3)], [block(), conv(3, 2, pad=1)]],
            "depth",
        )
        net = set_up(
            [conv(3, 4), block(), Activation(Logistic()), inception, Pooling("all", op="avg"), linear(2)], (2, 5, 4)
        )
        x, e = be64.array(rng.normal(size=(40, N))), rng.normal(size=(2, N))
        net.fprop(x)
        net.bprop(be64.array(e))
        parameters = get_param_list(net.layers_to_optimize)
        gradients = [grad.get() for (_, grad), _ in parameters]
        for ((parameter, _), _), gradient in zip(parameters, gradients, strict=True):
            direction = rng.normal(size=parameter.shape)
            found = slope(lambda: (net.fprop(x).get() * e).sum(), parameter, direction, 1e-5)
            assert found == pytest.approx((gradient * direction).sum(), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("merge", [MergeSum, lambda layers: MergeBroadcast(layers, "depth")])
def test_branches_come_in_a_list(be, merge):
    with pytest.raises(DTypeError, match="layers must be a list of branches, got 7"):
        merge(7)


def test_constants_by_hand(be):
    """Two branches that double and triple their input."""
    double, triple = (Linear(1, Constant(value)) for value in (2.0, 3.0))
    x = be.array([[1.0, 2.0, 4.0]])
    assert set_up([MergeSum([double, triple])], 1).fprop(x).get().tolist() == [[5, 10, 20]]
    double, triple = (Linear(1, Constant(value)) for value in (2.0, 3.0))
    stacked = set_up([MergeBroadcast([double, triple], "stack")], 1).fprop(x)
    assert stacked.get().tolist() == [[2, 4, 8], [3, 6, 12]]


@pytest.mark.parametrize(
    "kind", [lambda: MergeSum(SUMS["linear and skip"]()), lambda: MergeBroadcast([linear(2), affine(3)], "stack")]
)
def test_a_merge_may_be_the_whole_network(be, kind):
    """It learns as one that is the only layer of a list."""
    x, t = np.random.default_rng(8).standard_normal((2, 4 * N, 5)).astype(np.float32)

    def trained(network):
        be.rng_reset()
        data, model = ArrayIterator(x, t, make_onehot=False), Model(network)
        model.fit(data, GeneralizedCost(SumSquared()), GradientDescentMomentum(0.05, 0.9), num_epochs=2)
        return model.get_outputs(data)

    alone = trained(kind())
    assert np.array_equal(alone, trained([kind()])) and np.isfinite(alone).all()
