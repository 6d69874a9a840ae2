"""State_dicts that do not fit: each error says what came, what was expected and what to do, and nothing is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.exchange.places import arrays_of
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, Conv, Pooling
from neonlike.models import Model
from neonlike.transforms import Rectlin
from tests.exchange.networks import ready

pytestmark = [pytest.mark.engines("numpy", batch_size=3), pytest.mark.cpu_only("layouts are the same on every backend")]
Given = dict[str, Any]

SHAPES = {
    "body.conv.weight": (4, 3, 3, 3), "body.norm.weight": (4,), "body.norm.bias": (4,), "body.norm.running_mean": (4,),
    "body.norm.running_var": (4,), "body.norm.num_batches_tracked": (), "head.weight": (5, 16), "head.bias": (5,),
}  # fmt: skip


def state() -> Given:
    """The weights of Conv2d(3, 4, 3, padding=1, bias=False), BatchNorm2d(4), Linear(16, 5), with a pooling between."""
    return {name: np.full(shape, 2.0, np.float32) for name, shape in SHAPES.items()}


def without(*names: str) -> Given:
    return {name: array for name, array in state().items() if name not in names}


@pytest.fixture
def model(be: Any, rng: np.random.Generator) -> Model:
    own = Conv((3, 3, 4), Gaussian(), padding=1, batch_norm=True, activation=Rectlin())
    return ready([own, Pooling(2), Affine(5, Gaussian(), bias=Constant(0))], (3, 4, 4), rng)


BUILD = "Nothing was loaded; build the model with these sizes and biases, or pair modules and layers by names="
COUNT = "nothing was changed. Give names=[...], one module for each of these layers"
CASES: dict[str, tuple[Given, type[Exception], tuple[str, ...]]] = {
    "another width": (state() | {"head.weight": np.ones((5, 17))}, ShapeError,
                      ("head.weight is (5, 17) there and (5, 16) here", BUILD)),
    "transposed": (state() | {"head.weight": np.ones((16, 5))}, ShapeError, ("head.weight is (16, 5) there", BUILD)),
    "another number of channels": (state() | {"body.conv.weight": np.ones((4, 1, 3, 3))}, ShapeError,
                                   ("body.conv.weight is (4, 1, 3, 3) there and (4, 3, 3, 3) here", BUILD)),
    "fewer axes": (state() | {"body.conv.weight": np.ones((4, 3, 3))}, ShapeError,
                     ("body.conv.weight is (4, 3, 3) there", BUILD)),
    "no running mean": (without("body.norm.running_mean"), ShapeError, ("missing: body.norm.running_mean", BUILD)),
    "a bias too many": (state() | {"body.conv.bias": np.ones(4)}, ShapeError, ("unexpected: body.conv.bias", BUILD)),
    "no bias": (without("head.bias"), ShapeError, ("missing: head.bias", BUILD)),
    "a module too many": (state() | {"aux.weight": np.ones((2, 2))}, ArgumentError,
                          ("3 layers with weights (0 Convolution, 1 BatchNorm, 4 Linear)", "'head', 'aux')", COUNT)),
    "a module too few": (without(*(name for name in SHAPES if "norm" in name)), ArgumentError,
                         ("PyTorch's has 2 modules ('body.conv', 'head')", COUNT)),
    "in the order of names": (dict(sorted(state().items(), reverse=True)), ShapeError, ("head.weight", BUILD)),
    "empty": ({}, ArgumentError, ("PyTorch's has 0 modules ()", COUNT)),
    "a checkpoint": ({"epoch": 3, "state_dict": state()}, DTypeError,
                     ("state_dict is no array but dict", "pass checkpoint['state_dict']")),
    "text": (state() | {"head.bias": "none"}, DTypeError, ("head.bias is no array of numbers but 'none'",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_errors_tell_what_to_do_and_change_nothing(model: Model, case: str) -> None:
    weights, kind, texts = CASES[case]
    before = {name: array.copy() for name, array in arrays_of(model.layers).items()}
    eps = [getattr(layer, "eps", None) for layer in model.layers.layers]
    with pytest.raises(kind) as raised:
        model.load_torch(weights)
    assert [text for text in texts if text not in str(raised.value)] == [], raised.value
    for name, array in arrays_of(model.layers).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    assert [getattr(layer, "eps", None) for layer in model.layers.layers] == eps


def test_a_prefix_of_all_names_changes_nothing(model: Model) -> None:
    """As ``DataParallel`` adds it."""
    model.load_torch({f"module.{name}": array for name, array in state().items()})
    assert all((array == 2).all() for array in arrays_of(model.layers).values())


def test_a_module_too_many_is_left_out_by_names(model: Model) -> None:
    model.load_torch({"aux.weight": np.ones((2, 2)), **state()}, names=["body.conv", "body.norm", "head"])
    assert all((array == 2).all() for array in arrays_of(model.layers).values())
