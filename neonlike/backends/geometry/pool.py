"""Geometry of a pooling, returned by ``be.pool_layer`` and used by every backend's kernels.

A window extends over channels (J), depth (T), height (R) and width (S). Window ``o`` of an axis covers the positions
``o * stride - padding`` to ``o * stride - padding + window - 1`` inside the input: padding has no values. Positions in
a window are numbered in C order over all of (J, T, R, S), padding included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from neonlike.backends.geometry.sizes import MklSwitches, make_plain, output_size, whole
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.dtypes import DType

Four = tuple[int, int, int, int]
Five = tuple[int, int, int, int, int]
Ranges = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]

OPERATIONS = ("max", "avg", "l2")
POSITION_DTYPES: tuple[DType, ...] = tuple(np.dtype(code) for code in ("u1", "u2", "u4", "i8"))
"""Dtypes for positions in a window, narrowest first."""

META = tuple("C D H W N K M P Q J T R S PAD_C PAD_D PAD_H PAD_W STR_C STR_D STR_H STR_W".split())
"""Sizes passed to kernels, in this order."""

LINE_BYTES = 16
"""Fields of an entry in a kernel's list of lines."""

LINES_APART = 8
"""Entries between the lists of two threads: 128 bytes, because processors fetch cache lines in pairs."""


