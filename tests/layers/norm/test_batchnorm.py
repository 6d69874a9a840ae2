"""Batch normalization layers: values against float64, statistics, rectifiers taken along, saving, errors."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, NeonlikeError, ShapeError
from neonlike.initializers import Gaussian
from neonlike.layers import Activation, Affine, BatchNorm, Conv, Linear, Sequential, ShiftBatchNorm
from neonlike.layers.container import DeltasTree
from neonlike.transforms import Rectlin, Tanh
from tests.layers.layering import check_gradients, gradient_pairs, ready, shape_of, tensor

N = 4
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


def formulas(layer, x, e):
    """Outputs, deltas and gradients of gamma and beta in training, by the definition."""
    rows = x.reshape(layer.nfm, -1)
    mean, variance = rows.mean(axis=1, keepdims=True), rows.var(axis=1, keepdims=True)
    deviation = np.sqrt(variance + layer.eps)
    normal, error = (rows - mean) / deviation, e.reshape(rows.shape)
    gamma, beta = layer.gamma.get(), layer.beta.get()
    dgamma, dbeta = (normal * error).sum(axis=1, keepdims=True), error.sum(axis=1, keepdims=True)
    deltas = gamma / deviation * (error - (normal * dgamma + dbeta) / rows.shape[1])
    return (gamma * normal + beta).reshape(x.shape), deltas.reshape(x.shape), dgamma, dbeta, mean, variance


@pytest.mark.parametrize(("in_shape", "nfm"), [(5, 5), ((5,), 5), ((3, 2), 3), ((3, 2, 2), 3), ((2, 1, 2, 3), 2)])
def test_forward_and_backward(be64, rng, in_shape, nfm):
    layer = ready(BatchNorm(rho=0.75), in_shape)
    assert (layer.nfm, layer.out_shape) == (nfm, layer.in_shape)
    assert layer.y.shape == (nfm, layer.outputs.size // nfm)
    assert layer.beta.shape == layer.gmean.shape == layer.xvar.shape == (nfm, 1)
    shape = shape_of(layer, in_shape)
    x, e = 2 + rng.normal(size=shape), rng.normal(size=shape)
    layer.gamma.set(rng.normal(size=(nfm, 1)))
    layer.beta.set(rng.normal(size=(nfm, 1)))
    y, deltas, dgamma, dbeta, mean, variance = formulas(layer, x, e)
    np.testing.assert_allclose(layer.fprop(tensor(be64, x)).get(), y, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.bprop(tensor(be64, e)).get(), deltas, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.grad_gamma.get(), dgamma, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.grad_beta.get(), dbeta, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.gmean.get(), 0.25 * mean, rtol=1e-9)
    np.testing.assert_allclose(layer.gvar.get(), 0.25 * variance, rtol=1e-9)
    layer.deltas.fill(1.0)
    blended = layer.bprop(tensor(be64, e), alpha=2.0, beta=3.0).get()
    np.testing.assert_allclose(blended, 2 * deltas + 3, rtol=1e-9, atol=1e-11)


def test_the_contracts_numbers(be):
    """Section 22 of the facts about neon."""
    be.bsz = 2
    layer = ready(BatchNorm(rho=0.9, eps=1e-3), (2, 2))
    x, e = [[1, 2, 3, 4], [2, 2, 6, 6]], [[1, 0, 0, 0], [0, 1, 0, 2]]
    y = layer.fprop(tensor(be, x)).get()
    wanted = [[-1.341104, -0.447035, 0.447035, 1.341104], [-0.999875, -0.999875, 0.999875, 0.999875]]
    np.testing.assert_allclose(y, wanted, atol=1e-6)
    np.testing.assert_allclose(layer.gmean.get(), [[0.25], [0.4]], rtol=1e-6)
    np.testing.assert_allclose(layer.gvar.get(), [[0.125], [0.4]], rtol=1e-6)
    deltas = layer.bprop(tensor(be, e)).get()
    wanted = [[0.268542, -0.357521, -0.089514, 0.178492], [-0.25, 0.249938, -0.499906, 0.499969]]
    np.testing.assert_allclose(deltas, wanted, atol=1e-5)
    np.testing.assert_allclose(layer.grad_gamma.get(), [[-1.341104], [0.999875]], rtol=1e-5)
    np.testing.assert_allclose(layer.grad_beta.get(), [[1], [3]])
    y = layer.fprop(tensor(be, x), inference=True).get()
    np.testing.assert_allclose(y[0], [2.112886, 4.930067, 7.747247, 10.564428], rtol=1e-5)


def test_shift_batch_norm(be):
    be.bsz = 2
    layer = ready(ShiftBatchNorm(), (1, 2))
    assert isinstance(layer, BatchNorm) and (layer.rho, layer.eps, layer.binary) == (0.99, 1e-6, True)
    np.testing.assert_array_equal(layer.fprop(tensor(be, [[1, 2, 3, 6]])).get(), [[-1, -0.5, 0, 1.5]])
    assert ShiftBatchNorm(rho=0.5, name="s").get_description()["config"] == {"rho": 0.5, "name": "s"}


def test_shift_batch_norm_multiplies_by_powers_of_two_backward_too(be64, rng):
    layer = ready(ShiftBatchNorm(), 3)
    layer.gamma.set(rng.normal(size=(3, 1)))
    x, e = (rng.normal(size=(3, N)) for _ in range(2))
    layer.fprop(tensor(be64, x))
    deltas = layer.bprop(tensor(be64, e)).get()

    def power(values):
        return np.sign(values) * 2.0 ** np.rint(np.log2(np.abs(values)))

    mean, gamma = x.mean(axis=1, keepdims=True), power(layer.gamma.get())
    scale = power(1 / np.sqrt(((x - mean) * power(x - mean)).mean(axis=1, keepdims=True) + layer.eps))
    normal = (x - mean) * scale
    dgamma, dbeta = (normal * e).sum(axis=1, keepdims=True), e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer.grad_gamma.get(), dgamma, rtol=1e-9)
    wanted = gamma * scale * (e - (normal * power(dgamma) + dbeta) / N)
    np.testing.assert_allclose(deltas, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("columns", [1, 3])
def test_inference_of_fewer_samples(be, rng, columns):
    layer = ready(BatchNorm(), (3, 2, 2))
    x = rng.normal(size=(12, N))
    layer.fprop(tensor(be, x))
    whole = layer.fprop(tensor(be, x), inference=True).get().copy()
    moved = layer.gmean.get().copy()
    part = layer.fprop(tensor(be, x[:, :columns]), inference=True).get()
    np.testing.assert_allclose(part, whole[:, :columns], rtol=1e-6)
    np.testing.assert_array_equal(layer.gmean.get(), moved)
    with pytest.raises(ShapeError, match="inference"):
        layer.fprop(tensor(be, x[:, :columns]))


def test_a_first_layer_has_gradients_and_leaves_the_error_alone(be, rng):
    layer = BatchNorm().configure((3,))
    layer.allocate()
    layer.set_deltas(DeltasTree())
    e = rng.normal(size=(3, N)).astype(np.float32)
    error = tensor(be, e)
    layer.fprop(tensor(be, rng.normal(size=(3, N))))
    assert layer.bprop(error) is None
    np.testing.assert_array_equal(error.get(), e)
    np.testing.assert_allclose(layer.grad_beta.get(), e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_fprop_adds_to_what_the_outputs_hold(be64, rng):
    layer = ready(BatchNorm(), 3)
    x = tensor(be64, rng.normal(size=(3, N)))
    y = layer.fprop(x).get().copy()
    np.testing.assert_allclose(layer.fprop(x, beta=1.0).get(), 2 * y, rtol=1e-10)


def test_gradients_add_up(be64, rng):
    layer = ready(BatchNorm(), 3, accumulate_updates=True)
    x, e = tensor(be64, rng.normal(size=(3, N))), tensor(be64, rng.normal(size=(3, N)))
    layer.fprop(x)
    layer.bprop(e)
    once = layer.grad_beta.get().copy(), layer.grad_gamma.get().copy()
    layer.set_acc_on(True)
    layer.bprop(e)
    np.testing.assert_allclose(layer.grad_beta.get(), 2 * once[0], rtol=1e-10)
    np.testing.assert_allclose(layer.grad_gamma.get(), 2 * once[1], rtol=1e-10)


@pytest.mark.parametrize("folds", [True, False])
def test_compound_layers_normalize_and_use_the_sums_of_the_weight(be64, rng, folds):
    net = Sequential([Linear(4, Gaussian()), Affine(3, Gaussian(), batch_norm=True, activation=Tanh(), name="a")])
    net.folds = folds
    ready(net, 5)
    _, weight, normal, activation = net.layers
    assert [layer.name for layer in net.layers[1:]] == ["a", "a_bnorm", "a_Tanh"]
    assert weight.bsum and normal.parallelism == weight.parallelism
    check_gradients(net, rng.normal(size=(5, N)), rng)
    assert normal.xsum is weight.batch_sum and normal.compute_batch_sum == folds
    np.testing.assert_allclose(normal.xsum.get(), weight.outputs.get().sum(axis=1, keepdims=True), atol=1e-5)
    assert activation.outputs is normal.outputs


def test_get_params_is_for_beta_then_gamma(be):
    layer = ready(BatchNorm(), 3)
    (beta, _), (gamma, _) = layer.get_params()
    assert beta == (layer.beta, layer.grad_beta) and gamma == (layer.gamma, layer.grad_gamma)
    assert layer.params == [layer.beta, layer.gamma] and layer.inf_params == [layer.gmean, layer.gvar]
    assert layer.allparams == [*layer.params, *layer.inf_params] and layer.has_params
    np.testing.assert_array_equal(layer.gamma.get(), np.ones((3, 1)))
    np.testing.assert_array_equal(layer.gvar.get(), np.zeros((3, 1)))


@pytest.mark.parametrize("listed", [False, True])
def test_saving_and_loading_in_neons_old_form_too(be, rng, listed):
    layer = ready(BatchNorm(), 3)
    layer.fprop(tensor(be, rng.normal(size=(3, N))))
    layer.states[1].append(be.ones((3, 1)))
    saved = layer.get_description(get_weights=True)
    assert set(saved["params"]) == {"beta", "gamma", "gmean", "gvar"} and list(map(len, saved["states"])) == [0, 1]
    if listed:
        saved["params"] = [saved["params"][name] for name in ("beta", "gamma", "gmean", "gvar")]
    for other in (ready(BatchNorm(), 3), BatchNorm()):
        other.load_weights(saved)
        if other.outputs is None:  # loaded before it was set up
            ready(other, 3)
        np.testing.assert_array_equal(other.gmean.get(), layer.gmean.get())
        np.testing.assert_array_equal(other.gamma.get(), np.ones((3, 1)))
        assert other.gmean.dtype == np.float32 and list(map(len, other.states)) == [0, 1]


def test_errors(be):
    layer = ready(BatchNorm(), 3)
    with pytest.raises(ArgumentError, match="fprop first"):
        layer.bprop(be.ones((3, N)))
    with pytest.raises(ShapeError, match="3 features"):
        layer.fprop(be.ones((4, N)))
    with pytest.raises(ArgumentError, match="2 parameters"):
        layer.load_weights({"params": [np.ones((3, 1))] * 2})
    with pytest.raises(ShapeError, match="gamma"):
        layer.load_weights({"params": {"gamma": np.ones((4, 1))}})
    layer.outputs = None
    layer.configure(4)
    with pytest.raises(ShapeError, match=r"\(4, 1\)"):
        layer.allocate()
    with pytest.raises(NeonlikeError, match="one output"):
        BatchNorm().configure([(3,), (4,)])


class TestRectifiers:
    """Batch normalization followed by a rectifier is one call forward, one call backward."""

    def test_the_same_as_two_layers(self, be64, rng):
        x, e = rng.normal(size=(18, N)), rng.normal(size=(12, N))
        found = []
        for folds in (True, False):
            be64.rng_reset()
            net = Sequential([*Conv((2, 2, 3), Gaussian(), batch_norm=True, activation=Rectlin())])
            net.folds = folds
            ready(net, (2, 3, 3))
            normal, activation = net.layers[1:]
            assert normal.folded == ((activation,) if folds else ())
            y = net.fprop(tensor(be64, x)).get().copy()
            error = tensor(be64, e)
            deltas = net.bprop(error).get().copy()
            np.testing.assert_array_equal(error.get(), e)
            found.append([y, deltas, *(grad.get().copy() for _, grad in gradient_pairs(net))])
        assert (found[0][0] == 0).any() and (found[0][0] > 0).any()
        for folded, plain in zip(*found, strict=True):
            np.testing.assert_allclose(folded, plain, rtol=1e-10, atol=1e-12)

    def test_a_rectifier_called_with_another_tensor_does_its_own_work(self, be):
        net = ready(Sequential([BatchNorm(), Activation(Rectlin())]), 2)
        net.fprop(be.ones((2, N)))
        other = tensor(be, [[-1, 1, -2, 2]] * 2)
        np.testing.assert_array_equal(net.layers[1].fprop(other).get(), [[0, 1, 0, 2]] * 2)

    def test_called_on_its_own_backward_it_takes_the_error_as_it_is(self, be64, rng):
        net = ready(Sequential([BatchNorm(), Activation(Rectlin())]), 3)
        y = net.fprop(tensor(be64, rng.normal(size=(3, N)))).get()
        e = rng.normal(size=(3, N))
        net.layers[0].bprop(tensor(be64, e))
        np.testing.assert_allclose(net.layers[0].grad_beta.get(), e.sum(axis=1, keepdims=True))
        net.bprop(tensor(be64, e))
        np.testing.assert_allclose(net.layers[0].grad_beta.get(), (e * (y > 0)).sum(axis=1, keepdims=True))

    @pytest.mark.parametrize("transform", [Rectlin(slope=0.1), Tanh()])
    def test_others_are_left_alone(self, be64, rng, transform):
        net = ready(Sequential([BatchNorm(), Activation(transform)]), 3)
        assert net.layers[0].folded == ()
        check_gradients(net, rng.normal(size=(3, N)), rng)

    def test_classes_derived_by_users_do_their_own_work(self, be64, rng):
        class Doubled(BatchNorm):
            def bprop(self, error, alpha=1.0, beta=0.0):
                error[:] = 2 * error
                return super().bprop(error, alpha, beta)

        class Shifted(Activation):
            def fprop(self, inputs, inference=False):
                inputs[:] = inputs - 0.25
                return super().fprop(inputs, inference)

        x, e = rng.normal(size=(3, N)), rng.normal(size=(3, N))
        for layers in ([Doubled(), Activation(Rectlin())], [BatchNorm(), Shifted(Rectlin())]):
            net = ready(Sequential(layers), 3)
            assert net.layers[0].folded == ()
            y = net.fprop(tensor(be64, x)).get().copy()
            net.bprop(tensor(be64, e))
            factor = 2 if type(net.layers[0]) is Doubled else 1
            np.testing.assert_allclose(net.layers[0].grad_beta.get(), factor * (e * (y > 0)).sum(axis=1, keepdims=True))
