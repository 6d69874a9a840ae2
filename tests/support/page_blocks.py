"""Blocks of code on pages of the documentation, and the output that their comments promise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests import ROOT

PROMISE = re.compile(r"print\(.*\) +# (.+)$", re.MULTILINE)


def page_text(name: str) -> str:
    """The source of a page of docs/."""
    return Path(ROOT, "docs", f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Blocks of a text that are marked with this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def not_printed(code: Iterable[str], output: str) -> list[str]:
    """Output promised in comments of blocks, and not among the lines of ``output`` in this order."""
    printed = iter(output.splitlines())
    return [line for line in PROMISE.findall("\n".join(code)) if line not in printed]  # each goes on behind the last
