"""Recurrent unrolls: neon's worked numbers, gradients, compiled kernels beside their definitions, shared memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from engines import use_threads

from neonlike import transforms
from neonlike.backends import Backend
from neonlike.backends.families.rnn import RecurrentFamily
from neonlike.backends.families.rnn_gated import GatedFamily
from neonlike.errors import DTypeError

pytestmark = pytest.mark.engines("numpy", "c")

TANH, LOGISTIC = transforms.Tanh(), transforms.Logistic()
GATES = {"simple": 1, "lstm": 4, "gru": 3}
HOOKS = {"simple": (RecurrentFamily, "_rnn"), "lstm": (GatedFamily, "_lstm"), "gru": (GatedFamily, "_gru")}


class Layer:
    """A recurrent layer of ``kind`` on a backend: parameters, buffers, forward and backward pass.

    ``ff`` holds the input projection, then the gates; ``d`` the errors before the activations.
    """

    def __init__(self, be: Any, kind: str, n: int, batch: int, steps: int, recur: Any, bias: Any, ff: Any) -> None:
        self.be, self.kind, self.n, self.batch, self.steps = be, kind, n, batch, steps
        rows = GATES[kind] * n
        self.w, self.b, self.ff = be.array(recur), be.array(np.reshape(bias, (rows, 1))), be.array(ff)
        self.h, self.c, self.a, self.e, self.dc, self.reset = (be.zeros((n, batch * steps)) for _ in range(6))
        self.h0, self.c0, self.dh0, self.dc0 = (be.zeros((n, batch)) for _ in range(4))
        self.d = self.e if kind == "simple" else be.zeros((rows, batch * steps))

    def cut(self, tensor: Any, first: Any = None) -> list[Any]:
        """A view for each step; with ``first``, those of the steps before, and ``first`` before all."""
        steps = [tensor[:, t * self.batch : (t + 1) * self.batch] for t in range(self.steps)]
        return steps if first is None else [first, *steps[:-1]]

    def forward(self) -> Any:
        be, sizes, cut = self.be, (self.n, self.steps, None), self.cut
        h, ff, before = cut(self.h), cut(self.ff), cut(self.h, self.h0)
        if self.kind == "simple":
            be.compound_rnn_unroll_fprop(self.w, before, ff, h, self.b, *sizes, TANH)
        elif self.kind == "lstm":
            c, a, c_before = cut(self.c), cut(self.a), cut(self.c, self.c0)
            be.compound_lstm_unroll_fprop(self.w, before, c_before, ff, ff, c, a, h, self.b, *sizes, TANH, LOGISTIC)
        else:
            be.compound_gru_unroll_fprop(self.w, before, ff, ff, cut(self.reset), h, self.b, *sizes, TANH, LOGISTIC)
        return self.h.get()

    def backward(self, error: Any) -> None:
        be, sizes, cut = self.be, (self.n, self.steps, None), self.cut
        self.e[:], self.dh0[:], self.dc[:] = np.array(error), 0, 0
        e, passed, h0 = cut(self.e), cut(self.e, self.dh0), cut(self.h, self.h0)
        if self.kind == "simple":
            be.compound_rnn_unroll_bprop(self.w.T, passed, e, cut(self.h), *sizes, TANH)
        elif self.kind == "lstm":
            dc, dc_passed, c_before = cut(self.dc), cut(self.dc, self.dc0), cut(self.c, self.c0)
            be.compound_lstm_unroll_bprop(
                self.w.T, passed, e, dc_passed, dc, cut(self.d), cut(self.ff), c_before, cut(self.a), *sizes,
                TANH, LOGISTIC,
            )  # fmt: skip
        else:
            be.compound_gru_unroll_bprop(self.w.T, passed, e, cut(self.d), cut(self.ff), h0, *sizes, TANH, LOGISTIC)

    def recurrent_gradient(self) -> Any:
        """dW_recur, the step before the first included."""
        d, before = self.d.get(), np.concatenate((self.h0.get(), self.h.get()[:, : -self.batch]), axis=1)
        if self.kind != "gru":
            return d @ before.T
        return np.concatenate((d[: 2 * self.n] @ before.T, d[2 * self.n :] @ self.reset.get().T))


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


# Compiled kernels


def made_layer(be: Any, kind: str, n: int = 20, batch: int = 35, steps: int = 3, seed: int = 1) -> Layer:
    rng, rows = np.random.default_rng(seed), n * GATES[kind]
    made = Layer(
        be, kind, n, batch, steps, rng.standard_normal((rows, n)) / n**0.5, rng.standard_normal((rows, 1)),
        rng.standard_normal((rows, batch * steps)),
    )  # fmt: skip
    made.h0[:], made.c0[:] = rng.standard_normal((n, batch)), rng.standard_normal((n, batch))
    return made


def results(layer: Layer, error: Any) -> list[Any]:
    layer.forward()
    layer.backward(error)
    return [t.get() for t in (layer.h, layer.c, layer.a, layer.ff, layer.reset, layer.e, layer.d, layer.dh0, layer.dc0)]


@pytest.mark.engines("c")
@pytest.mark.parametrize("kind", GATES)
def test_kernels_and_definitions_agree_and_are_not_the_same(
    be: Backend, rng: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = rng.standard_normal((20, 105))
    family, hook = HOOKS[kind]
    definitions = {name: getattr(family, name) for name in (f"{hook}_fprop", f"{hook}_bprop")}

    def refuse(*_: Any) -> None:
        raise AssertionError("the definition ran")

    with monkeypatch.context() as patch:
        for name in definitions:
            patch.setattr(family, name, refuse)
        compiled = results(made_layer(be, kind), error)
    for name, definition in definitions.items():
        monkeypatch.setattr(type(be), name, definition)
    for got, wanted in zip(compiled, results(made_layer(be, kind), error)):
        np.testing.assert_allclose(got, wanted, 2e-5, 2e-5)


@pytest.mark.parametrize("kind", GATES)
def test_one_sample_is_computed_as_one_of_many(be: Backend, kind: str) -> None:
    """Of more units than a tile has columns, and not a multiple of any vector; the bias counts for all gates."""
    n, batch, steps = 37, 3, 4
    many, one = made_layer(be, kind, n, batch, steps), made_layer(be, kind, n, 1, steps)
    one.w[:], one.b[:] = many.w, many.b
    one.h0[:], one.c0[:], one.ff[:] = many.h0[:, 1:2], many.c0[:, 1:2], many.ff.get()[:, 1::batch].copy()
    many.forward()
    one.forward()
    for name in ("h", "c", "a", "ff", "reset"):
        wanted = getattr(many, name).get()[:, 1::batch]
        np.testing.assert_allclose(getattr(one, name).get(), wanted, 2e-5, 2e-5, err_msg=name)


@pytest.mark.engines("c")
@pytest.mark.parametrize("kind", ["simple", "lstm"])
def test_repeated_calls_see_new_values_functions_and_lengths(be: Any, kind: str) -> None:
    layer = made_layer(be, kind, 5, 2, 3)
    be._unrolls.clear()
    h, ff, before, c, a = (layer.cut(t) for t in (layer.h, layer.ff, layer.h, layer.c, layer.a))
    before, c_before = [layer.h0, *h[:-1]], [layer.c0, *c[:-1]]
    start = layer.ff.get()

    def run(function: Any, used: int = 3) -> Any:
        layer.ff[:] = start
        if kind == "simple":
            be.compound_rnn_unroll_fprop(layer.w, before, ff, h, layer.b, 5, 3, used, function)
        else:
            be.compound_lstm_unroll_fprop(
                layer.w, before, c_before, ff, ff, c, a, h, layer.b, 5, 3, used, function, LOGISTIC
            )
        return layer.h.get()

    def fresh(function: Any, used: int = 3) -> Any:
        be._unrolls.clear()
        return run(function, used)

    slope = transforms.Rectlin(slope=0.5)
    first = run(TANH)
    assert len(be._unrolls) == 1
    np.testing.assert_array_equal(run(TANH), first)
    other = run(slope)
    assert not np.allclose(other, first) and len(be._unrolls) == 1
    np.testing.assert_array_equal(other, fresh(slope))
    slope.slope = 0.25
    changed = run(slope)
    assert not np.allclose(changed, other)
    np.testing.assert_array_equal(changed, fresh(slope))
    layer.w[:], layer.b[:] = -layer.w, 2 * layer.b
    weights = run(TANH)
    assert not np.allclose(weights, first)
    np.testing.assert_array_equal(weights, fresh(TANH))
    layer.h[:] = 7
    assert (run(TANH, 2)[:, 4:] == 7).all() and len(be._unrolls) == 2
    with pytest.raises(DTypeError):
        run("no function")


@pytest.mark.engines("c")
def test_kept_calls_hold_no_tensor(be: Any) -> None:
    """A call is forgotten with any of its tensors, and a view of the weight made anew is the same weight."""
    layer = made_layer(be, "simple", 5, 2, 3)
    be._unrolls.clear()
    h, ff, e = layer.cut(layer.h), layer.cut(layer.ff), layer.cut(layer.e)
    before = [layer.h0, *h[:-1]]
    be.compound_rnn_unroll_fprop(layer.w, before, ff, h, layer.b, 5, 3, 3, TANH)
    for _ in range(2):
        be.compound_rnn_unroll_bprop(layer.w.T, [None, *e[:-1]], e, h, 5, 3, 3, TANH)
    assert len(be._unrolls) == 2
    del ff
    assert len(be._unrolls) == 1
    dead = weakref.ref(h[1])
    del h, before
    assert dead() is None and len(be._unrolls) == 0


@pytest.mark.engines("c")
def test_a_bias_that_has_to_be_copied_is_read_at_each_call(be: Any) -> None:
    layer = made_layer(be, "simple", 5, 2, 1)
    wide = be.array(np.ones((5, 2)))
    h, ff, before = [layer.h], [layer.ff], [layer.h0]
    found = []
    for value in (1, 3):
        wide[:] = value
        be.compound_rnn_unroll_fprop(layer.w, before, ff, h, wide[:, :1], 5, 1, 1, TANH)
        found.append(layer.h.get())
    np.testing.assert_allclose(np.arctanh(found[1]) - np.arctanh(found[0]), 2, 1e-2)


@pytest.mark.parametrize("kind", GATES)
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, rng: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, found = rng.standard_normal((150, 80)), []
    for threads in ("1", "2", "3"):
        use_threads(monkeypatch, threads)
        found.append(results(made_layer(be, kind, 150, 40, 2), error))
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", GATES)
def test_a_sample_with_nan_spoils_no_other(be: Backend, rng: Any, kind: str) -> None:
    clean, spoiled = made_layer(be, kind), made_layer(be, kind)
    spoiled.ff[3:4, 4:5] = np.nan
    error = rng.standard_normal((20, 105))
    a, b = results(clean, error), results(spoiled, error)
    others = [i for i in range(35) if i != 4]
    for one, two in zip(a, b):
        columns = np.arange(one.shape[1]).reshape(-1, 35)[:, others].ravel()
        np.testing.assert_array_equal(one[:, columns], two[:, columns])
    assert np.isnan(b[0][3, 4]) and np.isnan(b[0][:, 39]).all()


def test_infinity_passes_through_a_rectifier(be: Backend) -> None:
    h, ff = be.zeros((2, 2)), be.array([[np.inf, -np.inf], [1, -1]])
    be.compound_rnn_unroll_fprop(be.zeros((2, 2)), [h], [ff], [h], None, 2, 1, 1, transforms.Rectlin())
    np.testing.assert_array_equal(h.get(), [[np.inf, 0], [1, 0]])


def test_tensors_of_any_layout(be: Backend, rng: Any) -> None:
    values, w = (
        rng.standard_normal((4, 6, 5)).astype(np.float32),
        rng.standard_normal((6, 6)).astype(np.float32),
    )
    found = []
    for turned in (False, True):  # rows that are neighbours, instead of samples; steps of different strides
        h = [be.array(v.T.copy()).T if turned and i % 2 else be.array(v) for i, v in enumerate(values)]
        weight = be.array(w.T.copy()).T if turned else be.array(w)
        be.compound_rnn_unroll_fprop(weight, h[-1:] + h[:-1], h, h, None, 6, 4, 4, TANH)
        be.compound_rnn_unroll_bprop(weight.T, [None, *h[:-1]], h, [be.array(v) for v in values], 6, 4, 4, TANH)
        found.append([t.get() for t in h])
    np.testing.assert_allclose(found[0], found[1], 1e-5, 1e-5)


def test_one_tensor_may_hold_the_state_of_all_steps(be: Backend, rng: Any) -> None:
    long, short = (made_layer(be, "simple") for _ in range(2))
    long.forward()
    state, ff = be.array(short.h0.get()), short.cut(short.ff)
    be.compound_rnn_unroll_fprop(short.w, [state] * 3, ff, [state] * 3, short.b, 20, 3, 3, TANH)
    np.testing.assert_allclose(state.get(), long.h.get()[:, -35:], 1e-5, 1e-6)
    gru, again = (made_layer(be, "gru") for _ in range(2))
    gru.forward()
    state, ff = be.array(again.h0.get()), again.cut(again.ff)
    be.compound_gru_unroll_fprop(
        again.w, [state] * 3, ff, ff, [None] * 3, [state] * 3, again.b, 20, 3, 3, TANH, LOGISTIC
    )
    np.testing.assert_allclose(state.get(), gru.h.get()[:, -35:], 1e-5, 1e-6)


def test_a_list_may_be_longer_than_there_are_steps(be: Backend) -> None:
    """As in neon, which zips them: all states h_0 ... h_T as those before the steps, forward and backward."""
    wanted, layer = (made_layer(be, "simple") for _ in range(2))
    wanted.forward()
    wanted.backward(np.ones((20, 105)))
    h, e = layer.cut(layer.h), layer.cut(layer.e)
    be.compound_rnn_unroll_fprop(layer.w, [layer.h0, *h], layer.cut(layer.ff), h, layer.b, 20, 3, 3, TANH)
    layer.e[:], layer.dh0[:] = 1, 0
    be.compound_rnn_unroll_bprop(layer.w.T, [layer.dh0, *e], e, h, 20, 3, 3, TANH)
    for mine, its in ((layer.h, wanted.h), (layer.e, wanted.e), (layer.dh0, wanted.dh0)):
        assert np.array_equal(mine.get(), its.get())


def test_one_tensor_may_hold_the_cell_errors_of_all_steps(be: Backend, rng: Any) -> None:
    error = rng.standard_normal((20, 105))
    layer = made_layer(be, "lstm")
    layer.forward()
    layer.backward(error)
    wanted = layer.d.get()
    layer.e[:], layer.dh0[:], cell = error, 0, be.zeros((20, 35))
    e, c_before = layer.cut(layer.e), layer.cut(layer.c, layer.c0)
    be.compound_lstm_unroll_bprop(
        layer.w.T, layer.cut(layer.e, layer.dh0), e, [cell] * 3, [cell] * 3, layer.cut(layer.d), layer.cut(layer.ff),
        c_before, layer.cut(layer.a), 20, 3, 3, TANH, LOGISTIC,
    )  # fmt: skip
    np.testing.assert_allclose(layer.d.get(), wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(cell.get(), layer.dc0.get(), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["simple", "gru"])
def test_a_single_step_that_passes_its_error_to_itself(be: Backend, rng: Any, kind: str) -> None:
    apart, joined = (made_layer(be, kind, steps=1) for _ in range(2))
    error = rng.standard_normal((20, 35))
    for layer in (apart, joined):
        layer.forward()
    apart.backward(error)
    kept = apart.e.get() if kind == "simple" else error
    joined.e[:] = error
    h0, e, d = [joined.h0], [joined.e], [joined.d]
    if kind == "simple":
        be.compound_rnn_unroll_bprop(joined.w.T, e, e, [joined.h], 20, 1, 1, TANH)
    else:
        be.compound_gru_unroll_bprop(joined.w.T, e, e, d, [joined.ff], h0, 20, 1, 1, TANH, LOGISTIC)
    np.testing.assert_allclose(joined.e.get(), kept + apart.dh0.get(), 1e-5, 1e-5)


def test_inputs_that_partly_overlap_the_state(be: Backend, rng: Any) -> None:
    """Every right side counts as it was before the step, also where projection and state share some memory."""
    values = rng.standard_normal((4, 9))
    shared = be.array(values)
    ff, h = shared[:, 1:6], shared[:, 3:8]
    wanted = np.tanh(values[:, 1:6])
    be.compound_rnn_unroll_fprop(be.zeros((4, 4)), [be.zeros((4, 5))], [ff], [h], None, 4, 1, 1, TANH)
    np.testing.assert_allclose(h.get(), wanted, 1e-6)


def test_a_derivative_that_depends_on_another_tensor(be: Backend) -> None:
    """Sign's is made of the inputs it kept, not of the output; of the size of the stand-in that formulas come from."""
    sign, w = transforms.Sign(), be.zeros((2, 2))
    h, ff, delta = be.zeros((2, 2)), be.array([[0.5, -3], [2, -0.25]]), be.array([[1, 2], [3, 4]])
    be.compound_rnn_unroll_fprop(w, [h], [ff], [h], None, 2, 1, 1, sign)
    np.testing.assert_array_equal(h.get(), [[1, -1], [1, -1]])
    be.compound_rnn_unroll_bprop(w, [None], [delta], [h], 2, 1, 1, sign)
    np.testing.assert_array_equal(delta.get(), [[1, 0], [0, 4]])


def test_a_state_before_that_begins_where_the_last_one_does(be: Backend, rng: Any) -> None:
    """Same address, other rows: it is not the state that was just computed."""
    values, w = rng.standard_normal((6, 4)), rng.standard_normal((3, 3))
    both, h, ff = be.array(values), be.zeros((3, 4)), be.array(np.zeros((3, 4)))
    first, weight, spread = both[:3], be.array(w), values.astype(np.float32).astype(float)
    be.compound_rnn_unroll_fprop(weight, [h, both[::2]], [ff, ff], [first, h], None, 3, 2, 2, TANH)
    spread[:3] = 0  # W . h before the first step is 0
    np.testing.assert_allclose(h.get(), np.tanh(w @ spread[::2]), 1e-5, 1e-5)
