"""Weights in PyTorch's layouts: what our layers make of them equals PyTorch's formulas, and they come back the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, NotDefined, ShapeError
from neonlike.exchange import tensorfile
from neonlike.exchange.places import arrays_of
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    GRU,
    LSTM,
    Affine,
    BatchNorm,
    BiLSTM,
    BinaryAffine,
    BiRNN,
    Conv,
    Deconv,
    DepthwiseConv,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Recurrent,
    ResetAfterGRU,
)
from neonlike.models import Model
from neonlike.transforms import Logistic, Rectlin, Tanh
from tests.exchange import torch_formulas as formulas
from tests.exchange.networks import outputs, ready

N = 3
pytestmark = [pytest.mark.engines("numpy", batch_size=N), pytest.mark.cpu_only("layouts are the same on every backend")]
INIT, ZERO = Gaussian(scale=0.1), Constant(0)
GATES: dict[str, Any] = {"activation": Tanh(), "gate_activation": Logistic(), "reset_cells": True}


def given(rng: Any, **shapes: Any) -> dict[str, np.ndarray]:
    """Random parameters; variances are above 0."""
    return {
        name: (rng.uniform(0.5, 1.5, shape) if "var" in name else rng.uniform(-0.7, 0.7, shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def levels(features: int, units: int, gates: int, both: bool = False, level: int = 0) -> dict[str, Any]:
    """Shapes of the parameters of a level of a recurrent module."""
    found = {}
    for way in ["", "_reverse"] if both else [""]:
        found[f"weight_ih_l{level}{way}"] = (gates * units, features)
        found[f"weight_hh_l{level}{way}"] = (gates * units, units)
        found[f"bias_ih_l{level}{way}"] = found[f"bias_hh_l{level}{way}"] = (gates * units,)
    return found


def steps(formula: Any) -> Any:
    """A formula of (N, steps, features) for (N, features, steps)."""
    return lambda x, p: formula(x.transpose(0, 2, 1), p).transpose(0, 2, 1)


def norm(n: int) -> dict[str, Any]:
    return {"weight": (n,), "bias": (n,), "running_mean": (n,), "running_var": (n,)}


CASES: dict[str, tuple[Any, Any, dict[str, Any], Any]] = {
    "linear": (lambda: Affine(5, INIT, bias=ZERO), 4, {"weight": (5, 4), "bias": (5,)}, formulas.linear),
    "square linear": (lambda: Affine(4, INIT, bias=ZERO), 4, {"weight": (4, 4), "bias": (4,)}, formulas.linear),
    "linear without bias": (lambda: Linear(4, INIT), 4, {"weight": (4, 4)}, formulas.linear),
    "linear of steps": (lambda: Affine(4, INIT, bias=ZERO), (4, 4), {"weight": (4, 4), "bias": (4,)},
                        steps(formulas.linear)),
    "conv": (lambda: Conv((3, 2, 5), INIT, 2, 1, bias=ZERO), (4, 6, 5), {"weight": (5, 4, 3, 2), "bias": (5,)},
             lambda x, p: formulas.conv(x, p, 2, 1)),
    "square conv": (lambda: Conv((3, 3, 3), INIT, padding=1), (3, 3, 3), {"weight": (3, 3, 3, 3)},
                    lambda x, p: formulas.conv(x, p, 1, 1)),
    "conv in groups": (lambda: Conv((2, 2, 4), INIT, dilation=2, bias=ZERO, groups=2), (4, 5, 5),
                       {"weight": (4, 2, 2, 2), "bias": (4,)}, lambda x, p: formulas.conv(x, p, 1, 0, 2, 2)),
    "depthwise": (lambda: DepthwiseConv((3, 3, 2), INIT, bias=ZERO), (3, 4, 4), {"weight": (6, 1, 3, 3), "bias": (6,)},
                  lambda x, p: formulas.conv(x, p, groups=3)),
    "conv of volumes": (lambda: Conv((2, 3, 2, 4), INIT, bias=ZERO), (3, 3, 4, 5),
                        {"weight": (4, 3, 2, 3, 2), "bias": (4,)}, formulas.conv),
    "transposed conv": (lambda: Deconv((3, 2, 5), INIT, 2, bias=ZERO), (4, 3, 4),
                        {"weight": (4, 5, 3, 2), "bias": (5,)}, lambda x, p: formulas.conv_transpose(x, p, 2)),
    "square transposed conv": (lambda: Deconv((3, 3, 3), INIT, padding=1), (3, 3, 3), {"weight": (3, 3, 3, 3)},
                               lambda x, p: formulas.conv_transpose(x, p, 1, 1)),
    "batch norm of images": (lambda: BatchNorm(), (4, 4, 4), norm(4), formulas.batch_norm),
    "batch norm of features": (lambda: BatchNorm(), 6, norm(6), formulas.batch_norm),
    "batch norm of steps": (lambda: BatchNorm(), (6, 5), norm(6), formulas.batch_norm),
    "layer norm": (lambda: LayerNorm(eps=0.5), (6, 5), {"weight": (6,), "bias": (6,)}, steps(formulas.layer_norm)),
    "layer norm of images": (lambda: LayerNorm(), (3, 3, 3), {"weight": (3, 3, 3), "bias": (3, 3, 3)},
                             formulas.layer_norm),
    "group norm": (lambda: GroupNorm(2), (6, 3, 2), {"weight": (6,), "bias": (6,)},
                   lambda x, p: formulas.group_norm(x, p, 2)),
    "rnn": (lambda: Recurrent(4, INIT, activation=Tanh(), reset_cells=True), (4, 3), levels(4, 4, 1),
            steps(lambda x, p: formulas.recurrent(x, p, "RNN"))),
    "rnn both ways": (lambda: BiRNN(4, INIT, activation=Tanh(), reset_cells=True), (5, 4), levels(5, 4, 1, True),
                      steps(lambda x, p: formulas.recurrent(x, p, "RNN", both=True))),
    "lstm": (lambda: LSTM(4, INIT, **GATES), (4, 3), levels(4, 4, 4),
             steps(lambda x, p: formulas.recurrent(x, p, "LSTM"))),
    "lstm of other sizes": (lambda: LSTM(3, INIT, **GATES), (5, 4), levels(5, 3, 4),
                            steps(lambda x, p: formulas.recurrent(x, p, "LSTM"))),
    "lstm both ways": (lambda: BiLSTM(4, INIT, **GATES), (4, 4), levels(4, 4, 4, True),
                       steps(lambda x, p: formulas.recurrent(x, p, "LSTM", both=True))),
    "gru": (lambda: ResetAfterGRU(4, INIT), (4, 3), levels(4, 4, 3), steps(formulas.gru)),
    "gru of other sizes": (lambda: ResetAfterGRU(3, INIT), (5, 4), levels(5, 3, 3), steps(formulas.gru)),
    "attention": (lambda: MultiHeadAttention(2, INIT), (6, 4),
                  {"in_proj_weight": (18, 6), "in_proj_bias": (18,), "out_proj.weight": (6, 6), "out_proj.bias": (6,)},
                  steps(lambda x, p: formulas.attention(x, p, 2))),
    "attention without bias": (lambda: MultiHeadAttention(3, INIT, bias=Constant(1)), (6, 6),
                               {"in_proj_weight": (18, 6), "out_proj.weight": (6, 6)},
                               steps(lambda x, p: formulas.attention(x, p, 3))),
}  # fmt: skip
"""Layer, shape of its input, shapes of PyTorch's parameters, and PyTorch's formula."""


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_pytorchs_and_weights_come_back(be, rng, case):
    make, shape, shapes, formula = CASES[case]
    model = ready([make()], shape, rng)
    weights = given(rng, **shapes)
    eps = None if case == "layer norm" else 1e-5
    model.load_torch({f"module.{name}": array for name, array in weights.items()}, eps=eps)
    x = rng.normal(size=(N, *((shape,) if isinstance(shape, int) else shape))).astype(np.float32)
    wanted = (lambda p: formulas.layer_norm(x.transpose(0, 2, 1), p, 0.5).transpose(0, 2, 1)) if eps is None else None
    wanted = wanted(weights) if wanted else formula(x, weights)
    np.testing.assert_allclose(outputs(model, x), wanted, rtol=1e-5, atol=1e-5)
    back = model.to_torch(["module"])
    for name, array in weights.items():
        found = back.pop(f"module.{name}")
        if name.startswith("bias_ih"):
            found = found + back[f"module.{name}".replace("ih", "hh")] - weights[name.replace("ih", "hh")]
        if not name.startswith("bias_hh"):
            np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-6)
    assert not any(np.any(array) for array in back.values())  # biases that PyTorch's module lacked


def test_words(be, rng):
    model = ready([Embedding(7, 4)], (5,), rng)
    weights = given(rng, weight=(7, 4))
    model.load_torch(weights)
    words = rng.integers(7, size=(N, 5))
    y = model.fprop(be.array(words.T), inference=True).get().reshape(4, 5, N).transpose(2, 1, 0)
    np.testing.assert_array_equal(y, formulas.embedding(words, weights))
    np.testing.assert_array_equal(model.to_torch()["0.weight"], weights["weight"])


def network() -> list[Any]:
    """A convolution, batch normalization, and two fully connected layers of one shape."""
    return [
        Conv((3, 3, 4), INIT, padding=1, batch_norm=True, activation=Rectlin()),
        Affine(4, INIT, bias=ZERO, activation=Rectlin()),
        Affine(4, INIT, bias=ZERO),
    ]


SHAPES = {
    "conv.weight": (4, 2, 3, 3), **{f"bn.{name}": shape for name, shape in norm(4).items()},
    "fc1.weight": (4, 36), "fc1.bias": (4,), "fc2.weight": (4, 4), "fc2.bias": (4,),
}  # fmt: skip
MODULES = ["conv", "bn", "fc1", "fc2"]


def reference(x: np.ndarray, p: dict[str, np.ndarray]) -> np.ndarray:
    """PyTorch's outputs of the network."""
    own = {name: {key.partition(".")[2]: p[key] for key in p if key.startswith(f"{name}.")} for name in MODULES}
    x = np.maximum(formulas.batch_norm(formulas.conv(x, own["conv"], 1, 1), own["bn"]), 0)
    return formulas.linear(np.maximum(formulas.linear(x.reshape(len(x), -1), own["fc1"]), 0), own["fc2"])


