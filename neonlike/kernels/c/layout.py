"""The border between Python and the extension: constants that both know, written once here and as a C header."""

from __future__ import annotations

from collections.abc import Iterator

from neonlike.kernels.planning.graph import NUMBER_FLOAT, NUMBER_INT
from neonlike.kernels.run.program import OUT_OF_RANGE, Source
from neonlike.optree.tape import Kept, Rule

HEADER = "fastpath_layout.h"


def header() -> str:
    """The text of the header that the extension includes."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield "/* Written by kernels/c/layout.py. */"
    yield "#ifndef NL_FASTPATH_LAYOUT_H"
    yield "#define NL_FASTPATH_LAYOUT_H"
    yield f"enum source {{ {', '.join(source.name for source in Source)}, SOURCES }};"
    yield "enum {"
    for name, value in _constants():
        yield f"    {name} = {value},"
    yield "};"
    yield "#endif"


def _constants() -> Iterator[tuple[str, int]]:
    """References of numbers in a graph, a kernel's result, places in the tuples of gradient rules and kept values."""
    yield from (("NUMBER_FLOAT", NUMBER_FLOAT), ("NUMBER_INT", NUMBER_INT), ("OUT_OF_RANGE", OUT_OF_RANGE))
    for prefix, kind, names in (("RULE", Rule, ("parents", "key")), ("KEPT", Kept, ("tensor", "parts"))):
        for name in names:
            yield f"{prefix}_{name.upper()}", kind._fields.index(name)
        yield f"{prefix}_FIELDS", len(kind._fields)
