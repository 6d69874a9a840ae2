"""Faults in the tables that pages are generated from."""

from __future__ import annotations

from tests.planted.table import Mutant

PAGE = "neonlike/compat/page.py"

MUTANTS = (
    Mutant("pages", "names cut behind the shortest module", PAGE, "range(len(parts), -1, -1)", "range(len(parts) + 1)"),
    Mutant("pages", "second lines of forms dropped", PAGE, 'rows[-1][0] += f" {cells[0]}"', "pass"),
    Mutant("pages", "absent names left out", PAGE, "    yield from ABSENT.items()\n", ""),
    Mutant("pages", "different names among the same", PAGE, " in {**MEANT, **OTHERWISE}:", " in {}:"),
    Mutant("pages", "arguments with one name listed", PAGE, "if one.ours != one.name\n", "if one.name\n"),
    Mutant("pages", "two modules joined", PAGE, "setdefault((key, reason), [])", 'setdefault(("", reason), [])'),
)
