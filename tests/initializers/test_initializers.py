"""Initializers: exact draws for a seed, and the statistics of their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ShapeError
from neonlike.initializers import (
    Array,
    Constant,
    Gaussian,
    GlorotUniform,
    IdentityInit,
    Kaiming,
    Orthonormal,
    Uniform,
    Xavier,
)

RANDOM = [Uniform(-1, 2), Gaussian(1, 0.5), GlorotUniform(), Xavier(), Xavier(False), Kaiming(), Kaiming(False),
          Orthonormal()]  # fmt: skip


def filled(be, init, shape):
    tensor = be.empty(shape)
    assert init.fill(tensor) is None
    return tensor.get()


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        (Uniform(-1, 1), [[0.097627, 0.430379, 0.205527], [0.089766, -0.15269, 0.291788]]),
        (Gaussian(), [[1.764052, 0.400157, 0.978738], [2.240893, 1.867558, -0.977278]]),
        (GlorotUniform(), [[0.106945, 0.471456, 0.225143]]),
        (Xavier(local=True), [[0.119568, 0.527104, 0.251718]]),
    ],
)
def test_worked_draws_of_seed_0(be, init, expected):
    be.rng_reset()
    got = filled(be, init, (2, 3))
    np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-6)


def test_constant_scalar_array_and_tensor(be):
    values = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(filled(be, Constant(2.5), (2, 3)), np.full((2, 3), 2.5))
    for init in (Constant(values), Constant(be.array(values)), Array(values), Array(be.array(values))):
        np.testing.assert_array_equal(filled(be, init, (2, 3)), values)


def test_an_array_without_two_dimensions_takes_the_shape_of_the_parameter(be):
    values = np.arange(4.0)
    for init, expected in ((Constant(values), values[:, None]), (Array(values), values[:, None]),
                           (Constant(np.array(2.5)), np.full((4, 1), 2.5))):  # fmt: skip
        np.testing.assert_array_equal(filled(be, init, (4, 1)), expected)
    with pytest.raises(ShapeError, match=r"\(4,\).*\(3, 1\)"):
        filled(be, Constant(values), (3, 1))


@pytest.mark.parametrize("wrap", [np.asarray, "tensor"])
def test_constant_of_another_shape_is_refused_and_the_target_stays(be, wrap):
    values = np.ones((3, 2))
    init = Constant(be.array(values) if wrap == "tensor" else values)
    target = be.zeros((2, 3))
    with pytest.raises(ShapeError, match=r"\(3, 2\).*\(2, 3\)"):
        init.fill(target)
    assert not target.get().any()


@pytest.mark.parametrize(
    ("init", "mean", "variance"),
    [
        (Uniform(-1, 3), 1.0, 16 / 12),
        (Gaussian(2, 3), 2.0, 9.0),
        (GlorotUniform(), 0.0, 2 / (300 + 200)),
        (Xavier(local=True), 0.0, 1 / 300),
        (Xavier(local=False), 0.0, 1 / 200),
        (Kaiming(local=True), 0.0, 2 / 300),
        (Kaiming(local=False), 0.0, 2 / 200),
    ],
)
def test_mean_and_variance_are_those_of_the_formula(be, init, mean, variance):
    got = filled(be, init, (300, 200)).astype(np.float64)
    assert abs(got.mean() - mean) < 5 * np.sqrt(variance / got.size)
    assert abs(got.var() / variance - 1) < 0.05


def test_identity_fills_the_first_columns(be):
    np.testing.assert_array_equal(filled(be, IdentityInit(), (2, 3)), np.eye(2, 3))
    assert IdentityInit().name == "Identity"
    with pytest.raises(ShapeError, match="fewer columns"):
        filled(be, IdentityInit(), (3, 2))


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5)])
def test_orthonormal_rows_or_columns(be, shape):
    got = filled(be, Orthonormal(scale=2.0), shape).astype(np.float64) / 2.0
    product = got @ got.T if shape[0] <= shape[1] else got.T @ got
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize("init", RANDOM, ids=lambda init: init.classnm)
def test_defect_10_all_draws_come_from_the_backends_generator(be, init):
    be.rng_reset()
    first = filled(be, init, (3, 4))
    np.random.seed(12345)
    be.rng_reset()
    np.testing.assert_array_equal(filled(be, init, (3, 4)), first)
    assert not np.array_equal(filled(be, init, (3, 4)), first)
