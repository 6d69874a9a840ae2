"""The page of errors has each exception class, and its programs raise what it says."""

from __future__ import annotations

import ast
import builtins
import json
import os
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from neonlike import errors
from tests import ROOT

TEXT = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"^### ([^\n]+)\n\n```python\n(.*?)^```\n\n((?:    [^\n]*\n)*)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ENTRIES = {title: (code, " ".join(said.split())) for title, code, said in ENTRY.findall(TEXT)}

RUN = '''
import json, logging, os, sys, traceback
import neonlike.layers, neonlike.models, neonlike.data, neonlike.callbacks, neonlike.optimizers, neonlike.autograd

def outcome(code):
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(f"{record.levelname}: {record.getMessage()}")
    logging.getLogger("neon").addHandler(handler)
    try:
        exec(compile(code, "program", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        logged.append("".join(traceback.format_exception_only(type(error), error)))
    return logged

found = []
for code in json.load(sys.stdin):
    read, write = os.pipe()
    if not os.fork():  # each program starts anew
        os.write(write, json.dumps(outcome(code))[:60000].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found.append(json.loads(pipe.read()))
    os.wait()
print(json.dumps(found))
'''


def outcomes(programs: list[str], folder: Path) -> list[list[str]]:
    """For each program, its warnings and at last its exception, as one line each."""
    made = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{RUN}"],
        env={name: value for name, value in os.environ.items() if name != "NEONLIKE_CPU_JIT"},
        input=json.dumps(programs), capture_output=True, text=True, encoding="utf-8", timeout=300, cwd=folder,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return [[" ".join(line.split()) for line in lines] for lines in json.loads(made.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    programs = [code for code, _ in ENTRIES.values()]
    return dict(zip(ENTRIES, outcomes(programs, tmp_path_factory.mktemp("errors")), strict=True))


def fits(promised: str, found: list[str]) -> bool:
    """Whether a message is the promised one, or begins so where that ends with dots."""
    if promised.endswith("..."):
        return any(line.startswith(promised.removesuffix("...").rstrip()) for line in found)
    return promised in found


def test_there_are_entries() -> None:
    assert len(ENTRIES) >= 25
    assert len(ENTRIES) == TEXT.count("\n### ")


@pytest.mark.parametrize("title", ENTRIES)
def test_a_program_raises_what_the_page_says(title: str, raised: dict[str, list[str]]) -> None:
    _, promised = ENTRIES[title]
    assert len(promised) > 20
    assert fits(promised, raised[title]), "\n".join(["the program says:", *raised[title]])


def test_messages_are_compared_as_far_as_they_are_shown(tmp_path: Path) -> None:
    found = outcomes(["raise ValueError('too\\n long')", "import warnings"], tmp_path)
    assert found == [["ValueError: too long"], []]
    assert fits("ValueError: too ...", found[0]) and fits("ValueError: too long", found[0])
    assert not fits("ValueError: too", found[0]) and not fits("ValueError: long ...", found[0])


# Classes ------------------------------------------------------------------------------------------------------------


def classes(root: Path) -> dict[str, set[str]]:
    """Exception classes of a package that derive from NeonlikeError, with all bases that their text names."""
    bases: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"NeonlikeError": {"Exception"}}
    while more := {n: b for n, b in bases.items() if n not in found and b & set(found) and not n.startswith("_")}:
        found |= more
    return found


def ancestors(name: str, found: dict[str, set[str]]) -> set[str]:
    """All bases of a class, those of built-in ones included."""
    builtin = getattr(builtins, name, getattr(pickle, name, None))
    if name not in found:
        return {base.__name__ for base in builtin.__mro__} if builtin else {name}
    return {name}.union(*(ancestors(base, found) for base in found[name]))


@cache
def known() -> dict[str, set[str]]:
    """The exception classes of neonlike. To find them takes a second, which a run of other tests does not need."""
    return classes(ROOT / "neonlike")


ROWS = {name: (bases, when, cure) for name, bases, when, cure in ROW.findall(TEXT)}


def test_classes_are_found() -> None:
    of_errors = {name for name, one in vars(errors).items() if isinstance(one, type) and name.endswith("Error")}
    assert of_errors <= set(known())
    assert {"ShapeTypeError", "WrongChecksum", "NotBuiltYet", "TooManyArguments"} <= set(known())


def test_each_class_has_its_line() -> None:
    assert sorted(set(known()) - set(ROWS)) == [], "classes without a line on docs/errors.md"
    assert sorted(set(ROWS) - set(known())) == [], "lines of classes that are gone"


@pytest.mark.parametrize("name", ROWS)
def test_a_class_is_what_its_line_says(name: str) -> None:
    bases, when, cure = ROWS[name]
    named = set(re.findall(r"`(\w+)`", bases))
    assert named and named <= ancestors(name, known())
    assert len(when) > 10 and len(cure) > 5


def test_a_new_class_is_missed(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("class B(A, KeyError):\n    pass\nclass _C(A):\n    pass\nclass D(Exception): pass\n")
    (package / "b.py").write_text("class A(errors.NeonlikeError):\n    pass\n")
    assert set(classes(package)) == {"NeonlikeError", "A", "B"}
    assert {"A", "NeonlikeError", "LookupError"} <= ancestors("B", classes(package))
