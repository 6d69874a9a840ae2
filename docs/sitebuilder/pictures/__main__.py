"""Writes the pictures: ``PYTHONPATH=docs python -m sitebuilder.pictures``, which ``make docs-pages`` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sitebuilder.pictures import FOLDER, PICTURES


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures with these names, or all; into docs/pictures, or the folder that comes after ``--to``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    to = FOLDER
    if "--to" in given:
        place = given.index("--to")
        to = Path(given[place + 1])
        del given[place : place + 2]
    to.mkdir(parents=True, exist_ok=True)
    for name in given or PICTURES:
        (to / f"{name}.svg").write_text(PICTURES[name]().svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
