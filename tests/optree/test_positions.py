"""Ops made from positions, ``rand`` and ``onehot``: the same on both engines, in every layout and form of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c.stage import CStage
from neonlike.optree.functions import onehot
from tests.support.engines import COMPARED, backend
from tests.support.float64.reference import LAYOUTS

pytestmark = [pytest.mark.checked, pytest.mark.backend]


def on_both(compute: Callable[[Backend], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results of ``compute`` on each engine, the C engine doing all of it in C; or on the CPU and the GPU."""
    found = []
    for engine in COMPARED:
        for be in backend(engine):
            with monkeypatch.context() as patch:
                if engine == "c":
                    patch.setattr(CStage, "_run_fallback", _no_fallback)
                found.append(compute(be))
    return found


def _no_fallback(stage: CStage, _run: Any) -> None:
    raise AssertionError(f"{stage.comment} ran on NumPy")


@pytest.mark.compiles(4)
@pytest.mark.parametrize("dtype", ("f2", "f4", "f8"))
@pytest.mark.parametrize("shape", ((1, 1), (5, 7), (300, 1001), (3, 4, 5)), ids=str)
def test_a_draw_is_the_same_on_both_engines(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(be: Backend) -> list[np.ndarray]:
        be.default_dtype = dtype
        outs = [layout(be, np.zeros(shape, dtype)) for layout in LAYOUTS]
        for out in outs:
            out[:] = be.rand()
        x = be.array(np.arange(np.prod(shape)).reshape(shape), dtype=dtype)
        turned = be.empty(shape[:-2] + shape[:-3:-1], dtype=dtype)
        turned[:] = (be.rand() + 0 * x).T
        dropped = be.empty(shape, dtype=dtype)
        dropped[:] = x * be.dropout(0.75)
        return [out.get() for out in (*outs, turned, dropped)]

    ours, theirs = on_both(compute, monkeypatch)
    for first, second in zip(ours, theirs):
        np.testing.assert_array_equal(first, second)
    assert dtype == "f2" or all(0 <= a.min() and a.max() < 1 for a in ours[:-1])


@pytest.mark.parametrize("axis", (0, 1, None))
@pytest.mark.parametrize("shape", ((5, 37), (40, 900), (2, 70001)), ids=str)
def test_draws_within_reductions(shape: tuple[int, int], axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, by columns and over all, a node read in two passes holding the same numbers in both."""

    def compute(be: Backend) -> list[np.ndarray]:
        x = be.array(np.linspace(-1, 1, shape[0] * shape[1]).reshape(shape), dtype=np.float64)
        noise = be.rand()
        noisy = x + noise
        return [(noisy - be.max(noisy, axis=axis)).asnumpyarray(), be.sum(noisy, axis=axis).asnumpyarray()]

    ours, theirs = on_both(compute, monkeypatch)
    for first, second in zip(ours, theirs):
        np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-9)


@pytest.mark.compiles(3)
@pytest.mark.parametrize("dtype", ("i1", "u4", "i8", "f4"))
@pytest.mark.parametrize("axis", (0, 1))
def test_onehot_is_the_same_on_both_engines(axis: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(7).integers(0, 11, 333)
    labels[3] = 11  # outside: no place equals it

    def compute(be: Backend) -> list[np.ndarray]:
        indices = be.array(labels[None] if axis == 0 else labels[:, None], dtype=dtype)
        if dtype == "f4":
            with pytest.raises(TypeError, match="integers"):
                be.onehot(indices, axis=axis)
            indices = be.array(indices.get(), dtype="i4")
        out = be.empty((11, 333) if axis == 0 else (333, 11))
        out[:] = onehot(indices, axis, be, checked=False)
        scores = be.array(np.arange(out.size).reshape(out.shape))
        picked = be.sum(onehot(indices, axis, be, checked=False) * scores, axis=axis).asnumpyarray()
        turned = be.empty(out.shape[::-1])
        turned[:] = (onehot(indices, axis, be, checked=False) * scores).T
        return [out.get(), picked, turned.get()]

    wanted = (labels[None] == np.arange(11)[:, None]).astype(np.float32)
    wanted = wanted if axis == 0 else wanted.T
    scores = np.arange(wanted.size, dtype=np.float32).reshape(wanted.shape)
    for out, picked, turned in on_both(compute, monkeypatch):
        np.testing.assert_array_equal(out, wanted)
        np.testing.assert_array_equal(picked, (wanted * scores).sum(axis, keepdims=True))
        np.testing.assert_array_equal(turned, (wanted * scores).T)


def test_a_prepared_draw_moves_on_as_assignments_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(be: Backend) -> list[np.ndarray]:
        x, out = be.ones((7, 9)), be.empty((7, 9))
        step = be.prepare(out, x * be.dropout(0.5) + be.rand())
        return [step().get() for _ in range(3)]

    ours, theirs = on_both(compute, monkeypatch)
    for first, second in zip(ours, theirs):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(ours[0], ours[1])
