"""Compiled kernels of the roi family, for the hooks of ``families/roi.py``."""

from __future__ import annotations

from neonlike.backends.families.roi import RoiFamily


class RoiKernels(RoiFamily):
    """Overrides of RoiFamily's hooks."""
