"""Pictures of the pages: the files are what their functions draw, the words in them are readable, pages show all."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from sitebuilder.pictures import FOLDER, PICTURES, __main__, windows
from sitebuilder.pictures.computing import backend
from sitebuilder.pictures.drawing import WIDTH, Canvas
from tests import ROOT

pytestmark = pytest.mark.cpu_only("pictures are drawn on the host")
SHOWN = re.compile(r"!\[([^\]]+)\]\(pictures/(\w+)\.svg\)")
SMALLEST = 8
"""Points: as many pixels on a wide screen, and 6 on a phone of 390 pixels."""


def words(svg: str) -> list[str]:
    """The text in a picture."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()) for text in texts]


def drawn_by(svg: str) -> str:
    """The version of Matplotlib that a file names."""
    return re.findall(r"Matplotlib v([\d.]+)", svg)[0]


@pytest.mark.parametrize("name", PICTURES)
def test_the_file_is_what_the_function_draws(name: str) -> None:
    """Another version of Matplotlib may write other lines; the words are the same."""
    kept, made = (FOLDER / f"{name}.svg").read_text(encoding="utf-8"), PICTURES[name]().svg()
    assert words(kept) == words(made), "run: make docs-pages"
    assert kept == made or drawn_by(kept) != drawn_by(made), "run: make docs-pages"


@pytest.mark.parametrize("name", PICTURES)
def test_words_can_be_read(name: str) -> None:
    """No two of them overlap, none is cut off or small."""
    canvas = PICTURES[name]()
    assert faults(canvas) == []


def faults(canvas: Canvas) -> list[str]:
    found = canvas.words()
    wide, high = canvas.figure.get_size_inches() * canvas.figure.dpi
    said = [f"small: {text}" for text, size, _ in found if size < SMALLEST]
    said += [f"cut off: {text}" for text, _, at in found if at.x0 < 0 or at.y0 < 0 or at.x1 > wide or at.y1 > high]
    pairs = itertools.combinations(found, 2)
    return said + [f"overlap: {one[0]} and {other[0]}" for one, other in pairs if one[2].overlaps(other[2])]


def test_unreadable_words_are_found() -> None:
    canvas = Canvas(10)
    canvas.text((20, 5), "one")
    canvas.text((21, 5.3), "two")
    canvas.text((WIDTH, 8), "outside")
    canvas.text((5, 2), "tiny", size=5)
    assert faults(canvas) == ["small: tiny", "cut off: outside", "overlap: one and two"]


def test_every_picture_is_on_a_page() -> None:
    shown: dict[str, str] = {}
    for page in (ROOT / "docs").glob("*.md"):
        shown |= {name: alt for alt, name in SHOWN.findall(page.read_text(encoding="utf-8"))}
    assert set(shown) == set(PICTURES) == {path.stem for path in FOLDER.iterdir()}
    assert [name for name, alt in shown.items() if len(alt.split()) < 10] == []
    assert {name for _, name in SHOWN.findall((ROOT / "docs" / "expressions.md").read_text("utf-8"))}


def test_pictures_are_the_same_each_time_and_see_through(tmp_path: Path) -> None:
    assert __main__.main(["lrn", "--to", str(tmp_path)]) == 0
    (made,) = tmp_path.iterdir()
    assert made.name == "lrn.svg" and made.read_text(encoding="utf-8") == PICTURES["lrn"]().svg()
    background = ElementTree.parse(made).find(".//*[@id='patch_1']/{*}path")
    assert background is not None and re.search(r"fill: none|opacity: 0", background.get("style", ""))


# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "at", "rows"),
    [({"pad_h": 1, "pad_w": 1, "str_h": 2, "str_w": 2}, (0, 1), [0, 1]), ({"dil_h": 2, "dil_w": 2}, (0, 1), [0, 2, 4])],
)
def test_inputs_that_an_output_reads(sizes: dict[str, int], at: tuple[int, int], rows: list[int]) -> None:
    """Row p str - pad + r dil for each tap r, of those in the image; columns likewise."""
    be: Any = backend()
    layer = be.conv_layer(None, 1, 1, 1, H=7, W=7, R=3, S=3, **sizes)
    read = windows.read_by(be, layer, at)
    assert np.flatnonzero(read.any(axis=1)).tolist() == rows
    first = at[1] * sizes.get("str_w", 1) - sizes.get("pad_w", 0)
    assert np.flatnonzero(read.any(axis=0)).tolist() == [first + s * sizes.get("dil_w", 1) for s in range(3)]


def test_the_words_are_the_librarys_numbers() -> None:
    pooling, tree = (words(PICTURES[name]().svg()) for name in ("pooling", "expression_kernel"))
    after = pooling.index("max")
    assert pooling[after + 1 : after + 5] == ["8", "8", "6", "9"]
    assert pooling.count("4/9") == 1 and pooling.count("2/9") == 8 and pooling.count("1/9") == 16
    assert "plan: 1 stage, 1 kernel" in tree and "v2 = sig(v1)" in tree and "store v2 in out" in tree
