"""Repeated passes through primitives, windows and concatenations: attention, its heads, and its kept values."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.program import Replayed
from neonlike.optree import tape
from neonlike.optree.dtypes import bfloat16
from neonlike.optree.functions import F
from tests.autograd.repeated_passes import Loss, outcome, played, repeated
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]

SAMPLES, LENGTH, WIDTH, HEADS = 2, 3, 8, 2


def given_to(be: Backend, seed: int, dtype: Any = np.float32) -> list[Any]:
    """Tokens, weights of queries, keys and values, weights of the later layers, and a constant."""
    rng = np.random.default_rng(seed)
    shapes = (SAMPLES * LENGTH, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (SAMPLES, WIDTH)
    x, w, v, t = (be.array(rng.standard_normal(shape), dtype=dtype) for shape in shapes)
    return [ag.param(x), ag.param(w), ag.param(v), ag.const(t)]


def seen(x: Any, w: Any, **options: Any) -> Any:
    """Attention of each token to the other tokens of its sample."""
    parts = (x @ w).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS)
    heads = (parts[:, :, i].transpose(1, 2) for i in range(3))
    return ag.scaled_dot_product_attention(*heads, **options).transpose(1, 2).reshape(-1, WIDTH)


def block(x: Any, w: Any, v: Any, t: Any, **options: Any) -> Any:
    """The loss of one block of an encoder."""
    h = ag.layer_norm(x + seen(x, w, **options) @ v, 1)
    return ag.sum(ag.mean(h.reshape(-1, LENGTH, WIDTH), 1, keepdims=False) * t)


def check(be: Backend, build: Loss, monkeypatch: pytest.MonkeyPatch, rounds: int = 5) -> None:
    """A loss and its gradients are those of a tape that is played, and the pass is repeated from the third on."""
    for seed in range(rounds):
        given = given_to(be, seed)
        wanted = played(be, build, given, monkeypatch)
        hits = be.executor.replay.table.hits
        loss = build(*given)
        loss.backprop()
        if seed > 1:
            assert be.executor.replay.table.hits == hits, "nothing but the pass was run"
        assert outcome(loss, given) == wanted
        assert tape.kept == {}


MOVES: dict[str, Loss] = {
    "windows": lambda x, w, v, t: ag.sum(ag.tanh((x @ w)[1:5, 2:7]) * 2.0) + ag.sum(x @ v),
    "turned round": lambda x, w, v, t: ag.sum(ag.tanh((x @ w)[:, ::-1]) * (x @ w)),
    "every second": lambda x, w, v, t: ag.sum(ag.tanh((x @ w)[::2]) * (x @ w)[1::2]) + ag.sum(v),
    "side by side": lambda x, w, v, t: ag.sum(ag.exp(ag.concatenate([x @ v, x, x @ v], 1) * 0.1) @ w.T),
    "one below the other": lambda x, w, v, t: ag.sum(ag.exp(ag.concatenate([x @ v, x], 0) * 0.1) @ w),
    "reshaped": lambda x, w, v, t: ag.sum(ag.tanh((x @ v).T.reshape(-1, 6)) @ x) + ag.sum(w),
}


@pytest.mark.parametrize("name", MOVES)
def test_passes_that_move_elements_are_repeated(fast: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(fast, MOVES[name], monkeypatch)
    assert repeated(fast) == 1


def test_a_block_of_an_encoder_is_repeated(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    check(fast, block, monkeypatch)
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))
    assert len(known.made) == 1 + len(known.gradients) and known.program.kernels > len(known.made)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
@pytest.mark.parametrize("name", [*MOVES, "a block"])
def test_passes_of_16_bits_are_repeated(fast: Backend, name: str, dtype: Any) -> None:
    """With conversions as their steps, they give what Python gives, bit by bit."""
    build = MOVES.get(name, block)
    for seed in range(4):
        given, found = given_to(fast, seed, dtype), []
        for context in (fast.executor.replay.paused(), nullcontext()):
            hits = fast.executor.replay.table.hits
            with context:
                loss = build(*given)
                loss.backprop()
            assert seed < 2 or fast.executor.replay.table.hits == hits, "nothing but the pass was run"
            found.append(outcome(loss, given))
            ag.zero_grad(given)
        assert found[0] == found[1]
    assert repeated(fast) == 1


def test_what_is_kept_of_primitives_is_kept_again(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is read before the backward pass: attention's results are kept for that, or its sums alone."""

    def asked(*given: Any) -> Any:
        loss = block(*given)
        loss.get()
        return loss

    def squares(x: Any, w: Any, v: Any, t: Any) -> Any:
        found = seen(x, w)
        loss = ag.sum(found * found) + ag.sum(v)
        loss.get()
        return loss

    for build in (asked, squares):
        fast.executor.clear()
        for seed in range(5):
            given = given_to(fast, seed)
            wanted = played(fast, build, given, monkeypatch)
            loss = build(*given)
            entries = [entry for entry in tape.kept.values() if entry.parts]
            assert len(entries) == 1 and len(entries[0].parts) == 1
            loss.backprop()
            assert outcome(loss, given) == wanted and tape.kept == {}
        assert repeated(fast) == 1 and repeated(fast, values=True) == 1


