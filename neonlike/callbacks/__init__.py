"""Callbacks: what happens beside the training."""

from neonlike.callbacks.callbacks import Callbacks

__all__ = ["Callbacks"]
