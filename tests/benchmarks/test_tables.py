"""The tables of layers and the float64 references that the benchmarks of compound primitives rely on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import ROOT

FOLDER = ROOT / "benchmarks"
MODULES = ("_layers", "_references", "_cell_references")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """These modules of the benchmarks folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        sys.modules.pop(name)


# The tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "giga", "layers"),
    # Multiplications of all convolutions for one image, in 1e9: AlexNet 55^2*64*363 + 27^2*192*1600 + 13^2*(384*1728 +
    # 256*3456 + 256*2304), and the figures published with the others.
    [("alexnet", 0.656, 5), ("vgg_a", 7.49, 8), ("overfeat", 2.67, 5), ("googlenet", 1.58, 57), ("resnet50", 4.09, 53)],
)
def test_a_network_has_as_many_layers_and_multiplications_as_published(
    bench: SimpleNamespace, network: str, giga: float, layers: int
) -> None:
    here = [conv for conv in bench._layers.CONVOLUTIONS if conv.network == network]
    assert sum(conv.count for conv in here) == layers
    assert sum(conv.count * conv.flops(1) for conv in here) / 2e9 == pytest.approx(giga, rel=0.005)


@pytest.mark.parametrize(
    ("title", "K", "size"),
    [
        ("alexnet conv1", 64, 55), ("alexnet conv2", 192, 27), ("alexnet conv5", 256, 13),
        ("overfeat conv1", 96, 56), ("overfeat conv2", 256, 24), ("overfeat conv5", 1024, 12),
        ("vgg_a conv1", 64, 224), ("vgg_a conv7", 512, 14),
        ("googlenet conv1", 64, 112), ("googlenet conv2", 192, 56), ("googlenet 5b 3x3", 384, 7),
        ("resnet50 conv1", 64, 112), ("resnet50 res3a 3x3", 128, 28), ("resnet50 res5a shortcut", 2048, 7),
    ],
)  # fmt: skip
def test_published_output_sizes_of_convolutions(bench: SimpleNamespace, title: str, K: int, size: int) -> None:
    (conv,) = [conv for conv in bench._layers.CONVOLUTIONS if conv.title == title]
    assert (conv.K, conv.P, conv.Q) == (K, size, size)


@pytest.mark.parametrize(
    ("network", "sizes"),
    [
        ("alexnet", [27, 13, 6]), ("overfeat", [28, 12, 6]), ("vgg_a", [112, 56, 28, 14, 7]),
        ("googlenet", [56, 28, 14, 7, 28, 28, 14, 14, 14, 7, 1]), ("resnet50", [56, 1]),
    ],
)  # fmt: skip
def test_published_output_sizes_of_pools(bench: SimpleNamespace, network: str, sizes: list[int]) -> None:
    pools = [pool for pool in bench._layers.POOLS if pool.network == network]
    assert [pool.P for pool in pools] == [pool.Q for pool in pools] == sizes


def test_layers_follow_each_other(bench: SimpleNamespace) -> None:
    """The input of each pool or norm is the output of some convolution or inception module."""
    layers = bench._layers
    made = {(conv.network, conv.K, conv.P) for conv in layers.CONVOLUTIONS}
    outputs = {name: (s[2] + s[4] + s[6] + s[7], s[1]) for name, s in layers.INCEPTION.items()}
    made |= {("googlenet", C, size) for C, size in outputs.values()}
    made |= {("googlenet", 192, 28), ("googlenet", 480, 14), ("googlenet", 832, 7)}  # after a pool, into a module
    for pool in layers.POOLS:
        assert (pool.network, pool.C, pool.H) in made, pool.title
    for before, after in zip(list(outputs)[:-1], list(outputs)[1:]):
        assert layers.INCEPTION[after][0] == outputs[before][0], "a module takes what the one before gives"
    assert sum(norm.count for norm in layers.BATCHNORMS) == 53
    assert {("resnet50", norm.C, norm.H) for norm in layers.BATCHNORMS} == {m for m in made if m[0] == "resnet50"}
    flat = {layer.network: layer.k for layer in layers.FULLY_CONNECTED if layer.name in ("fc6", "fc")}
    last = {pool.network: pool.C * pool.P * pool.Q for pool in layers.POOLS if pool.name == "pool5"}
    assert flat == last


