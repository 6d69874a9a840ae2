"""Local response normalisation on the GPU: forms of the kernels by dtype, alignment, size and window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import elements, lrn
from neonlike.backends.primitives.lrn import LrnFamily, LrnPass
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.cuda_backends import tensor as laid_out
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]
NAMES = ("I", "O", "E", "denom", "delta")


def both_ways(be: Any, dtype: Any, C: int, N: int, J: int, layout: str = "plain", beta: float = 0) -> list[Any]:
    """Forward and backward results, compared with the definition."""
    layer, rng = be.lrn_layer(dtype, N, C, 1, 1, 1, J), np.random.default_rng(C)
    made = {name: laid_out(be, rng.uniform(0.5, 2, (C, N)).astype(dtype), layout) for name in NAMES}
    wanted = {name: be.array(t.get(), dtype=dtype) for name, t in made.items()}
    request = LrnPass((C, N), J, 1.5, beta, 2.0 / J, 0.75)
    LrnFamily._fprop_lrn(be, request, *(wanted[name] for name in ("I", "O", "denom")))
    be.fprop_lrn(layer, *(made[name] for name in ("I", "O", "denom")), 1.5, beta, 2.0, 0.75)
    backward = ("I", "O", "E", "delta", "denom")
    LrnFamily._bprop_lrn(be, request, *(wanted[name] for name in backward))
    be.bprop_lrn(layer, *(made[name] for name in backward), 1.5, beta, 2.0, 0.75)
    found = [made[name].get() for name in NAMES]
    for name, values in zip(NAMES, found):
        rtol = 4e-3 if dtype == np.float16 else 2e-6
        np.testing.assert_allclose(values, wanted[name].get(), rtol, rtol * 5, err_msg=name)
    return found


@pytest.mark.parametrize(("dtype", "N"), [(np.float32, 8), (np.float16, 8), (np.float64, 2), (np.float32, 7)])
def test_vectors_of_elements(gpu: Any, dtype: Any, N: int) -> None:
    both_ways(gpu, dtype, 6, N, 5, beta=0.5)


@pytest.mark.parametrize("J", [1, 15, 17])
def test_windows_in_registers_and_longer_ones(gpu: Any, J: int) -> None:
    assert (J * 4 <= lrn.WINDOW_BYTES) == (J < 17)
    both_ways(gpu, np.float32, 20, 4, J)


def test_spans_of_channels_change_nothing(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = both_ways(gpu, np.float32, 11, 4, 3)
    monkeypatch.setattr(lrn, "ENOUGH_THREADS", 1)
    gpu.executor.replay.clear()
    for one, other in zip(apart, both_ways(gpu, np.float32, 11, 4, 3)):
        np.testing.assert_array_equal(one, other)


def test_places_of_64_bits(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "NARROW", 1)
    both_ways(gpu, np.float32, 5, 4, 3, beta=-1.0)


@pytest.mark.parametrize("layout", ["transposed", "shifted"])
def test_views_are_copied_on_the_device(gpu: Any, layout: str) -> None:
    both_ways(gpu, np.float32, 4, 8, 3, layout, beta=0.5)
    layer = gpu.lrn_layer(np.float32, 8, 4, 1, 1, 1, 3)
    x, y, denom, error, delta = (laid_out(gpu, np.ones((4, 8), np.float32), layout) for _ in range(5))
    with traffic(gpu) as seen:
        gpu.fprop_lrn(layer, x, y, denom, beta=1.0)
        gpu.bprop_lrn(layer, x, y, error, delta, denom)
    assert not len(seen), str(seen)
