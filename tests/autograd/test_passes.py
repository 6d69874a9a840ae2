"""Backward passes that were made before: the values and derivatives of those that play the tape."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.autograd.laid import Laid
from neonlike.backends import Backend
from neonlike.backends.executor import forget_all
from neonlike.errors import GradientError
from neonlike.kernels.c import fastpath
from neonlike.optree import tape
from tests.autograd.repeated_passes import Loss, layers, outcome, played, repeated, variables
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]

LOSSES: dict[str, Loss] = {
    "layers": layers,
    "twice": lambda x, w, v, t: ag.sum(ag.tanh(x @ w) * ag.tanh(x @ w) + (x @ w) * 2.0),
    "shared": lambda x, w, v, t: ag.sum(ag.softmax((x @ w) @ (w.T @ w), 1) ** 2),
    "norms": lambda x, w, v, t: ag.norm2(x @ w) + ag.sum(ag.logsumexp(x @ w, 1)) * 0.5,
    "all": lambda x, w, v, t: ag.mean(x * x) + ag.sum(w * w) + ag.sum(v).detach() * ag.sum(v * v) + ag.sum(t),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_repeated_pass_gives_the_same(fast: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = LOSSES[name]
    for seed in range(5):
        given = variables(fast, seed)
        wanted = played(fast, build, given, monkeypatch)
        hits = fast.executor.replay.table.hits
        loss = build(*given)
        loss.backprop()
        if seed > 1:
            assert fast.executor.replay.table.hits == hits, "nothing but the pass was run"
        assert outcome(loss, given) == wanted
        assert tape.kept == {} and loss.parents == ()
    assert repeated(fast) == 1


def test_derivatives_add_up(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(4):
        layers(*given).backprop()
    single = variables(fast, 0)
    layers(*single).backprop()
    for one, alone in zip(given[:3], single[:3]):
        np.testing.assert_allclose(one.partial_derivative.get(), 4 * alone.partial_derivative.get(), 1e-5)


def test_rules_of_ones_own_are_asked_each_time(fast: Backend) -> None:
    asked = []

    def increments(d: Any, z: Any, a: Any) -> Any:
        asked.append(len(asked))
        return d * float(len(asked))

    double = ag.op(lambda a: a * 2, increments)
    x = ag.param(np.ones((2, 3)))
    found = []
    for _ in range(4):
        before = len(asked)
        ag.sum(double(x)).backprop()
        assert len(asked) > before
        found.append(x.partial_derivative.get()[0, 0])
        x.zero_grad()
    assert found == sorted(set(found)) and repeated(fast) == 0


def test_passes_that_ask_for_more_are_played(fast: Backend) -> None:
    """A second pass through the graph, derivatives of intermediate values, and values read before are played."""
    given = variables(fast, 0)
    for _ in range(4):
        ag.zero_grad(given)
        layers(*given).backprop()
    wanted = [one.partial_derivative.get() for one in given[:3]]

    def check(build: Loss) -> None:
        ag.zero_grad(given)
        factor = build()
        for one, host in zip(given[:3], wanted):
            np.testing.assert_allclose(one.partial_derivative.get(), factor * host, 1e-5, 1e-6)

    def twice() -> int:
        loss = layers(*given)
        loss.backprop(keep_graph=True)
        loss.backprop()
        with pytest.raises(GradientError, match="freed by an earlier"):
            loss.backprop()
        return 2

    def asked_before() -> int:
        x, w, v, t = given
        hidden = ag.relu(x @ w)
        hidden.get()
        (-ag.sum(t * ag.log_softmax(hidden @ v, 1)) * (1 / 6)).backprop()
        return 1

    def of_hidden() -> int:
        x, w, v, t = given
        hidden = (x @ w).keep_derivative()
        (-ag.sum(t * ag.log_softmax(ag.relu(hidden) @ v, 1)) * (1 / 6)).backprop()
        np.testing.assert_allclose(x.value.get().T @ hidden.partial_derivative.get(), wanted[1], 1e-5, 1e-6)
        return 1

    for build in (twice, asked_before, of_hidden):
        for _ in range(3):
            check(build)


def test_memory_is_let_go(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(3):
        ag.zero_grad(given)
        layers(*given).backprop()
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))
    assert len(known.made) == 1 + len(known.gradients), "other tensors lie in working memory"
    leaf = weakref.ref(given[1]._expr)
    given[1].assign(np.ones((5, 7)))
    assert leaf() is None, "a pass holds none of the tensors that it was recorded with"


def test_clearing_forgets(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables(fast, 0)
    for forget in (fast.executor.clear, forget_all, lambda: fast.executor.record(None)):
        for _ in range(3):
            layers(*given).backprop()
        known = repeated(fast)
        forget()
        assert repeated(fast) == 0
        assert known == 1 or fast.executor.replay.table is None
        fast.executor.replay.adopt(fastpath.loaded())
    monkeypatch.setattr(passes, "MOST_PASSES", 4)
    for k in range(9):
        ag.sum(given[0] * float(k)).backprop()
        assert len(fast.executor.replay.passes) <= 4


def test_no_memory_for_a_kernel(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tape is played then, and nothing has changed."""
    given = variables(fast, 0)
    for _ in range(3):
        layers(*given).backprop()
    ag.zero_grad(given)
    wanted = played(fast, layers, given, monkeypatch)
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))

    class Refusing:
        def run_on(self, tensors: tuple[Any, ...], calls: tuple[int, ...]) -> bool:
            return False

    (key,) = (key for key, one in fast.executor.replay.passes.items() if one is known)
    fast.executor.replay.passes[key] = known._replace(program=Refusing())
    loss = layers(*given)
    loss.backprop()
    assert outcome(loss, given) == wanted


