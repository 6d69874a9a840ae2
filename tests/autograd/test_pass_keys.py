"""Backward passes that look alike: which are told apart, and which are repeated from values that were asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.autograd.ops.common import derived, with_rule
from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from neonlike.optree import tape
from tests.autograd.repeated_passes import Loss, layers, outcome, played, repeated, variables
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]


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
    """A pass that is met where one constant lies in another is recorded where they lie apart, or partly so."""
    for seed in range(4):
        whole = fast.array(np.random.default_rng(seed).standard_normal((12, 5)))
        for start in (0, 0, 0, 3, 6) if seed else (0, 0, 3, 3, 6, 6):
            a, b = ag.const(whole[:6]), ag.const(whole[start : start + 6])
            w, v = ag.param(np.ones((5, 6))), ag.param(np.ones((5, 6)))
            build: Loss = lambda w, v, a=a, b=b: ag.sum(ag.tanh(a @ w)) + ag.sum(ag.tanh(b @ v))  # noqa: E731
            wanted = played(fast, build, [w, v], monkeypatch)
            loss = build(w, v)
            loss.backprop()
            assert outcome(loss, [w, v]) == wanted
    assert repeated(fast) == 1


def test_views_of_parameters_are_played(fast: Backend) -> None:
    w = ag.param(np.ones((4, 5)))
    slopes = 2 / np.cosh(np.ones((4, 5))) ** 2 + 5 * np.eye(5)[:1]
    for count in range(1, 5):
        ag.sum(ag.tanh(w) * 2.0 + ag.const(w._expr[:, :1])).backprop()
        assert repeated(fast) == 0
        np.testing.assert_allclose(w.partial_derivative.get(), count * slopes, 1e-5)


def test_views_of_parameters_are_told_from_views_of_constants(fast: Backend) -> None:
    w, other = ag.param(np.ones((4, 5))), fast.ones((4, 5))
    for _ in range(4):
        ag.sum(ag.tanh(w) * ag.const(other.T.T)).backprop()
    assert repeated(fast) == 1
    w.zero_grad()
    ag.sum(ag.tanh(w) * ag.const(w._expr.T.T)).backprop()
    slope = 1 / np.cosh(1) ** 2 + np.tanh(1)
    np.testing.assert_allclose(w.partial_derivative.get(), np.full((4, 5), slope), 1e-5)


def _asked(which: str, x: Any, w: Any, v: Any, t: Any) -> Any:
    """Loss with some values read before its backward pass."""
    hidden = ag.relu(x @ w)
    scores = hidden @ v
    loss = -ag.sum(t * ag.log_softmax(scores, 1)) * (1 / 6)
    for name, one in {"hidden": hidden, "scores": scores, "loss": loss}.items():
        if name in which:
            one.get()
    return loss


def test_values_that_were_asked_for_before_are_not_computed_again(
    fast: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("", "hidden", "scores", "loss", "hidden loss", "scores hidden")
    builds: list[Loss] = [lambda *given, which=which: _asked(which, *given) for which in asked]
    for seed in range(5):
        given = variables(fast, seed)
        for build in builds:
            wanted = played(fast, build, given, monkeypatch)
            hits = fast.executor.replay.table.hits
            loss = build(*given)
            loss.backprop()
            assert outcome(loss, given) == wanted
            assert tape.kept == {} and loss.parents == ()
            if seed > 1:
                assert fast.executor.replay.table.hits == hits, "nothing but the pass was run"
            ag.zero_grad(given)
    assert repeated(fast) == 4, "the last two keep what others keep"
    assert repeated(fast, values=True) == 5, "of hidden, scores, loss, and of these two after hidden"


def test_kept_values_that_are_leaves_too_are_told_apart(fast: Backend) -> None:
    """A node has kept either of two values beside each other."""
    rng = np.random.default_rng(0)
    for which in (0, 0, 0, 1, 0, 1):
        given = [ag.param(rng.random((2, 3))) for _ in range(2)]
        results = [ag.exp(one) for one in given]
        first, second = (result.value for result in results)
        ag.sum(ag.const(first) * ag.const(second) * results[which]).backprop()
        wanted = first.get() * second.get() * (first, second)[which].get()
        np.testing.assert_allclose(given[which].partial_derivative.get(), wanted, rtol=1e-6)
    assert repeated(fast) >= 1


def test_repeated_values_keep_what_played_ones_keep(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables(fast, 0)
    found = []
    for time in range(5):
        with monkeypatch.context() as patch:
            if not time:
                patch.setattr(passes, "_tape_of", lambda be, root, how: None)
            loss = layers(*given)
            value = loss.get()
        told = {(e.why, e.leads, e.tensor.get().tobytes(), e.parts) for e in tape.kept.values()}
        assert all(entry.alive() is not None for entry in tape.kept.values())
        found.append((value.tobytes(), told, loss.explain()))
        del loss
        assert tape.kept == {}
    assert found[1:] == found[:-1] and repeated(fast, values=True) == 1


def test_values_of_constants_are_repeated_and_nothing_is_kept(fast: Backend) -> None:
    x, w, *_ = variables(fast, 0)
    for count in range(4):
        a, b = ag.const(x.value * float(count)), ag.const(w.value)
        found = ag.tanh(a @ b)
        assert found.value is found.value and not tape.kept
        np.testing.assert_allclose(found.get(), np.tanh(a.get() @ b.get()), 1e-5, 1e-6)
    with_gradients = ag.tanh(ag.param(a.value) @ b)
    assert with_gradients.value is with_gradients.value and len(tape.kept) == 1
    assert repeated(fast, values=True) == 1 and repeated(fast) == 0


def test_a_pass_goes_from_values_as_they_were_asked_for(fast: Backend) -> None:
    """Writes into values below them, or into the values, have the same effect as in a played backward pass."""
    for written in (False, True):
        found = []
        for _ in range(4):
            x, w, v, _ = given = variables(fast, 0)
            hidden = x @ w
            hidden.get()
            active = ag.tanh(hidden)
            loss = ag.sum(active @ v)
            if written:
                x.value[:] = x.value * 2
                hidden.value[:] = hidden.value + 1
            loss.backprop()
            assert tape.kept == {}, "what was kept is let go, though its node lives"
            found.append([*outcome(loss, given[:3]), active.get().tobytes()])
        assert found[1:] == found[:-1]
    assert repeated(fast) == 1


def test_many_bytes_of_kept_values_are_let_go_one_by_one(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST_KEPT", 6 * 7 * 4)
    for which, count in (("hidden scores", 0), ("hidden", 1)):
        for _ in range(4):
            _asked(which, *variables(fast, 0)).backprop()
        assert repeated(fast) == count


def test_rules_are_told_apart_by_what_they_do(fast: Backend) -> None:
    """Two of one name, and options that are equal but not the same."""
    x = ag.param(np.ones((2, 3)))
    one, other = (lambda F, d, z, a: (d * 2,)), (lambda F, d, z, a: (d * 3,))
    keys = [tape.rule_key("mine", option) for option in (1, 1.0, True, 0.0, -0.0, "1")]
    assert len(set(keys)) == 6 and tape.rule_key("mine", []) is None
    for grad, factor in ((one, 2), (one, 2), (one, 2), (other, 3), (one, 2)):
        ag.sum(derived("mine", lambda a, grad=grad: with_rule("mine", a * 5, (a,), grad, options=()), x)).backprop()
        assert x.partial_derivative.get()[0, 0] == factor
        x.zero_grad()
    assert repeated(fast) == 1


def test_there_are_only_so_many_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tape.rule_key("detach")
    monkeypatch.setattr(tape, "_MOST_RULES", 0)
    assert known is not None and tape.rule_key("detach") == known and tape.rule_key("another") is None


def test_a_pass_that_another_thread_recorded_meanwhile_stays(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables(fast, 0)
    layers(*given).backprop()
    finish = passes.Recording.finish

    def beaten(self: Any, value: Any, gradients: dict[int, Any]) -> None:
        finish(self, value, gradients)
        self.is_whole = False
        finish(self, value, gradients)

    monkeypatch.setattr(passes.Recording, "finish", beaten)
    layers(*given).backprop()
    assert repeated(fast) == 1
