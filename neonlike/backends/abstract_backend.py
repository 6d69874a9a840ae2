"""neon's base names of the backend hierarchy."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any, ClassVar, NoReturn

from neonlike.errors import DTypeError, FixedAttribute, MissingAttribute
from neonlike.logger import logger
from neonlike.optree import dialect


class Backend_ABC_Meta(ABCMeta):  # noqa: N801  (neon's name)
    """Metaclass of backends; registration itself happens in ``Backend.__init_subclass__``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create a backend, which from then on refuses unknown attributes."""
        made = super().__call__(*args, **kwargs)
        made.__dict__["_made"] = True
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """Signature of the constructor."""
        constructor: Any = inspect.getattr_static(cls, "__init__")
        return inspect.Signature(list(inspect.signature(constructor).parameters.values())[1:])


class AbstractBackend(metaclass=Backend_ABC_Meta):
    """Root of every backend class, for ``isinstance`` checks; setting an attribute has an effect or is refused.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> isinstance(gen_backend("cpu"), AbstractBackend)
    True
    """

    fixed: ClassVar[frozenset[str]] = frozenset()
    """Read-only attributes that describe the backend."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a known attribute, or one that starts with ``_``; during construction any attribute may be set.

        In neon's dialect any attribute may be set at any time, with a warning if it has no effect.

        Raises
        ------
        MissingAttribute
            If the backend has no such attribute.
        FixedAttribute
            If the attribute is read-only.
        """
        if name[0] != "_" and "_made" in self.__dict__:
            if name in self.fixed or (name not in self.__dict__ and not hasattr(type(self), name)):
                refuse_attribute(self, name)
        object.__setattr__(self, name, value)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DTypeError(
            "a backend cannot be copied or saved: its memory, threads and kernels are those of this process; make "
            "another with gen_backend(), and copy or save tensors, which are loaded onto the backend that is current"
        )


def refuse_attribute(backend: Any, name: str) -> None:
    """Raise MissingAttribute or FixedAttribute; warn instead in neon's dialect, which allows attributes of scripts."""
    kind = type(backend).__name__
    if dialect.is_neon():
        logger.warning("%s: setting %s has no effect", kind, name)
    elif name in backend.fixed:
        present = getattr(backend, name)
        raise FixedAttribute(f"{kind}: {name} says what is, {present!r}; setting it would have no effect")
    else:
        raise MissingAttribute(
            f"{kind} has no attribute {name} to set; what is a program's own belongs to an object of its own, or to a "
            "name that begins with _",
            name,
            lambda: [one for one in {*dir(type(backend)), *vars(backend)} if one[0] != "_"],
        )
