"""Calls of compound primitives repeated by the extension agree with Python's methods, for any arguments."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.conv.request import ConvPass, Epilogue
from neonlike.errors import AliasError
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.trace import Operands, current
from neonlike.kernels.run.workspace import kept_bytes, release_workspace
from neonlike.optree.dtypes import bfloat16
from tests.backends.repeatable_calls import CONVERTED, INT8, NAMES, pooling, primitives, some
from tests.support.compiling import python
from tests.support.engines import new_backend
from tests.support.replaying import extension, fast, outcome  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("calls of compiled C"),
]


@contextmanager
def by_python(be: Any) -> Iterator[None]:
    """Calls are made by Python's methods, which check them and choose a kernel each time."""
    with be.executor.replay.paused():
        yield


def hits(be: Any) -> int:
    """How many kernels the extension has started."""
    count: int = be.executor.replay.table.calls
    return count


def again(be: Any, call: Callable[[], Any]) -> bool:
    """Make a call; whether the extension made it."""
    before = hits(be)
    call()
    return hits(be) == before + 1


# Results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, *INT8])
def test_other_tensors_give_what_python_gives(fast: Backend, name: str) -> None:
    call, tensors, _ = primitives(fast)[name]
    for turn in range(3):
        ours, theirs = (
            [fast.array(t.get() * (1 + turn if t.dtype.kind == "f" else 1), dtype=t.dtype) for t in tensors]
            for _ in range(2)
        )
        assert again(fast, lambda ours=ours: call(*ours)) or turn == 0
        with by_python(fast):
            call(*theirs)
        for found, right in zip(ours, theirs):
            assert found.get().tobytes() == right.get().tobytes()


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
@pytest.mark.parametrize("name", CONVERTED)
def test_calls_of_16_bit_tensors(fast: Backend, name: str, dtype: Any) -> None:
    """Repeated, with conversions, they give what a call in float32 gives on the same numbers, rounded once."""
    call, tensors, written = primitives(fast, dtype)[name]
    precision = "float32" if dtype == np.float16 else "bfloat16"
    with new_backend(product_precision=precision) as other:
        single = primitives(other)[name][0]
        for turn in range(3):
            ours = [fast.array(t.get().astype(np.float32) * np.float32(1 + turn), dtype=t.dtype) for t in tensors]
            floats = [other.array(tensor.get().astype(np.float32)) for tensor in ours]
            assert again(fast, lambda ours=ours: call(*ours)) or turn == 0
            single(*floats)
            for found, right in list(zip(ours, floats))[-written:]:
                with np.errstate(over="ignore"):
                    rounded = right.get().astype(found.dtype)
                assert found.get().tobytes() == rounded.tobytes()


@pytest.mark.parametrize("name", [*NAMES, *INT8])
def test_what_python_refuses_is_refused_in_its_words(fast: Backend, name: str) -> None:
    call, tensors, _ = primitives(fast)[name]
    call(*tensors)
    assert again(fast, lambda: call(*tensors))
    with new_backend() as other:
        for index, tensor in enumerate(tensors):
            wrong = [
                other.array(tensor.get(), dtype=tensor.dtype), tensor.get(), None, 3, "text", tensor * 1,
                fast.zeros((tensor.shape[0] + 1, tensor.shape[1]), dtype=tensor.dtype), tensor[:-1], tensor.T,
                fast.zeros(tensor.shape, dtype=bool), fast.zeros(tensor.shape, dtype=np.float64),
            ]  # fmt: skip
            if index != len(tensors) - 1:
                wrong.append(tensors[-1])  # what is read is also written
            for one in wrong:
                given = [*tensors[:index], one, *tensors[index + 1 :]]
                before = [t.get() for t in tensors]
                ours = outcome(lambda given=given: call(*given))
                for t, values in zip(tensors, before):
                    t.set(values)
                with by_python(fast):
                    assert outcome(lambda given=given: call(*given)) == ours
                for t, values in zip(tensors, before):
                    t.set(values)
    assert again(fast, lambda: call(*tensors))


