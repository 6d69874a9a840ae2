"""Sizes of products that have no geometry of their own, for questions about them."""

from __future__ import annotations

from typing import NamedTuple

from neonlike.optree.dtypes import DType


class ProductSizes(NamedTuple):
    """A matrix product (m, k) . (k, n).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.backends.geometry.products import ProductSizes
    >>> be.factors_of(ProductSizes(64, 64, 64, be.default_np_dtype)).startswith("float32")
    True
    """

    m: int
    k: int
    n: int
    dtype: DType


class UnrollSizes(NamedTuple):
    """The product of each step of a recurrent layer: recurrent weights (rows, units) by the states of all samples."""

    rows: int
    units: int
    samples: int
    dtype: DType
