"""neon's base names of the backend hierarchy."""

from __future__ import annotations

from abc import ABCMeta


class Backend_ABC_Meta(ABCMeta):  # noqa: N801  (neon's name)
    """Metaclass of backends; registration itself happens in ``Backend.__init_subclass__``."""


class AbstractBackend(metaclass=Backend_ABC_Meta):
    """Root of every backend class, for ``isinstance`` checks."""
