"""Recurrent unrolls that multiply in bfloat16, step by step against float64 on rounded factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import rnn as kernels
from neonlike.kernels.run import calls
from tests.backends.primitives.conv.conv_compiled import Guarded
from tests.support.engines import have_programs, use_threads
from tests.support.float64.rnn_formulas import sigmoid
from tests.support.float64.rnn_unrolled import GATES, LOGISTIC, TANH, Layer, check_a_spoiled_sample, made_layer, results
from tests.support.rounded import FORMS, UNIT, gamma, multiply, multiply_in

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

SIZES = [(16, 16, 2), (17, 2, 3), (37, 33, 4), (64, 65, 2)]
FEWEST = 16
OF_ACTIVATION = 8 * UNIT
"""Error of tanh and of the logistic function, whose values are at most 1."""


@pytest.fixture(autouse=True)
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels work in memory full of nan, and write nothing around it."""
    memory = Guarded()
    monkeypatch.setattr(calls, "held_workspace", memory)
    yield
    memory.check()


@pytest.fixture(autouse=True)
def pairs_of_few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers, for which pairs do not pay, are rounded too."""
    monkeypatch.setattr(kernels, "FEWEST_OF_PAIRS", FEWEST)


def near(found: Any, wanted: Any, bound: Any) -> None:
    """Each element is right within its bound."""
    wrong = np.abs(found.astype(np.float64) - wanted) - bound
    assert wrong.max() <= 0, f"{(wrong > 0).sum()} of {wrong.size} elements; by {wrong.max():.3g}"


def check_forward(layer: Layer, given: Any) -> None:
    """Each step from the state before it, as the kernel computed that; ``given``: the projections."""
    n, w, b = layer.n, layer.w.get(), layer.b.get()
    h, gates, c, reset, h0, c0 = (t.get() for t in (layer.h, layer.ff, layer.c, layer.reset, layer.h0, layer.c0))
    for t in range(layer.steps):
        at = slice(t * layer.batch, (t + 1) * layer.batch)
        last = slice((t - 1) * layer.batch, t * layer.batch)
        before, cell = (h[:, last], c[:, last]) if t else (h0, c0)
        values, ff = gates[:, at], given[:, at]
        product, error = multiply(w, before, 2)
        total = product + ff + b
        error = error + gamma(3) * (np.abs(product) + np.abs(ff) + np.abs(b))
        if layer.kind == "simple":
            near(h[:, at], np.tanh(total), error + OF_ACTIVATION)
            continue
        opened = 3 * n if layer.kind == "lstm" else 2 * n
        near(values[:opened], sigmoid(total[:opened]), error[:opened] / 4 + OF_ACTIVATION)
        if layer.kind == "lstm":
            i, f, o, g = values.astype(np.float64).reshape(4, n, -1)
            near(g, np.tanh(total[opened:]), error[opened:] + OF_ACTIVATION)
            near(c[:, at], f * cell + i * g, gamma(3) * (np.abs(f * cell) + np.abs(i * g)))
            near(h[:, at], o * np.tanh(c[:, at].astype(np.float64)), 2 * OF_ACTIVATION)
            continue
        r, z, candidate = values.astype(np.float64).reshape(3, n, -1)
        near(reset[:, at], r * before, gamma(2) * np.abs(before))
        product, error = multiply(w[2 * n :], reset[:, at], 2)
        error = error + gamma(3) * (np.abs(product) + np.abs(ff[2 * n :]) + np.abs(b[2 * n :]))
        near(candidate, np.tanh(product + ff[2 * n :] + b[2 * n :]), error + OF_ACTIVATION)
        near(h[:, at], (1 - z) * before + z * candidate, gamma(5) * (np.abs(before) + 1))


def check_backward(layer: Layer, given: Any) -> None:
    """Each step from the errors after it; ``given``: the error of the states."""
    n, turned, batch = layer.n, layer.w.get().T, layer.batch
    h, gates, e, d, h0, dh0 = (t.get() for t in (layer.h, layer.ff, layer.e, layer.d, layer.h0, layer.dh0))
    for t in range(layer.steps - 1, -1, -1):
        at, before = slice(t * batch, (t + 1) * batch), slice((t - 1) * batch, t * batch)
        found, own = (e[:, before], given[:, before].astype(np.float64)) if t else (dh0, np.zeros_like(dh0, np.float64))
        if layer.kind == "gru":
            r, z, _ = gates[:, at].astype(np.float64).reshape(3, n, -1)
            state = h[:, before] if t else h0
            q, of_q = multiply(turned[:, 2 * n :], d[2 * n :, at])
            near(d[:n, at], r * (1 - r) * q * state, (of_q + gamma(8) * np.abs(q)) * np.abs(state))
            product, error = multiply(turned[:, : 2 * n], d[: 2 * n, at])
            parts = own, product, e[:, at] * (1 - z), r * q
            near(found, sum(parts), error + of_q + gamma(8) * sum(map(np.abs, parts)))
            continue
        product, error = multiply(turned, d[:, at])
        error = error + gamma(2) * (np.abs(own) + np.abs(product))
        if layer.kind == "simple" and t:
            slope = 1 - h[:, before].astype(np.float64) ** 2
            near(found, slope * (own + product), slope * error + gamma(4) * np.abs(own + product))
        else:
            near(found, own + product, error)


def check_steps(be: Any, rng: Any, kind: str, size: tuple[int, int, int], form: int) -> None:
    """The steps of both directions, of a layer of so many units, samples and steps."""
    n, batch, steps = size
    multiply_in(be, form)
    layer = made_layer(be, kind, n, batch, steps)
    error, given = rng.standard_normal((n, batch * steps)).astype(np.float32), layer.ff.get()
    layer.forward()
    check_forward(layer, given)
    layer.backward(error)
    check_backward(layer, error)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("size", SIZES)
def test_steps_round_factors_and_nothing_else(be: Backend, rng: Any, kind: str, size: Any, form: int) -> None:
    check_steps(be, rng, kind, size, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("used", [3, 2])
def test_weights_by_column_and_states_of_other_tensors(be: Any, rng: Any, form: int, used: int) -> None:
    """No state is passed on by the step before: each is packed for its step; steps that are not used stay."""
    multiply_in(be, form)
    n, batch = 19, 20
    made = rng.standard_normal((n, n)).astype(np.float32)
    before, ff = ([be.array(rng.standard_normal((n, batch))) for _ in range(3)] for _ in range(2))
    h, wanted = [be.full((n, batch), 7) for _ in range(3)], []
    for weight in (be.array(made.T.copy()).T, be.array(made)):
        be.compound_rnn_unroll_fprop(weight, before, ff, h, None, n, 3, used, TANH)
        wanted.append([t.get() for t in h])
    np.testing.assert_array_equal(*wanted)
    for t in range(3):
        product, error = multiply(made, before[t].get(), 2)
        if t < used:
            near(h[t].get(), np.tanh(product + ff[t].get()), error + gamma(2) * np.abs(ff[t].get()) + OF_ACTIVATION)
        else:
            assert (h[t].get() == 7).all()
    errors, passed = ([be.array(t.get()) for t in ff] for _ in range(2))
    states = [t.get() for t in h]
    for weight in (be.array(made), be.array(made.T.copy()).T):
        e, before_it = ([be.array(t.get()) for t in list_] for list_ in (errors, passed))
        be.compound_rnn_unroll_bprop(weight, before_it, e, h, n, 3, used, TANH)
        wanted.append([t.get() for t in before_it])
    np.testing.assert_array_equal(*wanted[2:])
    for t in range(used):
        delta = ((1 - states[t] ** 2) * errors[t].get()).astype(np.float32)
        near(e[t].get(), delta, gamma(4) * np.abs(errors[t].get()))
        product, error = multiply(made, e[t].get(), 1)
        near(before_it[t].get(), passed[t].get() + product, error + gamma(1) * np.abs(passed[t].get()))


def test_weights_of_neither_contiguous_rows_nor_columns_and_small_ones_stay_float32(be: Any, rng: Any) -> None:
    found = []
    for precision in ("float32", "bfloat16"):
        be.product_precision = precision
        for n, batch in ((20, 1), (FEWEST - 1, 5), (20, 5)):
            wide = be.array(np.random.default_rng(n).standard_normal((n, 2 * n)))
            weight = wide[:, ::2] if batch == 5 and n == 20 else be.array(wide[:, ::2].get())
            state, ff = be.array(np.ones((n, batch))), be.array(np.ones((n, batch)))
            be.compound_rnn_unroll_fprop(weight, [state], [ff], [state], None, n, 1, 1, TANH)
            found.append(state.get())
    for one, other in zip(found[:3], found[3:]):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", GATES)
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, rng: Any, kind: str, form: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that share a step write the halves of the same words; those that keep their samples do not meet."""
    multiply_in(be, form)
    for n, batch, steps in ((151, 40, 3), (70, 128, 12)):
        error, found = rng.standard_normal((n, batch * steps)), []
        for threads in ("1", "2", "3"):
            use_threads(monkeypatch, threads)
            found.append(results(made_layer(be, kind, n, batch, steps), error))
        for other in found[1:]:
            for a, b in zip(found[0], other):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_strange_sample_spoils_no_other(be: Backend, rng: Any, kind: str, strange: float, form: int) -> None:
    multiply_in(be, form)
    clean, spoiled = made_layer(be, kind), made_layer(be, kind)
    check_a_spoiled_sample(clean, spoiled, strange, rng.standard_normal((20, 105)))
    ones, state, after = be.array(np.ones((20, 20))), be.array(np.ones((20, 3))), be.zeros((20, 3))
    state[0, 1], state[0, 2] = strange, -strange
    be.compound_rnn_unroll_fprop(ones, [state], [be.zeros((20, 3))], [after], None, 20, 1, 1, transforms.Identity())
    np.testing.assert_array_equal(after.get()[5], [20, strange, -strange])


