"""Local response normalisation across channels: ``lrn_layer``, ``fprop_lrn``, ``bprop_lrn``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class LrnFamily(Family):
    """Local response normalisation across channels: ``lrn_layer``, ``fprop_lrn``, ``bprop_lrn``."""
