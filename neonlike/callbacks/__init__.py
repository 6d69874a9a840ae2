"""Callbacks: hooks called during training, which show, record, save or stop it."""

from neonlike.callbacks.callbacks import Callbacks

__all__ = ["Callbacks"]
