"""Learning-rate schedules, epoch by epoch."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError
from neonlike.optimizers import (
    CosineSchedule,
    ExpSchedule,
    PolySchedule,
    PowerSchedule,
    Schedule,
    ShiftSchedule,
    StepSchedule,
    WarmupSchedule,
)


def rates(schedule, epochs, lr=1.0):
    return [schedule.get_learning_rate(lr, epoch) for epoch in range(epochs)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1, 1, 1, 1]),
        (Schedule(2, 0.5), [1, 1, 0.5, 0.5, 0.25]),
        (Schedule([1, 3], 0.1), [1, 0.1, 0.1, 0.01, 0.01]),
        (Schedule([1, 3], [0.7, 0.2]), [1, 0.7, 0.7, 0.2, 0.2]),
        (StepSchedule([1, 3], [0.7, 0.2]), [1, 0.7, 0.7, 0.2, 0.2]),
        (PowerSchedule(2, 0.5), [1, 1, 0.5, 0.5, 0.25]),
        (ExpSchedule(0.5), [1, 1 / 1.5, 1 / 2, 1 / 2.5]),
        (ShiftSchedule(2), [1, 1, 0.5, 0.5, 0.25]),
        (ShiftSchedule(1, 2), [1, 0.25, 0.0625]),
        (CosineSchedule(4), [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0]),
        (CosineSchedule(2, floor=0.2), [1, 0.6, 0.2, 0.2]),
        (WarmupSchedule(3), [0.25, 0.5, 0.75, 1, 1]),
        (WarmupSchedule(1, CosineSchedule(2)), [0.5, 1, 0.5, 0, 0]),
        (StepSchedule([1, 3], [0.7, 0]), [1, 0.7, 0.7, 0, 0]),
        (Schedule(np.int64(2), 0.5), [1, 1, 0.5, 0.5, 0.25]),
        (Schedule(np.array([1, 3]), np.array([0.7, 0.2])), [1, 0.7, 0.7, 0.2, 0.2]),
        (PowerSchedule(np.int64(2), 0.5), [1, 1, 0.5, 0.5, 0.25]),
    ],
    ids=lambda value: getattr(value, "classnm", ""),
)
def test_rates(schedule, expected):
    assert rates(schedule, len(expected)) == pytest.approx(expected)


def test_defect_30_poly_schedule_divides_truly():
    assert rates(PolySchedule(4, 2), 6) == pytest.approx([1, 0.5625, 0.25, 0.0625, 0, 0])
    assert PolySchedule(10, 0.5).get_learning_rate(0.1, 5) == pytest.approx(0.1 * 0.5**0.5)


def test_a_step_schedule_resumes_in_the_middle():
    schedule = StepSchedule([2, 5], [0.5, 0.1])
    assert schedule.get_learning_rate(1.0, 4) == 0.5
    assert schedule.steps == 0.5
    assert schedule.get_learning_rate(1.0, 0) == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepSchedule([1, 2], [0.5]),
        lambda: StepSchedule(3, 0.5),
        lambda: Schedule([1, 2], [0.5]),
        lambda: Schedule(None, [0.5]),
        lambda: Schedule(0, 0.5),
        lambda: PowerSchedule([1], 0.5),
        lambda: PowerSchedule(1, [0.5]),
        lambda: PowerSchedule(0, 0.5),
        lambda: PolySchedule(0, 1),
        lambda: ShiftSchedule(0),
        lambda: CosineSchedule(0),
        lambda: WarmupSchedule(0),
    ],
)
def test_unusable_arguments_are_refused(make):
    with pytest.raises(ArgumentError, match="Schedule"):
        make()
    with pytest.raises(AssertionError):
        make()
