"""Compiled kernels of the conv family, for the hooks of ``families/conv.py``."""

from __future__ import annotations

from neonlike.backends.families.conv import ConvFamily


class ConvKernels(ConvFamily):
    """Overrides of ConvFamily's hooks."""
