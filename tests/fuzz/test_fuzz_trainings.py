"""Random programs of trainings: a short run, and that faults are seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from neonlike.callbacks import callbacks
from neonlike.data import ArrayIterator
from neonlike.models import progress
from tests.fuzz import trainings

pytestmark = pytest.mark.cpu_only("what is random here is the order of calls")


@pytest.fixture(autouse=True)
def current(be: Any) -> Iterator[None]:
    """Programs make backends of their own."""
    yield


@pytest.mark.parametrize("seed", [14, 38, 108, *range(6)])  # `make fuzz` has more
def test_random_programs(seed: int) -> None:
    assert trainings.check(seed) > 0


FAULTS: list[tuple[Any, str, Any]] = [
    (progress, "_same_data", lambda saved, model, dataset: True),
    (progress, "restore_random", lambda be, saved: None),
    (ArrayIterator, "set_progress", lambda self, saved: None),
    (callbacks, "restore", lambda store, saved: None),
]


@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_faults_are_seen(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        for seed in (1, 14, 38, 108):
            trainings.check(seed)
