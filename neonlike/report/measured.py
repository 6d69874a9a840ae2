"""The sections of a report about times and memory: by layer, by kernel, and over a step."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from neonlike.kernels.bench.report import html_table
from neonlike.markup import table
from neonlike.report import charts
from neonlike.report.charts import Series
from neonlike.report.parts import chart_with_table, note, of_run, scrolled
from neonlike.report.run import Run

MOST_LAYERS, MOST_KERNELS = 40, 40
"""Layers of a chart, those that take longest, and rows of the table of kernels."""
MEGABYTE = 1 << 20
CAPTION = "Medians of three minibatches, all calls in each; layers that another call computes take no time"


def times(runs: Sequence[Run]) -> str:
    """Times of layers and of kernels of each run."""
    return "".join(of_run(runs, run, _layers(run) + _kernels(run)) for run in runs)


def _layers(run: Run) -> str:
    found = run.step.get("times", [])
    if not found:
        return note(
            "Layers are timed in the second to fourth minibatch of a training with Callbacks(report=...) or "
            "Callbacks(output_file=...); this one had fewer, or an older version wrote the file."
        )
    by_layer: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in found:
        by_layer.setdefault(entry["layer"], {})[entry["pass"]] = entry
    total = sum(entry["ms"] for entry in found) or 1.0
    rows = []
    for layer, passes in by_layer.items():
        pair = [passes.get(name) for name in ("fprop", "bprop")]
        spent = sum(one["ms"] for one in pair if one)
        texts = [text for one in pair for text in (_ms(one), _share(one))]
        rows.append([layer, *texts, f"{spent:.3f}", f"{100 * spent / total:.1f}%"])
    columns = ["layer", "forward, ms", "reached", "backward, ms", "reached", "both, ms", "of all layers"]
    listed = table(CAPTION, columns, rows)
    longest = sorted(by_layer, key=lambda layer: -sum(one["ms"] for one in by_layer[layer].values()))[:MOST_LAYERS]
    shown = [layer for layer in by_layer if layer in longest]
    parts = {
        label: [by_layer[layer].get(name, {"ms": 0.0})["ms"] for layer in shown]
        for label, name in (("forward", "fprop"), ("backward", "bprop"))
    }
    alt = f"Time of each layer in a minibatch, {total:.3g} ms in all; {longest[0]} takes longest"
    title = f"Layers: {total:.3g} ms in a minibatch"
    return chart_with_table(title, charts.bars(shown, parts, "ms in a minibatch", alt), listed)


def _ms(entry: dict[str, Any] | None) -> str:
    return f"{entry['ms']:.3f}" if entry else ""


def _share(entry: dict[str, Any] | None) -> str:
    """Share of the machine's rates that a pass has reached; without bench mode it is not known."""
    if not entry or entry.get("share") is None:
        return "-"
    return f"{100 * entry['share']:.0f}%"


def _kernels(run: Run) -> str:
    rows = run.bench.get("rows", [])
    if not rows:
        return note(
            "For the time of each kernel and its share of what the machine reaches, train in bench mode: "
            "gen_backend(..., bench=True), the option --bench of scripts, or NEONLIKE_BENCH=1."
        )
    machine = run.bench["machine"]
    products = "".join(f", {name} product {rate:.0f} GFLOP/s" for name, rate in machine["gemm_gflop_per_s"].items())
    where = machine["device"] or f"this machine, {machine['threads']} threads"
    rates = f"{where}: memory copy {machine['copy_gb_per_s']:.1f} GB/s{products}"
    total = sum(row["total_ms"] for row in rows if not row["inside"])
    cut = f"; the first {MOST_KERNELS} of {len(rows)}" if len(rows) > MOST_KERNELS else ""
    about = f"{len(rows)} kernels on the engine {run.bench['engine']}: {total:.1f} ms in all{cut}. Rates of {rates}."
    return f"<h3>Kernels</h3><p>{escape(about)}</p>{scrolled(html_table(rows, MOST_KERNELS), 'Kernels')}"


def memory(runs: Sequence[Run]) -> str:
    """Memory over a step of each run."""
    return "".join(of_run(runs, run, _memory(run)) for run in runs)


def _memory(run: Run) -> str:
    found = run.step.get("memory", [])
    if not found:
        return note("Memory is recorded with the times of layers, see above.")
    used, reserved = (np.array([entry[i] for entry in found]) / MEGABYTE for i in (2, 3))
    places = np.arange(1, len(found) + 1)
    series = [Series("tensors", places, used, 0), Series("tensors and working memory", places, used + reserved, 1)]
    rows = [
        [f"{layer}, {'forward' if name == 'fprop' else 'backward'}", f"{a:.2f}", f"{b:.2f}"]
        for (layer, name, *_), a, b in zip(found, used, reserved, strict=True)
    ]
    peak = found[int(np.argmax(used + reserved))]
    most = float((used + reserved).max())
    alt = f"Memory behind each pass of a minibatch, {most:.1f} MiB at most, behind {peak[0]}"
    title = f"Memory over a minibatch: {most:.1f} MiB at most"
    svg = charts.lines(series, "pass of a layer, in order", "MiB", alt)
    return chart_with_table(title, svg, table("Memory in MiB behind each pass", ["pass", "tensors", "working"], rows))
