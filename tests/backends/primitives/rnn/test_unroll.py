"""Recurrent unrolls: neon's worked numbers and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.rnn import formula as rnn_formula
from neonlike.transforms import Softmax, Tanh
from tests.support.float64.rnn_unrolled import GATES, TANH, Layer

pytestmark = pytest.mark.engines("numpy", "c")


# Worked numbers


WORKED = {
    "simple": (
        "0 .53705 .148885 -.339657; -.462117 -.099668 -.456138 -.582494",
        "-.086251 -.142877 -.153703 -.172115",
        {0: ".57134 .965268", 1: ".142528 -.116826", 2: ".248381 -.265677", 3: ".574099 1.913584"},
    ),
    "lstm": (
        ".037723 -.086225 .036038 .020251; -.068751 .066537 -.07224 -.070979",
        "-.037838 -.047493 -.031314 -.020175",
        {
            0: ".040098 -.156627 -.014687 .026292 .012082 -.087117 .069907 .239577",
            3: ".00822 -.055915 -.005983 .006123 .002917 -.039623 .147633 .609309",
        },
    ),
    "gru": (
        "-.054801 -.174405 -.105902 -.067202; .042414 -.12397 .025467 .047913",
        ".064865 .086079 .062397 .065095",
        {
            0: ".00636 .001811 .043257 .222972 .273095 .597298",
            3: ".003781 .000731 -.0067 .017535 .425031 1.182713",
        },
    ),
}


def numbers(text: str) -> Any:
    return np.array([[float(word) for word in row.split()] for row in text.split(";")])


@pytest.mark.parametrize("kind", WORKED)
def test_worked_numbers(be: Backend, kind: str) -> None:
    out, deltas, gradient = WORKED[kind]
    n, batch, steps, rows = 2, 2, 2, 2 * GATES[kind]
    x, error = numbers("1 -1 .5 2"), np.arange(8).reshape(2, 4) / 10
    w = ((np.arange(4 * rows) % 7) - 3).reshape(4, rows) / 10
    w_in, recur, bias = w[:1].reshape(rows, 1), w[1:3].reshape(rows, n), w[3].reshape(rows, 1)
    layer = Layer(be, kind, n, batch, steps, recur, bias, w_in @ x)
    np.testing.assert_allclose(layer.forward(), numbers(out), atol=2e-6)
    layer.backward(error)
    d = layer.d.get()
    np.testing.assert_allclose(w_in.T @ d, numbers(deltas), atol=2e-6)
    found = np.concatenate((
        (d @ x.T).reshape(1, rows), layer.recurrent_gradient().reshape(n, rows), d.sum(1).reshape(1, rows)
    ))  # fmt: skip
    for row, wanted in gradient.items():
        np.testing.assert_allclose(found[row : row + 1], numbers(wanted), atol=2e-6)


def test_worked_numbers_of_a_bidirectional_layer(be: Backend) -> None:
    x, error = numbers("1 -1 .5 2 0 1"), np.arange(12).reshape(2, 6) / 10
    in_f, in_b, w_f, w_b, b_f, b_b = (be.array([[i / 10]]) for i in range(6))
    h = be.array(np.concatenate((in_f.get() @ x, in_b.get() @ x)))
    delta, zero = be.array(error), be.zeros((1, 2))
    (hf, hb), (df, db) = ([[t[r : r + 1, 2 * s : 2 * s + 2] for s in range(3)] for r in (0, 1)] for t in (h, delta))
    be.compound_rnn_unroll_fprop_bibnrnn(
        None, None, None, w_f, [zero, *hf[:-1]], hf, hf, b_f, w_b, [*hb[1:], zero], hb, hb, b_b, 1, 3, 3, TANH
    )
    out = ".379949 .379949 .443026 .443026 .453109 .453109; .652208 .543458 .597104 .696832 .462117 .53705"
    np.testing.assert_allclose(h.get(), numbers(out), atol=2e-6)
    be.compound_rnn_unroll_bprop_bibnrnn(
        None, None, df, [None, *df[:-1]], db, [*db[1:], None], w_f, w_b, hf, hb, 1, 3, 3, TANH, None
    )
    d, states = delta.get(), h.get()
    deltas = in_f.get() * d[:1] + in_b.get() * d[1:]
    np.testing.assert_allclose(deltas, numbers(".034477 .049326 .058133 .053911 .09236 .089782"), atol=2e-6)
    recur = [d[0, 2:] @ states[0, :-2], d[1, :-2] @ states[1, 2:]]
    found = [d[0] @ x[0], d[1] @ x[0], *recur, d[0].sum(), d[1].sum()]
    np.testing.assert_allclose(found, [1.011744, 2.118215, 0.513233, 1.107753, 1.406065, 3.779891], atol=5e-6)


# Gradients


@pytest.mark.parametrize("kind", GATES)
def test_backward_is_the_gradient_of_forward(be64: Backend, rng: Any, kind: str) -> None:
    n, batch, steps, rows = 7, 5, 4, 7 * GATES[kind]
    shapes = {"w": (rows, n), "b": (rows, 1), "ff": (rows, batch * steps), "h0": (n, batch), "c0": (n, batch)}
    start = {name: rng.standard_normal(shape) / 2 for name, shape in shapes.items()}
    way = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    error = rng.standard_normal((n, batch * steps))

    def layer(distance: float) -> tuple[Layer, float]:
        at = {name: start[name] + distance * way[name] for name in shapes}
        made = Layer(be64, kind, n, batch, steps, at["w"], at["b"], at["ff"])
        made.h0[:], made.c0[:] = at["h0"], at["c0"]
        return made, float((made.forward() * error).sum())

    made, _ = layer(0.0)
    made.backward(error)
    d = made.d.get()
    gradient = {"w": made.recurrent_gradient(), "b": d.sum(1, keepdims=True), "ff": d, "h0": made.dh0.get()}
    if kind == "lstm":
        gradient["c0"] = made.dc0.get()
    slope = sum((gradient[name] * way[name]).sum() for name in gradient)
    step = 1e-5
    assert slope == pytest.approx((layer(step)[1] - layer(-step)[1]) / (2 * step), rel=1e-7)


@pytest.mark.parametrize("function", [Softmax(), Tanh()], ids=["softmax", "tanh"])
def test_looking_at_an_activation_leaves_no_plan_of_its_stand_ins(
    be: Backend, rng: Any, function: Any, compiled_or_failed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same expression with other sizes would find such a plan, with a kernel for wrong shapes."""
    monkeypatch.setattr(rnn_formula, "_bodies", {})
    h = [be.zeros((3, 4)), be.zeros((3, 4))]
    be.compound_rnn_unroll_fprop(be.ones((3, 3)), h[:1], [be.ones((3, 4))], h[1:], None, 3, 1, 1, function)
    host = rng.standard_normal((5, 9)).astype(np.float32)
    x, y = be.array(host), be.empty((5, 9))
    y[:] = function(x)
    wide = np.exp(host.astype(np.float64) - host.max(0))
    wanted = np.tanh(host) if isinstance(function, Tanh) else wide / wide.sum(0)
    np.testing.assert_allclose(y.get(), wanted, 1e-5)
    stages = [stage for plan in be.plans.plans.values() for stage in plan.stages if stage.values]  # no fill() on a GPU
    assert stages and all((2, 2) != stage.shape for stage in stages)
