"""The backend's method families beyond single table ops: compositions, immediate operations, layer helpers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.node import OpTreeNode
from tests.support.engines import ON_GPU, new_backend

pytestmark = pytest.mark.optree

X = np.array([[-2.0, -0.5, 0.0, 1.0, 30.0]])


def values(expression: Any) -> np.ndarray:
    return expression.asnumpyarray().astype(np.float64)


# Elementwise --------------------------------------------------------------------------------------------------------


def test_numbers_alone_make_expressions(be: Backend) -> None:
    root = be.sqrt(0.5)
    assert isinstance(root, OpTreeNode)
    assert root.shape == (1, 1)
    t = be.ones((2, 3))
    for expression, wanted in (
        (t * root, math.sqrt(0.5)), (be.log(2) * t, math.log(2)), (t / be.square(3), 1 / 9),
        (be.exp(1) + be.sqrt(4) * t - be.add(1, 2), math.e - 1), (be.maximum(2, 3) * t, 3), (be.clip(7, 0, 5) * t, 5),
        (t * be.power(2, 10), 1024), (be.reciprocal(4) * t, 0.25), (t * be.greater(1, 2), 0), (-be.sig(0) * t, -0.5),
    ):  # fmt: skip
        assert expression.shape == (2, 3)
        assert expression.dtype == np.float32
        assert np.allclose(values(expression), wanted)
    t[:] = root
    assert np.allclose(t.get(), math.sqrt(0.5))
    with pytest.raises(ValueError, match="holds no tensor"):
        root.astensor()


def test_clip_takes_numbers_tensors_and_expressions(be: Backend) -> None:
    t = be.array(X)
    assert values(be.clip(t, -1, 2)).tolist() == [[-1, -0.5, 0, 1, 2]]
    low, high = be.array([[-1.0]]), be.array([[0, 0, 0, 0.5, 7.0]])
    assert values(be.clip(t, low, high + 1)).tolist() == [[-1, -0.5, 0, 1, 8]]
    assert be.clip(t, 0, 1, t) is t
    assert t.get().tolist() == [[0, 0, 0, 1, 1]]


def test_base_two_sigmoid_and_floored_logarithm(be: Backend) -> None:
    t = be.array(X)
    assert np.allclose(values(be.sig2(t)), [[0.2, 0.414214, 0.5, 0.666667, 1]], atol=1e-6)
    assert np.allclose(values(be.tanh2(t)), np.tanh(X * math.log(2)), atol=1e-6)
    assert np.allclose(values(be.safelog(t)), [[-50, -50, -50, 0, math.log(30)]])


def test_relu_forms(be: Backend) -> None:
    t = be.array(X)
    assert values(be.Relu(t)).tolist() == [[0, 0, 0, 1, 30]]
    assert values(be.leaky_relu(t, 0.5)).tolist() == [[-1, -0.25, 0, 1, 30]]
    assert values(be.fprop_relu(None, t, 0)).tolist() == [[0, 0, 0, 1, 30]]
    assert values(be.fprop_relu(None, t, 0.5)).tolist() == [[-1, -0.25, 0, 1, 30]]
    error = be.ones((1, 5)) * 7
    assert values(be.bprop_relu(None, t, error, None, 0)).tolist() == [[0, 0, 0, 1, 1]]
    assert values(be.bprop_relu(None, t, error, None, 0.5)).tolist() == [[0.5, 0.5, 0, 1, 1]]


def test_shapes_without_a_name_of_their_own(be: Backend) -> None:
    assert values(be.gelu(be.array([[0.0, 1.0]])))[0, 1] == pytest.approx(0.8413447, rel=1e-6)
    moved = be.transpose(be.array(np.arange(24).reshape(2, 3, 4)) + 0, axes=(2, 0, 1))
    assert np.array_equal(values(moved), np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1))


# Reductions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, None, -1, (0, 1)])
def test_reductions_keep_their_axes_whatever_neon_scripts_say(be: Backend, rng: np.random.Generator, axis: Any) -> None:
    host = rng.normal(size=(4, 6))
    t = be.array(host)
    exact = t.get().astype(np.float64)
    centered = exact - exact.mean(axis=axis, keepdims=True)
    for keepdims in (True, False):  # which neon ignores
        for name in ("sum", "max", "min", "mean", "std", "var"):
            with neon_dialect():
                got = getattr(be, name)(t, axis=axis, keepdims=keepdims)
            wanted = getattr(np, name)(exact, axis=axis, keepdims=True)
            assert got.shape == wanted.shape
            assert np.allclose(values(got), wanted, rtol=1e-5, atol=1e-6)
    power = np.where(centered == 0, 0, np.sign(centered) * 2.0 ** np.rint(np.log2(np.abs(centered))))
    shifted = (centered * power).mean(axis=axis, keepdims=True)
    with neon_dialect():
        assert np.allclose(values(be.var(t, axis=axis, partial=3, binary=True)), shifted, rtol=1e-4)
    assert np.allclose(values(be.norm2(t, axis)), np.sqrt((exact**2).sum(axis=axis, keepdims=True)), rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "any", "all", "mean", "std", "var", "argmax", "argmin"])
def test_axes_are_dropped_where_two_are_left(be: Backend, rng: np.random.Generator, name: str) -> None:
    host = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    reduce, numpys = getattr(be, name), getattr(np, name)
    for shape, axis in (((2, 3, 4, 5), 1), ((2, 3, 4, 5), -1), ((6, 4, 5), 0), ((2, 3, 4, 5), (0, 2))):
        if isinstance(axis, tuple) and name.startswith("arg"):
            continue
        x, wanted = be.array(host.reshape(shape)), numpys(host.reshape(shape), axis=axis)
        for made in (reduce(x, axis=axis, keepdims=False), reduce(x + 0, axis=axis, keepdims=False) * 1):
            assert made.shape == wanted.shape
            assert np.allclose(values(made), wanted, rtol=1e-5)
        out = be.empty(wanted.shape)
        assert reduce(x, axis=axis, keepdims=False, out=out) is out
        assert np.allclose(out.get(), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "std", "var", "argmax"])
def test_axes_that_cannot_be_dropped_are_refused(be: Backend, name: str) -> None:
    x, deep = be.ones((3, 4)), be.ones((2, 3, 4))
    for tensor, axis in ((x, 1), (x, -1), (deep, (0, 2)), (deep, None)):
        if name == "argmax" and not isinstance(axis, int):
            continue
        with pytest.raises(ShapeError, match=rf"{name}: keepdims=False over axis .* leaves [01] dimensions?, .*two"):
            getattr(be, name)(tensor, axis=axis, keepdims=False)
    with pytest.raises(ShapeError, match=r"argmax: needs one axis, got axis=\(0, 1\)"):
        be.argmax(x, axis=(0, 1))


def test_partial_is_refused(be: Backend) -> None:
    for name in ("mean", "var", "std"):
        with pytest.raises(ArgumentError, match=f"{name}: partial=2 has no effect"):
            getattr(be, name)(be.ones((3, 4)), axis=0, partial=2)
        assert getattr(be, name)(be.ones((3, 4)), 0, None).shape == (1, 4)


def test_biased_deviation(be: Backend) -> None:
    assert values(be.std(be.array([[1, 2, 4]]), axis=1))[0, 0] == pytest.approx(1.247219, rel=1e-6)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_default_to_axis_1_and_take_the_first_of_equals(be: Backend, name: str) -> None:
    host = np.array([[1.0, 3, 3], [2, -1, -1]])
    t, out = be.array(host), be.zeros((2, 1))
    assert getattr(be, name)(t, out=out) is out
    assert out.get().ravel().tolist() == getattr(np, name)(host, axis=1).tolist()
    assert out.dtype == np.float32
    assert values(getattr(be, name)(t, axis=0)).ravel().tolist() == getattr(np, name)(host, axis=0).tolist()
    host = np.tile([2.0, 1, 3, 3, 1], (4, 5000))  # equals far apart, and in columns
    for axis in (0, 1):
        assert np.array_equal(values(getattr(be, name)(be.array(host), axis)).ravel(), getattr(np, name)(host, axis))
    with pytest.raises(ShapeError, match="one axis"):
        getattr(be, name)(t, axis=(0, 1))


# Index operations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_onehot(be: Backend, dtype: Any, shape: tuple[int, int]) -> None:
    labels = [2, 0, 3, 1, 2]
    indices = be.array(np.array(labels).reshape(shape), dtype=dtype)
    columns, rows = np.eye(4)[labels].T, np.eye(4)[labels]
    t = be.ones((4, 5))
    t[:] = be.onehot(indices, axis=0)
    assert np.array_equal(t.get(), columns)
    flipped = be.ones((5, 4))
    assert be.onehot(indices, 1, out=flipped) is flipped
    assert np.array_equal(flipped.get(), rows)
    t[:] = 1 - 2 * be.onehot(indices, 0)
    assert np.array_equal(t.get(), 1 - 2 * columns)
    x = be.array(np.arange(20.0).reshape(4, 5))
    picked = be.sum(x * be.onehot(indices, 0), axis=0)
    assert values(picked).ravel().tolist() == [x.get()[label, j] for j, label in enumerate(labels)]
    flipped[:] = (x * be.onehot(indices, 0)).T
    assert np.array_equal(flipped.get(), (x.get() * columns).T)


def test_onehot_of_host_labels(be: Backend) -> None:
    t = be.zeros((3, 2))
    for labels in ([2, 0], np.array([2, 0])):
        t[:] = be.onehot(labels, 0)
        assert t.get().tolist() == [[0, 1], [0, 0], [1, 0]]


def test_onehot_refuses_what_is_no_label(be: Backend) -> None:
    with pytest.raises(AssertionError, match="int32"):
        be.onehot(be.array([0, 1]), 0)
    with pytest.raises(ValueError, match="axis"):
        be.onehot(be.array([0, 1], dtype=np.int32), 2)
    with pytest.raises(ShapeError, match="vector"):
        be.onehot(be.zeros((2, 2), dtype=np.int32), 0)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [[2, 0, 2], np.array([1]), [-1, 0], []])
def test_take_is_lazy_and_goes_anywhere(be: Backend, axis: int, indices: Any) -> None:
    host = np.arange(12.0).reshape(3, 4)
    t, positions = be.array(host), np.array(indices, dtype=np.int64)
    for given in (indices, be.array(positions, dtype=np.int32), positions.reshape(1, -1)):
        node = be.take(t, given, axis)
        wanted = host.take(positions, axis)
        assert node.shape == wanted.shape
        assert np.array_equal(values(node), wanted)
        assert np.array_equal(values(be.take(t * 2, given, axis).T + 1), wanted.T * 2 + 1)
        out = be.zeros(wanted.shape)
        assert be.take(t, given, axis, out) is out
        assert np.array_equal(out.get(), wanted)


def test_take_from_what_it_is_written_to(be: Backend) -> None:
    t = be.array(np.arange(12.0).reshape(3, 4))
    t[:] = be.take(t, [2, 2, 0], axis=0) + t
    assert np.array_equal(t.get(), np.arange(12.0).reshape(3, 4)[[2, 2, 0]] + np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("bad", [3, -4, 2**31 - 1])
def test_take_refuses_positions_out_of_range(be: Backend, bad: int) -> None:
    t, out = be.array(np.arange(12.0).reshape(3, 4)), be.ones((2, 4))
    for indices in ([0, bad], np.array([0, bad]), be.array([0, bad], dtype=np.int32)):
        for attempt in (
            lambda i=indices: be.take(t, i, 0, out), lambda i=indices: out.__setitem__(np.s_[:], be.take(t, i, 0) * 2),
            lambda i=indices: t.take(i, 0, out),
        ):  # fmt: skip
            with pytest.raises(IndexRangeError, match="out of range"):
                attempt()
                be.synchronize()  # a GPU tells it then
    assert ON_GPU or (out.get() == 1).all()


def test_take_refuses_other_indices_and_axes(be: Backend) -> None:
    t = be.ones((3, 4))
    for take in (t.take, lambda i, axis: be.take(t, i, axis)):
        for axis in (2, -3):
            with pytest.raises(ShapeError, match="axis"):
                take([0], axis)
        for axis in ((0, 1), "x", 0.5):
            with pytest.raises((ShapeError, DTypeError), match="axis"):
                take([0], axis)
        for indices in ([0.5], ["a"], None, be.ones((1, 2)), [True], [True, False, True], np.ones(3, bool)):
            with pytest.raises(DTypeError):
                take(indices, 0)


# Powers of two and signs --------------------------------------------------------------------------------------------


def test_powers_of_two_are_exact(be: Backend) -> None:
    exponents = np.append(np.arange(-126.0, 129), [np.inf, -np.inf, np.nan]).reshape(1, -1)
    with np.errstate(over="ignore"):
        wanted = (2.0**exponents).astype(np.float32)
    np.testing.assert_array_equal(be.shift(1, be.array(exponents), value=False).get(), wanted)


def test_shift_multiplies_by_powers_of_two(be: Backend) -> None:
    by = be.array([[5, 6, -0.3, 0]])
    made = be.shift(3, by)
    assert made.get().tolist() == [[12, 24, -0.75, 0]]
    assert be.shift(3, -2, value=False).get().tolist() == [[0.75]]
    t = be.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    assert np.array_equal(be.shift(t, be.array([[1.0], [-4.0]])).get(), t.get() * [[1], [-4]])
    assert np.array_equal(be.shift(t, be.array([[1, 2, 3, -1]]), value=False).get(), t.get() * [[2, 4, 8, 0.5]])
    assert np.array_equal(be.shift(t, 3).get(), t.get() * 4)  # log2 3 = 1.58 rounds to 2
    assert be.shift(t, t, out=t) is t
    assert t.get()[1].tolist() == [5 * 4, 6 * 8, 7 * 8, 64]
    half = be.array([[1.0]], dtype=np.float16)
    assert be.shift(half, 2).dtype == np.float16
    double = new_backend(default_dtype=np.float64)
    assert double.shift(3, 5).dtype == np.float64


def test_binarize_by_sign(be: Backend) -> None:
    t, out = be.array([[-2.0, -0.1, 0.0, 0.1, 5.0]]), be.zeros((1, 5))
    assert be.binarize(t, out, stochastic=False) is out
    assert out.get().tolist() == [[-1, -1, 1, 1, 1]]
    whole = be.zeros((1, 5), dtype=np.int8)
    assert be.binarize(t, whole, stochastic=False).get().tolist() == [[-1, -1, 1, 1, 1]]
    assert be.binarize(t, t, stochastic=False) is t
    assert t.get().tolist() == [[-1, -1, 1, 1, 1]]


def test_compensated_sum_keeps_what_rounding_loses(be: Backend) -> None:
    total, lost, step = be.ones((1, 1)), be.zeros((1, 1)), be.ones((1, 1)) * 2.0**-26
    step, naive = step.astensor(), be.ones((1, 1))
    for _ in range(1024):
        assert be.compensated_sum(total, lost, step) is None
        naive[:] = naive + step
    assert naive.get()[0, 0] == 1
    assert total.get()[0, 0] - lost.get()[0, 0] == pytest.approx(1 + 1024 * 2.0**-26, abs=1e-12)
    assert lost.kahan_count == 1024


def test_compensated_sum_scales_and_starts_anew(be: Backend) -> None:
    total, lost, step = be.array([[10.0]]), be.array([[0.5]]), be.array([[3.0]])
    be.compensated_sum(total, lost, step, cmp_scale=2.0, add_scale=0.5)
    assert total.get()[0, 0] == 10.5  # 10 + (3 * 0.5 - 0.5 * 2)
    assert lost.get()[0, 0] == 0
    lost.fill(100)
    lost.kahan_reset, lost.kahan_count = 1, 2
    be.compensated_sum(total, lost, step)
    assert total.get()[0, 0] == 13.5
    assert lost.kahan_count == 1


# Layer helpers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_is_safe_for_large_values(be: Backend, rng: np.random.Generator, axis: int) -> None:
    host = rng.normal(size=(7, 5)) * 3 + 500
    t = be.array(host)
    exact = t.get().astype(np.float64)
    powers = np.exp(exact - exact.max(axis=axis, keepdims=True))
    wanted = powers / powers.sum(axis=axis, keepdims=True)
    assert np.allclose(values(be.fprop_softmax(t, axis=axis)), wanted, rtol=1e-5)
    assert np.allclose(
        values(be.logsumexp(t, axis)), np.log(powers.sum(axis, keepdims=True)) + exact.max(axis, keepdims=True)
    )


class Square:
    """A stand-in for an activation: forward x**2, backward 3 y."""

    def __call__(self, x: Any) -> Any:
        return x * x

    def bprop(self, y: Any) -> Any:
        return 3 * y


def test_transforms_of_layers(be: Backend) -> None:
    t, out = be.array([[1.0, 2.0]]), be.zeros((1, 2))
    be.fprop_transform(None, Square(), t, out)
    assert out.get().tolist() == [[1, 4]]
    be.fprop_transform(None, Square(), t, t)
    assert t.get().tolist() == [[1, 4]]
    error = be.array([[10.0, 1.0]])
    be.bprop_transform(None, Square(), t, error, out, relu=False)
    assert out.get().tolist() == [[30, 12]]
    assert error.get().tolist() == [[10, 1]]


def test_skip_connections(be: Backend) -> None:
    x, y = be.array([[1.0, 2.0]]), be.array([[10.0, np.nan]])
    be.fprop_skipnode(x, y, 2.0)
    assert y.get()[0, 0] == 2 * 10 + 1
    assert np.isnan(y.get()[0, 1])
    be.fprop_skipnode(x, y, 0)
    assert y.get().tolist() == [[1, 2]]
    be.bprop_skipnode(x, y, 3.0, 2.0)
    assert y.get().tolist() == [[5, 10]]
    y.fill(np.nan)
    be.bprop_skipnode(x, y, 3.0, 0.0)
    assert y.get().tolist() == [[3, 6]]


def test_biases_of_fully_connected_layers(be: Backend) -> None:
    t, bias = be.array([[1.0, 2.0], [3.0, 4.0]]), be.array([10.0, 20.0])
    assert be.add_fc_bias(t, bias) is None
    assert t.get().tolist() == [[11, 12], [23, 24]]
    assert be.update_fc_bias(t, bias) is None
    assert bias.get().tolist() == [[23], [47]]
