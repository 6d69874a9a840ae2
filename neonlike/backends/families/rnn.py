"""Recurrent unrolls: ``compound_rnn_unroll_fprop``, ``compound_rnn_unroll_bprop``, bidirectional forms, cells."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class RecurrentFamily(Family):
    """Recurrent unrolls, forward and backward."""
