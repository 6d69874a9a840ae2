"""Check of the public names' docstrings: each has one, which describes the parameters where there are three or more.

``docs/undescribed.txt`` lists the names that are not there yet. The list only becomes shorter: ``--shrink`` removes the
entries that are no longer needed, nothing adds one.

    PYTHONPATH=docs python -m sitebuilder.described [--shrink]
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator

from sitebuilder import DOCS, ROOT
from sitebuilder.inventory import INTERNAL, PACKAGE, PAGES, Public, contents, everything, listed, names_of

ALLOWED = DOCS / "undescribed.txt"
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
    if public.kind in ("method", "property"):
        module, _, name = public.parent.rpartition(".")
        owner = getattr(importlib.import_module(module), name)
        inherited = (getattr(vars(base).get(public.name), "__doc__", None) for base in owner.__mro__)
        return inspect.cleandoc(next(filter(None, inherited), ""))
    return ""


def parameters(public: Public) -> list[str]:
    """Names of the parameters that a caller gives, without ``*args`` and ``**options``."""
    if public.kind in ("property", "data"):
        return []
    value = public.value
    if public.kind == "exception":
        value = vars(value).get("__init__")
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
    return NO_PARAMETERS if len(names) > MOST_UNDESCRIBED and set(names) - described(text) else ""


def faults(names: Iterable[Public]) -> list[str]:
    """All faults, as ``name: fault``, sorted."""
    return sorted(f"{public.path}: {found}" for public in names if (found := fault(public)))


def allowed() -> set[str]:
    """Entries of the list of names that are not described yet."""
    return set(ALLOWED.read_text(encoding="utf-8").splitlines()) if ALLOWED.exists() else set()


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


def new_faults() -> list[str]:
    """Faults that are not on the list."""
    assert contents()
    return [*missing_from_reference(), *(one for one in faults(everything()) if one not in allowed())]


def unneeded() -> list[str]:
    """Entries of the list whose names are described by now."""
    return sorted(allowed() - set(faults(everything())))


def main() -> int:
    """Print the faults, or with ``--shrink`` shorten the list."""
    if "--shrink" in sys.argv:
        kept = sorted(allowed() - set(unneeded()))
        ALLOWED.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        return 0
    found = new_faults()
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
