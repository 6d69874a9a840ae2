"""Recurrent unrolls of float16 and bfloat16: computed in float32 from what is stored, and each result rounded once.

Every step is compared with float64 on the stored values of the step before it. Within a step, kernels go on with
numbers that are not rounded yet; the definitions of the NumPy engine round them first, and both are within the bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import rnn as kernels
from neonlike.backends.geometry.products import UnrollSizes
from neonlike.kernels.run import calls
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.conv.conv_compiled import Guarded
from tests.support.engines import have_programs, use_threads
from tests.support.float64.rnn_formulas import sigmoid
from tests.support.float64.rnn_unrolled import GATES, LOGISTIC, TANH, Layer, check_a_spoiled_sample, made_layer, results
from tests.support.rounded import UNIT, gamma

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.cpu_only("the kernels and definitions of the CPU")]

HALVES = [np.dtype(np.float16), bfloat16()]
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of one rounding to nearest."""
SMALLEST = {"float16": 2.0**-25, "bfloat16": 2.0**-126}
"""Largest error of a number that is too small for that."""
OF_ACTIVATION = 8 * UNIT
"""Error of tanh and of the logistic function, whose values are at most 1."""
SIZES = [(1, 1, 1), (1, 4, 3), (33, 3, 4), (20, 35, 3), (64, 64, 2), (37, 33, 3), (40, 1, 3), (34, 17, 2), (70, 40, 2)]
"""Units, samples, steps."""


class Rounded(NamedTuple):
    """Checks of numbers that were computed in float32 and rounded to 16 bits."""

    unit: float
    smallest: float

    def near(self, found: Any, wanted: Any, error: Any) -> None:
        """Each element is the rounded one of a number within ``error`` of ``wanted``."""
        bound = error + self.unit * (np.abs(wanted) + error) + self.smallest
        wrong = np.abs(found - wanted) - bound
        assert wrong.max() <= 0, f"{(wrong > 0).sum()} of {wrong.size} elements; by {wrong.max():.3g}"

    def again(self, value: Any, times: int = 1) -> Any:
        """Bound of the error of a number that had ``times`` more factors rounded."""
        return ((1 + self.unit) ** times - 1) * np.abs(value) + times * self.smallest


def values(*tensors: Any) -> list[Any]:
    """The values of tensors, in float64."""
    return [t.get().astype(np.float64) for t in tensors]


def multiply(a: Any, b: Any, terms: int = 0) -> tuple[Any, Any]:
    """The product, and the largest error of float32 sums of it and ``terms`` more."""
    return a @ b, gamma(a.shape[-1] + terms) * (np.abs(a) @ np.abs(b))


def check_forward(layer: Layer, given: Any, rounds: Rounded) -> None:
    """Each step from the state before it; ``given``: the projections."""
    n, near, again = layer.n, rounds.near, rounds.again
    w, b, h, gates, c, a, reset, h0, c0 = values(
        layer.w, layer.b, layer.h, layer.ff, layer.c, layer.a, layer.reset, layer.h0, layer.c0
    )
    for t in range(layer.steps):
        at, last = (slice((t - k) * layer.batch, (t + 1 - k) * layer.batch) for k in (0, 1))
        before, cell = (h[:, last], c[:, last]) if t else (h0, c0)
        ff, here, state = given[:, at], gates[:, at], h[:, at]
        product, error = multiply(w, before, 2)
        total, error = product + ff + b, error + gamma(3) * (np.abs(product) + np.abs(ff) + np.abs(b))
        if layer.kind == "simple":
            near(state, np.tanh(total), error + OF_ACTIVATION)
            continue
        opened = 3 * n if layer.kind == "lstm" else 2 * n
        near(here[:opened], sigmoid(total[:opened]), error[:opened] / 4 + OF_ACTIVATION)
        if layer.kind == "lstm":
            i, f, o, g = here.reshape(4, n, -1)
            near(g, np.tanh(total[opened:]), error[opened:] + OF_ACTIVATION)
            kept, written = f * cell, i * g
            error = again(kept) + again(written, 2) + gamma(3) * (np.abs(kept) + np.abs(written))
            near(c[:, at], kept + written, error)
            near(a[:, at], np.tanh(c[:, at]), again(c[:, at]) + OF_ACTIVATION)
            near(state, o * a[:, at], again(o * a[:, at], 2) + 2 * UNIT)
            continue
        r, z, candidate = here.reshape(3, n, -1)
        near(reset[:, at], r * before, again(r * before) + gamma(2) * np.abs(before))
        product, error = multiply(w[2 * n :], reset[:, at], 2)
        error = error + np.abs(w[2 * n :]) @ again(reset[:, at])
        error = error + gamma(3) * (np.abs(product) + np.abs(ff[2 * n :]) + np.abs(b[2 * n :]))
        near(candidate, np.tanh(product + ff[2 * n :] + b[2 * n :]), error + OF_ACTIVATION)
        near(state, (1 - z) * before + z * candidate, again(z * candidate) + gamma(5) * (np.abs(before) + 1))


