"""Pooling of float16 and bfloat16: the values of float32, rounded once, whether a kernel reads them in place or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import pool as kernels
from neonlike.backends.primitives.pooling.family import PoolPass
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import sampled, use_threads
from tests.support.float64.pool_loops import layer_of
from tests.support.rounded import assert_rounded_once

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

HALVES = [np.dtype(np.float16), bfloat16()]
GRIDS: list[dict[str, Any]] = [
    {"C": 3, "H": 6, "W": 5, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "str_h": 2, "str_w": 2},
    {"C": 2, "D": 3, "H": 4, "W": 7, "T": 2, "R": 2, "S": 4, "str_d": 1, "str_h": 1, "str_w": 1},
    {"C": 5, "H": 4, "W": 3, "J": 3, "R": 2, "S": 2, "pad_c": 1, "str_c": 1},
    {"C": 2, "H": 5, "W": 5, "R": 5, "S": 5},
]
IMAGES = (17, 64, 33, 128, 16, 31, 32, 3)
ROOM = 5
"""Columns of a tensor beyond those of the operand, which is a view then."""


def values(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    """Random numbers, and now and then infinity, nan, a subnormal number or a negative zero."""
    drawn = rng.standard_normal(shape).astype(dtype)
    special = np.array([np.inf, -np.inf, np.nan, np.finfo(np.float32).tiny / 4, -0.0, 2.0**-24], np.float32)
    return np.where(rng.random(shape) < 0.03, rng.choice(special, shape).astype(dtype), drawn)


def tensors(be: Any, *arrays: Any, view: bool) -> list[Any]:
    """Tensors of ``arrays``; with ``view``, parts of the columns of larger ones."""
    made = []
    for array in arrays:
        flat = array.reshape(-1, array.shape[-1])
        whole = be.zeros((flat.shape[0], flat.shape[1] + ROOM * view), dtype=array.dtype)
        part = whole[:, ROOM:] if view else whole
        part[:] = be.array(flat, dtype=array.dtype)
        made.append(part)
    return made


def pooled(be: Any, op: str, given: dict[str, Any], N: int, arrays: list[Any], scale: Any, view: bool) -> list[Any]:
    """Results of both passes in the dtype of ``arrays``: input, error, old output and old gradient."""
    layer = layer_of(be, op, N, arrays[0].dtype, **given)
    x, error, out, delta = tensors(be, *arrays, view=view)
    argmax = be.zeros(out.shape, dtype=np.uint8) if op == "max" else None
    alpha, beta = scale
    be.fprop_pool(layer, x, out, argmax, alpha, beta)
    more = {"inputs": x} if op == "l2" else {}
    be.bprop_pool(layer, error, delta, argmax, alpha, beta, **more)
    return [one.get() for one in (out, delta, argmax) if one is not None]


@pytest.mark.compiles(3)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_values_are_those_of_float32_rounded_once(
    be: Backend, op: str, dtype: Any, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, threads)
    cases = [(grid, N) for grid in range(len(GRIDS)) for N in IMAGES]
    for grid, N in sampled(be, cases, 6, len(op) + int(threads)):
        rng = np.random.default_rng(100 * grid + N)
        layer = layer_of(be, op, N, np.float32, **GRIDS[grid])
        arrays = [values(rng, shape, dtype) for shape in (layer.dimI, layer.dimO, layer.dimO, layer.dimI)]
        scale, view = ((1.0, 0.0), (0.5, 2.0), (1.0, 1.0))[N % 3], N % 2 == 1
        found = pooled(be, op, GRIDS[grid], N, arrays, scale, view)
        expected = pooled(be, op, GRIDS[grid], N, [a.astype(np.float32) for a in arrays], scale, view)
        for half, single in zip(found, expected, strict=True):
            assert_rounded_once(half, single, op != "max", f"{GRIDS[grid]} {N} {scale}")


@pytest.mark.engines("c")
@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("op", ["max", "avg"])
def test_many_images_are_read_in_place(be: Any, op: str, dtype: Any) -> None:
    layer, single = (layer_of(be, op, 64, kind, **GRIDS[0]) for kind in (dtype, np.float32))
    for backward in (False, True):
        assert be._pool_workspace(PoolPass(layer, backward)) == be._pool_workspace(PoolPass(single, backward))
    few, of_single = (layer_of(be, op, 3, kind, **GRIDS[0]) for kind in (dtype, np.float32))
    converted = 4 * (few.sizeI + few.sizeO)
    assert be._pool_workspace(PoolPass(few, False)) == be._pool_workspace(PoolPass(of_single, False)) + converted


@pytest.mark.engines("c")
@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("op", ["max", "avg"])
def test_tensors_of_two_dtypes_are_converted(be: Any, op: str) -> None:
    """As a program may have them whose geometry is of float32: only where both are alike, one kernel reads them."""
    layer = layer_of(be, op, 32, np.float32, **GRIDS[0])
    x = np.random.default_rng(0).standard_normal(layer.dimI).astype(np.float16)
    out, same = be.zeros(layer.dimO), be.zeros(layer.dimO)
    argmax = be.zeros(layer.dimO, dtype=np.uint8) if op == "max" else None
    type(be)._fprop_pool(be, PoolPass(layer, False), be.array(x, dtype=np.float16), out, argmax)
    type(be)._fprop_pool(be, PoolPass(layer, False), be.array(x.astype(np.float32)), same, argmax)
    np.testing.assert_array_equal(out.get(), same.get())
