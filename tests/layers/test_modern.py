"""Layers that neon did not have: layer and group normalization, attention, depthwise convolution, residual blocks."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Gaussian, GlorotUniform, Uniform
from neonlike.layers import (
    Activation,
    Affine,
    Conv,
    DepthwiseConvolution,
    DepthwiseSeparableConv,
    Embedding,
    GroupNorm,
    LayerNorm,
    MultiHeadAttention,
    Residual,
    Sequential,
)
from neonlike.layers.norm import samplenorm
from neonlike.models import Model
from neonlike.transforms import GELU, Rectlin, SiLU, Swish, Tanh
from tests.layers.layering import check_gradients, gradient_pairs, ready, shape_of, tensor
from tests.support.float64 import conv_loops

N = 3
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


NORMS = [
    (LayerNorm, (5,), lambda x: x.reshape(1, 5, 1, -1)),
    (LayerNorm, (4, 3), lambda x: x.reshape(1, 4, 1, -1)),
    (LayerNorm, (2, 2, 3), lambda x: x.reshape(1, 12, 1, -1)),
    (lambda: GroupNorm(2), (4, 2, 3), lambda x: x.reshape(2, 2, 6, -1)),
    (lambda: GroupNorm(3), (6, 2), lambda x: x.reshape(3, 2, 2, -1)),
    (lambda: GroupNorm(2), 4, lambda x: x.reshape(2, 2, 1, -1)),
]


@pytest.mark.parametrize(("make", "in_shape", "view"), NORMS)
class TestSampleNorms:
    """Layer and group normalization."""

    def test_forward(self, be64, rng, make, in_shape, view):
        layer = ready(make(), in_shape)
        layer.gamma.set(rng.normal(size=layer.gamma.shape))
        layer.beta.set(rng.normal(size=layer.gamma.shape))
        x = 3 + rng.normal(size=shape_of(layer, in_shape))
        groups, maps, _, _ = view(x).shape
        normal = view(x) - view(x).mean(axis=(1, 2), keepdims=True)
        normal /= np.sqrt(view(x).var(axis=(1, 2), keepdims=True) + 1e-5)
        gamma, beta = (p.get().reshape(groups, maps, 1, 1) for p in (layer.gamma, layer.beta))
        wanted = (gamma * normal + beta).reshape(x.shape)
        for inference in (False, True):
            found = layer.fprop(tensor(be64, x), inference=inference).get()
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(layer.fprop(tensor(be64, x), beta=1.0).get(), 2 * wanted, rtol=1e-9, atol=1e-11)

    def test_gradients(self, be64, rng, make, in_shape, view):
        layer = ready(make(), in_shape)
        layer.gamma.set(rng.normal(size=layer.gamma.shape))
        x = rng.normal(size=shape_of(layer, in_shape))
        check_gradients(layer, x, rng, rtol=1e-5)
        error = tensor(be64, rng.normal(size=x.shape))
        layer.fprop(tensor(be64, x))
        plain = layer.bprop(error).get().copy()
        layer.deltas.fill(1.0)
        blended = layer.bprop(error, alpha=2.0, beta=3.0).get()
        np.testing.assert_allclose(blended, 2 * plain + 3, rtol=1e-9, atol=1e-11)
        layer.fprop(tensor(be64, 2 * x))
        layer.fprop(tensor(be64, x), inference=True)
        np.testing.assert_allclose(layer.bprop(error).get(), plain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("first", [False, True], ids=["passes an error on", "first layer"])
def test_large_and_small_samples_are_normalized_alike(be64, rng, monkeypatch, first):
    """The statistics of large inputs are not computed by kernels of their own."""
    layer = ready(LayerNorm(), (4, 3))
    layer.gamma.set(rng.normal(size=layer.gamma.shape))
    x, error = (tensor(be64, rng.normal(size=shape_of(layer, (4, 3)))) for _ in range(2))
    if first:
        layer.deltas = None
    found = []
    for least in (1 << 24, 0):
        monkeypatch.setattr(samplenorm, "LARGE", least)
        results = [layer.fprop(x, inference=True), layer.bprop(error), *layer.grad_params]
        found.append([None if result is None else result.get().copy() for result in results])
    assert (found[0][1] is None) == first
    for small, large in zip(*found):
        if small is not None:
            np.testing.assert_allclose(small, large, rtol=1e-9, atol=1e-11)


def test_norms_of_fewer_samples_saving_and_errors(be, rng):
    layer = ready(GroupNorm(2), (4, 2, 2), accumulate_updates=True)
    x = rng.normal(size=(16, N))
    whole = layer.fprop(tensor(be, x)).get().copy()
    part = layer.fprop(tensor(be, x[:, :1]), inference=True).get()
    np.testing.assert_allclose(part, whole[:, :1], rtol=1e-5, atol=1e-6)
    layer.gamma.fill(2.0)
    other = ready(GroupNorm(2), (4, 2, 2))
    other.load_weights(layer.get_description(get_weights=True))
    np.testing.assert_array_equal(other.gamma.get(), np.full((4, 1), 2.0))
    assert layer.get_description()["config"]["groups"] == 2
    with pytest.raises(ShapeError, match=r"3 groups.*4 maps"):
        GroupNorm(3).configure((4, 2, 2))
    with pytest.raises(ArgumentError, match="eps"):
        LayerNorm(eps=0)
    with pytest.raises(ArgumentError, match="fprop first"):
        ready(LayerNorm(), 3).bprop(be.ones((3, N)))


class TestAttention:
    """Multi-head self-attention against plain loops over samples and heads."""

    def formula(self, layer, x, heads, causal):
        """Outputs for x (features, steps, N), by the definition."""
        features, steps, samples = x.shape
        size = features // heads
        W, W_out, shift, shift_out = (parameter.get() for parameter, _ in gradient_pairs(layer))
        y = np.empty((len(W_out), steps, samples))
        for n in range(samples):
            q, k, v = np.split(W @ x[:, :, n] + shift, 3)
            rows = []
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                scores = q[part].T @ k[part] / np.sqrt(size)
                if causal:
                    scores[np.triu_indices(steps, 1)] = -np.inf
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                rows.append(v[part] @ (weights / weights.sum(axis=1, keepdims=True)).T)
            y[:, :, n] = W_out @ np.concatenate(rows) + shift_out
        return y

    @pytest.mark.parametrize(("heads", "nout", "causal"), [(2, None, False), (3, 4, True)])
    def test_forward_and_backward(self, be64, rng, heads, nout, causal):
        layer = ready(MultiHeadAttention(heads, Gaussian(), nout, causal, bias=Uniform(-1, 1)), (6, 5))
        assert layer.out_shape == (nout or 6, 5)
        x = rng.normal(size=(6, 5, N))
        y = layer.fprop(tensor(be64, x.reshape(6, -1))).get().copy()
        wanted = self.formula(layer, x, heads, causal)
        np.testing.assert_allclose(y, wanted.reshape(y.shape), rtol=1e-9, atol=1e-11)
        check_gradients(layer, x.reshape(6, -1), rng, rtol=1e-5)
        layer.fprop(tensor(be64, x.reshape(6, -1)))
        error = tensor(be64, rng.normal(size=y.shape))
        plain = layer.bprop(error).get().copy()
        layer.deltas.fill(1.0)
        blended = layer.bprop(error, alpha=2.0, beta=3.0).get()
        np.testing.assert_allclose(blended, 2 * plain + 3, rtol=1e-9, atol=1e-11)
        blended = layer.fprop(tensor(be64, x.reshape(6, -1)), beta=1.0).get()
        np.testing.assert_allclose(blended, 2 * y, rtol=1e-9, atol=1e-11)

    def test_fewer_samples_in_inference(self, be, rng):
        layer = ready(MultiHeadAttention(2, GlorotUniform()), (4, 3))
        x = rng.normal(size=(4, 3, N))
        whole = layer.fprop(tensor(be, x.reshape(4, -1))).get().reshape(4, 3, N).copy()
        part = layer.fprop(tensor(be, x[:, :, :2].reshape(4, -1)), inference=True).get()
        np.testing.assert_allclose(part.reshape(4, 3, 2), whole[:, :, :2], rtol=1e-4, atol=1e-6)

    def test_gradients_add_up_and_parameters_are_saved(self, be64, rng):
        layer = ready(MultiHeadAttention(2, GlorotUniform()), (4, 3), accumulate_updates=True)
        x, e = tensor(be64, rng.normal(size=(4, 3 * N))), tensor(be64, rng.normal(size=(4, 3 * N)))
        y = layer.fprop(x).get().copy()
        layer.bprop(e)
        once = [grad.get().copy() for _, grad in gradient_pairs(layer)]
        layer.set_acc_on(True)
        layer.bprop(e)
        for grad, (_, pair) in zip(once, gradient_pairs(layer), strict=True):
            np.testing.assert_allclose(pair.get(), 2 * grad, rtol=1e-10, atol=1e-12)
        other = ready(MultiHeadAttention(2, GlorotUniform()), (4, 3))
        other.load_weights(layer.get_description(get_weights=True))
        np.testing.assert_array_equal(other.fprop(x).get(), y)

    def test_errors(self, be):
        with pytest.raises(ShapeError, match=r"4 heads.*6 features"):
            MultiHeadAttention(4, Gaussian()).configure((6, 5))
        with pytest.raises(DTypeError, match="heads"):
            MultiHeadAttention(2.0, Gaussian())
        with pytest.raises(ArgumentError, match="fprop first"):
            ready(MultiHeadAttention(2, Gaussian()), (4, 3)).bprop(be.ones((4, 3 * N)))


def test_depthwise_convolution(be64, rng):
    layer = ready(DepthwiseConvolution((3, 2, 2), strides=2, padding=1, init=Gaussian()), (3, 4, 5))
    s = conv_loops.Sizes(N, 3, 6, (1, 4, 5), (1, 3, 2), (0, 1, 1), (1, 2, 2), groups=3)
    assert layer.out_shape == (6, *s.out[1:]) and layer.W.shape == (6, 6)
    x = rng.normal(size=s.shape_i)
    wanted = conv_loops.forward(s, x, layer.W.get().reshape(s.shape_f))
    found = layer.fprop(tensor(be64, x.reshape(-1, N))).get()
    np.testing.assert_allclose(found, wanted.reshape(-1, N), rtol=1e-10, atol=1e-12)
    assert "groups" not in layer.get_description()["config"]


def test_depthwise_separable_convolution(be64, rng):
    chain = DepthwiseSeparableConv((3, 3, 4), Gaussian(), padding=1, batch_norm=True, activation=Rectlin(), name="s")
    assert [layer.name for layer in chain] == [
        "s_depthwise", "s_depthwise_bnorm", "s_depthwise_Rectlin", "s", "s_bnorm", "s_Rectlin",
    ]  # fmt: skip
    plain = DepthwiseSeparableConv((2, 2, 2), Gaussian(), bias=Uniform(), activation=Tanh())
    net = ready(Sequential([chain, plain]), (2, 4, 3))
    assert net.out_shape == (2, 3, 2)
    check_gradients(net, rng.normal(size=(24, N)), rng, rtol=1e-5)


@pytest.mark.parametrize("shortcut", [False, True])
def test_residual_blocks(be64, rng, shortcut):
    block = [
        Conv((3, 3, 4), Gaussian(), strides=1 + shortcut, padding=1, batch_norm=True, activation=Rectlin()),
        Conv((3, 3, 4), Gaussian(), padding=1, batch_norm=True),
    ]
    beside = Conv((1, 1, 4), Gaussian(), strides=2) if shortcut else None
    net = ready(
        Sequential([Conv((1, 1, 4), Gaussian()), Residual(block, beside, Tanh()), Affine(2, Gaussian())]), (3, 4, 4)
    )
    assert [type(layer).__name__ for layer in net.layers[1:3]] == ["MergeSum", "Activation"]
    check_gradients(net, rng.normal(size=(48, N)), rng, rtol=1e-5)
    y = net.layers[1].outputs
    assert y.shape == ((16, N) if shortcut else (64, N))


def test_residual_errors(be):
    with pytest.raises(ArgumentError, match="list of at least one layer"):
        Residual([])
    with pytest.raises(DTypeError, match="shortcut"):
        Residual([Affine(2, Gaussian())], shortcut="skip")


@pytest.mark.parametrize("transform", [GELU(), SiLU(), Swish(1.7)], ids=lambda transform: transform.classnm)
def test_smooth_activations_have_a_buffer_of_their_own(be64, rng, transform):
    net = ready(Sequential([LayerNorm(), Activation(transform)]), (4,))
    assert net.layers[0].folded == () and net.layers[1].outputs is not net.layers[0].outputs
    check_gradients(net, rng.normal(size=(4, N)), rng, rtol=1e-5)


def test_a_transformer_block(be64, rng):
    """Attention and a feed-forward part, each normalized before and added to its input."""
    block = [
        Residual([LayerNorm(), MultiHeadAttention(2, Gaussian(), causal=True)]),
        Residual([LayerNorm(), Affine(8, Gaussian(), bias=Uniform(), activation=GELU()), Affine(4, Gaussian())]),
    ]
    net = ready(Sequential([Affine(4, Gaussian()), *block]), (4, 3))
    check_gradients(net, rng.normal(size=(4, 3 * N)), rng, rtol=1e-5)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        (
            lambda: [
                Embedding(5, 4, padding_idx=0),
                Residual([LayerNorm(), MultiHeadAttention(2, Gaussian(), causal=True)]),
                Affine(2, Gaussian(), activation=SiLU()),
            ],
            (3,),
        ),
        (
            lambda: [
                DepthwiseSeparableConv((2, 2, 4), Gaussian(), batch_norm=True, activation=Rectlin()),
                Residual([GroupNorm(2), Conv((1, 1, 4), Gaussian(), groups=2)], activation=GELU()),
            ],
            (2, 3, 3),
        ),
    ],
)
def test_networks_are_saved_and_loaded(be, rng, tmp_path, layers, shape):
    model = Model(layers())
    model.initialize(shape)
    x = tensor(be, rng.integers(5, size=(int(np.prod(shape)), N)))
    wanted = model.fprop(x, inference=True).get().copy()
    model.save_params(tmp_path / "network.p")
    again = Model(tmp_path / "network.p")
    again.initialize(shape)
    np.testing.assert_array_equal(again.fprop(x, inference=True).get(), wanted)
