"""Master weights: small steps add up in 16 bits, by every optimizer, and saved trainings go on exactly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from neonlike.backends import replays
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.kernels.c import fastpath
from neonlike.layers import Affine, BatchNorm, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    GradientAccumulation,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
    get_param_list,
)
from neonlike.optimizers.masters import has_master
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.optimizers.test_optimizers import reference
from tests.support.ranks import run_ranks
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = pytest.mark.engines("c", batch_size=16)
halves = pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
GDM = GradientDescentMomentum

EVERY = {
    "plain": lambda: GDM(0.01, 0.0),
    "decay": lambda: GDM(0.01, 0.0, wdecay=0.1, gradient_clip_norm=0.3),
    "momentum": lambda: GDM(0.01, 0.9, gradient_clip_value=0.2),
    "nesterov": lambda: GDM(0.01, 0.9, nesterov=True, param_clip_value=0.5),
    "rmsprop": lambda: RMSProp(gradient_clip_norm=0.3),
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "adam": lambda: Adam(gradient_clip_norm=0.3),
    "adamw": AdamW,
    "shift": ShiftAdaMax,
}
MADE = {
    **EVERY,
    "scaled": lambda: LossScaling(Adam(), interval=2),
    "accumulated": lambda: GradientAccumulation(Adam(), 3),
    "several": lambda: MultiOptimizer({"default": Adam(), "Bias": GDM(0.01, 0.0)}),
}


class Parameter:
    """A layer with a parameter."""

    name = "layer"

    def __init__(self, be: Any, dtype: Any, values: Any) -> None:
        self.W, self.states = be.array(values, dtype=dtype), []
        self.dW = be.zeros_like(self.W)

    def get_params(self) -> Any:
        return (self.W, self.dW), self.states


def rounded(be: Any, dtype: Any, values: Any) -> np.ndarray:
    """``values`` as a tensor of ``dtype`` has them, in float64."""
    return be.array(values, dtype=dtype).get().astype(np.float64)


def step(be: Any, optimizer: Any, layer: Parameter, gradient: Any) -> None:
    layer.dW[:] = np.float32(gradient) * be.bsz
    optimizer.optimize([layer], 0)


def decayed(o: AdamW, p: np.ndarray, g: np.ndarray, states: list[np.ndarray], t: int) -> np.ndarray:
    """A step of AdamW in NumPy."""
    states[0] = o.beta_1 * states[0] + (1 - o.beta_1) * g
    states[1] = o.beta_2 * states[1] + (1 - o.beta_2) * g**2
    mean, square = states[0] / (1 - o.beta_1**t), states[1] / (1 - o.beta_2**t)
    return p - o.learning_rate * (mean / (np.sqrt(square) + o.epsilon) + o.wdecay * p)


@halves
@pytest.mark.engines("c", "numpy", batch_size=16)
def test_steps_below_half_the_distance_of_two_numbers_add_up(be, dtype):
    """Steps from 1 by 2^-14, an eighth of the distance in float16 or less: after 600, all have been taken."""
    layer, optimizer = Parameter(be, dtype, np.ones((2, 3))), GDM(2.0**-14, 0.0)
    for _ in range(600):
        step(be, optimizer, layer, np.ones((2, 3)))
    np.testing.assert_array_equal(layer.states[0].get(), np.float32(1 - 600 * 2.0**-14))
    np.testing.assert_array_equal(layer.W.get(), rounded(be, dtype, layer.states[0].get()))
    assert layer.W.dtype.name == dtype and layer.states[0].dtype == np.float32


@halves
def test_without_master_weights_such_steps_are_lost(be, dtype):
    layer, optimizer = Parameter(be, dtype, np.ones((2, 3))), GDM(2.0**-14, 0.0)
    optimizer.master_weights = False
    for _ in range(20):
        step(be, optimizer, layer, np.ones((2, 3)))
    assert (layer.W.get() == 1).all() and layer.states == []


@halves
@pytest.mark.parametrize("name", EVERY)
def test_every_optimizer_steps_as_one_of_float32_does(be, rng, name, dtype):
    """Gradients are those of 16 bits, and the parameter is the rounded value after each step."""
    optimizer = EVERY[name]()
    layer = Parameter(be, dtype, rng.uniform(-0.6, 0.6, (5, 40)))
    expected, states = layer.W.get().astype(np.float64), [np.zeros((5, 40)) for _ in range(3)]
    for t in range(1, 31):
        step(be, optimizer, layer, rng.normal(size=(5, 40)) * 10.0 ** rng.integers(-3, 1))
        gradient = layer.dW.get().astype(np.float64) / be.bsz
        bound, norm = optimizer.gradient_clip_norm, np.sqrt((gradient**2).sum())
        if optimizer.gradient_clip_value:
            gradient = np.clip(gradient, -optimizer.gradient_clip_value, optimizer.gradient_clip_value)
        if isinstance(optimizer, AdamW):
            expected = decayed(optimizer, expected, gradient, states, t)
        else:
            expected = reference(optimizer, expected, gradient, states, t, bound / max(norm, bound) if bound else 1.0)
        if optimizer.param_clip_value:
            expected = expected.clip(-optimizer.param_clip_value, optimizer.param_clip_value)
        master = layer.states[-1].get()
        np.testing.assert_array_equal(layer.W.get(), rounded(be, dtype, master))
    np.testing.assert_allclose(master, expected, rtol=2e-5, atol=2e-6)
    assert has_master(layer.states) and len(layer.states) == optimizer.number_of_states + 1
    assert all(state.dtype == np.float32 for state in layer.states)


@halves
def test_numbers_of_all_sizes_and_ties_keep_their_master_weights(be, dtype):
    """A step of 0 changes none of them: neither subnormal numbers, nor those half way between two of 16 bits."""
    whole = np.float32([1, 1.5, 2**-14, 2**-13, 6e-8, 3e-5, 65504, 0, 0.1, 255 / 128])
    parts = 0, 2**-8, 2**-9, 2**-11, 2**-12, 3 * 2**-12, 1e-3
    some = np.concatenate([whole * np.float32(1 + part) for part in parts])
    values = np.stack([some, -some])
    values = values[:, np.abs(values[0]) <= 65504]
    layer, optimizer = Parameter(be, dtype, values), GDM(0.5, 0.0)
    step(be, optimizer, layer, np.zeros(values.shape))
    layer.states[0][:] = values
    step(be, optimizer, layer, np.zeros(values.shape))
    np.testing.assert_array_equal(layer.states[0].get(), values)


@halves
@pytest.mark.parametrize("factor", [1 + 2**-7, 1 - 2**-8, 1 + 2**-10, 1 - 2**-11, -1, 0, 3, np.nan, np.inf])
def test_an_update_starts_from_a_parameter_that_something_else_has_set(be, dtype, factor):
    """Also from the next number of 16 bits, above or below."""
    layer, optimizer = Parameter(be, dtype, [[1.0, 0.5, 0.0, 1 + 5 * 2.0**-10]]), GDM(2.0**-14, 0.0)
    step(be, optimizer, layer, np.ones((1, 4)))
    given = rounded(be, dtype, [[factor, 0.5 * factor, 0.25, factor * layer.W.get()[0, 3]]])
    layer.W[:] = given
    exact = layer.states[0].get().astype(np.float64)
    kept = given == rounded(be, dtype, exact)
    step(be, optimizer, layer, np.ones((1, 4)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(layer.states[0].get(), np.float32(np.where(kept, exact, given) - 2.0**-14))
    assert not kept[0, 2]


def test_an_overflow_changes_neither_a_parameter_nor_its_master_weight(be):
    layer, optimizer = Parameter(be, "float16", [[1.0, 2.0]]), LossScaling(GDM(2.0**-14, 0.0), scale=4.0)
    for gradient in (1.0, np.inf, 1.0):
        layer.dW[:] = gradient * be.bsz
        optimizer.scale_errors([layer.dW])
        optimizer.optimize([layer], 0)
    np.testing.assert_array_equal(layer.states[0].get(), np.float32([[1, 2]]) - 2 * 2.0**-14)
    assert optimizer.skipped_steps == 1


@halves
def test_another_optimizer_goes_on_with_master_weights(be, dtype):
    """Also one whose states come before it, and one that has none."""
    layer, expected = Parameter(be, dtype, np.ones((1, 2))), 1.0
    for momentum in (0.0, 0.5, 0.0):
        step(be, GDM(2.0**-14, momentum), layer, np.ones((1, 2)))
        expected -= 2.0**-14
        np.testing.assert_array_equal(layer.states[-1].get(), np.float32(expected))
    velocity = layer.states[0].get()
    np.testing.assert_array_equal(velocity, np.float32(-(2.0**-14)))
    step(be, RMSProp(learning_rate=0.0), layer, np.ones((1, 2)))
    np.testing.assert_array_equal(layer.states[-1].get(), np.float32(expected))
    assert (layer.states[0].get() > 0).all() and len(layer.states) == 2
    off = GDM(2.0**-14, 0.5)
    off.master_weights = False
    step(be, off, layer, np.ones((1, 2)))
    assert len(layer.states) == 1 and not has_master(layer.states)


@pytest.mark.cpu_only("a GPU rounds so")
def test_a_cpu_asked_for_stochastic_rounding_keeps_master_weights(be):
    """It rounds to nearest, whatever an optimizer asks for, and would lose small steps."""
    layer = Parameter(be, "float16", np.ones((1, 2)))
    for _ in range(16):
        step(be, GDM(2.0**-14, 0.0, stochastic_round=5), layer, np.ones((1, 2)))
    assert has_master(layer.states)
    np.testing.assert_array_equal(layer.W.get(), np.float16(1 - 2.0**-10))


def test_stochastic_rounding_of_gpus_takes_the_place_of_master_weights(be, monkeypatch):
    monkeypatch.setattr(type(be), "device_type", 1)
    layer = Parameter(be, "float16", np.ones((1, 2)))
    step(be, GDM(0.1, 0.9, stochastic_round=5), layer, np.ones((1, 2)))
    assert len(layer.states) == 1 and not has_master(layer.states)


@pytest.mark.parametrize("name", EVERY)
def test_parameters_of_float32_have_no_master_weights(be, rng, name):
    """Their results are the same, bit for bit, whether such weights are wanted or not."""
    values, found = rng.uniform(-0.6, 0.6, (5, 40)), []
    gradients = rng.normal(size=(4, 5, 40))
    for wanted in (True, False):
        layer, optimizer = Parameter(be, np.float32, values), EVERY[name]()
        optimizer.master_weights = wanted
        for gradient in gradients:
            step(be, optimizer, layer, gradient)
        found.append([tensor.get() for tensor in (layer.W, *layer.states)])
        assert len(layer.states) == optimizer.number_of_states
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


# -- networks --------------------------------------------------------------------------------------------------


def network(be: Any, dtype: Any) -> Model:
    be.default_dtype = dtype
    be.rng_reset()
    init = GlorotUniform()
    hidden = Affine(8, init, bias=Constant(0), activation=Rectlin())
    return Model([hidden, BatchNorm(), Affine(3, init, activation=Softmax())])


def fit(model: Model, optimizer: Any, epochs: int) -> None:
    rng = np.random.default_rng(0)
    data = ArrayIterator(rng.normal(size=(64, 5)), rng.integers(3, size=64), nclass=3)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, epochs)


def numbers(model: Model) -> list[np.ndarray]:
    """Parameters and states."""
    entries = get_param_list(model.layers_to_optimize)
    return [tensor.get() for (param, _), states in entries for tensor in (param, *states)]


def halves_have_masters(model: Model) -> bool:
    """Whether parameters of 16 bits have master weights; those of BatchNorm are of float32, and have none."""
    entries = get_param_list(model.layers_to_optimize)
    assert {param.dtype.itemsize for (param, _), _ in entries} == {2, 4}
    return all(has_master(states) == (param.dtype.itemsize == 2) for (param, _), states in entries)


@pytest.mark.compiles(4, "momentum-bfloat16", "scaled-float16", "accumulated-bfloat16", "several-bfloat16")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["plain", "momentum", "adamw", "shift", "scaled", "accumulated", "several"])
def test_a_saved_training_goes_on_bit_for_bit(be, tmp_path, name, dtype):
    whole = network(be, dtype)
    fit(whole, MADE[name](), 4)
    half = network(be, dtype)
    optimizer = MADE[name]()
    fit(half, optimizer, 2)
    assert halves_have_masters(half)
    path = str(tmp_path / "half.prm")
    half.save_params(path, keep_states=True)
    loaded = Model(path)
    assert halves_have_masters(loaded)
    fit(loaded, MADE[name](), 4)
    for one, other in zip(numbers(whole), numbers(loaded), strict=True):
        np.testing.assert_array_equal(one, other)


def test_states_saved_without_master_weights_are_loaded(be):
    """As those of files from before there were such weights: they begin as the parameters are."""
    model, optimizer = network(be, "bfloat16"), GDM(0.1, 0.9)
    optimizer.master_weights = False
    fit(model, optimizer, 2)
    saved = model.serialize()
    assert "masters" not in saved["model"]["config"]["layers"][0]
    before, loaded = numbers(model), Model(saved)
    for one, other in zip(before, numbers(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    fit(loaded, GDM(1e-6, 0.9), 3)
    assert halves_have_masters(loaded)
    for (param, _), states in get_param_list(loaded.layers_to_optimize):
        if has_master(states):
            np.testing.assert_array_equal(param.get(), states[-1].get().astype(param.dtype))


def test_a_damaged_description_of_master_weights_is_refused(be):
    model = network(be, "bfloat16")
    fit(model, GDM(0.1, 0.9), 1)
    saved = model.serialize()
    first = saved["model"]["config"]["layers"][0]
    assert first["masters"] is True
    for given in ("yes", [True, False], None, [1]):
        damaged = copy.deepcopy(saved)
        damaged["model"]["config"]["layers"][0]["masters"] = given
        with pytest.raises(ArgumentError, match="masters"):
            Model(damaged)


def test_a_network_of_float32_drops_the_master_weights_of_a_file(be):
    """Parameters of float32 have no use for them, and are those of the file."""
    model = network(be, "bfloat16")
    fit(model, GDM(0.1, 0.9), 1)
    be.default_dtype = np.float32
    loaded = Model(model.serialize())
    fit(loaded, GDM(0.1, 0.9), 2)
    assert not any(has_master(states) for _, states in get_param_list(loaded.layers_to_optimize))
    assert all(len(states) == 1 for _, states in get_param_list(loaded.layers_to_optimize))


RANKS = """
import numpy as np
from neonlike.backends import gen_backend
from neonlike.optimizers import get_param_list
from tests.optimizers.test_master_weights import GDM, fit, halves_have_masters, network, numbers

