"""The notebooks run from top to bottom, and show what they did when they were saved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from neonlike.kernels.c.toolchain import find_compiler
from tests import ROOT

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SIZE = 100_000
"""Bytes of a notebook with its pictures, at most."""


def run(notebook: Any, folder: Path) -> Any:
    """Run a notebook on a kernel of this interpreter."""
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    return notebook


def outputs(notebook: Any) -> list[list[str]]:
    """For each cell of code what it printed, and the kinds of its other outputs; without warnings, as of compilers."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
            found.append([text, *(output.output_type for output in cell.outputs if output.output_type != "stream")])
    return found


def alike(text: str) -> str:
    """A text without the digits of its numbers, which may differ between machines."""
    return re.sub(r"\d+", "0", text)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Kernels and settings of the user are not looked at, and nothing is left in the home folder."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    yield tmp_path


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["char_lstm", "custom_op", "digits"]


@pytest.mark.skipif(find_compiler() is None, reason="the notebooks show kernels in C")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_the_same(path: Path, alone: Path) -> None:
    saved = nbformat.read(path, as_version=4)
    nbformat.validate(saved)
    before = outputs(saved)
    after = outputs(run(nbformat.read(path, as_version=4), path.parent))
    assert "stderr" not in str([cell.get("outputs") for cell in saved.cells])
    written = path.stem == "char_lstm"  # what the network writes depends on roundings
    for old, new in zip(before[:-1] if written else before, after[:-1] if written else after, strict=True):
        assert [alike(text) for text in old] == [alike(text) for text in new]
    assert path.stat().st_size < SIZE


def test_the_digits_are_read(alone: Path) -> None:
    saved = nbformat.read(ROOT / "examples" / "notebooks" / "digits.ipynb", as_version=4)
    (accuracy,) = re.findall(r"accuracy on \d+ test images: (\d+)%", str(outputs(saved)))
    assert int(accuracy) > 92


def test_a_cell_that_fails_is_found(alone: Path) -> None:
    cells = [nbformat.v4.new_code_cell("x = 1"), nbformat.v4.new_code_cell("assert x == 2")]
    with pytest.raises(CellExecutionError, match="AssertionError"):
        run(nbformat.v4.new_notebook(cells=cells), alone)


def test_an_output_that_changed_is_found() -> None:
    assert alike("accuracy 97%\n") == alike("accuracy 96%\n") != alike("error 97%\n")
