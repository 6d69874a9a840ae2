"""Reports of bench mode: a table for people, JSON and CSV."""

from __future__ import annotations

import csv
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
from neonlike.optree.shapes import Shape

FORMATS = dict(zip(settings.REPORT_SUFFIXES, ("text", "json", "csv")))
"""File suffix -> report format."""
COLUMNS = (
    "name", "inside", "kind", "dtype", "shapes", "calls", "total_ms", "median_ms", "gb_per_s", "gflop_per_s",
    "percent", "percent_of",
)  # fmt: skip
"""CSV columns and JSON keys, in order."""
_NAME_WIDTH, _SHAPES_WIDTH = 44, 36


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
    records = [_record(row, rates) for row in rows]
    if format == "json":
        return _json(records, rates, engine, compiling)
    return _csv(records) if format == "csv" else _text(records, rates, engine, compiling)


def _record(row: Row, rates: MachineRates) -> dict[str, Any]:
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
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**record, "shapes": shapes_text(record["shapes"])} for record in records)
    return text.getvalue().rstrip("\n")


def _text(records: list[dict[str, Any]], rates: MachineRates, engine: str, compiling: float) -> str:
    """A table, one line per row, with the machine's rates."""
    titles = ["kernel", "dtype", "shapes", "calls", "total ms", "median ms", "GB/s", "GFLOP/s", "reached"]
    lines = [titles, *map(_cells, records)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    left = 3  # columns of text
    table = [
        "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]
    table.insert(1, "-" * max(map(len, table)))
    top = [record for record in records if not record["inside"]]
    total, calls = sum(record["total_ms"] for record in top), sum(record["calls"] for record in top)
    products = "".join(f", {name} product {rate:.0f} GFLOP/s" for name, rate in rates.gemm.items())
    compiled = f", compiling {compiling * 1e3:.0f} ms" if compiling else ""
    kernels = f"{_count(len(top), 'kernel')} on the {engine or 'host'} engine"
    table.append(f"{kernels}: {_count(calls, 'call')}, {total:.3f} ms{compiled}")
    where = "" if rates.device else f" on {_count(rates.threads, 'thread')}"
    table.append(f"{rates.device or 'this machine'}: memory copy {rates.copy:.1f} GB/s{where}{products}")
    return "\n".join(table)


def _cells(record: dict[str, Any]) -> list[str]:
    name = f"{record['inside']}: {record['name']}" if record["inside"] else record["name"]
    percent = record["percent"]
    return [
        _cut(name, _NAME_WIDTH),
        record["dtype"],
        _cut(shapes_text(record["shapes"]), _SHAPES_WIDTH),
        str(record["calls"]),
        f"{record['total_ms']:.3f}",
        f"{record['median_ms']:.4f}",
        *("-" if rate is None else f"{rate:.2f}" for rate in (record["gb_per_s"], record["gflop_per_s"])),
        "-" if percent is None else f"{percent:.0f}% of {record['percent_of']}",
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
