"""Compiled kernels of the lrn family, for the hooks of ``families/lrn.py``."""

from __future__ import annotations

from neonlike.backends.families.lrn import LrnFamily


class LrnKernels(LrnFamily):
    """Overrides of LrnFamily's hooks."""
