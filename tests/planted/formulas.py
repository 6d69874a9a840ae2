"""Faults in the formulas and pictures of the documentation site."""

from __future__ import annotations

from tests.planted.table import Mutant

SITE = "docs/sitebuilder/"
FORMULAS, DRAWING, WINDOWS = SITE + "formulas.py", SITE + "pictures/drawing.py", SITE + "pictures/windows.py"
PLACE = "error[0, 0, at[0], at[1], 0]"

MUTANTS = (
    Mutant("formulas", "open braces are not seen", FORMULAS, "_open_braces(text)) > 0", "_open_braces(text)) > 99"),
    Mutant("formulas", "escaped braces count", FORMULAS, r're.sub(r"\\.", "", text, flags=re.DOTALL)', "text"),
    Mutant("formulas", "a mistake ends no build", FORMULAS, "logger.warning(", "logger.info("),
    Mutant("formulas", "blocks within lines", FORMULAS, "_converted(node, as_block=True)", "_converted(node, False)"),
    Mutant("formulas", "cells without words", DRAWING, "        if words:\n", "        if False:\n"),
    Mutant("formulas", "small words are not seen", DRAWING, "text.get_fontsize(), text", "9.0, text"),
    Mutant("formulas", "rows and columns swapped", WINDOWS, PLACE, "error[0, 0, at[1], at[0], 0]"),
    Mutant("formulas", "the last section counts", SITE + "reference.py", "found.setdefault(", "found.__setitem__("),
)
