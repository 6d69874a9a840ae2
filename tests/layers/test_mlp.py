"""Layers of an MLP, one at a time: shapes, initial values, forward and backward passes, errors."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian, IdentityInit, Uniform
from neonlike.layers import Activation, Bias, BranchNode, DataTransform, Dropout, Linear, Reshape, Sequential, SkipNode
from neonlike.layers.container import DeltasTree
from neonlike.layers.layer import interpret_in_shape
from neonlike.transforms import Logistic, Normalizer, Softmax, Tanh
from tests.layers.layering import ready, tensor

N = 4
pytestmark = pytest.mark.samples(N)


class TestShapes:
    """How a layer learns its input shape."""

    @pytest.mark.parametrize(
        ("shape", "expected"), [(5, (5, 1)), ((5,), (5, 1)), ((5, 3), (5, 3)), ((2, 3, 4), (24, 1)), ((), (1, 1))]
    )
    def test_interpret_in_shape(self, shape, expected):
        assert interpret_in_shape(shape) == expected

    @pytest.mark.parametrize("in_shape", [6, (6,), (6, 1), (1, 2, 3), [6], np.int64(6)])
    def test_linear_flattens(self, be, in_shape):
        layer = Linear(3, Gaussian()).configure(in_shape)
        assert (layer.nin, layer.nsteps, layer.out_shape, layer.weight_shape) == (6, 1, (3, 1), (3, 6))

    def test_linear_takes_sequences(self, be):
        layer = ready(Linear(3, Constant(1.0)), (2, 5))
        assert layer.out_shape == (3, 5) and layer.outputs.shape == (3, 5 * N)

    def test_a_tensor_and_a_dataset_tell_the_shape(self, be):
        class Data:
            shape = (1, 2, 3)

        assert Linear(3, Gaussian()).configure(be.zeros((6, 5 * N))).in_shape == (6, 5)
        assert Linear(3, Gaussian()).configure(Data()).in_shape == (1, 2, 3)

    def test_a_layer_passes_its_shape_and_parallelism_on(self, be):
        first = Linear(3, Gaussian(), parallelism="Data").configure(2)
        second = Activation(Tanh()).configure(first)
        assert (second.in_shape, second.prev_layer, second.parallelism) == ((3, 1), first, "Data")

    def test_anything_else_is_refused(self, be):
        with pytest.raises(DTypeError, match="input shape"):
            Linear(3, Gaussian()).configure(3.5)


class TestLinear:
    """Matrix products."""

    def test_forward_and_backward(self, be64, rng):
        layer = ready(Linear(3, Gaussian()), 5)
        x, e = rng.normal(size=(5, N)), rng.normal(size=(3, N))
        W = layer.W.get()
        np.testing.assert_allclose(layer.fprop(tensor(be64, x)).get(), W @ x, rtol=1e-12)
        np.testing.assert_allclose(layer.bprop(tensor(be64, e)).get(), W.T @ e, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), e @ x.T, rtol=1e-12)

    def test_alpha_and_beta_apply_to_the_deltas_only(self, be64, rng):
        layer = ready(Linear(3, Gaussian()), 5)
        x, e = rng.normal(size=(5, N)), rng.normal(size=(3, N))
        y = layer.fprop(tensor(be64, x)).get().copy()
        np.testing.assert_allclose(layer.fprop(tensor(be64, x), beta=0.5).get(), 1.5 * y, rtol=1e-12)
        layer.deltas.fill(1.0)
        got = layer.bprop(tensor(be64, e), alpha=2.0, beta=3.0).get()
        np.testing.assert_allclose(got, 2 * layer.W.get().T @ e + 3, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), e @ x.T, rtol=1e-12)

    def test_bsum_sums_the_outputs_in_training(self, be, rng):
        layer = ready(Linear(3, Gaussian(), bsum=True), 5)
        y = layer.fprop(tensor(be, rng.normal(size=(5, N)))).get()
        layer.fprop(tensor(be, rng.normal(size=(5, N))), inference=True)
        np.testing.assert_allclose(layer.batch_sum.get(), y.sum(axis=1, keepdims=True), rtol=1e-4)

    def test_a_first_layer_has_no_deltas_but_a_gradient(self, be):
        layer = Linear(3, Constant(1.0)).configure(5)
        layer.allocate()
        layer.set_deltas(DeltasTree())
        layer.fprop(be.ones((5, N)))
        assert layer.bprop(be.ones((3, N))) is None
        np.testing.assert_array_equal(layer.dW.get(), np.full((3, 5), N))

    def test_error_buffers_may_be_a_list_which_is_swapped(self, be):
        """As scripts for neon 1 give them."""
        layer, (first, second) = Linear(3, Constant(1.0)).configure(5), (be.iobuf(5), be.iobuf(8))
        layer.prev_layer = True
        layer.allocate()
        buffers = [first, second]
        layer.set_deltas(buffers)
        layer.fprop(be.ones((5, N)))
        np.testing.assert_array_equal(layer.bprop(be.ones((3, N))).get(), np.full((5, N), 3))
        np.testing.assert_array_equal(first.get(), np.full((5, N), 3))
        assert buffers[0] is second and buffers[1] is first

    def test_a_smaller_batch_and_a_shorter_sequence(self, be):
        layer = ready(Linear(2, Constant(1.0)), (3, 2))
        layer.outputs.fill(-1)
        layer.set_batch_size(2)
        layer.set_seq_len(1)
        y = layer.fprop(be.ones((3, 2 * N))).get()
        np.testing.assert_array_equal(y, [[3, 3, -1, -1, -1, -1, -1, -1]] * 2)
        layer.bprop(be.ones((2, 2 * N)))
        np.testing.assert_array_equal(layer.dW.get(), np.full((2, 3), 2))

    @pytest.mark.parametrize(("samples", "steps"), [(-1, 1), (0, 1), (2 * N + 1, 1), (2, 0), (2, -1)])
    def test_numbers_of_columns_that_there_are_not(self, be, samples, steps):
        """The first -1 columns would be all but the last."""
        layer = ready(Linear(2, Constant(1.0)), (3, 2))
        layer.set_batch_size(samples)
        layer.set_seq_len(steps)
        with pytest.raises(ShapeError, match=rf"{steps} steps of {samples} samples are set, and there are {2 * N} col"):
            layer.fprop(be.ones((3, 2 * N)))

    @pytest.mark.parametrize("nout", ["10", 2.0, None, True])
    def test_a_wrong_type_of_nout(self, be, nout):
        with pytest.raises(DTypeError, match="nout"):
            Linear(nout, Gaussian())

    @pytest.mark.parametrize("nout", [0, -3])
    def test_nout_must_be_positive(self, be, nout):
        with pytest.raises(ShapeError, match="positive"):
            Linear(nout, Gaussian())

    @pytest.mark.parametrize("init", ["gaussian", Gaussian, 0.1])
    def test_a_wrong_initializer(self, be, init):
        for make in (lambda: Linear(3, init), lambda: Bias(init)):
            with pytest.raises(DTypeError, match=r"Gaussian\("):
                make()

    def test_a_wrong_input_is_reported_with_the_shapes(self, be):
        layer = ready(Linear(3, Gaussian()), 5)
        with pytest.raises(ShapeError, match=r"\(6, 4\).*5 features"):
            layer.fprop(be.zeros((6, N)))
        with pytest.raises(ShapeError, match=r"\(5, 8\).*4 columns.*batch size"):
            layer.fprop(be.zeros((5, 2 * N)))

    def test_a_layer_that_is_not_ready_says_what_is_missing(self, be):
        layer = Linear(3, Gaussian())
        for ask in (layer.allocate, Bias(Constant(0)).allocate, lambda: layer.fprop(be.zeros((5, N)))):
            with pytest.raises(ArgumentError, match="configure"):
                ask()
        layer.configure(5)
        with pytest.raises(ArgumentError, match="allocate"):
            layer.fprop(be.zeros((5, N)))
        layer.allocate()
        with pytest.raises(ArgumentError, match="fprop first"):
            layer.bprop(be.zeros((3, N)))

    def test_weights_for_another_input_are_noticed(self, be):
        layer = ready(Linear(3, Gaussian()), 5)
        layer.outputs = None
        layer.configure(6)
        with pytest.raises(ShapeError, match=r"\(3, 5\).*\(3, 6\)"):
            layer.allocate()

    def test_dw_alpha_and_dw_beta_apply_to_the_gradient_of_the_weight_only(self, be64, rng):
        layer = ready(Linear(3, Gaussian()), 5)
        x, e = tensor(be64, rng.normal(size=(5, N))), tensor(be64, rng.normal(size=(3, N)))
        layer.fprop(x)
        plain, dW = layer.bprop(e).get().copy(), layer.dW.get().copy()
        np.testing.assert_allclose(layer.bprop(e, dW_alpha=2.0, dW_beta=0.5).get(), plain, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), 2.5 * dW, rtol=1e-12)


class TestInitialValues:
    """Initial values of a weight."""

    @pytest.mark.parametrize("as_tensor", [True, False])
    def test_defect_24_an_array_as_init(self, be, as_tensor):
        values = np.arange(15.0).reshape(3, 5)
        init = tensor(be, values) if as_tensor else values
        layer = Linear(3, init)
        net = Sequential([layer, Activation(Tanh())])
        net.configure(5)
        net.allocate()
        np.testing.assert_array_equal(layer.W.get(), values)
        assert layer.W is not init
        assert net.layers_to_optimize == [layer]
        assert isinstance(layer.get_description()["config"]["init"], np.ndarray)

    def test_an_array_of_another_shape(self, be):
        with pytest.raises(ShapeError, match=r"\(5, 3\).*\(3, 5\)"):
            ready(Linear(3, np.ones((5, 3))), 5)

    def test_a_missing_init(self, be):
        with pytest.raises(ArgumentError, match="initializer"):
            ready(Linear(3, None), 5)

    def test_identity_layers_are_not_optimized(self, be):
        fixed, trained = Linear(3, IdentityInit()), Linear(3, Gaussian())
        assert Sequential([fixed, trained]).layers_to_optimize == [trained]


class TestBias:
    """Biases per feature and per feature map, in place."""

    @pytest.mark.parametrize(("in_shape", "rows"), [(6, 6), ((6,), 6), ((3, 2), 3), ((3, 2, 2), 3)])
    def test_forward_and_backward(self, be64, rng, in_shape, rows):
        features, steps = (3, 2) if in_shape == (3, 2) else (int(np.prod(in_shape)), 1)
        layer = ready(Bias(Uniform()), in_shape)
        assert layer.weight_shape == (rows, 1) and layer.out_shape == in_shape
        x, e = (rng.normal(size=(features, steps * N)) for _ in range(2))
        inputs, error = tensor(be64, x), tensor(be64, e)
        assert layer.fprop(inputs) is inputs
        expected = (x.reshape(rows, -1) + layer.W.get()).reshape(x.shape)
        np.testing.assert_allclose(inputs.get(), expected, rtol=1e-12)
        assert layer.bprop(error) is error
        np.testing.assert_allclose(layer.dW.get(), e.reshape(rows, -1).sum(axis=1, keepdims=True), rtol=1e-12)

    def test_defect_21_a_bias_looks_at_each_new_error(self, be64, rng):
        layer = ready(Bias(Constant(0.0)), (3, 2, 2))
        for _ in range(2):
            e = rng.normal(size=(12, N))
            layer.bprop(tensor(be64, e))
            np.testing.assert_allclose(layer.dW.get(), e.reshape(3, -1).sum(axis=1, keepdims=True), rtol=1e-12)


class TestElementwise:
    """Activation, data transform and dropout."""

    def test_activation_works_in_place_and_multiplies_the_error(self, be64, rng):
        layer = ready(Activation(Logistic()), 5)
        x, e = rng.normal(size=(5, N)), rng.normal(size=(5, N))
        inputs = tensor(be64, x)
        assert layer.fprop(inputs) is inputs
        y = 1 / (1 + np.exp(-x))
        np.testing.assert_allclose(inputs.get(), y, rtol=1e-12)
        np.testing.assert_allclose(layer.bprop(tensor(be64, e)).get(), y * (1 - y) * e, rtol=1e-12)
        layer.deltas.fill(1.0)
        got = layer.bprop(tensor(be64, e), alpha=2.0, beta=0.5).get()
        np.testing.assert_allclose(got, 2 * y * (1 - y) * e + 0.5, rtol=1e-12)

    @pytest.mark.parametrize("layer", [Activation, DataTransform])
    @pytest.mark.parametrize("transform", [Tanh, "tanh", None])
    def test_a_transform_must_be_an_object(self, be, layer, transform):
        with pytest.raises(DTypeError, match=rf"^{layer.__name__}: .*Rectlin\(\)"):
            layer(transform)

    def test_data_transform_ends_the_backward_pass(self, be):
        layer = ready(DataTransform(Normalizer(divisor=2.0)), 5)
        inputs = be.ones((5, N))
        assert layer.fprop(inputs) is inputs
        np.testing.assert_array_equal(inputs.get(), np.full((5, N), 0.5))
        assert layer.bprop(inputs) is None

    @pytest.mark.parametrize("caffe", [False, True])
    def test_dropout(self, be, rng, caffe):
        if caffe:
            be.set_caffe_compat()
        layer = ready(Dropout(keep=0.5), 50)
        x, e = rng.normal(size=(50, N)), rng.normal(size=(50, N))
        inputs, error = tensor(be, x), tensor(be, e)
        state = be.rng_get_state()
        assert layer.fprop(inputs) is inputs
        mask = layer.keep_mask.get()
        be.rng_set_state(state)
        again = be.empty(mask.shape)
        be.make_binary_mask(again, 0.5)
        np.testing.assert_array_equal(mask, again.get())
        assert 0.3 < mask.mean() < 0.7
        scale = 2.0 if caffe else 1.0
        np.testing.assert_allclose(inputs.get(), mask * x * scale, rtol=1e-6)
        assert layer.bprop(error, alpha=3.0, beta=0.5) is error
        np.testing.assert_allclose(error.get(), mask * e * 3 * scale + 0.5 * e, rtol=1e-5, atol=1e-6)
        inputs[:] = x
        np.testing.assert_allclose(layer.fprop(inputs, inference=True).get(), x * (1 if caffe else 0.5), rtol=1e-6)

    @pytest.mark.parametrize("keep", [-0.1, 1.5])
    def test_dropout_needs_a_probability(self, be, keep):
        with pytest.raises(ArgumentError, match="probability"):
            Dropout(keep)

    def test_dropout_may_drop_everything_but_not_where_it_divides_by_keep(self, be):
        layer = ready(Dropout(keep=0), 5)
        assert not layer.fprop(be.ones((5, N))).get().any()
        assert not layer.fprop(be.ones((5, N)), inference=True).get().any()
        be.set_caffe_compat()
        with pytest.raises(ArgumentError, match="Caffe"):
            Dropout(keep=0)

    def test_dropout_can_be_allocated_again_for_another_batch_size(self, be):
        layer = ready(Dropout(keep=0.5), 5)
        be.bsz = 2 * N
        layer.outputs = None
        ready(layer, 5)
        assert layer.fprop(be.ones((5, 2 * N))).shape == layer.keep_mask.shape == (5, 2 * N)

    @pytest.mark.parametrize("transform", [Tanh(), Logistic(shortcut=True), Softmax()])
    def test_an_activation_may_be_told_whether_errors_contain_its_derivative(self, be64, rng, transform):
        layer = ready(Activation(transform), 5)
        y, e = layer.fprop(tensor(be64, rng.normal(size=(5, N)))), tensor(be64, rng.normal(size=(5, N)))
        layer.left_to_cost = False
        wanted = be64.empty((5, N))
        wanted[:] = transform.through(y, e)
        np.testing.assert_allclose(layer.bprop(e).get(), wanted.get(), rtol=1e-12)
        layer.left_to_cost = True
        np.testing.assert_allclose(layer.bprop(e).get(), e.get(), rtol=1e-12)


class TestStructure:
    """Reshape, SkipNode, BranchNode."""

    @pytest.mark.parametrize(
        ("in_shape", "reshape", "expected"),
        [(12, (3, 2, 2), (3, 2, 2)), ((3, 2, 2), -1, (12,)), ((3, 4), (0, -1), (3, 4)), ((3, 2, 2), (0, -1), (3, 4)),
         ((3, 4), (4, 3), (4, 3)), ((3, 4), 12, (12,)), (12, [4, -1], (4, 3))],
    )  # fmt: skip
    def test_reshape(self, be, rng, in_shape, reshape, expected):
        layer = ready(Reshape(reshape), in_shape)
        assert layer.out_shape == expected
        x = rng.normal(size=layer.in_shape_t)
        y = layer.fprop(tensor(be, x))
        assert y.shape == layer.out_shape_t
        np.testing.assert_array_equal(y.get(), x.astype(np.float32).reshape(layer.out_shape_t))
        assert layer.bprop(y).shape == layer.in_shape_t

    def test_reshape_copies_what_is_not_contiguous(self, be, rng):
        layer = ready(Reshape((3, 2, 2)), (3, 4))
        x = tensor(be, rng.normal(size=(3, 2 * 4 * N)))[:, : 4 * N]
        assert not x.is_contiguous
        np.testing.assert_array_equal(layer.fprop(x).get(), x.get().reshape(12, N))

    def test_defect_21_reshape_follows_the_buffers(self, be):
        layer = ready(Reshape((3, 2, 2)), 12)
        for value in (1.0, 2.0):
            assert layer.fprop(tensor(be, np.full((12, N), value))).get().max() == value
            error = tensor(be, np.full((12, N), -value))
            assert layer.bprop(error).get().max() == -value

    @pytest.mark.parametrize("reshape", [(5, 2), (0, 5), (7, -1), (0, -1, 5)])
    def test_reshape_to_another_size(self, be, reshape):
        with pytest.raises(ShapeError, match="elements"):
            Reshape(reshape).configure((3, 4))

    def test_reshape_infers_one_size_only(self, be):
        with pytest.raises(ArgumentError, match="-1"):
            Reshape((-1, -1))

    def test_skip_node_adds(self, be, rng):
        layer = ready(SkipNode(), 5)
        x = rng.normal(size=(5, N)).astype(np.float32)
        layer.outputs.fill(1.0)
        np.testing.assert_allclose(layer.fprop(be.array(x), beta=2.0).get(), x + 2, rtol=1e-5)
        np.testing.assert_allclose(layer.fprop(be.array(x)).get(), x)
        layer.deltas.fill(1.0)
        np.testing.assert_allclose(layer.bprop(be.array(x), alpha=3.0, beta=2.0).get(), 3 * x + 2, rtol=1e-5, atol=1e-6)

    def test_branch_nodes_of_one_name_are_one_object(self, be):
        node = BranchNode("junction")
        assert BranchNode("junction") is node and BranchNode("other") is not node
        assert BranchNode() is BranchNode(None)
        node.configure((3, 2))
        assert BranchNode("junction").configure(None).out_shape == (3, 2)
        x = be.ones((3, 2 * N))
        assert node.fprop(x) is x and node.fprop(None) is x
        assert node.bprop(x) is x

    def test_a_branch_before_its_trunk(self, be):
        with pytest.raises(ArgumentError, match="trunk"):
            BranchNode("never configured").configure(None)
