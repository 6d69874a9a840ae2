"""Optimizers that count steps count those of each parameter, whatever else they serve; model files keep the counts."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, BatchNorm, GeneralizedCost, GeneralizedGANCost, Linear
from neonlike.layers.container import GenerativeAdversarial
from neonlike.models import GAN, Model
from neonlike.optimizers import Adam, AdamW, MultiOptimizer, RMSProp
from neonlike.optimizers.optimizer import get_param_list
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import CrossEntropyMulti, GANCost, Logistic, Rectlin, Softmax
from tests.support.clusters import NCLASS
from tests.support.clusters import clusters as data

MAKERS = {"adam": lambda: Adam(learning_rate=0.01), "adamw": lambda: AdamW(learning_rate=0.01, wdecay=0.1)}


class Layer:
    """The one thing an optimizer asks of a layer."""

    name = "layer"

    def __init__(self, be: Any, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.W, self.dW = (be.array(rng.normal(size=(2, 3))) for _ in range(2))
        self.states: list[Any] = []

    def get_params(self) -> Any:
        return (self.W, self.dW), self.states


@pytest.fixture(params=MAKERS)
def make(request: Any) -> Any:
    return MAKERS[request.param]


def alone(be: Any, make: Any, seed: int, steps: int) -> Any:
    """A parameter after so many steps of an optimizer of its own."""
    optimizer, layers = make(), [Layer(be, seed)]
    for _ in range(steps):
        optimizer.optimize(layers, 0)
    return layers[0].W.get()


def test_parameters_that_come_later_begin_at_one(be: Any, make: Any) -> None:
    optimizer, first, second = make(), Layer(be, 0), Layer(be, 1)
    for _ in range(5):
        optimizer.optimize([first], 0)
    for _ in range(3):
        optimizer.optimize([second], 0)
    assert np.array_equal(first.W.get(), alone(be, make, 0, 5))
    assert np.array_equal(second.W.get(), alone(be, make, 1, 3))


def test_any_sequence_of_groups(be: Any, rng: Any, make: Any) -> None:
    """Each parameter is as if it were alone, however they are put together from call to call."""
    optimizer, layers, steps = make(), [Layer(be, seed) for seed in range(4)], [0] * 4
    groups = [layers, layers[:2], layers[2:], [layers[3], layers[0]], layers[1:3]]
    for choice in rng.integers(0, len(groups), 60):
        optimizer.optimize(groups[choice], 0)
        for layer in groups[choice]:
            steps[layers.index(layer)] += 1
        assert optimizer.t in [steps[layers.index(layer)] for layer in groups[choice]]
    for seed, layer in enumerate(layers):
        assert np.array_equal(layer.W.get(), alone(be, make, seed, steps[seed]))
    together = [state.count for layer in layers for state in layer.states[:1]]
    assert sum(count.parameters for count in set(together)) == 4


def test_groups_of_a_network_that_are_known(be: Any, make: Any) -> None:
    """Steps of layers of this library are repeated without a look at them, but for their counts."""
    begin(be)
    model, optimizer = network(), make()
    fit(model, optimizer, 1)  # five steps of all
    layers = model.layers.layers_to_optimize
    head = layers[-1:]
    for repetition in range(4):
        optimizer.optimize(layers, 0)
        assert optimizer.t in (6 + 3 * repetition, 6 + repetition)
        for _ in range(2):
            optimizer.optimize(head, 0)
        assert optimizer.t == 8 + 3 * repetition
    assert [layer.states[0].count.steps for layer in layers if layer.classnm == "Linear"] == [9, 17]
    other = make()
    for repetition in range(3):
        for _ in range(3):
            optimizer.optimize(layers, 0)
        other.optimize(head, 0)
        steps = 12 + 3 * repetition, 21 + 4 * repetition
        assert [layer.states[0].count.steps for layer in layers if layer.classnm == "Linear"] == [*steps]


def test_parameters_that_had_as_many_steps_are_updated_together(be: Any, make: Any) -> None:
    optimizer, layers = make(), [Layer(be, seed) for seed in range(3)]
    for layer in layers:
        optimizer.optimize([layer], 0)
    for _ in range(3):
        optimizer.optimize(layers, 0)
    assert len({layer.states[0].count for layer in layers}) == 1 and layers[0].states[0].count.parameters == 3


def test_a_copy_goes_on_by_itself(be: Any, make: Any) -> None:
    optimizer, layers = make(), [Layer(be, 0)]
    for _ in range(4):
        optimizer.optimize(layers, 0)
    other, copied = copy.deepcopy(optimizer), Layer(be, 0)
    copied.W[:], copied.dW[:] = layers[0].W, layers[0].dW
    copied.states += [state.copy() for state in layers[0].states]
    other.optimize([copied], 0)
    for _ in range(2):
        optimizer.optimize(layers, 0)
    other.optimize([copied], 0)
    assert np.array_equal(copied.W.get(), layers[0].W.get()) and other.t == optimizer.t == 6


def test_another_kind_of_optimizer_in_between(be: Any, make: Any) -> None:
    """States of its own begin anew, and so do steps."""
    optimizer, layers = make(), [Layer(be, 0)]
    for _ in range(3):
        optimizer.optimize(layers, 0)
    RMSProp().optimize(layers, 0)
    optimizer.optimize(layers, 0)
    assert optimizer.t == 1


def test_neons_dialect_counts_calls(be: Any, make: Any) -> None:
    with neon_dialect():
        optimizer = make()
        for seed in range(3):
            optimizer.optimize([Layer(be, seed)], 0)
        assert optimizer.t == 3
        optimizer.t = 9
        layer = Layer(be, 0)
        for _ in range(2):
            optimizer.optimize([layer, Layer(be, 1)], 0)
        assert optimizer.t == 11
    optimizer.optimize([layer], 0)
    assert optimizer.t == 12
    other = Layer(be, 1)
    optimizer.optimize([other], 0)
    assert optimizer.t == 1  # its own


def test_the_number_may_be_set(be: Any, make: Any) -> None:
    optimizer, layers = make(), [Layer(be, 0), Layer(be, 1)]
    for _ in range(3):
        optimizer.optimize(layers, 0)
    optimizer.t = 0
    optimizer.optimize(layers, 0)
    assert optimizer.t == 1 and layers[0].states[0].count.steps == 1
    optimizer.optimize(layers, 0)
    assert optimizer.t == 2


# Models and files -----------------------------------------------------------------------------------------------------


def network() -> Model:
    init = GlorotUniform()
    hidden = Affine(8, init, bias=Constant(0), activation=Rectlin())
    return Model([*hidden, BatchNorm(), Affine(NCLASS, init, activation=Softmax())])


def fit(model: Model, optimizer: Any, epochs: int) -> list[Any]:
    model.fit(data(40), GeneralizedCost(CrossEntropyMulti()), optimizer, epochs)
    return weights(model)


def weights(model: Model) -> list[Any]:
    layers = [layer for layer in model.layers.layers_fprop() if layer.has_params]
    return [param.get() for (param, _), _ in get_param_list(layers)]


def assert_same(some: list[Any], others: list[Any]) -> None:
    for a, b in zip(some, others, strict=True):
        assert np.array_equal(a, b)


def begin(be: Any) -> None:
    gen_backend(be.backend_name, rng_seed=0, batch_size=8)


def test_a_second_model_is_as_if_the_optimizer_were_new(be: Any, make: Any) -> None:
    begin(be)
    wanted = fit(network(), make(), 2)
    begin(be)
    optimizer = make()
    other = network()
    fit(other, optimizer, 1)
    begin(be)
    assert_same(wanted, fit(network(), optimizer, 2))


def test_files_have_the_steps_of_each_layer(be: Any, make: Any) -> None:
    begin(be)
    optimizer, model = make(), network()
    fit(model, optimizer, 2)
    saved = model.serialize()
    steps = [layer["steps"] for layer in saved["model"]["config"]["layers"] if "params" in layer]
    assert steps == [10, 10, [10, 10], 10]
    assert all("steps" not in layer for layer in model.serialize(keep_states=False)["model"]["config"]["layers"])
    again = Model(saved)
    resumed = fit(again, make(), 3)
    assert again.serialize()["model"]["config"]["layers"][0]["steps"] == 15
    assert_same(fit(model, optimizer, 3), resumed)


def test_an_old_file_has_one_number_for_all(be: Any, make: Any) -> None:
    begin(be)
    optimizer, model = make(), network()
    fit(model, optimizer, 2)
    saved = model.serialize()
    for layer in saved["model"]["config"]["layers"]:
        layer.pop("steps", None)
    resumed = fit(Model(saved), make(), 3)
    assert_same(fit(model, optimizer, 3), resumed)


def test_an_old_file_of_two_networks_has_one_number_for_both(be: Any) -> None:
    """The file's number counts all calls: each network goes on from it, whichever is updated first."""
    begin(be)
    whole = network()
    fit(whole, Adam(learning_rate=0.01), 2)
    saved = whole.serialize()
    for layer in saved["model"]["config"]["layers"]:
        layer.pop("steps", None)
    saved["optimizer"]["progress"]["t"] = 1000
    again, optimizer = Model(saved), Adam()
    again.fit(data(40), GeneralizedCost(CrossEntropyMulti()), optimizer, 2)  # which is done: the number is read
    layers = again.layers.layers_to_optimize
    for part in (layers[:1], layers[1:]):
        optimizer.optimize(part, 0)
        assert optimizer.t == 1001


