"""Variances, norms and normalizations by them, far from 0, and of magnitudes whose squares overflow.

The reference is float64. The bounds are those of the corrected two-pass algorithm: a few units of rounding, wherever
the mean lies, as long as the numbers themselves differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neonlike.autograd as ag
from neonlike.backends import Backend
from neonlike.layers import BatchNorm, GroupNorm, LayerNorm
from neonlike.layers.norm.batchnorm_autodiff import BatchNormAutodiff
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optree.dtypes import as_dtype

pytestmark = pytest.mark.engines("numpy", "c")

OFFSETS = (0.0, 1e3, -1e5, 1e6, 1e7)
FORMS = [((3, 17), 1), ((3, 2100), 1), ((100, 5), 0), ((2, 70_001), None), ((4, 6, 5), (0, 2)), ((3, 4, 40), (1, 2))]
RELATIVE = 1e-6


def around(rng: Any, offset: float, shape: Any, dtype: Any = np.float32) -> Any:
    """Numbers of a normal distribution around ``offset``, and the same in float64."""
    host = (rng.standard_normal(shape) + offset).astype(dtype)
    return host, host.astype(np.float64)


def worst(got: Any, wanted: Any) -> float:
    """Largest error, of the largest number."""
    got = np.asarray(got, np.float64).reshape(wanted.shape)
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


@pytest.mark.parametrize(("shape", "axis"), FORMS, ids=str)
def test_variance_and_deviation(be: Backend, rng: Any, shape: Any, axis: Any) -> None:
    for offset in OFFSETS:
        host, wide = around(rng, offset, shape)
        tensor = be.array(host)
        assert worst(be.var(tensor, axis).asnumpyarray(), wide.var(axis, keepdims=True)) < RELATIVE, offset
        assert worst(be.std(tensor, axis).asnumpyarray(), wide.std(axis, keepdims=True)) < RELATIVE, offset


def test_variance_of_views_and_expressions(be: Backend, rng: Any) -> None:
    host, wide = around(rng, 1e6, (40, 30))
    tensor = be.array(host)
    for view, right in ((tensor.T, wide.T), (tensor[::2], wide[::2]), (tensor + 0.0, wide)):
        for axis in (0, 1):
            assert worst(be.var(view, axis).asnumpyarray(), right.var(axis, keepdims=True)) < RELATIVE


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_variance_of_other_dtypes(be: Backend, rng: Any, name: str) -> None:
    dtype = as_dtype(name)
    offset = {"float16": 500, "bfloat16": 100, "float64": 1e14}[name]
    host, wide = around(rng, offset, (5, 300), dtype)
    wide -= offset  # exact, and the same for a variance
    out = be.empty((5, 1), dtype="float64")
    tensor = be.array(host, dtype=dtype)
    for method, wanted in ((be.var, wide.var(1, keepdims=True)), (be.std, wide.std(1, keepdims=True))):
        out[:] = method(tensor, 1)
        assert worst(out.get(), wanted) < RELATIVE


def test_equal_numbers_have_no_variance(be: Backend) -> None:
    """Their mean is rounded, so all are as far from it; less than nothing must not be left of the difference."""
    values = np.concatenate([np.linspace(1, 2, 997), [16_777_215.0, 0.1, 1e15, -3e-39]]).reshape(-1, 1)
    tensor = be.array(np.broadcast_to(values, (1001, 1001)))
    for axis, shape in ((1, (-1, 1)), (0, (1, -1))):
        found = tensor if axis else tensor.T
        assert np.all(be.var(found, axis).asnumpyarray() >= 0)
        assert np.all(be.std(found, axis).asnumpyarray() <= np.abs(values.reshape(shape)) * 1e-6)


def test_gradient_of_the_variance(be: Backend, rng: Any) -> None:
    host, wide = around(rng, 1e6, (4, 50))
    tensor = be.array(host)
    centred = wide - wide.mean(1, keepdims=True)
    found = be.grad(lambda x: be.sum(be.var(x, 1)))(tensor)
    assert worst(found.get(), 2 * centred / 50) < RELATIVE
    found = be.grad(lambda x: be.sum(be.std(x, 1)))(tensor)
    assert worst(found.get(), centred / (50 * wide.std(1, keepdims=True))) < RELATIVE


# Layers


def normalised(x: Any, error: Any, axes: Any, eps: float) -> tuple[Any, Any, Any]:
    """Outputs, the gradient by x and the normalized error."""
    mean, scale = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    xhat = (x - mean) * scale
    means = error.mean(axes, keepdims=True), (error * xhat).mean(axes, keepdims=True)
    return xhat, scale * (error - means[0] - xhat * means[1]), error * xhat


LAYERS: dict[str, Any] = {
    "batch": (BatchNorm, 12, (12, 16), 1, 1), "batch, autodiff": (BatchNormAutodiff, 12, (12, 16), 1, 1),
    "layer": (LayerNorm, 12, (12, 16), 0, 1), "group": (lambda: GroupNorm(3), (6, 2, 2), (3, 2, 4, 16), (1, 2), (2, 3)),
}  # fmt: skip


@pytest.mark.samples(16)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("offset", [1e5, 1e7])
def test_normalization_of_samples_and_batches(be: Backend, rng: Any, kind: str, offset: float) -> None:
    make, sizes, shape, axes, parameters = LAYERS[kind]
    layer = make()
    layer.configure(sizes)
    layer.prev_layer = True
    layer.allocate()
    layer.deltas = be.empty((int(np.prod(sizes)), 16))
    (host, wide), (error, wide_error) = (around(rng, centre, shape) for centre in (offset, 0))
    y, dx, products = normalised(wide, wide_error, axes, layer.eps)
    flat = layer.deltas.shape
    assert worst(layer.fprop(be.array(host.reshape(flat))).get(), y) < RELATIVE
    assert worst(layer.bprop(be.array(error.reshape(flat))).get(), dx) < 3e-6
    assert worst(layer.grad_gamma.get(), products.sum(parameters, keepdims=True)) < 3e-6


@pytest.mark.parametrize("axes", [0, 1, (0, 1)])
def test_layer_norm_of_variables(be: Backend, rng: Any, axes: Any) -> None:
    (host, wide), (error, wide_error) = (around(rng, centre, (24, 30)) for centre in (1e5, 0))
    y, dx, _ = normalised(wide, wide_error, axes, 1e-5)
    x = ag.param(host)
    found = ag.layer_norm(x, axes)
    assert worst(found.get(), y) < RELATIVE
    (gradient,) = ag.grad(ag.sum(found * be.array(error)), [x])
    assert worst(gradient.get(), dx) < 3e-6


# Integers


def test_moments_of_integers_are_float64(be: Backend) -> None:
    times = 1_700_000_000_000_000_000 + np.arange(60, dtype=np.int64).reshape(5, 12) ** 3 * 10**9
    tensor, wide = be.array(times, dtype="int64"), times.astype(np.float64)
    for name in ("mean", "var", "std"):
        for axis in (None, 0, 1):
            found = getattr(be, name)(tensor, axis)
            assert found.dtype == np.float64
            assert worst(found.asnumpyarray(), getattr(wide, name)(axis, keepdims=True)) < 1e-14
    assert worst(be.norm2(tensor, 1).asnumpyarray(), np.sqrt((wide**2).sum(1, keepdims=True))) < 1e-15


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"])
def test_moments_of_narrow_integers(be: Backend, dtype: str) -> None:
    top = 1 if dtype == "bool" else np.iinfo(dtype).max
    host = np.array([[top, top, top, 0]], dtype)
    tensor, wide = be.array(host, dtype=dtype), host.astype(np.float64)
    for name in ("mean", "var", "std"):
        assert worst(getattr(be, name)(tensor).asnumpyarray(), np.array(getattr(wide, name)())) < 1e-15
    assert worst(be.norm2(tensor).asnumpyarray(), np.array(np.sqrt((wide**2).sum()))) < 1e-15
    assert be.sum(tensor).dtype == np.int64


# Magnitudes

MAGNITUDES = {"float32": (1e20, 1e-30, 1e36, 1e-38), "float64": (1e200, 1e-200, 1e300, 1e-300), "bfloat16": (1e30,)}


@pytest.mark.parametrize("name", MAGNITUDES)
@pytest.mark.parametrize("axis", [0, 1])
def test_norms_and_deviations_of_any_magnitude(be: Backend, rng: Any, name: str, axis: int) -> None:
    dtype = as_dtype(name)
    for size in (1.0, *MAGNITUDES[name]):
        host = (size * rng.standard_normal((6, 40))).astype(dtype)
        tensor, wide = be.array(host, dtype=dtype), host.astype(np.float64) / size
        out = be.empty((6, 1) if axis else (1, 40), dtype="float64")
        norm, deviation = np.sqrt((wide**2).sum(axis, keepdims=True)), wide.std(axis, keepdims=True)
        for method, wanted in ((be.norm2, norm), (be.std, deviation)):
            out[:] = method(tensor, axis)
            assert worst(out.get() / size, wanted) < RELATIVE, size
        tolerance = 1e-2 if name == "bfloat16" else 3e-6
        found = be.grad(lambda x: be.sum(be.norm2(x, axis)))(tensor)
        assert worst(found.get(), wide / norm) < tolerance, size
        found = be.grad(lambda x: be.sum(be.std(x, axis)))(tensor)
        away = wide - wide.mean(axis, keepdims=True)
        assert worst(found.get(), away / (host.shape[axis] * deviation)) < tolerance, size


def test_norms_of_what_is_not_finite(be: Backend) -> None:
    for dtype in ("float32", "float64"):
        tensor = be.array(np.array([[np.inf, 1.0], [np.nan, 1.0], [-np.inf, np.inf], [0.0, 0.0]]), dtype=dtype)
        np.testing.assert_array_equal(be.norm2(tensor, 1).asnumpyarray()[:, 0], [np.inf, np.nan, np.inf, 0])
        np.testing.assert_array_equal(be.std(tensor, 1).asnumpyarray()[:, 0], [np.nan, np.nan, np.nan, 0])


def test_norm_of_gradients(be: Backend, rng: Any) -> None:
    for size in (1.0, 1e25, 1e-25, 0.0, np.inf):
        grads = [size * np.abs(rng.standard_normal(shape)) for shape in ((3, 4), (5, 1))]
        params = [((be.zeros(g.shape), be.array(g)), []) for g in grads]
        with np.errstate(all="ignore"):
            norm = np.sqrt(sum((g.astype(np.float32).astype(np.float64) ** 2).sum() for g in grads)) / be.bsz
        for limit in (1e-30, 1e20):
            found = GradientDescentMomentum(0.1, 0.9).clip_gradient_norm(params, limit)
            assert found == pytest.approx(limit / max(norm, limit), rel=1e-6)
