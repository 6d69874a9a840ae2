"""Backward passes that were made before: the values and derivatives of those that play the tape."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import extension, fast  # noqa: F401

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.autograd.ops.common import derived, with_rule
from neonlike.backends import Backend
from neonlike.backends.executor import forget_all
from neonlike.errors import GradientError
from neonlike.kernels.c import fastpath
from neonlike.optree import tape

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]

Loss = Callable[..., Any]


def _layers(x: Any, w: Any, v: Any, t: Any) -> Any:
    return -ag.sum(t * ag.log_softmax(ag.relu(x @ w) @ v, 1)) * (1 / 6)


LOSSES: dict[str, Loss] = {
    "layers": _layers,
    "twice": lambda x, w, v, t: ag.sum(ag.tanh(x @ w) * ag.tanh(x @ w) + (x @ w) * 2.0),
    "shared": lambda x, w, v, t: ag.sum(ag.softmax((x @ w) @ (w.T @ w), 1) ** 2),
    "norms": lambda x, w, v, t: ag.norm2(x @ w) + ag.sum(ag.logsumexp(x @ w, 1)) * 0.5,
    "all": lambda x, w, v, t: ag.mean(x * x) + ag.sum(w * w) + ag.sum(v).detach() * ag.sum(v * v) + ag.sum(t),
}


def variables(be: Backend, seed: int, rows: int = 6) -> list[Any]:
    rng = np.random.default_rng(seed)
    x, w, v = (be.array(rng.standard_normal(shape)) for shape in ((rows, 5), (5, 7), (7, 3)))
    t = be.array(np.eye(3)[rng.integers(0, 3, rows)])
    return [ag.param(x), ag.param(w), ag.param(v), ag.const(t)]


def outcome(loss: Any, given: list[Any]) -> list[bytes]:
    """The bytes of the value, after a pass, and of derivatives."""
    found = [loss.get(), *(one.partial_derivative.get() for one in given if one.needs_grad)]
    return [array.tobytes() for array in found]


def played(be: Backend, build: Loss, given: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """As :func:`outcome`, of a pass that plays the tape; what was gathered is forgotten."""
    with monkeypatch.context() as patch:
        patch.setattr(passes, "repeat", lambda be, root: None)
        loss = build(*given)
        loss.backprop()
    found = outcome(loss, given)
    ag.zero_grad(given)
    return found


def repeated(be: Backend) -> int:
    """How many passes are known."""
    return sum(isinstance(known, passes.Pass) for known in be.executor.replay.passes.values())


@pytest.mark.parametrize("name", LOSSES)
def test_a_repeated_pass_gives_the_same(fast: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = LOSSES[name]
    for seed in range(5):
        given = variables(fast, seed)
        wanted = played(fast, build, given, monkeypatch)
        hits = fast.executor.replay.launches.hits
        loss = build(*given)
        loss.backprop()
        if seed > 1:
            assert fast.executor.replay.launches.hits == hits, "nothing but the pass was run"
        assert outcome(loss, given) == wanted
        assert tape.kept == {} and loss.parents == ()
    assert repeated(fast) == 1


def test_derivatives_add_up(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(4):
        _layers(*given).backprop()
    single = variables(fast, 0)
    _layers(*single).backprop()
    for one, alone in zip(given[:3], single[:3]):
        np.testing.assert_allclose(one.partial_derivative.get(), 4 * alone.partial_derivative.get(), 1e-5)


def test_what_looks_alike_is_told_apart(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, axes, which variables are parameters, layouts and how leaves are connected."""
    first, other, wide = variables(fast, 0), variables(fast, 1), variables(fast, 2, rows=9)
    fixed = [ag.const(first[0].value), *first[1:]]
    cases: list[tuple[Loss, list[Any]]] = [
        (lambda x, w, v, t, k=k: ag.sum(ag.tanh(x @ w) * k), given)
        for k in (2, 2.0, 3.0, -1, -3) for given in (first, wide, fixed)
    ]  # fmt: skip
    cases += [(lambda x, w, v, t, axis=axis: ag.sum(ag.softmax(x, axis) * x), other) for axis in (0, 1, -1)]
    cases += [(lambda x, w, v, t: ag.sum((x @ w) * (x @ w)), first), (lambda x, w, v, t: ag.sum((x @ w) ** 2), first)]
    cases += [(lambda x, w, v, t: ag.sum(x * x.value), first), (lambda x, w, v, t: ag.sum(x * x), first)]
    cases += [(lambda x, w, v, t: ag.sum(x.T * ag.const(x.value.T)), first)]
    for _ in range(4):
        for build, given in cases:
            wanted = played(fast, build, given, monkeypatch)
            loss = build(*given)
            loss.backprop()
            assert outcome(loss, given) == wanted
            ag.zero_grad(given)
    assert repeated(fast) >= 15


def test_rules_are_told_apart_by_their_options(fast: Backend) -> None:
    x = ag.param(np.ones((2, 3)))
    found = []
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 7.0, None, None, None):

        def grad(F: Any, d: Any, z: Any, a: Any, k: float = factor or 11.0) -> tuple[Any, ...]:
            return (d * k,)

        def build(a: Any, options: Any = None if factor is None else (factor,), grad: Any = grad) -> Any:
            return with_rule("mine", a * 3, (a,), grad, options=options)

        ag.sum(derived("mine", build, x)).backprop()
        found.append(x.partial_derivative.get()[0, 0])
        x.zero_grad()
    assert found == [2, 2, 2, 5, 5, 5, 7, 11, 11, 11]
    assert repeated(fast) == 2


