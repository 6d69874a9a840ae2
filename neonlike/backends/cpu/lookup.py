"""Compiled kernels of the lookup family, for the hooks of ``families/lookup.py``."""

from __future__ import annotations

from neonlike.backends.families.lookup import LookupFamily


class LookupKernels(LookupFamily):
    """Overrides of LookupFamily's hooks."""
