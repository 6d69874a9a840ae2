"""Compiled kernels of the linalg family, for the hooks of ``families/linalg.py``."""

from __future__ import annotations

from neonlike.backends.families.linalg import LinalgFamily


class BinaryKernels(LinalgFamily):
    """Overrides of LinalgFamily's hooks."""
