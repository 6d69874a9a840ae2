"""Prepared assignments, and how random numbers, stretching and transposes meet in any assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from neonlike.backends import Backend
from tests.kernels.planning.test_plan import EXPRESSIONS, Tensors
from tests.support.float64.reference import assert_close, evaluate

pytestmark = pytest.mark.optree


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_prepared_assignments_follow_their_tensors(be64: Backend, name: str) -> None:
    t = Tensors(be64, 5, 9)
    expression = EXPRESSIONS[name](t)
    out = be64.empty(expression.shape)
    step = be64.prepare(out, expression)
    for seed in range(3):
        new = Tensors(be64, 5, 9, seed)
        for attribute in ("x", "y", "z", "row", "column", "one", "weights", "deep", "strided"):
            getattr(t, attribute)[:] = getattr(new, attribute)
        assert step() is out
        np.testing.assert_allclose(out.get(), evaluate(expression), 1e-10, 1e-10)


def test_a_prepared_accumulation(be: Backend) -> None:
    x, total = be.array([[1.0, 2.0]]), be.zeros((1, 2))
    step = be.prepare(total, total + x)
    for _ in range(10):
        step()
    assert total.get().tolist() == [[10, 20]]


def test_prepared_random_numbers_are_new_each_time(be: Backend) -> None:
    """The first call gives the expression's numbers, later ones go on; equal states repeat them."""
    x, mask = be.ones((40, 50)), be.empty((40, 50))
    start = be.rng_get_state()
    dropped = x * be.dropout(0.5) + be.rand() * be.sum(x)
    step = be.prepare(mask, dropped)
    draws = [step().get() for _ in range(3)]
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(draws))
    assert_close(dropped.asnumpyarray(), draws[0].astype(np.float64))
    be.rng_set_state(start)
    step = be.prepare(mask, x * be.dropout(0.5) + be.rand() * be.sum(x))
    for draw in draws:
        np.testing.assert_array_equal(step().get(), draw)


def test_rand_and_onehot_below_stretching_number_their_own_elements(be64: Backend) -> None:
    alone = be64.empty((3, 1))
    noise = be64.rand()
    alone[:] = noise
    out = be64.empty((3, 4))
    out[:] = be64.ones((3, 1)) * noise + be64.zeros((1, 4))
    np.testing.assert_array_equal(out.get(), np.broadcast_to(alone.get(), (3, 4)))
    row = be64.onehot(be64.array([[1, 0, 1, 1]], dtype=np.int32), 0)
    tall = be64.empty((2, 2, 4))
    tall[:] = be64.ones((2, 4)) * row + be64.zeros((2, 1, 1))
    np.testing.assert_array_equal(tall.get(), np.broadcast_to([[0, 1, 0, 0], [1, 0, 1, 1]], (2, 2, 4)))


def test_random_numbers_survive_transposes(be64: Backend) -> None:
    alone, noise = be64.empty((3, 4)), be64.rand()
    alone[:] = noise
    out = be64.empty((4, 3))
    out[:] = (be64.ones((3, 4)) * noise).T
    np.testing.assert_array_equal(out.get(), alone.get().T)


def test_results_with_more_axes_than_their_target(be64: Backend) -> None:
    x = be64.array(np.arange(6.0).reshape(1, 1, 2, 3))
    out, wide = be64.empty((2, 3)), be64.empty((5, 2, 3))
    out[:] = x * 2
    np.testing.assert_array_equal(out.get(), x.get()[0, 0] * 2)
    out[:] = x
    np.testing.assert_array_equal(out.get(), x.get()[0, 0])
    wide[:] = x + 1
    np.testing.assert_array_equal(wide.get(), np.broadcast_to(x.get()[0] + 1, (5, 2, 3)))
