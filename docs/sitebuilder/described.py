"""Check of the public names' docstrings: each has one, which describes the parameters where there are three or more.

A method that overrides another may leave that to the docstring of the base class's.

    PYTHONPATH=docs python -m sitebuilder.described
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum

from sitebuilder import ROOT
from sitebuilder.inventory import INTERNAL, PACKAGE, PAGES, Public, everything, listed, names_of

MOST_UNDESCRIBED = 2
"""A function of so many parameters may do without a section on them."""
NO_DOCSTRING, NO_PARAMETERS = "no docstring", "parameters not described"
SECTIONS = {"Parameters", "Other Parameters", "Attributes"}


def docstring(public: Public) -> str:
    """The docstring of a public name, that of a method's base class where it has none of its own."""
    if public.kind in ("class", "exception"):
        own = vars(public.value).get("__doc__") or ""
        made = own.startswith(f"{public.value.__name__}(")  # by dataclass
        return "" if made else inspect.cleandoc(own)
    if public.value.__doc__:
        return inspect.cleandoc(public.value.__doc__)
    return next(inherited(public), "")


def inherited(public: Public) -> Iterator[str]:
    """Docstrings of a method in its class and the bases of that, the nearest first."""
    if public.kind in ("method", "property"):
        module, _, name = public.parent.rpartition(".")
        owner = getattr(importlib.import_module(module), name)
        for base in owner.__mro__:
            if text := getattr(vars(base).get(public.name), "__doc__", None):
                yield inspect.cleandoc(text)


def parameters(public: Public) -> list[str]:
    """Names of the parameters that a caller gives, without ``*args`` and ``**options``."""
    if public.kind in ("property", "data"):
        return []
    value = public.value
    if public.kind == "exception":
        value = vars(value).get("__init__")
    elif public.kind == "class" and issubclass(value, Enum):
        return []
    try:
        given = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []
    names = [one.name for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    bound = names[:1] in (["self"], ["cls"])
    return [name for name in names[bound:] if not name.startswith("_")]


def described(text: str) -> set[str]:
    """Names that the sections of a docstring describe."""
    found: set[str] = set()
    section = ""
    lines = text.splitlines()
    for line, below in zip(lines, [*lines[1:], ""]):
        if re.fullmatch("-{3,}", below):
            section = line.strip()
        elif section in SECTIONS and line and not line[0].isspace() and not re.fullmatch("-+", line):
            found |= {name.strip().lstrip("*") for name in line.partition(":")[0].split(",")}
    return found


def fault(public: Public) -> str:
    """Name what is missing of a public name's docstring; empty if nothing."""
    if public.kind == "data":
        return ""
    text = docstring(public)
    if not text:
        return NO_DOCSTRING
    names = parameters(public)
    if len(names) <= MOST_UNDESCRIBED:
        return ""
    known = set().union(*map(described, [text, *inherited(public)]))
    return NO_PARAMETERS if set(names) - known else ""


def missing_from_reference() -> Iterator[str]:
    """Public names that no page of the reference has, and modules with ``__all__`` that no page knows."""
    on_pages = {group.module for page in PAGES for group in page.groups}
    there = {id(public.value) for public in listed()} | {public.name for public in listed() if public.kind == "data"}
    for module in sorted(on_pages):
        for name in names_of(module):
            value = getattr(importlib.import_module(module), name)
            if not {id(value), name} & there:
                yield f"{module}.{name}: on no page of the reference, see PAGES in docs/sitebuilder/inventory.py"
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in on_pages and not module.startswith(tuple(INTERNAL)):
            if re.search("^__all__ = ", file.read_text(encoding="utf-8"), re.MULTILINE):
                yield f"{module}: its names are on no page of the reference, see PAGES in docs/sitebuilder/inventory.py"


def faults() -> list[str]:
    """All faults, as ``name: fault``."""
    return [
        *missing_from_reference(),
        *sorted(f"{public.path}: {found}" for public in everything() if (found := fault(public))),
    ]


def main() -> int:
    """Print the faults."""
    found = faults()
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
