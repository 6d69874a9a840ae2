"""Memory of intermediate tensors on the CPU is used again once nothing looks at it, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.kernels.run import reuse

pytestmark = [pytest.mark.engines("numpy"), pytest.mark.cpu_only("a GPU has a pool of its own")]
SHAPE = 128, 256
SIZE = 4 * 128 * 256


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Nothing waits before and after."""
    reuse.pieces.release()
    yield
    reuse.pieces.release()


def test_memory_of_a_tensor_that_is_gone_is_used_again(be: Backend) -> None:
    first = be.fresh(SHAPE)
    where = first.ptr
    del first
    assert reuse.pieces.waiting_bytes() == SIZE
    second = be.fresh((256, 128))
    assert second.ptr == where and second.is_contiguous and second.shape == (256, 128)
    assert reuse.pieces.waiting_bytes() == 0
    assert be.fresh(SHAPE).ptr != where


@pytest.mark.parametrize("look", [lambda t: t[3:5], lambda t: t.reshape(-1, 1), lambda t: np.asarray(t)[::2]])
def test_what_is_still_looked_at_is_not(be: Backend, look: Any) -> None:
    tensor = be.fresh(SHAPE)
    tensor[:] = 5
    view = look(tensor)
    del tensor
    assert reuse.pieces.waiting_bytes() == 0
    other = be.fresh(SHAPE)
    other[:] = 1
    assert np.all(np.asarray(view) == 5)
    del view
    assert reuse.pieces.waiting_bytes() == SIZE


def test_users_tensors_small_and_large_ones_go_at_once(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (be.empty, be.zeros, be.ones):
        make(SHAPE)
    be.fresh((4, 4))
    monkeypatch.setattr(reuse, "MOST", SIZE - 1)
    be.fresh(SHAPE)
    assert reuse.pieces.waiting_bytes() == 0


def test_what_waits_is_counted_and_given_back(be: Backend) -> None:
    before = be.memory_stats()
    tensor = be.fresh(SHAPE)
    assert be.memory_stats().used == before.used + SIZE
    del tensor
    after = be.memory_stats()
    assert (after.used, after.reserved) == (before.used, before.reserved + SIZE)
    assert be.release_memory() >= SIZE
    assert reuse.pieces.waiting_bytes() == be.release_memory() == 0
    be.fresh(SHAPE)
    be.cleanup_backend()
    assert reuse.pieces.waiting_bytes() == 0


def test_sizes_that_do_not_come_again_are_given_back(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "WAITING", 3 * SIZE)
    for rows in range(128, 140):
        be.fresh((rows, 256))
        assert reuse.pieces.waiting_bytes() <= 5 * SIZE
    assert len(reuse.pieces._lent) == sum(map(len, reuse.pieces._waiting.values()))


def test_pieces_that_nobody_asks_for_are_given_back_in_time(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [reuse.pieces._since + 100]
    monkeypatch.setattr(reuse, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tensors = [be.fresh(SHAPE) for _ in range(3)]
    large = be.fresh((256, 256))
    del tensors, large
    for _ in range(5):
        now[0] += reuse.UNUSED / 4
        pair = be.fresh(SHAPE), be.fresh(SHAPE)
        del pair
    assert reuse.pieces.waiting_bytes() == 5 * SIZE
    now[0] += 2 * reuse.UNUSED
    be.fresh(SHAPE)
    now[0] += 2 * reuse.UNUSED
    be.fresh(SHAPE)
    assert reuse.pieces.waiting_bytes() == SIZE
    assert len(reuse.pieces._lent) == 1


def test_temporaries_of_plans_are_used_again(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = be.ones((256, 256)), be.empty((256, 256))
    value = be.dot(be.dot(be.dot(x, x) * 0.5, x) * 0.5, x)
    out[:] = value
    assert 0 < reuse.pieces.waiting_bytes() <= 3 * out.nbytes, "a temporary is let go after the last that reads it"
    monkeypatch.setattr(reuse, "aligned_empty", lambda *given: pytest.fail(f"memory was asked for: {given}"))
    out[:] = value
    assert np.all(out.get() == 256 * 128 * 128)


def test_a_training_step_takes_no_new_memory(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    fresh = reuse.aligned_empty
    monkeypatch.setattr(reuse, "aligned_empty", lambda *given: made.append(given) or fresh(*given))  # type: ignore[func-returns-value]
    w, x = ag.param(be.ones((256, 256))), be.ones((128, 256))
    for _ in range(3):
        ag.zero_grad([w])
        ag.tanh(ag.tanh(ag.const(x) @ w) @ w).sum().backprop()
        large = [shape for shape, _ in made if np.prod(shape) >= reuse.LEAST]
        made.clear()
    assert large == []


def test_threads_never_share_a_piece(be: Backend) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(300):
            tensors = [be.fresh(SHAPE) for _ in range(2)]
            for tensor in tensors:
                tensor.array.fill(number)
            wrong.extend(t for t in tensors if not np.all(t.array[::31] == number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
