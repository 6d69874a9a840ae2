"""Programs whose arguments are all known, on a device that only counts: when they are queued as one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.errors import DeviceError, DeviceMemoryError
from neonlike.kernels.cuda.step import GRAPH_FROM, FixedRunner
from neonlike.kernels.run.program import Program
from neonlike.logger import logger


class Counted:
    """Captures of a made-up device, and a program of ``steps`` steps on it."""

    def __init__(self, steps: int, error: Exception | None = None) -> None:
        self.is_active, self.captured, self.error = False, 0, error
        self.queued: list[str] = []
        program = Program((lambda: self.queued.append("step"),) * steps, 0, 0, on_device=True)
        device: Any = SimpleNamespace(capture=self)
        self.run = FixedRunner(device, program)

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        self.captured += 1
        if self.error is not None:
            raise self.error
        assert len(calls) >= GRAPH_FROM
        return lambda: self.queued.append("graph")

    def turns(self, count: int) -> list[str]:
        """The kinds of things that so many runs queue."""
        self.queued.clear()
        for _ in range(count):
            self.run()
        return sorted(set(self.queued))


def test_many_steps_are_one_graph_from_the_second_run_on() -> None:
    device = Counted(GRAPH_FROM)
    assert device.turns(1) == ["step"] and len(device.queued) == GRAPH_FROM
    assert device.turns(3) == ["graph"] and len(device.queued) == 3 and device.captured == 1


def test_few_steps_are_queued_one_by_one() -> None:
    device = Counted(GRAPH_FROM - 1)
    assert device.turns(3) == ["step"] and device.captured == 0
    assert len(device.queued) == 3 * (GRAPH_FROM - 1)


def test_the_setting_keeps_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_GPU_GRAPHS", "0")
    device = Counted(GRAPH_FROM)
    assert device.turns(3) == ["step"] and device.captured == 0


def test_another_capture_takes_in_the_steps_themselves() -> None:
    device = Counted(GRAPH_FROM)
    device.is_active = True
    assert device.turns(3) == ["step"] and device.captured == 0
    device.is_active = False
    assert device.turns(1) == ["graph"] and device.captured == 1
    device.is_active = True
    assert device.turns(1) == ["step"]


@pytest.mark.parametrize("error", [DeviceError("there are no graphs"), DeviceMemoryError("it is full")], ids=repr)
def test_a_refused_graph_is_asked_for_and_told_once(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(logger, "info", lambda text, *values: told.append(text % values))
    device = Counted(GRAPH_FROM, error)
    assert device.turns(4) == ["step"] and len(device.queued) == 4 * GRAPH_FROM
    assert device.captured == 1 and len(told) == 1
    assert f"{GRAPH_FROM} steps" in told[0] and str(error) in told[0]
