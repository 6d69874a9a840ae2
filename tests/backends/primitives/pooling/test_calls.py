"""Calls of the pooling primitives beyond their sums: ties, nan, the argmax tensor, views, errors."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, MissingArgument, ShapeError
from tests.support.engines import current_backend, new_backend
from tests.support.float64.pool_loops import Sizes, backward, close, forward, layer_of, steps

pytestmark = pytest.mark.engines("numpy", "c")


# Worked numbers and rules -------------------------------------------------------------------------------------------


def test_worked_numbers(be: Backend) -> None:
    sizes = {"C": 1, "H": 2, "W": 2, "R": 2, "S": 2, "pad_h": 1, "pad_w": 1, "str_h": 1, "str_w": 1}
    layer = layer_of(be, "max", 2, **sizes)
    image, pooled = be.array([[1, 2], [3, 4], [5, 6], [7, 8]]), be.empty((9, 2))
    argmax, delta = be.empty((9, 2), dtype=np.uint8), be.empty((4, 2))
    be.fprop_pool(layer, image, pooled, argmax)
    assert pooled.get()[:, 0].tolist() == [1, 3, 3, 5, 7, 7, 5, 7, 7]
    be.bprop_pool(layer, be.ones((9, 2)), delta, argmax)
    assert delta.get()[:, 0].tolist() == [1, 2, 2, 4]


@pytest.mark.parametrize("N", [1, 3, 16, 20, 64])
def test_of_equal_values_the_first_is_the_maximum(be: Backend, N: int) -> None:
    layer = layer_of(be, "max", N, C=2, H=2, W=3, J=2, R=2, S=3)
    argmax, delta, pooled = (be.empty(layer.dimO, dtype=t) for t in (np.int32, np.float32, np.float32))
    delta = be.empty(layer.dimI)
    for value in (0.0, -5.0, -np.inf, np.inf):
        x = np.full(layer.dimI, value)
        for first in ((0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 1, 2)):
            x[first] += 0 if np.isinf(value) else 1
            be.fprop_pool(layer, be.array(x), pooled, argmax)
            assert (pooled.get() == x.max()).all()
            be.bprop_pool(layer, be.ones(layer.dimO), delta, argmax)
            expected = (0, 0, 0, 0) if np.isinf(value) else first
            assert delta.get()[expected].tolist() == [1.0] * N, (value, first)
            assert delta.get().sum() == N
            x[first] = value


@pytest.mark.parametrize("N", [1, 2, 5, 16, 33, 64])
def test_nan_is_greater_than_all_and_the_first_nan_is_the_maximum(be: Backend, N: int) -> None:
    layer = layer_of(be, "max", N, C=1, H=3, W=3, R=3, S=3)
    for seed, places in enumerate(((0,), (4,), (8,), (3, 7), (0, 8))):
        x = steps(np.random.default_rng(seed), (9, N))
        x[(places[0] + 5) % 9] = np.inf
        x[list(places)] = np.nan
        x[:, N // 2] = range(9)  # another image is not touched by it
        pooled, argmax, delta = be.empty((1, N)), be.empty((1, N), dtype=np.uint8), be.empty((9, N))
        be.fprop_pool(layer, be.array(x), pooled, argmax)
        be.bprop_pool(layer, be.ones((1, N)), delta, argmax)
        others = np.arange(N) != N // 2
        assert np.isnan(pooled.get()[0, others]).all()
        assert (delta.get()[places[0], others] == 1).all()
        assert pooled.get()[0, N // 2] == 8
        assert delta.get()[8, N // 2] == 1
        assert delta.get().sum() == N


@pytest.mark.parametrize("op", ["avg", "l2"])
def test_nan_and_infinity_stay_in_their_windows(be: Backend, op: str) -> None:
    layer = layer_of(be, op, 2, C=1, H=1, W=6, R=1, S=2)
    x = np.ones((6, 2))
    x[0, 0], x[2, 1] = np.nan, np.inf
    pooled, delta = be.empty((3, 2)), be.empty((6, 2))
    be.fprop_pool(layer, be.array(x), pooled)
    assert np.isnan(pooled.get()).tolist() == [[True, False], [False, False], [False, False]]
    assert np.isinf(pooled.get()).tolist() == [[False, False], [False, True], [False, False]]
    be.bprop_pool(layer, be.array([[1.0, 1], [np.nan, 1], [1, 1]]), delta)
    assert np.isnan(delta.get()[:, 0]).tolist() == [op == "l2"] * 2 + [True] * 2 + [False] * 2


def test_a_zero_norm_has_gradient_zero(be: Backend) -> None:
    layer = layer_of(be, "l2", 2, C=1, W=4, S=2)
    pooled, delta = be.empty((2, 2)), be.empty((4, 2))
    be.fprop_pool(layer, be.array([[0, 3], [0, 4], [1, 0], [0, 0]]), pooled)
    assert pooled.get().tolist() == [[0, 5], [1, 0]]
    be.bprop_pool(layer, be.ones((2, 2)), delta)
    assert np.allclose(delta.get(), [[0, 0.6], [0, 0.8], [1, 0], [0, 0]])


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("N", [2, 16])
def test_windows_without_input_give_zero(be: Backend, op: str, N: int) -> None:
    """Caffe's sizes allow a last window that starts behind the input."""
    be.set_caffe_compat()
    layer = layer_of(be, op, N, C=1, W=5, S=1, str_w=3)
    assert layer.Q == 3
    x = -np.ones((5, N)) * np.arange(1, 6)[:, None]
    pooled, argmax, delta = be.empty((3, N)), be.empty((3, N), dtype=np.uint8), be.empty((5, N))
    be.fprop_pool(layer, be.array(x), pooled, argmax)
    assert pooled.get()[:, 0].tolist() == ([1, 4, 0] if op == "l2" else [-1, -4, 0])
    be.bprop_pool(layer, be.ones((3, N)), delta, argmax)
    assert delta.get()[:, 0].tolist() == ([-1, 0, 0, -1, 0] if op == "l2" else [1, 0, 0, 1, 0])


