"""Records of passes: their launches, and the watched objects below a network."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, watched
from neonlike.kernels.c import fastpath
from neonlike.kernels.run import trace
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.depends import ANY_VALUE, Dependent, Depends
from neonlike.kernels.run.prepared import PreparedSequence
from neonlike.kernels.run.program import Program, is_repeatable, join
from neonlike.kernels.run.trace import Operands
from neonlike.layers import Bias, Sequential
from neonlike.layers.core.chain import running
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.nervanaobject import NervanaObject
from tests.backends.replays.replayed_nets import WARM, Net, steps
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


def test_work_that_is_no_kernel_is_not_recorded(fast: Backend) -> None:
    a, b, out = (fast.array(np.ones((4, 4))) for _ in range(3))
    for _ in range(3):
        out[:] = a + b
    with trace.tracing(fast) as made:
        out[:] = a + b
    assert made.is_whole and len(made.runs) == 1
    with trace.tracing(fast) as made:
        out[:] = fast.rand()
    assert made.is_whole and not is_repeatable(made.runs), "others are drawn each time"
    with trace.tracing(fast) as made:
        fast.batched_dot(fast.array(np.ones((2, 4, 4))), b, fast.array(np.ones((2, 4, 4))))
    assert not made.is_whole
    for operands in (Operands((a,)), None):
        with trace.tracing(fast) as made:
            made.primitive(KernelCall(None, (a.address,), ()), operands)  # which started no kernel
        assert not made.is_whole
    with trace.tracing(fast) as made:
        fast.compound_dot(a, b, out)
        made.primitive(KernelCall(None, (a.address, b.address), ()), Operands((a, b)))
    assert not made.is_whole
    with trace.tracing(fast) as made:
        fast.executor.clear()
    assert not made.is_whole
    assert fast.executor.replay.table is not None, "what was paused goes on"


def test_primitives_in_an_assignment_are_recorded_once(fast: Backend) -> None:
    """Each alone, and then with the rest, a target that is read would be written too soon."""
    rng = np.random.default_rng(2)
    heads, keys, a, b = (fast.array(rng.standard_normal((1, 2, 4, 8))) for _ in range(4))
    pairs = lambda: [(a, fast.attention(heads, keys, keys)), (b, a * 2 + heads)]  # noqa: E731
    for _ in range(3):
        fast.assign_many(pairs())
    with trace.tracing(fast) as made:
        fast.assign_many(pairs())
    assert made.is_whole and len(made.runs) == 1
    guard = fast.executor.replay.guard(join(made.runs, made.held), ())
    a.fill(3)
    assert guard.run()
    np.testing.assert_allclose(b.get(), 6 + heads.get(), rtol=1e-6)


UNSEEN: dict[str, Callable[[Backend, Any, Any], object]] = {
    "prepared": lambda be, a, out: be.prepare(out, a * 2)(),
    "prepared sequence": lambda be, a, out: PreparedSequence(be, [be.prepare(out, a * 2)])(),
    "values of the host": lambda be, a, out: out.set(np.ones(out.shape)),
    "an array": lambda be, a, out: out.__setitem__(slice(None), np.ones(out.shape, np.float32)),
    "chosen rows": lambda be, a, out: out.__setitem__([2, 0], a[:2]),
    "a copy of rows": lambda be, a, out: out.__setitem__(slice(2), a[[1, 0]]),
    "random numbers": lambda be, a, out: be.fill_normal(out),
    "read": lambda be, a, out: a.get(),
    "as an array": lambda be, a, out: np.asarray(a),
    "cleared memory": lambda be, a, out: be.empty((4, 4)),
}
"""What a recorder has to be told of, since it is done on the host or by kernels of its own."""


@pytest.mark.parametrize("name", UNSEEN)
def test_work_beside_kernels_is_not_recorded(fast: Backend, name: str) -> None:
    a, out = (fast.array(np.arange(16).reshape(4, 4)) for _ in range(2))
    for _ in range(3):
        UNSEEN[name](fast, a, out)
    with trace.tracing(fast) as made:
        UNSEEN[name](fast, a, out)
    assert not made.is_whole


def test_work_on_copies_is_not_recorded(fast: Backend) -> None:
    x = fast.array(np.arange(64).reshape(4, 16))[:, ::2]
    rows, y = [fast.zeros((4, 1)) for _ in range(6)], fast.empty((4, 8))
    with trace.tracing(fast) as made:
        fast.compound_fprop_bn(x, *rows, y, 1e-3, 0.9, True)
    assert len(made.runs) == 1 and not made.is_whole


def test_two_threads_do_not_pause_at_once(fast: Backend) -> None:
    replay = fast.executor.replay
    table = replay.table
    with replay.paused() as outer:
        with replay.paused() as inner:
            assert not inner()
        assert outer() and replay.table is None
    assert replay.table is table is not None


# Watches --------------------------------------------------------------------------------------------------------------


class Thing:
    """An object watched below a network."""

    def __init__(self) -> None:
        self.one, self.two = "one", "two"

    def method(self) -> None:
        """Something."""


class Other(Thing):
    """A class derived from it."""


def _holds(extension: Any, thing: Any, change: Callable[[], object]) -> tuple[bool, bool]:
    """Whether a record of no kernels may be run, before and after a change."""
    found = watched._items(thing if isinstance(thing, dict) else vars(thing)) if not isinstance(thing, list) else thing
    items = tuple(found)
    record = extension.Guard(extension.Program(*Program((), 0, 0)), ((thing, items),))
    first = record.run() and record.run()
    change()
    return first, record.run()


def test_attributes_are_watched(extension: Any) -> None:
    changes: list[Callable[[Other], object]] = [
        lambda thing: setattr(thing, "two", 2),
        lambda thing: setattr(thing, "three", 3),
        lambda thing: delattr(thing, "two"),
        lambda thing: setattr(thing, "__dict__", dict(vars(thing))),
        lambda thing: setattr(thing, "__class__", Thing),
        lambda thing: vars(thing).update(one=1),
    ]
    for change in changes:
        thing = Other()
        assert _holds(extension, thing, lambda thing=thing, change=change: change(thing)) == (True, False)
    thing = Other()
    assert _holds(extension, thing, lambda: setattr(thing, "one", thing.one)) == (True, True)


@pytest.mark.parametrize("owner", [Thing, Other])
def test_classes_are_watched(extension: Any, monkeypatch: pytest.MonkeyPatch, owner: type) -> None:
    change = lambda: monkeypatch.setattr(owner, "method", lambda self: 1, raising=False)  # noqa: E731
    assert _holds(extension, Other(), change) == (True, False)


def _changed_often() -> tuple[type, type]:
    """A class and its base that Python, from 3.13 on, gives no version any more."""
    base = type("Base", (Thing,), {"method": lambda self: 0})
    derived = type("Derived", (base,), {})
    for value in range(1100):
        for cls in (base, derived):
            cls.backend = value  # type: ignore[attr-defined]
            assert cls.backend == value  # type: ignore[attr-defined]
    return base, derived


def test_classes_that_have_changed_often_are_watched(extension: Any) -> None:
    changes: list[Callable[[type, type], object]] = [
        lambda base, derived: setattr(base, "method", lambda self: 1),
        lambda base, derived: setattr(derived, "method", lambda self: 1),
        lambda base, derived: delattr(base, "method"),
        lambda base, derived: setattr(derived, "__bases__", (Other,)),
        lambda base, derived: setattr(base, "__bases__", (Other,)),
    ]
    for change in changes:
        base, derived = _changed_often()
        assert _holds(extension, derived(), lambda: change(base, derived)) == (True, False)  # noqa: B023
    assert _holds(extension, _changed_often()[1](), lambda: None) == (True, True)


def test_passes_are_repeated_on_the_thousandth_backend(fast: Backend) -> None:
    """Every new backend is set on the class of all layers."""
    net = Net(fast)
    for _ in range(1100):
        NervanaObject.be = fast
        assert net.layers[0].be is fast
    steps(net, WARM)
    hits = net.hits()
    steps(net, 3)
    assert net.hits() == hits + 6


def test_lists_and_dictionaries_are_watched(extension: Any) -> None:
    for change in (lambda x: x.append(3), lambda x: x.pop(), lambda x: x.__setitem__(0, 5), lambda x: x.reverse()):
        thing = [1, 2]
        assert _holds(extension, thing, lambda thing=thing, change=change: change(thing)) == (True, False)
    for change in (lambda x: x.update(c=3), lambda x: x.pop("a"), lambda x: x.update(a=5), lambda x: x.clear()):
        named = {"a": 1, "b": 2}
        assert _holds(extension, named, lambda named=named, change=change: change(named)) == (True, False)


def test_what_a_watch_cannot_hold_is_refused(extension: Any) -> None:
    nothing = extension.Program(*Program((), 0, 0))
    for program, watches in ((nothing, ((1, ()),)), (nothing, (([1], ()),)), (None, ()), (Program((), 1, 0), ())):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            extension.Guard(program if not isinstance(program, Program) else extension.Program(*program), watches)


def test_a_class_is_the_librarys_only_with_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Sequential.__new__(Sequential)
    vars(holder)["inner"] = Bias.__new__(Bias)
    original = Bias.fprop

    @functools.wraps(original)
    def noted(self: Any, *args: Any) -> Any:
        return original(self, *args)

    called = type("Called", (), {"__call__": noted})()
    cached, partly = functools.lru_cache(noted), functools.partial(noted)
    inside = contextlib.contextmanager(noted)  # a function of Python's own, with it inside
    for other in (noted, staticmethod(noted), property(noted), partly, cached, called, inside):
        assert watched.watches([holder]) is not None
        with monkeypatch.context() as patch:
            patch.setattr(ParameterLayer, "set_acc_on", other)
            assert watched.watches([holder]) is None


def test_what_is_found_below_a_root() -> None:
    holder = Sequential.__new__(Sequential)
    inner = [1, {"a": (2.0, [3])}]
    vars(holder).update(inner=inner, init=object())
    found = watched.watches([holder])
    assert found is not None
    assert [thing for thing, *_ in found if isinstance(thing, list | dict)] == [inner, inner[1], [3]]
    for value in (object(), len, lambda: 1, {1}, Thing()):
        holder.inner = value
        assert watched.watches([holder]) is None


class Speaking(Dependent):
    """An object of the user's that says itself what passes depend on."""

    def __init__(self) -> None:
        self.inner, self.count, self.held = [Bias.__new__(Bias)], 0, Thing()

    def depends_on(self) -> Depends:
        """All but its count, and nothing below what it holds."""
        return Depends(closed=frozenset(("held",)), free=frozenset(("count",)))


