"""Layers and containers: what networks are built from."""

from neonlike.layers.container import Multicost, Sequential
from neonlike.layers.layer import (
    Activation,
    Affine,
    Bias,
    BranchNode,
    DataTransform,
    Dropout,
    GeneralizedCost,
    GeneralizedCostMask,
    Linear,
    Reshape,
    SkipNode,
)

__all__ = [
    "Activation",
    "Affine",
    "Bias",
    "BranchNode",
    "DataTransform",
    "Dropout",
    "GeneralizedCost",
    "GeneralizedCostMask",
    "Linear",
    "Multicost",
    "Reshape",
    "Sequential",
    "SkipNode",
]
