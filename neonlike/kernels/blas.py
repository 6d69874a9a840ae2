"""Which vectors NumPy's BLAS multiplies with."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np

NARROW_CORES = frozenset(
    "prescott core2 penryn dunnington nehalem sandybridge haswell "
    "barcelona bobcat bulldozer piledriver steamroller excavator zen".split()
)
"""What OpenBLAS calls its kernels for x86 processors whose vectors have 32 bytes or less."""


@cache
def openblas_core() -> str:
    """The kernels that NumPy's OpenBLAS chose when it was loaded, in small letters; "" for another BLAS."""
    package = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    module = sys.modules.get(f"{package}._multiarray_umath")
    try:
        library = ctypes.CDLL(str(getattr(module, "__file__", None)))  # it finds the symbols of what it is linked to
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
