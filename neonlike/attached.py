"""Attributes that storeys above attach to every backend, such as ``be.blueprints``, found by name when first used.

A backend may not import what stands above it. The package says here which attribute is made by which callable of which
module, and a backend that is asked for an attribute that it has not got looks here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_OFFERS: dict[str, tuple[str, str]] = {}


def attach(name: str, module: str, maker: str) -> None:
    """Let ``be.<name>`` be ``maker(be)``, a callable of ``module``, which is imported when that is first asked for."""
    _OFFERS[name] = module, maker


def attached_names() -> list[str]:
    """The attributes there are."""
    return list(_OFFERS)


def attached(backend: Any, name: str) -> Any:
    """``be.<name>``; made at each use, so that a backend holds nothing that holds it.

    Raises
    ------
    KeyError
        If nothing of this name was attached.
    """
    module, maker = _OFFERS[name]
    return getattr(import_module(module), maker)(backend)
