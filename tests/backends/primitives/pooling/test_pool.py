"""Pooling against loops in float64, and compiled kernels against the definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import pool as kernels
from neonlike.backends.primitives.pooling.family import PoolFamily, PoolPass
from tests.support.engines import sampled, use_threads
from tests.support.float64.pool_loops import Sizes, backward, close, forward, layer_of, steps

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

Array = np.ndarray[Any, Any]

GRIDS: list[dict[str, Any]] = [
    {"C": 3, "H": 5, "W": 6, "R": 2, "S": 2},
    {"C": 2, "H": 7, "W": 9, "R": 3, "S": 3, "str_h": 2, "str_w": 2},
    {"C": 1, "H": 6, "W": 5, "R": 3, "S": 2, "pad_h": 2, "pad_w": 1, "str_h": 1, "str_w": 1},
    {"C": 2, "H": 7, "W": 7, "R": 7, "S": 7},
    {"C": 1, "W": 11, "S": 4, "pad_w": 3, "str_w": 3},
    {"C": 2, "D": 4, "H": 5, "W": 3, "T": 2, "R": 3, "S": 2, "pad_d": 1, "pad_h": 2, "str_d": 1, "str_h": 3},
    {"C": 7, "H": 2, "W": 3, "J": 3, "R": 1, "S": 2, "pad_c": 1, "str_c": 2, "str_w": 1},
    {"C": 5, "D": 2, "H": 3, "W": 4, "J": 5, "T": 2, "R": 2, "S": 3, "pad_c": 2, "pad_w": 2, "str_c": 1, "str_h": 1},
    {"C": 2, "H": 6, "W": 9, "R": 1, "S": 2, "str_h": 2, "str_w": 4},
    {"C": 1, "H": 3, "W": 2, "R": 4, "S": 4, "pad_h": 3, "pad_w": 3, "str_h": 1, "str_w": 1},
    {"C": 2, "H": 3, "W": 39, "R": 2, "S": 3, "pad_w": 1, "str_h": 1, "str_w": 2},
    {"C": 1, "H": 3, "W": 35, "R": 3, "S": 4, "pad_h": 1, "pad_w": 3, "str_h": 2, "str_w": 1},
    {"C": 1, "W": 70, "S": 3, "pad_w": 2, "str_w": 4},
]
"""Sizes, windows, padding and strides; what is left out is 1, 0 and the window."""

IMAGES = (1, 2, 3, 5, 13, 16, 33, 64)


def check(be: Any, op: str, given: dict[str, int], N: int, dtype: Any, alpha: float, beta: float, seed: int) -> None:
    """Forward and backward of one case against the loops."""
    rng = np.random.default_rng(seed)
    sizes, layer = Sizes(N, **given), layer_of(be, op, N, dtype, **given)
    assert layer.dimO == sizes.dimO
    x, error = steps(rng, sizes.dimI, dtype), steps(rng, sizes.dimO, dtype)
    old_out, old_delta = steps(rng, sizes.dimO, dtype), steps(rng, sizes.dimI, dtype)
    image, E = be.array(x.reshape(layer.dimI2), dtype=dtype), be.array(error, dtype=dtype)
    pooled, delta = be.array(old_out.reshape(layer.dimO2), dtype=dtype), be.array(old_delta, dtype=dtype)
    if beta == 0:
        pooled.fill(np.nan)
        delta.fill(np.nan)
    argmax = be.empty(layer.dimO2, dtype=np.uint8) if op == "max" else None
    assert be.fprop_pool(layer, image, pooled, argmax, alpha=alpha, beta=beta) is None
    close(pooled, alpha * forward(op, sizes, x) + beta * old_out.astype(np.float64), dtype)
    assert be.bprop_pool(layer, E, delta, argmax, alpha=alpha, beta=beta) is None
    close(delta, alpha * backward(op, sizes, x, error) + beta * old_delta.astype(np.float64), dtype)
    assert np.array_equal(E.get(), error)  # neon scaled the caller's error by alpha
    assert np.array_equal(image.get().reshape(x.shape), x)


@pytest.mark.compiles(6)
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("case", range(len(GRIDS)))
def test_agrees_with_loops(be: Backend, op: str, case: int) -> None:
    for turn, N in sampled(be, enumerate(IMAGES), 3, case):
        alpha, beta = ((1.0, 0.0), (0.5, 2.0), (-2.0, 0.0), (1.0, 1.0))[(turn + case) % 4]
        check(be, op, GRIDS[case], N, np.float32, alpha, beta, seed=case)


SHARED = [
    {"C": 3, "H": 7, "W": 7, "R": 7, "S": 7},
    {"C": 2, "H": 9, "W": 8, "R": 2, "S": 3, "pad_w": 1},
    {"C": 4, "D": 4, "H": 5, "W": 6, "J": 2, "T": 2, "R": 3, "S": 2, "str_h": 2, "pad_h": 1},
]
"""Windows that most rows and columns share with their neighbours, whose gradients are copied then."""


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("case", range(len(SHARED)))
def test_gradients_of_elements_in_the_same_windows(
    be: Backend, case: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, threads)
    for N, (alpha, beta) in ((16, (1.0, 0.0)), (33, (0.5, 0.0)), (8, (1.0, 2.0))):
        check(be, "avg", SHARED[case], N, np.float32, alpha, beta, seed=case)


@pytest.mark.compiles(3)
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_agree_with_loops(be: Backend, op: str, dtype: Any) -> None:
    cases = ((1, 16, (1.0, 0.0)), (5, 3, (0.5, 2.0)), (7, 9, (1.0, 1.0)), (3, 33, (1.0, 0.0)))
    for case, N, (alpha, beta) in sampled(be, cases, 3, len(op)):
        check(be, op, GRIDS[case], N, dtype, alpha, beta, seed=case)


@pytest.mark.optimized
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_kernels_agree_with_the_definition(compiled: Backend, op: str) -> None:
    """On larger arrays than loops can do, where threads share the work and gradients are stored past the caches."""
    rng = np.random.default_rng(1)
    given = {"C": 40, "H": 31, "W": 30, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "str_h": 2, "str_w": 2}
    for N, extra in ((64, {}), (48, {}), (17, {}), (64, {"str_h": 1, "str_w": 1})):
        layer = layer_of(compiled, op, N, **{**given, **extra})
        x, error = steps(rng, layer.dimI), steps(rng, layer.dimO)
        image, E, results = compiled.array(x), compiled.array(error), []
        for hooks in (type(compiled), PoolFamily):
            pooled, delta = compiled.empty(layer.dimO), compiled.empty(layer.dimI)
            argmax = compiled.empty(layer.dimO, dtype=np.uint8) if op == "max" else None
            hooks._fprop_pool(compiled, PoolPass(layer, False), image, pooled, argmax)
            inputs = image if op == "l2" else None
            hooks._bprop_pool(compiled, PoolPass(layer, True), E, delta, argmax, inputs)
            results.append((pooled, delta, argmax))
        for mine, its in zip(results[0], results[1]):
            if mine is not None:
                np.testing.assert_allclose(mine.get(), its.get(), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_gradients_are_those_of_the_forward_pass(be: Backend, op: str) -> None:
    rng = np.random.default_rng(2)
    given = {"C": 3, "H": 5, "W": 4, "J": 2, "R": 3, "S": 2, "pad_h": 1, "str_c": 1, "str_h": 2, "str_w": 1}
    layer = layer_of(be, op, 3, np.float64, **given)
    x = rng.permutation(layer.sizeI).reshape(layer.dimI) / 7.0 + 0.1  # no two equal
    error, direction = rng.normal(size=layer.dimO), rng.normal(size=layer.dimI)
    argmax = be.empty(layer.dimO, dtype=np.uint8)

    def run(values: Array) -> Array:
        pooled = be.empty(layer.dimO, dtype=np.float64)
        be.fprop_pool(layer, be.array(values, dtype=np.float64), pooled, argmax)
        return np.asarray(pooled.get())

    h = 1e-6
    slope = ((run(x + h * direction) - run(x - h * direction)) / (2 * h) * error).sum()
    inputs, delta = be.array(x, dtype=np.float64), be.empty(layer.dimI, dtype=np.float64)
    run(x)
    be.bprop_pool(layer, be.array(error, dtype=np.float64), delta, argmax, inputs=inputs)
    assert np.isclose((delta.get() * direction).sum(), slope, rtol=1e-6)


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_results_do_not_depend_on_the_number_of_threads(
    compiled: Backend, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    rng = np.random.default_rng(6)
    for given in (
        {"C": 5, "H": 13, "W": 9, "R": 3, "S": 3, "pad_h": 1, "str_h": 2, "str_w": 1},
        {"C": 7, "H": 3, "W": 5, "J": 3, "pad_c": 1, "str_c": 1, "R": 2, "S": 2},
        {"C": 1, "W": 2, "S": 2},
        {"C": 37, "W": 5, "S": 5},
    ):
        for N in (1, 18):
            layer = layer_of(compiled, op, N, **given)
            image, E = (compiled.array(rng.normal(size=shape)) for shape in (layer.dimI, layer.dimO))
            results = []
            for threads in ("1", "2", "5"):
                use_threads(monkeypatch, threads)
                pooled, delta = compiled.empty(layer.dimO), compiled.empty(layer.dimI)
                argmax = compiled.empty(layer.dimO, dtype=np.int32)
                compiled.fprop_pool(layer, image, pooled, argmax)
                compiled.bprop_pool(layer, E, delta, argmax)
                results.append((pooled.get(), delta.get()))
            for other in results[1:]:
                assert all(np.array_equal(mine, its) for mine, its in zip(results[0], other))


@pytest.mark.parametrize("N", [1, 3, 16])
@pytest.mark.parametrize("wide", [(2, 3), (7, 1)], ids=str)
def test_values_in_no_window_have_no_gradient(be: Backend, wide: tuple[int, int], N: int) -> None:
    """Whatever they are: strides pass them over."""
    width, window = 20, wide[1]
    layer = be.pool_layer(np.float32, "l2", N, 2, H=5, W=width, R=2, S=window, str_h=3, str_w=wide[0] + window)
    x = np.random.default_rng(1).normal(size=layer.dimI).astype(np.float32)
    read = np.zeros((5, width), bool)
    for p, q in np.ndindex(layer.P, layer.Q):
        read[3 * p : 3 * p + 2, q * (wide[0] + window) : q * (wide[0] + window) + window] = True
    x[:, :, ~read] = [np.nan, np.inf, -np.inf][N % 3]
    inputs, delta, error = be.array(x), be.empty(layer.dimI), be.ones(layer.dimO)
    be.fprop_pool(layer, inputs, be.empty(layer.dimO))
    for beta in (0.0, 1.0):
        be.bprop_pool(layer, error, delta, beta=beta, inputs=inputs)
        found = delta.get()
        assert (found[:, :, ~read] == 0).all() and (found[:, :, read] != 0).all()
