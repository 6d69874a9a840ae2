"""Calls of primitives that are made again take a short way, and must be as right, and refuse as much, as the first."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, DTypeError, OtherBackend, ShapeError
from neonlike.kernels.c.replay import Replay
from neonlike.kernels.run import calls as kept
from neonlike.kernels.run.calls import CallCache
from tests.backends.repeatable_calls import NAMES, RNG, pooling, primitives, some
from tests.support.engines import new_backend

pytestmark = pytest.mark.engines("numpy", "c")


@pytest.fixture(autouse=True)
def by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension, which stands before Python's cache, is not there; see test_fastpath_calls.py."""
    monkeypatch.setattr(Replay, "adopt", lambda self, extension: None)


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that were repeated since the test began."""
    names: list[str] = []
    plain = CallCache.repeat

    def watched(self: CallCache, call: kept.Call) -> bool:
        done = plain(self, call)
        if done:
            names.append(call.name)
        return done

    monkeypatch.setattr(CallCache, "repeat", watched)
    return names


@pytest.mark.parametrize("name", NAMES)
def test_other_tensors_give_the_same_again_and_not_what_the_first_gave(
    be: Backend, name: str, repeated: list[str]
) -> None:
    """Each call has inputs of its own; a fresh backend without earlier calls gives the right result."""
    call, tensors, written = primitives(be)[name]
    for turn in range(3):
        fresh = [be.array(t.get() * (1 + turn if t.dtype.kind == "f" else 1), dtype=t.dtype) for t in tensors]
        expected = [t.get() for t in fresh]
        call(*fresh)
        results = [t.get() for t in fresh]
        again = [be.array(values, dtype=t.dtype) for values, t in zip(expected, tensors)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CallCache, "repeat", lambda self, call: False)
            call(*again)
        for index, (found, right) in enumerate(zip(results, again)):
            assert np.array_equal(found, right.get(), equal_nan=True), (turn, index)
        assert all((found == before).all() for found, before in zip(results[:-written], expected))
    assert be._calls is None or len(repeated) >= 2


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


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_in_place_batch_normalisation_is_repeated(compiled: Backend, repeated: list[str]) -> None:
    be = compiled
    rows, sums = [be.array(np.ones((4, 1))) for _ in range(3)], [be.zeros((4, 1)) for _ in range(2)]
    x, errors = some(be, 4, 30), [some(be, 4, 30) for _ in range(3)]
    expected = []
    for error in errors:
        apart = be.zeros(error.shape)
        be.compound_bprop_bn(apart, *sums, error, x, *rows, 1e-3)
        expected.append(apart.get())
        be.compound_bprop_bn(error, *sums, error, x, *rows, 1e-3)
    assert len(repeated) == 4
    for error, right in zip(errors, expected):
        assert np.array_equal(error.get(), right)
    halves = be.zeros((9, 30))
    with pytest.raises(AliasError):
        be.compound_bprop_bn(halves[:4], *sums, halves[3:7], x, *rows, 1e-3)


def test_views_of_another_layout_are_other_calls(be: Backend) -> None:
    _layer, (image, pooled, places), call = pooling(be, "avg")
    wide = some(be, 4 * 36, 6)
    for tensor in (image, wide[:, :3], wide[:, 3:], be.array(image.get().T.copy()).T):
        call(tensor, pooled, places)
        expected = tensor.get().reshape(4, 3, 2, 3, 2, 3).mean(axis=(2, 4))
        assert np.allclose(pooled.get().reshape(expected.shape), expected, atol=1e-6)


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


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_the_number_of_threads_is_part_of_a_call(compiled: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    be = compiled
    _layer, (image, pooled, places), call = pooling(be, "max")
    started: list[int] = []
    plain = kept.KernelCall.start

    def start(launch: kept.KernelCall, at: Any) -> None:
        started.append(int.from_bytes(launch.keep[1].raw[-9:-1], "little"))  # the last of SIZES
        plain(launch, at)

    monkeypatch.setattr(kept.KernelCall, "start", start)
    monkeypatch.setattr("neonlike.backends.cpu.primitives.pool.SERIAL", 0)
    for threads in (1, 2, 1, 3):
        be.num_threads = threads
        for _ in range(2):
            call(image, pooled, places)
    be.num_threads = None
    assert started == [1, 1, 2, 2, 1, 1, 3, 3]


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_bench_mode_sees_every_call(compiled: Backend, repeated: list[str]) -> None:
    be = compiled
    layer, (image, pooled, places), call = pooling(be, "max")
    call(image, pooled, places)
    call(image, pooled, places)
    assert len(repeated) == 1
    be.bench = True
    for _ in range(3):
        assert be.fprop_pool(layer, image, pooled, places) is not None
    assert "fprop_pool max" in be.bench_report("csv")
    be.bench = None
    call(image, pooled, places)
    assert len(repeated) == 2
    assert be.fprop_pool(layer, image, pooled, places, repeat=2) is not None
    assert len(repeated) == 2


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_cleanup_forgets_calls(compiled: Backend, repeated: list[str]) -> None:
    be = compiled
    _layer, tensors, call = pooling(be, "max")
    for _ in range(2):
        call(*tensors)
    be.cleanup_backend()
    call(*tensors)
    assert len(repeated) == 1
    call(*tensors)
    assert len(repeated) == 2


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_neither_tensors_nor_the_backend_are_held(compiled: Backend) -> None:
    _layer, tensors, call = pooling(compiled, "max")
    call(*tensors)
    seen = [weakref.ref(t.array.base if t.array.base is not None else t.array) for t in tensors]
    del tensors
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_another_layer_in_the_place_of_one_that_is_gone(compiled: Backend) -> None:
    """Calls are kept by the identity of layers, so these are held."""
    image, pooled = some(compiled, 4 * 36, 3), compiled.zeros((4 * 9, 3))
    for turn in range(40):
        op = ("avg", "max")[turn % 2]
        layer = compiled.pool_layer(np.float32, op, 3, 4, 1, 6, 6, R=2, S=2)
        compiled.fprop_pool(layer, image, pooled, compiled.zeros((4 * 9, 3), dtype=np.uint8))
        windows = image.get().reshape(4, 3, 2, 3, 2, 3)
        right = windows.max(axis=(2, 4)) if op == "max" else windows.mean(axis=(2, 4))
        assert np.allclose(pooled.get().reshape(right.shape), right, atol=1e-6)
        del layer


def test_l2_pooling_keeps_the_input_of_each_call(be: Backend) -> None:
    layer, (image, pooled, _), call = pooling(be, "l2")
    delta, ones = be.zeros(image.shape), be.array(np.ones(pooled.shape))
    for values in (image, some(be, *image.shape), some(be, *image.shape)):
        call(values, pooled)
        be.bprop_pool(layer, ones, delta)
        norms = np.repeat(np.repeat(pooled.get().reshape(4, 3, 3, 3), 2, 1), 2, 2)
        assert np.allclose(delta.get().reshape(norms.shape), values.get().reshape(norms.shape) / norms, atol=1e-5)


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_no_more_calls_are_kept_than_there_is_room_for(compiled: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neonlike.kernels.run.arrays.MAX_LAUNCHES", 4)
    monkeypatch.setattr(kept, "MOST_LAYOUTS", 4)
    for N in [1, 2, 3, 4, 5, 6, 7, 1, 2]:
        _layer, (image, pooled, _places), call = pooling(compiled, "avg", N)
        for _ in range(2):
            call(image, pooled)
            right = image.get().reshape(4, 3, 2, 3, 2, N).mean(axis=(2, 4))
            assert np.allclose(pooled.get().reshape(right.shape), right, atol=1e-6)
    assert compiled._calls is not None
    assert len(compiled._calls._known) <= 4 and len(compiled._calls._layouts) <= 4


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_threads_of_the_user_may_repeat_the_same_call(compiled: Backend) -> None:
    _layer, (image, pooled, places), call = pooling(compiled, "max", 5)
    call(image, pooled, places)
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal((4 * 36, 5)).astype(np.float32)
        right = values.reshape(4, 3, 2, 3, 2, 5).max(axis=(2, 4)).reshape(36, 5)
        mine = compiled.array(values), compiled.zeros((36, 5)), compiled.zeros((36, 5), dtype=np.uint8)
        for _ in range(200):
            call(*mine)
            if not np.array_equal(mine[1].get(), right):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_large_products_are_repeated(be: Backend, repeated: list[str], beta: float) -> None:
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
    if be._calls is not None:
        made = any(key[0] == "compound_dot" for key in be._calls._known)
        assert len(repeated) == (10 if made else 0)  # of the 12 with a left side of its own, all but the first two


@pytest.mark.cpu_only("calls of compiled C are kept")
def test_a_repeated_product_may_get_factors_that_share_memory_with_the_result(compiled: Backend) -> None:
    be, n = compiled, 70
    both = some(be, 2 * n, n)
    for start in (n, 0, n // 2):
        a, b, c = both[:n], some(be, n, n), both[start : start + n]
        right = a.get().astype(np.float64) @ b.get()
        be.compound_dot(a, b, c)
        assert np.allclose(c.get(), right, rtol=1e-4, atol=1e-4)
