"""Backward passes with random numbers that were made before: each draws its own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.autograd.leaves import derived
from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from tests.autograd.repeated_passes import Loss, outcome, repeated, variables
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]


def masked(x: Any, w: Any, v: Any, t: Any) -> Any:
    hidden = ag.dropout(ag.relu(x @ w), 0.7)
    return -ag.sum(t * ag.log_softmax(ag.dropout(hidden, 0.9) @ v * 0.1, 1)) * 3


def noisy(x: Any, w: Any, v: Any, t: Any) -> Any:
    shaken = derived("shaken", lambda a: a + a.backend.randn() * 0.1, x @ w)
    return ag.sum(ag.tanh(shaken) @ v * derived("scaled", lambda a: a + a.backend.rand(), t) * 3)


LOSSES: dict[str, Loss] = {"masked": masked, "noisy": noisy}


def steps(be: Backend, build: Loss, count: int, by_tape: bool, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """Outcomes of passes from the same random state on, on other tensors each time."""
    be.gen_rng(2)
    found = []
    with monkeypatch.context() as patch:
        if by_tape:
            patch.setattr(passes, "_tape_of", lambda be, root, how: None)
        for seed in range(count):
            given = variables(be, seed % 3)
            loss = build(*given)
            loss.backprop()
            found.append(outcome(loss, given))
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_each_pass_draws_its_own_numbers(fast: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = steps(fast, LOSSES[name], 9, True, monkeypatch)
    assert steps(fast, LOSSES[name], 9, False, monkeypatch) == wanted
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))
    assert known.program.hits == 7 and len({tuple(found) for found in wanted}) == 9


def test_another_seed_is_another_pass(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for by_tape in (True, False):
        given = variables(fast, 0)
        with monkeypatch.context() if by_tape else nullcontext() as patch:
            if patch is not None:
                patch.setattr(passes, "_tape_of", lambda be, root, how: None)
            for seed in (1, 1, 1, 1, 2, 2, 2, 2):
                fast.gen_rng(seed)
                ag.zero_grad(given)
                loss = masked(*given)
                loss.backprop()
                found.append(outcome(loss, given))
    assert found[:8] == found[8:] and found[0] == found[3] != found[4] == found[7]
    assert repeated(fast) == 2


def test_calls_that_are_made_twice_are_told_apart_later(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes with the numbers of one call, as after the random state was put back, and then with those of two."""

    def both(x: Any, w: Any, v: Any, t: Any) -> Any:
        state = fast.rng_get_state()
        one = ag.dropout(x @ w, 0.5)
        if again[0]:
            fast.rng_set_state(state)
        return ag.sum(ag.dropout(x @ w, 0.5) * one)

    found = []
    for by_tape in (True, False):
        fast.gen_rng(7)
        for count in range(8):
            again = [count < 4]
            found += steps_of(fast, both, by_tape, monkeypatch)
    assert found[:8] == found[8:]


def steps_of(be: Backend, build: Loss, by_tape: bool, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The outcome of one pass."""
    given = variables(be, 0)
    with monkeypatch.context() as patch:
        if by_tape:
            patch.setattr(passes, "_tape_of", lambda be, root, how: None)
        loss = build(*given)
        loss.backprop()
    return [outcome(loss, given)]


def test_values_that_are_asked_for_draw_their_own_numbers(fast: Backend) -> None:
    x, found = ag.const(np.ones((3, 4))), []
    for _ in range(8):
        found.append(ag.dropout(x * 2.0, 0.5).get())
        assert set(np.unique(found[-1])) <= {0, 4}
    assert len({one.tobytes() for one in found}) > 5 and repeated(fast, values=True) == 1
