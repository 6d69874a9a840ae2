"""The dtypes over which tests are parametrized."""

from __future__ import annotations

import pytest

from neonlike.optree.dtypes import FLOATS

EVERY = [
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool",
]  # fmt: skip
"""Names of all dtypes that a tensor may have."""
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
