"""The documentation agrees with the code: generated pages are current, links lead somewhere, names exist."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optree import docs
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.functions import COMPOSED
from neonlike.optree.ops import MANY, NON_DIFFERENTIABLE, OPS
from tests import ROOT
from tests.support.page_blocks import blocks, not_printed, page_text
from tests.support.replaying import python_builds

TOUR = ROOT / "docs" / "tour.md"
PAGES = sorted(
    path
    for folder in (".", "docs", "benchmarks", "examples", "tests")
    for path in (ROOT / folder).glob("*.md")
)
LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`,\s+`(neonlike/[\w/]+\.py)`")
SOURCE_PATH = re.compile(r"`((?:neonlike|docs|examples|benchmarks|tests)/[\w./-]+\.\w+)`")


# The page of ops ------------------------------------------------------------------------------------------------


def test_the_page_of_ops_is_current() -> None:
    """Compared with a fresh interpreter's table, since other tests add rows to this one's."""
    command = [sys.executable, "-m", "neonlike.optree.docs"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert made.returncode == 0, made.stderr
    page = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    assert page == made.stdout, "run: python -m neonlike.optree.docs > docs/ops.md"


def cells(page: str) -> dict[str, list[str]]:
    """Op -> the other cells of its line."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    return {name: re.split(r" (?<!\\)\| ", rest) for name, rest in rows}


def test_every_row_has_its_line() -> None:
    lines = cells(docs.page(OPS.values()))
    assert set(lines) == set(OPS)
    for name, spec in OPS.items():
        made_by, arity, dtype, gradient, text = lines[name]
        assert [arity, dtype] == ["any" if spec.arity == MANY else str(spec.arity), spec.dtype.value]
        assert gradient == ("no" if spec.grad is NON_DIFFERENTIABLE else "yes")
        assert text.replace("\\|", "|") == spec.doc
        assert all(f"`be.{builder}`" in made_by for builder in spec.builders)


def test_a_new_row_appears() -> None:
    made_up = dataclasses.replace(OPS["sig"], name="wobble", builders=("wobble",), doc="a | b, wobbling.")
    lines = cells(docs.page([*OPS.values(), made_up]))
    assert lines["wobble"] == ["`be.wobble`", "1", "float", "yes", "a \\| b, wobbling."]


def test_what_the_page_calls_a_method_is_one() -> None:
    page = docs.page(OPS.values())
    methods = set(re.findall(r"`be\.(\w+)", page.partition("The column")[2]))
    assert len(methods) > len(OPS) / 2
    assert [name for name in sorted(methods) if not hasattr(Backend, name)] == []


def test_what_the_page_calls_internal_is_no_method() -> None:
    internal = [
        name for name, (made_by, *_) in cells(docs.page(OPS.values())).items() if made_by == "(internal)"
    ]
    assert "untake" in internal
    of_ranks = {"broadcast"}  # the method sends a tensor to other processes
    assert [name for name in internal if hasattr(Backend, name) and name not in of_ranks] == []


def test_composed_functions_are_shown_as_they_are() -> None:
    page = docs.page(OPS.values())
    for name, function in COMPOSED.items():
        (first, *_) = inspect.signature(function).parameters
        assert re.search(rf"^\| `be\.\w*{name}\({first}[,)]", page, re.MULTILINE), name


def test_operators_are_shown(be: Backend) -> None:
    """Each operator on the page builds the op it is shown with."""
    floats = be.ones((2, 2)), be.ones((2, 2))
    shown = 0
    for name, (made_by, *_) in cells(docs.page(OPS.values())).items():
        a, b = (t + 0 if OPS[name].dtype is not DTypeRule.WHOLE else be.ones((2, 2), dtype=np.int32) for t in floats)
        for text in re.findall(r"`((?:a [^`]+ b|-a|~a|abs\(a\)))`", made_by):
            assert eval(text.replace("\\|", "|"), {"a": a, "b": b}).spec.name == name
            shown += 1
    assert shown >= 20


# Links and names ------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as the usual renderers make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path: Path) -> Iterator[str]:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield target


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "ops.md", "tour.md", "RESULTS.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: here\n[a](page.md#a-title-here) [b](gone.md) [c](#gone) [d](https://x.org/y)\n"
    )
    assert list(broken_links(page)) == ["gone.md", "#gone"]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_are_mentioned_exist(path: Path) -> None:
    mentioned = SOURCE_PATH.findall(path.read_text(encoding="utf-8"))
    assert [name for name in mentioned if not (ROOT / name).exists()] == []


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a file; methods as ``Class.method``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def test_the_tour_names_what_exists() -> None:
    named = NAMED.findall(TOUR.read_text(encoding="utf-8"))
    assert len(named) >= 12
    assert [f"{name} in {path}" for name, path in named if name not in defined(ROOT / path)] == []


