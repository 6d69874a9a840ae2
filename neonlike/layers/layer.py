"""Leaf and compound layers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.attention import MultiHeadAttention
from neonlike.layers.base import AccumulationError, Layer, interpret_in_shape
from neonlike.layers.batchnorm_autodiff import BatchNormAutodiff
from neonlike.layers.bias import Bias
from neonlike.layers.binary import BinaryAffine, BinaryLinear
from neonlike.layers.blocks import DepthwiseConv, DepthwiseConvolution, DepthwiseSeparableConv, Residual
from neonlike.layers.compound import CompoundLayer
from neonlike.layers.convolution import Conv, Convolution, Convolution_bias
from neonlike.layers.cost import GeneralizedCost, GeneralizedCostMask, GeneralizedGANCost
from neonlike.layers.deconvolution import Deconv, Deconvolution
from neonlike.layers.elementwise import Activation, DataTransform, Dropout
from neonlike.layers.linear import Affine, Linear
from neonlike.layers.lookup import Embedding, LookupTable
from neonlike.layers.lrn import LRN
from neonlike.layers.normalization import BatchNorm, ShiftBatchNorm
from neonlike.layers.parameter import ParameterLayer
from neonlike.layers.pooling import Pooling
from neonlike.layers.roi import RoiPooling
from neonlike.layers.samplenorm import GroupNorm, LayerNorm
from neonlike.layers.structure import BranchNode, Reshape, SkipNode

__all__ = [
    "LRN",
    "AccumulationError",
    "Activation",
    "Affine",
    "BatchNorm",
    "BatchNormAutodiff",
    "Bias",
    "BinaryAffine",
    "BinaryLinear",
    "BranchNode",
    "CompoundLayer",
    "Conv",
    "Convolution",
    "Convolution_bias",
    "DataTransform",
    "Deconv",
    "Deconvolution",
    "DepthwiseConv",
    "DepthwiseConvolution",
    "DepthwiseSeparableConv",
    "Dropout",
    "Embedding",
    "GeneralizedCost",
    "GeneralizedCostMask",
    "GeneralizedGANCost",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "Linear",
    "LookupTable",
    "MultiHeadAttention",
    "ParameterLayer",
    "Pooling",
    "Reshape",
    "Residual",
    "RoiPooling",
    "ShiftBatchNorm",
    "SkipNode",
    "interpret_in_shape",
]
