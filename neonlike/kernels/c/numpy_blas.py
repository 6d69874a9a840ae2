"""The BLAS library that NumPy multiplies with: which vectors it uses, and where its functions are."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

NARROW_CORES = frozenset(
    "prescott core2 penryn dunnington nehalem sandybridge haswell "
    "barcelona bobcat bulldozer piledriver steamroller excavator zen".split()
)
"""What OpenBLAS calls its kernels for x86 processors whose vectors have 32 bytes or less."""

OPENMP = 2
"""What OpenBLAS says of itself where it is built for OpenMP; 0 or 1 without or with threads of its own."""


def _numpy_core() -> Any:
    """NumPy's compiled module; its place in the package differs between versions."""
    package = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    return sys.modules.get(f"{package}._multiarray_umath")


@dataclass(frozen=True)
class OpenBlas:
    """NumPy's OpenBLAS.

    Attributes
    ----------
    core : str
        The kernels that it chose when it was loaded, in small letters.
    integer : str
        C type of its sizes.
    functions : dict of str to int
        Addresses of sgemm, dgemm, sgemv and dgemv of the C interface, of get_num_threads and set_num_threads.
    openmp : bool
        Whether its threads are OpenMP's: how many there may be is then a number of each thread that calls it.
    """

    core: str
    integer: str
    functions: dict[str, int]
    openmp: bool


@cache
def openblas() -> OpenBlas | None:
    """NumPy's OpenBLAS; None where NumPy has another BLAS library."""
    try:
        # It finds the symbols of what it is linked to
        library = ctypes.CDLL(str(getattr(_numpy_core(), "__file__", None)))
    except OSError:
        return None
    for prefix in ("scipy_", ""):
        for suffix in ("64_", "_64", ""):
            if hasattr(library, f"{prefix}openblas_get_corename{suffix}"):
                return _describe(library, prefix, suffix)
    return None


def _describe(library: ctypes.CDLL, prefix: str, suffix: str) -> OpenBlas:
    def text(name: str) -> str:
        function = getattr(library, f"{prefix}openblas_get_{name}{suffix}")
        function.argtypes, function.restype = (), ctypes.c_char_p
        return bytes(function()).decode("ascii", "replace")

    names = [f"cblas_{kind}{suffix}" for kind in ("sgemm", "dgemm", "sgemv", "dgemv")]
    names += [f"openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
    found = {name: getattr(library, prefix + name, None) for name in names}
    functions = {
        name.removesuffix(suffix).removeprefix("cblas_").removeprefix("openblas_"): _address(function)
        for name, function in found.items()
        if function is not None
    }
    integer = "int64_t" if "USE64BITINT" in text("config") else "int"
    parallel = getattr(library, f"{prefix}openblas_get_parallel{suffix}", None)
    return OpenBlas(text("corename").lower(), integer, functions, parallel is None or parallel() == OPENMP)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def narrow_blas() -> bool:
    """Whether products of NumPy are known to use vectors of 32 bytes or less.

    OpenBLAS does that on processors that are newer than itself. Known by name, not by the clock: which of two kernels
    multiplies decides how sums are rounded, and that must not change from run to run.
    """
    library = openblas()
    return library is not None and library.core in NARROW_CORES


@cache
def whole_vectors() -> bool:
    """Whether this processor has vectors of 64 bytes."""
    features: dict[str, bool] = getattr(_numpy_core(), "__cpu_features__", {})
    return bool(features.get("AVX512F"))


def half_vectors() -> bool:
    """Whether NumPy's products are known to use half of this processor's vectors, of 64 bytes."""
    return narrow_blas() and whole_vectors()
