"""Convolutions that multiply in bfloat16: those of float32 on arrays of pairs, with half the inner dimension.

Forward, two channels are a pair, in the data gradient two output maps, in the weight gradient two images. The kernels
make the pairs first (``pairs.h``): the meta array begins with the two operands' ``Pairing``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.kernels.c.pairs import Pairing, half

PAIRED = (Kind.DIRECT, Kind.POINTWISE, Kind.MAPS, Kind.FEW)
"""Kernels that multiply pairs."""
FEWEST = 3
"""Least channels and maps of a group for which making pairs pays."""


def pairs_of_channels(g: ConvGeometry, backward: bool) -> ConvGeometry | None:
    """The geometry of a forward pass or data gradient on pairs of channels; None where they do not pay."""
    channels = g.K if backward else g.C
    if min(g.C, g.K) // g.groups < FEWEST or (g.groups > 1 and channels // g.groups % 2):
        return None
    return replace(g, K=half(g.K)) if backward else replace(g, C=half(g.C))


def data_pairings(g: ConvGeometry, backward: bool) -> tuple[Pairing, Pairing]:
    """Pairs of channels of the input, and of the filters."""
    each, taps = g.C // g.groups, math.prod(g.TRS)
    if backward:
        errors = g.sizeO // g.K
        return Pairing(g.K, errors, errors, 0), Pairing(each * taps, g.K, g.K, 1)
    images, filters = g.sizeI // g.C, taps * g.K
    return Pairing(g.C, images, images, 0), Pairing(each, filters, filters, 0)


def pairs_of_images(g: ConvGeometry) -> ConvGeometry | None:
    """The geometry of a weight gradient on pairs of images; None where there are none, or they do not pay."""
    return None if g.N % 2 or min(g.C, g.K) // g.groups < FEWEST else replace(g, N=g.N // 2)


def update_pairings(g: ConvGeometry) -> tuple[Pairing, Pairing]:
    """Pairs of images of the input, and of the errors."""
    return Pairing(1, g.sizeI, g.sizeI, 1), Pairing(1, g.sizeO, g.sizeO, 1)


@lru_cache(maxsize=1024)
def with_pairs(plan: ConvPlan, form: int, one: Pairing, other: Pairing) -> ConvPlan:
    """``plan`` of a kernel that makes pairs, of the form ``PAIRS`` of ``pairs.h``, of its two operands first."""
    return replace(
        plan,
        fields=(*one, *other, *plan.fields),
        shared=plan.shared + one.words + other.words,
        variant=(*plan.variant, ("pairs", form)),
    )
