"""The page of neon's names is current, has every name once, and calls gone what is gone."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from neonlike.compat import page
from neonlike.compat.absent import ABSENT, ATTRIBUTES, MEANT, OTHERWISE
from neonlike.compat.calls import CALLS
from neonlike.compat.contract import resolve
from neonlike.compat.table import CONTRACT
from neonlike.errors import MissingExtra
from tests import ROOT

PAGE = ROOT / "docs" / "from_neon.md"


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_is_current(text: str) -> None:
    """Compared with a fresh interpreter's tables, since other tests add modules to this one's."""
    made = subprocess.run(
        [sys.executable, "-m", "neonlike.compat.page"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    assert made.returncode == 0, made.stderr
    shown = text.partition(page.BEGIN)[2].partition(page.END)[0]
    assert shown.strip() == made.stdout.strip(), "run: python -m neonlike.compat.page docs/from_neon.md"


def test_every_name_is_on_it(text: str) -> None:
    lists = section(text, "Every name: the same") + section(text, "Every name: different")
    names = set(re.findall(r"`([\w.]+)`", lists + section(text, "Every name: gone")))
    wanted = {name for row in CONTRACT.values() for name in row.names}
    assert sorted(wanted - {dotted.rpartition(".")[2] for dotted in names}) == []
    assert sorted({f"neon.{key}".rstrip(".") for key in CONTRACT} - names) == []


def test_every_difference_is_on_it(text: str) -> None:
    different = section(text, "Every name: different").replace("\\|", "|")
    assert [reason for reason in {**MEANT, **OTHERWISE}.values() if reason not in different] == []
    for dotted in [*MEANT, *OTHERWISE]:
        assert f"`{page.place(dotted)[1]}`" in different, dotted
    assert "`Encoder.bprop`" in different and "`hidden_error_list` is `error`" in different
    assert sum(f"`{page.place(dotted)[1]}`" in different for dotted in CALLS) >= 30


def test_every_absent_name_is_on_it(text: str) -> None:
    gone = section(text, "Every name: gone")
    for dotted, reason in ABSENT.items():
        assert f"`{page.place(dotted)[1]}`" in gone and reason in gone, dotted
    for owner, lacking in ATTRIBUTES.items():
        assert f"`{owner}`: " in gone and all(f"`{name}`" in gone for name in lacking), owner


def test_no_name_is_both_the_same_and_different() -> None:
    same = {f"{key}: {name}" for key, cell in page.same() for name in re.findall(r"`(\w+)`", cell)}
    for dotted in [*MEANT, *OTHERWISE]:
        key, name = page.place(dotted)
        assert f"`{page.full(key)}`: {name}" not in same


@pytest.mark.parametrize("dotted", MEANT)
def test_what_means_something_else_is_there(dotted: str) -> None:
    key, name = page.place(dotted)
    assert name in CONTRACT[key].names
    try:
        assert resolve(f"neon.{dotted}") is not None
    except MissingExtra:  # of a GPU
        assert key == "backends.nervanagpu"
    assert len(MEANT[dotted].split()) > 3, "a reason"


def test_the_dialect_is_the_docstrings(text: str) -> None:
    (head, *rows), shown = page.dialect_rows(), section(text, "The dialect")
    assert head[0] == "form" and all(len(row) == 3 and all(row) for row in rows)
    assert len(rows) >= 13 and ["an argument `name`", "a string", "any object, with a warning"] in rows
    assert rows[-1][0] == "rows and columns of a layer's input", "a form on two lines"
    assert all(row[1] in shown.replace("\\|", "|") for row in rows)


@pytest.mark.parametrize(
    ("dotted", "expected"),
    [
        ("layers.layer.BatchNorm.init_params", ("layers.layer", "BatchNorm.init_params")),
        ("display", ("", "display")),
        ("backends.gen_backend", ("backends", "gen_backend")),
        ("", ("", "")),
    ],
)
def test_names_are_cut_behind_their_module(dotted: str, expected: tuple[str, str]) -> None:
    assert page.place(dotted) == expected


def test_rows_of_one_reason_are_joined() -> None:
    rows = page.grouped([("util.persist.a", "r"), ("layers.b", "r"), ("util.persist.c", "r"), ("layers.d", "s")])
    assert rows == [("`neon.layers`: `b`", "r"), ("`neon.layers`: `d`", "s"), ("`neon.util.persist`: `a`, `c`", "r")]


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no <!-- names"):
        page.page("# A page\n")