def test_a_new_layer_on_old_ones(be: Any) -> None:
    """Fine-tuning keeps the states of trained layers: the new head begins at its own first step."""
    begin(be)
    model = network()
    fit(model, Adam(learning_rate=0.01), 2)
    saved = model.serialize()
    head = saved["model"]["config"]["layers"][-2]
    assert head["steps"] == 10
    for key in ("steps", "states", "params"):
        head.pop(key)
    again, optimizer = Model(saved), Adam(learning_rate=0.01)
    fit(again, optimizer, 3)
    found = again.serialize()["model"]["config"]["layers"]
    assert [layer["steps"] for layer in found if "params" in layer] == [15, 15, [15, 15], 5]


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", [3, -1], True], ids=str)
def test_damaged_steps_are_refused(be: Any, wrong: Any) -> None:
    begin(be)
    model = network()
    fit(model, Adam(), 1)
    saved = model.serialize()
    saved["model"]["config"]["layers"][0]["steps"] = wrong
    with pytest.raises(ArgumentError, match=r"steps=.* is no number of steps"):
        Model(saved)


@pytest.mark.parametrize("several", [False, True])
def test_an_adversarial_training_goes_on_as_if_it_had_not_stopped(be: Any, several: bool) -> None:
    """Generator and discriminator share an optimizer, and one of them has more steps."""

    def made() -> Any:
        adam = Adam(learning_rate=0.01)
        return MultiOptimizer({"default": adam, "Bias": Adam(learning_rate=0.02)}) if several else adam

    def model() -> GAN:
        generator = Linear(2, GlorotUniform())
        discriminator = Affine(1, GlorotUniform(), bias=Constant(0.1), activation=Logistic())
        layers = GenerativeAdversarial([generator], discriminator)
        return GAN(layers, noise_dim=3, k=2)

    def train(gan: GAN, epochs: int) -> list[Any]:
        rng = np.random.default_rng(3)
        images = ArrayIterator(rng.normal(size=(48, 2)), make_onehot=False)
        gan.fit(images, GeneralizedGANCost(GANCost()), optimizer=made(), num_epochs=epochs)
        return weights(gan)

    begin(be)
    whole = model()
    wanted = train(whole, 3)
    begin(be)
    half = model()
    train(half, 2)
    counts = {layer.states[0].count.steps for layer in half.layers.layers_fprop() if getattr(layer, "states", None)}
    assert len(counts) == 2
    resumed = model()
    resumed.deserialize(half.serialize())
    assert_same(wanted, train(resumed, 3))