class TestNetwork:
    """Modules are matched by order or by names."""

    @pytest.fixture
    def model(self, be: Any, rng: Any) -> Model:
        return ready(network(), (2, 3, 3), rng)

    def check(self, model: Model, rng: Any, weights: Any) -> None:
        x = rng.normal(size=(N, 2, 3, 3)).astype(np.float32)
        np.testing.assert_allclose(outputs(model, x), reference(x, weights), rtol=1e-5, atol=1e-5)

    def test_by_order(self, model, rng):
        weights = given(rng, **SHAPES)
        model.load_torch({**weights, "bn.num_batches_tracked": np.array(7)})
        self.check(model, rng, weights)
        again = model.to_torch(weights)
        assert [name for name in again if name not in weights] == ["bn.num_batches_tracked"]
        assert list(model.to_torch())[:3] == ["0.weight", "1.weight", "1.bias"]

    def test_by_names(self, model, rng):
        weights = given(rng, **SHAPES)
        mixed = {name: weights[name] for name in sorted(weights, reverse=True)}
        model.load_torch(mixed, MODULES)
        self.check(model, rng, weights)
        model.load_torch(mixed, {"0": "conv", "1": "bn", "3": "fc1", "6": "fc2"})
        self.check(model, rng, weights)

    def test_from_a_file(self, model, rng, tmp_path):
        pytest.importorskip("safetensors")
        weights = given(rng, **SHAPES)
        tensorfile.write(tmp_path / "w", weights, {})
        with pytest.raises(ArgumentError, match="does not keep the order"):
            model.load_torch(tmp_path / "w")
        model.load_torch(tmp_path / "w", MODULES)
        self.check(model, rng, weights)
        numbered = model.to_torch({"0": "0", "1": "1", "3": "9", "6": "10"})
        tensorfile.write(tmp_path / "w", numbered, {})
        other = ready(network(), (2, 3, 3), rng)
        other.load_torch(tmp_path / "w")
        self.check(other, rng, weights)

    def test_nothing_is_changed_by_an_error(self, model, rng):
        before = arrays_of(model.layers)
        shapes = {**SHAPES, "fc1.weight": (36, 4), "fc2.scale": (2,)}
        del shapes["bn.running_var"]
        with pytest.raises(ShapeError) as raised:
            model.load_torch(given(rng, **shapes))
        text = str(raised.value)
        assert "missing: bn.running_var;" in text and "unexpected: fc2.scale;" in text
        assert "fc1.weight is (36, 4) there and (4, 36) here" in text
        with pytest.raises(ArgumentError, match=r"4 layers with weights .*Linear\), PyTorch's has 3 modules"):
            model.load_torch(given(rng, **{name: SHAPES[name] for name in SHAPES if "fc2" not in name}))
        with pytest.raises(ArgumentError, match="there is no module 'fc3'"):
            model.load_torch(given(rng, **SHAPES), ["conv", "bn", "fc1", "fc3"])
        with pytest.raises(ArgumentError, match="expected a module for each of the layers 0, 1, 3, 6"):
            model.load_torch(given(rng, **SHAPES), {"0": "conv"})
        norm_of_texts = SimpleNamespace(eps=0.5, momentum="small")
        module = SimpleNamespace(state_dict=lambda: given(rng, **SHAPES), named_modules=lambda: {"bn": norm_of_texts})
        with pytest.raises(DTypeError, match=r"the module's momentum must be a number, got 'small'"):
            model.load_torch(module)
        assert model.layers.layers[1].eps == 1e-3
        with pytest.raises(DTypeError, match=r"fc1\.weight is no array of numbers"):
            model.load_torch({**given(rng, **SHAPES), "fc1.weight": "text"})
        assert all(np.array_equal(array, before[name]) for name, array in arrays_of(model.layers).items())


