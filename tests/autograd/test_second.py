"""Derivatives of derivatives through compound primitives: in whatever way they are asked for, they are the same."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd.dynamic import Hint, commands
from neonlike.optree import tape

pytestmark = pytest.mark.engines("numpy")
SHAPES = ((2, 4, 4, 3), (2, 3, 3, 4), (4, 1), (4, 1))


def hosts() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in SHAPES]


def network(x: Any, w: Any, gamma: Any, beta: Any) -> Any:
    maps = ag.tanh(ag.batch_norm2d(ag.convolution(x, w, padding=1), gamma, beta))
    rows = ag.reshape(ag.max_pool2d(maps, 2), (4, 4, 3))
    return ag.scaled_dot_product_attention(rows, rows * 0.5, rows, causal=True)


def penalty(function: Any, variables: Any, wanted: Any, asked: int = 0) -> Any:
    """The squares of the derivatives by those ``wanted``; values on the way are ``asked`` for."""
    loss = ag.sum(function(*variables) ** 2)
    if asked > 0:
        loss.get()
    slopes = ag.grad(loss, [variables[place] for place in wanted], create_graph=True)
    if asked > 1:
        for slope in slopes:
            slope.get()
    total: Any = sum(ag.sum(slope * slope) for slope in slopes)
    if asked > 2:
        total.get()
    return total


@pytest.mark.parametrize("wanted", [(0,), (0, 1, 2, 3)])
def test_they_do_not_depend_on_what_is_kept(be64: Any, wanted: Any) -> None:
    """Kept for the backward pass, computed again in a checkpoint, asked for before it, gone through twice."""
    assert ag.check_gradient(lambda *given: penalty(network, given, wanted), *hosts()) < 1e-6
    first: Any = None
    for function in (network, ag.checkpoint(network)):
        for asked, twice in ((0, False), (1, True), (2, False), (3, True)):
            variables = [ag.param(host) for host in hosts()]
            root = penalty(function, variables, wanted, asked)
            root.backprop(keep_graph=twice)
            if twice:
                root.backprop()
            found = [variable.partial_derivative.get() / (1 + twice) for variable in variables]
            first = first or found
            for mine, other in zip(found, first):
                np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
    del root, variables
    gc.collect()
    assert tape.kept == {}


def test_third_ones(be64: Any) -> None:
    def curvature(q: Any, k: Any) -> Any:
        (slope,) = ag.grad(ag.sum(ag.scaled_dot_product_attention(q, k, k) ** 2), [q], create_graph=True)
        (second,) = ag.grad(ag.sum(slope * slope), [k], create_graph=True)
        return ag.sum(second * second)

    rng = np.random.default_rng(1)
    assert ag.check_gradient(curvature, rng.standard_normal((3, 4)), rng.standard_normal((3, 4))) < 1e-5


def test_of_commands_of_a_dynamic_graph(be64: Any) -> None:
    def slopes(x: Any, w: Any, gamma: Any, beta: Any) -> Any:
        with be64.dynamic_graph() as g:
            given = [g.variable(value=one) for one in (x, w, gamma, beta)]
            maps = g.exec(commands.conv(), given[:2], hint=Hint(padding=1))
            maps = g.exec(commands.lrn(3), [g.exec(commands.batchnorm(), [maps, *given[2:]])])
            y = g.exec(commands.ewise("sqr"), [g.exec(commands.pool(2, "l2"), [maps])])
            (by_x,) = g.backward(g.exec(commands.sum_of(), [y]), [given[0]])
            found = g.backward(g.exec(commands.sum_of(), [g.exec(commands.ewise("sqr"), [by_x])]), given)
            return by_x.get(), [one.get() for one in found]

    points, step = hosts(), 1e-5
    _, found = slopes(*points)
    for place, gradient in enumerate(found):
        direction = np.random.default_rng(place).standard_normal(gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = [point + sign * step * direction if n == place else point for n, point in enumerate(points)]
            ends.append((slopes(*moved)[0] ** 2).sum())
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-4)
