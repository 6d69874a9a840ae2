"""Calls of primitives that are made again take a short way, and must be as right, and refuse as much, as the first."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import hooks
from neonlike.errors import AliasError, DTypeError, OtherBackend, ShapeError
from neonlike.kernels.run.calls import Lasting
from tests.backends.repeatable_calls import NAMES, RNG, pooling, primitives, some
from tests.support.engines import have_programs, new_backend

pytestmark = pytest.mark.engines("numpy", "c")


@pytest.fixture(autouse=True)
def repeating(be: Backend) -> None:
    """The extension repeats the calls of ``be``, where there is a compiler."""
    have_programs(be)


def repeated(be: Backend) -> int | None:
    """How many calls the extension has repeated; None where there is none."""
    table = be.executor.replay.table
    return None if table is None else table.calls


@pytest.mark.parametrize("name", NAMES)
def test_other_tensors_give_the_same_again_and_not_what_the_first_gave(be: Backend, name: str) -> None:
    """Each call has inputs of its own; a fresh backend, which has seen no call, says what is right."""
    call, tensors, written = primitives(be)[name]
    for turn in range(3):
        fresh = [be.array(t.get() * (1 + turn if t.dtype.kind == "f" else 1), dtype=t.dtype) for t in tensors]
        expected = [t.get() for t in fresh]
        call(*fresh)
        results = [t.get() for t in fresh]
        again = [be.array(values, dtype=t.dtype) for values, t in zip(expected, tensors)]
        with be.executor.replay.paused():
            call(*again)
        for index, (found, right) in enumerate(zip(results, again)):
            assert np.array_equal(found, right.get(), equal_nan=True), (turn, index)
        assert all((found == before).all() for found, before in zip(results[:-written], expected))
    assert repeated(be) in (None, 2, 3)  # of the first pooling there was one like it before


@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_call_refuses_what_the_first_refused(be: Backend, name: str) -> None:
    call, tensors, _written = primitives(be)[name]
    call(*tensors)
    with new_backend() as other:
        for index, tensor in enumerate(tensors):
            before = [t.get() for t in tensors]
            given: list[tuple[Any, Any]] = [
                (other.array(tensor.get(), dtype=tensor.dtype), OtherBackend),
                (tensor.get(), DTypeError),
                (be.zeros((tensor.shape[0] + 1, tensor.shape[1]), dtype=tensor.dtype), ShapeError),
                (be.zeros(tensor.shape, dtype=bool), DTypeError),
            ]
            for wrong, error in given:
                with pytest.raises(error):
                    call(*tensors[:index], wrong, *tensors[index + 1 :])
            assert all(np.array_equal(t.get(), old) for t, old in zip(tensors, before))
        call(*tensors)


@pytest.mark.parametrize("name", ["fprop_pool", "bprop_pool", "fprop_conv", "update_conv", "fprop_lrn", "bprop_lrn"])
def test_a_repeated_call_refuses_tensors_that_share_memory(be: Backend, name: str) -> None:
    """Views that overlap by one row, of one allocation and laid out as the tensors of the first call."""
    call, tensors, written = primitives(be)[name]
    call(*tensors)
    for index in range(len(tensors) - written):
        out, read = tensors[-1], tensors[index]
        if out.dtype != read.dtype or out.shape[1] != read.shape[1]:
            continue
        both = be.zeros((out.shape[0] + read.shape[0] - 1, out.shape[1]))
        first, last = both[: out.shape[0]], both[out.shape[0] - 1 :]
        with pytest.raises(AliasError):
            call(*tensors[:index], last, *tensors[index + 1 : -1], first)
        beside = be.zeros((out.shape[0] + read.shape[0], out.shape[1]))
        call(*tensors[:index], beside[out.shape[0] :], *tensors[index + 1 : -1], beside[: out.shape[0]])


@pytest.mark.cpu_only("a GPU copies the memory of others")
def test_memory_of_others_is_looked_at_too(be: Backend) -> None:
    _layer, (image, pooled, places), call = pooling(be, "max")
    call(image, pooled, places)
    memory = np.zeros((4 * 36 + 4 * 9 - 1, 3), np.float32)
    with pytest.raises(AliasError):
        call(be.wrap(memory[: 4 * 36]), be.wrap(memory[4 * 36 - 1 :]), places)


def test_views_of_another_layout_are_other_calls(be: Backend) -> None:
    _layer, (image, pooled, places), call = pooling(be, "avg")
    wide = some(be, 4 * 36, 6)
    for tensor in (image, wide[:, :3], wide[:, 3:], be.array(image.get().T.copy()).T):
        call(tensor, pooled, places)
        expected = tensor.get().reshape(4, 3, 2, 3, 2, 3).mean(axis=(2, 4))
        assert np.allclose(pooled.get().reshape(expected.shape), expected, atol=1e-6)


@pytest.mark.cpu_only("alignment of host memory, and stores past the CPU's caches")
def test_results_past_the_caches_may_begin_anywhere(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that was chosen for results in whole cache lines is not repeated for others, as it would crash."""
    monkeypatch.setattr(hooks, "STREAMED_RESULT_BYTES", 0)
    conv = be.conv_layer(np.float32, 64, 8, 2, 1, 8, 8, 1, 1, 1)
    image, filters = some(be, 8 * 64, 64), some(be, 8, 2)
    wanted, memory = be.zeros((2 * 64, 64)), np.zeros(2 * 64 * 64 + 32, np.float32)
    begin = -memory.ctypes.data // 4 % 16 + 16
    for first in (begin, begin + 4, begin + 1, begin - 16):
        be.fprop_conv(conv, image, filters, wanted)
        out = be.wrap(memory[first : first + wanted.size].reshape(wanted.shape))
        be.fprop_conv(conv, image, filters, out)
        assert np.array_equal(out.get(), wanted.get())
        out[:] = 0


