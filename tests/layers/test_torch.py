"""Layers against PyTorch, where it is installed: outputs, errors of the input, gradients of the parameters."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.initializers import Gaussian, Uniform
from neonlike.layers import (
    LRN,
    Affine,
    Conv,
    Deconv,
    GeneralizedCost,
    GroupNorm,
    LayerNorm,
    LookupTable,
    MultiHeadAttention,
    Pooling,
    Sequential,
)
from neonlike.transforms import GELU, CrossEntropyMulti, Rectlin, SiLU, Softmax, SumSquared, Tanh
from tests.layers.layering import ready, tensor

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.peers("torch")
N = 4


def as_torch(values):
    return torch.tensor(np.ascontiguousarray(values), dtype=torch.float64)


def filters(W, shape):
    """Ours, (C*R*S, K), as PyTorch's (K, C, R, S)."""
    return as_torch(W.reshape(shape).transpose(3, 0, 1, 2))


def compare(net, reference, in_shape, rng, parameters):
    """``parameters``: pairs of our gradient, and the function that gives PyTorch's in its layout."""
    be = net.be
    x = rng.normal(size=(*in_shape, N))
    ours = net.fprop(tensor(be, x.reshape(-1, N)))
    theirs_in = as_torch(np.moveaxis(x, -1, 0)).requires_grad_()
    theirs = reference(theirs_in)
    theirs_rows = np.moveaxis(theirs.detach().numpy(), 0, -1).reshape(-1, N)
    np.testing.assert_allclose(ours.get(), theirs_rows, rtol=1e-8, atol=1e-10)
    e = rng.normal(size=ours.shape)
    deltas = net.bprop(tensor(be, e)).get()
    theirs.backward(as_torch(np.moveaxis(e.reshape(*theirs.shape[1:], N), -1, 0)))
    wanted = np.moveaxis(theirs_in.grad.numpy(), 0, -1).reshape(-1, N)
    np.testing.assert_allclose(deltas, wanted, rtol=1e-7, atol=1e-9)
    for gradient, give in parameters:
        np.testing.assert_allclose(gradient.get(), give().numpy().reshape(gradient.shape), rtol=1e-7, atol=1e-9)


@pytest.fixture
def be(be64):
    """Four samples a batch, in float64."""
    be64.bsz = N
    return be64


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_bias_rectifier(be, rng, groups):
    layers = Conv((3, 2, 6), Gaussian(), 2, 1, 1, bias=Uniform(-1, 1), activation=Rectlin(0.1), groups=groups)
    net = ready(Sequential(layers), (4, 7, 6))
    conv = net.layers[0]
    theirs = nn.Conv2d(4, 6, (3, 2), 2, 1, groups=groups, dtype=torch.float64)
    theirs.weight.data = filters(conv.W.get(), (4 // groups, 3, 2, 6))
    theirs.bias.data = as_torch(conv.weight_bias.get().ravel())
    pairs = [(conv.dW, lambda: theirs.weight.grad.permute(1, 2, 3, 0)), (conv.grad_bias, lambda: theirs.bias.grad)]
    compare(net, lambda x: nn.functional.leaky_relu(theirs(x), 0.1), (4, 7, 6), rng, pairs)


def test_convolution_batch_normalization_rectifier_pooling(be, rng):
    net = Sequential([*Conv((3, 3, 5), Gaussian(), padding=1, batch_norm=True, activation=Rectlin()), Pooling(2)])
    ready(net, (3, 6, 6))
    conv, normal = net.layers[:2]
    theirs = nn.Conv2d(3, 5, 3, padding=1, bias=False, dtype=torch.float64)
    theirs.weight.data = filters(conv.W.get(), (3, 3, 3, 5))
    norm = nn.BatchNorm2d(5, eps=1e-3, momentum=0.1, dtype=torch.float64)
    stack = nn.Sequential(theirs, norm, nn.ReLU(), nn.MaxPool2d(2))
    pairs = [
        (conv.dW, lambda: theirs.weight.grad.permute(1, 2, 3, 0)),
        (normal.grad_gamma, lambda: norm.weight.grad),
        (normal.grad_beta, lambda: norm.bias.grad),
    ]
    compare(net, stack, (3, 6, 6), rng, pairs)
    np.testing.assert_allclose(normal.gmean.get().ravel(), norm.running_mean.numpy(), rtol=1e-9)


def test_transposed_convolution(be, rng):
    net = ready(Sequential(Deconv((3, 3, 5), Gaussian(), 2, 1, bias=Uniform(-1, 1), activation=Tanh())), (4, 3, 5))
    deconv, bias = net.layers[:2]
    theirs = nn.ConvTranspose2d(4, 5, 3, 2, 1, dtype=torch.float64)
    theirs.weight.data = filters(deconv.W.get(), (5, 3, 3, 4))
    theirs.bias.data = as_torch(bias.W.get().ravel())
    pairs = [(deconv.dW, lambda: theirs.weight.grad.permute(1, 2, 3, 0)), (bias.dW, lambda: theirs.bias.grad)]
    compare(net, lambda x: torch.tanh(theirs(x)), (4, 3, 5), rng, pairs)


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (lambda: LRN(5, ascale=1e-1, bpower=0.75), lambda: nn.LocalResponseNorm(5, 1e-1, 0.75, 1.0)),
        (lambda: GroupNorm(3), lambda: nn.GroupNorm(3, 6, dtype=torch.float64)),
        (lambda: LayerNorm(), lambda: nn.LayerNorm([6, 3, 2], dtype=torch.float64)),
        (lambda: Pooling(2, "avg", strides=1), lambda: nn.AvgPool2d(2, 1)),
        (lambda: Pooling("all", "max"), lambda: nn.MaxPool2d((3, 2))),
    ],
)
def test_layers_without_weights(be, rng, make, reference):
    compare(ready(make(), (6, 3, 2)), reference(), (6, 3, 2), rng, [])