class Silent(Speaking):
    """Its methods may do anything."""


def test_an_object_says_what_passes_depend_on(extension: Any) -> None:
    speaking = Speaking()
    found = watched.watches([speaking])
    assert found is not None
    assert [thing for thing, *_ in found] == [speaking, speaking.inner, speaking.inner[0]]
    assert watched.watches([Silent()]) is None, "what it inherits knows nothing of its methods"
    changes: list[tuple[Callable[[], object], bool]] = [
        (lambda: setattr(speaking, "count", 7), True),
        (lambda: speaking.held.__dict__.update(one=1), True),
        (lambda: speaking.inner.append(1), False),
        (lambda: setattr(speaking, "held", Thing()), False),
    ]
    for change, stays in changes:
        found = watched.watches([speaking])
        assert found is not None
        guard = extension.Guard(extension.Program(*Program((), 0, 0)), tuple(found), ANY_VALUE)
        assert guard.run()
        change()
        assert guard.run() == stays
        speaking.inner[1:] = []


def test_a_class_that_speaks_has_the_methods_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec("def noted(self, *args):\n    return None", namespace)
    with monkeypatch.context() as patch:
        patch.setattr(Speaking, "depends_on", Speaking.depends_on)
        assert watched.watches([Speaking()]) is not None
        patch.setattr(Speaking, "other", namespace["noted"], raising=False)
        assert watched.watches([Speaking()]) is None
    assert watched.watches([Speaking()]) is not None


def test_a_chain_runs_in_its_thread_alone() -> None:
    with running:
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(running.depth))
        other.start()
        other.join()
        assert (running.depth, seen) == (1, [0])
    assert running.depth == 0