def test_long_means_keep_their_precision(be: Backend) -> None:
    x = np.random.default_rng(3).random((1, 1, 150, 150, 2)).astype(np.float32) + 1000
    layer = layer_of(be, "avg", 2, C=1, H=150, W=150, R=150, S=150)
    pooled = be.empty((1, 2))
    be.fprop_pool(layer, be.array(x), pooled)
    wanted = x.astype(np.float64).mean(axis=(0, 1, 2, 3))
    assert np.abs(pooled.get()[0] / wanted - 1).max() < 1e-6


# The argmax tensor --------------------------------------------------------------------------------------------------


@pytest.mark.compiles(3)
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64])
def test_argmax_of_any_integer_dtype(be: Backend, kind: Any) -> None:
    """Too narrow ones too: uint8 cannot number the 17 x 17 positions of a window, nor int8 those of 12 x 12."""
    for side, N in ((3, 16), (12, 2), (17, 16), (17, 3)):
        sizes = Sizes(N, C=2, H=side, W=side, R=side, S=side)
        layer = layer_of(be, "max", N, C=2, H=side, W=side, R=side, S=side)
        x = np.zeros(sizes.dimI)
        x[0, 0, -1, -1] = x[1, 0, 0, 1] = 1
        pooled, argmax, delta = be.empty((2, N)), be.empty((2, N), dtype=kind), be.empty(layer.dimI2)
        be.fprop_pool(layer, be.array(x), pooled, argmax)
        be.bprop_pool(layer, be.ones((2, N)), delta, argmax.reshape(1, 2 * N))
        assert np.array_equal(delta.get().reshape(x.shape), x)


@pytest.mark.parametrize(("kind", "positions"), [(np.uint8, 256), (np.int8, 128)])
def test_the_last_position_that_an_argmax_can_number(be: Backend, kind: Any, positions: int) -> None:
    for size in (positions, positions + 1):
        layer = layer_of(be, "max", 2, C=1, W=size, S=size)
        x = np.zeros((size, 2))
        x[-1] = 1
        argmax, delta = be.empty((1, 2), dtype=kind), be.empty((size, 2))
        be.fprop_pool(layer, be.array(x), be.empty((1, 2)), argmax)
        be.bprop_pool(layer, be.ones((1, 2)), delta, argmax)
        assert np.array_equal(delta.get(), x)


def test_narrow_argmax_is_taken_as_fprop_left_it_only(be: Backend) -> None:
    layer = layer_of(be, "max", 2, C=1, H=17, W=17, R=17, S=17)
    assert layer.argmax_dtype == np.uint16
    error, delta = be.ones((1, 2)), be.zeros((289, 2))
    with pytest.raises(ArgumentError, match=r"uint8 .* 289 positions .*np\.uint16"):
        be.bprop_pool(layer, error, delta, be.zeros((1, 2), dtype=np.uint8))
    assert not delta.get().any()


