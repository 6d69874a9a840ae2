"""Dependencies of repeated passes beside the contents of tensors, as the objects in the passes declare them."""

from __future__ import annotations

from typing import Final, NamedTuple


class AnyValue:
    """Stands for the value of an attribute that may be another one each time."""


ANY_VALUE: Final = AnyValue()


class Depends(NamedTuple):
    """The answer of an object's ``depends_on()``: how a repeated pass depends on its attributes.

    An attribute must keep its value, the same object, unless it is free. By default the pass also depends on what is in
    the value: it is looked into.

    Attributes
    ----------
    opened : frozenset of str, optional
        The only attributes that are looked into; ``closed`` is not read then.
    closed : frozenset of str
        Attributes that are not looked into, if ``opened`` is None.
    free : frozenset of str
        Attributes that may have another value each time, because a pass sets or never reads them.
    sets : frozenset of str
        Attributes that a forward pass sets, and does not read before, such as the inputs of a layer. If the recorded
        pass gave one another value, a tensor or a constant, so does each repetition.
    """

    opened: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()

    def looks_into(self, name: str) -> bool:
        """Whether the pass depends on what is in the value of this attribute."""
        if name in self.free:
            return False
        return name not in self.closed if self.opened is None else name in self.opened


class Dependent:
    """Base of objects of which a repeated pass depends on all attributes, and on all that is in these."""

    def depends_on(self) -> Depends | None:
        """How a repeated pass depends on the attributes; None: nothing that depends on this object is repeated.

        A class outside of the library defines it itself: what it inherits cannot speak for its own methods.
        """
        return Depends()
