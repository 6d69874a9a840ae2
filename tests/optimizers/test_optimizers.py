"""Optimizers against worked numbers and against plain NumPy loops in float64."""

from __future__ import annotations

import copy
import gc
import math
import weakref

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers import Activation
from neonlike.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    ExpSchedule,
    GradientDescentMomentum,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
)
from neonlike.optimizers.base import MOST_STEPS
from neonlike.optimizers.optimizer import Optimizer, get_param_list
from neonlike.optimizers.states import complete_states
from neonlike.transforms import Tanh

GDM = GradientDescentMomentum


class Layer:
    """The one thing an optimizer asks of a layer."""

    def __init__(self, be, param, grad=None, name="layer"):
        self.name = name
        self.W = be.array(np.atleast_2d(np.asarray(param, dtype=np.float64)))
        self.dW = be.array(np.atleast_2d(np.asarray(param if grad is None else grad, dtype=np.float64)))
        self.states = []

    def get_params(self):
        return (self.W, self.dW), self.states


class Other(Layer):
    """Another class of layer."""


@pytest.mark.parametrize(
    ("optimizer", "expected", "state"),
    [
        (GDM(0.1, 0, wdecay=0.01), [0.899, 0.798101, 0.6973028], None),
        (GDM(0.1, 0.9, wdecay=0.01), [0.899, 0.707201, 0.4338747], -0.273326),
        (GDM(0.1, 0.9, nesterov=True), [0.81, 0.539, 0.1951], -0.271),
        (GDM(0.1, 0.9, gradient_clip_norm=0.5), [0.95, 0.855, 0.7195], None),
        (GDM(0.1, 0.9, gradient_clip_value=0.25), [0.975, 0.9275, 0.85975], None),
        (RMSProp(), [0.9910558, 0.9846508, 0.979355], 0.142625),
        (Adagrad(), [0.99, 0.9829289, 0.9771554], 3),
        (Adadelta(), [0.9955279, 0.9909989, 0.9864312], None),
        (Adam(), [0.999, 0.998, 0.997], None),
        (ShiftAdaMax(), [0.9984375, 0.9969531, 0.9948359], None),
    ],
    ids=lambda value: value.name if isinstance(value, Optimizer) else "",
)
def test_worked_numbers(be, optimizer, expected, state):
    be.bsz = 2
    layer = Layer(be, 1.0, 2.0)
    got = []
    for epoch in range(3):
        optimizer.optimize([layer], epoch)
        got.append(layer.W.get().item())
    np.testing.assert_allclose(got, expected, atol=2e-6)
    if state is not None:
        np.testing.assert_allclose(layer.states[0].get().item(), state, atol=2e-6)
    assert layer.dW.get().item() == 2.0, "the gradient is only read"


def reference(optimizer, p, g, states, t, s):
    """One step of an optimizer in NumPy; g is the mean gradient after value clipping, s the norm factor."""
    o = optimizer
    if isinstance(o, GDM):
        G = s * g + o.wdecay * p
        if o.momentum_coef == 0:
            return p - o.learning_rate * G
        states[0] = o.momentum_coef * states[0] - o.learning_rate * G
        return p + (o.momentum_coef * states[0] - o.learning_rate * G if o.nesterov else states[0])
    if isinstance(o, RMSProp):
        states[0] = o.decay_rate * states[0] + (1 - o.decay_rate) * g**2
        return p - s * g * o.learning_rate / (np.sqrt(states[0] + o.epsilon) + o.epsilon)
    if isinstance(o, Adagrad):
        states[0] = states[0] + g**2
        return p - s * g * o.learning_rate / np.sqrt(states[0] + o.epsilon)
    if isinstance(o, Adadelta):
        states[0] = o.decay * states[0] + (1 - o.decay) * g**2
        states[2] = np.sqrt((states[1] + o.epsilon) / (states[0] + o.epsilon)) * g
        states[1] = o.decay * states[1] + (1 - o.decay) * states[2] ** 2
        return p - states[2]
    if isinstance(o, Adam):
        rate = o.learning_rate * math.sqrt(1 - o.beta_2**t) / (1 - o.beta_1**t)
        states[0] = o.beta_1 * states[0] + (1 - o.beta_1) * g
        states[1] = o.beta_2 * states[1] + (1 - o.beta_2) * g**2
        return p - s * rate * states[0] / (np.sqrt(states[1]) + o.epsilon)
    rate = o.learning_rate / (1 - o.beta_1)  # ShiftAdaMax in epoch 0
    states[0] = o.beta_1 * states[0] + (1 - o.beta_1) * g
    states[1] = np.maximum(o.beta_2 * states[1], np.abs(g))
    states[2] = 1 / (states[1] + o.epsilon)
    return np.clip(p - shift(shift(states[0], states[2]), rate), -1, 1)


