"""Layers and containers: what networks are built from."""

from neonlike.layers.container import (
    MergeBroadcast,
    MergeMultistream,
    MergeSum,
    Multicost,
    Sequential,
    SingleOutputTree,
    Tree,
)
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
    "MergeBroadcast",
    "MergeMultistream",
    "MergeSum",
    "Multicost",
    "Reshape",
    "Sequential",
    "SingleOutputTree",
    "SkipNode",
    "Tree",
]
