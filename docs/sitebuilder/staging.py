"""The sources of the site in a folder of their own: pages of the repository with their links turned, and made ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sitebuilder import DOCS, ROOT, gallery, notebooks, performance, reference
from sitebuilder.layout import CHAPTERS, LAST, MOVED, RESULTS, UNLISTED, page_of
from sitebuilder.links import Links, Turn

LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".yaml": "yaml", ".toml": "toml"}
INDEX = "index"
ORPHAN = "---\norphan: true\n---\n\n"
"""Tells Sphinx that a page is in no table of contents."""


class Folder:
    """Folder of a site's sources, in which only what has changed is written, so that Sphinx reads only that again.

    Parameters
    ----------
    path : Path
        The folder; it is created if missing. Files in it that were not written are removed by ``tidy``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: set[Path] = set()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file, unless it has this content."""
        file = self.path / name
        data = content.encode("utf-8") if isinstance(content, str) else content
        self.written.add(file)
        if not file.exists() or file.read_bytes() != data:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def tidy(self) -> None:
        """Remove the files of earlier builds."""
        for file in list(self.path.rglob("*")):
            if file.is_file() and file not in self.written:
                file.unlink()


def stage(to: Path, with_runs: bool) -> None:
    """Write all sources of the site.

    Parameters
    ----------
    to : Path
        The folder for them.
    with_runs : bool
        Whether the examples are run, for their output.
    """
    folder, links = Folder(to), Links()
    for name, text in documents(links):
        folder.write(f"{name}.md", text)
    for name, text in performance.pages(links.turned):
        folder.write(f"{name}.md", text)
    for name, text in reference.pages():
        folder.write(f"{name}.rst", text)
    _stage_gallery(folder, links.turned, with_runs)
    folder.write(f"{INDEX}.md", index(links))
    _stage_sources(folder, links)
    for path in links.pictures:
        folder.write(f"files/{path}", (ROOT / path).read_bytes())
    folder.tidy()


def documents(links: Links) -> Iterator[tuple[str, str]]:
    """Each page written by hand: its path in the site, without suffix, and its Markdown."""
    files = [f"docs/{name}.md" for name in hand_written()]
    for path in [*files, *(path for path in MOVED if path != RESULTS)]:
        page = page_of(path)
        text = links.turned((ROOT / path).read_text(encoding="utf-8"), path, page)
        yield page, ORPHAN + text if page in UNLISTED else text


def hand_written() -> list[str]:
    """Names of the pages in ``docs``, without the first one."""
    return sorted(path.stem for path in DOCS.glob("*.md") if path.stem != INDEX)


def index(links: Links) -> str:
    """The first page: ``docs/index.md``, and the chapters with those of their pages that exist."""
    named = {page for chapter in CHAPTERS for page in chapter.pages}
    missing = {page for page in named if "/" not in page} - {*hand_written(), *MOVED.values()}
    others = [page for page in hand_written() if page not in named]
    pieces = [links.turned((DOCS / "index.md").read_text(encoding="utf-8"), "docs/index.md", INDEX)]
    for chapter in CHAPTERS:
        pages = [page for page in chapter.pages if page not in missing] + (others if chapter.title == LAST else [])
        if pages:
            entries = "\n".join(pages)
            pieces.append(f"```{{toctree}}\n:caption: {chapter.title}\n:maxdepth: 1\n\n{entries}\n```\n")
    return "\n".join(pieces)


def source_page(path: str, links: Links) -> str:
    """The Markdown of a page that is there because another links to it: a Markdown file itself, or a file's text."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return ORPHAN + links.turned(text, path, page_of(path))
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    fence = "`" * max(4, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ORPHAN}# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _stage_sources(folder: Folder, links: Links) -> None:
    """Write the pages of the files that other pages link to, and of those that these link to."""
    done: set[str] = set()
    while pending := links.sources - done:
        for path in sorted(pending):
            folder.write(f"{page_of(path)}.md", source_page(path, links))
        done |= pending


def _stage_gallery(folder: Folder, turn: Turn, with_runs: bool) -> None:
    """Write the pages of the examples, and the pictures that they save."""
    scripts = gallery.examples()
    runs = dict(gallery.runs(scripts)) if with_runs else {}
    for script in scripts:
        made = runs.get(script.stem)
        folder.write(f"gallery/{script.stem}.md", gallery.page(script, made))
        for name, picture in (made.pictures if made else {}).items():
            folder.write(f"gallery/images/{script.stem}/{name}", picture)
    others = notebooks.notebooks(turn)
    for notebook in others:
        folder.write(f"gallery/{notebook.name}.md", notebook.text)
        for name, picture in notebook.pictures.items():
            folder.write(f"gallery/{name}", picture)
    titles = {notebook.name: notebook.title for notebook in others}
    folder.write("gallery/index.md", gallery.index(scripts, titles, runs))
