"""Convolutions that multiply in bfloat16: those of float32 on arrays of pairs, with half the inner dimension.

Forward, two channels are a pair, in the data gradient two output maps, in the weight gradient two images, or columns of
one image. The kernels make the pairs first (``pairs.h``): the meta array begins with the operands' ``Pairing``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind
from neonlike.backends.cpu.primitives.conv.pointwise import META, pointwise
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import round_up
from neonlike.kernels.c.pairs import Pairing, Pairs, half

PAIRED = (Kind.DIRECT, Kind.POINTWISE, Kind.MAPS, Kind.FEW)
"""Kernels that multiply pairs."""
FEWEST, FEWEST_COLUMNS = 3, 6
"""Least channels and maps of a group for which making pairs pays, and columns of a single image's weight gradient."""
FROM_FLOATS, FROM_BFLOAT16 = 1, 2
"""Numbers of which a weight gradient's kernel makes pairs as it packs them: ``later`` of ``conv/update.c.j2``."""
VECTOR, COST_OF_NUMBER, COST_OF_LINE = 16, 3, 100
"""Time of pairing, in products of floats: of a number, and in addition of a line of fewer numbers than ``VECTOR``.

Measured on a Zen 4 with float32 for some 70 convolutions: with fewer products saved, such as those of windows of 1 x 1
that a stride moves past most of the input, pairs took up to five times as long.
"""


def _pays(products: int, inner: int, numbers: int, lines: int = 0) -> bool:
    """Whether pairs along a dimension of ``inner`` numbers save more of the products than it takes to make them."""
    return products * (inner - half(inner)) // inner >= COST_OF_NUMBER * numbers + COST_OF_LINE * lines


@lru_cache(maxsize=512)
def pairs_of_channels(g: ConvGeometry, backward: bool) -> ConvGeometry | None:
    """The geometry of a forward pass or data gradient on pairs of channels; None where they do not pay."""
    channels = g.K if backward else g.C
    if min(g.C, g.K) // g.groups < FEWEST or (g.groups > 1 and channels // g.groups % 2):
        return None
    if not (pointwise(g) or _pays(g.flops // 2, channels, g.sizeF + (g.sizeO if backward else g.sizeI))):
        return None
    return replace(g, K=half(g.K)) if backward else replace(g, C=half(g.C))


@lru_cache(maxsize=512)
def data_pairings(g: ConvGeometry, backward: bool) -> tuple[Pairing, Pairing]:
    """Pairs of channels of the input, and of the filters."""
    each, taps = g.C // g.groups, math.prod(g.TRS)
    if backward:
        errors = g.sizeO // g.K
        return Pairing(g.K, errors, errors, Pairs.ROWS), Pairing(each * taps, g.K, g.K, Pairs.NEIGHBOURS)
    images, filters = g.sizeI // g.C, taps * g.K
    return Pairing(g.C, images, images, Pairs.ROWS), Pairing(each, filters, filters, Pairs.ROWS)


@lru_cache(maxsize=512)
def pairs_of_images(g: ConvGeometry) -> ConvGeometry | None:
    """The geometry of a weight gradient on pairs of images, or of a single image's columns; None where they do not pay.

    Positions of a pointwise convolution form one row. Of a single image, outputs 2 j and 2 j + 1 of a row are a pair;
    they read columns a stride apart, and the padding on the left belongs to the rows of pairs.
    """
    if min(g.C, g.K) // g.groups < FEWEST:
        return None
    if pointwise(g):
        row = 1, 1, half(math.prod(g.DHW) * g.N)
        return replace(g, N=1, DHW=row, MPQ=row)
    numbers, maps = g.sizeI + g.sizeO, g.K // g.groups  # maps fill vectors
    lines = numbers // g.N if 1 < g.N < VECTOR and g.N % 2 else 0
    if not _pays(g.flops // 2 // maps * round_up(maps, VECTOR), max(g.N, 2), numbers, lines):
        return None
    if g.N > 1:
        return replace(g, N=half(g.N))
    (depth, height, width), (planes, rows, columns), (*_, pad), (*_, step) = g.DHW, g.MPQ, g.padding, g.strides
    if columns < FEWEST_COLUMNS or columns % 2:  # half a pair of errors, zero, would multiply what no output reads
        return None
    sizes = (depth, height, width + pad), (planes, rows, half(columns))
    padding, strides = (*g.padding[:2], 0), (*g.strides[:2], 2 * step)
    return replace(g, DHW=sizes[0], MPQ=sizes[1], padding=padding, strides=strides)


@lru_cache(maxsize=512)
def update_pairings(g: ConvGeometry, lanes: int) -> tuple[Pairing, Pairing]:
    """Pairs of images, or of columns, of the input and of the errors.

    Pairs that no row of an odd length interrupts are made when the kernel packs its operands, in vectors of pairs.

    Parameters
    ----------
    g : ConvGeometry
    lanes : int
        Floats of a vector.
    """
    kind = Pairs.LATER if lanes == VECTOR else Pairs.NEIGHBOURS
    if pointwise(g):
        row = g.sizeI // g.C
        kind = Pairs.NEIGHBOURS if row % 2 else kind
        return Pairing(g.C, row, row, kind), Pairing(g.K, row, row, kind)
    if g.N == 1:
        (*_, width), (*_, columns), pad, step = g.DHW, g.MPQ, g.padding[2], g.strides[2]
        images = Pairing(g.sizeI // width, width, width, Pairs.APART, pad, step)
        return images, Pairing(g.sizeO // columns, columns, columns, Pairs.NEIGHBOURS)
    if g.N % 2:
        images, errors = (Pairing(size // g.N, g.N, g.N, Pairs.NEIGHBOURS) for size in (g.sizeI, g.sizeO))
    else:  # all in one row
        images, errors = (Pairing(1, size, size, kind) for size in (g.sizeI, g.sizeO))
    return images, errors


@lru_cache(maxsize=1024)
def with_pairs(plan: ConvPlan, form: int, stored: bool, one: Pairing, other: Pairing) -> ConvPlan:
    """``plan`` of a kernel that makes pairs, of the form ``PAIRS`` of ``pairs.h``, of its two operands first.

    A pointwise convolution pairs a tile's lanes when it reads them, where no other part of the maps reads them, too. A
    weight gradient's kernel does where ``update_pairings`` says so.

    Parameters
    ----------
    plan : ConvPlan
    form : int
    stored : bool
        Whether the operands are bfloat16, not float32.
    one, other : Pairing
        Of the operands.
    """
    variant = (*plan.variant, ("pairs", form))
    if other.kind is Pairs.LATER:
        variant = (*variant, ("later", FROM_BFLOAT16 if stored else FROM_FLOATS))
    if stored:
        one, other = one._replace(stored=True), other._replace(stored=True)
    elif plan.kind is Kind.POINTWISE and plan.fields[META.index("MAP_PARTS")] == 1:
        one = one._replace(kind=Pairs.LATER)
    return replace(
        plan,
        fields=(*one, *other, *plan.fields),
        shared=plan.shared + one.words + other.words,
        variant=variant,
        stored=stored,
    )
