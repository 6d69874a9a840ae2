"""Pages of the reference: a page for each part of the library, in reStructuredText that autodoc fills."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Iterator

from sitebuilder import DOCS
from sitebuilder.docstrings import escaped
from sitebuilder.inventory import PAGES, Page, Part, Public, contents, methods, parts
from sitebuilder.layout import slug

DIRECTIVES = {"class": "autoclass", "exception": "autoexception", "function": "autofunction", "data": "autodata",
              "method": "automethod", "property": "autoproperty"}  # fmt: skip
ROLES = {"class": "class", "exception": "exc", "function": "func", "data": "data", "method": "meth", "property": "attr"}


def pages() -> Iterator[tuple[str, str]]:
    """Each page of the reference: its path in the site, without suffix, and its text."""
    yield "api/index", _index()
    for part in parts():
        yield f"api/{part.name}", _part(part)
    for page in PAGES:
        yield f"api/{page.name}", _page(page)


def title(text: str, line: str = "=") -> str:
    """A heading."""
    return f"{text}\n{line * len(text)}\n"


def first_sentence(value: object) -> str:
    """The first sentence of an object's docstring, on one line; a full stop within a literal does not end it."""
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    ends = (match.start() for match in re.finditer(r"(?<=[.!?])\s", paragraph))
    return escaped(next((paragraph[:end] for end in ends if paragraph[:end].count("``") % 2 == 0), paragraph))


def text_of(value: object) -> str:
    """An object's docstring up to its first section."""
    return escaped(re.split(r"^\w[\w ]*\n-{3,}$", inspect.getdoc(value) or "", flags=re.MULTILINE)[0])


@functools.cache
def sections_of_formulas() -> dict[str, str]:
    """Method of a backend -> heading of the section of docs/formulas.md that first names it.

    Names without an underscore count if ``be.`` stands before them: ``relu`` is an argument there.
    """
    _, *rest = re.split(r"^## (.+)$", (DOCS / "formulas.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for heading, body in zip(rest[::2], rest[1::2]):
        for name in re.findall(r"`(?:be\.(\w+)|([a-zA-Z]+_\w+))[`(]", body):
            found.setdefault("".join(name), heading)
    return found


def _formulas(names: Iterable[Public]) -> str:
    """A line with links to the sections that have the formulas of methods; empty if none has."""
    known = sections_of_formulas()
    headings = dict.fromkeys(known[public.name] for public in names if public.name in known)
    links = ", ".join(f"`{heading} <../formulas.html#{slug(heading)}>`__" for heading in headings)
    return f"Formulas: {links}.\n" if links else ""


def _index() -> str:
    """The list of all pages."""
    first, *others = (page.name for page in PAGES)
    names = [first, *(part.name for part in parts()), *others]
    lines = "\n".join(f"   {name}" for name in names)
    return "\n".join([
        title("Reference"),
        "Every public name: its signature with types, its parameters, results and errors, and its source.",
        "A backend, ``be``, comes from :func:`neonlike.backends.gen_backend`; its methods fill the pages that begin",
        "with ``be``. An index of all names: :ref:`genindex`.\n",
        f".. toctree::\n   :maxdepth: 1\n\n{lines}\n",
    ])  # fmt: skip


def _summary(names: Iterable[Public]) -> str:
    """A table of names with the first sentences of their docstrings."""
    rows = []
    for public in names:
        said = "" if public.kind == "data" else first_sentence(public.value)
        rows.append(f"   * - :{ROLES[public.kind]}:`{public.name} <{public.path}>`\n     - {said}")
    return ".. list-table::\n   :class: names\n   :widths: 30 70\n\n" + "\n".join(rows) + "\n"


def _page(page: Page) -> str:
    """A page of classes and functions."""
    pieces = [title(page.title)]
    if page.text:
        pieces.append(f"{page.text}\n")
    groups = contents()[page.name]
    pieces.append(_summary(public for _, names in groups for public in names))
    for group, names in groups:
        if group.title:
            pieces.append(title(group.title, "-"))
        pieces += [_object(public) for public in names]
    return "\n".join(pieces)


def _object(public: Public) -> str:
    """The directive of a class, function or constant."""
    options = []
    if public.kind in ("class", "exception"):
        own = [] if public.name == "Backend" else [one.name for one in methods(public)]
        options = [":show-inheritance:", *([f":members: {', '.join(own)}", ":undoc-members:"] if own else [])]
    return "\n".join([f".. {DIRECTIVES[public.kind]}:: {public.path}", *(f"   {option}" for option in options), ""])


def _part(part: Part) -> str:
    """A page of methods of a backend, family by family."""
    pieces = [title(part.title)]
    if part.text:
        pieces.append(f"{part.text}\n")
    pieces.append(_summary(public for _, names in part.families for public in names))
    for family, names in part.families:
        if len(part.families) > 1:
            pieces.append(title(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", family.__name__.removesuffix("Family")), "-"))
            pieces += [f"{text_of(family)}\n", _formulas(names)]
        pieces += [f".. {DIRECTIVES[public.kind]}:: {public.path}\n" for public in names]
    return "\n".join(pieces)
