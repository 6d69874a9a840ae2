"""Differences between the parameters of a file and those of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Shape = tuple[int, ...]

MOST_NAMES = 20
"""Number of names that a message lists of each kind."""


class Differences(NamedTuple):
    """Parameters that a file and a network do not share.

    Attributes
    ----------
    missing : list of str
        Names of the network that the file lacks.
    unexpected : list of str
        Names of the file that the network lacks.
    misshapen : list of (str, tuple, tuple)
        Name, shape in the file and shape in the network.

    Examples
    --------
    >>> found = Differences.between({"0.W": (2, 3), "1.W": (4, 2)}, {"0.W": (3, 2), "1.W": (4, 2), "2.W": (4, 1)})
    >>> found
    Differences(missing=['2.W'], unexpected=[], misshapen=[('0.W', (2, 3), (3, 2))])
    >>> found.words()
    'missing: 2.W; of another shape: 0.W is (2, 3) there and (3, 2) here'
    """

    missing: list[str]
    unexpected: list[str]
    misshapen: list[tuple[str, Shape, Shape]]

    @classmethod
    def between(
        cls, given: Mapping[str, Shape], wanted: Mapping[str, Shape | None], optional: frozenset[str] = frozenset()
    ) -> Differences:
        """Compare the names and shapes ``given`` with those ``wanted``; a wanted shape of None fits any.

        Parameters
        ----------
        given, wanted : dict
            Name -> shape.
        optional : set of str
            Wanted names that are not missing where they are not given.
        """
        misshapen = [
            (name, given[name], shape)
            for name, shape in wanted.items()
            if shape is not None and name in given and given[name] != shape
        ]
        missing = [name for name in wanted if name not in given and name not in optional]
        return cls(missing, [name for name in given if name not in wanted], misshapen)

    @property
    def are_there(self) -> bool:
        """Whether there is any difference."""
        return any(self)

    def words(self) -> str:
        """Text of all differences, for a message."""
        shapes = [f"{name} is {theirs} there and {ours} here" for name, theirs, ours in self.misshapen]
        kinds = (("missing", self.missing), ("unexpected", self.unexpected), ("of another shape", shapes))
        return "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds if names)


def _listed(names: list[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
