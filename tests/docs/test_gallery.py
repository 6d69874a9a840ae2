"""Pages of examples and notebooks: what they say, print and draw, and their source."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from sitebuilder import gallery, notebooks
from sitebuilder.links import Links

SCRIPT = '''"""Draw a point.

More of it.
"""
import sys
print("drawn", sys.argv[1:])
open("b.png", "wb").write(b"PNG")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with nothing but a folder of examples."""
    monkeypatch.setattr(gallery, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    (tmp_path / "examples").mkdir()
    return tmp_path / "examples"


def test_quick_arguments_are_those_of_examples() -> None:
    assert set(gallery.QUICK) <= {script.stem for script in gallery.examples()}


def test_a_run_has_output_and_pictures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "point.py"
    script.write_text(SCRIPT)
    monkeypatch.setitem(gallery.QUICK, "point", ("--epochs", "1"))
    made = gallery.run(script)
    assert made == gallery.Run("python examples/point.py --epochs 1", "drawn ['--epochs', '1']\n", {"b.png": b"PNG"})
    assert list(folder.iterdir()) == [script]
    page = gallery.page(script, made)
    order = ["# point\n\nDraw a point.", "More", "Of `python examples/point.py", "drawn", "import"]
    assert [page.index(text) for text in order] == sorted(page.index(text) for text in order)
    assert "Output" not in gallery.page(script, None)
    index = gallery.index([script], {"a_notebook": "All of it"}, {"point": made})
    assert "| [point](point.md) | Draw a point. |" in index and "(images/point/b.png)](point.md)" in index
    assert "| [a_notebook](a_notebook.md) | All of it |" in index
    assert index.index("```{toctree}") < index.index("\npoint\na_notebook\n```")


@pytest.mark.parametrize(("text", "said"), [("1 / 0\n", "ZeroDivisionError"), ("while True: pass\n", "not done after")])
def test_an_example_that_fails_ends_the_build(
    folder: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "SECONDS", 1 if "while" in text else 60)
    script = folder / "bad.py"
    script.write_text(text)
    with pytest.raises(gallery.ExampleFailed, match=said):
        gallery.run(script)


def test_no_notebook_takes_the_page_of_a_script() -> None:
    names = [notebook.name for notebook in notebooks.notebooks(Links().turned)]
    assert set(names).isdisjoint(script.stem for script in gallery.examples())


def test_a_notebook_is_a_page(folder: Path) -> None:
    picture = base64.b64encode(b"PNG").decode()
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[a](#b)"]},
        {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": [{"data": {"text/plain": ["1"]}}]},
        {"cell_type": "code", "source": "", "outputs": [{"text": "printed\n"}, {"data": {"image/png": picture}}]},
    ]
    (folder / "notebooks").mkdir()
    file = folder / "notebooks" / "notes.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    made = notebooks.read(file, Links().turned)
    assert made.title == "Title"
    code, shown, printed = "````python\nx = 1\nx\n````", "````text\n1\n````", "````text\nprinted\n````"
    assert made.text.startswith("\n\n".join(["# Title\n[a](#b)", code, shown, printed]))
    assert made.pictures == {"images/notebook_notes/0.png": b"PNG"} and "](images/notebook_notes/0.png)" in made.text
