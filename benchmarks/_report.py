"""How a measurement is shown: text for the terminal, JSON, a section of RESULTS.md."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _pictures
from _cases import COPIES, Record, Result, markdown, size_text, text, time_text

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


class Form:
    """How a run shows its results; this one is for expressions, by numbers of elements.

    Attributes
    ----------
    baseline : str
        The contender whose time the others' are divided by.
    by_size : bool
        Results are shown and tabulated by ``Case.size``; else :meth:`tables` arranges them.
    copies : bool
        Memory copies run beside large cases.
    """

    baseline = "numpy"
    by_size = copies = True

    def heading(self, size: int) -> str:
        """Heading of the cases of one size, with the columns."""
        columns = f"{'':20}{'time':>10}{'spread':>8}{f'vs {self.baseline}':>10}{'GB/s':>8}{'of copy':>9}"
        columns += f"{'of memory':>11}{'error':>10}{'first call':>12}"
        return f"{size_text(size)} float32 elements ({size:,})\n{columns}"

    def case(self, results: list[Result]) -> str:
        """One case: its expression, then a line for each contender."""
        shown = [r for r in results if r.contender not in COPIES and not r.absent]
        return "\n".join([f"{results[0].case}: {results[0].text}", *map(row_text, shown)])

    def title(self, size: int) -> str:
        """Heading of a table of RESULTS.md."""
        return f"{size_text(size)} elements"

    def table(self, record: Record, size: int) -> list[str]:
        """The lines of the table of one size: a row for each expression, a column for each contender."""
        here = [r for r in record.results if r.size == size and r.contender not in COPIES]
        order = dict.fromkeys(r.contender for r in sorted(here, key=lambda r: r.median is None))
        names = [name for name in order if any(r.median is not None for r in here if r.contender == name)]
        cells = {(r.case, r.contender): _cell(r) for r in here}
        rows = {r.case: r.text for r in here}
        return markdown(
            ["expression", *names],
            [[f"`{shown}`", *(cells.get((case, name), "") for name in names)] for case, shown in rows.items()],
        )

    def tables(self, results: Sequence[Result]) -> dict[str, list[str]]:
        """Tables by heading, where results are not shown by size."""
        return {}

    def draw(self, record: Record, path: Path) -> None:
        """Draw the picture of a run."""
        _pictures.draw_bandwidth(record, path)


def row_text(result: Result) -> str:
    """One contender's line, or why there are no figures."""
    name = f"  {result.contender:<18}"
    if result.median is None:
        return f"{name}  {result.note or 'not measured'}"
    half = ((result.high or 0.0) - (result.low or 0.0)) / 2 / result.median if result.median else 0.0
    in_memory = result.of_memory_copy is not None
    return name + "".join((
        f"{time_text(result.median):>10}",
        f"{f'±{half:.0%}':>8}",
        f"{text(result.ratio, '.2f', 'x'):>10}",
        f"{text(result.gb_per_s if in_memory else None, '.1f'):>8}",
        f"{text(result.of_copy, '.0%'):>9}",
        f"{text(result.of_memory_copy, '.0%'):>11}",
        f"{text(result.error, '.0e'):>10}",
        f"{time_text(result.first_call or None):>12}",
    ))  # fmt: skip


def _cell(result: Result) -> str:
    """Time, bandwidth and its share of the memory copy's, ratio to NumPy."""
    if result.median is None:
        return "-"
    parts = [time_text(result.median)]
    if result.of_memory_copy is not None and result.gb_per_s is not None:
        parts.append(f"{result.gb_per_s:.1f} GB/s, {result.of_memory_copy:.0%}")
    if result.ratio is not None and result.contender != "numpy":
        parts.append(f"{result.ratio:.2f}x")
    return "; ".join(parts)


def absences(results: Sequence[Result]) -> list[str]:
    """``not installed: torch, jax``: a line for each reason why contenders took no part, wholly or in some cases."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if result.absent:
            found.setdefault(result.note, {})[result.contender] = None
    return [f"{why}: {', '.join(names)}" for why, names in found.items()]


# Files ----------------------------------------------------------------------------------------------------------


def as_json(record: Record) -> dict[str, Any]:
    """Everything a run found out, in plain types; times in seconds."""
    return {
        "format": 1,
        "subject": record.subject,
        "command": record.command,
        "machine": record.machine,
        "copy_gb_per_s": record.copy,
        "effort": dataclasses.asdict(record.effort),
        "verdicts": record.verdicts,
        "skipped": record.skipped,
        **record.more,
        "results": [dataclasses.asdict(result) for result in record.results],
        "beside": [dataclasses.asdict(result) for result in record.beside],
    }


def write_json(record: Record, path: Path) -> None:
    """Write :func:`as_json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(record), indent=1) + "\n", encoding="utf-8")


def section(record: Record, form: Form) -> str:
    """This run as Markdown: the command that makes it, machine, verdicts, one table a size."""
    lines = [f"## {record.subject}", "", f"    {record.command}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in record.machine.items()]
    lines += [f"| {name} | {rate:.1f} GB/s |" for name, rate in record.copy.items()]
    remarks = [*record.verdicts, *record.skipped, *absences([*record.results, *record.beside])]
    if remarks:
        lines += ["", *[f"* {remark}" for remark in remarks]]
    tables = {form.title(size): form.table(record, size) for size in dict.fromkeys(r.size for r in record.results)}
    for heading, table in (tables | record.tables).items():
        lines += ["", f"### {heading}", "", *table]
    return "\n".join(lines) + "\n\n"


def update_results(record: Record, form: Form, path: Path | None = None) -> None:
    """Replace this subject's section of ``path`` (default: RESULTS.md), or add it at the end."""
    path = path or RESULTS
    whole = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    pattern = re.compile(rf"^## {re.escape(record.subject)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    made = section(record, form)
    if pattern.search(whole):
        whole = pattern.sub(lambda _: made, whole)
    else:
        whole = whole.rstrip("\n") + "\n\n" + made
    path.write_text(whole.rstrip("\n") + "\n", encoding="utf-8")
