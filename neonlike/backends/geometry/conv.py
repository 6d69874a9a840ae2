"""Geometry of a convolution, returned by ``be.conv_layer`` and ``be.deconv_layer``.

Axes are named as in neon: images ``(C, D, H, W, N)``, filters ``(C, T, R, S, K)``, outputs ``(K, M, P, Q, N)``; for the
height, ``P = (H + 2 pad_h - dil_h (R - 1) - 1) // str_h + 1``. With groups, map ``k`` of group ``g`` sees only that
group's channels, and filters are ``(C / groups, T, R, S, K)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from neonlike.backends.geometry.sizes import MklSwitches, make_plain, output_size, plain, whole, window_extent
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.dtypes import DType

Triple = tuple[int, int, int]
Five = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class ConvGeometry(MklSwitches):
    """Sizes of a convolution; tuples are in the order depth, height, width.

    Attributes
    ----------
    dtype : dtype
    N, C, K : int
        Images, input channels, output maps. N is a planning size: calls accept any number of images.
    DHW, TRS, MPQ : tuple of int
        Sizes of the input, the filter and the output.
    padding, strides, dilation : tuple of int
    groups : int

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> layer = be.conv_layer(None, 16, 3, 8, H=28, W=28, R=5, S=5)
    >>> layer.dimI, layer.dimF, layer.dimO
    ((3, 1, 28, 28, 16), (3, 1, 5, 5, 8), (8, 1, 24, 24, 16))
    """

    dtype: DType
    N: int
    C: int
    K: int
    DHW: Triple
    TRS: Triple
    padding: Triple
    strides: Triple
    dilation: Triple
    groups: int = 1
    MPQ: Triple = (0, 0, 0)

    operation = "conv_layer"

    def __post_init__(self) -> None:
        name = self.operation
        whole(name, N=self.N, C=self.C, K=self.K, groups=self.groups)
        _whole_axes(name, DHW=self.DHW, TRS=self.TRS, strides=self.strides, dilation=self.dilation)
        _whole_axes(name, 0, padding=self.padding)
        make_plain(self)
        if self.C % self.groups or self.K % self.groups:
            raise ArgumentError(f"{name}: groups must divide C and K, got C={self.C}, K={self.K}, groups={self.groups}")
        if not any(self.MPQ):
            sizes = zip(self.DHW, self.TRS, self.padding, self.strides, self.dilation)
            object.__setattr__(self, "MPQ", tuple(output_size(x, s, p, st, dilation=d) for x, s, p, st, d in sizes))
        for axis, size in zip("depth height width".split(), self.MPQ):
            if size < 1:
                raise ShapeError(f"{name}: the filter is larger than the padded input along the {axis}: {self}")

    # Shapes

    @cached_property
    def M(self) -> int:
        """Depth of the output."""
        return self.MPQ[0]

    @cached_property
    def P(self) -> int:
        """Height of the output."""
        return self.MPQ[1]

    @cached_property
    def Q(self) -> int:
        """Width of the output."""
        return self.MPQ[2]

    @cached_property
    def NCK(self) -> Triple:
        """(N, C, K)."""
        return self.N, self.C, self.K

    @cached_property
    def dimI(self) -> Five:
        """Shape of the input, (C, D, H, W, N)."""
        return (self.C, *self.DHW, self.N)

    @cached_property
    def dimF(self) -> Five:
        """Shape of the filters, (C / groups, T, R, S, K)."""
        return (self.C // self.groups, *self.TRS, self.K)

    @cached_property
    def dimFb(self) -> Five:
        """Shape of the filters from the output's view, (K, T, R, S, C / groups)."""
        return (self.K, *self.TRS, self.C // self.groups)

    @cached_property
    def dimO(self) -> Five:
        """Shape of the output, (K, M, P, Q, N)."""
        return (self.K, *self.MPQ, self.N)

    @cached_property
    def dimI2(self) -> tuple[int, int]:
        """Input as a matrix, (C D H W, N)."""
        return self.C * math.prod(self.DHW), self.N

    @cached_property
    def dimF2(self) -> tuple[int, int]:
        """Filters as a matrix, (C / groups T R S, K)."""
        return self.C // self.groups * math.prod(self.TRS), self.K

    @cached_property
    def dimF2t(self) -> tuple[int, int]:
        """The transposed matrix of filters."""
        return self.dimF2[::-1]

    @cached_property
    def dimO2(self) -> tuple[int, int]:
        """Output as a matrix, (K M P Q, N)."""
        return self.K * math.prod(self.MPQ), self.N

    @cached_property
    def dimS(self) -> tuple[int, int]:
        """Shape of a bias, and of a bsum, (K, 1)."""
        return self.K, 1

    @cached_property
    def sizeI(self) -> int:
        """Elements of the input."""
        return math.prod(self.dimI)

    @cached_property
    def sizeF(self) -> int:
        """Elements of the filters."""
        return math.prod(self.dimF)

    @cached_property
    def sizeO(self) -> int:
        """Elements of the output."""
        return math.prod(self.dimO)

    @cached_property
    def nOut(self) -> int:
        """Number of output features of the layer."""
        return self.dimO2[0]

    @cached_property
    def dot(self) -> bool:
        """True if the convolution is a matrix product: filter of one element, stride 1, no padding."""
        plain = max(*self.TRS, *self.strides, *self.dilation) == 1 and not any(self.padding)
        return plain and self.groups == 1

    @cached_property
    def flops(self) -> int:
        """Operations of the forward pass, or of each gradient, at N images: two per product."""
        return 2 * self.sizeO * self.dimF2[0]

    @cached_property
    def all_params(self) -> tuple[Any, ...]:
        """All parameters that identify this geometry."""
        return (*self.NCK, *self.DHW, *self.TRS, *self.padding, *self.strides, *self.dilation, self.groups)

    # At other batch sizes

    def at_batch(self, n: int) -> ConvGeometry:
        """The same layer for ``n`` images."""
        return self if n == self.N else _at_batch(self, n)

    def describe(self) -> str:
        """Description in words, for messages."""
        return self.words

    @cached_property
    def words(self) -> str:
        """The words of :meth:`describe`."""
        d, h, w = self.DHW
        t, r, s = self.TRS
        words = f"input {self.C}x{d}x{h}x{w}, filter {t}x{r}x{s}, {self.K} maps of {self.M}x{self.P}x{self.Q}"
        for name, values, default in (
            ("padding", self.padding, 0),
            ("strides", self.strides, 1),
            ("dilation", self.dilation, 1),
        ):
            if any(value != default for value in values):
                words += f", {name} {'x'.join(map(str, values))}"
        return words + (f", {self.groups} groups" if self.groups > 1 else "")

    def __str__(self) -> str:
        return f"convolution of {self.N} images: {self.describe()}"


@lru_cache(maxsize=256)
def _at_batch(geometry: ConvGeometry, n: int) -> ConvGeometry:
    return replace(geometry, N=n)


@dataclass(frozen=True)
class DeconvGeometry(ConvGeometry):
    """Sizes of a transposed convolution, in terms of the convolution whose data gradient it is.

    Its inputs are that convolution's outputs ``(K, M, P, Q, N)``, and its outputs that convolution's inputs
    ``(C, D, H, W, N)``: forward is ``bprop_conv``, the data gradient ``fprop_conv``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> layer = be.deconv_layer(None, 16, 3, 8, P=24, Q=24, R=5, S=5)
    >>> layer.dimO, layer.dimI
    ((8, 1, 24, 24, 16), (3, 1, 28, 28, 16))
    """

    operation = "deconv_layer"

    @cached_property
    def H(self) -> int:
        """Height of the output."""
        return self.DHW[1]

    @cached_property
    def W(self) -> int:
        """Width of the output."""
        return self.DHW[2]

    @cached_property
    def nOut(self) -> int:
        """Number of output features of the layer."""
        return self.dimI2[0]

    def __str__(self) -> str:
        return f"transposed convolution of {self.N} images, the data gradient of: {self.describe()}"


def _whole_axes(name: str, least: int = 1, **fields: Triple) -> None:
    """Check ``whole`` for each axis of ``fields``."""
    for field, sizes in fields.items():
        whole(name, least, **{f"{field}[{axis}]": size for axis, size in enumerate(sizes)})


def deconv_geometry(
    dtype: DType,
    N: int,
    C: int,
    K: int,
    MPQ: Triple,
    TRS: Triple,
    padding: Triple,
    strides: Triple,
    dilation: Triple,
    groups: int,
) -> DeconvGeometry:
    """Geometry of a transposed convolution for an input of ``MPQ``: ``D = (M - 1) str - 2 pad + dil (T - 1) + 1``.

    Parameters
    ----------
    dtype : dtype
    N, C, K : int
        Images, output channels, input maps.
    MPQ, TRS, padding, strides, dilation : tuple of int
        Depth, height, width.
    groups : int

    Raises
    ------
    ShapeError
        If the padding leaves no output.
    """
    _whole_axes("deconv_layer", MPQ=MPQ, TRS=TRS, strides=strides, dilation=dilation)
    _whole_axes("deconv_layer", 0, padding=padding)
    MPQ, TRS, padding, strides, dilation = map(plain, (MPQ, TRS, padding, strides, dilation))
    sizes = zip(MPQ, TRS, padding, strides, dilation)
    DHW = tuple((m - 1) * st - 2 * p + window_extent(s, d) for m, s, p, st, d in sizes)
    if min(DHW) < 1:
        raise ShapeError(f"deconv_layer: input {MPQ}, filter {TRS}, padding {padding} leave an output of {DHW}")
    return DeconvGeometry(dtype, N, C, K, (DHW[0], DHW[1], DHW[2]), TRS, padding, strides, dilation, groups, MPQ)
