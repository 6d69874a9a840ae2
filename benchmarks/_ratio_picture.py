"""A picture of a run of ``conv.py`` and its like: PyTorch's time divided by ours, a panel for each direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from _cases import Record
from _rows import Row

COLORS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")
Targets = Mapping[str, float | None]


def draw(found: Sequence[Row], targets: Targets, title: Callable[[int], str], record: Record, path: Path) -> None:
    """Draw ratios over layers on a log scale, and save it where the ending of ``path`` says how.

    Parameters
    ----------
    found : sequence of Row
    targets : mapping
        Direction -> least geometric mean of the ratios, or None; a panel for each that was measured, in this order.
    title : callable
        What a minibatch is called.
    record : Record
        The run, for the heading.
    path : Path

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
    rows = [row for row in found if row.ratio is not None]
    if not rows:
        raise SystemExit("--picture: nothing was measured that could be drawn")
    directions = [d for d in targets if any(row.direction == d for row in rows)]
    layers = list(dict.fromkeys(row.layer for row in rows))
    width = max(6.0, 2.0 + 0.16 * len(layers))
    figure = Figure(figsize=(width, 1.8 + 2.1 * len(directions)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(len(directions), 1, sharex=True, squeeze=False).flat)
    batches = sorted({row.N for row in found})
    style = {N: {"color": color, "label": title(N)} for N, color in zip(batches, cycle(COLORS))}
    for axes, direction in zip(grid, directions):
        axes.set_title(direction, fontsize="small")
        _panel(axes, [row for row in rows if row.direction == direction], layers, targets[direction], style)
    grid[-1].set_xticks(range(len(layers)), [layer.title for layer in layers], rotation=90, fontsize="xx-small")
    figure.supylabel("PyTorch's time / ours", fontsize="medium")
    processor = record.machine.get("processor", "")
    figure.suptitle(f"{record.subject}: above 1, ours is faster; {processor}", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _panel(
    axes: Any, rows: list[Row], layers: list[Any], target: float | None, style: Mapping[int, dict[str, str]]
) -> None:
    """One direction: a point for each layer and minibatch in the style of the minibatch, the target behind them."""
    axes.axhline(1.0, color="black", linewidth=0.8)
    if target and target != 1.0:
        axes.axhline(target, color="black", linestyle=":", linewidth=0.8, label=f"target of the mean, {target:g}")
    for N in sorted({row.N for row in rows}):
        points = [(layers.index(row.layer), row.ratio) for row in rows if row.N == N]
        axes.plot(*zip(*points), "o", markersize=3.5, **style[N])
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.tick_params(labelsize="x-small")
    axes.legend(fontsize="x-small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