def check_backward(layer: Layer, given: Any, rounds: Rounded) -> None:
    """Each step from the errors after it; ``given``: the error of the states."""
    check = {"simple": simple_backward, "lstm": lstm_backward, "gru": gru_backward}[layer.kind]
    e, d, h, gates, h0, dh0 = values(layer.e, layer.d, layer.h, layer.ff, layer.h0, layer.dh0)
    cell = np.zeros((layer.n, layer.batch))
    for t in range(layer.steps - 1, -1, -1):
        at, last = (slice((t - k) * layer.batch, (t + 1 - k) * layer.batch) for k in (0, 1))
        own, found, state = (given[:, last], e[:, last], h[:, last]) if t else (0 * dh0, dh0, h0)
        at_t = e[:, at], d[:, at], h[:, at], gates[:, at], own, found, state
        cell = check(layer, rounds, at_t, cell, t)


def simple_backward(layer: Layer, rounds: Rounded, at_t: Any, cell: Any, t: int) -> Any:
    (w,), (_, d, _, _, own, found, state) = values(layer.w), at_t
    product, error = multiply(w.T, d, 2)
    error = error + gamma(2) * (np.abs(own) + np.abs(product)) + rounds.again(own + product)
    slope = 1 - state**2 if t else 1
    rounds.near(found, slope * (own + product), slope * error + gamma(4) * np.abs(own + product))
    return cell


def lstm_backward(layer: Layer, rounds: Rounded, at_t: Any, cell: Any, t: int) -> Any:
    """``cell``: the error of the cell that the step after passed on; returns what this one does."""
    (w, c, a, c0, dc, dc0), (e, d, _, gates, own, found, _) = (
        values(layer.w, layer.c, layer.a, layer.c0, layer.dc, layer.dc0), at_t,
    )  # fmt: skip
    at, last = (slice((t - k) * layer.batch, (t + 1 - k) * layer.batch) for k in (0, 1))
    near, again, shown, before = rounds.near, rounds.again, a[:, at], c[:, last] if t else c0
    i, f, o, g = gates.reshape(4, layer.n, -1)
    of_i, of_f, of_o, of_g = d.reshape(4, layer.n, -1)
    added, total = (1 - shown**2) * o * e, dc[:, at]
    near(total, cell + added, again(cell, 2) + again(added) + gamma(6) * (np.abs(cell) + np.abs(o * e)))
    for of_gate, wanted, size in (
        (of_i, i * (1 - i) * total * g, i * total * g), (of_f, f * (1 - f) * total * before, f * total * before),
        (of_o, o * (1 - o) * e * shown, o * e * shown), (of_g, (1 - g**2) * total * i, total * i),
    ):  # fmt: skip
        near(of_gate, wanted, again(wanted) + gamma(6) * np.abs(size))
    if not t:
        near(dc0, total * f, again(total * f) + gamma(2) * np.abs(total * f))
    product, error = multiply(w.T, d, 2)
    near(found, own + product, error + gamma(2) * (np.abs(own) + np.abs(product)))
    return total * f