def test_leaves_that_overlap_are_no_reason_to_mistake_one_for_another(
    fast: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4):
        whole = fast.array(np.random.default_rng(seed).standard_normal((12, 5)))
        for start in (0, 3, 6):
            a, b = ag.const(whole[:6]), ag.const(whole[start : start + 6])
            w, v = ag.param(np.ones((5, 6))), ag.param(np.ones((5, 6)))
            build: Loss = lambda w, v, a=a, b=b: ag.sum(ag.tanh(a @ w)) + ag.sum(ag.tanh(b @ v))  # noqa: E731
            wanted = played(fast, build, [w, v], monkeypatch)
            loss = build(w, v)
            loss.backprop()
            assert outcome(loss, [w, v]) == wanted


def test_views_of_parameters_are_played(fast: Backend) -> None:
    w = ag.param(np.ones((4, 5)))
    slopes = 2 / np.cosh(np.ones((4, 5))) ** 2 + 5 * np.eye(5)[:1]
    for count in range(1, 5):
        ag.sum(ag.tanh(w) * 2.0 + ag.const(w._expr[:, :1])).backprop()
        assert repeated(fast) == 0
        np.testing.assert_allclose(w.partial_derivative.get(), count * slopes, 1e-5)


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
    """A second pass through the graph, derivatives of what is computed, values that were asked for before."""
    given = variables(fast, 0)
    for _ in range(4):
        ag.zero_grad(given)
        _layers(*given).backprop()
    wanted = [one.partial_derivative.get() for one in given[:3]]

    def check(build: Loss) -> None:
        ag.zero_grad(given)
        factor = build()
        for one, host in zip(given[:3], wanted):
            np.testing.assert_allclose(one.partial_derivative.get(), factor * host, 1e-5, 1e-6)

    def twice() -> int:
        loss = _layers(*given)
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
        _layers(*given).backprop()
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))
    made = {place for step in known.steps for place, _, _ in step.made}
    dropped = [place for step in known.steps for place in step.dropped]
    stay = {known.value, *(place for _, place in known.gradients)}
    assert len(dropped) == len(set(dropped)) and set(dropped) == made - stay and known.steps[0].dropped != dropped
    leaf = weakref.ref(given[1]._expr)
    given[1].assign(np.ones((5, 7)))
    assert leaf() is None, "a pass holds none of the tensors that it was recorded with"


def test_clearing_forgets(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables(fast, 0)
    for forget in (fast.executor.clear, forget_all, lambda: fast.executor.record(None)):
        for _ in range(3):
            _layers(*given).backprop()
        known = repeated(fast)
        forget()
        assert repeated(fast) == 0
        assert known == 1 or fast.executor.replay.launches is None
        fast.executor.replay.adopt(fastpath.loaded())
    monkeypatch.setattr(passes, "MOST_PASSES", 4)
    for k in range(9):
        ag.sum(given[0] * float(k)).backprop()
        assert len(fast.executor.replay.passes) <= 4


def test_no_memory_for_a_kernel(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tape is played then, and nothing has changed."""
    given = variables(fast, 0)
    for _ in range(3):
        _layers(*given).backprop()
    ag.zero_grad(given)
    wanted = played(fast, _layers, given, monkeypatch)
    (known,) = (one for one in fast.executor.replay.passes.values() if isinstance(one, passes.Pass))

    class Refusing:
        def run(self, tensors: list[Any]) -> bool:
            return False

    known.steps[-1] = known.steps[-1]._replace(fixed=Refusing())
    loss = _layers(*given)
    loss.backprop()
    assert outcome(loss, given) == wanted


def test_fixed_assignments_refuse_what_they_cannot_know(fast: Backend) -> None:
    launches = fast.executor.replay.launches
    a, b, out = (fast.ones((3, 4)) for _ in range(3))
    out[:] = a + b
    pairs = [(out, a + b)]
    assert launches.fixed(fast, pairs, [a, b]) is None, "the target is none of the bases"
    assert launches.fixed(fast, [(out, a - b)], [a, b, out]) is None, "it was not learned"
    fixed = launches.fixed(fast, pairs, [out, b, a])
    assert fixed.bases == {0, 1, 2}
    c = fast.full((3, 4), 5)
    target = fast.empty((3, 4))
    assert fixed.run([target, a, c]) and (target.get() == 6).all()
    assert not fixed.run([target, a]) and not fixed.run([target, a, None])
    for wrong in (None, (out, a, b)):
        with pytest.raises(TypeError):
            fixed.run(wrong)
    calls = [lambda: launches.fixed(fast, pairs), lambda: launches.tape(fast, a + b), lambda: launches.tape(1, 2, 3)]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert launches.tape(fast, a, {}) is None and launches.tape(None, a + b, {}) is None
    node = a + b
    assert launches.tape(fast, node, {id(node): None}) is None
    key, leaves = launches.tape(fast, node, {1: None})
    assert isinstance(key, bytes) and leaves == (a, b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_the_same(fast: Backend) -> None:
    given = variables(fast, 0)
    for _ in range(3):
        _layers(*given).backprop()
    ag.zero_grad(given)
    _layers(*given).backprop()
    wanted = given[1].partial_derivative.get()
    child = os.fork()
    if child == 0:
        try:
            ag.zero_grad(given)
            _layers(*given).backprop()
            same = np.allclose(given[1].partial_derivative.get(), wanted, 1e-5)
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
