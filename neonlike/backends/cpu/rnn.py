"""Compiled kernels of the rnn family, for the hooks of ``families/rnn.py``."""

from __future__ import annotations

from neonlike.backends.families.rnn import RecurrentFamily


class RecurrentKernels(RecurrentFamily):
    """Overrides of RecurrentFamily's hooks."""
