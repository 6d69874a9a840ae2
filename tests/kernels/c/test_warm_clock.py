"""When a warm-up stops, by a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.backends.cpu.backend import compiled_engine
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c.engine import CEngine
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.c.warm import CollectingEngine, Fate, ScriptStopped, WarmUp

pytestmark = [
    pytest.mark.cpu_only("the C compiler and its cache"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler on this machine"),
]


class Watched:
    """A backend whose kernels a warm-up collects, and its clock."""

    def __init__(self, **options: float) -> None:
        self.now = 100.0
        self.warm_up = WarmUp(clock=lambda: self.now, **options)
        with compiled_engine(lambda: CollectingEngine(self.warm_up)):
            self.be = gen_backend("cpu", rng_seed=0)
        self.a, self.out = self.be.array(np.ones((4, 4))), self.be.empty((4, 4))

    def runs(self, count: int, number: int = 0) -> None:
        """Assign ``count`` times with the kernel of a number."""
        value = self.a
        for _ in range(number):
            value = value * self.a
        for _ in range(count):
            self.out[:] = self.be.exp(value)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NEONLIKE_FASTPATH", "0")
    monkeypatch.delenv("NEONLIKE_CPU_JIT", raising=False)
    monkeypatch.setattr(compile_c.DRIVER, "loaded", {})
    made: list[Watched] = []

    def make(**options: float) -> Watched:
        made.append(Watched(**options))
        return made[-1]

    yield make
    for each in made:
        each.warm_up.finish()
    cleanup_backend()


def test_idle_counts_from_the_last_new_kernel(watched: Callable[..., Watched]) -> None:
    w = watched(idle=10)
    w.now += 1000  # reading data, say
    w.runs(1)
    w.now += 9
    w.runs(5)
    w.runs(1, number=1)
    w.now += 9
    w.runs(20)
    w.now += 1
    with pytest.raises(ScriptStopped) as stop:
        w.runs(1)
    assert stop.value.reason == "no new kernel for 10 s" and stop.value.code == 0
    with pytest.raises(SystemExit):  # also for a program that catches the first
        w.runs(1)
    assert w.warm_up.finish().fates == {Fate.COMPILED: 2}
    w.runs(1, number=7)
    np.testing.assert_allclose(w.out.get(), np.e, rtol=1e-6)


def test_as_many_runs_as_before_have_to_bring_nothing_new(watched: Callable[..., Watched]) -> None:
    w = watched(idle=10)
    w.runs(50)
    w.runs(1, number=1)
    w.now += 60  # a slow minibatch
    w.runs(48)
    w.runs(1, number=2)
    w.now += 60
    w.runs(97)
    with pytest.raises(ScriptStopped):
        w.runs(1)


def test_the_limit_counts_from_the_start(watched: Callable[..., Watched]) -> None:
    w = watched(limit=10)
    w.now += 9.5
    w.runs(3)
    w.now += 1
    with pytest.raises(ScriptStopped, match="0") as stop:
        w.runs(1, number=1)
    assert "10 s are over" in stop.value.reason
    assert w.warm_up.finish().fates == {Fate.COMPILED: 2}, "the kernel met last is compiled too"


def test_without_a_limit_it_never_stops(watched: Callable[..., Watched]) -> None:
    w = watched()
    w.runs(1)
    w.now += 1e9
    w.runs(10)
    assert w.warm_up.finish().complete


def test_layouts_are_met_once(watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    sources = CEngine.sources
    monkeypatch.setattr(CEngine, "sources", lambda *args: asked.append(args) or sources(*args))
    w = watched()
    w.runs(10)
    wide, other = w.be.array(np.ones((6, 8))), w.be.empty((6, 4))
    for _ in range(3):
        other[:] = w.be.exp(wide[:, ::2])
        w.out[:] = w.be.exp(wide[:4, 4:])
    assert len(asked) == 3


def test_the_engine_is_replaced_only_while_asked(watched: Callable[..., Watched]) -> None:
    be: Backend = watched().be
    assert type(be.engine) is CollectingEngine
    assert type(gen_backend("cpu").engine) is CEngine