def test_memory_that_overlaps_is_refused_wherever_it_lies(fast: Backend) -> None:
    _, (image, pooled, _), call = pooling(fast, "avg")
    call(image, pooled)
    both = fast.zeros((4 * 36 + 4 * 9 - 1, 3))
    memory = np.zeros((4 * 36 + 4 * 9 - 1, 3), np.float32)
    apart = fast.zeros((4 * 36 + 4 * 9, 3))
    assert again(fast, lambda: call(apart[: 4 * 36], apart[4 * 36 :]))
    for first, last in ((both[: 4 * 36], both[4 * 36 - 1 :]), (both[4 * 9 - 1 :], both[: 4 * 9])):
        with pytest.raises(AliasError):
            call(first, last)
    with pytest.raises(AliasError):
        call(fast.wrap(memory[: 4 * 36]), fast.wrap(memory[4 * 36 - 1 :]))
    wide = some(fast, 4 * 36, 6)
    for strided in (wide[:, :3], wide[:, 3:], fast.array(image.get().T.copy()).T):
        call(strided, pooled)
        with by_python(fast):
            right = fast.empty(pooled.shape)
            call(strided, right)
        assert np.array_equal(pooled.get(), right.get())


def test_one_tensor_in_two_places_is_another_call(fast: Backend) -> None:
    """In place is learned apart from elsewhere, and a view of the same memory is not the same tensor."""
    rows, sums = [fast.array(np.ones((4, 1))) for _ in range(3)], [fast.zeros((4, 1)) for _ in range(2)]
    x, apart = some(fast, 4, 30), fast.zeros((4, 30))
    errors = [some(fast, 4, 30) for _ in range(3)]
    for turn, error in enumerate(errors):
        for where in (apart, error):
            done = again(fast, lambda w=where, e=error: fast.compound_bprop_bn(w, *sums, e, x, *rows, 1e-3))
            assert done == (turn > 0)
        assert np.array_equal(error.get(), apart.get())
    fast.compound_bprop_bn(apart, *sums, apart.reshape(4, 5, 6).reshape(4, 30), x, *rows, 1e-3)
    halves = fast.zeros((9, 30))
    with pytest.raises(AliasError):
        fast.compound_bprop_bn(halves[:4], *sums, halves[3:7], x, *rows, 1e-3)


# What a call depends on ------------------------------------------------------------------------------------------