def test_equal_layers_are_merged_and_counted(bench: SimpleNamespace) -> None:
    Maps, merge = bench._layers.Maps, bench._layers.merge
    layers = [Maps("net", "a", 1, 8), Maps("net", "b", 2, 8), Maps("net", "c", 1, 9), Maps("other", "a", 1, 8)]
    assert [(m.title, m.count) for m in merge(layers)] == [("net a", 3), ("net c", 1), ("other a", 1)]


# The references, against loops and numeric gradients ------------------------------------------------------------


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def numeric(function: Any, x: Any) -> Any:
    """Gradient of the number ``function(x)`` by central differences."""
    gradient = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-6
        gradient[at] = (function(x + step) - function(x - step)) / 2e-6
    return gradient


@pytest.mark.parametrize(("R", "S", "stride", "pad"), [(3, 3, 1, 1), (3, 2, 2, 1), (1, 1, 2, 0), (4, 5, 3, 2)])
def test_the_reference_of_convolution(bench: SimpleNamespace, R: int, S: int, stride: int, pad: int) -> None:
    layer = bench._layers.Conv("net", "a", 1, 2, 6, 7, 3, R, S, stride, pad)
    I, F = normal(2, 6, 7, 2), normal(2, R, S, 3)  # noqa: E741
    made, expected = bench._references.conv_fprop(layer, I, F), np.zeros((3, layer.P, layer.Q, 2))
    for k, p, q, n, c, r, s in np.ndindex(3, layer.P, layer.Q, 2, 2, R, S):
        y, x = p * stride - pad + r, q * stride - pad + s
        if 0 <= y < 6 and 0 <= x < 7:
            expected[k, p, q, n] += F[c, r, s, k] * I[c, y, x, n]
    np.testing.assert_allclose(made, expected, atol=1e-12)
    E = normal(*made.shape)
    fprop = bench._references.conv_fprop
    of_data = numeric(lambda maps: float(np.sum(E * fprop(layer, maps, F))), I)
    of_filters = numeric(lambda filters: float(np.sum(E * fprop(layer, I, filters))), F)
    np.testing.assert_allclose(bench._references.conv_bprop(layer, F, E), of_data, atol=1e-6)
    np.testing.assert_allclose(bench._references.conv_update(layer, I, E), of_filters, atol=1e-6)


@pytest.mark.parametrize("op", ["max", "avg"])
@pytest.mark.parametrize(("window", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0)])
def test_the_reference_of_pooling(bench: SimpleNamespace, op: str, window: int, stride: int, pad: int) -> None:
    layer = bench._layers.Pool("net", "a", 1, op, 2, 6, 5, window, stride, pad)
    I = normal(2, 6, 5, 2)  # noqa: E741
    made, expected = bench._references.pool_fprop(layer, I), np.zeros((2, layer.P, layer.Q, 2))
    for c, p, q, n in np.ndindex(*expected.shape):
        rows = [y for y in range(p * stride - pad, p * stride - pad + window) if 0 <= y < 6]
        columns = [x for x in range(q * stride - pad, q * stride - pad + window) if 0 <= x < 5]
        values = [I[c, y, x, n] for y in rows for x in columns]
        expected[c, p, q, n] = max(values) if op == "max" else sum(values) / len(values)
    np.testing.assert_allclose(made, expected)
    E = normal(*made.shape)
    of_data = numeric(lambda maps: float(np.sum(E * bench._references.pool_fprop(layer, maps))), I)
    np.testing.assert_allclose(bench._references.pool_bprop(layer, I, E), of_data, atol=1e-6)