def test_a_stack_of_recurrent_layers_is_one_module(be, rng):
    model = ready([LSTM(4, INIT, **GATES), LSTM(4, INIT, **GATES)], (4, 3), rng)
    weights = given(rng, **levels(4, 4, 4), **levels(4, 4, 4, level=1))
    named = {f"rnn.{name}": array for name, array in weights.items()}
    model.load_torch(named)
    x = rng.normal(size=(N, 4, 3)).astype(np.float32)
    wanted = formulas.recurrent(x.transpose(0, 2, 1), weights, "LSTM", 2).transpose(0, 2, 1)
    np.testing.assert_allclose(outputs(model, x), wanted, rtol=1e-5, atol=1e-5)
    assert set(model.to_torch(named)) == set(named)
    with pytest.raises(ArgumentError, match=r"\('rnn_l0', 'rnn_l1'\)"):
        ready([LSTM(4, INIT, **GATES)], (4, 3), rng).load_torch(named)


@pytest.mark.parametrize("names", [["rnn_l1"], ["rnn_l1", "rnn_l0"], ["rnn", "rnn_l1"]])
def test_modules_may_be_called_like_levels(be, rng, names):
    one = given(rng, **levels(4, 4, 4))
    named = {f"{module}.{name}": array for module in names for name, array in one.items()}
    model = ready([LSTM(4, INIT, **GATES) for _ in names], (4, 3), rng)
    model.load_torch(named)
    assert set(model.to_torch(named)) == set(named)
    del named[missing := f"{names[0]}.weight_hh_l0"]
    with pytest.raises(ShapeError, match=rf"missing: {missing}\. Nothing"):
        model.load_torch(named)


