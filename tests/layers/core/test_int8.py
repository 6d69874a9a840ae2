"""Layers that multiply in int8, against the same layers with rounded weights and inputs in float32."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.int8.definition import quantized, quantized_rows
from neonlike.errors import ArgumentError, ArgumentTypeError, DTypeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, BinaryAffine, BranchNode, Conv, DepthwiseConv, Linear, Sequential
from neonlike.layers.core.int8 import Int8Layer
from neonlike.transforms import Logistic, Rectlin

pytestmark = [
    pytest.mark.engines("numpy", "c"), pytest.mark.samples(6), pytest.mark.cpu_only("GPUs do not multiply int8")
]  # fmt: skip
LARGEST = 127 / 64
"""A range whose steps are 1/64, so that rounded inputs times rounded weights are exact in float32."""


def chain(*layers: Any, shape: Any) -> Sequential:
    """A network that is ready for passes, with biases that differ."""
    found = Sequential(list(layers))
    found.configure(shape)
    found.allocate()
    found.allocate_deltas()
    return found


def rounded(layer: Any) -> None:
    """Replace the weights of a layer by what they are in int8."""
    W = layer.W.get()
    by_row = W if layer.classnm == "Linear" else W.T
    values, steps = quantized_rows(by_row)
    layer.W.set((values * steps) if by_row is W else (values * steps).T.copy())


NETWORKS = {
    "affine": (lambda: [Affine(9, Gaussian(scale=0.3), bias=Gaussian(scale=1.0), activation=Rectlin())], 21),
    "affine, leaky, steps": (
        lambda: [Affine(9, Gaussian(scale=0.3), bias=Gaussian(scale=1.0), activation=Rectlin(slope=0.25))], (7, 3),
    ),
    "affine, logistic": (lambda: [Affine(9, Gaussian(), bias=Gaussian(scale=1.0), activation=Logistic())], (7, 3)),
    "affine, rectified": (lambda: [Affine(5, Gaussian(), activation=Rectlin())], 14),
    "affine, normalized": (lambda: [Affine(5, Gaussian(), batch_norm=True, activation=Rectlin())], 14),
    "convolution": (
        lambda: [Conv((3, 3, 5), init=Gaussian(), padding=1, activation=Rectlin(slope=0.25))], (3, 5, 6),
    ),
    "convolution, bias": (
        lambda: [Conv((3, 2, 13), init=Gaussian(), strides=2, bias=Gaussian(), activation=Rectlin())], (5, 9, 8),
    ),
    "convolution, groups": (lambda: [Conv((2, 2, 6), init=Gaussian(), groups=2, batch_norm=True)], (4, 5, 5)),
    "volumes": (lambda: [Conv((2, 2, 2, 7), init=Gaussian(), activation=Logistic())], (2, 3, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("samples", [6, 4])
def test_passes_are_those_of_rounded_operands(be: Backend, rng: Any, name: str, samples: int) -> None:
    make, shape = NETWORKS[name]
    net = chain(*make(), shape=shape)
    first = next(net.layers_fprop())
    size = int(np.prod(shape)) if not (isinstance(shape, tuple) and len(shape) == 2) else shape[0]
    steps = shape[1] if size != int(np.prod(shape)) else 1
    x = rng.standard_normal((size, samples * steps)).astype(np.float32)
    rounded(first)
    wanted = net.fprop(be.array(quantized(x, 1 / 64) / np.float32(64)), inference=True).get().copy()
    before = net.fprop(be.array(x), inference=True).get().copy()
    first.quantize(LARGEST)
    for _ in range(6):  # repeated without Python in the end
        found = net.fprop(be.array(x), inference=True).get()
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    first.dequantize()
    assert np.array_equal(net.fprop(be.array(x), inference=True).get(), before)


def test_a_product_adds_its_bias_and_rectifies_while_it_is_quantized(be: Backend, rng: Any) -> None:
    """Layers are joined and parted as one is quantized, dequantized and loaded."""
    net = chain(Affine(5, Gaussian(), bias=Gaussian(), activation=Rectlin(0.5)), Affine(4, Gaussian()), shape=7)
    linear, bias, activation, last = net.layers
    parts, both = (linear.folded, bias.folded), ((bias, activation), ())
    assert parts == ((), (activation,)) and last.folded == ()
    plain = deepcopy(linear.get_description(get_weights=True))
    linear.quantize(3.0)
    assert (linear.folded, bias.folded) == both and activation.folded_into is bias.folded_into is linear
    quantized = deepcopy(linear.get_description(get_weights=True))
    linear.load_weights(plain)
    assert (linear.folded, bias.folded) == parts and bias.folded_into is None
    linear.load_weights(quantized)
    net.configure(7)
    assert (linear.folded, bias.folded) == both
    linear.dequantize()
    assert (linear.folded, bias.folded) == parts
    net.folds = False
    net.configure(7)
    linear.quantize(3.0)
    assert linear.folded == () == bias.folded


def test_parts_of_a_batch_and_passes_that_failed(be: Backend, rng: Any) -> None:
    """A bias is added once, whatever the pass before was."""
    net = chain(Affine(5, Gaussian(), bias=Gaussian(), activation=Rectlin()), shape=7)
    x = be.array(rng.standard_normal((7, 6)))
    net.layers[0].quantize(3.0)
    wanted = net.fprop(x, inference=True).get().copy()
    for samples in (4, 6, 1, 6):
        net.set_batch_size(samples)
        assert np.allclose(net.fprop(x, inference=True).get()[:, :samples], wanted[:, :samples], atol=1e-5)
        with pytest.raises(ArgumentError, match="quantized for inference"):
            net.fprop(x)


def test_a_branch_or_a_normalization_keeps_the_bias_apart(be: Backend) -> None:
    linear, bias, activation = Affine(5, Gaussian(), bias=Gaussian(), activation=Rectlin())
    net = chain(linear, BranchNode("between"), bias, activation, shape=7)
    linear.quantize(3.0)
    assert linear.folded == () and bias.folded == (activation,)
    net = chain(Affine(5, Gaussian(), batch_norm=True, activation=Rectlin()), shape=7)
    net.layers[0].quantize(3.0)
    assert net.layers[0].folded == () and net.layers[1].folded == (net.layers[2],)


def test_a_layer_that_is_not_quantized_says_what_to_do(be: Backend) -> None:
    layer = Linear(4, init=Gaussian())
    net = chain(layer, shape=3)
    x, y = be.ones((3, 6)), be.ones((4, 6))
    with pytest.raises(ArgumentError, match=r"is not quantized; call model.quantize\(calibration\)"):
        layer.multiply_int8(x, y, True)
    layer.quantize(LARGEST)
    with pytest.raises(DTypeError, match="inputs must be a tensor, got ndarray"):
        layer.multiply_int8(x.get(), y, True)
    assert net.layers == [layer] and (y.get() == 1).all()


@pytest.mark.parametrize(
    ("largest", "words"),
    [(("text",), "largest must be a number"), ((-1.0,), "at least 0"), ((np.nan,), "finite"), ((1, 2), "got 2 magn")],
)
def test_magnitudes_that_are_none(be: Backend, largest: Any, words: str) -> None:
    layer = Linear(4, init=Gaussian())
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        layer.quantize(*largest)
    assert layer.int8_step is None


def test_training_is_an_error_that_says_what_to_do(be: Backend) -> None:
    net = chain(Affine(4, Gaussian(), bias=Constant(0)), shape=3)
    x = be.ones((3, 6))
    next(net.layers_fprop()).quantize(1.0)
    with pytest.raises(ArgumentError, match=r"quantized for inference.*inference=True.*model.dequantize\(\)"):
        net.fprop(x)
    with pytest.raises(ArgumentError, match="quantized for inference"):
        net(np.ones((3, 6), np.float32))
    assert net.fprop(x, inference=True).shape == net(np.ones((3, 6), np.float32), inference=True).shape == (4, 6)


def test_results_may_be_added_to_outputs(be: Backend, rng: Any) -> None:
    net = chain(Affine(4, Gaussian()), shape=3)
    layer, x = next(net.layers_fprop()), be.array(rng.standard_normal((3, 6)))
    layer.quantize(3.0)
    once = layer.fprop(x, inference=True).get().copy()
    assert np.allclose(layer.fprop(x, inference=True, beta=2.0).get(), 3 * once, atol=1e-5)


def test_a_changed_weight_counts_from_the_next_quantization(be: Backend) -> None:
    net = chain(Affine(4, Constant(1.0)), shape=3)
    layer, x = next(net.layers_fprop()), be.ones((3, 6))
    layer.quantize(1.0)
    assert np.allclose(net.fprop(x, inference=True).get(), 3)
    layer.W[:] = 2
    assert np.allclose(net.fprop(x, inference=True).get(), 3)
    layer.quantize(1.0)
    assert np.allclose(net.fprop(x, inference=True).get(), 6)


def test_loading_says_whether_a_layer_is_quantized(be: Backend) -> None:
    net = chain(Conv((3, 3, 5), init=Gaussian(), bias=Gaussian()), shape=(3, 5, 6))
    layer, x = next(net.layers_fprop()), be.ones((90, 6))
    plain = deepcopy(layer.get_description(get_weights=True))
    assert "int8_step" not in plain["params"]
    layer.quantize(1.5)
    saved, wanted = deepcopy(layer.get_description(get_weights=True)), net.fprop(x, inference=True).get().copy()
    assert saved["params"]["int8_step"].dtype == np.float32
    layer.load_weights(plain)
    assert layer.int8_step is None and not np.array_equal(net.fprop(x, inference=True).get(), wanted)
    layer.W[:] = 0
    layer.load_weights(saved)
    assert np.array_equal(net.fprop(x, inference=True).get(), wanted)
    twice = deepcopy(saved)
    twice["params"].update(W=2 * saved["params"]["W"], weight_bias=2 * saved["params"]["weight_bias"])
    layer.load_weights(twice)
    assert np.array_equal(net.fprop(x, inference=True).get(), 2 * wanted)
    layer.load_weights(saved)
    copied = deepcopy(net)
    assert np.array_equal(copied.fprop(x, inference=True).get(), wanted)


def test_classes_with_passes_of_their_own_do_not_take_int8(be: Backend) -> None:
    for made, takes in (
        (Affine(4, Gaussian()), True), (Conv((3, 3, 5), init=Gaussian()), True), (BinaryAffine(4, Gaussian()), False),
        (Conv((3, 3, 5), init=Gaussian(), bias=Constant(0)), True), (DepthwiseConv((3, 3, 1), init=Gaussian()), False),
    ):  # fmt: skip
        assert isinstance(made[0], Int8Layer) and vars(type(made[0])).get("takes_int8", False) is takes


def test_a_layer_that_is_not_quantized_names_no_step(be: Backend) -> None:
    """Who reads all parameters met None."""
    net = chain(Conv((3, 3, 5), init=Gaussian(), bias=Constant(0)), Linear(3, init=Gaussian()), shape=(3, 5, 6))
    for layer, names in zip(net.layers, ({"W", "weight_bias"}, {"W"}), strict=True):
        assert set(layer.parameter_names()) == names == set(layer.loaded_names()) - {"int8_step"}
        assert all(getattr(layer, name) is not None for name in names)
        layer.quantize(2.0)
        assert set(layer.parameter_names()) == {*names, "int8_step"} == set(layer.loaded_names())
        assert len(layer.loaded_names()) == len(names) + 1