def test_the_reference_of_lrn(bench: SimpleNamespace) -> None:
    I, lrn = normal(7, 1, 2, 2), bench._references.lrn  # noqa: E741
    made, expected = lrn(I, 5, 0.5, 0.75), np.zeros_like(I)
    for c, n, x in np.ndindex(7, 2, 2):
        window = sum(I[j, 0, x, n] ** 2 for j in range(max(c - 2, 0), min(c + 3, 7)))
        expected[c, 0, x, n] = I[c, 0, x, n] * (1 + 0.5 / 5 * window) ** -0.75
    np.testing.assert_allclose(made, expected)
    E = normal(*I.shape) + 1
    of_data = numeric(lambda maps: float(np.sum(E * lrn(maps, 5, 0.5, 0.75))), I)
    np.testing.assert_allclose(lrn(I, 5, 0.5, 0.75, E), of_data, atol=1e-6)


def test_the_reference_of_batchnorm(bench: SimpleNamespace) -> None:
    x, gamma, beta, batchnorm = normal(2, 6), normal(2, 1), normal(1, 2).T, bench._references.batchnorm
    (made,) = batchnorm(x, gamma, beta, 0.01)
    for c in range(2):
        mean = sum(x[c]) / 6
        var = sum((v - mean) ** 2 for v in x[c]) / 6
        row = [max(gamma[c, 0] * (v - mean) / (var + 0.01) ** 0.5 + beta[c, 0], 0) for v in x[c]]
        np.testing.assert_allclose(made[c], row)
    E = normal(2, 6) + 1
    wanted = [
        numeric(lambda v: float(np.sum(E * batchnorm(v, gamma, beta, 0.01)[0])), x),
        numeric(lambda v: float(np.sum(E * batchnorm(x, v, beta, 0.01)[0])), gamma),
        numeric(lambda v: float(np.sum(E * batchnorm(x, gamma, v, 0.01)[0])), beta),
    ]
    for got, expected in zip(batchnorm(x, gamma, beta, 0.01, E), wanted, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_the_reference_of_cells(bench: SimpleNamespace, kind: str) -> None:
    cell, unroll = bench._layers.Cell("net", "a", 1, kind, 3, 2, 4), bench._cell_references.unroll
    rows, N = 3 * cell.GATES[kind], 2
    operands = [normal(rows, 2), normal(rows, 3), normal(rows, 1), normal(2, 4 * N)]
    E = normal(3, 4 * N)

    def loss(index: int, value: Any) -> float:
        changed = [*operands[:index], value, *operands[index + 1 :]]
        return float(np.sum(E * unroll(cell, *changed)[0]))

    made = unroll(cell, *operands, E)
    for got, index in zip(made, (3, 0, 1, 2), strict=True):
        wanted = numeric(lambda value, index=index: loss(index, value), operands[index])
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_the_formulas_of_cells_at_one_step(bench: SimpleNamespace) -> None:
    """From a state that is not zero."""
    h, c, x = 0.5, 0.25, 0.3
    sig, tanh = lambda v: 1 / (1 + np.exp(-v)), np.tanh
    column = np.array([[h]]), np.array([[c]])
    steps = bench._cell_references.STEPS
    W, gates = np.array([[0.1], [0.2], [0.3], [0.4]]), np.array([[x], [2 * x], [3 * x], [4 * x]])
    i, f, o = (sig(k * x + k * h / 10) for k in (1, 2, 3))
    cell = f * c + i * tanh(4 * x + 0.4 * h)
    made = steps["lstm"](W, gates, *column)
    assert made.c.item() == pytest.approx(cell)
    assert made.h.item() == pytest.approx(o * tanh(cell))
    r, z = i, f
    new = tanh(3 * x + 0.3 * (r * h))
    assert steps["gru"](W[:3], gates[:3], *column).h.item() == pytest.approx((1 - z) * h + z * new)
    assert steps["rnn"](W[:1], gates[:1], *column).h.item() == pytest.approx(tanh(x + 0.1 * h))