def test_a_module_called_like_a_level_of_a_stack_is_one_of_its_own(be, rng):
    stack = {**levels(4, 4, 4), **levels(4, 4, 4, level=1)}
    named = {f"rnn.{name}": array for name, array in given(rng, **stack).items()}
    named |= {f"rnn_l1.{name}": array for name, array in given(rng, weight=(4, 4), bias=(4,)).items()}
    model = ready([LSTM(4, INIT, **GATES), LSTM(4, INIT, **GATES), Affine(4, INIT, bias=ZERO)], (4, 3), rng)
    model.load_torch(named)
    back = model.to_torch(named)
    assert set(back) == set(named)
    np.testing.assert_array_equal(back["rnn_l1.weight"], named["rnn_l1.weight"])
    np.testing.assert_allclose(back["rnn.weight_hh_l1"], named["rnn.weight_hh_l1"])


def test_layers_with_another_formula_are_named(be, rng):
    gru = ready([GRU(4, INIT, **GATES)], (4, 3), rng)
    with pytest.raises(NotDefined, match=r"resets behind the product, .* and this layer before it"):
        gru.load_torch(given(rng, **levels(4, 4, 3)))
    with pytest.raises(NotDefined, match="resets behind the product"):
        gru.to_torch()
    hard = ready([LSTM(4, INIT, activation=Rectlin(), gate_activation=Logistic())], (4, 3), rng)
    with pytest.raises(NotDefined, match="no LSTM with the activation Rectlin and Logistic"):
        hard.to_torch()
    halves = ready([BiRNN(4, INIT, activation=Tanh(), split_inputs=True)], (4, 3), rng)
    with pytest.raises(NotDefined, match="read half of the features each"):
        halves.to_torch()
    signs = ready([BinaryAffine(3, INIT)], 4, rng)
    with pytest.raises(NotDefined, match="no module for a layer of this kind, BinaryLinear at 0"):
        signs.to_torch()


def test_a_model_without_weights_cannot_take_any(be):
    with pytest.raises(ArgumentError, match=r"call model\.initialize"):
        Model([Affine(3, INIT)]).load_torch({})