def gru_backward(layer: Layer, rounds: Rounded, at_t: Any, cell: Any, t: int) -> Any:
    """The error before a step is rounded twice: when terms without W are added, and when the others are."""
    (w,), n, (e, d, _, gates, own, found, state) = values(layer.w), layer.n, at_t
    near, again, (r, z, candidate) = rounds.near, rounds.again, gates.reshape(3, n, -1)
    wanted = (1 - candidate**2) * e * z, z * (1 - z) * e * (candidate - state)
    sizes = e * z, z * e * (np.abs(candidate) + np.abs(state))
    for of_gate, value, size in zip((d[2 * n :], d[n : 2 * n]), wanted, sizes):
        near(of_gate, value, again(value) + gamma(8) * np.abs(size))
    q, of_q = multiply(w[2 * n :].T, d[2 * n :])
    near(d[:n], r * (1 - r) * q * state, (of_q + gamma(8) * np.abs(q)) * np.abs(state))
    product, error = multiply(w[: 2 * n].T, d[: 2 * n])
    parts = own, e * (1 - z), r * q
    error = error + of_q + gamma(8) * (np.abs(product) + sum(map(np.abs, parts))) + again(sum(parts))
    near(found, sum(parts) + product, error)
    return cell


def rounds_of(dtype: Any) -> Rounded:
    return Rounded(ROUNDING[dtype.name], SMALLEST[dtype.name])


def drawn(rng: Any, dtype: Any, *shape: int) -> Any:
    """Random numbers of ``dtype``, in float64."""
    return rng.standard_normal(shape).astype(np.float32).astype(dtype).astype(np.float64)


