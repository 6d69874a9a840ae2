"""Names dropped by NumPy since neon's time: ``np.float``, ``np.NaN``, ``np.product``.

:func:`restore` adds the missing ones to NumPy, with their old meaning. :mod:`neonlike.compat.neon` calls it for old
scripts; without that import NumPy stays unchanged.
"""

from __future__ import annotations

import builtins
import warnings
from types import ModuleType
from typing import Any

import numpy as np

CustomNumpy = np
"""neon's name of NumPy in the module of its CPU backend."""


def _asscalar(a: Any) -> Any:
    return np.asarray(a).item()


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def dropped() -> dict[str, Any]:
    """Meaning of each dropped name."""
    types = {name: getattr(builtins, name) for name in ("bool", "int", "float", "complex", "object", "str")}
    return {
        **types, "unicode": str, "long": int, "bool8": np.bool_, "float_": np.float64, "complex_": np.complex128,
        "string_": np.bytes_, "unicode_": np.str_, "NaN": np.nan, "NAN": np.nan, "Inf": np.inf, "PINF": np.inf,
        "Infinity": np.inf, "infty": np.inf, "NINF": -np.inf, "product": np.prod, "cumproduct": np.cumprod,
        "sometrue": np.any, "alltrue": np.all, "round_": np.round, "rank": np.ndim, "mat": np.asmatrix,
        "row_stack": np.vstack, "trapz": getattr(np, "trapezoid", None), "asscalar": _asscalar, "in1d": _in1d,
    }  # fmt: skip


def restore(module: ModuleType = np) -> None:
    """Add the dropped names that ``module`` lacks; existing names are kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns about some names before it drops them
        for name, meaning in dropped().items():
            if meaning is not None and not hasattr(module, name):
                setattr(module, name, meaning)
