"""Links of Markdown pages, turned from paths in the repository to paths in the site."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sitebuilder import ROOT
from sitebuilder.layout import RESULTS, file_name, page_of, repository_path, slug

PIECES = re.compile(
    r"(?P<code>^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[^\S\n]*$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<link>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
"""Code, which is left alone, and links. A link's text may have code in it."""
FILE_NAME = re.compile(r"\[[\w./]*\.md\]")
"""Text of a link that is the name of the page."""
PICTURES = {".png", ".svg", ".jpg", ".gif"}


class BrokenLink(ValueError):
    """A page links to a file that does not exist."""


@dataclass
class Links:
    """Turns links, and keeps what the site must have because pages link to it.

    Attributes
    ----------
    sources : set of str
        Files of the repository that are to be shown as source.
    pictures : set of str
        Files of the repository that are to be copied.
    """

    sources: set[str] = field(default_factory=set)
    pictures: set[str] = field(default_factory=set)

    def turned(self, text: str, base: str, page: str) -> str:
        """The text of a page with its links turned.

        Parameters
        ----------
        text : str
            Markdown.
        base : str
            The file of the repository that the text is from; its links are relative to that.
        page : str
            The page of the site that the text becomes.

        Raises
        ------
        BrokenLink
            If a link leads to a file that does not exist, or outside of the repository.
        """

        def turn(match: re.Match[str]) -> str:
            if match["code"]:
                return match[0]
            text = PIECES.sub(turn, match["link"][1:]) if "](" in match["link"] else match["link"][1:]
            if FILE_NAME.fullmatch(match["link"]):
                text = "]"  # Sphinx puts the title of the page there
            return f"{match['link'][0]}{text}({self._target(match['target'], base, page)})"

        return PIECES.sub(turn, text)

    def _target(self, target: str, base: str, page: str) -> str:
        if re.match(r"[a-z]+:|#", target):
            return target
        name, _, anchor = target.partition("#")
        path = repository_path(name, base)
        if not path or not (ROOT / path).exists():
            raise BrokenLink(f"{base}: links to {target}, which does not exist")
        if PurePosixPath(path).suffix in PICTURES:
            self.pictures.add(path)
            return relative(f"files/{path}", page)
        if (ROOT / path).is_dir() and path != "examples":
            path = f"{path}/README.md"
            if not (ROOT / path).exists():
                raise BrokenLink(f"{base}: links to the folder {name}, which has no README.md")
        to = page_of(path)
        if to.startswith("source/"):
            self.sources.add(path)
        if path == RESULTS and anchor in result_pages():
            to, anchor = result_pages()[anchor], ""
        return relative(f"{to}.md", page) + (f"#{anchor}" if anchor else "")


def relative(path: str, page: str) -> str:
    """``path`` relative to the folder of ``page``."""
    return os.path.relpath(path, os.path.dirname(page) or ".")


def result_pages() -> dict[str, str]:
    """Anchor of each section of RESULTS.md -> its page in the site."""
    headings = re.findall(r"^## (.+)$", (ROOT / RESULTS).read_text(encoding="utf-8"), re.MULTILINE)
    return {slug(heading): f"performance/{file_name(heading)}" for heading in headings}


Turn = Callable[[str, str, str], str]
"""``Links.turned``."""
