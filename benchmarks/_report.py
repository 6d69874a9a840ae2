"""What a measurement looks like: text for the terminal, JSON, a section of RESULTS.md."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import _picture
from _cases import Record, Result
from _terms import COPIES, LEFT_OUT, NOT_BUILT, NOT_INSTALLED, size_text, time_text

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
COLUMNS = f"{'':20}{'time':>10}{'spread':>8}{'vs numpy':>10}{'GB/s':>8}{'of copy':>9}{'of memory':>11}"
COLUMNS += f"{'error':>10}{'first call':>12}"


def machine_text(machine: dict[str, str]) -> str:
    """One fact a line."""
    width = max(map(len, machine)) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in machine.items())


def size_heading(size: int) -> str:
    """Heading of all cases of one size, with the columns."""
    return f"{size_text(size)} float32 elements ({size:,})\n{COLUMNS}"


def case_text(results: list[Result]) -> str:
    """One case: its expression, then a line for each contender."""
    lines = [f"{results[0].case}: {results[0].text}"]
    return "\n".join([*lines, *(row_text(r) for r in results if r.contender not in COPIES and not is_absent(r))])


def is_absent(result: Result) -> bool:
    """True if a contender is missing for a reason that has nothing to do with the case; told once, at the end."""
    return result.note.startswith((NOT_INSTALLED, LEFT_OUT, NOT_BUILT))


def absences(results: list[Result]) -> dict[str, list[str]]:
    """Reason -> contenders that took no part, wholly or in some cases."""
    found: dict[str, list[str]] = {}
    for result in results:
        if is_absent(result) and result.contender not in found.setdefault(result.note, []):
            found[result.note].append(result.contender)
    return found


def row_text(result: Result) -> str:
    """One contender's line, or why there are no figures."""
    name = f"  {result.contender:<18}"
    if result.median is None:
        return f"{name}  {result.note or 'not measured'}"
    assert result.low is not None and result.high is not None
    half = (result.high - result.low) / 2 / result.median if result.median else 0.0
    in_memory = result.of_memory_copy is not None
    cells = [
        f"{time_text(result.median):>10}",
        f"{f'±{half:.0%}':>8}",
        f"{_or_dash(result.ratio, '{:.2f}x'):>10}",
        f"{_or_dash(result.gb_per_s if in_memory else None, '{:.1f}'):>8}",
        f"{_or_dash(result.of_copy, '{:.0%}'):>9}",
        f"{_or_dash(result.of_memory_copy, '{:.0%}'):>11}",
        f"{_or_dash(result.error, '{:.0e}'):>10}",
        f"{time_text(result.first_call) if result.first_call else '-':>12}",
    ]
    return name + "".join(cells)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


class Form:
    """How a run shows its results; this one is for expressions, by numbers of elements.

    Attributes
    ----------
    baseline : str
        The contender whose time the others' are divided by.
    """

    baseline = "numpy"

    def heading(self, size: int) -> str:
        """Heading of the cases of one size."""
        return size_heading(size)

    def case(self, results: list[Result]) -> str:
        """The lines of one case."""
        return case_text(results)

    def title(self, size: int) -> str:
        """Heading of a table of RESULTS.md."""
        return f"{size_text(size)} elements"

    def table(self, record: Record, size: int) -> list[str]:
        """The lines of the table of one size."""
        return _table(record, size)

    def draw(self, record: Record, path: Path) -> None:
        """Draw the picture of a run."""
        _picture.draw(record, path)


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
    """This run as Markdown: machine, command, verdicts, one table a size."""
    lines = [f"## {record.subject}", "", f"    {record.command}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in record.machine.items()]
    lines += [f"| {name} | {rate:.1f} GB/s |" for name, rate in record.copy.items()]
    remarks = [
        *record.verdicts,
        *record.skipped,
        *(f"{why}: {', '.join(who)}" for why, who in absences([*record.results, *record.beside]).items()),
    ]
    if remarks:
        lines += ["", *[f"* {remark}" for remark in remarks]]
    for size in dict.fromkeys(result.size for result in record.results):
        lines += ["", f"### {form.title(size)}", "", *form.table(record, size)]
    for heading, table in record.tables.items():
        lines += ["", f"### {heading}", "", *table]
    return "\n".join(lines) + "\n\n"


def _table(record: Record, size: int) -> list[str]:
    here = [r for r in record.results if r.size == size and r.contender not in COPIES]
    order = {r.contender: None for r in sorted(here, key=lambda r: r.median is None)}
    contenders = [name for name in order if any(r.median is not None for r in here if r.contender == name)]
    cells = {(r.case, r.contender): _cell(r) for r in here}
    texts = {r.case: r.text for r in here}
    header = ["expression", *contenders]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for case, text in texts.items():
        row = [cells.get((case, name), "") for name in contenders]
        lines.append(f"| `{text}` | " + " | ".join(row) + " |")
    return lines


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


def update_results(record: Record, form: Form, path: Path = RESULTS) -> None:
    """Replace this subject's section of ``path``, or add it at the end."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    pattern = re.compile(rf"^## {re.escape(record.subject)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    made = section(record, form)
    if pattern.search(text):
        text = pattern.sub(lambda _: made, text)
    else:
        text = text.rstrip("\n") + "\n\n" + made
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