be = gen_backend("cpu", batch_size=16, rng_seed=1)
found = []
for changed in False, True:
    model, optimizer = network(be, "bfloat16"), GDM(2.0**-12, 0.9)
    fit(model, optimizer, 1)
    assert halves_have_masters(model)
    if changed and be.rank:
        for _, states in get_param_list(model.layers_to_optimize):
            states[-1][:] = 0.999 * states[-1]
    fit(model, optimizer, 2)
    found.append(b"".join(one.tobytes() for one in numbers(model)))
    told = be.ranks.tell(found[-1])
    assert all(other == told[0] for other in told), "ranks differ"
assert found[0] == found[1], "a rank went on with master weights of its own"
print("equal")
"""


def test_ranks_begin_with_the_same_master_weights() -> None:
    done = run_ranks(2, RANKS, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"


@pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle())
def test_repeated_passes_and_steps_update_as_played_ones_do(fast, monkeypatch):  # noqa: F811
    """Another optimizer on the way takes over the master weights."""
    fast.bsz, found = 16, []
    for repeated in (True, False):
        if not repeated:
            monkeypatch.setattr(replays, "_may_record", lambda be: False)
        model, first = network(fast, "bfloat16"), GDM(1e-3, 0.9)
        fit(model, first, 4)
        assert bool(first._found.guard and first._found.guard.program.hits) == repeated
        fit(model, Adam(), 8)
        found.append(numbers(model))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
