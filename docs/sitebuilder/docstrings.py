"""Docstrings in the site: the pages that they name become links, and bars are bars."""

from __future__ import annotations

import re
from typing import Any

from sitebuilder import DOCS

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


def escaped(text: str) -> str:
    """Text of a docstring as reStructuredText."""
    return BAR.sub(lambda match: match[1] or "\\|", text)


def _link(match: re.Match[str]) -> str:
    """The role that links to a page, if it exists."""
    if not (DOCS / f"{match[1]}.md").exists():
        return match[0]
    return f":doc:`docs/{match[1]}.md </{match[1]}>`"
