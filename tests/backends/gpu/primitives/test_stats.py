"""Histograms on the GPU: all dtypes, ends of vectors, many bins, numbers at the ends of the scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.tensors.stats import Histogram
from neonlike.optree.dtypes import as_dtype
from tests.support.gpu.cuda_backends import gpu, tensor
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]


def counted(be: Any, values: Any, bins: int, offset: int) -> Any:
    row = be.empty((1, bins), dtype=np.int32)
    with traffic(be) as seen:
        be._histogram(Histogram(bins, offset), values, row)
    assert not len(seen), str(seen)
    return row.get()[0]


def wanted(host: Any, bins: int, offset: int) -> Any:
    """Counts of exponents in float64: halves between exponents are no numbers."""
    size = np.abs(host.astype(np.float32).astype(np.float64)).reshape(-1)
    with np.errstate(divide="ignore"):
        exponent = np.rint(np.log2(size[~np.isnan(size)]))
    return np.bincount(np.clip(exponent - offset, 0, bins - 1).astype(int), minlength=bins)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "bool"])
def test_counts(gpu: Any, dtype: str) -> None:
    rng, kind = np.random.default_rng(0), as_dtype(dtype)
    for size in (1, 3, 1021, 40_000):
        host = (rng.normal(size=(1, size)) * 2.0 ** rng.integers(-12, 12, (1, size))).astype(kind)
        for layout in ("plain", "strided") if size < 2000 else ("plain",):
            got = counted(gpu, tensor(gpu, host, layout), 64, -48)
            np.testing.assert_array_equal(got, wanted(host, 64, -48), f"{size} {layout}")


def test_unaligned_and_empty(gpu: Any) -> None:
    values = gpu.array(np.arange(1.0, 101).reshape(100, 1))
    for part in (values[1:], values[3:50], values[:0]):
        np.testing.assert_array_equal(counted(gpu, part, 8, 0), wanted(part.get(), 8, 0))


@pytest.mark.parametrize("bins", [1, 3, 600, 5000])
def test_bins_and_the_ends_of_the_scale(gpu: Any, bins: int) -> None:
    """Subnormal numbers, those next to the square root of 2, infinities, nan; bins in shared memory and beyond."""
    root = np.float32(np.sqrt(2))
    tiny = np.float32([1e-45, 3e-45, 1e-40, 1.2e-38, 2**-126 * 1.5])
    below, above = np.nextafter(root, np.float32(0)), np.nextafter(root, np.float32(2))
    edges = np.float32([below / 2, below * 8, above * 4, float(above) * 2.0**-130])
    host = np.concatenate([tiny, edges, -edges, np.float32([0, -0.0, np.inf, -np.inf, np.nan, 3e38])])
    for offset in (-200, -149, 0, 5):
        got = counted(gpu, gpu.array(host), bins, offset)
        np.testing.assert_array_equal(got, wanted(host, bins, offset), f"{offset}")
        assert got.sum() == host.size - 1
