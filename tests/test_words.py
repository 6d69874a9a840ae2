"""First sentences of docstrings name their subject and are short enough to be read once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests import ROOT

MOST_WORDS = 25
RELATIVE = {"what", "whose", "which", "that", "of"}
"""Words that begin a relative clause or a genitive without its noun."""

FOLDERS = ("neonlike", "tests", "examples", "benchmarks", "docs")

def fault(docstring: str) -> str:
    """Broken rule of a docstring's first sentence; empty if there is none. A colon ends a sentence too."""
    paragraph = docstring.strip().split("\n\n")[0]
    words = re.split(r"(?<=[.:!?])\s", " ".join(paragraph.split()))[0].split()
    if words and re.sub(r"\W", "", words[0]).lower() in RELATIVE:
        return f"begins with {words[0]!r}"
    return f"has {len(words)} words" if len(words) > MOST_WORDS else ""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring of modules, classes and functions."""
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text
        nodes += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def test_no_first_sentence_breaks_a_rule() -> None:
    found = []
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for line, text in docstrings(path.read_text(encoding="utf-8")):
            if reason := fault(text):
                found.append(f"{path.relative_to(ROOT)}:{line}: the first sentence {reason}")
    assert not found, "name the subject, in at most 25 words:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("docstring", "reason"),
    [
        ("Sum of the rows.\n\nWhat it does.", ""),
        ("What it does.", "begins with 'What'"),
        ("``Whose`` rows are summed.", "begins with '``Whose``'"),
        ("word " * 25 + ".", "has 26 words"),
        ("word " * 24 + "word: and\nmore", ""),
        ("", ""),
    ],
)
def test_faults(docstring: str, reason: str) -> None:
    assert fault(docstring) == reason


def test_docstrings_of_everything_are_read() -> None:
    source = '"""a"""\nclass C:\n    """b"""\n    async def f():\n        """c"""\n\ndef g():\n    pass\n'
    assert list(docstrings(source)) == [(1, "a"), (3, "b"), (5, "c")]
