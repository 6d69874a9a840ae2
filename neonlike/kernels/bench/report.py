"""Reports of bench mode: a table for people, JSON and CSV."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neonlike import settings
from neonlike.checks import brief
from neonlike.errors import ArgumentError
from neonlike.kernels.bench.machine_rates import MachineRates
from neonlike.kernels.bench.row import Row
from neonlike.markup import page, table
from neonlike.optree.shapes import Shape

FORMATS = dict(zip(settings.REPORT_SUFFIXES, ("text", "json", "csv", "html")))
"""File suffix -> report format."""
COLUMNS = (
    "name", "inside", "kind", "dtype", "shapes", "calls", "total_ms", "median_ms", "gb_per_s", "gflop_per_s",
    "percent", "percent_of",
)  # fmt: skip
"""CSV columns and JSON keys, in order."""
TITLES = ("kernel", "dtype", "shapes", "calls", "total ms", "median ms", "GB/s", "GFLOP/s", "reached")
_NAME_WIDTH, _SHAPES_WIDTH, _WHOLE = 44, 36, 10_000


def format_of(format: str | None, path: str | os.PathLike[str] | None) -> str:
    """Format of a report: explicit, by the file's suffix, or "text" without a file.

    Raises
    ------
    ArgumentError
        If there is no such format, or the suffix determines none.
    """
    if format is None:
        if path is None:
            return "text"
        format = FORMATS.get(Path(path).suffix.lower())
        if format is None:
            raise ArgumentError(
                f"bench report: {os.fspath(path)!r} says no format; end it in {', '.join(FORMATS)} or pass format"
            )
    if format not in FORMATS.values():
        raise ArgumentError(f"bench report: format must be one of {sorted(FORMATS.values())}, got {brief(format)}")
    return format


def render(format: str, rows: Sequence[Row], rates: MachineRates, engine: str, compiling: float) -> str:
    """Format the report as one of ``FORMATS``; ``compiling`` is in seconds.

    Parameters
    ----------
    format : str
    rows : sequence of Row
    rates : MachineRates
    engine : str
        Name of the engine.
    compiling : float
    """
    records = [record_of(row, rates) for row in rows]
    if format == "json":
        return _json(records, rates, engine, compiling)
    if format == "html":
        return page("Kernels in bench mode", html_table(records), _summary(records, rates, engine, compiling))
    return _csv(records) if format == "csv" else _text(records, rates, engine, compiling)


def record_of(row: Row, rates: MachineRates) -> dict[str, Any]:
    """One row with its rates; None where bytes, flops, or the machine's rate are unknown."""
    bandwidth, speed = row.rate(row.nbytes), row.rate(row.flops)
    product = row.kind == "product"
    best = rates.product(row.dtype) if product else rates.copy
    reached = speed if product else bandwidth
    values = (
        row.name, row.inside, row.kind, row.dtype, row.shapes, row.calls, row.seconds * 1e3, row.median * 1e3,
        bandwidth, speed, 100 * reached / best if reached and best else None, "gemm" if product else "copy",
    )  # fmt: skip
    return dict(zip(COLUMNS, values))


def shapes_text(shapes: Sequence[Shape]) -> str:
    """Format shapes, such as ``2*(64x128) (64x1)``."""
    texts = [f"({'x'.join(map(str, shape))})" for shape in shapes]
    runs = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
    return " ".join(text if count == 1 else f"{count}*{text}" for text, count in runs)


# Formats ----------------------------------------------------------------------------------------------------------


def _json(records: list[dict[str, Any]], rates: MachineRates, engine: str, compiling: float) -> str:
    machine = {
        "device": rates.device,
        "threads": rates.threads,
        "copy_gb_per_s": rates.copy,
        "gemm_gflop_per_s": rates.gemm,
    }
    facts = {"engine": engine, "compiling_ms": compiling * 1e3, "machine": machine, "rows": records}
    return json.dumps(facts, indent=1)


def _csv(records: list[dict[str, Any]]) -> str:
    """One line per row after a header line; unknown figures are empty."""
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**record, "shapes": shapes_text(record["shapes"])} for record in records)
    return text.getvalue().rstrip("\n")


def _text(records: list[dict[str, Any]], rates: MachineRates, engine: str, compiling: float) -> str:
    """A table, one line per row, with the machine's rates."""
    lines = [list(TITLES), *map(_cells, records)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(TITLES))]
    left = 3  # columns of text
    text = [
        "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * max(map(len, text)))
    return "\n".join([*text, *_summary(records, rates, engine, compiling)])


def _summary(records: list[dict[str, Any]], rates: MachineRates, engine: str, compiling: float) -> list[str]:
    """The lines below the table: the sum of the kernels, and the machine's rates."""
    top = [record for record in records if not record["inside"]]
    total, calls = sum(record["total_ms"] for record in top), sum(record["calls"] for record in top)
    products = "".join(f", {name} product {rate:.0f} GFLOP/s" for name, rate in rates.gemm.items())
    compiled = f", compiling {compiling * 1e3:.0f} ms" if compiling else ""
    kernels = f"{_count(len(top), 'kernel')} on the {engine or 'host'} engine"
    where = "" if rates.device else f" on {_count(rates.threads, 'thread')}"
    return [
        f"{kernels}: {_count(calls, 'call')}, {total:.3f} ms{compiled}",
        f"{rates.device or 'this machine'}: memory copy {rates.copy:.1f} GB/s{where}{products}",
    ]


def html_table(records: Sequence[dict[str, Any]], most: int | None = None) -> str:
    """The rows of a JSON report as an HTML table, with whole names; at most the first ``most``."""
    cells = [_cells(record, _WHOLE, _WHOLE) for record in records[:most]]
    return f'<div class="wide">{table("Kernels, by decreasing time", TITLES, map(_unbroken, cells))}</div>'


def _unbroken(cells: list[str]) -> list[str]:
    """The cells of a row, the last of them in one line."""
    return [*cells[:-1], cells[-1].replace(" ", "\N{NO-BREAK SPACE}")]


def reached_text(record: dict[str, Any]) -> str:
    """The share of the machine's rate that a row has reached: ``61% of copy``."""
    percent = record["percent"]
    return "-" if percent is None else f"{percent:.0f}% of {record['percent_of']}"


def _cells(record: dict[str, Any], name_width: int = _NAME_WIDTH, shapes_width: int = _SHAPES_WIDTH) -> list[str]:
    name = f"{record['inside']}: {record['name']}" if record["inside"] else record["name"]
    return [
        _cut(name, name_width),
        record["dtype"],
        _cut(shapes_text(record["shapes"]), shapes_width),
        str(record["calls"]),
        f"{record['total_ms']:.3f}",
        f"{record['median_ms']:.4f}",
        *("-" if rate is None else f"{rate:.2f}" for rate in (record["gb_per_s"], record["gflop_per_s"])),
        reached_text(record),
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
