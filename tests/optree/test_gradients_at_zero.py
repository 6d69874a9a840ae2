"""Gradients where formulas have 0 * inf or 0 / 0: finite, one of the slopes on either side; and of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.errors import GradientError

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.backend]

X = np.array([[0.0, 1.0, -2.0, 0.0]])
FALLING = {
    n: [float(np.prod([n - i for i in range(k)])) * X ** max(n - k, 0) if k <= n else 0 * X for k in range(7)]
    for n in range(6)
}
"""Derivatives of x**n by their order, in float64."""


@pytest.mark.parametrize("n", FALLING)
def test_derivatives_of_powers_of_any_order(be64: Backend, n: int) -> None:
    x = be64.array(X)
    f: Callable[..., Any] = lambda x: x**n  # noqa: E731
    for order in range(1, 7):
        f = be64.grad(f)
        np.testing.assert_allclose(f(x).get(), FALLING[n][order], rtol=1e-12)


def test_derivatives_of_a_polynomial(be64: Backend) -> None:
    x = be64.array(X)
    found = be64.grad(lambda x: 3 * x**0 + 2 * x**1 + 5 * x**2)(x)
    np.testing.assert_array_equal(found.get(), 2 + 10 * X)
    v = ag.param(be64.array(X))
    (3 * v**0 + 2 * v**1 + 5 * v**2).sum().backprop()
    np.testing.assert_array_equal(v.partial_derivative.get(), 2 + 10 * X)


def test_powers_of_a_tensor_of_exponents(be64: Backend) -> None:
    """By the base, y x**(y-1) or 0; by the exponent, 0 where the base is 0. As JAX has it."""
    x, y = be64.array([[0.0, 0.0, 0.0, 2.0, 2.0]]), be64.array([[0.0, 1.0, 2.0, 0.0, 3.0]])
    by_x, by_y = be64.grad(lambda x, y: x**y)(x, y)
    np.testing.assert_allclose(by_x.get(), [[0, 1, 0, 0, 12]])
    np.testing.assert_allclose(by_y.get(), [[0, 0, 0, np.log(2), 8 * np.log(2)]])
    twice = be64.grad(be64.grad(lambda x, y: x**y, 0), 0)(x, y)
    np.testing.assert_allclose(twice.get(), [[0, 0, 2, 0, 12]])
    np.testing.assert_allclose(be64.grad(lambda y: 0**y)(y + 1).get(), np.zeros((1, 5)))
    np.testing.assert_allclose(be64.grad(lambda y: 2**y)(y).get(), 2 ** y.get() * np.log(2))


def test_derivatives_of_variables_of_any_order(be64: Backend) -> None:
    x = ag.param(be64.array(X))
    for n in (0, 1, 2, 3):
        root = (x**n).sum()
        for order in range(1, 5):
            (found,) = ag.grad(root, [x], create_graph=True)
            np.testing.assert_allclose(found.get(), FALLING[n][order])
            root = found.sum()
    with pytest.raises(GradientError, match="does not depend"):
        ag.grad((x.detach() * x).sum(), [ag.param(be64.array(X))])


def test_second_derivatives_of_powers_by_both(be64: Backend) -> None:
    """Either order of differentiation gives the same, also where the exponent is 0; by the exponent of 0, nothing."""
    x, y = be64.array([[0.0, 0.0, 2.0, 2.0, 0.5]]), be64.array([[2.0, 0.0, 0.0, 3.0, -1.0]])
    by = [[be64.grad(be64.grad(lambda x, y: x**y, i), j)(x, y).get()[0] for j in (0, 1)] for i in (0, 1)]
    a, b = x.get()[0, 2:], y.get()[0, 2:]
    np.testing.assert_allclose(by[0][0], [2, 0, *(b * (b - 1) * a ** (b - 2))])
    np.testing.assert_allclose(by[0][1][2:], a ** (b - 1) * (1 + b * np.log(a)))
    np.testing.assert_allclose(by[1][0][2:], by[0][1][2:])
    np.testing.assert_allclose(by[1][1], [0, 0, *(a**b * np.log(a) ** 2)])


@pytest.mark.parametrize("axis", [0, 1, None])
def test_second_derivatives_of_products_where_factors_are_zero(be64: Backend, rng: Any, axis: Any) -> None:
    host = rng.standard_normal((4, 4))
    host[0, 1] = host[1, 1:3] = host[2, :3] = 0
    x, w = be64.array(host), be64.array(rng.standard_normal((4, 4)))
    if axis is None:
        x, w = be64.array(host[:2, :3]), be64.array(w.get()[:2, :3])
    assert be64.check_grad(lambda x: be64.grad(lambda x: be64.prod(x, axis=axis))(x) * w, x) < 1e-6


CUT: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt of relu": lambda be, x: be.sqrt(be.relu(x)),
    "log of maximum": lambda be, x: be.log(be.maximum(x, 0)),
    "sqrt of clip": lambda be, x: be.sqrt(be.clip(x, 0, 1)),
    "log of minimum": lambda be, x: be.log(-be.minimum(-x, 0)),
    "log of max": lambda be, x: be.log(be.max(be.stack([x, be.zeros(x.shape)]), axis=0)),
}


@pytest.mark.parametrize("name", CUT)
def test_an_infinite_slope_does_not_reach_what_was_not_taken(be64: Backend, name: str) -> None:
    x = be64.array([[-1.0, -2.0, 0.25]])
    found = be64.grad(lambda x: CUT[name](be64, x))(x).get()
    np.testing.assert_allclose(found, [[0, 0, 1 if "sqrt" in name else 4]])


def test_logsumexp_of_rows_that_are_masked(be64: Backend) -> None:
    host = np.array([[-np.inf, -np.inf], [0.0, -np.inf], [1.0, 1.0]])
    expected = [[0, 0], [1, 0], [0.5, 0.5]]
    np.testing.assert_allclose(be64.grad(lambda x: be64.logsumexp(x, axis=1))(be64.array(host)).get(), expected)
    v = ag.param(be64.array(host))
    ag.logsumexp(v, 1).sum().backprop()
    np.testing.assert_allclose(v.partial_derivative.get(), expected)


def test_curvature_of_a_norm_of_variables_at_zero(be64: Backend) -> None:
    v = ag.param(be64.zeros((2, 3)))
    (slope,) = ag.grad(ag.norm2(v, 1).sum(), [v], create_graph=True)
    (curvature,) = ag.grad(slope.sum(), [v])
    assert curvature.get().tolist() == slope.get().tolist() == np.zeros((2, 3)).tolist()


NORMS: dict[str, Callable[[Any, Any], Any]] = {
    "norm2": lambda be, x: be.norm2(x),
    "norm2 of rows": lambda be, x: be.norm2(x, axis=1),
    "std": lambda be, x: be.std(x),
    "std of columns": lambda be, x: be.std(x, axis=0),
    "std around 3": lambda be, x: be.std(x + 3, axis=1),
    "hypot": lambda be, x: be.hypot(x, x),
    "distance": lambda be, x: be.norm2(x - x * 1, axis=1),
    "arctan2": lambda be, x: be.arctan2(x, x),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("order", [1, 2])
def test_norms_of_zeros_have_gradient_zero(be: Backend, name: str, order: int) -> None:
    f: Callable[..., Any] = lambda x: NORMS[name](be, x)  # noqa: E731
    for _ in range(order):
        f = be.grad(f)
    found = f(be.zeros((3, 4))).get()
    np.testing.assert_array_equal(found, np.zeros((3, 4)))


def test_l2_pooling_of_zeros_twice(be64: Backend) -> None:
    x = be64.zeros((1, 2, 2, 2))
    slope = be64.grad(lambda x: be64.pool(x, 2, "l2"))
    assert slope(x).get().tolist() == be64.grad(slope)(x).get().tolist() == np.zeros(x.shape).tolist()


def test_an_exponent_that_is_computed_of_numbers(be64: Backend) -> None:
    x = be64.array(X)
    np.testing.assert_allclose(be64.grad(lambda x: x ** be64.exp(0))(x).get(), np.ones_like(X))
    np.testing.assert_allclose(be64.grad(lambda x: x ** be64.sin(0.0))(x).get(), np.zeros_like(X))


def test_norms_beside_zeros_keep_their_gradients(be64: Backend) -> None:
    rows = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0]])
    x = be64.array(rows)
    unit = rows / np.where(rows.any(1, keepdims=True), np.linalg.norm(rows, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(be64.grad(lambda x: be64.norm2(x, axis=1))(x).get(), unit)
    centred = rows - rows.mean(1, keepdims=True)
    deviation = rows.std(1, keepdims=True)
    expected = centred / np.where(deviation, deviation, 1) / 3
    np.testing.assert_allclose(be64.grad(lambda x: be64.std(x, axis=1))(x).get(), expected, atol=1e-15)


def test_distances_of_equal_points(be64: Backend) -> None:
    a = ag.param(be64.array([[1.0, 2.0], [3.0, 4.0]]))
    b = ag.param(be64.array([[1.0, 2.0], [0.0, 0.0]]))
    ag.euclidean_distance(a, b).sum().backprop()
    np.testing.assert_allclose(a.partial_derivative.get(), [[0, 0], [0.6, 0.8]])
    np.testing.assert_allclose(b.partial_derivative.get(), [[0, 0], [-0.6, -0.8]])


def test_softmax_and_its_like_over_nothing(be: Backend) -> None:
    none, some = be.zeros((2, 0)), be.zeros((0, 3))
    assert np.array_equal(be.logsumexp(none, axis=1).get(), np.full((2, 1), -np.inf))
    assert be.logsumexp(some, axis=1).get().shape == (0, 1)
    for f in (be.softmax, be.log_softmax):
        for x, axis in ((none, 1), (none, 0), (some, 0), (some, 1)):
            assert f(x, axis=axis).get().shape == x.shape
            assert be.grad(lambda x, f=f, axis=axis: f(x, axis=axis))(x).shape == x.shape


def test_the_offset_of_softmax_is_a_constant(be64: Backend) -> None:
    """The maximum that is subtracted has no gradient of its own, also where it is reached twice."""
    x = be64.array([[1.0, 1.0, 0.0], [2.0, -1.0, 2.0]])
    for f in (be64.softmax, be64.log_softmax, be64.logsumexp):
        assert be64.check_grad(lambda x, f=f: be64.square(f(x, axis=1)), x) < 1e-6