def test_views_of_one_argmax_buffer(be: Backend) -> None:
    """Numbers of narrow views are kept by the position of the view."""
    for side in (2, 17):
        layer = layer_of(be, "max", 2, C=1, H=side, W=side, R=side, S=side)
        buffer, delta = be.empty((4, 2), dtype=np.uint8), be.empty(layer.dimI2)
        for row in range(4):
            x = np.zeros(layer.dimI2)
            x[row] = 1
            be.fprop_pool(layer, be.array(x), be.empty((1, 2)), buffer[row : row + 1])
        for row in range(4):
            be.bprop_pool(layer, be.ones((1, 2)), delta, buffer[row : row + 1])
            assert delta.get()[row].tolist() == [1, 1]
            assert delta.get().sum() == 2


# Tensors of other forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_strided_views(be: Backend, op: str) -> None:
    given = {"C": 2, "H": 4, "W": 5, "R": 2, "S": 2, "str_h": 1, "str_w": 1}
    sizes, layer = Sizes(3, **given), layer_of(be, op, 3, **given)
    rng = np.random.default_rng(5)
    x, error, old, base = (steps(rng, shape) for shape in (layer.dimI2, layer.dimO2, layer.dimO2, layer.dimI2))
    image, E = be.zeros((40, 8))[:, 1:4], be.zeros((3, 24)).T
    out, deltas, numbers = be.zeros((24, 7)), be.zeros((40, 6)), be.zeros((24, 9), dtype=np.uint8)
    pooled, delta, argmax = out[:, 2:5], deltas[:, ::2], numbers[:, 5:8]
    for tensor, values in ((image, x), (E, error), (pooled, old), (delta, base)):
        tensor.set(values)
    be.fprop_pool(layer, image, pooled, argmax, beta=2.0)
    wanted = forward(op, sizes, x.reshape(sizes.dimI)) + 2 * old.reshape(sizes.dimO)
    close(pooled, wanted.reshape(24, 3), np.float32)
    be.bprop_pool(layer, E, delta, argmax, beta=2.0)
    wanted = backward(op, sizes, x.reshape(sizes.dimI), error.reshape(sizes.dimO)) + 2 * base.reshape(sizes.dimI)
    close(delta, wanted.reshape(40, 3), np.float32)
    untouched = np.delete(out.get(), [2, 3, 4], axis=1), deltas.get()[:, 1::2], np.delete(numbers.get(), [5, 6, 7], 1)
    assert not any(array.any() for array in untouched)


def test_l2_reads_the_last_input_or_the_given_one(be: Backend) -> None:
    layer = layer_of(be, "l2", 1, C=1, W=2, S=2)
    pooled, delta, error = be.empty((1, 1)), be.empty((2, 1)), be.ones((1, 1))
    with pytest.raises(MissingArgument, match="l2 pooling needs inputs"):
        be.bprop_pool(layer, error, delta)
    be.fprop_pool(layer, be.array([3.0, 4.0]), pooled)
    be.bprop_pool(layer, error, delta)
    assert np.allclose(delta.get()[:, 0], [0.6, 0.8])
    be.bprop_pool(layer, error, delta, inputs=be.array([8.0, -6.0]))
    assert np.allclose(delta.get()[:, 0], [0.8, -0.6])


# Repeats, bench mode ------------------------------------------------------------------------------------------------


def test_repeats_start_from_the_same_values(be: Backend) -> None:
    layer = layer_of(be, "max", 2, C=1, W=4, S=2)
    image, pooled = be.array([[1, 2], [3, 4], [5, 6], [7, 8]]), be.ones((2, 2))
    argmax = be.empty((2, 2), dtype=np.uint8)
    milliseconds, rate = be.fprop_pool(layer, image, pooled, argmax, beta=1.0, repeat=3)
    assert milliseconds > 0
    assert rate == 0
    assert pooled.get().tolist() == [[4, 5], [8, 9]]
    delta = be.ones((4, 2))
    assert be.bprop_pool(layer, be.ones((2, 2)), delta, argmax, beta=2.0, repeat=3) is not None
    assert delta.get().tolist() == [[2, 2], [3, 3], [2, 2], [3, 3]]


