"""Random numbers for tests, and their comparison with what NumPy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def numbers(*shape: int, seed: int = 0) -> Any:
    """Draw float64 values of a standard normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape)


def close(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Compare a tensor or an array with ``wanted``."""
    np.testing.assert_allclose(got.get() if hasattr(got, "get") else got, wanted, tolerance, tolerance)
