"""Optimizers and learning-rate schedules under one path."""

from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.adaptive import Adadelta, Adagrad, Adam, AdamW, RMSProp, ShiftAdaMax
from neonlike.optimizers.base import Optimizer, get_param_list
from neonlike.optimizers.loss_scaling import LossScaling
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optimizers.schedules import (
    CosineSchedule,
    ExpSchedule,
    PolySchedule,
    PowerSchedule,
    Schedule,
    ShiftSchedule,
    StepSchedule,
    WarmupSchedule,
)
from neonlike.optimizers.sgd import GradientDescentMomentum

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineSchedule",
    "ExpSchedule",
    "GradientAccumulation",
    "GradientDescentMomentum",
    "LossScaling",
    "MultiOptimizer",
    "Optimizer",
    "PolySchedule",
    "PowerSchedule",
    "RMSProp",
    "Schedule",
    "ShiftAdaMax",
    "ShiftSchedule",
    "StepSchedule",
    "WarmupSchedule",
    "get_param_list",
]