@pytest.mark.parametrize("op", ["avg", "l2"])
def test_positions_that_are_not_used_leave_a_call_as_it_is(be: Backend, op: str) -> None:
    """Networks give any pooling its ``argmax``; one that only max pooling writes may lie anywhere, each time."""
    layer, (image, pooled, places), call = pooling(be, op)
    error, delta = be.ones(pooled.shape), be.zeros(image.shape)
    places[:] = 7
    for given in (None, places, be.zeros(places.shape, dtype=places.dtype), pooled, places):
        call(image, pooled, given)
        expected = pooled.get()
        be.bprop_pool(layer, error, delta, given)
        gradient = delta.get()
        call(image, pooled)
        be.bprop_pool(layer, error, delta)
        assert np.array_equal(pooled.get(), expected) and np.array_equal(delta.get(), gradient)
    assert (places.get() == 7).all()
    if op == "avg":
        before = repeated(be)
        for _ in range(3):
            call(image, pooled, places)
            be.bprop_pool(layer, error, delta, places)
        assert repeated(be) == (None if before is None else before + 6)


def test_numbers_and_flags_are_part_of_a_call(be: Backend) -> None:
    _layer, (image, pooled, _places), call = pooling(be, "avg")
    means = image.get().reshape(4, 3, 2, 3, 2, 3).mean(axis=(2, 4)).reshape(36, 3)
    pairs = (1, 0), (2.0, 0.0), (1.0, 1.0), (0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (1.0, np.float32(2)), (1, 0)
    for alpha, beta in pairs:
        pooled[:] = 1.5
        call(image, pooled, alpha=alpha, beta=beta)
        right = np.float32(alpha) * means
        right = right + np.float32(beta) * 1.5 if beta else right
        assert np.allclose(pooled.get(), right, atol=1e-6)
        if alpha == 0:
            assert np.array_equal(np.signbit(pooled.get()), np.signbit(right)), alpha
    with pytest.raises(TypeError):
        call(image, pooled, alpha=image)
    conv = be.conv_layer(np.float32, 3, 4, 5, 1, 6, 6, 1, 3, 3)
    maps, filters = be.zeros((80, 3)), some(be, 36, 5)
    for relu in (False, True, False):
        be.fprop_conv(conv, image, filters, maps, relu=relu)
        assert (maps.get() >= 0).all() == relu


def test_l2_pooling_keeps_the_input_of_each_call(be: Backend) -> None:
    layer, (image, pooled, _), call = pooling(be, "l2")
    delta, ones = be.zeros(image.shape), be.array(np.ones(pooled.shape))
    for values in (image, some(be, *image.shape), some(be, *image.shape)):
        call(values, pooled)
        be.bprop_pool(layer, ones, delta)
        norms = np.repeat(np.repeat(pooled.get().reshape(4, 3, 3, 3), 2, 1), 2, 2)
        assert np.allclose(delta.get().reshape(norms.shape), values.get().reshape(norms.shape) / norms, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_large_products_are_repeated(be: Backend, beta: float) -> None:
    """Products are repeated for equal layouts, transposed or not, for parts of wider matrices, and in place."""
    m, k, n = 70, 80, 66
    whole = some(be, m, 2 * k)
    rights = [some(be, k, n), some(be, n, k).T, some(be, k, n), some(be, n, k).T]
    lefts = [some(be, m, k), some(be, m, k), whole[:, k:], whole[:, :k], some(be, m, k)]
    pairs = [(a, b) for a in lefts for b in rights]
    for a, b in pairs:
        old = RNG.standard_normal((m, n)).astype(np.float32)
        c = be.array(old)
        be.compound_dot(a, b, c, 0.5, beta)
        right = 0.5 * (a.get().astype(np.float64) @ b.get()) + beta * old
        assert np.allclose(c.get(), right, rtol=1e-4, atol=1e-4)
    assert repeated(be) in (None, 0, 10)  # of the 12 with a left side of its own, all but the first two


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_a_repeated_product_may_get_factors_that_share_memory_with_the_result(be: Backend) -> None:
    n = 70
    both = some(be, 2 * n, n)
    for start in (n, 0, n // 2):
        a, b, c = both[:n], some(be, n, n), both[start : start + n]
        right = a.get().astype(np.float64) @ b.get()
        be.compound_dot(a, b, c)
        assert np.allclose(c.get(), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_call_on_tensors_that_are_gone_is_not_made_again(be: Backend, gone: int) -> None:
    class Launch:
        """A call that can be made again."""

        lasts = True

        def again(self, backend: Any, functions: tuple[Any, ...]) -> bool:
            return True

    tensors = [some(be, 3, 4), some(be, 2, 2)[:1], None]
    call = Lasting(Launch(), tensors)
    assert call([], [])
    tensors[gone] = None
    gc.collect()
    assert not call([], [])
