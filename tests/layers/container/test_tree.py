"""Networks with several outputs: Tree and SingleOutputTree."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers import (
    Activation,
    BranchNode,
    Dropout,
    GeneralizedCost,
    MergeBroadcast,
    MergeSum,
    Multicost,
    Sequential,
    SingleOutputTree,
    SkipNode,
    Tree,
)
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Softmax, SumSquared, Tanh
from tests.layers.container.branched import affine, linear, set_up
from tests.support.differences import slope
from tests.support.float64.network_reference import Network

N = 3
pytestmark = pytest.mark.samples(N)


def one_junction(cls=Tree):
    node = BranchNode("one")
    return cls([[affine(5), node, affine(6), linear(2)], [node, affine(4), linear(3)]])


def many_junctions():
    """Two junctions in the trunk, one with two branches, and one in a branch, which leaves a branch itself."""
    low, high, side = BranchNode("low"), BranchNode("high"), BranchNode("side")
    return Tree(
        [
            [affine(5), low, affine(6), high, SkipNode(), Activation(Tanh()), linear(2)],
            [high, MergeSum([[Dropout(0.5), linear(3)], affine(3)])],
            [low, linear(3), side, linear(4)],
            [side, affine(2)],
            [low, affine(1)],
        ],
        alphas=[1.0, 0.5, 2.0, 0.3, 1.5],
    )


def unused_junction():
    used, unused = BranchNode("used"), BranchNode("unused")
    return Tree([[affine(5), used, affine(6), unused, linear(2)], [used, linear(3)]])


def junctions_in_containers():
    """Inside a chain, inside a branch of a merge, and at the head of one."""
    inner, deep, head = BranchNode("inner"), BranchNode("deep"), BranchNode("head")
    merge = MergeBroadcast([[linear(3), deep, affine(4)], [head, affine(2)], [affine(3), linear(2)]], "depth")
    trunk = [affine(5), Sequential([linear(6), inner, affine(4)]), merge, linear(2)]
    return Tree([trunk, [deep, affine(2)], [head, linear(3)], [inner, affine(3)], [deep, linear(1)]])


TREES = {"one junction": one_junction, "many junctions": many_junctions, "an unused junction": unused_junction,
         "junctions in containers": junctions_in_containers}  # fmt: skip


class TestTree:
    """Several outputs."""

    @pytest.mark.parametrize("case", TREES)
    def test_as_written_out(self, be64, rng, case):
        tree = set_up(TREES[case](), 4)
        x = rng.normal(size=(4, N))
        for _ in range(2):  # what an earlier pass left in the buffers must not matter
            outputs = tree.fprop(be64.array(x))
            reference = Network(N)
            expected, backward = reference.run(tree, x)
            assert len(outputs) == len(tree.layers)
            for y, value in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(y.get(), value, rtol=1e-10)
            errors = [rng.normal(size=y.shape) for y in outputs]
            assert tree.bprop([be64.array(e) for e in errors]) is None
            backward(errors)
            assert len(reference.gradients) == len(tree.layers_to_optimize)
            for layer, gradient in reference.gradients.items():
                np.testing.assert_allclose(layer.dW.get(), gradient, rtol=1e-9, atol=1e-11)

    def test_gradient_by_differences(self, be64, rng):
        tree = many_junctions()
        tree.alphas[:] = [1.0] * 5
        tree.layers[1].layers[1].layers[0].layers[0].keep = 1.0
        set_up(tree, 4)
        x = be64.array(rng.normal(size=(4, N)))
        errors = [rng.normal(size=y.shape) for y in tree.fprop(x)]

        def cost():
            return sum((y.get() * e).sum() for y, e in zip(tree.fprop(x), errors, strict=True))

        tree.bprop([be64.array(e) for e in errors])
        for layer in tree.layers_to_optimize[::4]:
            direction = rng.normal(size=layer.W.shape)
            found = slope(cost, layer.W, direction, 1e-5)
            assert found == pytest.approx((layer.dW.get() * direction).sum(), rel=1e-6)

    def test_what_is_known_of_it(self, be):
        tree = many_junctions()
        assert tree.betas == [1.0, 0.0, 1.0, 0.0, 0.0]
        set_up(tree, 4)
        assert tree.out_shape == [(2, 1), (3, 1), (4, 1), (2, 1), (1, 1)]
        assert [type(layer).__name__ for layer in tree.get_terminal()] == [
            "Linear", "MergeSum", "Linear", "Activation", "Activation"
        ]  # fmt: skip
        node = BranchNode("low")
        assert all(layer.deltas is node.deltas for layer in (tree.layers[0].layers[4], tree.layers[4].layers[1]))

    def test_in_a_chain(self, be64, rng):
        below = linear(5)
        tree = one_junction()
        net = Sequential([below, tree])
        set_up(net, 4)
        x = rng.normal(size=(4, N))
        outputs = net.fprop(be64.array(x))
        errors = [rng.normal(size=y.shape) for y in outputs]
        reference = Network(N)
        _, backward = reference.run(net, x)
        net.bprop([be64.array(e) for e in errors])
        backward(errors)
        np.testing.assert_allclose(below.dW.get(), reference.gradients[below], rtol=1e-9)
        assert net.get_terminal() == tree.get_terminal()

    def test_descriptions_rebuild_it_with_its_weights(self, be64, rng):
        tree = set_up(many_junctions(), 4)
        described = tree.get_description(get_weights=True)
        again = build(described)
        assert again.layers[4].layers[0] is again.layers[0].layers[3]
        set_up(again, 4).load_weights(described)
        assert again.alphas == tree.alphas
        x = be64.array(rng.normal(size=(4, N)))
        for a, b in zip(tree.fprop(x, inference=True), again.fprop(x, inference=True), strict=True):
            np.testing.assert_array_equal(a.get(), b.get())

    def test_wrong_arguments(self, be):
        node = BranchNode("lonely")
        with pytest.raises(ArgumentError, match=r"branch 1.*begin with the BranchNode"):
            Tree([[linear(3)], [linear(2)]])
        with pytest.raises(ArgumentError, match=r"lonely.*listed before"):
            Tree([[linear(3)], [node, linear(2)]])
        with pytest.raises(ArgumentError, match="empty"):
            Tree([])
        with pytest.raises(DTypeError, match="layers must be a list of branches, got"):
            Tree(np.array(7))
        with pytest.raises(DTypeError, match="layers must be a list of branches, got 7"):
            Tree(7)
        with pytest.raises(ArgumentError, match="2 branches but 3 alphas"):
            Tree([[linear(3), node], [node, linear(2)]], alphas=[1, 1, 1])
        with pytest.raises(ArgumentError, match=r"Dropout.*SkipNode"):
            Tree([[linear(3), node, Dropout(0.5), linear(2)], [node, linear(2)]]).configure(4)
        other = BranchNode("other")
        with pytest.raises(ArgumentError, match=r"other.*follows a BranchNode"):
            Tree([[linear(3), node, other, linear(2)], [node, linear(2)], [other, linear(2)]]).configure(4)
        tree = set_up(one_junction(), 4)
        tree.fprop(be.ones((4, N)))
        for error in (be.ones((2, N)), [be.ones((2, N))]):
            with pytest.raises(DTypeError, match="list of 2 errors"):
                tree.bprop(error)


class TestSingleOutputTree:
    """Branches for training only."""

    def test_inference_computes_the_trunk_alone(self, be64, rng):
        tree = set_up(one_junction(SingleOutputTree), 4)
        x = be64.array(rng.normal(size=(4, N)))
        both = tree.fprop(x)
        assert isinstance(both, list) and len(both) == 2
        trunk, side = (y.get() for y in both)
        both[1].fill(7)
        np.testing.assert_array_equal(tree.fprop(x, inference=True).get(), trunk)
        assert (both[1].get() == 7).all() and not (side == 7).any()
        assert type(build(tree.get_description())) is SingleOutputTree

    def test_a_model_with_two_costs(self, be, rng, tmp_path):
        be.bsz = 10
        x = rng.normal(size=(40, 3)).astype(np.float32)
        labels = (x[:, 0] > 0).astype(np.int32)
        data = ArrayIterator(x, labels, nclass=2)
        node = BranchNode("model")
        trunk = [affine(6), node, affine(2, Softmax())]
        model = Model(SingleOutputTree([trunk, [node, linear(2)]], alphas=[1.0, 0.3]))
        cost = Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(SumSquared())], weights=[1, 0.4])
        model.fit(data, cost, GradientDescentMomentum(0.1, 0.9), num_epochs=25)
        assert model.eval(data, metric=Misclassification()) < 0.1
        model.save_params(path := str(tmp_path / "tree.p"))
        loaded = Model(path)
        np.testing.assert_array_equal(loaded.get_outputs(data), model.get_outputs(data))
