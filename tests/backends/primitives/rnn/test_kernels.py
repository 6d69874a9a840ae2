"""Compiled kernels of recurrent unrolls beside their definitions: repeated calls, threads, layouts, shared memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from neonlike.backends.primitives.rnn.family import RecurrentFamily
from neonlike.backends.primitives.rnn.gated import GatedFamily
from neonlike.backends.primitives.rnn.steps import Steps, samples_apart
from neonlike.errors import DTypeError
from tests.support.engines import have_programs, use_threads
from tests.support.float64.rnn_unrolled import GATES, LOGISTIC, TANH, made_layer, results

pytestmark = pytest.mark.engines("numpy", "c")


HOOKS = {"simple": (RecurrentFamily, "_rnn"), "lstm": (GatedFamily, "_lstm"), "gru": (GatedFamily, "_gru")}


@pytest.mark.optimized
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
    """Units exceed a tile's columns and are no multiple of a vector; the bias counts for all gates."""
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
    have_programs(be)
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
        be.executor.replay.clear()
        return run(function, used)

    slope = transforms.Rectlin(slope=0.5)
    run(TANH)  # which looks at what the activation does
    first = run(TANH)
    np.testing.assert_array_equal(run(TANH), first)
    other = run(slope)
    assert not np.allclose(other, first) and be.executor.replay.table.calls >= 2
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
    calls = be.executor.replay.table.calls
    assert (run(TANH, 2)[:, 4:] == 7).all() and be.executor.replay.table.calls == calls
    with pytest.raises(DTypeError):
        run("no function")


@pytest.mark.engines("c")
def test_calls_by_keyword_are_kept_too(be: Any) -> None:
    """Bidirectional layers name ``reverse``: each of their unrolls was looked at anew."""
    layer = made_layer(be, "simple", 5, 2, 3)
    have_programs(be)
    table = be.executor.replay.table
    h, ff = layer.cut(layer.h), layer.cut(layer.ff)
    given = layer.w, [layer.h0, *h[:-1]], ff, h, layer.b, 5, 3
    for rest, named in (((3, TANH), {}), ((3, TANH, False), {}), ((3,), {"activation": TANH, "reverse": False})):
        be.compound_rnn_unroll_fprop(*given, *rest, **named)
    assert table.calls == 1, "what is left out is told from what is given"
    be.compound_rnn_unroll_fprop(*given, 3, TANH, reverse=True)
    backwards = layer.h.get()
    be.compound_rnn_unroll_fprop(*given, reverse=True, activation=TANH, num_used_steps=3)
    assert table.calls == 2
    np.testing.assert_array_equal(layer.h.get(), backwards)
    for wrong in ({"revers": True}, {"nout": 5}):
        with pytest.raises(TypeError):
            be.compound_rnn_unroll_fprop(*given, 3, TANH, **wrong)
    with pytest.raises(TypeError):
        be.compound_rnn_unroll_fprop(*given, reverse=True)


@pytest.mark.engines("c")
def test_kept_calls_hold_no_tensor(be: Any) -> None:
    """A call is not repeated without one of its tensors, and a view of the weight made anew is the same weight."""
    layer = made_layer(be, "simple", 5, 2, 3)
    have_programs(be)
    table = be.executor.replay.table
    h, ff, e = layer.cut(layer.h), layer.cut(layer.ff), layer.cut(layer.e)
    before = [layer.h0, *h[:-1]]
    for _ in range(3):
        be.compound_rnn_unroll_bprop(layer.w.T, [None, *e[:-1]], e, h, 5, 3, 3, TANH)
        be.compound_rnn_unroll_fprop(layer.w, before, ff, h, layer.b, 5, 3, 3, TANH)
    calls = table.calls
    assert calls >= 2
    ff = layer.cut(layer.ff)
    be.compound_rnn_unroll_fprop(layer.w, before, ff, h, layer.b, 5, 3, 3, TANH)
    assert table.calls == calls, "other views are looked at"
    dead = weakref.ref(h[1])
    del h, before
    assert dead() is None


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


@pytest.mark.engines("c")
@pytest.mark.parametrize("kind", GATES)
def test_threads_that_keep_their_samples_do_not_meet(
    be: Backend, rng: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are enough steps for the threads to run at the same time."""
    error, found = rng.standard_normal((70, 40 * 128)), []
    for threads in ("1", "2", "4"):
        use_threads(monkeypatch, threads)
        found.append(results(made_layer(be, kind, 70, 128, 40), error))
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.engines("c")
def test_samples_that_move_from_step_to_step(be: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's projection is the state before, one sample further: samples depend on those of other threads."""
    units, batch, steps = 70, 128, 30
    start, weight = rng.standard_normal((units, batch + steps)), be.array(rng.standard_normal((units, units)) / units)
    found = []
    for threads in ("1", "2"):
        use_threads(monkeypatch, threads)
        line, zero = be.array(start), be.zeros((units, batch))
        h = [line[:, s : s + batch] for s in range(steps)]
        be.compound_rnn_unroll_fprop(weight, [zero, *h[:-1]], [be.array(start[:, :batch]), *h[1:]], h, None, units,
                                     steps, steps, transforms.Identity())  # fmt: skip
        found.append(line.get())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "columns, apart",
    [
        ([(0, 4), (4, 8), (8, 12)], True),
        ([(0, 4), (0, 4)], True),
        ([(8, 12), (0, 4), (8, 12)], True),
        ([(0, 4), (3, 7)], False),
        ([(0, 4), (8, 12), (5, 9)], False),
        ([(0, 4), (10, 14), (11, 15)], False),
    ],
)
def test_samples_are_apart_where_no_columns_overlap(be: Backend, columns: list[Any], apart: bool) -> None:
    whole, other = be.zeros((3, 16)), be.zeros((3, 4))
    roles = {"a": [whole[:, lo:hi] for lo, hi in columns], "b": [other, None]}
    assert samples_apart(Steps("test", roles, 3, 4, whole.dtype)) is apart


def test_samples_of_other_rows_and_pitches(be: Backend) -> None:
    whole = be.zeros((8, 16))
    dense, flat = whole.reshape(32, 4), whole.reshape(1, 128)

    def apart(*tensors: Any) -> bool:
        return samples_apart(Steps("test", {"a": list(tensors)}, tensors[0].shape[0], 4, whole.dtype))

    assert apart(whole[:4, :4], whole[4:, :4]) and apart(whole[:4, 4:8], whole[2:6, 12:])
    assert not apart(whole[:4, :4], dense[4:8])  # another pitch, the same memory
    assert apart(whole[:4, :4], dense[24:28])  # further on
    assert apart(flat[:, :4], flat[:, 8:12]) and not apart(flat[:, :4], flat[:, 2:6])
    assert not apart(whole[::-1, :4])


@pytest.mark.engines("c")
def test_one_sample_does_not_depend_on_the_number_of_threads(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every other step each thread goes through its share of 400 units in reverse."""
    many = made_layer(be, "simple", 400, 2, 3)
    projections = many.ff.get()[:, ::2].copy()
    many.forward()
    wanted, found = many.h.get()[:, ::2], []
    for threads in ("1", "2", "3"):
        use_threads(monkeypatch, threads)
        one = made_layer(be, "simple", 400, 1, 3)
        one.h0[:], one.ff[:] = many.h0[:, :1], projections
        one.forward()
        found.append(one.h.get())
    np.testing.assert_allclose(found[0], wanted, 1e-4, 1e-4)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


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
