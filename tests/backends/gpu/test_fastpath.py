"""Assignments on the GPU that the CPython extension queues, without Python: which are, and which are left to Python."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import BackendUnavailable
from neonlike.kernels.c import fastpath
from tests.backends.gpu.shortage import running_out
from tests.support.engines import needs_compiler
from tests.support.replaying import Asker

pytestmark = [pytest.mark.usefixtures("gpu_driver"), pytest.mark.checked]


@pytest.fixture(scope="module")
def be(gpu_driver: object) -> Any:
    """A GPU backend that has the extension."""
    needs_compiler()
    made, asker = gen_backend("gpu", rng_seed=0, batch_size=16), Asker()
    fastpath.request(asker.adopt)
    if fastpath._state.thread is not None:
        fastpath._state.thread.join()
    made.executor.replay.adopt(asker.module)
    return made


def hits(be: Any) -> int:
    return int(be.executor.replay.table.hits)


def host(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)


ASSIGNMENTS = {
    "elementwise": ((5, 7), lambda be, a, b: a * b + 2.5, lambda a, b: a * b + 2.5),
    "a column": ((5, 7), lambda be, a, b: a / be.sum(b[:, :1], axis=1), None),
    "sum of rows": ((5, 1), lambda be, a, b: be.sum(a * b, axis=1), lambda a, b: (a * b).sum(1, keepdims=True)),
    "sum of columns": ((1, 7), lambda be, a, b: be.sum(a, axis=0), lambda a, b: a.sum(0, keepdims=True)),
    "transposed": ((7, 5), lambda be, a, b: a.T - b.T, lambda a, b: (a - b).T),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_a_replayed_assignment_gives_the_same(be: Any, name: str) -> None:
    shape, expression, wanted = ASSIGNMENTS[name]
    found = []
    for seed in range(4):
        a, b, out = be.array(host((5, 7), seed)), be.array(host((5, 7), seed + 9)), be.zeros(shape)
        before = hits(be)
        out[:] = expression(be, a, b)
        found.append(hits(be) - before)
        reference = wanted(a.get(), b.get()) if wanted else a.get() / b.get()[:, :1]
        np.testing.assert_allclose(out.get(), reference, 1e-5)
    assert found[0] == 0
    if name != "a column":  # two kernels
        assert found[-2:] == [1, 1]


def test_a_sum_in_several_launches_keeps_its_working_memory(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reduction over 300,000 elements has a launch of its own; other sums of the same size run in between."""
    rooms: list[int] = []
    a, out = be.array(host((600, 500))), be.empty((1, 1))
    starts = be.device.starts.block
    monkeypatch.setattr(be.device.starts, "block", lambda *given: rooms.append(len(given[0])) or starts(*given))
    b = be.array(2 * a.get())
    for turn in range(4):
        before = hits(be)
        for source in (a, b):
            out[:] = be.sum(be.absolute(source - be.max(source)))
            wanted = source.get().astype(np.float64)
            np.testing.assert_allclose(out.get()[0, 0], np.abs(wanted - wanted.max()).sum(), 1e-5)
        assert turn < 2 or hits(be) == before + 2
    assert rooms == [2]


def test_nothing_else_gets_the_working_memory_of_a_repeated_sum(be: Any) -> None:
    """Tensors that are made after it was learned keep their values when it runs."""
    a, out = be.ones((600, 500)), be.empty((1, 1))
    for _ in range(3):
        out[:] = be.sum(a * a)
    before = hits(be)
    others = [be.empty((count, 1)).fill(7) for count in range(4, 200, 2)]
    out[:] = be.sum(a * a)
    assert hits(be) == before + 1 and out.get()[0, 0] == 300_000
    assert all((other.get() == 7).all() for other in others)


def test_a_sum_for_which_no_memory_can_be_kept_is_made_but_not_repeated(be: Any) -> None:
    """Memory for repeating a sum is requested after its first run."""
    a, out = be.ones((3, 1 << 16)), be.empty((3, 1))
    for _ in range(4):
        out.fill(0)
        before = hits(be)
        with running_out(be, 1):
            out[:] = be.sum(a, axis=1)
        assert (out.get() == 1 << 16).all() and hits(be) == before


def test_where_tensors_begin_is_told_apart(be: Any) -> None:
    """The kernel for rows that begin at 16 bytes reads four elements at once; others must not run it."""
    wide, out = be.array(host((8, 64))), be.empty((8, 32))
    for turn in range(4):
        for first in (0, 1, 2, 4, 16, 17):
            before = hits(be)
            out[:] = wide[:, first : first + 32] * (turn + 1)
            np.testing.assert_allclose(out.get(), wide.get()[:, first : first + 32] * (turn + 1), 1e-6)
            assert turn < 2 or hits(be) == before + 1


def test_how_tensors_lie_is_told_apart(be: Any) -> None:
    whole, out = be.array(host((6, 8))), be.empty((6, 4))
    for _ in range(4):
        for part in (slice(0, 4), slice(0, 8, 2)):
            out[:] = whole[:, part] * 2
            np.testing.assert_array_equal(out.get(), whole.get()[:, part] * 2)


def test_several_targets_and_numbers(be: Any) -> None:
    a, b = be.array(host((4, 6))), be.array(host((4, 6), 1))
    for turn in range(4):
        x, y, before = a.get(), b.get(), hits(be)
        be.assign_many([(a, a * 0.5 + b * turn), (b, b - a * 0.25)])
        np.testing.assert_allclose(a.get(), x * 0.5 + y * turn, 1e-5)
        np.testing.assert_allclose(b.get(), y - x * 0.25, 1e-5)
    assert hits(be) == before + 1


def test_stochastic_rounding_is_left_to_python(be: Any) -> None:
    a, out = be.array(np.full((30, 40), 1 + 2.0**-9)), be.empty((30, 40))
    for _ in range(3):
        out[:] = a * 1.0
    before, out.rounding = hits(be), 4
    means = []
    for _ in range(2):
        out[:] = a * 1.0
        means.append(out.get().copy())
    assert hits(be) == before and not np.array_equal(*means)
    out.rounding = 0
    out[:] = a * 1.0
    assert hits(be) == before + 1 and (out.get() == np.float32(1 + 2.0**-9)).all()


def test_what_is_captured_is_not_run_at_once(be: Any) -> None:
    a, out = be.ones((3, 5)), be.zeros((3, 5))

    def step() -> None:
        out[:] = out + a

    for _ in range(3):
        step()
    before = hits(be)
    step()
    assert hits(be) == before + 1
    graph = be.device.capture.graph([step])
    assert (out.get() == 4).all()
    graph()
    graph()
    assert (out.get() == 6).all()
    before = hits(be)
    step()
    assert (out.get() == 7).all() and hits(be) == before + 1


def test_other_threads_and_their_contexts(be: Any) -> None:
    a, failures = be.ones((3, 5)), []

    def work() -> None:
        try:
            out = be.zeros((3, 5))
            for _ in range(4):
                out[:] = out * 1 + a
            assert (out.get() == 4).all()
        except BaseException as error:
            failures.append(error)

    for _ in range(2):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_closed_backend_refuses_what_it_has_learned(be: Any, gpu_driver: object) -> None:
    other = gen_backend("gpu", rng_seed=0, batch_size=16)
    other.executor.replay.adopt(fastpath._state.module)
    a, out = other.ones((3, 5)), other.zeros((3, 5))
    for _ in range(4):
        out[:] = a * 3
    assert hits(other) > 0
    other.cleanup_backend()
    with pytest.raises(BackendUnavailable):
        out[:] = a * 3
