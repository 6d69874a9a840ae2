"""Cleanup of the process-wide current backend, ``NervanaObject.be``, which ``registry.py`` creates."""

from __future__ import annotations

from typing import Any

from neonlike.nervanaobject import NervanaObject


def release(be: Any) -> None:
    """Clean up the backend ``be``, and forget it if it is the current one."""
    be.cleanup_backend()
    if NervanaObject.be is be:
        NervanaObject.be = None
