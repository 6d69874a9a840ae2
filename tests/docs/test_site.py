"""The whole site is built once, without the runs of its gallery, and looked at."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike.optree.ops import OPS
from sitebuilder import __main__ as builder
from sitebuilder import described, html, staging
from sitebuilder.gallery import ExampleFailed
from sitebuilder.links import BrokenLink
from tests import ROOT


def text_of(file: Path) -> str:
    """The text of a page, without tags."""
    return re.sub(r"<[^>]+>", "", file.read_text(encoding="utf-8")).replace("&#39;", "'")


@pytest.mark.parametrize("fault", ["name", "link", "example", "warning", "html"])
def test_a_fault_anywhere_ends_the_build(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step in turn says that something is wrong; without one the build succeeds."""

    def stage(*_given: object, **_named: object) -> None:
        if fault in ("link", "example"):
            raise BrokenLink("planted") if fault == "link" else ExampleFailed("planted")

    def build(*_given: object) -> int:
        return 2 if fault == "warning" else 0

    monkeypatch.setattr(described, "faults", lambda: ["planted"] if fault == "name" else [])
    monkeypatch.setattr(staging, "stage", stage)
    monkeypatch.setattr(builder, "build", build)
    monkeypatch.setattr(html, "faults", lambda folder: ["planted"] if fault == "html" else [])
    assert builder.main(["--output", str(tmp_path)]) == (2 if fault == "warning" else 1)
    assert capsys.readouterr().err == ("" if fault == "warning" else "planted\n")
    fault = ""
    monkeypatch.setattr(described, "faults", lambda: [])
    monkeypatch.setattr(html, "faults", lambda folder: [])
    assert builder.main(["--output", str(tmp_path)]) == 0


@pytest.mark.slow
def test_the_site_is_built_whole(tmp_path: Path) -> None:
    """The builder itself fails on a warning of Sphinx, a broken link, and anything loaded from elsewhere."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT)])}
    command = [sys.executable, "-m", "sitebuilder", "--no-runs", "--output", str(tmp_path)]
    made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800)
    assert made.returncode == 0, made.stdout + made.stderr
    built = tmp_path / "html"
    pages_are_there(built)
    the_index_finds_names(built)
    signatures_have_types(built)
    every_builder_of_an_op_is_described(built)
    formulas_and_pictures_are_there(built)


def pages_are_there(built: Path) -> None:
    """Every page of ``docs``, and every example."""
    names = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert len(names) > 15
    missing = [name for name in names if not (built / f"{name}.html").exists()]
    examples = [path.stem for path in (ROOT / "examples").glob("*.py")]
    missing += [name for name in examples if not (built / "gallery" / f"{name}.html").exists()]
    assert missing == []
    assert "conv_shapes" in text_of(built / "performance" / "index.html")
    assert "geometric mean" in text_of(built / "performance" / "conv_shapes.html")
    assert "def build_model" in text_of(built / "gallery" / "digits_mlp.html")


def the_index_finds_names(built: Path) -> None:
    """The index of the search, which a browser reads without a server, has words and names."""
    text = (built / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert "api/backends" in found["docnames"]
    assert "minibatch" in found["terms"]
    assert any(entry[4] == "gen_backend" for entry in found["objects"]["neonlike.backends"])


def signatures_have_types(built: Path) -> None:
    """A function's signature has its annotations, its description the parameters, and a link to the source."""
    page = text_of(built / "api" / "backends.html")
    assert re.search(r"rng_seed:\s+int\s+\|\s+None\s+=\s+None", page)
    assert "Seed; None takes entropy from the system." in page
    assert '_modules/neonlike/backends/registry.html#gen_backend"' in (built / "api/backends.html").read_text("utf-8")


def every_builder_of_an_op_is_described(built: Path) -> None:
    page = (built / "api" / "be_expressions.html").read_text(encoding="utf-8")
    page += (built / "api" / "be_products.html").read_text(encoding="utf-8")
    names = [builder for spec in OPS.values() for builder in spec.builders]
    assert len(names) > 50
    assert [name for name in names if f'id="neonlike.backends.Backend.{name}"' not in page] == []


def formulas_and_pictures_are_there(built: Path) -> None:
    """Formulas are MathML, in the page itself; the reference links to them."""
    page = (built / "formulas.html").read_text(encoding="utf-8")
    assert page.count("<math") > 100 and "mathjax" not in page.lower()
    pictures = re.findall(r'<img alt="([^"]{40,})" src="([^"]+\.svg)"', page)
    assert len(pictures) == 12 and all((built / src).exists() for _, src in pictures)
    assert "formulas.html#convolution" in (built / "api" / "be_images.html").read_text(encoding="utf-8")