def shift(a, b):
    return a * np.sign(b) * 2.0 ** np.rint(np.log2(np.abs(b)))


EVERY = [
    GDM(0.1, 0), GDM(0.1, 0, wdecay=0.1), GDM(0.1, 0.9), GDM(0.1, 0.9, wdecay=0.1),
    GDM(0.1, 0.9, nesterov=True, wdecay=0.1), GDM(0.1, 0.9, gradient_clip_norm=0.3),
    GDM(0.1, 0.9, gradient_clip_value=0.2), GDM(0.1, 0.9, gradient_clip_norm=0.3, gradient_clip_value=0.2),
    GDM(0.1, 0.9, param_clip_value=0.5), RMSProp(), RMSProp(gradient_clip_norm=0.3, param_clip_value=0.5),
    Adagrad(), Adagrad(gradient_clip_value=0.2), Adadelta(), Adadelta(param_clip_value=0.5),
    Adam(), Adam(gradient_clip_norm=0.3), ShiftAdaMax(),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", EVERY, ids=lambda optimizer: optimizer.name)
def test_steps_agree_with_numpy(be64, optimizer, rng):
    be64.bsz = 4
    if isinstance(optimizer, Adam):
        optimizer.t = 0
    shapes = [(3, 5), (3, 1), (7, 3)]
    params = [rng.uniform(-1, 1, shape) for shape in shapes]
    layers = [Layer(be64, p) for p in params]
    states = [[np.zeros_like(p) for _ in range(3)] for p in params]
    for t in range(1, 5):
        grads = [rng.normal(size=shape) for shape in shapes]
        for layer, grad in zip(layers, grads, strict=True):
            layer.dW[:] = grad
        optimizer.optimize(layers, 0)
        norm = math.sqrt(sum((g**2).sum() for g in grads)) / 4
        bound = optimizer.gradient_clip_norm
        s = bound / max(norm, bound) if bound else 1.0
        for i, grad in enumerate(grads):
            g = grad / 4
            if optimizer.gradient_clip_value:
                g = np.clip(g, -optimizer.gradient_clip_value, optimizer.gradient_clip_value)
            params[i] = reference(optimizer, params[i], g, states[i], t, s)
            if optimizer.param_clip_value:
                params[i] = np.clip(params[i], -optimizer.param_clip_value, optimizer.param_clip_value)
    for layer, p, s in zip(layers, params, states, strict=True):
        np.testing.assert_allclose(layer.W.get(), p, rtol=1e-9, atol=1e-12)
        for tensor, array in zip(layer.states, s, strict=False):
            np.testing.assert_allclose(tensor.get(), array, rtol=1e-9, atol=1e-12)
        assert len(layer.states) == optimizer.number_of_states


def test_states_are_added_to_the_layers_own_list_and_kept(be):
    layer = Layer(be, [[1.0, 2.0]])
    states = layer.states
    optimizer = GDM(0.1, 0.9)
    optimizer.optimize([layer], 0)
    first = states[0]
    optimizer.optimize([layer], 0)
    assert layer.states is states and states[0] is first and first.shape == (1, 2)


def test_rounding_is_set_on_the_parameters(be):
    layer = Layer(be, 1.0)
    GDM(0.1, 0.0, stochastic_round=5).optimize([layer], 0)
    assert layer.W.rounding == 5


def test_the_schedule_sets_the_rate(be):
    be.bsz = 1
    layer = Layer(be, 1.0, 1.0)
    optimizer = GDM(1.0, 0.0, schedule=ExpSchedule(1.0))
    optimizer.optimize([layer], 3)
    assert layer.W.get().item() == pytest.approx(0.75)


def test_defect_35_plain_gradient_descent_clips_parameters(be):
    be.bsz = 1
    layer = Layer(be, [[1.0, -1.0, 0.1]], [[-1.0, 1.0, 0.0]])
    GDM(0.5, 0.0, param_clip_value=1.2).optimize([layer], 0)
    np.testing.assert_allclose(layer.W.get(), [[1.2, -1.2, 0.1]], rtol=1e-6)


def test_get_param_list_takes_tuples_and_lists(be):
    one, two = Layer(be, 1.0), Layer(be, 2.0)

    class Several:
        def get_params(self):
            return [one.get_params(), two.get_params()]

    listed = get_param_list([one, Several()])
    assert all(entry[0][0] is W for entry, W in zip(listed, [one.W, one.W, two.W], strict=True))
    assert listed[2][1] is two.states


def test_clip_functions(be):
    be.bsz = 2
    optimizer = GDM(0.1, 0.0)
    params = get_param_list([Layer(be, 0.0, 3.0), Layer(be, 0.0, 4.0)])
    assert optimizer.clip_gradient_norm(params, None) == 1
    assert optimizer.clip_gradient_norm(params, 0) == 1
    assert optimizer.clip_gradient_norm(params, 10.0) == pytest.approx(1.0)
    assert optimizer.clip_gradient_norm(params, 0.5) == pytest.approx(0.5 / 2.5)
    v = be.array(np.array([[-3.0, 0.1, 3.0]]))
    out = be.empty((1, 3))
    out[:] = optimizer.clip_value(v, -2.0)
    np.testing.assert_allclose(out.get(), [[-2.0, 0.1, 2.0]], rtol=1e-6)
    assert optimizer.clip_value(v, None) is v and optimizer.clip_value(v) is v


@pytest.mark.parametrize("value", [3e-4, 300.0, 2000.0])
def test_the_norm_of_many_gradients_is_no_half(be, value):
    be = gen_backend(be.backend_name, batch_size=1, datatype=np.float16)
    layer = Layer(be, np.zeros((200, 200)), np.full((200, 200), value))
    norm = 200 * float(np.float16(value))
    factor = GDM(0.1, 0.0).clip_gradient_norm(get_param_list([layer]), 1e-3)
    assert factor == pytest.approx(1e-3 / norm, rel=1e-6)


def test_adam_counts_its_steps(be):
    optimizer, layers = Adam(), [Layer(be, 1.0)]
    for _ in range(3):
        optimizer.optimize(layers, 0)
    assert optimizer.t == 3
    optimizer.optimize([Layer(be, 1.0)], 0)
    assert optimizer.t == 1  # of other parameters


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match="nesterov"):
        GDM(0.1, 0.0, nesterov=True)


