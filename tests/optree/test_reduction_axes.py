"""Reductions over any axes of tensors and views that lie in any order: no compiled kernel may be missing for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c.stage import CStage

pytestmark = pytest.mark.optree

SHAPES = ((5, 6, 7, 8), (3, 70, 2, 90), (20, 3, 70, 2), (2, 3, 4, 5, 6), (4, 300, 3, 300))
"""The last has rows of many segments for each thread."""
VIEWS = (
    np.s_[::2],
    np.s_[:, ::2],
    np.s_[::-1, 1:-1],
    np.s_[:, :-3, ::3],
    np.s_[:, 5:6, ::-1],
)


@pytest.fixture(autouse=True)
def compiled_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stage: CStage, run: Any) -> None:
        raise AssertionError(f"NumPy runs {stage.comment}")

    monkeypatch.setattr(CStage, "_run_fallback", refuse)


def some_axes(rank: int) -> list[tuple[int, ...]]:
    return [axes for count in range(1, rank + 1) for axes in itertools.combinations(range(rank), count)]


def softmax(be: Any, x: Any, axes: tuple[int, ...]) -> Any:
    powers = be.exp(x - be.max(x, axis=axes))
    return powers / be.sum(powers, axis=axes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_over_axes_in_any_order(be: Backend, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    host = rng.standard_normal(shape, dtype=np.float32)
    wide, tensor = host.astype(np.float64), be.array(host)
    for axes in some_axes(len(shape)):
        found = be.sum(tensor, axis=axes).get()
        np.testing.assert_allclose(
            found, wide.sum(axes, keepdims=True), rtol=1e-5, atol=1e-3, err_msg=f"sum over {axes}"
        )
        np.testing.assert_array_equal(
            be.max(tensor, axis=axes).get(), host.max(axes, keepdims=True), f"max over {axes}"
        )


def test_passes_over_axes_in_any_order(be: Backend, rng: np.random.Generator) -> None:
    host = rng.standard_normal((6, 20, 5, 9), dtype=np.float32)
    for axes in ((0, 2), (1, 3), (0, 3), (0, 1, 3), (0, 2, 3)):
        powers = np.exp(host.astype(np.float64) - host.max(axes, keepdims=True))
        found = softmax(be, be.array(host), axes).get()
        np.testing.assert_allclose(
            found, powers / powers.sum(axes, keepdims=True), rtol=1e-5, err_msg=f"softmax over {axes}"
        )
        np.testing.assert_allclose(
            be.var(be.array(host), axis=axes).get(), host.astype(np.float64).var(axes, keepdims=True), rtol=1e-5
        )


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_reductions_of_views(be: Backend, rng: np.random.Generator, view: Any) -> None:
    host = rng.standard_normal((70, 60, 50), dtype=np.float32)
    tensor, seen = be.array(host)[view], host[view]
    wide = seen.astype(np.float64)
    for axes in (*some_axes(3), None):
        found = be.sum(tensor, axis=axes).get()
        np.testing.assert_allclose(
            found.ravel(), wide.sum(axes).ravel(), rtol=1e-5, atol=1e-3, err_msg=f"sum over {axes}"
        )
    for axis in range(3):
        found = be.argmax(tensor, axis=axis).get()
        np.testing.assert_array_equal(found, seen.argmax(axis, keepdims=True), err_msg=f"argmax over {axis}")


def test_places_of_nan_and_of_the_first_of_equals_over_axes_that_do_not_merge(be: Backend) -> None:
    host = np.zeros((9, 30, 40), dtype=np.float32)
    host[4, 7, 3] = host[6, 7, 3] = np.nan
    host[2, 8, 8] = host[5, 8, 8] = 1
    found = be.argmax(be.array(host)[:, ::3, ::2], axis=0).get()
    np.testing.assert_array_equal(found, host[:, ::3, ::2].argmax(0, keepdims=True))
    found = be.argmax(be.array(host)[:, 7:9, 3:9:5], axis=0).get()
    np.testing.assert_array_equal(found, [[[4, 0], [0, 2]]])


@pytest.mark.parametrize("axes", [(0, 2), (0, 3), (0, 2, 3)], ids=str)
def test_sums_do_not_depend_on_threads(be: Backend, rng: np.random.Generator, axes: tuple[int, ...]) -> None:
    tensor = be.array(rng.standard_normal((6, 3, 70, 300), dtype=np.float32))
    before, found = be.num_threads, []
    try:
        for threads in (1, 2, 3):
            be.num_threads = threads
            found.append(be.sum(tensor, axis=axes).get())
    finally:
        be.num_threads = before
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