def test_numbers_count_bit_by_bit_and_by_their_type(fast: Backend) -> None:
    _, (image, pooled, _), call = pooling(fast, "avg")
    pairs: list[tuple[Any, Any]] = [
        (1, 0), (1.0, 0.0), (2.0, 0.0), (0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (True, False), (np.float32(2), 1.0),
        (1, 1), (float("nan"), 0.0), (1 << 70, 0.0), ("2", 0.0), (None, 0.0), (image, 0.0),
    ]  # fmt: skip
    for alpha, beta in 2 * pairs:
        found = []
        for is_python in (False, True):
            pooled[:] = 1.5
            with by_python(fast) if is_python else pytest.MonkeyPatch.context():
                found.append(outcome(lambda a=alpha, b=beta: call(image, pooled, alpha=a, beta=b)))
            found.append(pooled.get().tobytes())
        assert found[:2] == found[2:], (alpha, beta)


def test_arguments_are_those_of_the_method(fast: Backend) -> None:
    """By place or name, given or left out; as many as it takes, and no other."""
    layer, (image, pooled, places), _ = pooling(fast, "max")
    pool: Any = fast.fprop_pool
    calls: list[Callable[[], Any]] = [
        lambda: pool(layer, image, pooled, places), lambda: pool(layer, image, O=pooled, argmax=places),
        lambda: pool(argmax=places, O=pooled, layer=layer, I=image),
        lambda: pool(layer, image, pooled, places, 1.0, 0.0),
        lambda: pool(layer, image, pooled, places, **{"be" + "ta": 0.0}),
    ]  # fmt: skip
    for call in calls:
        call()
        assert again(fast, call)
    x, rows = some(fast, 4, 30), [fast.array(np.ones((4, 1))) for _ in range(6)]
    given = (x, *rows, fast.empty((4, 30)), 1e-3, 0.9, True, 0.0, False, None, 1, False, False, None, None)
    fast.compound_fprop_bn(*given, alpha=2.0)
    assert again(fast, lambda: fast.compound_fprop_bn(*given, alpha=2.0))
    for wrong in (
        lambda: pool(layer, image, pooled, places, 1.0, 0.0, 1, 0), lambda: type(fast).fprop_pool(),
        lambda: pool(layer, image, pooled, places, layer=layer), lambda: pool(layer, image),
        lambda: pool(layer, image, pooled, places, gamma=1.0), lambda: fast.compound_fprop_bn(*given, 2.0),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()


def test_layers_threads_and_options_count(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    image, pooled = some(fast, 4 * 36, 3), fast.zeros((4 * 9, 3))
    windows = image.get().reshape(4, 3, 2, 3, 2, 3)
    for turn in range(20):  # layers are told by identity, so those of calls that are kept are held
        op = ("avg", "max")[turn % 2]
        layer = fast.pool_layer(np.float32, op, 3, 4, 1, 6, 6, R=2, S=2)
        for _ in range(2):
            fast.fprop_pool(layer, image, pooled, fast.zeros((4 * 9, 3), dtype=np.uint8))
            right = windows.max(axis=(2, 4)) if op == "max" else windows.mean(axis=(2, 4))
            assert np.allclose(pooled.get().reshape(right.shape), right, atol=1e-6)
        del layer
    conv = fast.conv_layer(np.float32, 3, 4, 5, 1, 6, 6, 1, 3, 3)
    filters, maps = some(fast, 36, 5), fast.zeros((80, 3))
    for value, known in ((True, False), (False, False), (0, False), (True, True)):
        monkeypatch.setattr(fast, "enable_winograd", value)
        assert again(fast, lambda: fast.fprop_conv(conv, image, filters, maps)) == known
    assert fast.executor.replay.table.used > 0
    fast.num_threads = 3
    assert fast.executor.replay.table.used == 0, "launches have the number of threads in them"
    fast.num_threads = None


def test_any_number_of_images(fast: Backend) -> None:
    """The layer was made for three; the batch size of the backend is of no account."""
    layer = fast.pool_layer(np.float32, "avg", 3, 4, 1, 6, 6, R=2, S=2)
    for N in (3, 2, 5, 3, 2, 5):
        image, pooled = some(fast, 4 * 36, N), fast.zeros((4 * 9, N))
        fast.bsz = N + 1
        fast.fprop_pool(layer, image, pooled)
        right = image.get().reshape(4, 3, 2, 3, 2, N).mean(axis=(2, 4))
        assert np.allclose(pooled.get().reshape(right.shape), right, atol=1e-6)
    assert hits(fast) == 3


# When nothing is kept --------------------------------------------------------------------------------------------


def test_bench_mode_and_cleaning_up_forget_calls(fast: Any) -> None:
    layer, tensors, call = pooling(fast, "max")
    call(*tensors)
    assert again(fast, lambda: call(*tensors))
    fast.bench = True
    assert fast.executor.replay.table is None
    assert all(fast.fprop_pool(layer, *tensors) is not None for _ in range(3))
    assert "fprop_pool max" in fast.bench_report("csv")
    fast.bench = None
    fast.executor.replay.adopt(fastpath.loaded())
    call(*tensors)
    assert again(fast, lambda: call(*tensors))
    assert fast.fprop_pool(layer, *tensors, repeat=2) is not None
    fast.cleanup_backend()
    assert fast.executor.replay.table.used == 0
    call(*tensors)
    assert again(fast, lambda: call(*tensors))


def test_calls_of_several_kernels_or_on_copies_stay_with_python(fast: Backend) -> None:
    conv = fast.conv_layer(np.float32, 3, 4, 5, 1, 6, 6, 1, 3, 3)
    image, maps, grad, sums = some(fast, 144, 3), some(fast, 80, 3), fast.empty((36, 5)), fast.empty((5, 1))
    a, c, wide = some(fast, 8, 8), fast.empty((8, 8)), some(fast, 144, 6)
    calls: list[Callable[[], Any]] = [
        lambda: fast.update_conv(conv, image, maps, grad, grad_bias=sums),
        lambda: fast.compound_dot(a, a, c, relu=True), lambda: fast.compound_dot(a, a, c, bsum=fast.empty((8, 1))),
        lambda: fast.fprop_conv(conv, wide[:, :3], grad, maps),
        lambda: fast.fprop_pool(fast.pool_layer(np.float32, "l2", 3, 4, 1, 6, 6, R=2, S=2), image, fast.empty((36, 3))),
    ]  # fmt: skip
    for call in calls:
        call()
        call()
    assert hits(fast) == 0


def test_a_convolution_whose_sums_python_adds_gives_no_launch(fast: Any) -> None:
    """Else its kernel alone would pass for all that the call does."""
    conv = fast.conv_layer(np.float32, 3, 4, 5, 1, 6, 6, 1, 3, 3)
    image, filters, maps, sums = some(fast, 144, 3), some(fast, 36, 5), fast.empty((80, 3)), fast.empty((5, 1))
    for backward, source, target, bsum in ((False, image, maps, sums), (True, maps, image, fast.empty((4, 1)))):
        request = ConvPass(conv, backward, Epilogue())
        assert fast._conv(request, source, filters, target) is not None
        assert fast._conv(request, source, filters, target, bsum=bsum) is None


def test_an_exception_leaves_nothing_behind(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tensors, call = pooling(fast, "max")
    used = fast.executor.replay.table.used

    def fails(*given: Any) -> None:
        raise RuntimeError("hook")

    with monkeypatch.context() as patch:
        patch.setattr(type(fast), "_fprop_pool", fails)
        with pytest.raises(RuntimeError, match="hook"):
            call(*tensors)
    assert fast.executor.replay.table.used == used and current() is None
    call(*tensors)
    assert again(fast, lambda: call(*tensors))


def test_neither_tensors_nor_the_backend_are_held(fast: Any) -> None:
    _, tensors, call = pooling(fast, "max")
    for _ in range(2):
        call(*tensors)
    seen = [weakref.ref(t.array.base if t.array.base is not None else t.array) for t in tensors]
    del tensors
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3


def test_no_more_is_kept_than_there_is_room_for(fast: Any) -> None:
    _, (image, pooled, _), call = pooling(fast, "avg")
    means = image.get().reshape(4, 3, 2, 3, 2, 3).mean(axis=(2, 4)).reshape(36, 3)
    for k in range(1030):
        call(image, pooled, alpha=float(k))
    assert 0 < fast.executor.replay.table.used <= 1024
    for k in (1, 2, 1029):
        call(image, pooled, alpha=float(k))
        assert np.allclose(pooled.get(), k * means, rtol=1e-5, atol=1e-6 * k)


# Kernels ---------------------------------------------------------------------------------------------------------


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
def _entry(words: Any) -> int:
    SEEN.append(words[:5])
    for act in MEANWHILE:
        act()
    return ANSWER[0]


SEEN: list[list[int]] = []
ANSWER = [0]
MEANWHILE: list[Callable[[], None]] = []
"""What others do while the kernel runs."""


class MadeUp:
    """A method of no class, whose launch is a function of this file."""

    argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_double)
    packed = ctypes.cast(_entry, ctypes.c_void_p).value

    def __init__(self, work: int = 100) -> None:
        self.work = work

    def __call__(self, *given: Any) -> int:
        return 0

    def method(self, be: Any, a: Any, b: Any = None, alpha: float = 1.0) -> Any:
        addresses = a.address, None if b is None else b.address
        launch = KernelCall(self, addresses, (7, alpha), self.work, refused="made_up: no memory").run()
        if (trace := current()) is not None:
            trace.primitive(launch, Operands((a, b)), [a])
        return a


def test_a_kernel_gets_addresses_working_memory_and_the_rest(fast: Any, extension: Any) -> None:
    made = extension.Forwarding(MadeUp().method, ("a", "b", "alpha"), 3, (), -1, False)
    a, b = some(fast, 2, 3), some(fast, 2, 3)
    SEEN.clear()
    for given in ((a,), (a,), (b, a, 0.5), (a, b, 0.5)):
        assert made(fast, *given) is given[0]
    halves = int.from_bytes(np.float64(0.5).tobytes(), "little")
    ones = int.from_bytes(np.float64(1).tobytes(), "little")
    assert [(*words[:2], *words[3:]) for words in SEEN] == [(a.ptr, 0, 7, ones), (a.ptr, b.ptr, 7, halves)]
    assert all(words[2] for words in SEEN)
    ANSWER[0] = 1
    with pytest.raises(MemoryError, match="made_up: no memory; free some and call again"):
        made(fast, a)
    ANSWER[0] = 0
    assert made(fast, a) is a
    for wrong in ((lambda: None, ()), (lambda: None, tuple(map(str, range(40)))), (3, ("a",))):
        with pytest.raises(TypeError):
            extension.Forwarding(*wrong, 1, (), -1, False)


def test_working_memory_is_as_large_as_each_call_needs(fast: Any, extension: Any) -> None:
    a = some(fast, 2, 3)
    small, large = (
        extension.Forwarding(MadeUp(work).method, ("a", "b", "alpha"), 3, (), -1, False) for work in (100, 1 << 20)
    )
    for made in (small, large):
        made(fast, a)
    release_workspace()
    for made, least in ((small, 100), (large, 1 << 20), (small, 1 << 20)):
        assert again(fast, lambda made=made: made(fast, a)) and kept_bytes() >= least


def test_a_call_ends_well_whose_program_was_forgotten_meanwhile() -> None:
    """As by another thread while the kernel runs. Python's debugging allocator overwrites what is freed."""
    code = """
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
from tests.kernels.c.test_fastpath_calls import MEANWHILE, MadeUp
assert fastpath.build()
be = gen_backend("cpu")
be.executor.replay.adopt(fastpath.asked_for())
made = fastpath.loaded().Forwarding(MadeUp().method, ("a", "b", "alpha"), 3, (), -1, False)
a = be.ones((2, 3))
made(be, a)
MEANWHILE.append(be.executor.replay.clear)
assert made(be, a) is a
assert be.executor.replay.table.calls == 1 and be.executor.replay.table.used == 0
"""
    done = python(code, PYTHONMALLOC="debug")
    assert done.returncode == 0, done.stderr


def test_threads_of_the_user_may_repeat_the_same_call(fast: Backend) -> None:
    _, tensors, call = pooling(fast, "max", 5)
    call(*tensors)
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal((4 * 36, 5)).astype(np.float32)
        right = values.reshape(4, 3, 2, 3, 2, 5).max(axis=(2, 4)).reshape(36, 5)
        mine = fast.array(values), fast.zeros((36, 5)), fast.zeros((36, 5), dtype=np.uint8)
        for turn in range(200):
            call(*mine, alpha=1.0 + seed * turn * 0)
            if turn == 100 and seed == 0:
                fast.executor.replay.clear()
            if not np.array_equal(mine[1].get(), right):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on fork beside threads
def test_a_forked_process_leaves_calls_to_python(fast: Any) -> None:
    _, (image, pooled, places), call = pooling(fast, "max")
    for _ in range(2):
        call(image, pooled, places)
    right, before = pooled.get(), hits(fast)
    child = os.fork()
    if child == 0:
        pooled[:] = 0
        call(image, pooled, places)
        os._exit(7 if np.array_equal(pooled.get(), right) and hits(fast) == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
