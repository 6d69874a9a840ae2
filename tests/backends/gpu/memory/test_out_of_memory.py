"""A GPU without memory, at any request, leaves tensors unchanged, and the operation can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.errors import DeviceMemoryError
from tests.backends.gpu.shortage import Held, driver_running_out, equal, running_out
from tests.support import primitive_calls
from tests.support.engines import forget_calls
from tests.support.gpu.cuda_backends import gpu
from tests.support.primitive_calls import CALLS

__all__ = ["gpu"]
MOST = 60
"""Requests of a call, at most."""
DRAWN = frozenset({"binarize"})
"""Calls that draw other numbers each time."""
BY_TURNS = frozenset({"compound_rnn_unroll_fprop_bibnrnn", "compound_rnn_unroll_bprop_bibnrnn"})
"""Calls of two parts, the second of which gets by with the memory that the first has given back."""
LAYOUTS = ("plain", "strided")


def strided(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of tensors of every other element; ``plain`` makes contiguous ones."""

    def make(be: Any, *given: Any, **options: Any) -> Any:
        made = plain(be, *given, **options)
        wide = be.zeros((*made.shape[:-1], 2 * made.shape[-1]), dtype=made.dtype)
        every_other = wide[(*[slice(None)] * (made.ndim - 1), slice(None, None, 2))]
        every_other[:] = made
        return every_other

    return make


def forget(be: Any) -> None:
    """Have ``be`` do all that it does when a call is made for the first time, but for compiling."""
    forget_calls(be)
    be.executor.clear()
    be.executor.replay.clear()


def check_every_request(be: Any, call: Callable[[], object], held: Held, first: bool, name: str = "") -> int:
    """Refuse each request of ``call`` in turn; how many there are. ``first``: it is made as for the first time."""
    short = driver_running_out if name in BY_TURNS else running_out
    before = held.bytes()
    call()
    after = held.bytes()
    for refused in range(MOST):
        held.restore(before)
        if first:
            forget(be)
        try:
            with short(be, refused):
                call()
        except DeviceMemoryError as error:
            assert " asked for; " in str(error) and " are in use here in " in str(error), error
            assert equal(held.bytes(), before), f"request {refused} was refused, and tensors changed"
        else:
            assert name in DRAWN or equal(held.bytes(), after), "the result is another one"
            return refused
    raise AssertionError(f"more than {MOST} requests")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_a_primitive_that_runs_out_changes_nothing(
    gpu: Any, name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if layout == "strided":
        for maker in ("values", "integers"):
            monkeypatch.setattr(primitive_calls, maker, strided(getattr(primitive_calls, maker)))
    held = Held(gpu)
    with held.noted():
        call = CALLS[name](gpu)
    start = held.bytes()
    for first in (True, False):
        held.restore(start)
        check_every_request(gpu, call, held, first, name)


def expressions(be: Any) -> dict[str, Callable[[], object]]:
    """Assignments of several stages: products, gathers, sorts, scans, sums in parts, several targets."""
    rng = np.random.default_rng(0)
    a, b, c = (be.array(rng.uniform(0.1, 1, shape), dtype=np.float32) for shape in ((5, 7), (7, 6), (5, 6)))
    row, column, wide = be.zeros((1, 6)), be.zeros((5, 1)), be.array(rng.uniform(size=(3, 100_000)), dtype=np.float32)
    sums, half = be.zeros((3, 1)), be.zeros((5, 6), dtype=np.float16)
    words = be.array(rng.integers(0, 5, (1, 6)), dtype=np.int32)

    def to(target: Any, make: Callable[[], Any]) -> Callable[[], object]:
        return lambda: be.assign(target, make())

    return {
        "a product and its softmax": to(c, lambda: be.softmax(be.dot(a, b) + c, axis=1)),
        "its own transpose": to(c[:, :5], lambda: c[:, :5].T + be.dot(c, c.T)),
        "rows": to(c, lambda: be.take(a, words, 0)[:5, :6] * 2 + be.dot(a, b)),
        "a sort and running totals": to(c, lambda: be.cumsum(be.sort(be.dot(a, b), axis=0), axis=1)),
        "sums in parts": to(sums, lambda: be.sum(be.exp(wide - be.max(wide, axis=1)), axis=1)),
        "several targets": lambda: be.assign_many(
            [(row, be.sum(be.dot(a, b), axis=0)), (column, be.sum(c, axis=1)), (half, be.dot(a, b) * 0.5)]
        ),
        "joined": to(c, lambda: be.dot(a, be.concatenate([b[:, :2], b[:, 2:]], axis=1))),
    }


@pytest.mark.parametrize("first", [True, False])
def test_an_assignment_that_runs_out_changes_nothing(gpu: Any, first: bool) -> None:
    held = Held(gpu)
    with held.noted():
        calls = expressions(gpu)
    start, requests = held.bytes(), dict[str, int]()
    for name, call in calls.items():
        held.restore(start)
        requests[name] = check_every_request(gpu, call, held, first)
    assert sum(requests.values()) > 10 and (not first or min(requests.values()) > 0), requests


@pytest.mark.parametrize("lasting", [False, True])
def test_a_kernel_that_the_driver_has_no_memory_for(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    """Kept memory goes back for it; if that is not enough, the error names sizes, and nothing has changed."""
    from neonlike.backends.gpu.memory import resources

    x, load, refused = gpu.ones((3, 4)), resources.driver.module_from_buffer, []
    gpu.empty((1 << 20, 1))  # kept

    def loaded(cubin: bytes) -> Any:
        if lasting or not refused:
            refused.append(gpu.device.pool.stats().reserved)
            raise resources.driver.MemoryError("cuModuleLoadDataEx failed: out of memory")
        return load(cubin)

    monkeypatch.setattr(resources.driver, "module_from_buffer", loaded)
    number = 0.125 if lasting else 0.375  # a constant that no other kernel here has: it is loaded now

    def assign() -> None:
        x[:] = gpu.sig(gpu.exp(x * x - gpu.tanh(x)) if lasting else gpu.log(x + x) - gpu.sin(x)) * number

    if lasting:
        with pytest.raises(DeviceMemoryError, match=r"load of kernel \w+, .*; .* are in use here in \d+ blocks"):
            assign()
        assert (x.get() == 1).all()
    else:
        assign()
        np.testing.assert_allclose(x.get(), 0.375 / (1 + np.exp(np.sin(1) - np.log(2))), 1e-5)
    assert len(refused) == (2 if lasting else 1)
    assert gpu.device.pool.stats().reserved < refused[0]


def test_a_launch_that_the_driver_has_no_memory_for(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neonlike.backends.gpu.memory import resources

    x = gpu.ones((5, 4))
    x[:] = x + 1
    gpu.executor.clear()

    def refuse(*given: Any) -> None:
        raise resources.driver.MemoryError("cuLaunchKernel failed: out of memory")

    for kernel in gpu.device._kernels.values():
        monkeypatch.setattr(kernel, "start", refuse)
    with pytest.raises(DeviceMemoryError, match=r"kernel \w+ \(grid .* are free on the device"):
        x[:] = x + 1
    assert (x.get() == 2).all() and gpu.device.usable
