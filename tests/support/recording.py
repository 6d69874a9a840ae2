"""Fixtures of the tests of bench mode: backends and recorders with made-up rates and clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neonlike.backends import Backend
from neonlike.kernels.bench import recorder
from neonlike.kernels.bench.machine_rates import MachineRates
from neonlike.kernels.bench.recorder import Bench
from neonlike.logger import logger
from tests.support.engines import backend

RATES = MachineRates(threads=2, copy=10.0, gemm={"float32": 100.0, "float64": 50.0})


@pytest.fixture(autouse=True)
def known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of a machine that is not measured; nothing from the caller's environment."""
    monkeypatch.setattr(recorder, "machine_rates", lambda dtypes: RATES)
    monkeypatch.delenv("NEONLIKE_BENCH", raising=False)


@pytest.fixture
def timed(engine: str) -> Iterator[Backend]:
    """A backend in bench mode."""
    for be in backend(engine, bench=True):
        yield be
        assert be.bench is not None
        be.bench.clear()  # no table at the end


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Displayed text."""
    found: list[str] = []
    monkeypatch.setattr(logger, "display", lambda message, *args: found.append(message % args))
    return found


class Clock:
    """A clock that moves by one millisecond whenever it is read, and by given times."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A recorder that shows nothing at exit."""
    made = Bench(clock=Clock())
    yield made
    made.clear()
    made.finish()
