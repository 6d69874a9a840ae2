"""The end of the process-wide current backend, ``NervanaObject.be``; ``registry.py`` makes it."""

from __future__ import annotations

from typing import Any

from neonlike.nervanaobject import NervanaObject


def release(be: Any) -> None:
    """Clean the backend ``be`` up and forget it if it is the current one."""
    be.cleanup_backend()
    if NervanaObject.be is be:
        NervanaObject.be = None
