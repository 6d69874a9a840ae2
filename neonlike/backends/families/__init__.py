"""Families of backend methods: one file per subject, each a mixin of ``Backend`` with its definitions."""

from __future__ import annotations

from typing import Any


def public_methods(backend: type[Any]) -> dict[str, tuple[str, ...]]:
    """Public methods and attributes of a backend class by defining file, sorted, each name once.

    They are read from the classes, so the list is always complete.

    Parameters
    ----------
    backend : type
        ``Backend`` or a class derived from it.

    Returns
    -------
    dict
        Last part of the module's name, such as "linalg", to names.

    Examples
    --------
    >>> from neonlike.backends import NervanaCPU
    >>> public_methods(NervanaCPU)["timing"][:3]
    ('begin', 'bench_measure', 'bench_report')
    """
    found: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for cls in reversed(backend.__mro__[:-1]):  # a family comes first, then its overrides
        names = {name for name in vars(cls) if not name.startswith("_")} - seen
        seen |= names
        if names:
            subject = cls.__module__.rpartition(".")[2]
            found[subject] = tuple(sorted({*found.get(subject, ()), *names}))
    return found