@pytest.mark.parametrize(("transform", "function"), [(GELU(), nn.functional.gelu), (SiLU(), nn.functional.silu)])
def test_affine_layers(be, rng, transform, function):
    net = ready(Sequential(Affine(5, Gaussian(), bias=Uniform(-1, 1), activation=transform)), 6)
    linear, bias = net.layers[:2]
    theirs = nn.Linear(6, 5, dtype=torch.float64)
    theirs.weight.data, theirs.bias.data = as_torch(linear.W.get()), as_torch(bias.W.get().ravel())
    pairs = [(linear.dW, lambda: theirs.weight.grad), (bias.dW, lambda: theirs.bias.grad)]
    compare(net, lambda x: function(theirs(x)), (6,), rng, pairs)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(be, rng, causal):
    layer = ready(MultiHeadAttention(2, Gaussian(), causal=causal, bias=Uniform(-1, 1)), (6, 5))
    theirs = nn.MultiheadAttention(6, 2, dtype=torch.float64)
    theirs.in_proj_weight.data = as_torch(layer.W.get())
    theirs.in_proj_bias.data = as_torch(layer.bias_in.get().ravel())
    theirs.out_proj.weight.data = as_torch(layer.W_out.get())
    theirs.out_proj.bias.data = as_torch(layer.bias_out.get().ravel())
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if causal else None
    x = rng.normal(size=(6, 5, N))
    steps_first = as_torch(x.transpose(1, 2, 0)).requires_grad_()
    wanted, _ = theirs(steps_first, steps_first, steps_first, attn_mask=mask)
    y = layer.fprop(tensor(be, x.reshape(6, -1)))
    np.testing.assert_allclose(y.get().reshape(x.shape), wanted.detach().numpy().transpose(2, 0, 1), rtol=1e-8)
    e = rng.normal(size=x.shape)
    wanted.backward(as_torch(e.transpose(1, 2, 0)))
    deltas = layer.bprop(tensor(be, e.reshape(6, -1))).get()
    np.testing.assert_allclose(deltas.reshape(x.shape), steps_first.grad.numpy().transpose(2, 0, 1), rtol=1e-7)
    for gradient, theirs_grad in (
        (layer.dW, theirs.in_proj_weight), (layer.grad_bias_in, theirs.in_proj_bias),
        (layer.dW_out, theirs.out_proj.weight), (layer.grad_bias_out, theirs.out_proj.bias),
    ):  # fmt: skip
        found = theirs_grad.grad.numpy().reshape(gradient.shape)
        np.testing.assert_allclose(gradient.get(), found, rtol=1e-7, atol=1e-10)


def test_embedding(be, rng):
    layer = ready(LookupTable(7, 5, Gaussian(), pad_idx=2), (3,))
    theirs = nn.Embedding(7, 5, padding_idx=2, dtype=torch.float64)
    theirs.weight.data = as_torch(layer.W.get())
    words = rng.integers(7, size=(3, N))
    words[0, :2] = words[1, 1] = 4  # a word that occurs again and again
    wanted = theirs(torch.tensor(words))
    y = layer.fprop(tensor(be, words))
    np.testing.assert_array_equal(y.get().reshape(5, 3, N), wanted.detach().numpy().transpose(2, 0, 1))
    e = rng.normal(size=(5, 3, N))
    layer.bprop(tensor(be, e.reshape(5, -1)))
    wanted.backward(as_torch(e.transpose(1, 2, 0)))
    np.testing.assert_allclose(layer.dW.get(), theirs.weight.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_softmax_and_cross_entropy(be, rng):
    """The cost's error goes through Softmax unchanged, as neon has it: together they are PyTorch's cross entropy."""
    x, classes = rng.normal(size=(6, N)), rng.integers(6, size=N)
    cost = GeneralizedCost(CrossEntropyMulti())
    net = ready(Sequential(Affine(6, np.eye(6), activation=Softmax())), 6)
    cost.initialize(net)
    targets = tensor(be, np.eye(6)[:, classes])
    y = net.fprop(tensor(be, x))
    theirs_in = as_torch(x.T).requires_grad_()
    wanted = nn.functional.cross_entropy(theirs_in, torch.tensor(classes))
    wanted.backward()
    np.testing.assert_allclose(float(cost.get_cost(y, targets)), wanted.item(), rtol=1e-9)
    deltas = net.bprop(cost.get_errors(y, targets)).get()
    np.testing.assert_allclose(deltas / N, theirs_in.grad.numpy().T, rtol=1e-8, atol=1e-12)


def test_sum_of_squares(be, rng):
    x, targets = rng.normal(size=(2, 6, N))
    cost = GeneralizedCost(SumSquared())
    net = ready(Sequential(Affine(6, np.eye(6))), 6)
    cost.initialize(net)
    y = net.fprop(tensor(be, x))
    theirs_in = as_torch(x).requires_grad_()
    wanted = nn.functional.mse_loss(theirs_in, as_torch(targets), reduction="sum") / 2 / N
    wanted.backward()
    np.testing.assert_allclose(float(cost.get_cost(y, tensor(be, targets))), wanted.item(), rtol=1e-9)
    deltas = net.bprop(cost.get_errors(y, tensor(be, targets))).get()
    np.testing.assert_allclose(deltas / N, theirs_in.grad.numpy(), rtol=1e-8, atol=1e-12)