@pytest.mark.parametrize("form", FORMS)
def test_subnormal_factors_count_as_zero(be: Backend, form: int) -> None:
    multiply_in(be, form)
    state, after = be.array(np.full((20, 3), 1e-40)), be.zeros((20, 3))
    weight, ff = be.array(np.full((20, 20), 2.0)), be.array(np.full((20, 3), 1.5))
    be.compound_rnn_unroll_fprop(weight, [state], [be.zeros((20, 3))], [after], None, 20, 1, 1, transforms.Identity())
    assert not after.get().any() and state.get().any()
    be.compound_rnn_unroll_fprop(weight, [ff], [state], [after], None, 20, 1, 1, transforms.Identity())
    np.testing.assert_array_equal(after.get(), 60)


@pytest.mark.parametrize("kind", ["simple", "lstm"])
def test_repeated_calls_follow_the_precision(be: Any, kind: str) -> None:
    layer = made_layer(be, kind, 20, 4, 3)
    have_programs(be)
    h, ff, c, a = (layer.cut(t) for t in (layer.h, layer.ff, layer.c, layer.a))
    before, c_before = [layer.h0, *h[:-1]], [layer.c0, *c[:-1]]
    start = layer.ff.get()

    def run() -> Any:
        layer.ff[:] = start
        if kind == "simple":
            be.compound_rnn_unroll_fprop(layer.w, before, ff, h, layer.b, 20, 3, 3, TANH)
        else:
            be.compound_lstm_unroll_fprop(
                layer.w, before, c_before, ff, ff, c, a, h, layer.b, 20, 3, 3, TANH, LOGISTIC
            )
        return layer.h.get()

    found: dict[str, list[Any]] = {"float32": [], "bfloat16": []}
    for precision in ("float32", "bfloat16", "float32", "bfloat16"):
        be.product_precision = precision
        found[precision] += [run() for _ in range(3)]
        assert be.executor.replay.table is None or be.executor.replay.table.calls
    assert not np.array_equal(found["float32"][0], found["bfloat16"][0])
    for results_ in found.values():
        for other in results_[1:]:
            np.testing.assert_array_equal(other, results_[0])
