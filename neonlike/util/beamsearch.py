"""Beam search under the path that scripts import."""

from neonlike.models.beam import BeamSearch

__all__ = ["BeamSearch"]
