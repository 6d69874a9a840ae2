"""A reader of pages as a screen reader meets them: headings, images with texts, tables with headings."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """The contents of a page.

    Attributes
    ----------
    faults : list of str
        Tags that do not match, ids that occur twice, images and tables that a screen reader cannot tell.
    headings, texts : list of str
    charts : list of str
        Texts of the SVG images.
    tables : list of lists of rows
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.charts: list[str] = []
        self.images: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.links: list[str] = []
        self.ids: Counter[str] = Counter()
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self._open]
        self.faults += [f"id {name} occurs {count} times" for name, count in self.ids.items() if count > 1]
        self.faults += [f"{link} leads nowhere" for link in self.links if link[0] == "#" and link[1:] not in self.ids]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given:
            self.ids[given["id"] or ""] += 1
        if tag == "img":
            self.images.append(given.get("alt") or "")
            self.faults += [] if given.get("alt") else ["img without alt"]
        if tag == "svg":
            self.charts.append(given.get("aria-label") or "")
            self.faults += [] if given.get("role") == "img" and given.get("aria-label") else ["svg without a text"]
        if tag == "th" and "scope" not in given:
            self.faults.append("th without scope")
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if "id" in dict(attrs):
            self.ids[dict(attrs)["id"] or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes another tag")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in ("h1", "h2", "h3"):
            self.headings.append(data)
        if inside in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if data.strip() and inside not in ("style", "script"):
            self.texts.append(data.strip())

    def has(self, text: str) -> bool:
        """Whether a text of the page contains ``text``."""
        return any(text in one for one in self.texts)
