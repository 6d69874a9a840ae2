"""Recurrent blueprints against the layers' loops in float64 NumPy, and gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.recurrent import BiLSTM, BiRNN
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import Logistic, Tanh
from tests.layers.blueprint.blueprinted import check_gradients, filled, run
from tests.support.differences import slope
from tests.support.float64.recurrent_loops import Loop
from tests.support.numbers import close

pytestmark = pytest.mark.engines("numpy", "c")

F, T, N, UNITS = 4, 5, 3, 6


def flat(tensor: Any) -> Any:
    values = tensor.get()
    return values.reshape(values.shape[0], -1)


def cell_of(layer: Any, level: int) -> Any:
    """Weights and bias of a level, as the loops take them."""
    return np.concatenate([layer.weights[level].get(), layer.bias[level].get()])


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cell", ["lstm", "tanh", "gru"])
def test_an_rnn(be64: Backend, cell: str) -> None:
    """Two layers: outputs, gradients of parameters, and the gradient at the input of the first."""
    bp = be64.blueprints.rnn_op((F, T, N), UNITS, cell, layers=2)
    assert bp.inf_desc.shape == bp.diff_desc.shape == (UNITS, T, N)
    layer = run(filled(bp.build(), scale=0.5))
    kind, zero = {"tanh": "rnn"}.get(cell, cell), np.zeros((UNITS, N))
    first = Loop(kind, cell_of(layer, 0), flat(layer.input), T, zero)
    second = Loop(kind, cell_of(layer, 1), first.outputs, T, zero)
    close(flat(layer.output), second.outputs)
    of_second = second.backward(flat(layer.diff_output))
    of_first = first.backward(of_second["deltas"])
    close(flat(layer.diff_input), of_first["deltas"])
    for level, wanted in enumerate((of_first, of_second)):
        close(layer.diff_weights[level], wanted["dW"][:-1])
        close(layer.diff_bias[level], wanted["dW"][-1:])
    gates = {"tanh": 1, "lstm": 4, "gru": 3}[cell]
    assert [desc.shape for desc in bp.weights_desc] == [w.shape for w in layer.weights]
    assert [desc.shape for desc in bp.bias_desc] == [b.shape for b in layer.bias]
    assert [w.shape for w in layer.weights_layer] == [(gates * UNITS, F), (gates * UNITS, UNITS)]
    assert [w.shape for w in layer.weights_iter] == [(gates * UNITS, UNITS)] * 2
    assert [b.shape for b in layer.bias_layer] == [(gates * UNITS, 1)] * 2 and layer.bias_iter == ()


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cell", ["lstm", "tanh"])
@pytest.mark.parametrize("direction", ["bidirectional_concat", "bidirectional_sum"])
def test_an_rnn_in_both_directions(be64: Backend, cell: str, direction: str) -> None:
    """As the bidirectional layers that there are, whose outputs lie side by side or are added up."""
    bp = be64.blueprints.rnn_op((F, T, N), UNITS, cell, direction)
    layer = run(filled(bp.build(), scale=0.5))
    be64.bsz = N
    units = UNITS // 2 if direction == "bidirectional_concat" else UNITS
    reference = (
        BiRNN(units, cell_of(layer, 0), activation=Tanh(), reset_cells=True)
        if cell == "tanh"
        else BiLSTM(units, cell_of(layer, 0), activation=Tanh(), gate_activation=Logistic(), reset_cells=True)
    )
    reference.configure((F, T))
    reference.allocate()
    reference.deltas = be64.empty((F, T * N))
    y, error = reference.fprop(be64.array(flat(layer.input))).get(), flat(layer.diff_output)
    if direction == "bidirectional_sum":
        y, error = y[:units] + y[units:], np.concatenate([error, error])
    close(flat(layer.output), y)
    close(flat(layer.diff_input), reference.bprop(be64.array(error)))
    close(layer.diff_weights[0], reference.dW.get()[:-2])
    assert (bp.weights_desc[0].shape, bp.bias_desc[0].shape) == (layer.weights[0].shape, layer.bias[0].shape)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cell", ["gru", "lstm", "tanh"])
@pytest.mark.parametrize("direction", ["bidirectional_concat", "bidirectional_sum"])
def test_both_directions_of_any_cell_from_given_states(be64: Backend, cell: str, direction: str) -> None:
    """As two loops, of which one reads the steps in reverse."""
    bp = be64.blueprints.rnn_op((F, T, N), UNITS, cell, direction, src_iter=True, dst_iter=True)
    layer = filled(bp.build(train=False), scale=0.5)
    units = UNITS // 2 if direction == "bidirectional_concat" else UNITS
    count = 2 if cell == "lstm" else 1
    rng = np.random.default_rng(3)
    for state in layer.src_iter[0]:
        state.set(rng.normal(size=(units, N)))
    layer()
    outputs = []
    for way, turn in enumerate((slice(None), slice(None, None, -1))):
        parts = layer.weights_layer[way], layer.weights_iter[way], layer.bias_layer[way]
        W = np.concatenate([part.get().reshape(-1, parts[0].shape[0]) for part in parts])
        mine = slice(way * count, (way + 1) * count)
        begin = [state.get() for state in layer.src_iter[0][mine]]
        loop = Loop({"tanh": "rnn"}.get(cell, cell), W, layer.input.get()[:, turn].reshape(F, -1), T, *begin)
        outputs.append(loop.outputs.reshape(units, T, N)[:, turn])
        for state, wanted in zip(layer.dst_iter[0][mine], (loop.h[-1], loop.c[-1])):
            close(state, wanted)
    close(layer.output, np.concatenate(outputs) if direction == "bidirectional_concat" else sum(outputs))


@pytest.mark.compiles(1)
@pytest.mark.parametrize(
    ("cell", "direction"),
    [("tanh", "unidirectional"), ("tanh", "bidirectional_sum"), ("gru", "bidirectional_concat")],
)
def test_gradients_of_two_layers(be64: Backend, cell: str, direction: str) -> None:
    layer = filled(be64.blueprints.rnn((F, T, N), UNITS, 2, cell, direction=direction).build(), scale=0.5)
    check_gradients(layer)


@pytest.mark.compiles(1)
@pytest.mark.parametrize(
    ("cell", "direction"),
    [("lstm", "unidirectional"), ("gru", "unidirectional"), ("lstm", "bidirectional_sum"),
     ("tanh", "bidirectional_concat"), ("gru", "bidirectional_concat")],
)  # fmt: skip
def test_gradients_by_the_states(be64: Backend, cell: str, direction: str) -> None:
    """Those given and those handed out are inputs and outputs like others, of two layers in both directions."""
    bp = be64.blueprints.rnn((F, 2, N), UNITS, 2, cell, direction=direction, src_iter=True, dst_iter=True)
    layer = filled(bp.build(), scale=0.5)
    rng = np.random.default_rng(3)
    begins = [state for states in layer.src_iter for state in states]
    errors = [error for of_one in layer.diff_dst_iter for error in of_one]
    for state in (*begins, *errors):
        state.set(rng.normal(size=state.shape))
    weights = [one.get().copy() for one in (layer.diff_output, *errors)]

    def loss() -> float:
        layer.forward()
        ends = [layer.output, *(state for states in layer.dst_iter for state in states)]
        return float(sum((end.get() * weight).sum() for end, weight in zip(ends, weights)))

    run(layer)
    pairs = [(layer.input, layer.diff_input), *zip(begins, (e for of_one in layer.diff_src_iter for e in of_one))]
    pairs += [*zip(layer.weights, layer.diff_weights), *zip(layer.bias, layer.diff_bias)]
    assert len(pairs) == 1 + len(begins) + 4 and len(begins) == len(errors)
    for tensor, gradient in [(tensor, gradient.get().copy()) for tensor, gradient in pairs]:
        towards = rng.normal(size=tensor.shape)
        close((gradient * towards).sum(), slope(loss, tensor, towards), 1e-6)
    assert [desc.shape for desc in (*bp.weights_desc, *bp.bias_desc)] == [one.shape for one in layer.parameters]
    before = [one.get().copy() for one in layer.parameters]
    layer.backward(GradientDescentMomentum(0.5, 0.0))
    for one, old, gradient in zip(layer.parameters, before, (*layer.diff_weights, *layer.diff_bias)):
        close(one, old - 0.5 / N * gradient.get())


@pytest.mark.compiles(1)
@pytest.mark.parametrize("cell", ["tanh", "lstm"])
def test_states_come_in_and_go_out(be64: Backend, cell: str) -> None:
    """A sequence in two parts is the whole one: outputs, and gradients by way of the states between."""
    make = be64.blueprints.rnn_op
    whole = filled(make((F, 4, N), UNITS, cell).build(), scale=0.5)
    first = make((F, 2, N), UNITS, cell, dst_iter=True).build()
    second = make((F, 2, N), UNITS, cell, src_iter=True).build()
    for part, steps in ((first, slice(0, 2)), (second, slice(2, 4))):
        part.weights[0][:], part.bias[0][:] = whole.weights[0], whole.bias[0]
        part.input[:], part.diff_output[:] = whole.input[:, steps], whole.diff_output[:, steps]
    run(whole)
    first.forward()
    for given, state in zip(second.src_iter[0], first.dst_iter[0]):
        given[:] = state
    second.forward()
    close(np.concatenate([first.output.get(), second.output.get()], axis=1), whole.output)
    second.backward()
    close(second.diff_input, whole.diff_input.get()[:, 2:])
    for given, error in zip(first.diff_dst_iter[0], second.diff_src_iter[0]):
        given[:] = error
    first.backward()
    close(first.diff_input, whole.diff_input.get()[:, :2])
    close(first.diff_weights[0].get() + second.diff_weights[0].get(), whole.diff_weights[0])
    assert len(second.src_iter[0]) == len(second.diff_src_iter[0]) == {"tanh": 1, "lstm": 2}[cell]


def test_the_linear_part_with_its_scalars(be64: Backend) -> None:
    layer = run(filled(be64.blueprints.rnn_op((F, T, N), UNITS, layers=2).build(), scale=0.5))
    before = [t.get().copy() for t in (*layer.diff_weights, *layer.diff_bias, *layer.bias)]
    layer.backward_diff(-0.5, 0.25, 2.0, 3.0)
    for level in range(2):
        close(layer.diff_weights[level], -0.25 * before[level])
        close(layer.bias[level], 2 * before[2 + level] + 3 * before[4 + level])
    layer.backward_diff(3.0, 0.0, 0.0, 1.0)
    close(layer.diff_weights[0], 3 * before[0])


def test_an_optimizer_and_the_initial_values(be64: Backend) -> None:
    layer = be64.blueprints.rnn((F, T, N), UNITS).build()
    layer.init(lambda tensor: tensor.fill(0.25), bias=lambda tensor: tensor.fill(-1))
    assert (layer.weights[0].get() == 0.25).all() and (layer.bias[0].get() == -1).all()
    layer.input.fill(1)
    layer.diff_output.fill(1)
    layer.forward()
    layer.backward(GradientDescentMomentum(0.5, 0.0))
    close(layer.weights[0], 0.25 - 0.5 / N * layer.diff_weights[0].get())
    close(layer.bias[0], -1 - 0.5 / N * layer.diff_bias[0].get())


def test_the_error_that_is_given_stays(be64: Backend) -> None:
    """Recurrent layers overwrite their error; they get a copy in the workspace."""
    layer = filled(be64.blueprints.rnn((F, T, N), UNITS, 2).build(), scale=0.5)
    error = layer.diff_output.get().copy()
    run(layer)
    np.testing.assert_array_equal(layer.diff_output.get(), error)


def test_the_last_step_of_a_sequence(be64: Backend) -> None:
    bp = be64.blueprints.abbreviate((F, T, N), dst_type="float32")
    layer = run(filled(bp.build()))
    assert bp.inf_desc.shape == (F, N) and layer.output.dtype == np.float32
    close(layer.output, layer.input.get()[:, -1].astype(np.float32))
    wanted = np.zeros((F, T, N))
    wanted[:, -1] = layer.diff_output.get()
    close(layer.diff_input, wanted)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((F, N), UNITS), ShapeError, r"rnn_op: needs sequences \(features, steps, N\), got \(4, 3\)"),
        (((F, T, N), (UNITS, 4, N)), ShapeError, r"rnn_op: an input \(4, 5, 3\) gives \(6, 5, 3\), not the output"),
        (((F, T, N), 5, "tanh", "bidirectional_concat"), ShapeError, r"rnn: \(4, 5, 3\) -> \(5, 5, 3\).*even number"),
        (((F, T, N), 6, "tanh", "sideways"), ArgumentError, "no direction 'sideways', only unidirectional, bid"),
        (((F, T, N), 6, "swish"), ArgumentError, "rnn_op: states are not kept before their activation, which swish"),
    ],
)
def test_what_does_not_fit_is_named(be: Backend, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        be.blueprints.rnn_op(*arguments)


