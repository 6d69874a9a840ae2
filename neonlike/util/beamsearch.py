"""Beam search, under the path used by scripts."""

from neonlike.models.beam import BeamSearch

__all__ = ["BeamSearch"]