@pytest.mark.parametrize("schedule", [0.1, ExpSchedule, None])
@pytest.mark.parametrize("optimizer", [lambda **kwargs: GDM(0.1, 0.9, **kwargs), RMSProp, ShiftAdaMax, AdamW])
def test_a_schedule_must_be_an_object(optimizer, schedule):
    with pytest.raises(DTypeError, match=r"schedule.*Schedule\("):
        optimizer(schedule=schedule)


def test_a_missing_batch_size_is_reported(be):
    be.bsz = 0
    layer = Layer(be, 1.0)
    with pytest.raises(ArgumentError, match="batch size"):
        GDM(0.1, 0.9).optimize([layer], 0)
    assert layer.W.get().item() == 1.0 and layer.states == []


class TestMultiOptimizer:
    """The choice of an optimizer for each layer."""

    def test_a_name_beats_a_class_and_a_class_beats_the_default(self, be):
        be.bsz = 1
        layers = [Layer(be, 1.0, name="a"), Other(be, 1.0, name="b"), Other(be, 1.0, name="c")]
        multi = MultiOptimizer({"default": GDM(0.1, 0), "Other": GDM(0.2, 0), "c": GDM(0.3, 0)})
        multi.optimize(layers, 0)
        assert [layer.W.get().item() for layer in layers] == pytest.approx([0.9, 0.8, 0.7])

    def test_a_class_name_does_not_stand_for_subclasses(self, be):
        be.bsz = 1
        layer = Other(be, 1.0, name="b")
        MultiOptimizer({"default": GDM(0.1, 0), "Layer": GDM(0.2, 0)}).optimize([layer], 0)
        assert layer.W.get().item() == pytest.approx(0.9)

    def test_the_choice_is_cached_and_can_be_reset(self, be):
        be.bsz = 1
        layers = [Layer(be, 1.0)]
        multi = MultiOptimizer({"default": GDM(0.1, 0)})
        multi.optimize(layers, 0)
        multi.optimize(layers, 0)
        assert list(multi.map_list) == [id(layers)]
        default = multi.optimizer_mapping["default"]
        assert multi.map_list[id(layers)] == {default: layers} and multi.map_list[default] == layers
        with pytest.raises(KeyError):
            multi.map_list[GDM(0.1, 0)]
        multi._reset_mapping({"default": GDM(0.5, 0)})
        multi.optimize(layers, 0)
        assert layers[0].W.get().item() == pytest.approx(1 - 0.1 - 0.1 - 0.5)

    def test_layers_without_parameters_can_be_mapped_too(self, be):
        default, other = GDM(0.1, 0), GDM(0.2, 0)
        layers = [Layer(be, 1.0, name="a"), Activation(Tanh())]
        multi = MultiOptimizer({"default": default, "Activation": other})
        assert multi._map_optimizers(layers) == {default: layers[:1], other: layers[1:]}

    def test_another_list_at_the_same_address_is_noticed(self, be):
        be.bsz = 1
        layers = [Layer(be, 1.0, name="a")]
        multi = MultiOptimizer({"default": GDM(0.1, 0), "b": GDM(0.2, 0)})
        multi.optimize(layers, 0)
        layers[0] = Layer(be, 1.0, name="b")
        multi.optimize(layers, 0)
        assert layers[0].W.get().item() == pytest.approx(0.8)

    def test_a_mapping_and_names_that_are_written_count_at_once(self, be):
        be.bsz = 1
        layers = [Layer(be, 1.0, name="a")]
        multi = MultiOptimizer({"default": GDM(0.1, 0)})
        multi.optimize(layers, 0)
        multi.optimizer_mapping["default"] = GDM(0.2, 0)
        multi.optimize(layers, 0)
        multi.optimizer_mapping["b"] = GDM(0.3, 0)
        multi.optimize(layers, 0)
        layers[0].name = "b"
        multi.optimize(layers, 0)
        assert layers[0].W.get().item() == pytest.approx(1 - 0.1 - 0.2 - 0.2 - 0.3)

    def test_layers_that_nobody_else_has_are_let_go(self, be):
        be.bsz = 1
        multi = MultiOptimizer({"default": GDM(0.1, 0)})
        lists = [[Layer(be, 1.0)] for _ in range(2 * MOST_STEPS)]
        first = weakref.ref(lists[0][0])
        for layers in lists:
            multi.optimize(layers, 0)
        multi.optimizer_mapping["other"] = GDM(0.2, 0)
        multi.optimize(lists[-2], 0)
        assert multi.map_list[multi.optimizer_mapping["default"]] == lists[-2], "the list that was mapped last"
        del lists, layers
        gc.collect()
        assert first() is None

    def test_the_mapping_is_checked(self, be):
        with pytest.raises(AssertionError, match="default"):
            MultiOptimizer({"Linear": GDM(0.1, 0)})
        with pytest.raises(DTypeError, match="'default'"):
            MultiOptimizer({"default": 0.1})


