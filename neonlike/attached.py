"""Attributes that higher packages attach to every backend, such as ``be.blueprints``, resolved at first use.

A backend may not import packages above it. Instead they register here the callable that creates an attribute, and a
backend looks up missing attributes here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_OFFERS: dict[str, tuple[str, str]] = {}


def attach(name: str, module: str, maker: str) -> None:
    """Define ``be.<name>`` as ``maker(be)``, a callable of ``module``, which is imported at first use.

    Parameters
    ----------
    name : str
        Name of the attribute.
    module : str
        Dotted path of the module.
    maker : str
        Name of a callable of the module.
    """
    _OFFERS[name] = module, maker


def attached_names() -> list[str]:
    """Names of the attached attributes."""
    return list(_OFFERS)


def attached(backend: Any, name: str) -> Any:
    """Evaluate ``be.<name>`` at each use, so that there is no reference cycle through the backend.

    Raises
    ------
    KeyError
        If nothing is attached under this name.
    """
    module, maker = _OFFERS[name]
    return getattr(import_module(module), maker)(backend)
