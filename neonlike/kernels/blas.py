"""Which vectors NumPy's BLAS multiplies with."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

NARROW_CORES = frozenset(
    "prescott core2 penryn dunnington nehalem sandybridge haswell "
    "barcelona bobcat bulldozer piledriver steamroller excavator zen".split()
)
"""What OpenBLAS calls its kernels for x86 processors whose vectors have 32 bytes or less."""


def _numpy_core() -> Any:
    """NumPy's compiled module; its place in the package differs between versions."""
    package = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    return sys.modules.get(f"{package}._multiarray_umath")


@cache
def openblas_core() -> str:
    """The kernels that NumPy's OpenBLAS chose when it was loaded, in small letters; "" for another BLAS."""
    try:
        # It finds the symbols of what it is linked to
        library = ctypes.CDLL(str(getattr(_numpy_core(), "__file__", None)))
    except OSError:
        return ""
    for prefix in ("scipy_", ""):
        for suffix in ("64_", "_64", ""):
            function = getattr(library, f"{prefix}openblas_get_corename{suffix}", None)
            if function is not None:
                function.argtypes, function.restype = (), ctypes.c_char_p
                return bytes(function()).decode("ascii", "replace").lower()
    return ""


def narrow_blas() -> bool:
    """Whether products of NumPy are known to use vectors of 32 bytes or less.

    OpenBLAS does that on processors that are newer than itself. Known by name, not by the clock: which of two kernels
    multiplies decides how sums are rounded, and that must not change from run to run.
    """
    return openblas_core() in NARROW_CORES


def half_vectors() -> bool:
    """Whether NumPy's products are known to use half of this processor's vectors, of 64 bytes."""
    features: dict[str, bool] = getattr(_numpy_core(), "__cpu_features__", {})
    return narrow_blas() and bool(features.get("AVX512F"))
