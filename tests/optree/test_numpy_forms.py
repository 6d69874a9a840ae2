"""Forms that NumPy's functions take: no axes, all elements in their order, ways to pad, one bound, several new axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import ArgumentError, IndexRangeError, ShapeError
from tests.support.engines import sampled
from tests.support.float64.reference import LAYOUTS, transposed

pytestmark = pytest.mark.optree

SHAPES = ((3, 4), (2, 3, 4), (1, 5), (300, 7), (0, 3))
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "var", "std")


def some(rng: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return (rng.standard_normal(shape) * 3).astype(dtype)


# No axes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_reduction_over_no_axes_is_of_each_element(be: Backend, rng: Any, shape: Any, name: str) -> None:
    for dtype, layout in sampled(be, itertools.product(("f4", "f8", "f2", "i4"), LAYOUTS), 3):
        host = some(rng, shape, dtype)
        for value, wanted in ((layout(be, host), host), (layout(be, host) + 1, host + 1)):
            found = getattr(be, name)(value, axis=()).asnumpyarray()
            assert found.shape == shape
            np.testing.assert_allclose(found, getattr(np, name)(wanted.astype("f8"), axis=()), 2e-3)


def test_reductions_over_no_axes_within_others(be: Backend, rng: Any) -> None:
    host = some(rng, (5, 6))
    x, big = be.array(host), host.astype("f8")
    for ours, theirs in (
        (be.sum(be.sum(x * 2, axis=()) + x, axis=0) * be.max(x, axis=()), (3 * big).sum(0) * big),
        (be.any(x, axis=()) + be.all(x - x, axis=()), np.ones((5, 6))),
        (be.softmax(x, axis=()), np.ones((5, 6))),
        (be.log_softmax(x, axis=()), np.zeros((5, 6))),
        (be.logsumexp(x, axis=()), big),
        (be.norm2(x, axis=()), np.abs(big)),
    ):
        np.testing.assert_allclose(ours.asnumpyarray(), theirs, 1e-4, 1e-5)
    value = be.max(x, axis=()) * be.sum(x * x, axis=()) * be.prod(x, axis=[])
    assert be.sum(value, keepdims=True, axis=()).shape == (5, 6)
    (gradient,) = Autodiff(be.sum(value), be).get_grad_asnumpyarray([x])
    np.testing.assert_allclose(gradient, 4 * big**3, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_place_needs_an_axis_or_all(be: Backend, name: str) -> None:
    with pytest.raises(ShapeError, match=r"needs one axis, got axis=\(\)"):
        getattr(be, name)(be.ones((2, 3)), axis=())


# All elements in C order ----------------------------------------------------------------------------------------------

IN_LINE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "argmax": (lambda be, x: be.argmax(x, axis=None), lambda x: np.argmax(x)),
    "argmin": (lambda be, x: be.argmin(x, axis=None), lambda x: np.argmin(x)),
    "cumsum": (lambda be, x: be.cumsum(x), lambda x: np.cumsum(x, dtype="f8")),
    "cumprod": (lambda be, x: be.cumprod(x, None), lambda x: np.cumprod(x, dtype="f8")),
    "reversed": (lambda be, x: be.cumsum(x, reverse=True), lambda x: np.cumsum(x.ravel()[::-1], dtype="f8")[::-1]),
    "sort": (lambda be, x: be.sort(x, axis=None), lambda x: np.sort(x, axis=None)),
    "argsort": (lambda be, x: be.argsort(x, axis=None), lambda x: np.argsort(x, axis=None, kind="stable")),
    "topk": (lambda be, x: be.topk(x, 3, axis=None)[0], lambda x: np.sort(x, axis=None)[::-1][:3]),
    "take": (lambda be, x: be.take(x, [4, -1, 0]), lambda x: np.take(x, [4, -1, 0])),
    "along": (lambda be, x: be.take_along_axis(x, np.array([2, 4]), None), lambda x: x.ravel()[[2, 4]]),
    "joined": (lambda be, x: be.concatenate([x, x * 2], axis=None), lambda x: np.concatenate([x, x * 2], axis=None)),
}


@pytest.mark.parametrize("name", IN_LINE)
def test_without_an_axis_elements_count_in_c_order(be: Backend, rng: Any, name: str) -> None:
    ours, theirs = IN_LINE[name]
    for shape, layout in sampled(be, itertools.product(((3, 4), (2, 3, 4), (5, 1), (1, 7)), LAYOUTS), 4):
        host = some(rng, shape) / 3
        for value, plain in ((layout(be, host), host), (layout(be, host) - 1, host - 1)):
            wanted = np.asarray(theirs(plain))
            found = ours(be, value).asnumpyarray()
            assert found.shape == ((wanted.size, 1) if wanted.shape else (1,) * len(shape))
            np.testing.assert_allclose(found.ravel(), wanted.ravel(), 1e-5, 1e-6)


def test_gradients_of_forms_without_an_axis(be: Backend, rng: Any) -> None:
    x = transposed(be, some(rng, (3, 4)))
    weights = be.array(some(rng, (12, 1)))
    for made in (be.cumsum(x) * weights, be.sort(x, axis=None) * weights, be.take(x * x, [1, 5])):
        (gradient,) = Autodiff(be.sum(made), be).get_grad_asnumpyarray([x])
        assert gradient.shape == x.shape and np.isfinite(gradient).all()
    (gradient,) = Autodiff(be.sum(be.take(x * x, [1, 5])), be).get_grad_asnumpyarray([x])
    wanted = np.zeros(12)
    wanted[[1, 5]] = 2 * x.get().ravel()[[1, 5]]
    np.testing.assert_allclose(gradient.ravel(), wanted, 1e-6)


def test_places_out_of_range_are_refused_without_an_axis_too(be: Backend) -> None:
    with pytest.raises(IndexRangeError):
        be.take(be.ones((2, 3)), [6])
    with pytest.raises(IndexRangeError):
        be.take_along_axis(be.ones((2, 3)), np.array([-7]), None)


# Padding --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [2, (1, 0), ((0, 3), (2, 1)), 9, 0], ids=str)
def test_pad_with_elements_of_its_own(be: Backend, rng: Any, mode: str, widths: Any) -> None:
    for layout in sampled(be, LAYOUTS, 2):
        host = some(rng, (3, 4))
        for value, plain in ((layout(be, host), host), (layout(be, host) * 2, host * 2)):
            np.testing.assert_array_equal(be.pad(value, widths, mode=mode).asnumpyarray(), np.pad(plain, widths, mode))


def test_pad_of_one_and_of_no_element(be: Backend) -> None:
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        found = be.pad(be.ones((1, 2)), ((2, 2), (0, 0)), mode=mode)
        np.testing.assert_array_equal(found.asnumpyarray(), np.ones((5, 2)))
        assert be.pad(be.ones((0, 2)), ((0, 0), (1, 1)), mode=mode).shape == (0, 4)
        with pytest.raises(ShapeError, match="no element to repeat"):
            be.pad(be.ones((0, 2)), 1, mode=mode)
    assert be.pad(be.ones((0, 2)), 1, mode="constant").asnumpyarray().tolist() == [[0] * 4] * 2
    with pytest.raises(ArgumentError, match=r"mode must be one of constant, edge, .* got 'mirror'"):
        be.pad(be.ones((2, 2)), 1, mode="mirror")


def test_gradient_of_a_mirrored_border(be: Backend, rng: Any) -> None:
    x = be.array(some(rng, (2, 3)))
    (gradient,) = Autodiff(be.sum(be.pad(x, ((0, 0), (2, 1)), mode="reflect")), be).get_grad_asnumpyarray([x])
    np.testing.assert_array_equal(gradient, [[1, 3, 2]] * 2)


# Bounds and new axes --------------------------------------------------------------------------------------------------


def test_clip_with_one_bound_or_none(be: Backend, rng: Any) -> None:
    host = some(rng, (3, 4))
    x = be.array(host)
    np.testing.assert_array_equal(be.clip(x, None, 1).asnumpyarray(), np.minimum(host, 1))
    np.testing.assert_array_equal(be.clip(x, -1).asnumpyarray(), np.maximum(host, -1))
    np.testing.assert_array_equal(be.clip(x, a_max=x * 0).asnumpyarray(), np.minimum(host, 0))
    np.testing.assert_array_equal(be.clip(x, out=be.empty((3, 4))).get(), host)


@pytest.mark.parametrize("axis", [0, -1, (0, 1), (1, -1), (0, 2, 3), ()], ids=str)
def test_several_new_axes(be: Backend, rng: Any, axis: Any) -> None:
    host = some(rng, (3, 4))
    for value in (be.array(host), be.array(host) + 0):
        found = be.expand_dims(value, axis)
        np.testing.assert_array_equal(found.asnumpyarray(), np.expand_dims(host, axis))
    with pytest.raises(ShapeError, match="twice"):
        be.expand_dims(be.array(host), (0, 0))
    with pytest.raises(ShapeError, match="out of range"):
        be.expand_dims(be.array(host), (0, 4))