def bits(layers):
    """Every bit of parameters and states."""
    return b"".join(tensor.get().tobytes() for layer in layers for tensor in (layer.W, *layer.states))


class TestPreparedStep:
    """A step is planned once, and computes its formulas bit for bit."""

    @pytest.mark.engines("numpy", "c")
    @pytest.mark.parametrize(
        ("optimizer", "dtype"),
        [(EVERY[7], np.float32), (EVERY[10], np.float32), (EVERY[10], np.float16), (EVERY[13], "bfloat16"),
         (EVERY[16], np.float16), (EVERY[16], np.float32)],
        ids=lambda value: getattr(value, "name", str(value)),
    )  # fmt: skip
    def test_numbers_in_tensors_act_as_numbers(self, be, dtype, optimizer, rng):
        be = gen_backend(be.backend_name, batch_size=4, datatype=dtype)
        optimizer = copy.deepcopy(optimizer)
        if isinstance(optimizer, Adam):
            optimizer.t = 0  # of other parameters, in other tests
        shapes = [(3, 5), (7, 1)]
        values = [rng.uniform(-1, 1, shape) for shape in shapes]
        prepared, plain = ([Layer(be, value) for value in values] for _ in range(2))
        complete_states(be, get_param_list(plain), type(optimizer), optimizer.number_of_states, masters=True)
        for step in range(3):
            grads = [rng.normal(size=shape) for shape in shapes]
            for layers in (prepared, plain):
                for layer, grad in zip(layers, grads, strict=True):
                    layer.dW[:] = grad
            scale = optimizer.clip_gradient_norm(get_param_list(plain), optimizer.gradient_clip_norm)
            numbers = copy.copy(optimizer)._numbers(scale, step)
            optimizer.optimize(prepared, step)
            for (param, grad), states in get_param_list(plain):
                be.assign_many(optimizer._assignments(param, grad, states, *numbers))
        assert bits(prepared) == bits(plain)

    def test_it_is_planned_once(self, be, monkeypatch):
        be.bsz = 2
        layers = [Layer(be, np.ones(shape)) for shape in ((3, 2), (3, 1))]
        optimizer = Adam(gradient_clip_norm=1.0)
        optimizer.optimize(layers, 0)
        calls = []
        monkeypatch.setattr(be, "prepare", lambda *args: calls.append(args))
        monkeypatch.setattr(be, "assign_many", lambda pairs: calls.append(pairs))
        before = bits(layers)
        optimizer.optimize(layers, 1)
        assert not calls and bits(layers) != before

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda be, optimizer, layer: setattr(optimizer, "momentum_coef", 0.5), 1 - 0.1 - (0.5 * 0.1 + 0.1)),
            (lambda be, optimizer, layer: setattr(optimizer, "learning_rate", 0.2), 1 - 0.1 - (0.9 * 0.1 + 0.2)),
            (lambda be, optimizer, layer: setattr(optimizer, "param_clip_value", 0.5), 0.5),
            (lambda be, optimizer, layer: setattr(be, "bsz", 4), 1 - 0.1 - (0.9 * 0.1 + 0.05)),
            (lambda be, optimizer, layer: layer.states.clear(), 1 - 0.1 - 0.1),
            (lambda be, optimizer, layer: setattr(layer, "dW", be.array([[4.0]])), 1 - 0.1 - (0.9 * 0.1 + 0.2)),
        ],
    )
    def test_what_changes_is_noticed(self, be, change, expected):
        be.bsz = 2
        layer, optimizer = Layer(be, 1.0, 2.0), GDM(0.1, 0.9)
        optimizer.optimize([layer], 0)
        change(be, optimizer, layer)
        optimizer.optimize([layer], 0)
        assert layer.W.get().item() == pytest.approx(expected)

    def test_tied_parameters_are_updated_by_each_gradient(self, be):
        be.bsz = 1
        one, two = Layer(be, 1.0, 1.0), Layer(be, 1.0, 2.0)
        two.W = one.W
        optimizer = GDM(0.1, 0.0, wdecay=1.0)
        optimizer.optimize([one, two], 0)
        assert one.W.get().item() == pytest.approx(0.8 - 0.1 * (2 + 0.8))

    def test_parameters_made_anew_leave_no_steps_behind(self, be):
        be.bsz = 1
        optimizer = GDM(np.float32(0.1), np.array(0.9), gradient_clip_norm=1.0)
        for _ in range(20):
            optimizer.optimize([Layer(be, 1.0)], 0)
        assert len(optimizer._steps) == len(optimizer._norms) == MOST_STEPS
        assert not copy.deepcopy(optimizer)._steps


@pytest.mark.parametrize("clip", [None, 0.3])
def test_adamw_agrees_with_its_paper(be64, rng, clip):
    be64.bsz = 4
    optimizer = AdamW(learning_rate=0.01, wdecay=0.1, gradient_clip_norm=clip, schedule=ExpSchedule(0.5))
    p, m, v = rng.uniform(-1, 1, (3, 5)), 0.0, 0.0
    layer = Layer(be64, p)
    for t in range(1, 5):
        layer.dW[:] = grad = rng.normal(size=p.shape)
        optimizer.optimize([layer], t - 1)
        g = grad / 4
        g = g * clip / max(np.linalg.norm(g), clip) if clip else g
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        rate = 0.01 / (1 + 0.5 * (t - 1))
        p = p - rate * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.1 * p)
        np.testing.assert_allclose(layer.W.get(), p, rtol=1e-9)
    assert optimizer.t == 4 and optimizer.get_description()["config"]["wdecay"] == 0.1
