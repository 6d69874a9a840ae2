"""Containers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.adversarial import GenerativeAdversarial
from neonlike.layers.deltas import DeltasTree
from neonlike.layers.merge import Broadcast, MergeBroadcast, MergeMultistream, MergeSum
from neonlike.layers.multicost import Multicost
from neonlike.layers.sequential import LayerContainer, Sequential, flatten, pairwise
from neonlike.layers.tree import SingleOutputTree, Tree

__all__ = [
    "Broadcast",
    "DeltasTree",
    "GenerativeAdversarial",
    "LayerContainer",
    "MergeBroadcast",
    "MergeMultistream",
    "MergeSum",
    "Multicost",
    "Sequential",
    "SingleOutputTree",
    "Tree",
    "flatten",
    "pairwise",
]
