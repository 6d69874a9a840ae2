"""Leaf and compound layers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.base import AccumulationError, Layer, interpret_in_shape
from neonlike.layers.compound import CompoundLayer
from neonlike.layers.cost import GeneralizedCost, GeneralizedCostMask
from neonlike.layers.elementwise import Activation, DataTransform, Dropout
from neonlike.layers.linear import Affine, Bias, Linear
from neonlike.layers.parameter import ParameterLayer
from neonlike.layers.structure import BranchNode, Reshape, SkipNode

__all__ = [
    "AccumulationError",
    "Activation",
    "Affine",
    "Bias",
    "BranchNode",
    "CompoundLayer",
    "DataTransform",
    "Dropout",
    "GeneralizedCost",
    "GeneralizedCostMask",
    "Layer",
    "Linear",
    "ParameterLayer",
    "Reshape",
    "SkipNode",
    "interpret_in_shape",
]
