"""Pages of measurements: RESULTS.md cut at its sections, behind the README's table of speed and the pictures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sitebuilder import ROOT
from sitebuilder.layout import RESULTS, file_name
from sitebuilder.links import Turn

PICTURES = {
    "docs/speed.png": "Time others take, divided by the time neonlike takes",
    "benchmarks/optree.png": "Fused expressions on 64 to 16M elements",
    "benchmarks/scaling.png": "Training by several processes",
}


def pages(turn: Turn) -> Iterator[tuple[str, str]]:
    """Each page: its path in the site, without suffix, and its Markdown.

    Parameters
    ----------
    turn : callable
        ``Links.turned``.
    """
    text = (ROOT / RESULTS).read_text(encoding="utf-8")
    head, *rest = re.split(r"^## (.+)$\n", text, flags=re.MULTILINE)
    sections = dict(zip(rest[::2], rest[1::2]))
    yield "performance/index", turn(_index(head, list(sections)), RESULTS, "performance/index")
    for heading, body in sections.items():
        page = f"performance/{file_name(heading)}"
        raised = re.sub(r"^#(?=##+ )", "", body, flags=re.MULTILINE)
        yield page, turn(f"# {heading}\n\n{_about(heading)}\n{raised}", RESULTS, page)


def _index(head: str, headings: list[str]) -> str:
    """The first page: the README's table, pictures, and the list of the sections."""
    remarks = head.partition("\n")[2].strip()
    shown = "\n\n".join(f"![{text}](../{path})" for path, text in PICTURES.items() if (ROOT / path).exists())
    listed = "\n".join(f"{heading} <{file_name(heading)}>" for heading in headings)
    return (
        f"# Performance\n\n{_front_table()}\n\n{shown}\n\n## All measurements\n\n{remarks}\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\nHow it is measured <method>\n{listed}\n```\n"
    )


def _front_table() -> str:
    """The table of the README, with what it says of the machine."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"<!-- speed:.*?-->\n(.*?)<!-- end of speed -->", readme, re.DOTALL)
    return match[1].strip() if match else ""


def _about(heading: str) -> str:
    """The first paragraph of the docstring of the benchmark that measured a section."""
    subject = next((word for word in heading.split() if word != "versus"), "")
    script = ROOT / "benchmarks" / f"{subject}.py"
    if not script.exists():
        return ""
    said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].replace("``", "`").split()) + "\n"
