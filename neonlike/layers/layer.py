"""Leaf and compound layers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.base import AccumulationError, Layer, interpret_in_shape
from neonlike.layers.bias import Bias
from neonlike.layers.compound import CompoundLayer
from neonlike.layers.convolution import Conv, Convolution, Convolution_bias
from neonlike.layers.cost import GeneralizedCost, GeneralizedCostMask, GeneralizedGANCost
from neonlike.layers.elementwise import Activation, DataTransform, Dropout
from neonlike.layers.linear import Affine, Linear
from neonlike.layers.normalization import BatchNorm, ShiftBatchNorm
from neonlike.layers.parameter import ParameterLayer
from neonlike.layers.pooling import Pooling
from neonlike.layers.structure import BranchNode, Reshape, SkipNode

__all__ = [
    "AccumulationError",
    "Activation",
    "Affine",
    "BatchNorm",
    "Bias",
    "BranchNode",
    "CompoundLayer",
    "Conv",
    "Convolution",
    "Convolution_bias",
    "DataTransform",
    "Dropout",
    "GeneralizedCost",
    "GeneralizedCostMask",
    "GeneralizedGANCost",
    "Layer",
    "Linear",
    "ParameterLayer",
    "Pooling",
    "Reshape",
    "ShiftBatchNorm",
    "SkipNode",
    "interpret_in_shape",
]
