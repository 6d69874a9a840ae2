"""Links from shown source to the reference, corrected.

Sphinx takes all names of a source file for names of one public module, that of the first which the reference has. Where
programs import them from several modules, the other links lead to anchors that do not exist.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

LINK = re.compile(
    r'(?P<block><div class="viewcode-block" id="(?P<name>[^"]+)">\s*)'
    r'<a class="viewcode-back" href="(?P<page>[^"#]*)#(?P<anchor>[^"]*)">(?P<text>.*?)</a>'
)


@cache
def anchors(file: Path) -> tuple[str, ...]:
    """The anchors of a built page."""
    return tuple(re.findall(r' id="([^"]+)"', file.read_text(encoding="utf-8")))


def correct(folder: Path) -> None:
    """Turn each link from source to the name on the page it leads to, and remove it where the page has no such name."""
    anchors.cache_clear()
    for file in (folder / "_modules").rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        turned = LINK.sub(lambda match, file=file: _turned(match, file), text)  # type: ignore[misc]
        if turned != text:
            file.write_text(turned, encoding="utf-8")


def _turned(match: re.Match[str], file: Path) -> str:
    """A link with the anchor that exists."""
    there = anchors((file.parent / match["page"]).resolve())
    if match["anchor"] in there:
        return match[0]
    found = [anchor for anchor in there if anchor.endswith(f".{match['name']}")]
    return match["block"] + (
        f'<a class="viewcode-back" href="{match["page"]}#{found[0]}">{match["text"]}</a>' if found else ""
    )