def test_what_a_tape_is_not(fast: Backend) -> None:
    table = fast.executor.replay.table
    a, b, c, out = (fast.ones((3, 4)) for _ in range(4))
    for call in (lambda: table.tape(fast, a + b), lambda: table.tape(1, 2, 3)):
        with pytest.raises(TypeError):
            call()
    assert table.tape(fast, a, {}) is None and table.tape(None, a + b, {}) is None
    node = a + b
    assert table.tape(fast, node, {id(node): None}) is None
    whole = tape.Kept(weakref.ref(node), out, (), "", True)
    for entry in (tuple(whole)[:4], whole._replace(parts=(a + b,)), whole._replace(tensor=a + b)):
        assert table.tape(fast, node, {id(node): entry}) is None
    key, leaves, met, nodes, calls = table.tape(fast, node, {1: None})
    assert isinstance(key, bytes) and leaves == (a, b) and met == [] and nodes == (node,)
    assert calls == ()
    other, leaves, met, nodes, _ = table.tape(fast, node, {id(node): whole})
    assert other != key and leaves == (a, b, out) and met == [id(node)] and nodes == (node,)
    further, leaves, met, _, _ = table.tape(fast, node, {id(node): whole._replace(parts=(c,))})
    assert further not in (key, other) and leaves == (a, b, out, c) and met == [id(node)]
    alone, leaves, _, _, _ = table.tape(fast, node, {id(node): whole._replace(tensor=a + b, parts=(c,))})
    assert alone not in (key, other, further) and leaves == (a, b, c)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_the_same(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(3):
        layers(*given).backprop()
    ag.zero_grad(given)
    layers(*given).backprop()
    wanted = given[1].partial_derivative.get()
    child = os.fork()
    if child == 0:
        try:
            ag.zero_grad(given)
            layers(*given).backprop()
            same = np.allclose(given[1].partial_derivative.get(), wanted, 1e-5)
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_temporaries_share_the_memory_of_those_that_are_gone(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[Any] = []
    original = Laid.program
    monkeypatch.setattr(Laid, "program", lambda self: (original(self), rooms.extend(self._rooms.values()))[0])
    x = ag.param(np.ones((256, 256)))
    for _ in range(4):
        y = x
        for _ in range(8):
            y = ag.tanh(y @ x)
        ag.sum(y).backprop()
    assert repeated(fast) == 1 and 0 < len(set(rooms)) < len(rooms)


def test_a_pass_with_work_of_the_host_is_played(fast: Backend) -> None:
    def forward(out: Any, x: Any) -> None:
        out[:] = x * 2
        out.set(out.get() + 1)

    odd = ag.op(fast.primitive(forward, lambda error, out, x: error * 2), lambda d, z, a: d * 2.0)
    for turn in range(6):
        x = ag.param(np.full((2, 3), float(turn)))
        value = ag.sum(odd(x))
        value.backprop()
        assert value.get().item() == 6 * (2 * turn + 1)
    assert repeated(fast) == 0
