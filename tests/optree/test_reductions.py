"""Every reduction row against NumPy float64: over each axis, tuples of axes, all; resident and streamed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ShapeError
from neonlike.kernels.numpy_engine.blocks import BLOCK_ELEMENTS, RESIDENT_ELEMENTS
from neonlike.kernels.numpy_engine.engine import _fits_resident
from neonlike.optree import builders, shapes
from neonlike.optree.dtypes import INTEGERS, DTypeRule, compute_dtype, is_float
from neonlike.optree.ops import Kind, OpSpec
from tests.support.dtype_cases import each_float
from tests.support.float64.reference import (
    LAYOUTS,
    TOLERANCE,
    assert_close,
    axes_of,
    formula,
    plain,
    reordered,
    rows,
    sample,
)

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy"), pytest.mark.checked]

each_row = pytest.mark.parametrize("spec", rows(Kind.REDUCTION), ids=lambda spec: spec.name)

SMALL = ((1, 1), (7, 1), (1, 6), (5, 7), (2, 3, 4), (2, 1, 3, 2, 4))
BIG = (
    (RESIDENT_ELEMENTS // 32 + 3, 67),  # more rows than fit beside 64 columns: streamed over axis 0
    (3, RESIDENT_ELEMENTS + 11),  # a row that does not fit: streamed over axis 1
    (401, BLOCK_ELEMENTS // 100),  # more than one block, each axis resident
    (5, 127, 521),  # an axis in the middle, and pairs of axes
)


def takes(spec: OpSpec, axis: Any) -> bool:
    """True unless the row gives a position, which needs one axis."""
    return spec.dtype is not DTypeRule.INDEX or isinstance(axis, int)


def values(spec: OpSpec, shape: tuple[int, ...], dtype: Any, extent: int, rng: Any) -> Any:
    """Sample for an informative reduction over ``extent`` elements: no overflow, not always any, not always all."""
    if spec.name in ("any", "all"):
        rare = rng.random(shape) < 1 / max(extent, 2)
        return (rare if spec.name == "any" else ~rare).astype(dtype)
    if spec.name == "prod":
        spread = 2.0 / math.sqrt(max(extent, 4))
        return (rng.choice((-1, 1), shape) * np.exp(rng.uniform(-spread, spread, shape))).astype(dtype)
    return sample(spec.domain[0], shape, dtype, rng)


def check(be: Backend, spec: OpSpec, host: Any, axis: Any, layout: Any = plain, slack: float = 1.0) -> None:
    axes = shapes.normalize_axes(spec.name, axis, host.shape)
    wide = host.astype(np.float64 if is_float(host.dtype) else np.int64)
    tensor = layout(be, host)
    expression = builders.reduce(spec, tensor, axis)
    what = f"{spec.name} of {host.shape} {host.dtype} over {axis}, {layout.__name__}"
    if spec.name == "sum" and is_float(host.dtype):  # an error relative to what is added, not to the sum
        size = np.abs(np.where(np.isfinite(wide), wide, 0)).sum(axis=axes).max(initial=0)
        slack *= 1 + size / 10
    assert_close(expression.asnumpyarray(), formula(spec)(wide, axis=axes), slack, what)
    np.testing.assert_array_equal(tensor.get(), host, err_msg=f"{what}: the operand changed")


@each_float
@each_row
def test_each_row_over_every_axis_shape_and_layout(be: Backend, rng: Any, spec: OpSpec, dtype: Any) -> None:
    for shape in SMALL:
        host = values(spec, shape, dtype, 4, rng)
        for axis in filter(lambda axis: takes(spec, axis), axes_of(shape)):
            for layout in LAYOUTS:
                check(be, spec, host, axis, layout, 10)


@pytest.mark.parametrize("shape", BIG, ids=str)
@each_row
def test_each_row_at_sizes_that_need_blocks(be: Backend, rng: Any, spec: OpSpec, shape: tuple[int, ...]) -> None:
    for axis in filter(lambda axis: takes(spec, axis), (*range(len(shape)), (0, len(shape) - 1), None)):
        axes = shapes.normalize_axes(spec.name, axis, shape)
        host = values(spec, shape, np.float32, math.prod(shape[a] for a in axes), rng)
        for layout in (plain, reordered):
            check(be, spec, host, axis, layout, 100)


def test_the_big_shapes_are_both_resident_and_streamed() -> None:
    ways = {_fits_resident(shape, (axis,)) for shape in BIG for axis in range(len(shape))}
    assert ways == {True, False}
    assert not _fits_resident(BIG[0], (0,)) and not _fits_resident(BIG[1], (1,))


def several_passes(be: Backend) -> dict[str, tuple[Any, Any]]:
    """Chains of reductions over one axis: builder, float64 formula."""

    def sums(x: Any, axis: Any) -> Any:
        return np.exp(x - x.max(axis=axis, keepdims=True)).sum(axis=axis, keepdims=True)

    return {
        "var": (lambda x, axis: be.var(x, axis=axis), lambda x, axis: x.var(axis=axis, keepdims=True)),
        "softmax": (
            lambda x, axis: be.fprop_softmax(x, axis),
            lambda x, axis: np.exp(x - x.max(axis=axis, keepdims=True)) / sums(x, axis),
        ),
        "logsumexp": (
            lambda x, axis: be.logsumexp(x, axis=axis),
            lambda x, axis: np.log(sums(x, axis)) + x.max(axis=axis, keepdims=True),
        ),
        "normalised": (
            lambda x, axis: (x - be.mean(x, axis=axis)) / be.sqrt(be.var(x, axis=axis) + 1e-3) * 2 + 1,
            lambda x, axis: (
                (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + 1e-3) * 2 + 1
            ),
        ),
    }


@each_float
@pytest.mark.parametrize("shape", ((5, 7), *BIG), ids=str)
def test_several_passes_over_one_axis(be: Backend, rng: Any, shape: tuple[int, ...], dtype: Any) -> None:
    host = sample((-4.0, 4.0), shape, dtype, rng)
    wide = host.astype(np.float64)
    for name, (build, expected) in several_passes(be).items():
        for axis in (*range(len(shape)), None):
            actual = build(plain(be, host), axis).asnumpyarray()
            with np.errstate(all="ignore"):
                wanted = expected(wide, axis)
            assert_close(actual, wanted, 20, f"{name} over {axis}")


def test_a_reduction_and_the_whole_it_came_from_in_one_expression(be: Backend, rng: Any) -> None:
    """Reductions over different axes, nested and side by side."""
    for shape in ((5, 7), (300, 401), BIG[0]):
        host = rng.standard_normal(shape)
        x = be.array(host, dtype=np.float64)
        mixed = be.sum(x * be.max(x, axis=1), axis=0) - be.mean(x, axis=1) * be.min(be.sum(x, axis=0))
        expected = (host * host.max(1, keepdims=True)).sum(0, keepdims=True)
        expected = expected - host.mean(1, keepdims=True) * host.sum(0).min()
        np.testing.assert_allclose(mixed.asnumpyarray(), expected, 1e-9, 1e-9)


@each_float
@each_row
def test_nan_and_inf(be: Backend, spec: OpSpec, dtype: Any) -> None:
    host = np.array(
        [
            [1, np.nan, 2, 0],
            [np.inf, 1, -1, 2],
            [-np.inf, 0, 1, 3],
            [np.inf, -np.inf, 1, 1],
            [0, np.inf, 2, 0],
            [np.nan, np.inf, np.nan, 0],
        ],
        dtype,
    )
    with np.errstate(all="ignore"):
        for axis in filter(lambda axis: takes(spec, axis), (0, 1, None)):
            check(be, spec, host, axis)
            check(be, spec, np.tile(host, (4, RESIDENT_ELEMENTS // 8)), axis)


@each_row
def test_ties_give_the_first_position(be: Backend, rng: Any, spec: OpSpec) -> None:
    host = rng.integers(0, 2, (40, 50)).astype(np.float32)
    for axis in filter(lambda axis: takes(spec, axis), (0, 1, None)):
        check(be, spec, host, axis)


@pytest.mark.parametrize("dtype", (*INTEGERS, np.dtype(bool)), ids=lambda dtype: dtype.name)
@each_row
def test_integers_are_exact(be: Backend, rng: Any, spec: OpSpec, dtype: Any) -> None:
    high = 2 if dtype.kind == "b" else min(np.iinfo(dtype).max, 2**40)
    host = rng.integers(0, high, (6, 5)).astype(dtype)
    if spec.name == "prod":
        host = host % 3
    for axis in filter(lambda axis: takes(spec, axis), (0, 1, None)):
        expression = builders.reduce(spec, plain(be, host), axis)
        others = {DTypeRule.TRUTH: np.float32, DTypeRule.INDEX: np.int64}
        assert expression.dtype == others.get(spec.dtype, compute_dtype(dtype))
        check(be, spec, host, axis)


@each_row
def test_nothing_to_reduce(be: Backend, spec: OpSpec) -> None:
    """Over nothing there is the identity, or an error that names the shape; over something empty stays empty."""
    for shape, axis in (((0, 3), 0), ((2, 0, 3), 1)):
        x = be.empty(shape)
        if spec.identity is None:
            with pytest.raises(ShapeError, match=rf"{spec.name}.*{shape}".replace("(", r"\(").replace(")", r"\)")):
                builders.reduce(spec, x, axis)
        else:
            check(be, spec, x.get(), axis)
            check(be, spec, x.get(), None)
        check(be, spec, x.get(), len(shape) - 1)


@each_row
def test_builders(be: Backend, rng: Any, spec: OpSpec) -> None:
    """Lazy without ``out``, immediate with it; arg-reductions default to axis 1."""
    host = rng.standard_normal((4, 5)).astype(np.float32)
    x = plain(be, host)
    for name in spec.builders:
        builder = getattr(be, name)
        default = (1,) if spec.dtype is DTypeRule.INDEX else (0, 1)
        assert_close(builder(x).asnumpyarray().astype(np.float32), formula(spec)(host, axis=default), 10)
        out = be.empty((4, 1))
        assert builder(x, axis=1, out=out) is out
        assert_close(out.get(), formula(spec)(host.astype(np.float64), axis=(1,)), 10)
        assert builder(x.reshape(2, 2, 5), axis=1, keepdims=False).shape == (2, 5)


@each_row
def test_wrong_axes_are_named(be: Backend, spec: OpSpec) -> None:
    x = be.ones((3, 4))
    for axis, words in ((2, r"axis 2.*\(3, 4\)"), (-3, r"axis -3.*\(3, 4\)"), ("rows", "'rows'"), (1.5, r"1\.5")):
        with pytest.raises(ShapeError, match=words):
            builders.reduce(spec, x, axis)
    with pytest.raises(ShapeError, match=r"\(3, 4\)|one axis"):
        builders.reduce(spec, x, (0, 0))
    with pytest.raises(ShapeError, match=spec.name):
        builders.reduce(spec, 3.0, 0)


def test_long_float32_sums_stay_accurate(be: Backend) -> None:
    """Ten million tenths: adding one after the other in float32 would be off in the second digit."""
    for shape, axis in (((1, 10_000_000), 1), ((10_000_000, 1), 0), ((1000, 10_000), None)):
        x = be.empty(shape)
        x[:] = 0.1
        total = be.sum(x, axis=axis).asnumpyarray()
        np.testing.assert_allclose(total, 1e6, rtol=TOLERANCE[np.dtype(np.float32)][0])
