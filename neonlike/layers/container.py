"""Containers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.adversarial import GenerativeAdversarial
from neonlike.layers.coders import Decoder, Encoder
from neonlike.layers.deltas import DeltasTree
from neonlike.layers.merge import Broadcast, MergeBroadcast, MergeMultistream, MergeSum
from neonlike.layers.multicost import Multicost
from neonlike.layers.seq2seq import Seq2Seq
from neonlike.layers.sequential import LayerContainer, Sequential, flatten, pairwise
from neonlike.layers.skipthought import SkipThought
from neonlike.layers.tree import SingleOutputTree, Tree

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
