"""Callbacks: training hooks that show, record, save or stop."""

from neonlike.callbacks.callbacks import Callbacks

__all__ = ["Callbacks"]
