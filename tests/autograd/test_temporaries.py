"""Small tensors that a backward pass keeps for its next run: which share memory, and that two threads share none."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes, temporaries
from neonlike.autograd.temporaries import Making, Temporaries
from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from tests.autograd.repeated_passes import layers, repeated, variables
from tests.support.replaying import extension, fast  # noqa: F401

needs_extension = pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle())
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def steps(*rows: tuple[dict[int, tuple[int, int]], tuple[int, ...]], dtype: Any = F32) -> list[Making]:
    """Assignments that make tensors of these shapes, and let others go."""
    return [Making(None, tuple((p, shape, dtype) for p, shape in made.items()), over) for made, over in rows]


def lying(be: Backend, made: list[Making]) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Address and shape of each tensor that is held, by place."""
    return {place: (tensor.ptr, tensor.shape) for place, tensor in Temporaries(be, made).take()}


def test_tensors_share_memory_if_one_is_over_before_the_other_begins(be: Backend) -> None:
    made = steps(({1: (2, 3)}, ()), ({2: (2, 3)}, (1,)), ({3: (3, 2)}, (2,)), ({4: (2, 2)}, (3, 4)))
    found = lying(be, made)
    assert {place: shape for place, (_, shape) in found.items()} == {1: (2, 3), 2: (2, 3), 3: (3, 2), 4: (2, 2)}
    assert found[3][0] == found[1][0] and len({address for address, _ in found.values()}) == 3


def test_tensors_of_other_types_share_no_memory(be: Backend) -> None:
    first, second = steps(({1: (2, 2)}, (1,))), steps(({2: (2, 2)}, (2,)), dtype=F64)
    assert len({address for address, _ in lying(be, first + second).values()}) == 2


def test_results_are_made_in_each_run(be: Backend) -> None:
    made = steps(({1: (2, 3), 2: (2, 3)}, ()), ({3: (2, 3)}, (1,)))
    held = Temporaries(be, made)
    assert [place for place, _ in held.take()] == [1]
    assert [(tuple(one[0] for one in step.made), step.dropped) for step in held.left_to_make(made)] == [
        ((2,), ()), ((3,), ()),
    ]  # fmt: skip


def test_no_more_is_held_than_allowed(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporaries, "MOST_BYTES", 24)
    made = steps(({1: (2, 3)}, ()), ({2: (2, 2)}, (1,)), ({3: (6, 1)}, (2,)), ({4: (1, 1)}, (3, 4)))
    assert sorted(lying(be, made)) == [1, 3]


def test_what_was_given_back_is_used_again_and_no_other(be: Backend) -> None:
    held = Temporaries(be, steps(({1: (2, 3)}, (1,))))
    first, second = held.take(), held.take()
    assert first[0][1].ptr != second[0][1].ptr
    held.give_back(first)
    assert held.take() is first


@needs_extension
@pytest.mark.cpu_only("replayed assignments of the CPU")
def test_threads_that_run_one_pass_do_not_disturb_each_other(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(3):
        ag.zero_grad(given[:3])
        layers(*given).backprop()
    expected = [one.partial_derivative.get() for one in given[:3]]
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))
    assert repeated(fast) == 1 and known._temporaries._lying
    wrong: list[int] = []

    def run() -> None:
        own = [ag.param(one.value.get(), backend=fast) for one in given[:3]]
        for turn in range(50):
            ag.zero_grad(own)
            layers(*own, *given[3:]).backprop()
            if any((a.partial_derivative.get() != b).any() for a, b in zip(own, expected)):
                wrong.append(turn)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
