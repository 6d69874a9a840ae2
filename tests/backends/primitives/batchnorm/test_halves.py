"""Batch normalisation of float16 and bfloat16: float32's statistics, and its values rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import batchnorm as kernels
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import sampled, use_threads
from tests.support.rounded import assert_rounded_once

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

HALVES = [np.dtype(np.float16), bfloat16()]
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of one rounding to nearest."""
SHAPES = ((3, 5), (70, 64), (2, 1000), (5, 257), (1, 70_000), (9, 16))
ROWS = ("xsum", "xvar", "gmean", "gvar", "gamma", "beta")
FORWARD = (
    {"compute_batch_sum": True, "relu": True}, {"compute_batch_sum": False},
    {"compute_batch_sum": True, "binary": True}, {"compute_batch_sum": True, "accumbeta": 0.5, "alpha": 2.0},
    {"compute_batch_sum": False, "inference": True},
)  # fmt: skip
BACKWARD: tuple[dict[str, Any], ...] = (
    {}, {"beta_data": 0.5, "alpha_data": 2.0}, {"own_sum": True}, {"beta_param": 1.0, "binary": True},
)  # fmt: skip


def both(be: Any, dtype: Any, shape: tuple[int, int], forward: Any, backward: Any, over: bool) -> list[Any]:
    """Results of a forward and a backward call on data of ``dtype``: rows in float32, then y and the gradient."""
    rng = np.random.default_rng(shape[1])
    kept = HALVES[0] if dtype == HALVES[0] else HALVES[1]  # numbers that float16 and bfloat16 both have
    data = [(rng.integers(-63, 64, shape) / 32 + offset).astype(kept) for offset in (1.5, 0, 0, 0)]
    x, error, y, delta = (be.array(values.astype(np.float32), dtype=dtype) for values in data)
    rows = {name: be.array(rng.integers(1, 9, (shape[0], 1)) / 4) for name in ROWS}
    if not forward["compute_batch_sum"]:
        rows["xsum"][:] = be.array(data[0].astype(np.float32).sum(1, keepdims=True))
    result = x if over and forward.get("inference") else y
    be.compound_fprop_bn(x, *rows.values(), result, eps=1e-3, rho=0.9, **forward)
    found = [result.get(), *(row.get() for row in rows.values())]
    if not forward.get("inference"):
        gradients = [be.array(rng.integers(1, 9, (shape[0], 1)) / 4) for _ in range(2)]
        read = rows["xsum"], rows["xvar"], rows["gamma"]
        target = error if over else delta
        mask = {"y": y} if forward.get("relu") and result is y else {}
        be.compound_bprop_bn(target, *gradients, error, x, *read, eps=1e-3, **backward, **mask)
        found += [target.get(), *(row.get() for row in gradients)]
    return found


@pytest.mark.compiles(3)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("threads", ["1", "3"])
def test_values_are_those_of_float32_rounded_once(
    be: Backend, dtype: Any, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_SIZE", 1)
    use_threads(monkeypatch, threads)
    cases = [(shape, f, b) for shape in SHAPES for f in FORWARD for b in BACKWARD]
    for shape, forward, backward in sampled(be, cases, 40, int(threads)):
        over = shape[1] % 2 == 1
        halves = both(be, dtype, shape, forward, backward, over)
        singles = both(be, np.dtype(np.float32), shape, forward, backward, over)
        for k, (half, single) in enumerate(zip(halves, singles, strict=True)):
            rounding = ROUNDING.get(half.dtype.name, 0) * 1.001 + 1e-6
            where = f"result {k} of {shape} {forward} {backward}"
            np.testing.assert_allclose(half.astype(np.float32), single, rounding, 1e-6, err_msg=where)


@pytest.mark.engines("c")
@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_data_are_read_in_place(be: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel is that a program repeats: copies are made anew for each call."""
    seen: list[KernelCall] = []
    monkeypatch.setattr(KernelCall, "run", lambda call: seen.append(call))
    x, y, delta = (be.ones((4, 32), dtype=dtype) for _ in range(3))
    rows = [be.ones((4, 1)) for _ in ROWS]
    be.compound_fprop_bn(x, *rows, y, eps=1e-3, rho=0.9, compute_batch_sum=True)
    be.compound_bprop_bn(delta, rows[0], rows[1], y, x, *rows[2:5], eps=1e-3)
    (first, *_, last), (target, _, _, error, given, *_) = (call.addresses for call in seen)
    assert not any(call.converted for call in seen)
    places = [tensor.asnumpyarray().ctypes.data for tensor in (x, y, delta, y, x)]
    assert [first, last, target, error, given] == places


@pytest.mark.engines("c")
@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("length", [5, 31, 32, 33, 95, 300, 2500])
def test_rows_are_those_of_float32_rounded(be: Backend, dtype: Any, length: int) -> None:
    """Whole chunks of a row, which stay in registers, and its rest; rows with infinite, nan and tiny numbers."""
    rows, tiny = 6, np.array([1, 0x8001, 0x7F, 0x8000], np.uint16).view(dtype)
    data = np.random.default_rng(length).standard_normal((rows, length)).astype(dtype)
    data[1] = np.resize(tiny, length)
    data[2, length // 2], data[3, 0], data[4, -1] = np.inf, np.nan, -np.inf
    old = np.random.default_rng(1).standard_normal((rows, length)).astype(dtype)
    forms: list[dict[str, Any]] = [{}, {"relu": True}, {"alpha": 2.0}, {"accumbeta": 0.5}]
    for form in [*forms, {"relu": True, "alpha": -0.3}]:
        found = []
        for kind in (dtype, np.dtype(np.float32)):
            x, y = be.array(data.astype(kind), dtype=kind), be.array(old.astype(kind), dtype=kind)
            stored = [be.zeros((rows, 1)) for _ in range(4)]
            gamma, beta = be.array(np.full((rows, 1), 1.7)), be.array(np.full((rows, 1), -0.4))
            be.compound_fprop_bn(x, *stored, gamma, beta, y, 1e-3, 0.9, compute_batch_sum=True, **form)
            found.append(y.get())
        assert_rounded_once(*found, sums=True, where=str(form))
