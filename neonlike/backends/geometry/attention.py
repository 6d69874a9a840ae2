"""Geometry of scaled dot-product attention, returned by ``be.attention_layer``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from neonlike.backends.geometry.sizes import MklSwitches, make_plain, whole
from neonlike.optree.dtypes import DType, compute_dtype

Shape = tuple[int, ...]


@dataclass(frozen=True)
class AttentionGeometry(MklSwitches):
    """Sizes of an attention: each query averages the values, weighted by the match of their keys.

    Attributes
    ----------
    dtype : dtype
    N, heads : int
        Samples, and heads per sample. They are planning sizes: calls accept any number of both.
    queries, keys : int
        Lengths of queries and outputs, and of keys and values. 0 is allowed.
    size, value_size : int
        Elements of a query and key; elements of a value and output.
    causal : bool
        Query i sees only keys 0 to i.
    scale : float
        Factor of the products of queries and keys.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> layer = be.attention_layer(None, 2, 8, queries=10, size=64, keys=20)
    >>> layer.dimQ, layer.dimK, layer.pairs
    ((2, 8, 10, 64), (2, 8, 20, 64), 200)
    """

    dtype: DType
    N: int
    heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    causal: bool
    scale: float

    op: ClassVar[str] = "attention"

    def __post_init__(self) -> None:
        whole("attention_layer", 0, N=self.N, queries=self.queries, keys=self.keys)
        whole("attention_layer", heads=self.heads, size=self.size, value_size=self.value_size)
        make_plain(self)

    @property
    def dimQ(self) -> Shape:
        """Shape of the queries."""
        return self.N, self.heads, self.queries, self.size

    @property
    def dimK(self) -> Shape:
        """Shape of the keys."""
        return self.N, self.heads, self.keys, self.size

    @property
    def dimV(self) -> Shape:
        """Shape of the values."""
        return self.N, self.heads, self.keys, self.value_size

    @property
    def dimO(self) -> Shape:
        """Shape of the output."""
        return self.N, self.heads, self.queries, self.value_size

    @property
    def dimL(self) -> Shape:
        """Shape of the log-sums of the queries, used by the backward pass."""
        return self.N, self.heads, self.queries

    @property
    def lse_dtype(self) -> DType:
        """Dtype of the log-sums: float64 for float64 tensors, else float32."""
        return compute_dtype(self.dtype)

    @property
    def pairs(self) -> int:
        """Number of pairs of a query and a visible key, per head."""
        if not self.causal:
            return self.queries * self.keys
        few = min(self.queries, self.keys)
        return few * (few + 1) // 2 + (self.queries - few) * self.keys

    @property
    def flops(self) -> int:
        """Multiplications and additions of a forward pass."""
        return 2 * math.prod((self.N, self.heads)) * self.pairs * (self.size + self.value_size)

    def describe(self) -> str:
        """The geometry in words, for messages."""
        kind = "causal attention" if self.causal else "attention"
        sizes = f"{self.queries} queries of size {self.size} to {self.keys} keys, values of size {self.value_size}"
        return f"{kind} of {sizes}"

    def __str__(self) -> str:
        return f"{self.describe()}; {self.N} samples, {self.heads} heads"