PAGES_OF_PYTHON = [
    "gradients", "autograd", "dynamic_graph", "primitives", "expressions", "training", "data", "blueprints",
    "start", "from_neon", "from_pytorch", "from_keras", "from_numpy", "faq", "exchange", "report",
]  # fmt: skip


def missing_output(name: str, folder: Path) -> list[str]:
    """Output promised in comments of a page, and not printed in this order by its blocks run in one process."""
    code = blocks(page_text(name), "python")
    assert code
    script = folder / "page.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + "\n".join(code), encoding="utf-8")
    made = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=folder)
    assert made.returncode == 0, made.stderr
    return not_printed(code, made.stdout)


@pytest.mark.parametrize("name", PAGES_OF_PYTHON)
def test_the_python_of_a_page_runs(name: str, tmp_path: Path) -> None:
    """All blocks of a page run in one process, as a reader types them, and print the output in their comments."""
    assert missing_output(name, tmp_path) == []


SESSIONS = [path for path in PAGES if "```pycon" in path.read_text(encoding="utf-8")]


class AnyKindOfTensor(doctest.OutputChecker):
    """Takes a tensor on a GPU for one on the CPU: pages show the latter."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got.replace("GPUTensor(", "CPUTensor("), optionflags)


def pages_session(path: Path) -> doctest.DocTest:
    """All that is typed at a prompt on a page, as one session."""
    text = path.read_text(encoding="utf-8")
    shown = "".join(re.findall(r"^```pycon\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return doctest.DocTestParser().get_doctest(shown, {}, path.name, str(path), 0)


def test_sessions_are_found() -> None:
    assert {"README.md", "tensors.md"} <= {path.name for path in SESSIONS}


@pytest.mark.parametrize("path", SESSIONS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_a_session_shows_is_what_comes_out(be: Backend, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neonlike.backends.gen_backend", lambda *given, **named: be)
    session = pages_session(path)
    assert len(session.examples) > 2
    session.globs.update(np=np, be=be)
    said: list[str] = []
    result = doctest.DocTestRunner(AnyKindOfTensor()).run(session, out=said.append)
    assert result.failed == 0, "".join(said)


# The tour's seven steps -----------------------------------------------------------------------------------------


def steps() -> list[list[tuple[str, str]]]:
    """For each numbered heading, the functions it names (one of several engines takes the step)."""
    headings = re.findall(r"^## \d\. (.+)$", TOUR.read_text(encoding="utf-8"), re.MULTILINE)
    return [[(name, path) for name, path in NAMED.findall(heading)] for heading in headings]


def called(function: Any) -> list[tuple[str, str]]:
    """Function and file, relative to the project, of every call that ``function`` leads to."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            calls.append((frame.f_code.co_name, path.relative_to(ROOT).as_posix()))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def positions(calls: list[tuple[str, str]]) -> list[int | None]:
    """Where each step first occurs among ``calls``; None where it does not."""
    found: list[int | None] = []
    for choices in steps():
        wanted = {(name.rpartition(".")[2], path) for name, path in choices}
        found.append(next((i for i, call in enumerate(calls) if call in wanted), None))
    return found


def test_an_assignment_takes_the_seven_steps_in_order(be: Backend) -> None:
    a, b, c = (be.array(np.full((3, 4), k)) for k in (1.0, 2.0, 3.0))
    out = be.empty((3, 4))

    def assign() -> None:
        out[:] = be.sig(a * b + c)

    with python_builds():  # as in every process before the extension is there
        first, again = positions(called(assign)), positions(called(assign))
    assert len(first) == 7
    assert None not in first
    assert first == sorted(first, key=lambda position: position or 0)
    assert again[4] is None, "the second time finds the plan"
    assert None not in again[:4] + again[5:]


def test_a_prepared_assignment_skips_the_first_steps(be: Backend) -> None:
    a, out = be.ones((3, 4)), be.empty((3, 4))
    step = be.prepare(out, be.tanh(a) + 1)
    assert positions(called(step))[:5] == [None] * 5