@dataclass(frozen=True)
class PoolGeometry(MklSwitches):
    """Sizes of a pooling; tuples of four are in the order channels, depth, height, width.

    Attributes
    ----------
    op : "max", "avg" or "l2"
    dtype : dtype
    N : int
        Images. A planning size: calls accept any number of images.
    CDHW, KMPQ : tuple of int
        Sizes of the input and the output.
    JTRS, padding, strides : tuple of int

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> layer = be.pool_layer(None, "max", 16, 8, H=28, W=28, R=2, S=2)
    >>> layer.dimI, layer.dimO, layer.window
    ((8, 1, 28, 28, 16), (8, 1, 14, 14, 16), 4)
    """

    op: str
    dtype: DType
    N: int
    CDHW: Four
    JTRS: Four
    padding: Four
    strides: Four
    caffe: bool = False
    KMPQ: Four = (0, 0, 0, 0)
    seen: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """``"input"``: the last input of ``fprop_pool``, for the backward pass of l2."""
    batches: dict[int, PoolGeometry] = field(default_factory=dict, compare=False, repr=False)

    flops: ClassVar[int] = 0
    dimF2: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise ArgumentError(f"pool_layer: op must be one of {', '.join(OPERATIONS)}, got {brief(self.op)}")
        whole("pool_layer", 0, N=self.N)  # zero images mean no work
        whole("pool_layer", **dict(zip("CDHW", self.CDHW)), **dict(zip("JTRS", self.JTRS)))
        whole("pool_layer", 0, **dict(zip(("pad_c", "pad_d", "pad_h", "pad_w"), self.padding)))
        whole("pool_layer", **dict(zip(("str_c", "str_d", "str_h", "str_w"), self.strides)))
        make_plain(self)
        axes = zip(self.CDHW, self.JTRS, self.padding, self.strides)
        sizes = tuple(output_size(*axis, pooling=True, caffe=self.caffe) for axis in axes)
        object.__setattr__(self, "KMPQ", sizes)
        for axis, size in zip(("channels", "depth", "height", "width"), sizes):
            if size < 1:
                raise ShapeError(f"pool_layer: the window is larger than the padded input along the {axis}: {self}")

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the recorded tensor: copies and pickles of a model do not contain those of its backend."""
        return {**self.__dict__, "seen": {}, "batches": {}}

    def __str__(self) -> str:
        return self._words

    @cached_property
    def _words(self) -> str:
        return (
            f"{self.op} pooling of (C,D,H,W,N) {self.dimI} to (K,M,P,Q,N) {self.dimO}: window (J,T,R,S) {self.JTRS}, "
            f"padding {self.padding}, strides {self.strides}"
        )

    def at_batch(self, N: int) -> PoolGeometry:
        """The same pooling of ``N`` images."""
        if N == self.N:
            return self
        if N not in self.batches:
            self.batches[N] = replace(self, N=N, seen={}, batches={})
        return self.batches[N]

    # Sizes

    @property
    def C(self) -> int:
        """Channels of the input."""
        return self.CDHW[0]

    @property
    def D(self) -> int:
        """Depth of the input."""
        return self.CDHW[1]

    @property
    def H(self) -> int:
        """Height of the input."""
        return self.CDHW[2]

    @property
    def W(self) -> int:
        """Width of the input."""
        return self.CDHW[3]

    @property
    def DHW(self) -> tuple[int, ...]:
        """Sizes of the input without channels."""
        return self.CDHW[1:]

    @property
    def K(self) -> int:
        """Channels of the output."""
        return self.KMPQ[0]

    @property
    def M(self) -> int:
        """Depth of the output."""
        return self.KMPQ[1]

    @property
    def P(self) -> int:
        """Height of the output."""
        return self.KMPQ[2]

    @property
    def Q(self) -> int:
        """Width of the output."""
        return self.KMPQ[3]

    @property
    def MPQ(self) -> tuple[int, ...]:
        """Sizes of the output without channels."""
        return self.KMPQ[1:]

    @cached_property
    def dimI(self) -> Five:
        """Shape of the input, (C, D, H, W, N)."""
        return (*self.CDHW, self.N)

    @cached_property
    def dimO(self) -> Five:
        """Shape of the output, (K, M, P, Q, N)."""
        return (*self.KMPQ, self.N)

    @property
    def dimI2(self) -> tuple[int, int]:
        """Input as a matrix, (C D H W, N)."""
        return math.prod(self.CDHW), self.N

    @property
    def dimO2(self) -> tuple[int, int]:
        """Output as a matrix, (K M P Q, N)."""
        return self.nOut, self.N

    @cached_property
    def sizeI(self) -> int:
        """Elements of the input."""
        return math.prod(self.dimI)

    @cached_property
    def sizeO(self) -> int:
        """Elements of the output."""
        return math.prod(self.dimO)

    @cached_property
    def nOut(self) -> int:
        """Elements of the output of one image."""
        return math.prod(self.KMPQ)

    @property
    def overlap(self) -> float:
        """Maximum number of windows per element, if a stride is less than its window; else 0."""
        if all(stride >= window for stride, window in zip(self.strides, self.JTRS)):
            return 0.0
        return float(math.prod(-(-window // stride) for stride, window in zip(self.strides, self.JTRS)))

    # For kernels

    @cached_property
    def window(self) -> int:
        """Positions in a window, padding included."""
        return math.prod(self.JTRS)

    @property
    def argmax_dtype(self) -> DType:
        """The narrowest dtype that numbers every position in a window."""
        return next(dtype for dtype in POSITION_DTYPES if self.window - 1 <= np.iinfo(dtype).max)

    @cached_property
    def covered(self) -> tuple[Ranges, ...]:
        """For each axis and window: its first position inside the input, and the one after its last."""
        return tuple(
            (np.maximum(start, 0), np.clip(start + window, 0, length)) for length, window, _, _, start in self._axes()
        )

    @cached_property
    def covering(self) -> tuple[Ranges, ...]:
        """For each axis and input position: the first window that contains it, and the one after the last."""
        found = []
        for length, window, padding, stride, start in self._axes():
            at = np.arange(length) + padding
            first = np.maximum(-((window - 1 - at) // stride), 0)
            found.append((first, np.maximum(np.minimum(at // stride + 1, len(start)), first)))
        return tuple(found)

    def _axes(self) -> list[tuple[int, int, int, int, npt.NDArray[np.int64]]]:
        """Length, window, padding and stride of each axis, and the starts of its windows."""
        axes = zip(self.CDHW, self.JTRS, self.padding, self.strides, self.KMPQ)
        return [(x, s, pad, step, np.arange(out) * step - pad) for x, s, pad, step, out in axes]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of positions of each window inside the input, shape (K, M, P, Q, 1)."""
        counts = np.ones(1, np.int64)
        for first, end in self.covered:
            counts = np.multiply.outer(counts, np.maximum(end - first, 0))
        return counts.reshape(*self.KMPQ, 1)

    @cached_property
    def lines(self) -> tuple[int, int]:
        """Entries in a thread's lists: maximum numbers of input rows per window, and of window rows per element.

        Unused entries separate the lists of two threads: both are written all the time, and sharing a cache line made
        two threads slower than one.
        """
        sizes = [[int(np.max(end - first)) for first, end in ranges[:3]] for ranges in (self.covered, self.covering)]
        return math.prod(sizes[0]) + LINES_APART, math.prod(sizes[1]) + LINES_APART

    @cached_property
    def meta(self) -> npt.NDArray[np.int64]:
        """The sizes named in META."""
        return np.array([*self.dimI, *self.KMPQ, *self.JTRS, *self.padding, *self.strides], np.int64)

    @cached_property
    def ranges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """``covered`` and ``covering``, each in one array."""
        both = (self.covered, self.covering)
        forward, backward = (np.concatenate([part for pair in ranges for part in pair]) for ranges in both)
        return forward, backward

    @cached_property
    def places(self) -> npt.NDArray[np.int32]:
        """Position in an input row of the images of each element that is a multiple of the stride."""
        step = self.strides[3]
        columns = np.arange(max(self.Q, -(-self.W // step)))[:, None] * (step * self.N)
        return (columns + np.arange(self.N)).astype(np.int32).ravel()

    @cached_property
    def window_places(self) -> npt.NDArray[np.int32]:
        """Position of each window element, over one channel, relative to the window's corner; shape (positions, 4).

        Entries are the element offset in the input, depth, height and width.
        """
        d, h, w = np.indices(self.JTRS[1:]).reshape(3, -1)
        element = ((d * self.H + h) * self.W + w) * self.N
        return np.stack([element, d, h, w], axis=1).astype(np.int32)

    @cached_property
    def alone(self) -> bool:
        """Whether each window covers a single channel, and every channel has its own windows."""
        return self.JTRS[0] == self.strides[0] == 1 and self.padding[0] == 0

    @cached_property
    def whole(self) -> bool:
        """Whether each channel is one window."""
        return self.alone and self.JTRS[1:] == self.DHW and not any(self.padding) and self.MPQ == (1, 1, 1)

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """For each axis, the reciprocal of each window's number of positions inside the input."""
        return 1.0 / np.concatenate([np.maximum(end - first, 1) for first, end in self.covered])
