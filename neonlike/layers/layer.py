"""Leaf and compound layers under one path, for imports in scripts and for the class names in saved models."""

from neonlike.layers.container.residual import Residual
from neonlike.layers.core.base import AccumulationError, Layer, interpret_in_shape
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.cost import GeneralizedCost, GeneralizedCostMask, GeneralizedGANCost
from neonlike.layers.core.elementwise import Activation, DataTransform, Dropout
from neonlike.layers.core.lambdas import Lambda
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.layers.core.structure import BranchNode, Reshape, SkipNode
from neonlike.layers.dense.attention import MultiHeadAttention
from neonlike.layers.dense.binary import BinaryAffine, BinaryLinear
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.dense.linear import Affine, Linear
from neonlike.layers.dense.lookup import Embedding, LookupTable
from neonlike.layers.images.convolution import Conv, Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconv, Deconvolution
from neonlike.layers.images.depthwise import DepthwiseConv, DepthwiseConvolution, DepthwiseSeparableConv
from neonlike.layers.images.lrn import LRN
from neonlike.layers.images.pad import Pad
from neonlike.layers.images.pooling import Pooling
from neonlike.layers.images.roi import RoiPooling
from neonlike.layers.norm.batchnorm_autodiff import BatchNormAutodiff
from neonlike.layers.norm.normalization import BatchNorm, ShiftBatchNorm
from neonlike.layers.norm.samplenorm import GroupNorm, LayerNorm

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
    "Lambda",
    "Layer",
    "LayerNorm",
    "Linear",
    "LookupTable",
    "MultiHeadAttention",
    "Pad",
    "ParameterLayer",
    "Pooling",
    "Reshape",
    "Residual",
    "RoiPooling",
    "ShiftBatchNorm",
    "SkipNode",
    "interpret_in_shape",
]
