"""What a measurement looks like: text for the terminal, JSON, a section of RESULTS.md, a picture."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Result, Session

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
COPY = "copy"
"""Name of the roofline among the contenders of a case."""

NOT_INSTALLED, LEFT_OUT = "not installed", "left out by --quick"
"""How the notes of absent contenders begin."""

COLUMNS = f"{'':20}{'time':>10}{'spread':>8}{'vs numpy':>10}{'GB/s':>8}{'of copy':>9}{'error':>10}{'first call':>12}"


def size_text(size: int) -> str:
    """64, 4k, 16M: powers of 1024 where they fit, else the number."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_size(text: str) -> int:
    """The inverse of :func:`size_text`.

    Raises
    ------
    ValueError
        If ``text`` is not a positive whole number, with k or M after it or not.
    """
    match = re.fullmatch(r"([1-9]\d*)([kM]?)", text.strip())
    if match is None:
        raise ValueError(f"a size is a whole number such as 64, 4k or 16M, got {text!r}")
    return int(match[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[match[2]]


def time_text(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            value = seconds / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {name}"
    return f"{seconds * 1e9:.0f} ns"


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
    return "\n".join([*lines, *(row_text(r) for r in results if r.contender != COPY and not is_absent(r))])


def is_absent(result: Result) -> bool:
    """True if a contender is missing for a reason that has nothing to do with the case; told once, at the end."""
    return result.note.startswith((NOT_INSTALLED, LEFT_OUT))


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
    in_memory = result.of_copy is not None
    cells = [
        f"{time_text(result.median):>10}",
        f"{f'±{half:.0%}':>8}",
        f"{_or_dash(result.ratio, '{:.2f}x'):>10}",
        f"{_or_dash(result.gb_per_s if in_memory else None, '{:.1f}'):>8}",
        f"{_or_dash(result.of_copy, '{:.0%}'):>9}",
        f"{_or_dash(result.error, '{:.0e}'):>10}",
        f"{time_text(result.first_call) if result.first_call else '-':>12}",
    ]
    return name + "".join(cells)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


# Files ----------------------------------------------------------------------------------------------------------


def as_json(session: Session) -> dict[str, Any]:
    """Everything a run found out, in plain types; times in seconds."""
    return {
        "format": 1,
        "subject": session.subject,
        "command": session.command,
        "machine": session.machine,
        "copy_gb_per_s": session.copy,
        "effort": dataclasses.asdict(session.effort),
        "verdicts": session.verdicts,
        "results": [dataclasses.asdict(result) for result in session.results],
    }


def write_json(session: Session, path: Path) -> None:
    """Write :func:`as_json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(session), indent=1) + "\n", encoding="utf-8")


def section(session: Session) -> str:
    """This run as Markdown: machine, command, verdicts, one table a size."""
    lines = [f"## {session.subject}", "", f"    {session.command}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in session.machine.items()]
    lines += [f"| {name} | {rate:.1f} GB/s |" for name, rate in session.copy.items()]
    remarks = [
        *session.verdicts,
        *(f"{why}: {', '.join(who)}" for why, who in absences(session.results).items()),
    ]
    if remarks:
        lines += ["", *[f"* {remark}" for remark in remarks]]
    for size in dict.fromkeys(result.size for result in session.results):
        lines += ["", f"### {size_text(size)} elements", "", *_table(session, size)]
    return "\n".join(lines) + "\n"


def _table(session: Session, size: int) -> list[str]:
    here = [r for r in session.results if r.size == size and r.contender != COPY]
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
    """Time, share of the copy's bandwidth, ratio to NumPy."""
    if result.median is None:
        return "-"
    parts = [time_text(result.median)]
    if result.of_copy is not None and result.gb_per_s is not None:
        parts.append(f"{result.gb_per_s:.1f} GB/s, {result.of_copy:.0%}")
    if result.ratio is not None and result.contender != "numpy":
        parts.append(f"{result.ratio:.2f}x")
    return "; ".join(parts)


def update_results(session: Session, path: Path = RESULTS) -> None:
    """Replace this subject's section of ``path``, or add it at the end."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    pattern = re.compile(rf"^## {re.escape(session.subject)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    made = section(session)
    if pattern.search(text):
        text = pattern.sub(lambda _: made, text)
    else:
        text = text.rstrip("\n") + "\n\n" + made
    path.write_text(text, encoding="utf-8")


def plot(session: Session, path: Path) -> None:
    """Time relative to NumPy on a log scale, a panel for each size; needs matplotlib.

    Raises
    ------
    SystemExit
        Without matplotlib; everything was measured and shown before.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    sizes = list(dict.fromkeys(r.size for r in session.results))
    names = list(dict.fromkeys(r.contender for r in session.results if r.ratio is not None))
    names = [name for name in names if name not in ("numpy", "copy")]
    figure = Figure(figsize=(4 * max(1, len(sizes)), 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, size in enumerate(sizes, 1):
        axes = figure.add_subplot(1, len(sizes), panel)
        _panel(axes, [r for r in session.results if r.size == size], names)
        axes.set_title(f"{size_text(size)} elements")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(f"Time divided by NumPy's (left is faster); {session.machine['processor']}")
    figure.savefig(path, dpi=120)


def _panel(axes: Any, results: list[Result], names: list[str]) -> None:
    """A row for each expression, a dot for each contender."""
    cases = list(dict.fromkeys(r.case for r in results))
    for name, marker in zip(names, "osDv^PX*"):
        ratios = {r.case: r.ratio for r in results if r.contender == name and r.ratio is not None}
        axes.plot(
            list(ratios.values()), [cases.index(case) for case in ratios], marker, label=name, alpha=0.8
        )
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")  # between powers of ten labels would overlap
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.grid(alpha=0.3)
