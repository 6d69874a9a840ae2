"""Containers under one path, for imports in scripts and for the class names in saved models."""

from neonlike.layers.container.adversarial import GenerativeAdversarial
from neonlike.layers.container.coders import Decoder, Encoder
from neonlike.layers.container.merge import Broadcast, MergeBroadcast, MergeMultistream, MergeSum
from neonlike.layers.container.seq2seq import Seq2Seq
from neonlike.layers.container.sequential import LayerContainer, Sequential, flatten, pairwise
from neonlike.layers.container.skipthought import SkipThought
from neonlike.layers.container.tree import SingleOutputTree, Tree
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.multicost import Multicost

__all__ = [
    "Broadcast",
    "Decoder",
    "DeltasTree",
    "Encoder",
    "GenerativeAdversarial",
    "LayerContainer",
    "MergeBroadcast",
    "MergeMultistream",
    "MergeSum",
    "Multicost",
    "Seq2Seq",
    "Sequential",
    "SingleOutputTree",
    "SkipThought",
    "Tree",
    "flatten",
    "pairwise",
]
