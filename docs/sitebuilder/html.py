"""Check of the built pages: each local link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADS = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
"""What a browser fetches by itself; other links are followed by the reader."""
OWN = {"canonical", "author", "license", "next", "prev", "index", "search", "genindex"}
"""Relations of a ``link`` that load nothing."""
REMOTE = re.compile(r"(?:https?:)?//", re.IGNORECASE)


@dataclass
class Document(HTMLParser):
    """Links and anchors of an HTML page.

    Attributes
    ----------
    anchors : set of str
    links : list of (int, str, bool)
        Line, target, and whether a browser loads it.
    """

    anchors: set[str] = field(default_factory=set)
    links: list[tuple[int, str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and links of a tag."""
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src", "data"):
            if name in given:
                own = tag == "link" and bool(OWN & set(given.get("rel", "").split()))
                self.links.append((self.getpos()[0], given[name], (tag, name) in LOADS and not own))


def read(file: Path) -> Document:
    """Parse a page."""
    document = Document()
    document.feed(file.read_text(encoding="utf-8"))
    return document


def faults(folder: Path) -> list[str]:
    """Broken links, and resources of other servers, as ``file:line: fault``."""
    documents = {file.resolve(): read(file) for file in sorted(folder.rglob("*.html"))}
    found = []
    for file, document in documents.items():
        faults_of = cache(lambda target, loaded, file=file: _fault(file, target, loaded, documents))
        for line, target, loaded in document.links:
            if fault := faults_of(target, loaded):
                found.append(f"{file.relative_to(folder.resolve())}:{line}: {fault}")
    return [*found, *_faults_of_styles(folder)]


def _fault(file: Path, target: str, loaded: bool, documents: dict[Path, Document]) -> str:
    """The fault of one link; empty if there is none."""
    if REMOTE.match(target):
        return f"loads {target} from elsewhere" if loaded else ""
    if re.match(r"[a-zA-Z][\w+.-]*:", target):  # data:, mailto:
        return ""
    name, anchor = urldefrag(target)
    there = (file.parent / unquote(name.partition("?")[0])).resolve() if name else file
    if there.is_dir():
        there /= "index.html"
    if not there.exists():
        return f"{target} does not exist"
    if anchor and there in documents and unquote(anchor) not in documents[there].anchors:
        return f"{target} has no such anchor"
    return ""


def _faults_of_styles(folder: Path) -> Iterator[str]:
    """Style sheets that load something from elsewhere."""
    for file in sorted(folder.rglob("*.css")):
        for match in re.finditer(r"(?:url\(\s*|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)", file.read_text("utf-8")):
            yield f"{file.relative_to(folder)}: loads {match[1]} from elsewhere"
