"""Tables of the page ``docs/from_neon.md``: neon's dialect, and every public name of neon.

    python -m neonlike.compat.page docs/from_neon.md    # between the page's marks; `make docs` does so too

A test compares the page with the output of this module.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from neonlike import console
from neonlike.compat.absent import ABSENT, ATTRIBUTES, MEANT, OTHERWISE
from neonlike.compat.calls import CALLS, taken
from neonlike.compat.contract import ORIGINAL, NotBuiltYet, availability
from neonlike.compat.table import CONTRACT
from neonlike.optree import dialect

BEGIN, END = "<!-- names: made by neonlike/compat/page.py -->\n", "<!-- end of names -->\n"

Rows = list[tuple[str, str]]


def place(dotted: str) -> tuple[str, str]:
    """Split a dotted name of neon into its module, a key of the table of names, and the rest."""
    parts = dotted.split(".")
    cut = next(cut for cut in range(len(parts), -1, -1) if ".".join(parts[:cut]) in CONTRACT)
    return ".".join(parts[:cut]), ".".join(parts[cut:])


def full(key: str, *names: str) -> str:
    """A name under its full path in neon."""
    return ".".join(part for part in (ORIGINAL, key, *names) if part)


# The dialect --------------------------------------------------------------------------------------------------------


def dialect_rows() -> list[list[str]]:
    """Rows of the table in the docstring of :mod:`neonlike.optree.dialect`, its head first."""
    lines = (dialect.__doc__ or "").splitlines()
    rule, *_ = rules = [line for line in lines if line.startswith("===")]
    first, _, last = (k for k, line in enumerate(lines) if line == rule) if len(rules) == 3 else (0, 0, 0)
    starts = [found.start() for found in re.finditer("=+", rule)]
    rows: list[list[str]] = []
    for line in lines[first + 1 : last]:
        if line == rule:
            continue
        cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None])]
        if rows and not any(cells[1:]):
            rows[-1][0] += f" {cells[0]}"
        else:
            rows.append(cells)
    return [[cell.replace("``", "`") for cell in row] for row in rows]


# The names ----------------------------------------------------------------------------------------------------------


def same() -> Iterator[tuple[str, str]]:
    """For each module of neon, the names that mean the same here; a name is listed in its first module."""
    first: dict[int, tuple[str, object]] = {}  # with the object, so that no two have one id
    listed: dict[str, list[str]] = {key: [] for key in CONTRACT}
    again: dict[str, Counter[str]] = {key: Counter() for key in CONTRACT}
    for dotted, found in availability():
        key, name = place(dotted.removeprefix(ORIGINAL).removeprefix("."))
        if not name or isinstance(found, NotBuiltYet):
            continue
        where, _ = first.setdefault(id(found), (key, found)) if callable(found) else (key, found)
        if f"{key}.{name}".strip(".") in {**MEANT, **OTHERWISE}:
            continue
        if where == key:
            listed[key].append(f"`{name}`")
        else:
            again[key][where] += 1
    for key, names in listed.items():
        more = [f"{count} of `{full(where)}`" for where, count in again[key].items()]
        yield f"`{full(key)}`", ", ".join([*names, *more]) or ("see below" if CONTRACT[key].names else "none")


def renamed() -> Iterator[tuple[str, str]]:
    """Functions with arguments of other names here, and what their arguments are called."""
    for dotted, text in CALLS.items():
        said = [
            f"no `{one.name}`" if one.ours is None else f"`{one.name}` is `{one.ours}`"
            for one in taken(text)
            if one.ours != one.name
        ]
        if said:
            yield dotted, f"outside of neon's dialect {', '.join(said)}"


def differing() -> Iterator[tuple[str, str]]:
    """Dotted names that are here and mean something else, with the difference."""
    yield from MEANT.items()
    yield from OTHERWISE.items()
    yield from renamed()


def gone() -> Iterator[tuple[str, str]]:
    """Dotted names that are not here, with the reason."""
    for dotted, found in availability():
        if isinstance(found, NotBuiltYet):  # other errors are of this machine
            yield dotted.removeprefix(f"{ORIGINAL}."), str(found)
    yield from ABSENT.items()


def grouped(rows: Iterable[tuple[str, str]]) -> Rows:
    """Join the names of a module that have one reason, in the order of neon's modules."""
    found: dict[tuple[str, str], list[str]] = {}
    for dotted, reason in rows:
        key, name = place(dotted)
        found.setdefault((key, reason), []).append(f"`{name}`")
    order = list(CONTRACT)
    by_module = sorted(found.items(), key=lambda item: order.index(item[0][0]))
    return [(f"`{full(key)}`: {', '.join(names)}", reason) for (key, reason), names in by_module]


def attributes() -> Iterator[tuple[str, str]]:
    """Attributes of objects that are not here, by class and reason."""
    for owner, lacking in ATTRIBUTES.items():
        reasons: dict[str, list[str]] = {}
        for name, reason in lacking.items():
            reasons.setdefault(reason, []).append(f"`{name}`")
        for reason, names in reasons.items():
            yield f"`{owner}`: {', '.join(names)}", reason


# The page -----------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def tables() -> str:
    """All tables of the page, each under its heading."""
    (form, ours, neons), *forms = dialect_rows()
    parts = [
        "## The dialect", table((form, ours, neons), forms),
        "## Every name: the same",
        "A class in this table may have a method in the next ones. A name is listed in the first module that has it.",
        table(("module", "names"), same()),
        "## Every name: different", table(("names", "difference"), grouped(differing())),
        "## Every name: gone", table(("names", "reason"), grouped(gone())),
        "Attributes of objects:", table(("class and attributes", "reason"), attributes()),
    ]  # fmt: skip
    return "\n\n".join(parts)


def page(text: str) -> str:
    """Return ``text`` with the tables between its marks.

    Raises
    ------
    ValueError
        There are no marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN.strip()} ... {END.strip()}")
    return f"{before}{BEGIN}\n{tables()}\n\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables into the page that is named, or print them."""
    for name in sys.argv[1:] if argv is None else argv:
        path = Path(name)
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main))