@pytest.mark.backend
def test_bench_mode_lists_the_calls() -> None:
    be = current_backend(batch_size=2, bench=True)
    try:
        layer = layer_of(be, "avg", 2, C=1, W=4, S=2)
        be.fprop_pool(layer, be.ones((4, 2)), be.empty((2, 2)))
        be.bprop_pool(layer, be.ones((2, 2)), be.empty((4, 2)))
        report = be.bench_report()
    finally:
        be.cleanup_backend()
    assert "fprop_pool avg" in report
    assert "bprop_pool avg" in report


# Errors -------------------------------------------------------------------------------------------------------------


def test_signatures(be: Backend) -> None:
    assert list(inspect.signature(be.pool_layer).parameters) == (
        "dtype op N C D H W J T R S pad_c pad_d pad_h pad_w str_c str_d str_h str_w".split()
    )
    for method in (be.fprop_pool, be.bprop_pool):
        parameters = inspect.signature(method).parameters
        assert list(parameters)[:7] == ["layer", "I", "O", "argmax", "alpha", "beta", "repeat"]
        assert [parameter.default for parameter in list(parameters.values())[3:7]] == [None, 1.0, 0.0, 1]


def test_failed_calls_write_nothing(be: Any) -> None:
    layer = layer_of(be, "max", 2, C=1, W=4, S=2)
    image, pooled, argmax, whole = be.ones((4, 2)), be.zeros((2, 2)), be.zeros((2, 2), dtype=np.uint8), be.zeros((6, 2))
    double, half = be.ones((4, 2), dtype=np.float64), be.empty((2, 2), dtype=np.float16)
    other = new_backend(rng_seed=0)
    calls: list[tuple[type[Exception], str, tuple[Any, ...]]] = [
        (MissingArgument, r"max pooling needs argmax.*\(2, 2\), dtype=np\.uint8", (layer, image, pooled)),
        (ShapeError, r"O must have \(1, 1, 1, 2, 2\) = 4 elements", (layer, image, be.zeros((3, 2)), argmax)),
        (ShapeError, r"I must have \(1, 1, 1, 4, 2\) = 8 elements", (layer, be.ones((3, 3)), pooled, argmax)),
        (ShapeError, "argmax must have", (layer, image, pooled, be.zeros((2, 3), dtype=np.uint8))),
        (DTypeError, "argmax must hold integers, got float32", (layer, image, pooled, be.zeros((2, 2)))),
        (DTypeError, "one float dtype, got I float64, O float32", (layer, double, pooled, argmax)),
        (DTypeError, "one float dtype", (layer, image, half, argmax)),
        (DTypeError, "layer must come from be.pool_layer, got NoneType", (None, image, pooled, argmax)),
        (DTypeError, "I must be a tensor, got None", (layer, None, pooled, argmax)),
        (DTypeError, "O must be a tensor, got None", (layer, image, None, argmax)),
        (DTypeError, "I must be a tensor", (layer, np.ones((4, 2)), pooled, argmax)),
        (DTypeError, "argmax must be a tensor", (layer, image, pooled, np.zeros((2, 2), np.uint8))),
        (DTypeError, "I belongs to another backend", (layer, other.ones((4, 2)), pooled, argmax)),
        (AliasError, "O shares memory with I", (layer, whole[0:4], whole[3:5], argmax)),
    ]
    for error, words, arguments in calls:
        with pytest.raises(error, match=words):
            be.fprop_pool(*arguments)
    assert not pooled.get().any()
    assert not argmax.get().any()
    assert not whole.get().any()
    with pytest.raises(AliasError, match="O shares memory with I"):
        be.bprop_pool(layer, whole[0:2], whole[1:5], argmax)
    with pytest.raises(ShapeError, match=r"I must have \(1, 1, 1, 2, 2\) = 4 elements"):
        be.bprop_pool(layer, be.ones((3, 2)), whole[0:4], argmax)
    with pytest.raises(MissingArgument, match="bprop_pool: max pooling needs argmax"):
        be.bprop_pool(layer, pooled, whole[0:4])
    assert not whole.get().any()
    other.cleanup_backend()


def test_argmax_is_not_needed_for_means(be: Backend) -> None:
    layer = layer_of(be, "avg", 2, C=1, W=4, S=2)
    argmax = be.array(np.full((2, 2), 7), dtype=np.uint8)
    pooled = be.empty((2, 2))
    be.fprop_pool(layer, be.ones((4, 2)), pooled, argmax)
    assert (argmax.get() == 7).all()
    assert math.isclose(pooled.get().sum(), 4)
