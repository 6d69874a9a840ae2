"""Batch normalisation: ``compound_fprop_bn``, ``compound_bprop_bn``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class BatchNormFamily(Family):
    """Batch normalisation: ``compound_fprop_bn``, ``compound_bprop_bn``."""
