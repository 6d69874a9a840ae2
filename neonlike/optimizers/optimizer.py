"""Optimizers and learning-rate schedules under one path."""

from neonlike.optimizers.adaptive import Adadelta, Adagrad, Adam, RMSProp, ShiftAdaMax
from neonlike.optimizers.base import Optimizer, get_param_list
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optimizers.schedules import (
    ExpSchedule,
    PolySchedule,
    PowerSchedule,
    Schedule,
    ShiftSchedule,
    StepSchedule,
)
from neonlike.optimizers.sgd import GradientDescentMomentum

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
