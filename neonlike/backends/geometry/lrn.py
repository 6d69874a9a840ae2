"""Geometry of a local response normalisation, returned by ``be.lrn_layer``.

It has the attributes of a pooling over windows of J channels that preserves sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from neonlike.backends.geometry.sizes import MklSwitches, make_plain, whole
from neonlike.errors import ArgumentError
from neonlike.optree.dtypes import DType

Five = tuple[int, int, int, int, int]
Four = tuple[int, int, int, int]
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LrnGeometry(MklSwitches):
    """Sizes of a local response normalisation across channels.

    Attributes
    ----------
    dtype : dtype
    N, C : int
        Images and channels. N is a planning size: calls accept any number of images.
    DHW : tuple of int
        Depth, height and width, of input and output.
    J : int
        Channels per window, odd: ``J // 2`` on either side of the middle one.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.lrn_layer(None, 16, 8, H=4, W=4, J=5).padding
    (2, 0, 0, 0)
    """

    dtype: DType
    N: int
    C: int
    DHW: Triple
    J: int = 1

    op: ClassVar[str] = "lrn"
    dimF2: ClassVar[None] = None
    flops: ClassVar[int] = 0
    strides: ClassVar[Four] = (1, 1, 1, 1)

    def __post_init__(self) -> None:
        depth, height, width = self.DHW
        whole("lrn_layer", N=self.N, C=self.C, D=depth, H=height, W=width, J=self.J)
        make_plain(self)
        if self.J % 2 == 0:
            raise ArgumentError(
                f"lrn_layer: J={self.J} channels have no middle one; give an odd window, {self.J - 1} or {self.J + 1}"
            )

    @property
    def K(self) -> int:
        """Channels of the output."""
        return self.C

    @property
    def D(self) -> int:
        """Depth."""
        return self.DHW[0]

    @property
    def H(self) -> int:
        """Height."""
        return self.DHW[1]

    @property
    def W(self) -> int:
        """Width."""
        return self.DHW[2]

    M, P, Q = D, H, W

    @property
    def MPQ(self) -> Triple:
        """Sizes of the output, equal to those of the input."""
        return self.DHW

    @property
    def JTRS(self) -> Four:
        """Sizes of the window: channels, depth, height, width."""
        return self.J, 1, 1, 1

    @property
    def padding(self) -> Four:
        """Zeros on either side of the input: channels, depth, height, width."""
        return self.J // 2, 0, 0, 0

    @property
    def overlap(self) -> float:
        """Number of windows per element, 0 if windows do not overlap."""
        return float(self.J) if self.J > 1 else 0.0

    @property
    def dimI(self) -> Five:
        """Shape of the input, (C, D, H, W, N)."""
        return (self.C, *self.DHW, self.N)

    @property
    def dimI2(self) -> tuple[int, int]:
        """Input as a matrix, (C D H W, N)."""
        return self.nOut, self.N

    dimO, dimO2 = dimI, dimI2

    @property
    def sizeI(self) -> int:
        """Elements of the input."""
        return self.nOut * self.N

    sizeO = sizeI

    @property
    def nOut(self) -> int:
        """Features, C D H W."""
        return self.C * math.prod(self.DHW)

    def describe(self) -> str:
        """Description in words, for messages."""
        depth, height, width = self.DHW
        return f"{self.C} channels of {depth}x{height}x{width}, windows of {self.J} channels"

    def __str__(self) -> str:
        return f"local response normalisation of {self.N} images: {self.describe()}"
