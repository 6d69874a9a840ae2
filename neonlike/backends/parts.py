"""The parts of ``Backend``: groups of method families with one subject.

Parts have no methods of their own. Of two families with a method of one name, the first in the list of bases wins.
"""

from __future__ import annotations

from neonlike.backends.expressions.activation import ActivationFamily
from neonlike.backends.expressions.along import AlongFamily
from neonlike.backends.expressions.arrange import ArrangeFamily
from neonlike.backends.expressions.elementwise import ElementwiseFamily
from neonlike.backends.expressions.gradients import GradientFamily
from neonlike.backends.expressions.random import RandomFamily
from neonlike.backends.expressions.reduction import ReductionFamily
from neonlike.backends.expressions.text import TextFamily
from neonlike.backends.machine.described import DescribedFamily
from neonlike.backends.machine.hooks import HooksFamily
from neonlike.backends.machine.merge import MergeFamily
from neonlike.backends.machine.ranks import RanksFamily
from neonlike.backends.machine.timing import TimingFamily
from neonlike.backends.primitives.attention.lazy import LazyAttentionFamily
from neonlike.backends.primitives.batchnorm.family import BatchNormFamily
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.int8.family import Int8Family
from neonlike.backends.primitives.lazy.family import LazyFamily
from neonlike.backends.primitives.linalg import LinalgFamily
from neonlike.backends.primitives.lookup import LookupFamily
from neonlike.backends.primitives.lrn import LrnFamily
from neonlike.backends.primitives.pooling.family import PoolFamily
from neonlike.backends.primitives.rnn.family import RecurrentFamily
from neonlike.backends.primitives.roi.detection import DetectionFamily
from neonlike.backends.tensors.memory import MemoryFamily
from neonlike.backends.tensors.scratch import ScratchFamily
from neonlike.backends.tensors.series import SeriesFamily
from neonlike.backends.tensors.stats import StatsFamily


class Expressions(
    ElementwiseFamily, ReductionFamily, TextFamily, ArrangeFamily, AlongFamily, RandomFamily, ActivationFamily
):
    """Builders of expressions: the rows of the op table, rearranging, random numbers, activations of layers."""


class Products(Int8Family, LinalgFamily, LookupFamily):
    """Matrix products, those of quantized layers, and the lookup tables that replace products with one-hot matrices."""


class Images(ConvFamily, PoolFamily, LrnFamily, BatchNormFamily, DetectionFamily):
    """Primitives of images: convolution, pooling, normalisation, regions and detected boxes."""


class Sequences(LazyAttentionFamily, RecurrentFamily):
    """Primitives of sequences: attention, and unrolls of recurrent layers."""


class Differentiable(LazyFamily, GradientFamily):
    """Primitives as nodes of expressions, and gradients of functions."""


class Tensors(SeriesFamily, StatsFamily, ScratchFamily, MemoryFamily):
    """Creation of tensors, their statistics, and the device's memory."""


class Machine(TimingFamily, MergeFamily, RanksFamily, HooksFamily, DescribedFamily):
    """Timing and bench mode, branches of containers, ranks, neon's hooks for devices, objects from descriptors."""
