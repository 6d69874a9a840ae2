"""Backends and data for tests of CUDA kernels: few kernels, each at many sizes, compared with NumPy in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.kernels.cuda import fit as fit_cuda

TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-13}
"""Relative to the largest element, by the name of the dtype that holds the result."""


@pytest.fixture(scope="module")
def gpu(gpu_driver: object) -> Iterator[Backend]:
    """A GPU backend for a whole file, so that every kernel is compiled and planned once."""
    yield gen_backend("gpu", rng_seed=0, batch_size=128)
    cleanup_backend()


@pytest.fixture(params=("as planned", "in loops", "split"))
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every form of a reduction at small sizes: the planned one, and the one of large sizes."""
    if request.param != "as planned":
        monkeypatch.setattr(fit_cuda, "HELD_TARGET", 1)
        monkeypatch.setattr(fit_cuda, "HELD_MOST", 1)
        monkeypatch.setattr(fit_cuda, "HELD_THREADS", 1)
    if request.param == "split":
        monkeypatch.setattr(fit_cuda, "ROW_PART", 16)
        monkeypatch.setattr(fit_cuda, "COLUMN_PART", 16)
    return str(request.param)


def fresh(gpu: Backend) -> Backend:
    """Return ``gpu`` without its earlier plans, for plans remember launches."""
    gpu.executor.clear()
    return gpu


def assert_near(found: Any, wanted: Any, what: str = "", slack: float = 1.0) -> None:
    """``found`` (a tensor or an array) is ``wanted``, nan and infinities included."""
    array = found if isinstance(found, np.ndarray) else found.get()
    wanted = np.broadcast_to(wanted, array.shape)
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0) if wanted.dtype.kind == "f" else 0
    tolerance = TOLERANCE.get(array.dtype.name, 0) * slack
    np.testing.assert_allclose(array.astype(np.float64), wanted, tolerance, tolerance * max(size, 1), err_msg=what)


def tensor(be: Backend, host: Any, layout: str = "plain") -> Any:
    """``host`` as a tensor that lies in memory as ``layout`` says."""
    made = be.empty(host.shape, dtype=host.dtype)
    if layout == "transposed":
        made = be.empty(host.shape[::-1], dtype=host.dtype).permuted(tuple(reversed(range(host.ndim))))
    elif layout == "strided":  # every other element, not aligned
        made = be.empty(tuple(2 * n + 1 for n in host.shape), dtype=host.dtype)
        made = made[tuple(slice(1, 2 * n + 1, 2) for n in host.shape)]
    elif layout == "shifted":  # contiguous rows that start anywhere
        made = be.empty((*host.shape[:-1], host.shape[-1] + 3), dtype=host.dtype)
        made = made[(*[slice(None)] * (host.ndim - 1), slice(3, None))]
    elif layout == "reversed":
        made = made[tuple(slice(None, None, -1) for _ in host.shape)]
    else:
        assert layout == "plain", layout
    return made.set(host)


LAYOUTS = ("plain", "transposed", "strided", "shifted", "reversed")
