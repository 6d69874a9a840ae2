"""Small helpers called by layers: signs, sums, activations, skips, biases, merges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import COMPARED, backend

pytestmark = pytest.mark.engines("numpy", "c")


# binarize, shift, compensated_sum -------------------------------------------------------------------------------------


def test_stochastic_signs_have_the_right_probability(be: Backend) -> None:
    for value, probability in ((-1.5, 0), (-1, 0), (-0.5, 0.25), (0, 0.5), (0.8, 0.9), (1, 1), (7, 1)):
        out = be.zeros((100, 200))
        be.binarize(be.empty((100, 200)).fill(value), out)
        assert set(np.unique(out.get())) <= {-1, 1}
        spread = 5 * (probability * (1 - probability) / 20000) ** 0.5
        assert abs((out.get() == 1).mean() - probability) <= spread


def test_stochastic_signs_are_drawn_for_each_element(be: Backend) -> None:
    out = be.zeros((50, 60))
    be.binarize(be.zeros((50, 1)), out)  # a column: still one number an element
    assert 0.3 < (out.get() == 1).mean(axis=1).min() < (out.get() == 1).mean(axis=1).max() < 0.7
    again = be.zeros((50, 60), dtype=np.int8)
    be.rng_reset()
    be.binarize(be.zeros((50, 1)), again)
    assert np.array_equal(again.get(), out.get())
    x = be.array([[np.nan, -np.inf, np.inf]])
    assert be.binarize(x, x).get().tolist() == [[-1, -1, 1]]


def test_certain_signs(be: Backend) -> None:
    x, out = be.array([[-2, -0.0, 0, 0.5, np.nan, -np.inf]]), be.zeros((1, 6))
    assert be.binarize(x, out, stochastic=False) is out
    assert out.get().tolist() == [[-1, 1, 1, 1, -1, -1]]


@pytest.mark.backend
def test_equal_seeds_give_equal_signs_on_both_engines() -> None:
    drawn = []
    for engine in COMPARED:
        for be in backend(engine):
            for threads in ("1", "3"):
                be.rng_reset()
                drawn.append((threads, be.binarize(be.zeros((300, 70)), be.zeros((300, 70))).get()))
    assert all(np.array_equal(drawn[0][1], values) for _, values in drawn)


def test_shifts(be: Backend) -> None:
    assert be.shift(3, be.array([[5, 6, -0.3, 0]])).get().tolist() == [[12, 24, -0.75, 0]]
    assert be.shift(3, -2, value=False).get().tolist() == [[0.75]]
    t, out = be.array([[1.0, -2.0], [3.0, 4.0]]), be.zeros((2, 2))
    assert be.shift(t, be.array([[2.0], [-1.0]]), out=out) is out
    assert out.get().tolist() == [[2, -4], [-3, -4]]
    with pytest.raises(ShapeError):
        be.shift(t, be.ones((3, 1)), out=out)
    assert out.get().tolist() == [[2, -4], [-3, -4]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_compensated_sums_step_by_step(be: Backend, rng: np.random.Generator, dtype: str) -> None:
    kind = np.dtype(dtype).type
    total, lost = rng.normal(size=(7, 5)).astype(kind), np.zeros((7, 5), kind)
    sums, compensation = be.array(total, dtype=dtype), be.zeros((7, 5), dtype=dtype)
    wide = np.float32 if dtype == "float16" else kind
    for _ in range(20):
        step = (rng.normal(size=(7, 5)) * 1e-3).astype(kind)
        be.compensated_sum(sums, compensation, be.array(step, dtype=dtype))
        y = step.astype(wide) - lost.astype(wide)
        new = (total.astype(wide) + y).astype(kind)
        lost = ((new.astype(wide) - total.astype(wide)) - y).astype(kind)
        total = new
        assert np.array_equal(sums.get(), total)
        assert np.array_equal(compensation.get(), lost)
    assert compensation.kahan_count == 20


def test_compensation_starts_anew_after_the_count_that_was_set(be: Backend) -> None:
    sums, compensation, step = be.zeros((1, 1)), be.zeros((1, 1)), be.ones((1, 1))
    compensation.kahan_reset = 2
    counts, values = [], []
    for _ in range(7):
        compensation.fill(0.25)
        be.compensated_sum(sums, compensation, step)
        counts.append(compensation.kahan_count)
        values.append(float(sums.get()[0, 0]))
    assert counts == [1, 2, 3, 1, 2, 3, 1]
    assert np.diff([0, *values]).tolist() == [0.75, 0.75, 0.75, 1, 0.75, 0.75, 1]
    compensation.fill(np.nan)
    compensation.kahan_count = 3
    be.compensated_sum(sums, compensation, step, add_scale=-2.0)  # what is left out is not read
    assert sums.get()[0, 0] == values[-1] - 2


def test_bad_compensated_sums_change_nothing(be: Backend) -> None:
    sums, compensation = be.ones((2, 3)), be.ones((2, 3))
    for error, arguments in (
        (ShapeError, (sums, be.ones((3, 2)), sums)),
        (ShapeError, (sums, compensation, be.ones((2, 4)))),
        (ShapeError, (be.ones((1, 3)), be.ones((1, 3)), sums)),
        (DTypeError, (sums, be.ones((2, 3), dtype=np.float64), sums)),
        (DTypeError, (sums, None, sums)),
        (DTypeError, (sums.get(), compensation, sums)),
        (AliasError, (sums, sums, compensation)),
    ):
        with pytest.raises(error, match="compensated_sum"):
            be.compensated_sum(*arguments)
    assert (sums.get() == 1).all()
    assert (compensation.get() == 1).all()
    assert compensation.kahan_count == compensation.kahan_reset == 0


# Activations, skips, biases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0, 0.25])
def test_relu_and_its_derivative_are_lazy(be: Backend, slope: float) -> None:
    x = be.array([[-2.0, -0.0, 0.0, 3.0, np.inf]])
    for given in (x, x + 0):
        forward, backward = be.fprop_relu(None, given, slope), be.bprop_relu(None, given, None, None, slope)
        assert forward.asnumpyarray().tolist() == [[-2 * slope, 0, 0, 3, np.inf]]
        assert backward.asnumpyarray().tolist() == [[slope, 0, 0, 1, 1]]


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(be: Backend, rng: np.random.Generator, axis: int) -> None:
    x = be.array(rng.normal(size=(9, 5)) * 100)
    powers = np.exp(x.get().astype(np.float64) - x.get().max(axis, keepdims=True))
    x[:] = be.fprop_softmax(x, axis)
    assert np.allclose(x.get(), powers / powers.sum(axis, keepdims=True), rtol=1e-4, atol=1e-7)


class Cube:
    """An activation whose derivative is told by its output alone."""

    def __call__(self, x: Any) -> Any:
        return x * x * x

    def bprop(self, y: Any) -> Any:
        return y + 1


def test_transforms(be: Backend) -> None:
    x, error, out = be.array([[1.0, 2.0]]), be.array([[10.0, -1.0]]), be.zeros((1, 2))
    assert be.fprop_transform(None, Cube(), x, x, True) is None
    assert x.get().tolist() == [[1, 8]]
    assert be.bprop_transform(None, Cube(), x, error, out, relu=False) is None
    assert out.get().tolist() == [[20, -9]]
    be.bprop_transform(None, Cube(), x, error, error)
    assert error.get().tolist() == [[20, -9]]


def test_skips_scale_and_accumulate(be: Backend) -> None:
    x = be.array([[1.0, 2.0]])
    for beta, wanted in ((0, [1, 2]), (1, [11, 22]), (0.5, [6, 12])):
        y, deltas = be.array([[10.0, 20.0]]), be.array([[10.0, 20.0]])
        be.fprop_skipnode(x, y, beta)
        assert y.get().tolist() == [wanted]
        be.bprop_skipnode(x, deltas, -1.0, beta)
        assert deltas.get().tolist() == [[10 * beta - 1, 20 * beta - 2]]
    old = be.empty((1, 2)).fill(np.nan)
    be.fprop_skipnode(x, old, 0)
    assert old.get().tolist() == [[1, 2]]
    be.bprop_skipnode(x, old.fill(np.nan), 2.0, 0)
    assert old.get().tolist() == [[2, 4]]


def test_biases_of_fully_connected_layers(be: Backend, rng: np.random.Generator) -> None:
    x, bias = be.array(rng.normal(size=(4, 7))), be.array(rng.normal(size=(4, 1)))
    before = x.get()
    assert be.add_fc_bias(x, bias) is None
    assert np.array_equal(x.get(), before + bias.get())
    assert be.update_fc_bias(x, bias) is None
    assert np.allclose(bias.get(), x.get().sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    held = x.get()
    for call in (
        lambda: be.add_fc_bias(x, be.ones((1, 7))), lambda: be.add_fc_bias(x, 3.0),
        lambda: be.update_fc_bias(x, be.ones((1, 7))), lambda: be.update_fc_bias(x, be.ones((4, 7))),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match="fc_bias"):
            call()
    assert np.array_equal(x.get(), held)


# Merges ---------------------------------------------------------------------------------------------------------------


class Branch:
    """outputs = beta * outputs + scale * inputs, and deltas likewise; keeps a record of its arguments."""

    def __init__(self, scale: float, outputs: Any, deltas: Any, record: list[Any]) -> None:
        self.scale, self.outputs, self.deltas, self.record = scale, outputs, deltas, record

    def fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
        self.record.append((self.scale, inference, beta))
        self.outputs[:] = self.scale * inputs + (beta * self.outputs if beta else 0)
        return self.outputs

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        self.record.append((self.scale, alpha, beta))
        self.deltas[:] = alpha * self.scale * error + (beta * self.deltas if beta else 0)
        return self.deltas


def test_merged_sums(be: Backend) -> None:
    record: list[Any] = []
    x, y, deltas = be.array([[1.0, 2.0]]), be.empty((1, 2)).fill(np.nan), be.ones((1, 2))
    layers = [Branch(scale, y, deltas, record) for scale in (1, 10, 100)]
    assert be.fprop_mergesum(None, x, True, layers, y, (1,)) is None
    assert record == [(1, True, 0), (10, True, 1), (100, True, 1)]
    assert y.get().tolist() == [[111, 222]]
    record.clear()
    assert be.bprop_mergesum(None, 0.5, 3.0, layers, x, deltas) is None
    assert record == [(100, 0.5, 3), (10, 0.5, 1), (1, 0.5, 1)]
    assert deltas.get().tolist() == [[3 + 55.5, 3 + 111]]


def test_merged_broadcasts(be: Backend) -> None:
    record: list[Any] = []
    x, y, deltas = be.array([[1.0, 2.0]]), be.zeros((3, 2)), be.ones((1, 2))
    layers = [Branch(scale, y[row], deltas, record) for row, scale in enumerate((1, 10, 100))]
    assert be.fprop_mergebroadcast(None, x, False, y, layers, (3,)) is None
    assert record == [(1, False, 0), (10, False, 0), (100, False, 0)]
    assert y.get().tolist() == [[1, 2], [10, 20], [100, 200]]
    record.clear()
    error = be.array([[1.0, 1.0], [2.0, 2.0], [3.0, 4.0]])
    views, alphas, betas = [error[row] for row in range(3)], [1.0, 2.0, 0.5], [1.0, 1.0, 0.0]
    be.bprop_mergebroadcast(None, layers, views, error, deltas, (1,), 2.0, 3.0, alphas, betas)
    assert betas == [1, 1, 3]
    assert record == [(100, 1, 3), (10, 4, 1), (1, 2, 1)]
    assert deltas.get().tolist() == [[3 + 300 + 80 + 2, 3 + 400 + 80 + 2]]
    record.clear()
    with pytest.raises(ArgumentError, match="3 layers"):
        be.bprop_mergebroadcast(None, layers, views[:2], error, deltas, (1,), 1.0, 5.0, alphas, betas)
    assert (record, betas) == ([], [1, 1, 3])
