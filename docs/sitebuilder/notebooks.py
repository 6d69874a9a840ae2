"""Pages of the notebooks in ``examples/notebooks``: their text, code and stored outputs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sitebuilder import ROOT
from sitebuilder.gallery import EXAMPLES
from sitebuilder.layout import page_of
from sitebuilder.links import Turn

FOLDER = EXAMPLES / "notebooks"


@dataclass
class Notebook:
    """A notebook as a page.

    Attributes
    ----------
    name : str
    text : str
        Markdown.
    pictures : dict of str to bytes
        Pictures among its outputs, by their names in the text.
    """

    name: str
    text: str = ""
    pictures: dict[str, bytes] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The first heading."""
        return self.text.partition("\n")[0].lstrip("# ")


def notebooks(turn: Turn) -> list[Notebook]:
    """All notebooks; none where the folder does not exist."""
    return [read(path, turn) for path in sorted(FOLDER.glob("*.ipynb"))]


def read(path: Path, turn: Turn) -> Notebook:
    """Read a notebook, and have the links of its text turned."""
    base = path.relative_to(ROOT).as_posix()
    page = page_of(base)
    made = Notebook(page.removeprefix("gallery/"))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    def told(text: str) -> str:
        return turn(text, base, page)

    made.text = "\n\n".join(piece for cell in cells for piece in _pieces(cell, made, told)) + "\n"
    return made


def _pieces(cell: dict[str, Any], made: Notebook, told: Callable[[str], str]) -> Iterator[str]:
    """The Markdown of a cell, and of its outputs."""
    source = "".join(cell["source"]).strip()
    if cell["cell_type"] == "markdown":
        yield told(source)
    elif source:
        yield f"````python\n{source}\n````"
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if picture := data.get("image/png"):
            name = f"images/{made.name}/{len(made.pictures)}.png"
            made.pictures[name] = base64.b64decode("".join(picture))
            yield f"![Picture that the code before it draws]({name})"
        elif text := "".join(output.get("text", data.get("text/plain", ""))).strip():
            yield f"````text\n{text}\n````"
