"""Faults of ranks made by chance: some of those of ``make fuzz``, and that faults of the watch are seen."""

from __future__ import annotations

import pytest

from tests.fuzz import ranks
from tests.fuzz.ranks_program import FAULTS, PLACES

pytestmark = pytest.mark.cpu_only("what is random here is how a process ends")


@pytest.mark.parametrize("seed", [4, 5, 9, 11, 22, 29])  # `make fuzz` has more
def test_random_faults(seed: int) -> None:
    took, _ = ranks.check(seed)
    assert took < ranks.MOST_S


def test_seeds_meet_every_fault_and_place() -> None:
    faults = [ranks.fault_of(seed) for seed in range(500)]
    assert {fault.how for fault in faults} == {*FAULTS, ranks.CTRL_C}
    assert {fault.where for fault in faults} == {*PLACES, "anywhere", "launcher"}
    assert any(fault.caught for fault in faults) and {fault.ranks for fault in faults} == {2, 3, 4}
