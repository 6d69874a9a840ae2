"""Optimizers and learning-rate schedules."""

from neonlike.optimizers.optimizer import (
    Adadelta,
    Adagrad,
    Adam,
    ExpSchedule,
    GradientDescentMomentum,
    MultiOptimizer,
    Optimizer,
    PolySchedule,
    PowerSchedule,
    RMSProp,
    Schedule,
    ShiftAdaMax,
    ShiftSchedule,
    StepSchedule,
    get_param_list,
)

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "ExpSchedule",
    "GradientDescentMomentum",
    "MultiOptimizer",
    "Optimizer",
    "PolySchedule",
    "PowerSchedule",
    "RMSProp",
    "Schedule",
    "ShiftAdaMax",
    "ShiftSchedule",
    "StepSchedule",
    "get_param_list",
]
