"""Pictures of runs: bandwidth over size, ratios over layers, ratios as bars. They need matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from _cases import COPIES, COPY, MEMORY_COPY, OURS, Record, Result, size_text

COLORS = {
    "neonlike assign": "#d62728", "neonlike prepared": "#ff9896", "numpy": "#555555", "numexpr": "#bcbd22",
    "torch": "#1f77b4", "torch.compile": "#17becf", "numba": "#2ca02c", "jax": "#9467bd",
}  # fmt: skip
MARKS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")
"""Colors of minibatches."""
COLUMNS = 5


def figure(width: float, height: float) -> Any:
    """An empty figure, in inches.

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
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(made: Any, path: Path) -> None:
    """Write a figure to where the ending of ``path`` says how, without frames around its panels."""
    for axes in made.axes:
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, dpi=120)


# Bandwidth over size --------------------------------------------------------------------------------------------


def draw_bandwidth(record: Record, path: Path) -> None:
    """Draw GB/s over elements on log scales, a panel for each expression, with the rooflines."""
    measured = [r for r in record.results if r.gb_per_s is not None]
    cases = list(dict.fromkeys(r.case for r in measured))
    columns = min(COLUMNS, len(cases) or 1)
    rows = -(-len(cases) // columns) or 1
    made = figure(1.2 + 2.9 * columns, 1.5 + 2.5 * rows)
    if not cases:
        raise SystemExit("--picture: nothing was measured that could be drawn")
    grid = list(made.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    sizes = sorted({r.size for r in measured})
    for axes, case in zip(grid, cases):
        _bandwidth_panel(axes, [r for r in measured if r.case == case], sizes)
    for axes in grid[len(cases) :]:
        axes.set_visible(False)
    for axes in grid[len(cases) - columns : len(cases)]:  # the lowest of each column
        axes.set_xlabel("elements", fontsize="small")
        axes.tick_params(labelbottom=True)
    _common_legend(made)
    made.supylabel("GB/s, each operand and each result counted once", fontsize="medium")
    made.suptitle(f"{record.subject}: higher is faster; {record.machine.get('processor', '')}", fontsize="large")
    save(made, path)


def _bandwidth_panel(axes: Any, results: Sequence[Result], sizes: Sequence[int]) -> None:
    """One expression: a line for each contender, the rooflines behind them."""
    by_name: dict[str, list[tuple[int, float]]] = {}
    for r in results:
        by_name.setdefault(r.contender, []).append((r.size, r.gb_per_s or 0.0))
    if COPY in by_name:
        points = zip(*sorted(by_name[COPY]))
        axes.plot(*points, color="black", linestyle="--", linewidth=1.0, label="copy of the same bytes")
    if MEMORY_COPY in by_name:
        level = statistics.median(rate for _, rate in by_name[MEMORY_COPY])
        axes.axhline(level, color="black", linestyle=":", linewidth=1.0, label=MEMORY_COPY)
    for name in (name for name in by_name if name not in COPIES):
        ours = name.startswith(OURS)
        style = {"linewidth": 1.8 if ours else 1.0, "markersize": 3.5, "zorder": 3 if ours else 2}
        axes.plot(*zip(*sorted(by_name[name])), marker="o", color=COLORS.get(name), label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [size_text(size) for size in sizes], fontsize="small")
    axes.set_xlim(sizes[0] / 2, sizes[-1] * 2)
    axes.minorticks_off()
    axes.tick_params(labelsize="small")
    axes.set_title(results[0].text if len(results[0].text) <= 30 else results[0].case, fontsize="small")
    axes.grid(alpha=0.25, linewidth=0.6)


def _common_legend(made: Any) -> None:
    """One legend for all panels, since some contenders are missing in some panels."""
    found: dict[str, Any] = {}
    for axes in made.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: found.get(label, handle) for handle, label in zip(handles, labels)}
    order = sorted(found, key=lambda name: (not name.startswith(OURS), "copy" in name))
    handles = [found[name] for name in order]
    made.legend(handles, order, loc="outside lower center", ncols=5, frameon=False, fontsize="small")


# Ratios ---------------------------------------------------------------------------------------------------------


def draw_ratios(rows: Sequence[Any], targets: Mapping[str, float | None], record: Record, path: Path) -> None:
    """Draw PyTorch's times divided by ours over layers on a log scale, a panel for each direction that was measured.

    Parameters
    ----------
    rows : sequence of _primitives.Row
    targets : mapping
        Direction -> least geometric mean of the ratios, or None.
    record : Record
        The run, for the heading.
    path : Path
    """
    rows = [row for row in rows if row.ratio is not None]
    directions = [d for d in targets if any(row.direction == d for row in rows)]
    layers = list(dict.fromkeys(row.layer for row in rows))
    made = figure(max(6.0, 2.0 + 0.16 * len(layers)), 1.8 + 2.1 * len(directions))
    if not rows:
        raise SystemExit("--picture: nothing was measured that could be drawn")
    grid = list(made.subplots(len(directions), 1, sharex=True, squeeze=False).flat)
    colors = dict(zip(sorted({row.N for row in rows}), cycle(MARKS)))
    for axes, direction in zip(grid, directions):
        axes.set_title(direction, fontsize="small")
        axes.axhline(1.0, color="black", linewidth=0.8)
        if (target := targets[direction]) and target != 1.0:
            axes.axhline(target, color="black", linestyle=":", linewidth=0.8, label=f"target of the mean, {target:g}")
        here = [row for row in rows if row.direction == direction]
        for N in sorted({row.N for row in here}):
            points = [(layers.index(row.layer), row.ratio) for row in here if row.N == N]
            label = f"N = {N}" if N else "without minibatch"
            axes.plot(*zip(*points), "o", markersize=3.5, color=colors[N], label=label)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.tick_params(labelsize="x-small")
        axes.legend(fontsize="x-small", frameon=False)
    grid[-1].set_xticks(range(len(layers)), [layer.title for layer in layers], rotation=90, fontsize="xx-small")
    made.supylabel("PyTorch's time / ours", fontsize="medium")
    processor = record.machine.get("processor", "")
    made.suptitle(f"{record.subject}: above 1, ours is faster; {processor}", fontsize="small")
    save(made, path)


def draw_bars(names: Sequence[str], bars: Iterable[list[tuple[str, float]]], peers: dict[str, str], path: Path) -> None:
    """Draw a bar for each ratio (peer, value), line by line, on a logarithmic scale."""
    made = figure(9.0, 4.2)
    axes = made.subplots()
    axes.axvline(1.0, color="#d62728", linewidth=1.6)
    for place, here in enumerate(bars):
        for step, (who, ratio) in enumerate(here):
            height = place + 0.7 * ((step + 0.5) / len(here) - 0.5)
            axes.barh(height, ratio - 1, 0.6 / len(here), left=1.0, color=COLORS[who])
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("time others take / time neonlike takes", fontsize="small")
    for who, name in peers.items():
        axes.barh(0, 0, color=COLORS[who], label=name)
    axes.legend(fontsize="x-small", frameon=False)
    save(made, path)


# Efficiency -----------------------------------------------------------------------------------------------------


def draw_efficiency(curves: Sequence[Any], record: Record, path: Path) -> None:
    """Draw efficiency over ranks, a column of panels for each network and a row for each speed of the machines.

    Parameters
    ----------
    curves : sequence of scaling.Curve
    record : Record
        The run, for the heading.
    path : Path
    """
    networks, speeds, titles = (
        list(dict.fromkeys(getattr(curve, name) for curve in curves)) for name in ("network", "faster", "interconnect")
    )
    made = figure(1.2 + 2.9 * len(networks), 1.5 + 2.5 * len(speeds))
    grid = made.subplots(len(speeds), len(networks), sharex=True, sharey=True, squeeze=False)
    colors = dict(zip(titles, cycle(MARKS)))
    for curve in curves:
        axes = grid[speeds.index(curve.faster)][networks.index(curve.network)]
        color, label = colors[curve.interconnect], curve.interconnect
        axes.plot(*zip(*curve.overlapped.items()), color=color, marker="o", markersize=2.5, linewidth=1.4, label=label)
        axes.plot(*zip(*curve.without.items()), color=color, linestyle="--", linewidth=1.0)
        machines = "as this one" if curve.faster == 1 else f"{curve.faster} times as fast"
        axes.set_title(f"{curve.network}, N = {curve.batch}, machines {machines}", fontsize="small")
    for axes in grid.flat:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.set_ylim(0, 1.05)
        axes.tick_params(labelsize="x-small")
        axes.grid(alpha=0.25, linewidth=0.6)
    for axes in grid[-1]:
        axes.set_xlabel("machines", fontsize="small")
    _common_legend(made)
    made.supylabel("predicted efficiency: gradients summed during backward (dashed: after it)", fontsize="small")
    processor = record.machine.get("processor", "")
    made.suptitle(f"{record.subject}: weak scaling by a model; {processor}", fontsize="medium")
    save(made, path)
