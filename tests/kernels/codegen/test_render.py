"""Sources of kernels: told apart by all that their text depends on."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from jinja2 import meta, nodes

from neonlike import kernels
from neonlike.kernels.codegen import render
from neonlike.kernels.codegen.emit import Array, Number
from neonlike.kernels.codegen.render import TemplateSource, environment, files_of, header_texts

pytestmark = pytest.mark.cpu_only("texts of kernels")

FOLDER = Path(kernels.__file__).parent / render.FOLDER
TEMPLATES = sorted(str(path.relative_to(FOLDER).as_posix()) for path in FOLDER.rglob("*.j2"))


def referenced(path: str) -> set[str]:
    """Files that Jinja2 reads for a template, by its own account."""
    found, left = set(), {path}
    while left:
        found |= left
        texts = ((FOLDER / name).read_text() for name in left)
        names = {name for text in texts for name in meta.find_referenced_templates(environment().parse(text))}
        assert None not in names, f"{path} chooses what it includes while it is rendered"
        left = {name for name in names if name} - found
    return found


@pytest.mark.parametrize("path", TEMPLATES)
def test_the_files_of_a_template_are_those_that_jinja_reads(path: str) -> None:
    assert set(files_of(path)) == referenced(path)
    assert files_of(path)[0] == path


@pytest.mark.parametrize("path", TEMPLATES)
def test_templates_ask_arrays_for_nothing_that_kernels_are_not_told_apart_by(path: str) -> None:
    hidden = {field.name for kind in (Array, Number) for field in fields(kind) if not field.repr}
    assert {"shape", "slot"} <= hidden
    asked = {node.attr for node in environment().parse((FOLDER / path).read_text()).find_all(nodes.Getattr)}
    assert not asked & (hidden - {"index"}), "and `index` is that of a loop"


def test_some_template_includes_another() -> None:
    assert any(len(files_of(path)) > 1 for path in TEMPLATES)


@pytest.mark.parametrize("changed", sorted(referenced("c/reduce/rows.c.j2")))
def test_a_kernel_is_another_when_a_file_of_its_template_changes(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = TemplateSource("c/reduce/rows.c.j2", {}).identity
    assert TemplateSource("c/reduce/rows.c.j2", {}).identity == before
    read = render.template_text
    monkeypatch.setattr(render, "template_text", lambda path: read(path) + " " * (path == changed))
    render.files_of.cache_clear()
    try:
        assert TemplateSource("c/reduce/rows.c.j2", {}).identity != before
    finally:
        render.files_of.cache_clear()


def test_headers_are_told_apart_by_their_names_alone() -> None:
    """Kernels include them without their folder, so that one directory holds those of a kernel."""
    paths = sorted(path.relative_to(FOLDER / "c").as_posix() for path in (FOLDER / "c").rglob("*.h"))
    texts = header_texts(paths)
    assert len(texts) == len(paths) > 40
    assert texts["conv_tile.h"] == (FOLDER / "c" / "conv" / "conv_tile.h").read_text(encoding="utf-8")
    assert texts["team.h"] == (FOLDER / "c" / "team.h").read_text(encoding="utf-8")


def test_a_kernel_is_another_with_another_context() -> None:
    one, other = (TemplateSource("c/reduce/rows.c.j2", {"a": value}) for value in (1, 2))
    assert one.identity != other.identity