def test_primitives_are_told_apart_by_their_requests(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[dict[str, Any]] = [{}, {"causal": True}, {"scale": 0.25}]
    builds: list[Loss] = [lambda *given, more=more: block(*given, **more) for more in options]
    found = set()
    for seed in (0, 0, 0, 1):
        given = given_to(fast, seed)
        for build in builds:
            wanted = played(fast, build, given, monkeypatch)
            loss = build(*given)
            loss.backprop()
            assert outcome(loss, given) == wanted
            ag.zero_grad(given)
            found.add(wanted[0])
    assert repeated(fast) == 3 and len(found) == 6


def _windows(fast: Backend) -> Iterator[tuple[Any, Any]]:
    """Expressions that differ in one attribute of a move alone, and their values."""
    a, b = (fast.array(np.random.default_rng(seed).standard_normal((4, 4))) for seed in (1, 2))
    x, y, weights = a.get(), b.get(), fast.array(np.arange(32.0).reshape(1, 32))
    for start in (0, 1, 2):
        window = F.view(F.exp(a), ((2, 4), (4, 1), 4 * start))
        yield F.sum(window * window), (np.exp(x)[start : start + 2] ** 2).sum()
    for step in (1, 2):
        yield F.sum(F.view(F.exp(a), ((2, 2), (4, step), 0)) * 2), np.exp(x)[:2, : 2 * step : step].sum() * 2
    for rows in (4, 5, 7):
        zeros = F.unview(F.exp(a), (rows, 4), ((4, 4), (4, 1), 0))
        yield F.sum(F.exp(zeros)), np.exp(np.exp(x)).sum() + 4 * (rows - 4)
    for axis in (0, 1):
        both = fast.concatenate([F.exp(a), F.exp(b)], axis).reshape(1, 32)
        wanted = np.concatenate([np.exp(x), np.exp(y)], axis).reshape(-1)
        yield F.sum(both * weights), wanted @ np.arange(32)


def test_moves_are_told_apart_by_their_attributes(fast: Backend) -> None:
    for again in range(3):
        out, hits = fast.empty((1, 1)), fast.executor.replay.table.hits
        cases = list(_windows(fast))
        for value, wanted in cases:
            out[:] = value
            np.testing.assert_allclose(out.item(), wanted, 1e-4)
        if again:
            assert fast.executor.replay.table.hits == hits + len(cases)


def test_what_was_learned_of_fresh_targets_is_for_these_alone(fast: Backend) -> None:
    """Ordinary targets are not written before all that may fail has run; fresh ones are."""
    a, run = fast.ones((3, 3)), fast.executor.replay.table.run_many
    for first in (True, False):
        fast.executor.clear()
        pairs = [(fast.empty((3, 3)), F.exp(a)), (fast.empty((3, 3)), F.dot(F.exp(a), a))]
        for _ in range(2):
            (fast.assign_fresh if first else fast.assign_many)(pairs)
        assert run(fast, pairs, first) is Replayed.DONE
        assert run(fast, pairs, not first) is Replayed.NEW


def test_what_was_learned_of_a_primitive_holds_no_operands(fast: Backend) -> None:
    operands = [fast.array(np.ones((1, 2, 4, 8))) for _ in range(4)]
    arrays = [weakref.ref(array if array.base is None else array.base) for array in (one.array for one in operands)]
    for _ in range(3):
        operands[3][:] = fast.attention(*operands[:3])
    hits = fast.executor.replay.table.hits
    operands[3][:] = fast.attention(*operands[:3])
    assert fast.executor.replay.table.hits == hits + 1
    operands.clear()
    gc.collect()
    assert [array() for array in arrays] == [None] * 4
