"""The tables of layers and the float64 references that the benchmarks of compound primitives rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.benchmarks.modules import bench  # noqa: F401

# The tables -----------------------------------------------------------------------------------------------------


def test_equal_layers_are_merged_and_counted(bench: Any) -> None:
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


def problem(made: Any, direction: str, **arrays: Any) -> Any:
    """The reference of a problem with these operands, of everything."""
    made.direction = direction
    for name, value in arrays.items():
        setattr(made, name, value)
    return made.reference()


@pytest.fixture
def everything(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """References of all images, channels and filters."""
    for module in (bench._primitives, bench.conv, bench.pool, bench.lrn, bench.batchnorm):
        monkeypatch.setattr(module, "some", lambda count: list(range(count)))


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("window", "stride", "pad", "dilation", "groups"),
    [((3, 3), 1, 1, 1, 1), ((3, 2), 2, 1, 1, 1), ((1, 1), 2, 0, 1, 1), ((4, 5), 3, 2, 1, 1), ((2, 3), 1, 2, 2, 2)],
)
def test_the_reference_of_convolution(
    bench: Any, window: tuple[int, int], stride: int, pad: int, dilation: int, groups: int
) -> None:
    layer = bench._layers.conv2d("net", "a", 2, (6, 7), 4, window, stride, pad, dilation, groups)
    conv = bench.conv.Convolution(layer, 2, "fprop")
    I, F = normal(2, 1, 6, 7, 2), normal(*layer.filters)  # noqa: E741
    (made,) = problem(conv, "fprop", I=I, F=F)
    _, P, Q = layer.out
    expected = np.zeros((4, 1, P, Q, 2))
    for k, p, q, n, c, r, s in np.ndindex(4, P, Q, 2, 2 // groups, *window):
        y, x = p * stride - pad + r * dilation, q * stride - pad + s * dilation
        if 0 <= y < 6 and 0 <= x < 7:
            expected[k, 0, p, q, n] += F[c, 0, r, s, k] * I[k // (4 // groups) * (2 // groups) + c, 0, y, x, n]
    np.testing.assert_allclose(made, expected, atol=1e-12)
    E = normal(*made.shape)
    loss = lambda **changed: float(np.sum(E * problem(conv, "fprop", **{"I": I, "F": F} | changed)[0]))  # noqa: E731
    of_data, of_filters = numeric(lambda maps: loss(I=maps), I), numeric(lambda filters: loss(F=filters), F)
    np.testing.assert_allclose(problem(conv, "bprop", I=I, F=F, E=E)[0], of_data, atol=1e-6)
    np.testing.assert_allclose(problem(conv, "update", I=I, F=F, E=E)[0], of_filters, atol=1e-6)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("op", ["max", "avg"])
@pytest.mark.parametrize(("window", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0)])
def test_the_reference_of_pooling(bench: Any, op: str, window: int, stride: int, pad: int) -> None:
    layer = bench._layers.Pool("net", "a", 1, op, 2, 6, 5, window, stride, pad)
    pool, I = bench.pool.Pooling(layer, 2, "fprop"), normal(2, 6, 5, 2)  # noqa: E741
    (made,) = problem(pool, "fprop", I=I)
    expected = np.zeros((2, layer.P, layer.Q, 2))
    for c, p, q, n in np.ndindex(*expected.shape):
        rows = [y for y in range(p * stride - pad, p * stride - pad + window) if 0 <= y < 6]
        columns = [x for x in range(q * stride - pad, q * stride - pad + window) if 0 <= x < 5]
        values = [I[c, y, x, n] for y in rows for x in columns]
        expected[c, p, q, n] = max(values) if op == "max" else sum(values) / len(values)
    np.testing.assert_allclose(made, expected)
    E = normal(*made.shape)
    of_data = numeric(lambda maps: float(np.sum(E * problem(pool, "fprop", I=maps)[0])), I)
    np.testing.assert_allclose(problem(pool, "bprop", I=I, E=E)[0], of_data, atol=1e-6)


@pytest.mark.usefixtures("everything")
def test_the_reference_of_lrn(bench: Any) -> None:
    I, lrn = normal(7, 1, 2, 2), bench.lrn.Lrn(bench._layers.Maps("net", "a", 1, 7, 1, 2, 5), 2, "fprop")  # noqa: E741
    (made,) = problem(lrn, "fprop", I=I)
    expected = np.zeros_like(I)
    for c, n, x in np.ndindex(7, 2, 2):
        window = sum(I[j, 0, x, n] ** 2 for j in range(max(c - 2, 0), min(c + 3, 7)))
        expected[c, 0, x, n] = I[c, 0, x, n] * (1 + 0.5 / 5 * window) ** -0.75
    np.testing.assert_allclose(made, expected)
    E = normal(*I.shape) + 1
    of_data = numeric(lambda maps: float(np.sum(E * problem(lrn, "fprop", I=maps)[0])), I)
    np.testing.assert_allclose(problem(lrn, "bprop", I=I, E=E)[0], of_data, atol=1e-6)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("relu", [True, False])
def test_the_reference_of_batchnorm(bench: Any, monkeypatch: pytest.MonkeyPatch, relu: bool) -> None:
    monkeypatch.setattr(bench.batchnorm, "EPS", 0.01)
    norm = bench.batchnorm.BatchNorm(bench._layers.Maps("net", "a", 1, 2, 2, 1), 3, "fprop")
    given = {"I": normal(2, 2, 1, 3), "gamma": normal(2, 1), "beta": normal(1, 2).T + 9 * (not relu)}
    norm.relu = relu  # without it nothing is below 0
    (made,) = problem(norm, "fprop", **given)
    for c in range(2):
        x = given["I"][c].ravel()
        mean, var = sum(x) / 6, sum((v - sum(x) / 6) ** 2 for v in x) / 6
        row = [max(given["gamma"][c, 0] * (v - mean) / (var + 0.01) ** 0.5 + given["beta"][c, 0], 0) for v in x]
        np.testing.assert_allclose(made[c], row)
    E = normal(2, 2, 1, 3) + 1
    loss = lambda **changed: float(np.sum(E.reshape(2, 6) * problem(norm, "fprop", **given | changed)[0]))  # noqa: E731
    wanted = [numeric(lambda v, name=name: loss(**{name: v}), value) for name, value in given.items()]
    for got, expected in zip(problem(norm, "bprop", E=E, **given), wanted, strict=True):
        np.testing.assert_allclose(got, expected.reshape(got.shape), atol=1e-6)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_the_reference_of_cells(bench: Any, kind: str) -> None:
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


def test_the_formulas_of_cells_at_one_step(bench: Any) -> None:
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
