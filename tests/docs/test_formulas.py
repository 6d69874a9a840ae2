"""The page of formulas says what the primitives compute: each formula, written in NumPy, gives their numbers."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh
from sitebuilder import formulas
from tests import ROOT

pytestmark = [pytest.mark.engines("numpy"), pytest.mark.cpu_only("kernels are compared with the definitions elsewhere")]

PAGE = (ROOT / "docs" / "formulas.md").read_text(encoding="utf-8")
Array = Any


def close(found: Any, expected: Array) -> None:
    """Compare a tensor with the page's numbers."""
    np.testing.assert_allclose(found.get().reshape(np.shape(expected)), expected, rtol=1e-9, atol=1e-12)


@pytest.fixture
def draw() -> Callable[..., Array]:
    return np.random.default_rng(7).standard_normal


def tensor(be: Backend, values: Array) -> Any:
    return be.array(values, dtype=np.float64)


def empties(be: Backend, *shapes: tuple[int, ...]) -> list[Any]:
    return [be.empty(shape, dtype=np.float64) for shape in shapes]


# What is on the page ------------------------------------------------------------------------------------------------


def methods_of_primitives() -> set[str]:
    """Methods in the table of docs/primitives.md."""
    text = (ROOT / "docs" / "primitives.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE) if "`" in row]
    cells = "".join(cell for row in rows for cell in row.split(" | ")[1:])
    return {name.removeprefix("tensor.") for name in re.findall(r"`([\w.]+)`", cells)}


def test_every_primitive_is_on_the_page() -> None:
    names = methods_of_primitives()
    assert {"fprop_conv", "hist", "nms", "bprop_mergesum"} <= names  # the table has some of the unrolls
    unrolls = {name for name in dir(Backend) if re.fullmatch(r"compound_\w+_unroll_\w+", name)}
    assert len(unrolls) == 8
    assert [name for name in sorted(names | unrolls) if not re.search(rf"`(?:tensor\.)?{name}\b", PAGE)] == []


def test_what_the_page_calls_a_method_is_one() -> None:
    called = re.findall(r"`((?:[fb]prop|update|compound|roipooling|batched|be\.)\w*)[`(]", PAGE)
    assert len(called) > 25
    assert [name for name in called if not hasattr(Backend, name.removeprefix("be."))] == []


def formulas_of(page: str) -> Iterator[tuple[str, bool]]:
    """Formulas of a page, and whether each is a block."""
    yield from ((text, True) for text in re.findall(r"^```math\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page, flags=re.MULTILINE | re.DOTALL)
    yield from ((text, False) for text in re.findall(r"\$([^$]+)\$", prose))


def test_every_formula_is_read() -> None:
    found = list(formulas_of(PAGE))
    assert len(found) > 100
    for text, as_block in found:
        assert formulas.mathml(text, as_block).startswith("<math")


def test_code_hosts_read_formulas_within_lines() -> None:
    """Markdown takes a backslash before punctuation away, and a formula there ends with its line."""
    lines = [text for text, as_block in formulas_of(PAGE) if not as_block]
    assert [text for text in lines if re.search(r"\\[^A-Za-z]|\n", text)] == []


# Convolution --------------------------------------------------------------------------------------------------------

GEOMETRIES = [
    {"C": 2, "K": 3, "H": 5, "W": 4, "R": 3, "S": 2, "pad_h": 1, "str_h": 2, "dil_w": 2},
    {"C": 4, "K": 6, "D": 3, "H": 4, "W": 4, "T": 2, "R": 2, "S": 2, "pad_d": 1, "str_w": 2, "groups": 2},
    {"C": 3, "K": 3, "H": 4, "W": 5, "R": 3, "S": 3, "pad_w": 2, "groups": 3},
]


def steps_along(axis: str, given: dict[str, int]) -> tuple[int, int, int]:
    """Stride, dilation and padding of an axis."""
    return given.get(f"str_{axis}", 1), given.get(f"dil_{axis}", 1), given.get(f"pad_{axis}", 0)


def paired(g: Any, given: dict[str, int]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]:
    """Indices of output, filter and input of every product of the page's sum."""
    groups = given.get("groups", 1)
    for k, m, p, q in itertools.product(*map(range, (g.K, *g.MPQ))):
        for c, t, r, s in itertools.product(*map(range, (g.C // groups, *g.TRS))):
            place = []
            for axis, out, tap in zip("dhw", (m, p, q), (t, r, s)):
                step, dilation, pad = steps_along(axis, given)
                place.append(out * step + tap * dilation - pad)
            if all(0 <= at < size for at, size in zip(place, g.DHW)):
                channel = c + g.C // groups * (k * groups // g.K)
                yield (k, m, p, q), (c, t, r, s, k), (channel, *place)


@pytest.mark.parametrize("given", GEOMETRIES, ids=["strided", "groups", "depthwise"])
def test_convolution(be: Backend, given: dict[str, int], draw: Any) -> None:
    g = be.conv_layer(np.float64, 2, **given)
    for axis, size, window, found in zip("dhw", g.DHW, g.TRS, g.MPQ):
        step, dilation, pad = steps_along(axis, given)
        assert found == math.floor((size + 2 * pad - dilation * (window - 1) - 1) / step) + 1
    x, f, e = draw(g.dimI), draw(g.dimF), draw(g.dimO)
    out, dx, df = np.zeros(g.dimO), np.zeros(g.dimI), np.zeros(g.dimF)
    for o, w, i in paired(g, given):
        out[o] += f[w] * x[i]
        dx[i] += f[w] * e[o]
        df[w] += x[i] @ e[o]
    made = empties(be, g.dimO, g.dimI, g.dimF, g.dimS)
    images, filters, errors = (tensor(be, values) for values in (x, f, e))
    be.fprop_conv(g, images, filters, made[0])
    be.bprop_conv(g, filters, errors, made[1])
    be.update_conv(g, images, errors, made[2], grad_bias=made[3])
    for got, expected in zip(made, (out, dx, df, e.reshape(g.K, -1).sum(1))):
        close(got, expected)


def test_steps_after_a_convolution(be: Backend, draw: Any) -> None:
    g = be.conv_layer(np.float64, 2, C=2, K=3, H=3, W=3, R=2, S=2)
    x, f, old, bias = draw(g.dimI), draw(g.dimF), draw(g.dimO), draw((3, 1))
    (bare,) = empties(be, g.dimO)
    be.fprop_conv(g, tensor(be, x), tensor(be, f), bare)
    a = 0.5 * bare.get() + bias.reshape(3, 1, 1, 1, 1)
    a = a * ((old > 0) + 0.25 * (old < 0))
    a = np.maximum(a, 0) + 0.25 * np.minimum(a, 0)
    out, (bsum,) = tensor(be, old), empties(be, (3, 1))
    be.fprop_conv(g, tensor(be, x), tensor(be, f), out, None, tensor(be, bias), bsum, 0.5, 2.0, True, True, 0.25)
    close(out, a + 2 * old)
    close(bsum, (a + 2 * old).reshape(3, -1).sum(1))


def test_transposed_convolution(be: Backend, draw: Any) -> None:
    g = be.deconv_layer(np.float64, 2, C=1, K=2, P=3, Q=2, R=3, S=2, pad_h=1, str_h=2, str_w=3, dil_w=2)
    assert g.H == (3 - 1) * 2 - 2 * 1 + 1 * (3 - 1) + 1 and g.W == (2 - 1) * 3 - 0 + 2 * (2 - 1) + 1
    x, f = draw(g.dimO), draw(g.dimF)
    out, (made,) = np.zeros(g.dimI), empties(be, g.dimI)
    for o, w, i in paired(g, {"pad_h": 1, "str_h": 2, "str_w": 3, "dil_w": 2}):
        out[i] += f[w] * x[o]
    be.bprop_conv(g, F=tensor(be, f), E=tensor(be, x), grad_I=made)
    close(made, out)


# Pooling, normalisation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_pooling(be: Backend, op: str, draw: Any) -> None:
    layer = be.pool_layer(np.float64, op, 2, 3, H=5, W=4, J=2, R=3, S=2, pad_h=1, str_c=1, str_h=2, str_w=2)
    x, e = draw(layer.dimI), draw(layer.dimO)
    out, slopes = np.zeros(layer.dimO), np.zeros(layer.dimI)
    for k, m, p, q, n in np.ndindex(*layer.dimO):
        starts = k, m, 2 * p - 1, 2 * q
        ends = [min(at + size, length) for at, size, length in zip(starts, (2, 1, 3, 2), layer.CDHW)]
        window = [range(max(at, 0), end) for at, end in zip(starts, ends)]
        inside = [(*place, n) for place in itertools.product(*window)]
        values, error = np.array([x[i] for i in inside]), e[k, m, p, q, n]
        result = {"max": values.max(), "avg": values.mean(), "l2": np.sqrt((values**2).sum())}[op]
        out[k, m, p, q, n] = result
        for number, i in enumerate(inside):
            first = number == values.argmax()
            slopes[i] += {"max": error * first, "avg": error / len(inside), "l2": x[i] * error / result}[op]
    made, delta = empties(be, layer.dimO2, layer.dimI2)
    argmax = be.empty(layer.dimO2, dtype=np.uint8) if op == "max" else None
    be.fprop_pool(layer, tensor(be, x), made, argmax)
    be.bprop_pool(layer, tensor(be, e), delta, argmax)
    close(made, out)
    close(delta, slopes)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("spatial", [True, False])
def test_batch_normalisation(be: Backend, spatial: bool, relu: bool, draw: Any) -> None:
    images, eps, rho = draw((2, 3, 3, 4)), 0.1, 0.9  # (C, H, W, N)
    rows = 2 if spatial else 18
    x, e, old = images.reshape(rows, -1), draw((rows, 72 // rows)), draw((rows, 72 // rows))
    gamma, beta, gmean, gvar = draw((rows, 1)), draw((rows, 1)), draw((rows, 1)), draw((rows, 1)) ** 2
    m = x.shape[1]
    mean = x.sum(1, keepdims=True) / m
    var = ((x - mean) ** 2).sum(1, keepdims=True) / m
    xhat = (x - mean) / np.sqrt(var + eps)
    bracket = np.maximum(gamma * xhat + beta, 0) if relu else gamma * xhat + beta
    xsum, xvar, y = (tensor(be, values) for values in (np.zeros((rows, 1)), np.zeros((rows, 1)), old))
    running = tensor(be, gmean), tensor(be, gvar)
    given, parameters = tensor(be, x), (tensor(be, gamma), tensor(be, beta))
    be.compound_fprop_bn(given, xsum, xvar, *running, *parameters, y, eps, rho, True, 0.5, relu, alpha=2.0)
    close(y, 2 * bracket + 0.5 * old)
    close(xsum, m * mean)
    close(xvar, var)
    close(running[0], rho * gmean + (1 - rho) * mean)
    close(running[1], rho * gvar + (1 - rho) * var)
    if relu:
        e = e * (bracket > 0)
    dgamma, dbeta = (e * xhat).sum(1, keepdims=True), e.sum(1, keepdims=True)
    dx = gamma / np.sqrt(var + eps) * (e - (xhat * dgamma + dbeta) / m)
    made = empties(be, x.shape, (rows, 1), (rows, 1))
    result = tensor(be, bracket) if relu else None
    be.compound_bprop_bn(*made, tensor(be, e), given, xsum, xvar, parameters[0], eps, y=result)
    for got, expected in zip(made, (dx, dgamma, dbeta)):
        close(got, expected)


def test_local_response_normalisation(be: Backend, draw: Any) -> None:
    layer = be.lrn_layer(np.float64, 2, 7, H=2, W=2, J=5)
    x, e, ascale, bpower = draw((7, 8)), draw((7, 8)), 0.7, 0.75
    windows = [[j for j in range(7) if abs(j - c) <= 5 // 2] for c in range(7)]
    denom = 1 + ascale / 5 * np.array([(x[window] ** 2).sum(0) for window in windows])
    out = x * denom**-bpower
    shares = np.array([(out[window] * e[window] / denom[window]).sum(0) for window in windows])
    given, error, (made, kept, delta) = tensor(be, x), tensor(be, e), empties(be, (7, 8), (7, 8), (7, 8))
    be.fprop_lrn(layer, given, made, kept, ascale=ascale, bpower=bpower)
    be.bprop_lrn(layer, given, made, error, delta, kept, ascale=ascale, bpower=bpower)
    close(made, out)
    close(kept, denom)
    close(delta, e * denom**-bpower - 2 * bpower * ascale / 5 * x * shares)


# Sequences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_attention(be: Backend, causal: bool, draw: Any) -> None:
    layer = be.attention_layer(np.float64, 1, 1, queries=4, size=3, keys=5, value_size=2, causal=causal)
    q, k, v, e = draw((4, 3)), draw((5, 3)), draw((5, 2)), draw((4, 2))
    scale = 1 / np.sqrt(3)
    scores = scale * q @ k.T
    if causal:
        scores[np.arange(5) > np.arange(4)[:, None]] = -np.inf
    lse = np.log(np.exp(scores).sum(1))
    weights = np.exp(scores - lse[:, None])
    out = weights @ v
    g = weights * (e @ v.T - (e * out).sum(1, keepdims=True))
    made, kept, dq, dk, dv = empties(be, (4, 2), (4,), (4, 3), (5, 3), (5, 2))
    inputs = [tensor(be, values) for values in (q, k, v)]
    be.fprop_attention(layer, *inputs, made, kept)
    be.bprop_attention(layer, *inputs, made, kept, tensor(be, e), dq, dk, dv)
    for got, expected in zip((made, kept, dq, dk, dv), (out, lse, scale * g @ k, scale * g.T @ q, weights.T @ e)):
        close(got, expected)


UNITS, SAMPLES, STEPS = 3, 2, 4


def sigma(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Sequence:
    """Weights, input parts, and errors of a layer with ``gates`` times as many rows as units."""

    def __init__(self, be: Backend, gates: int, draw: Any) -> None:
        self.be, rows = be, gates * UNITS
        self.w, self.b = draw((rows, UNITS)), draw((rows, 1))
        self.u, self.h0 = [draw((rows, SAMPLES)) for _ in range(STEPS)], draw((UNITS, SAMPLES))
        self.e = [draw((UNITS, SAMPLES)) for _ in range(STEPS)]
        self.weight, self.bias = tensor(be, self.w), tensor(be, self.b)

    def tensors(self, values: list[Array]) -> list[Any]:
        return [tensor(self.be, value) for value in values]

    def new(self, gates: int = 1) -> list[Any]:
        return empties(self.be, *[(gates * UNITS, SAMPLES)] * STEPS)


def compare(found: list[Any], expected: list[Array]) -> None:
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected):
        close(got, wanted)


def test_recurrent_layer(be: Backend, draw: Any) -> None:
    s = Sequence(be, 1, draw)
    h = [s.h0]
    for t in range(STEPS):
        h.append(np.tanh(s.w @ h[t] + s.u[t] + s.b))
    delta = [np.zeros_like(s.h0), *(error.copy() for error in s.e)]
    for t in range(STEPS, 0, -1):
        delta[t] = (1 - h[t] ** 2) * delta[t]
        delta[t - 1] = delta[t - 1] + s.w.T @ delta[t]
    states, errors = s.new(), s.tensors([np.zeros_like(s.h0), *s.e])
    be.compound_rnn_unroll_fprop(
        s.weight, [tensor(be, s.h0), *states[:-1]], s.tensors(s.u), states, s.bias, UNITS, STEPS, None, Tanh()
    )
    be.compound_rnn_unroll_bprop(s.weight.T, errors[:-1], errors[1:], states, UNITS, STEPS, None, Tanh())
    compare(states, h[1:])
    compare(errors, delta)


def test_lstm(be: Backend, draw: Any) -> None:
    s = Sequence(be, 4, draw)
    h, c, gates = [s.h0], [draw((UNITS, SAMPLES))], []
    for t in range(STEPS):
        before = s.w @ h[t] + s.u[t] + s.b
        gates.append(np.concatenate([sigma(before[: 3 * UNITS]), np.tanh(before[3 * UNITS :])]))
        i, f, o, g = gates[t].reshape(4, UNITS, SAMPLES)
        c.append(f * c[t] + i * g)
        h.append(o * np.tanh(c[t + 1]))
    delta, eta, slopes = [0.0, *s.e], [np.zeros_like(s.h0) for _ in range(STEPS + 1)], [None] * STEPS
    for t in range(STEPS, 0, -1):
        i, f, o, g = gates[t - 1].reshape(4, UNITS, SAMPLES)
        act = np.tanh(c[t])
        eta[t] = eta[t] + (1 - act**2) * o * delta[t]
        di, df = i * (1 - i) * eta[t] * g, f * (1 - f) * eta[t] * c[t - 1]
        do, dg = o * (1 - o) * delta[t] * act, (1 - g**2) * eta[t] * i
        slopes[t - 1] = np.concatenate([di, df, do, dg])
        eta[t - 1] = eta[t] * f
        delta[t - 1] = delta[t - 1] + s.w.T @ slopes[t - 1]
    ifog, cells, acts, states, made = s.new(4), s.new(), s.new(), s.new(), s.new(4)
    before_h, before_c = [tensor(be, s.h0), *states[:-1]], [tensor(be, c[0]), *cells[:-1]]
    lists = before_h, before_c, s.tensors(s.u), ifog, cells, acts, states
    be.compound_lstm_unroll_fprop(s.weight, *lists, s.bias, UNITS, STEPS, None, Tanh(), Logistic())
    errors, etas = s.tensors([np.zeros_like(s.h0), *s.e]), s.tensors([np.zeros_like(s.h0)] * (STEPS + 1))
    lists = errors[:-1], errors[1:], etas[:-1], etas[1:], made, ifog, before_c, acts
    be.compound_lstm_unroll_bprop(s.weight.T, *lists, UNITS, STEPS, None, Tanh(), Logistic())
    compare(ifog, gates)
    compare(cells, c[1:])
    compare(acts, [np.tanh(cell) for cell in c[1:]])
    compare(states, h[1:])
    compare(made, slopes)
    compare(etas, eta)
    compare(errors, delta)


def test_gru(be: Backend, draw: Any) -> None:
    s = Sequence(be, 3, draw)
    (w_rz, w_n), (b_rz, b_n) = np.split(s.w, [2 * UNITS]), np.split(s.b, [2 * UNITS])
    h, gates = [s.h0], []
    for t in range(STEPS):
        u_rz, u_n = np.split(s.u[t], [2 * UNITS])
        r, z = np.split(sigma(w_rz @ h[t] + u_rz + b_rz), 2)
        n = np.tanh(w_n @ (r * h[t]) + u_n + b_n)
        gates.append(np.concatenate([r, z, n]))
        h.append((1 - z) * h[t] + z * n)
    delta, slopes = [0.0, *s.e], [None] * STEPS
    for t in range(STEPS, 0, -1):
        r, z, n = gates[t - 1].reshape(3, UNITS, SAMPLES)
        dn, dz = (1 - n**2) * delta[t] * z, z * (1 - z) * delta[t] * (n - h[t - 1])
        q = w_n.T @ dn
        dr = r * (1 - r) * q * h[t - 1]
        slopes[t - 1] = np.concatenate([dr, dz, dn])
        delta[t - 1] = delta[t - 1] + (1 - z) * delta[t] + w_rz.T @ np.concatenate([dr, dz]) + r * q
    rzn, reset, states, made = s.new(3), s.new(), s.new(), s.new(3)
    before = [tensor(be, s.h0), *states[:-1]]
    lists = before, s.tensors(s.u), rzn, reset, states
    be.compound_gru_unroll_fprop(s.weight, *lists, s.bias, UNITS, STEPS, None, Tanh(), Logistic())
    errors = s.tensors([np.zeros_like(s.h0), *s.e])
    lists = errors[:-1], errors[1:], made, rzn, before
    be.compound_gru_unroll_bprop(s.weight.T, *lists, UNITS, STEPS, None, Tanh(), Logistic())
    compare(rzn, gates)
    compare(reset, [gate[:UNITS] * state for gate, state in zip(gates, h)])
    compare(states, h[1:])
    compare(made, slopes)
    compare(errors, delta)


# Others -------------------------------------------------------------------------------------------------------------


def test_products(be: Backend, draw: Any) -> None:
    a, b, c = draw((2, 3)), draw((3, 4)), draw((2, 4))
    made, (bsum,) = tensor(be, c), empties(be, (2, 1))
    be.compound_dot(tensor(be, a), tensor(be, b), made, 2.0, 0.5, True, bsum)
    close(made, np.maximum(2 * a @ b, 0) + 0.5 * c)
    close(bsum, made.get().sum(1))
    stack, other, summed = draw((3, 2, 2)), draw((3, 2, 4)), tensor(be, c)
    be.batched_dot(tensor(be, stack), tensor(be, other), summed, 2.0, 0.5, True)
    close(summed, np.maximum(2 * sum(x @ y for x, y in zip(stack, other)), 0) + 0.5 * c)
    signs = be.xnor_compound_dot(tensor(be, a), tensor(be, b), tensor(be, c), 0.5)
    close(signs, np.where(a >= 0, 1, -1) @ np.where(b >= 0, 1, -1) + 0.5 * c)


def test_products_in_int8(be: Backend, draw: Any) -> None:
    w, x, b, step = (np.float32(values) for values in (draw((3, 5)), 40 * draw((5, 2)), draw((3, 1)), 0.5))
    steps = np.abs(w).max(1, keepdims=True) / np.float32(127)
    sums = np.rint(w / steps) @ np.rint(np.clip(x / step, -127, 127))
    weights = be.int8_weights(be.array(w), float(step))
    made = be.int8_product(weights, be.array(x), be.empty((3, 2)), be.array(b))
    np.testing.assert_allclose(made.get(), steps * step * sums + b, rtol=1e-5)


def test_lookup(be: Backend, draw: Any) -> None:
    table, e, words = draw((4, 3)), draw((3, 5)), [2, 0, 2, 3, 0]
    close(be.take(tensor(be, table), words, axis=0).T, np.array([[table[w, i] for w in words] for i in range(3)]))
    slopes = draw((4, 3))
    made = tensor(be, slopes)
    for j, word in enumerate(words):
        slopes[word] += 2 * e[:, j] * (word != 3)
    be.compound_bprop_lut(5, be.array([words], dtype=np.int32), tensor(be, e), None, made, pad_idx=3, alpha=2.0)
    close(made, slopes)


def test_regions(be: Backend, draw: Any) -> None:
    x, e, region = draw((2, 6, 8, 1)), draw((2, 2, 3, 1)), [0, 3, 2, 14, 9]
    x0, y0, x1, y1 = (round(corner * 0.5) for corner in region[1:])
    out, where, slopes = np.zeros((2, 2, 3, 1)), np.zeros((2, 2, 3, 1)), np.zeros((2, 48, 1))
    for p, q in np.ndindex(2, 3):
        tall, wide = max(y1 - y0 + 1, 1) / 2, max(x1 - x0 + 1, 1) / 3
        rows = range(y0 + math.floor(p * tall), min(y0 + math.ceil((p + 1) * tall), 6))
        columns = range(x0 + math.floor(q * wide), min(x0 + math.ceil((q + 1) * wide), 8))
        places = list(itertools.product(rows, columns))
        for c in range(2):
            values = [x[c, row, column, 0] for row, column in places]
            row, column = places[int(np.argmax(values))]
            out[c, p, q, 0], where[c, p, q, 0] = max(values), row * 8 + column
            slopes[c, row * 8 + column, 0] += e[c, p, q, 0]
    made, delta = empties(be, (12, 1), (96, 1))
    argmax, regions = be.empty((12, 1), dtype=np.int32), tensor(be, np.array([region]))
    sizes = 1, 2, 6, 8, 2, 3, 0.5
    be.roipooling_fprop(tensor(be, x.reshape(96, 1)), regions, made, argmax, *sizes)
    be.roipooling_bprop(tensor(be, e.reshape(12, 1)), regions, delta, argmax, *sizes)
    for got, expected in ((made, out), (argmax, where), (delta, slopes)):
        close(got, expected)


def test_overlaps_and_boxes(be: Backend) -> None:
    """The overlap of [0, 4] x [0, 2] and [1, 5] x [0, 2] is 6 / (8 + 8 - 6)."""
    boxes = tensor(be, np.array([[0, 0, 4, 2, 0.9], [1, 0, 5, 2, 0.8]]))
    assert be.nms(boxes, 0.61, normalized=True) == [0, 1] and be.nms(boxes, 0.59, normalized=True) == [0]
    scores, prior = tensor(be, np.array([0.1, 0.9]).reshape(1, 2, 1)), np.array([[0.2, 0.4, 0.6, 1.0]])
    offsets = np.array([1.0, -2.0, 0.5, -0.5])
    middle, sides = np.array([0.4, 0.7]), np.array([0.4, 0.6])
    centre, size = middle + 0.1 * offsets[:2] * sides, sides * np.exp(0.2 * offsets[2:])
    moved = tensor(be, offsets.reshape(1, 4, 1))
    (found,) = be.detectionOutput_fprop(scores, moved, None, prior, None, 5, 5, 0.5, 0.5)
    np.testing.assert_allclose(found[0, :4], [*centre - size / 2, *centre + size / 2])


def test_softmax(be: Backend, draw: Any) -> None:
    x, t = draw((4, 3)), np.eye(4)[:, [1, 3, 0]]
    y = np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0)
    made = tensor(be, be.fprop_softmax(tensor(be, x)).get())
    close(made, y)
    cost = CrossEntropyMulti()
    np.testing.assert_allclose(cost(made, tensor(be, t)).get()[0], -(t * np.log(y)).sum(0), rtol=1e-9)
    np.testing.assert_allclose(cost.bprop(made, tensor(be, t)).get() * Softmax().bprop(made), y - t, rtol=1e-9)


def test_statistics(be: Backend) -> None:
    a, b = np.array([[3.0, -1.5, 0.7]]), np.array([[5.0, -0.3, 100.0]])
    close(be.shift(tensor(be, a), tensor(be, b)), a * np.sign(b) * 2 ** np.rint(np.log2(np.abs(b))))
    total, rest = be.full((1, 1), 1e8), be.zeros((1, 1))
    s, r = np.float32(1e8), np.float32(0)
    for x in np.float32([1.25, 7.5, 3.0]):
        y = x - r
        t = s + y
        r, s = (t - s) - y, t
        be.compensated_sum(total, rest, be.full((1, 1), float(x)))
    assert (total.item(), rest.item()) == (float(s), float(r)) and r != 0


# In the site --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"\frac{a", "does not close, 1:"),
        (r"\{ {a", "does not close, 1:"),
        (r"a } b", "cannot be converted"),
        (r"\unknown x", "cannot be converted"),
        ("a_", "cannot be converted"),
        (" ", "empty"),
    ],
)
def test_a_formula_with_a_mistake_is_refused(text: str, said: str) -> None:
    with pytest.raises(formulas.UnreadableFormula, match=said):
        formulas.mathml(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", ["", "$\\unknown$", "```math\n\\frac{a}{b\n```", "$$\na_\n$$"], ids=["none", "line", "block", "dollars"]
)
def test_a_formula_with_a_mistake_ends_the_build(planted: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    good = "# A\n\n$x_1$ is\n\n```math\n\\frac{a}{b}\n```\n\nand\n\n$$\nc^2\n$$\n\n"
    (source / "index.md").write_text(good + planted)
    program = "import pathlib, sys\nfrom sitebuilder.__main__ import build\n"
    program += "sys.exit(build(*map(pathlib.Path, sys.argv[1:])))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT)])}
    folders = [str(tmp_path / name) for name in ("source", "html", "doctrees")]
    made = subprocess.run([sys.executable, "-c", program, *folders], env=environment, capture_output=True, text=True)
    assert (made.returncode == 0) == (planted == ""), made.stderr
    assert ("index.md" in made.stderr) == (planted != "")
    page = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert page.count("<math") == 3 and page.count('display="block"') == 2 <= page.count('<div class="math"')
    assert not re.search(r"mathjax", page, re.IGNORECASE)
