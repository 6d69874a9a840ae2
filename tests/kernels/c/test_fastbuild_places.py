"""Replacements of Python's functions by the extension: their behaviour, and freedom from leaks."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.errors import ShapeError
from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.run.program import Replayed
from neonlike.optree.functions import F
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS
from tests.support.replaying import both, by, extension, fast, put_back, tensors  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("nodes of the CPU's tensors"),
    pytest.mark.usefixtures("put_back"),
]


# In the place of functions ---------------------------------------------------------------------------------------


def test_a_builder_shows_what_its_function_shows(fast: Backend, extension: Any) -> None:
    seen = []
    for builders in ("C", "Python"):
        with by(extension, builders):
            functions = (fast.sig, fast.sum, fast.mean, type(fast).add, F.exp, fast.assign, type(fast).assign)
            seen.append(
                [(f.__name__, f.__qualname__, f.__doc__, f.__module__, inspect.signature(f)) for f in functions]
            )
            assert all(inspect.isroutine(f) for f in (fast.sig, fast.sum, fast.assign))
            assert fast.sig.__self__ is fast
            with pytest.raises(AttributeError):
                _ = F.exp.nothing
    assert seen[0] == seen[1]


def test_installing_and_removing_is_repeatable(fast: Backend, extension: Any) -> None:
    functions = []
    for _ in range(2):
        with by(extension, "Python"):
            functions.append((vars(F)["exp"].__func__, vars(type(fast).__mro__[0]), Backend.assign, Backend.sum))
        with by(extension, "C"):
            fastbuild.install(extension)
            fastbuild.attach(extension, CPUTensor)
            assert isinstance(vars(F)["exp"].__func__, extension.Builder)
            assert not isinstance(F.exp.__wrapped__, extension.Builder)
    assert functions[0] == functions[1]


@pytest.mark.parametrize("cls", [Expression, CPUTensor, OpTreeNode])
def test_operators_that_somebody_gives_a_class_are_called(
    fast: Backend, monkeypatch: pytest.MonkeyPatch, cls: type
) -> None:
    a, b = fast.ones((2, 3)), fast.ones((2, 3))
    thing: Any = a * 2 if cls is OpTreeNode else a
    with monkeypatch.context() as patch:
        patch.setattr(cls, "__add__", lambda self, other: "added")
        patch.setattr(cls, "__rsub__", lambda self, other: "taken")
        patch.setattr(cls, "__lt__", lambda self, other: "less")
        assert (thing + b, 3 - thing, thing < b) == ("added", "taken", "less")
        assert (thing * b).spec.name == "mul" and (thing - b).spec.name == "sub"
    assert (thing + b).spec.name == "add" and (3 - thing).spec.name == "sub" and (thing < b).spec.name == "lt"


def test_subclasses_of_tensors_have_operators_of_their_own(fast: Backend) -> None:
    class Mine(CPUTensor):
        def __radd__(self, other: Any) -> Any:
            return "mine"

        def __setitem__(self, index: Any, value: Any) -> None:
            written.append(value)

    written: list[Any] = []
    a, mine = fast.ones((2, 3)), Mine(fast, np.ones((2, 3), np.float32))
    assert a + mine == "mine" and (mine + a).spec.name == "add" and (a - mine).operands == (a, mine)
    mine[:] = 3
    assert written == [3] and isinstance(mine * 2, OpTreeNode)
    np.testing.assert_array_equal((mine * a).get(), np.ones((2, 3)))


def test_two_classes_of_tensors_are_known_in_any_order(fast: Backend, extension: Any) -> None:
    """A process may have a GPU's tensors beside the CPU's, also before them."""

    class Device(CPUTensor):
        pass

    class Third(CPUTensor):
        pass

    def refuse(*operands: Any) -> Any:
        raise LookupError

    a, b = fast.ones((2, 3)), fast.ones((2, 3))
    add = extension.Builder("binary", refuse, OPS["add"])
    with by(extension, "Python"):
        fastbuild.install(extension)
        for cls in (Device, CPUTensor, Third):
            fastbuild.attach(extension, cls)
        for known in (a, Device(fast, np.ones((2, 3), np.float32))):
            assert add(known, a).spec is (known + a).spec is OPS["add"] and (known < a).spec is OPS["lt"]
            known[:] = b * 2
            known[:1] = 5
            np.testing.assert_array_equal(known.get(), [[5, 5, 5], [2, 2, 2]])
        third = Third(fast, np.ones((2, 3), np.float32))
        with pytest.raises(LookupError):
            add(third, a)
        assert (third + a).spec is OPS["add"]


def test_what_is_no_expression_may_answer_itself(fast: Backend) -> None:
    class Other:
        def __add__(self, other: Any) -> str:
            return "other"

        def __gt__(self, other: Any) -> str:
            return "greater"

    a = fast.ones((2, 3))
    assert Other() + a == "other" and Other() + a * 2 == "other" and (Other() > a) == "greater"
    assert (a == "text") is False and (a != "text") is True
    with pytest.raises(TypeError):
        pow(a, 2, 3)
    with pytest.raises(AttributeError):
        del a[:]


# Assigning -------------------------------------------------------------------------------------------------------


def test_an_assign_of_somebodys_own_is_called(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    a, out = fast.ones((2, 3)), fast.zeros((2, 3))
    asked: list[Any] = []

    def assign(*given: Any) -> Any:
        asked.append(given[-2:])

    for owner in (fast, NervanaCPU, Backend):
        with monkeypatch.context() as patch:
            patch.setattr(owner, "assign", assign)
            out[:] = a
            assert asked.pop() == (out, a) and not asked
    with monkeypatch.context() as patch:
        patch.setattr(fast.executor.replay, "table", type("Table", (), {"run": lambda *given: Replayed.DONE})())
        out[:] = a
    assert (out.get() == 0).all()
    out[:] = a
    assert (out.get() == 1).all()


@pytest.mark.parametrize(
    "index", [slice(None), slice(0, None), slice(None, None, 1), ..., (slice(None), slice(None)), 0]
)
def test_every_index_stores(fast: Backend, extension: Any, index: Any) -> None:
    results = []
    for builders in ("C", "Python"):
        with by(extension, builders):
            for value in (3, fast.ones((1, 1)) * 2, np.full((3, 1), 4.0), [[5], [6], [7]]):
                out = fast.zeros((3, 1) if index != 0 else (3, 3))
                value = np.reshape(value, (1, 3)) if index == 0 and not isinstance(value, (int, OpTreeNode)) else value
                for _ in range(3):
                    out[index] = value
                results.append(out.get().tolist())
    assert results[:4] == results[4:]


def test_errors_of_an_assignment_come_through(fast: Backend, extension: Any) -> None:
    a, out = fast.ones((2, 3)), fast.zeros((2, 3))

    def store(value: Any) -> None:
        out[:] = value

    wrong = [fast.ones((4, 5)) + 1, "text", None, NervanaCPU(rng_seed=0).ones((2, 3)) + 1, 1j, [[1, 2], [3]]]
    calls = [lambda value=value: store(value) for value in wrong]
    calls += [lambda: fast.assign(3, a), lambda: fast.assign(out), lambda: fast.assign(target=out, value=a[:, :2])]
    in_c, in_python = both(extension, calls)
    assert in_c == in_python and all(issubclass(found[0], Exception) for found in in_c)
    assert (out.get() == 0).all()


# Together --------------------------------------------------------------------------------------------------------


def test_nodes_of_both_makes_are_one_expression(fast: Backend, extension: Any) -> None:
    a, b, _ = tensors(fast)
    wanted = np.tanh(a.get() * b.get() + 1).sum(axis=1, keepdims=True)
    for order in (("C", "Python"), ("Python", "C")):
        with by(extension, order[0]):
            inner = a * b + 1
        with by(extension, order[1]):
            outer = fast.sum(fast.tanh(inner), axis=1)
            out = fast.empty(outer.shape)
            for _ in range(3):
                out[:] = outer
                np.testing.assert_allclose(out.get(), wanted, 1e-5)
            gradient = Autodiff(outer, fast).get_grad_asnumpyarray([a])[0]
    np.testing.assert_allclose(gradient, b.get() * (1 - np.tanh(a.get() * b.get() + 1) ** 2), 1e-4, 1e-5)


def test_building_goes_on_while_builders_change(fast: Backend, extension: Any) -> None:
    a, b, out = tensors(fast)
    wanted, failures, going = a.get() * b.get() + 2, [], True

    def work() -> None:
        target = fast.empty(a.shape)
        while going:
            target[:] = F.add(a * b, 2)
            if not np.array_equal(target.get(), wanted):
                failures.append(target.get())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for builders in ("Python", "C") * 50:
        with by(extension, builders):
            out[:] = F.add(a * b, 2)
    going = False
    for thread in threads:
        thread.join()
    assert failures == []


# Memory ----------------------------------------------------------------------------------------------------------


def workout(be: Backend, a: Any, b: Any) -> None:
    """Every way through the builders, those that fail among them."""
    row, column = a[:1], a[:, :1]
    be.mean(be.where(row > column, a, 2.0) ** 2 / (1 - abs(-b)), axis=1)
    be.sum(be.exp(a * 3.5), axis=0) + be.max(b)
    for wrong in (lambda: a + b.T, lambda: a + None, lambda: be.sum(a, 7), lambda: be.exp(), lambda: be.where(a, 1)):
        with pytest.raises((ShapeError, TypeError)):
            wrong()
    a + True, a * np.float32(2), be.add(2, a), be.rand() + a, a == "text", be.sum(a, (0, 1))


def test_building_keeps_and_loses_no_reference(fast: Backend) -> None:
    a, b, _ = tensors(fast)
    number = 2.375
    things = [a, b, a.shape, a.dtype, fast, OPS["add"], OPS["sum"], number, None, True, a.array, a.root, NotImplemented]

    def once() -> None:
        workout(fast, a, b)
        _ = number * a + number

    for _ in range(5):
        once()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(200):
        once()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in things]
    assert max(abs(now - then) for now, then in zip(after, before)) < 20, list(zip(before, after))


def test_memory_of_building_does_not_grow(fast: Backend) -> None:
    a, b, out = tensors(fast)

    def once(count: int) -> None:
        for _ in range(count):
            workout(fast, a, b)
            out[:] = a[:1] * b + 1

    once(100)
    tracemalloc.start()
    try:
        once(200)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        objects = len(gc.get_objects())
        once(1000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        assert len(gc.get_objects()) - objects < 20
    finally:
        tracemalloc.stop()
    assert after - before < 50_000, "a node takes 112 bytes"


def test_the_collector_may_run_at_every_allocation(fast: Backend) -> None:
    """It looks at nodes while they are made."""
    a, b, out = tensors(fast)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(5):
            workout(fast, a, b)
            out[:] = fast.where(a > b, a * b, 2.0) - fast.mean(a, axis=1)
    finally:
        gc.set_threshold(*before)
    wanted = np.where(a.get() > b.get(), a.get() * b.get(), 2) - a.get().mean(axis=1, keepdims=True)
    np.testing.assert_allclose(out.get(), wanted, 1e-5, 1e-5)


def test_a_cycle_through_nodes_and_tensors_is_collected(fast: Backend) -> None:
    """A tensor keeps its place, which keeps the backend, on which users set attributes."""
    be = NervanaCPU(rng_seed=0)
    be.executor.replay.adopt(fastpath._state.module)
    a, out = be.ones((2, 3)), be.empty((2, 3))
    for _ in range(3):
        out[:] = a * 2 + 1
    be._mine = a.mine = a * 2  # type: ignore[attr-defined]
    watched = [weakref.ref(thing) for thing in (be, a, a.array)]
    del be, a, out
    gc.collect()
    assert [reference() for reference in watched] == [None] * 3


def test_long_chains_are_released(fast: Backend) -> None:
    a = fast.ones((2, 3))
    before = sys.getrefcount(a)
    chain = a
    for _ in range(100_000):
        chain = chain + a
    assert sys.getrefcount(a) > before + 100_000
    del chain
    assert sys.getrefcount(a) <= before + 1


def test_nodes_are_as_python_makes_them(fast: Backend) -> None:
    node = fast.ones((2, 3)) + 1
    assert type(node) is OpTreeNode and weakref.ref(node)() is node and gc.is_tracked(node)
    with pytest.raises(AttributeError):
        node.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        copy.copy(node)
