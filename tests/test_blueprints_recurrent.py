"""Recurrent blueprints against the layers' loops in float64 NumPy, and gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blueprinted import check_gradients, close, filled, run
from recurrent_loops import Loop

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.recurrent import BiLSTM, BiRNN
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import Logistic, Tanh

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
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional_sum"])
def test_gradients_of_two_layers(be64: Backend, direction: str) -> None:
    layer = filled(be64.blueprints.rnn((F, T, N), UNITS, 2, "tanh", direction=direction).build(), scale=0.5)
    check_gradients(layer)


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
    if cell == "tanh":  # of an LSTM, the gradient by the last cell has no way in
        first.diff_dst_iter[0][:] = second.diff_src_iter[0][0]
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
    """Recurrent layers overwrite theirs; what they are given is a copy in the workspace."""
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
        (((F, T, N), 6, "gru", "bidirectional_sum"), ArgumentError, "no gru that reads both ways"),
        (((F, T, N), 6, "tanh", "sideways"), ArgumentError, "no direction 'sideways', only unidirectional, bid"),
        (((F, T, N), 6, "tanh", "bidirectional_sum", 1, True), ArgumentError, "start from 0 and hand no state out"),
        (((F, T, N), 6, "swish"), ArgumentError, "rnn_op: states are not kept before their activation, which swish"),
    ],
)
def test_what_does_not_fit_is_named(be: Backend, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        be.blueprints.rnn_op(*arguments)


