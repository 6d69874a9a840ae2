"""MKL query for scripts before they choose a backend."""

from __future__ import annotations

from neonlike.logger import logger


def get_mkl_lib(device_id: int | None = None, verbose: bool = False) -> int:
    """Return 0: there is no MKL engine, and ``gen_backend("mkl")`` creates the CPU backend; ``verbose`` logs that."""
    if verbose:
        logger.display("no MKL engine: the backend 'mkl' is the CPU backend under another name")  # type: ignore[attr-defined]
    return 0
