"""Self-test of a GPU before its first use: a few kernels against NumPy, so that a faulty GPU is detected at once.

It takes about a second and runs once per GPU, driver and version of this library: success is recorded in the kernel
cache. ``NEONLIKE_GPU_SELFTEST=0`` skips it, and ``1`` runs it in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike import settings
from neonlike.errors import BackendUnavailable
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.logger import logger
from neonlike.optree import functions
from neonlike.optree.npfuncs import Array
from neonlike.optree.philox import uniform
from neonlike.version import __version__

SUFFIX = ".selftest"

Case = tuple[str, Callable[[Any], Any], Array, float]
"""Description, computation on a backend, correct values, and allowed error relative to the largest."""


def ensure(device: Any, make: Callable[[], Any]) -> None:
    """Test ``device`` unless that was done before; ``make`` creates a backend on it.

    Raises
    ------
    BackendUnavailable
        If any result is wrong; the next request tests it again.
    """
    wanted = settings.GPU_SELFTEST.get()
    if device.tested or wanted is False:
        return
    key = key_of("gpu selftest", __version__, *device.identity)
    if not wanted and default_cache().get(key, SUFFIX) is not None:
        device.tested = True
        return
    device.tested = True  # prevents the backend created now from testing it
    try:
        with make() as be:
            run(be)
    except BaseException:
        device.tested = False
        raise
    default_cache().put(key, b"passed", SUFFIX)
    logger.info("GPU %d, %s: the self-test passed", device.number, device.name)


def run(be: Any) -> None:
    """Compare all cases with NumPy."""
    for name, compute, wanted, tolerance in cases():
        got = compute(be).get()
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.float64) - wanted) / np.abs(wanted).max()
        wrong = ~(error <= tolerance)
        if wrong.any():
            where = tuple(int(axis[0]) for axis in np.nonzero(wrong))
            raise BackendUnavailable(
                f"GPU {be.device.number}, {be.device.name}, computes wrong results: in its self-test, {name}, "
                f"{int(wrong.sum())} of {wrong.size} elements; the one at {where} is {got[where]}, expected "
                f"{wanted[where]:.8g}. Update its driver, clear the kernels (python -m neonlike cache --clear), and "
                f"if that does not help, do not trust it; {settings.GPU_SELFTEST.name}=0 uses it as it is"
            )


def cases() -> Iterator[Case]:
    """The tested kernels."""
    rng = np.random.default_rng(7)
    a: npt.NDArray[np.float64] = rng.uniform(-2, 2, (67, 129)).astype(np.float32).astype(np.float64)
    b: npt.NDArray[np.float64] = rng.uniform(-2, 2, (67, 1)).astype(np.float32).astype(np.float64)
    yield "a copy", lambda be: be.array(a), a, 0.0
    yield "elementwise", lambda be: _of(be, be.sig(be.array(a) * be.array(b) + 1)), 1 / (1 + np.exp(-(a * b + 1))), 1e-5
    yield "a transposed view", lambda be: _of(be, be.array(a).T * 2), a.T * 2, 0.0
    yield "sums of rows", lambda be: _of(be, be.sum(be.array(a), axis=1)), a.sum(1, keepdims=True), 1e-4
    yield "sums of columns", lambda be: _of(be, be.sum(be.array(a), axis=0)), a.sum(0, keepdims=True), 1e-4
    peak = np.exp(a - a.max(1, keepdims=True))
    softmax = peak / peak.sum(1, keepdims=True)
    yield "softmax", lambda be: _of(be, functions.softmax(be.array(a), axis=1)), softmax, 1e-5
    yield "a matrix product", lambda be: _of(be, be.dot(be.array(a), be.array(a).T)), a @ a.T, 1e-3
    key, call = 0x1234567890ABCDEF, 5
    drawn = np.empty(a.shape, np.float32)
    uniform(np.arange(a.size).reshape(a.shape), call, key, drawn, consecutive=True)
    yield "random numbers", lambda be: _of(be, functions.rand(be, key, call), a.shape), drawn, 0.0


def _of(be: Any, expression: Any, shape: Any = None) -> Any:
    out = be.empty(expression.shape if shape is None else shape)
    out[:] = expression
    return out
