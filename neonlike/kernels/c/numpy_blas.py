"""NumPy's BLAS library: the vector size of its kernels, and the addresses of its functions."""

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
"""OpenBLAS's names of its kernels for x86 processors with vectors of 32 bytes or less."""

OPENMP = 2
"""Value of ``openblas_get_parallel`` for a build on OpenMP; 0: no threads, 1: its own threads."""


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
        Name of the kernels that it chose when it was loaded, in lower case.
    integer : str
        C type of its sizes.
    functions : dict of str to int
        Addresses of sgemm, dgemm, sgemv and dgemv of the C interface, of get_num_threads and set_num_threads.
    openmp : bool
        Whether it uses OpenMP's threads: their number is then set for each calling thread, not for the process.
    """

    core: str
    integer: str
    functions: dict[str, int]
    openmp: bool


@cache
def openblas() -> OpenBlas | None:
    """NumPy's OpenBLAS; None where NumPy has another BLAS library."""
    try:
        # Symbols of the libraries that it is linked to are found through it
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
    """Whether NumPy's products are known to use vectors of 32 bytes or less.

    OpenBLAS does so on processors that are newer than itself. Decided by the kernels' name, not by timing: our kernels
    and OpenBLAS round sums differently, so the choice must not change from run to run.
    """
    library = openblas()
    return library is not None and library.core in NARROW_CORES


@cache
def whole_vectors() -> bool:
    """Whether this processor has vectors of 64 bytes."""
    features: dict[str, bool] = getattr(_numpy_core(), "__cpu_features__", {})
    return bool(features.get("AVX512F"))


def half_vectors() -> bool:
    """Whether NumPy's products are known to use vectors of 32 bytes on a processor that has vectors of 64."""
    return narrow_blas() and whole_vectors()
