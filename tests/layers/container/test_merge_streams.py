"""MergeMultistream: branches with an input each."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import DTypeError, ShapeError
from neonlike.layers import GeneralizedCost, MergeMultistream
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import Adam
from neonlike.transforms import SumSquared
from tests.layers.container.branched import affine, compare, linear, set_up, tensors

N = 3
pytestmark = pytest.mark.samples(N)


class TestMergeMultistream:
    """Branches with an input each."""

    @pytest.mark.parametrize(
        ("merge", "shapes"), [("stack", [4, (2, 3)]), ("depth", [4, 6]), ("recurrent", [(4, 2), (3, 1)])]
    )
    def test_as_written_out(self, be64, rng, merge, shapes):
        net = set_up([MergeMultistream([[affine(3), affine(5)], [affine(4), linear(5)]], merge), linear(2)], shapes)
        pairs = [(s, 1) if isinstance(s, int) else s for s in shapes]
        compare(be64, net, [rng.normal(size=(rows, steps * N)) for rows, steps in pairs], rng)
        assert net.layers[0].bprop(be64.ones(net.layers[0].outputs.shape)) is None

    @pytest.mark.parametrize("outer", ["stack", "depth"])
    def test_streams_of_streams(self, be64, rng, outer):
        inner = MergeMultistream([[affine(3)], linear(5)], "stack")
        deep = [inner, affine(4)]
        net = set_up([MergeMultistream([deep, [linear(4)]], outer), linear(2)], [[4, (2, 3)], 6])
        assert net.in_shape == [[4, (2, 3)], 6] and inner.in_shape == [4, (2, 3)]
        x = [[rng.normal(size=(4, N)), rng.normal(size=(6, N)).reshape(2, 3 * N)], rng.normal(size=(6, N))]
        compare(be64, net, x, rng)
        assert net.samples_in(tensors(be64, x)) == N

    def test_a_model_of_streams_of_streams_is_trained_and_saved(self, be, rng, tmp_path):
        class Nested(ArrayIterator):
            """Its last stream beside the others."""

            def __init__(self, arrays, y):
                super().__init__(arrays, y, make_onehot=False)
                self.shape = [self.shape[:2], self.shape[2]]

            def __iter__(self):
                for (a, b, c), y in super().__iter__():
                    yield ((a, b), c), y

        arrays = [rng.normal(size=(8, size)).astype(np.float32) for size in (4, 2, 3)]
        data = Nested(arrays, sum(a.sum(axis=1, keepdims=True) for a in arrays) / 9)
        inner = MergeMultistream([linear(3), linear(5)], "stack")
        model = Model([MergeMultistream([[inner, linear(4)], linear(4)], "stack"), linear(1)])
        cost = GeneralizedCost(SumSquared())
        model.fit(data, cost, Adam(learning_rate=0.02), num_epochs=150)
        assert model.total_cost.item() < 1e-3
        model.save_params(path := str(tmp_path / "nested.p"))
        loaded = Model(path)
        assert loaded.get_outputs(data).tobytes() == model.get_outputs(data).tobytes()
        assert loaded.get_outputs(data).shape == (8, 1)

    def test_each_branch_has_its_own_error_buffers(self, be):
        merge = MergeMultistream([[linear(3), linear(5)], [linear(4), linear(5)]], "stack")
        set_up([merge, linear(2)], [4, 6])
        assert merge.layers[0].layers[1].deltas.ptr != merge.layers[1].layers[1].deltas.ptr
        assert all(branch.layers[0].deltas is None for branch in merge.layers)

    def test_inputs_come_from_a_data_set(self, be):
        class Data:
            shape = ((4,), (2, 3))

        net = MergeMultistream([linear(3), linear(5)], "stack")
        assert net.configure(Data()).in_shape == [(4,), (2, 3)]

    def test_as_many_numbers_of_features_as_a_pair_has_are_no_steps(self, be, rng):
        data = ArrayIterator([rng.normal(size=(4, 6)), rng.normal(size=(4, 2))])
        model = Model([MergeMultistream([linear(3), linear(5)], "stack")])
        assert model.get_outputs(data).shape == (4, 8)

    def test_wrong_arguments(self, be):
        net = MergeMultistream([linear(3), linear(5)], "stack")
        for shapes in ([4], 4, [4, 5, 6], linear(3)):
            with pytest.raises(ShapeError, match="2 branches"):
                net.configure(shapes)
        net.configure([4, 6])
        net.allocate()
        for inputs in (be.ones((4, N)), [be.ones((4, N))]):
            with pytest.raises(DTypeError, match="list of 2 inputs"):
                net.fprop(inputs)
        assert build(net.get_description()).merge == "stack"
