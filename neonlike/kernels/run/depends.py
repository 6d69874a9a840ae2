"""Dependencies of repeated passes beside the contents of tensors, as the objects in the passes declare them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Free:
    """Stands for the value of an attribute that may be another one each time."""


FREE: Final = Free()


class Depends(NamedTuple):
    """The answer of an object's ``depends_on()``: how a repeated pass depends on its attributes.

    An attribute that is named nowhere must keep its value, and is looked into: the pass depends on what is in it too.

    Attributes
    ----------
    opened : frozenset of str, optional
        The attributes that are looked into, if not all that the others do not name.
    closed : frozenset of str
        Attributes that must keep their values, whatever is in these.
    free : frozenset of str
        Attributes that may have another value each time, because a pass sets or never reads them.
    """

    opened: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()

    def looks_into(self, name: str) -> bool:
        """Whether the pass depends on what is in the value of this attribute."""
        if self.opened is not None:
            return name in self.opened
        return name not in self.closed and name not in self.free


class Dependent:
    """Base of objects of which a repeated pass depends on all attributes, and on all that is in these."""

    def depends_on(self) -> Depends | None:
        """How a repeated pass depends on the attributes; None: nothing that depends on this object is repeated.

        A class outside of the library defines it itself: what it inherits cannot speak for its own methods.
        """
        return Depends()
