"""Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class RoiFamily(Family):
    """Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``."""
