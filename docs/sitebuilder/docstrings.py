"""Docstrings in the site: the pages that they name become links, and bars are bars."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from sitebuilder import DOCS
from sitebuilder.inventory import PACKAGE, documented_classes

BAR = re.compile(r"(``.+?``)|\|(?=[^\s|])")
"""A bar that reStructuredText takes for the beginning of a substitution, as in |a|; not within a literal."""
CLASS = re.compile(r"<class '(?:numpy\.)?([\w.]+)'>")
PAGE = re.compile(r"(?<![\w`/])docs/(\w+)\.md(?:#[\w-]+)?(?!\w)")


def with_links(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn ``docs/gpu.md`` in the lines of a docstring into a link to that page of the site; a handler of autodoc."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else PAGE.sub(_link, escaped(line)) for line in lines]


def with_short_defaults(_app: Any, _what: str, _name: str, _object: Any, _options: Any, given: Any, result: Any) -> Any:
    """Write defaults that are classes as in the source, not as Python shows them; a handler of autodoc."""
    return (CLASS.sub(r"\1", given), result) if given else None


def with_public_bases(_app: Any, _name: str, _object: Any, _options: Any, bases: list[Any]) -> None:
    """Name the nearest public class in place of a base class that the reference lacks; a handler of autodoc."""
    bases[:] = dict.fromkeys(filter(None, map(_public, bases))) or [object]


def _public(base: Any) -> Any:
    """The class that is named in place of ``base``, if any."""
    if not getattr(base, "__module__", "").startswith(PACKAGE):
        return base
    return next((owner for owner in base.__mro__ if owner in documented_classes()), None)


def with_dashes(_app: Any, document: nodes.document) -> None:
    """Separate parameters from their descriptions by dashes; a handler of Sphinx."""
    for text in list(document.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def escaped(text: str) -> str:
    """Text of a docstring as reStructuredText."""
    return BAR.sub(lambda match: match[1] or "\\|", text)


def _link(match: re.Match[str]) -> str:
    """The role that links to a page, if it exists."""
    if not (DOCS / f"{match[1]}.md").exists():
        return match[0]
    return f":doc:`docs/{match[1]}.md </{match[1]}>`"
