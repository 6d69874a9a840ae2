"""Agreement of the ranks: what has to be the same on all of them, compared before it matters."""

from __future__ import annotations

from typing import Any

from neonlike.checks import brief
from neonlike.distributed.ranks import Ranks
from neonlike.errors import RankError


def agree(ranks: Ranks, who: str, facts: dict[str, Any]) -> None:
    """Raise on all ranks unless all have the same ``facts``, by name.

    Parameters
    ----------
    ranks : Ranks
    who : str
        Name of the method.
    facts : dict
        Values by their names; they can be pickled.

    Raises
    ------
    RankError
        The message begins with ``who``, and says which rank differs from rank 0 in what.
    """
    first, *others = ranks.tell(facts, "facts")
    for rank, other in enumerate(others, 1):
        for name in first:
            if other.get(name) != first[name]:
                raise RankError(
                    f"{who}: rank {rank} has another {name} than rank 0: {_difference(other.get(name), first[name])}; "
                    "all ranks must run the same script with the same arguments, on the same data",
                    on_all=True,
                )


def _difference(other: Any, first: Any) -> str:
    """The two values, or of texts of several lines the first lines that differ."""
    if not isinstance(other, str) or not isinstance(first, str) or "\n" not in first + other:
        return f"{brief(other)}, not {brief(first)}"
    import difflib  # for errors alone

    lines = list(difflib.ndiff(first.splitlines(), other.splitlines()))
    its, ours = (" | ".join(line[2:].strip() for line in lines if line[0] == sign) for sign in "+-")
    return f"{brief(its)}, not {brief(ours)}"