@pytest.mark.compiles(4)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_steps_round_their_results_and_nothing_else(
    be: Backend, rng: Any, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In working memory full of nan, around which nothing is written."""
    memory = Guarded()
    monkeypatch.setattr(calls, "held_workspace", memory)
    for fewest in (1, kernels.FEWEST_OF_PAIRS):  # small layers in pairs, too
        monkeypatch.setattr(kernels, "FEWEST_OF_PAIRS", fewest)
        for n, batch, steps in SIZES:
            layer = made_layer(be, kind, n, batch, steps, dtype=dtype)
            (given,), error = values(layer.ff), drawn(rng, dtype, n, batch * steps)
            layer.forward()
            check_forward(layer, given, rounds_of(dtype))
            layer.backward(error)
            check_backward(layer, error, rounds_of(dtype))
    memory.check()


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_a_state_is_the_same_passed_on_or_packed(be: Any, rng: Any, kind: str, dtype: Any) -> None:
    """A step is computed from what the one before stored, as calls of one step each are."""
    for n, batch in ((37, 35), (20, 1), (64, 3)):
        whole, parts = (made_layer(be, kind, n, batch, 3, dtype=dtype) for _ in range(2))
        whole.forward()
        state, cell = parts.h0, parts.c0
        for t in range(3):
            h, c, a, ff, reset = (parts.cut(x)[t] for x in (parts.h, parts.c, parts.a, parts.ff, parts.reset))
            if kind == "simple":
                be.compound_rnn_unroll_fprop(parts.w, [state], [ff], [h], parts.b, n, 1, 1, TANH)
            elif kind == "lstm":
                be.compound_lstm_unroll_fprop(
                    parts.w, [state], [cell], [ff], [ff], [c], [a], [h], parts.b, n, 1, 1, TANH, LOGISTIC
                )
            else:
                be.compound_gru_unroll_fprop(
                    parts.w, [state], [ff], [ff], [reset], [h], parts.b, n, 1, 1, TANH, LOGISTIC
                )
            state, cell = h, c
        for name in ("h", "c", "a", "ff", "reset"):
            np.testing.assert_array_equal(*(getattr(layer, name).get() for layer in (whole, parts)), err_msg=name)


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, rng: Any, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_PRODUCTS", 1)
    monkeypatch.setattr(kernels, "PARALLEL_OF_ONE", 1)
    for n, batch, steps in ((151, 40, 3), (70, 128, 4), (33, 1, 3)):
        error, found = rng.standard_normal((n, batch * steps)), []
        for threads in ("1", "2", "3"):
            use_threads(monkeypatch, threads)
            found.append(results(made_layer(be, kind, n, batch, steps, dtype=dtype), error))
        for other in found[1:]:
            for a, b in zip(found[0], other):
                np.testing.assert_array_equal(a, b)


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_weights_of_any_layout(be: Any, rng: Any, dtype: Any) -> None:
    """By row, by column, and with gaps, which are not made pairs."""
    made, found = drawn(rng, dtype, 33, 33), []
    wide = np.zeros((33, 66))
    wide[:, ::2] = made
    for batch in (1, 5):
        state, ff, h = (be.array(drawn(np.random.default_rng(k), dtype, 33, batch), dtype=dtype) for k in range(3))
        for weight in (
            be.array(made, dtype=dtype), be.array(made.T.copy(), dtype=dtype).T, be.array(wide, dtype=dtype)[:, ::2],
        ):  # fmt: skip
            be.compound_rnn_unroll_fprop(weight, [state], [ff], [h], None, 33, 1, 1, TANH)
            found.append(h.get().astype(np.float64))
            product, error = multiply(made, state.get().astype(np.float64), 2)
            total = product + ff.get()
            rounds_of(dtype).near(found[-1], np.tanh(total), error + gamma(2) * np.abs(total) + OF_ACTIVATION)


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rows_of_other_memory_are_left_alone(be: Any, rng: Any, dtype: Any) -> None:
    """Samples that fill no vector, within a wider matrix."""
    for batch in (3, 17, 33):
        whole, weight = be.full((20, batch + 8), 7, dtype=dtype), be.array(drawn(rng, dtype, 20, 20), dtype=dtype)
        h, ff = whole[:, 4 : batch + 4], be.array(drawn(rng, dtype, 20, batch), dtype=dtype)
        be.compound_rnn_unroll_fprop(weight, [h], [ff], [h], None, 20, 1, 1, TANH)
        be.compound_rnn_unroll_bprop(weight.T, [h], [ff], [be.array(h.get(), dtype=dtype)], 20, 1, 1, TANH)
        around = whole.get().astype(np.float64)
        assert (around[:, :4] == 7).all() and (around[:, batch + 4 :] == 7).all()
        assert (around[:, 4 : batch + 4] != 7).all()


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_strange_sample_spoils_no_other(be: Backend, rng: Any, kind: str, strange: float, dtype: Any) -> None:
    clean, spoiled = made_layer(be, kind, dtype=dtype), made_layer(be, kind, dtype=dtype)
    check_a_spoiled_sample(clean, spoiled, strange, rng.standard_normal((20, 105)))


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_calls_are_repeated_without_a_copy(be: Any, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel reads weight, bias and steps as they are stored: a call again sees their new values."""
    layer, other = (made_layer(be, kind, 33, 4, 3, seed, dtype) for seed in (1, 2))
    have_programs(be)
    lasting, run = [], kernels.Unrolled.run
    monkeypatch.setattr(kernels.Unrolled, "run", lambda *given: lasting.append(run(*given)) or lasting[-1])
    start = layer.ff.get()
    first = layer.forward()
    assert lasting and lasting[-1].lasts
    for _ in range(2):
        layer.ff[:] = be.array(start, dtype=dtype)
        np.testing.assert_array_equal(layer.forward(), first)
    for name in ("w", "b", "ff", "h0", "c0"):
        getattr(layer, name)[:] = getattr(other, name)
    np.testing.assert_array_equal(layer.forward(), other.forward())


@pytest.mark.engines("c")
def test_reports_say_how_tensors_of_16_bits_are_multiplied(be: Any) -> None:
    said = {dtype.name: be.factors_of(UnrollSizes(256, 64, 32, dtype)) for dtype in HALVES}
    assert said["float16"] == "float32"
    pairs = be._pairs_of(bfloat16())
    assert said["bfloat16"] == ("bfloat16 by vdpbf16ps" if pairs == 1 else "float32")
    assert be.factors_of(UnrollSizes(4, 4, 32, bfloat16())) == "float32"
