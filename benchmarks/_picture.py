"""A picture of a run: bandwidth over size, a panel for each expression, with the rooflines. Needs matplotlib."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from _cases import Record, Result
from _terms import COPIES, COPY, MEMORY_COPY, OURS, size_text

COLORS = {
    "neonlike assign": "#d62728",
    "neonlike prepared": "#ff9896",
    "numpy": "#555555",
    "numexpr": "#bcbd22",
    "torch": "#1f77b4",
    "torch.compile": "#17becf",
    "numba": "#2ca02c",
    "jax": "#9467bd",
}
COLUMNS = 5


def draw(record: Record, path: Path) -> None:
    """Draw GB/s over elements on log scales, and save it where the ending of ``path`` says how.

    Raises
    ------
    SystemExit
        Without matplotlib; everything was measured and shown before.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--picture needs matplotlib: pip install matplotlib") from None
    measured = [r for r in record.results if r.gb_per_s is not None]
    cases = list(dict.fromkeys(r.case for r in measured))
    if not cases:
        raise SystemExit("--picture: nothing was measured that could be drawn")
    columns = min(COLUMNS, len(cases))
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(1.2 + 2.9 * columns, 1.5 + 2.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    sizes = sorted({r.size for r in measured})
    for axes, case in zip(grid, cases):
        _panel(axes, [r for r in measured if r.case == case], sizes)
    for axes in grid[len(cases) :]:
        axes.set_visible(False)
    for axes in grid[len(cases) - columns : len(cases)]:  # the lowest of each column
        axes.set_xlabel("elements", fontsize="small")
        axes.tick_params(labelbottom=True)
    _legend(figure)
    figure.supylabel("GB/s, each operand and each result counted once", fontsize="medium")
    figure.suptitle(f"{record.subject}: higher is faster; {record.machine.get('processor', '')}", fontsize="large")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _panel(axes: Any, results: list[Result], sizes: list[int]) -> None:
    """One expression: a line for each contender, the rooflines behind them."""
    _copy_line(axes, [r for r in results if r.contender == COPY])
    memory = [r.gb_per_s for r in results if r.contender == MEMORY_COPY and r.gb_per_s is not None]
    if memory:
        axes.axhline(statistics.median(memory), color="black", linestyle=":", linewidth=1.0, label=MEMORY_COPY)
    for name in dict.fromkeys(r.contender for r in results if r.contender not in COPIES):
        points = sorted((r.size, r.gb_per_s) for r in results if r.contender == name)
        ours = name.startswith(OURS)
        style = {"linewidth": 1.8 if ours else 1.0, "markersize": 3.5, "zorder": 3 if ours else 2}
        axes.plot(*zip(*points), marker="o", color=COLORS.get(name), label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [size_text(size) for size in sizes], fontsize="small")
    axes.set_xlim(sizes[0] / 2, sizes[-1] * 2)
    axes.minorticks_off()
    axes.tick_params(labelsize="small")
    axes.set_title(results[0].text if len(results[0].text) <= 30 else results[0].case, fontsize="small")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _copy_line(axes: Any, results: list[Result]) -> None:
    points = sorted((r.size, r.gb_per_s) for r in results)
    if points:
        axes.plot(*zip(*points), color="black", linestyle="--", linewidth=1.0, label="copy of the same bytes")


def _legend(figure: Any) -> None:
    """One legend for all panels, since some contenders are missing in some panels."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: found.get(label, handle) for handle, label in zip(handles, labels)}
    order = sorted(found, key=lambda name: (not name.startswith(OURS), "copy" in name))
    handles = [found[name] for name in order]
    figure.legend(handles, order, loc="outside lower center", ncols=5, frameon=False, fontsize="small")
