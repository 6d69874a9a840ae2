"""neon's base names of the backend hierarchy."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, NoReturn

from neonlike.errors import DTypeError


class Backend_ABC_Meta(ABCMeta):  # noqa: N801  (neon's name)
    """Metaclass of backends; registration itself happens in ``Backend.__init_subclass__``."""


class AbstractBackend(metaclass=Backend_ABC_Meta):
    """Root of every backend class, for ``isinstance`` checks."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DTypeError(
            "a backend cannot be copied or saved: its memory, threads and kernels are those of this process; make "
            "another with gen_backend(), and copy or save tensors, which are loaded onto the backend that is current"
        )
