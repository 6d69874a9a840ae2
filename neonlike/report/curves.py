"""The sections of a report about values over time: costs, metrics, learning rates, histograms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from neonlike.markup import table
from neonlike.report import charts
from neonlike.report.charts import Series
from neonlike.report.parts import chart_with_table, note, of_run
from neonlike.report.run import Run, RunCurve, RunHistogram
from neonlike.visualizations.page import thinned

MOST_POINTS = 400
"""Points of a drawn curve; longer ones are averaged over neighbours."""
MOST_ROWS = 200
"""Rows of a table of curves; of more epochs every few are listed."""
MOST_STEPS, MOST_LISTED = 200, 25
"""Steps of a drawn histogram, and rows of its table."""
MOST_HISTOGRAMS = 60


def costs(runs: Sequence[Run]) -> str:
    """Costs of all runs over one another, on the training data and on the evaluation data."""
    found = [(i, one) for i, run in enumerate(runs) for one in run.curves if one.group in ("cost", "multicost")]
    if not found:
        return note("No epoch is complete, so there is no curve yet.")
    evaluated = any(not one.by_minibatch for _, one in found)
    more = "" if evaluated else note("For the cost on other data: Callbacks(eval_set=data, eval_freq=1).")
    return _curves_chart(runs, found, "cost", "Cost") + more


def metrics(runs: Sequence[Run]) -> str:
    """A chart for each metric, with all runs."""
    names = list(dict.fromkeys(one.name for run in runs for one in run.curves if one.group == "metrics"))
    if not names:
        return note("No metric was recorded; Callbacks(eval_set=data, eval_freq=1, metric=Accuracy()) records one.")
    drawn = [_curves_chart(runs, _named(runs, name), name, name, charts.SMALL) for name in names]
    return f'<div class="grid">{"".join(drawn)}</div>'


def _named(runs: Sequence[Run], name: str) -> list[tuple[int, RunCurve]]:
    """A metric of all runs, with their numbers."""
    return [(i, one) for i, run in enumerate(runs) for one in run.curves if (one.group, one.name) == ("metrics", name)]


def rates(runs: Sequence[Run]) -> str:
    """The learning rates of all runs."""
    found = [(i, one) for i, run in enumerate(runs) for one in run.curves if one.group == "rate"]
    if not found:
        return note("No learning rate was recorded: the optimizer has none, or an older version wrote the file.")
    return _curves_chart(runs, found, "learning rate", "Learning rate")


def _curves_chart(
    runs: Sequence[Run], found: Sequence[tuple[int, RunCurve]], y_label: str, title: str, width: float = charts.WIDE
) -> str:
    """A chart of curves of runs, given with the numbers of their runs, and the table of its values."""
    by_group = {name: number for number, name in enumerate(dict.fromkeys(one.name for _, one in found))}
    several, both = len(runs) > 1, len({one.by_minibatch for _, one in found}) > 1
    series, columns = [], {}
    for run, one in found:
        label = " ".join([runs[run].name, one.name] if several else [one.name])
        colour = run if several else by_group[one.name]
        dashed = both and several and not one.by_minibatch
        series.append(Series(label, *thinned(one.x, one.y, MOST_POINTS), colour, dashed))
        columns[label] = _by_epoch(one)
    alt = f"{title} over epochs. " + "; ".join(f"{label}: {_course(values)}" for label, values in columns.items())
    svg = charts.lines(series, "epoch", y_label, alt, width)
    return chart_with_table(title, svg, _epoch_table(f"{title} at the end of epochs", columns))


def _by_epoch(one: RunCurve) -> dict[int, float]:
    """The last finite value within each epoch, by the epoch's number from 1."""
    return {int(np.floor(x)) + 1: float(y) for x, y in zip(one.x, one.y, strict=True) if np.isfinite(y)}


def _course(values: dict[int, float]) -> str:
    """A curve in words."""
    if not values:
        return "no value"
    first, last = min(values), max(values)
    return f"from {values[first]:.4g} in epoch {first} to {values[last]:.4g} in epoch {last}"


def _epoch_table(caption: str, columns: dict[str, dict[int, float]]) -> str:
    epochs = sorted({epoch for values in columns.values() for epoch in values})
    listed = _spread(epochs, MOST_ROWS)
    left_out = f"; {len(listed)} of {len(epochs)} epochs" if len(listed) < len(epochs) else ""
    rows = (
        [str(epoch), *(f"{values[epoch]:.6g}" if epoch in values else "" for values in columns.values())]
        for epoch in listed
    )
    return table(caption + left_out, ["epoch", *columns], rows)


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))]


# Histograms -----------------------------------------------------------------------------------------------------------


def histograms(runs: Sequence[Run]) -> str:
    """Histograms of weights and gradients over time, of each run."""
    return "".join(of_run(runs, run, "".join(_of_run(run))) for run in runs)


def _of_run(run: Run) -> Iterator[str]:
    if not run.histograms:
        yield note(
            "No histogram was recorded; Callbacks(report=...) records those of weights and gradients, "
            'callbacks.add_hist_callback(filter_key=["W", "dW"]) too.'
        )
        return
    drawn = run.histograms[:MOST_HISTOGRAMS]
    yield '<div class="grid">'
    yield from map(_histogram, drawn)
    yield "</div>"
    if rest := run.histograms[MOST_HISTOGRAMS:]:
        yield note("Recorded, but not drawn: " + ", ".join(one.name for one in rest))


def _histogram(one: RunHistogram) -> str:
    unit = "minibatch" if one.by_minibatch else "epoch"
    steps = np.arange(one.counts.shape[1])
    parts = np.array_split(steps, min(len(steps), MOST_STEPS)) if len(steps) else []
    counts = np.stack([one.counts[:, part].sum(axis=1) for part in parts], axis=1) if parts else np.zeros((1, 0))
    used = np.flatnonzero(counts.sum(axis=1))
    if not len(used):
        return f"<p>{escape(one.name)}: nothing was counted.</p>"
    low, high = max(int(used[0]) - 1, 0), int(used[-1]) + 2
    extent = (0.0, float(len(steps)), one.offset + low - 0.5, one.offset + min(high, len(counts)) - 0.5)
    listed = [step for step in _spread(steps.tolist(), MOST_LISTED) if one.counts[:, step].sum()]
    rows = [[str(step + 1), *_quantiles(one.counts[:, step], one.offset)] for step in listed]
    alt = f"Histogram of the magnitudes of {one.name} over each {unit}"
    if rows:
        alt += f"; median {rows[0][2]} at first and {rows[-1][2]} at last"
    svg = charts.histogram(counts[low:high], extent, unit, alt)
    columns = [unit, "5% are below", "median", "95% are below"]
    return chart_with_table(one.name, svg, table(f"Magnitudes of {one.name}", columns, rows))


def _quantiles(counts: np.ndarray, offset: int) -> list[str]:
    """Magnitudes that 5, 50 and 95 of 100 values do not exceed, as powers of two."""
    shares = np.cumsum(counts) / max(counts.sum(), 1)
    bins = (int(np.searchsorted(shares, share)) for share in (0.05, 0.5, 0.95))
    return ["0" if i == 0 else f"{2.0 ** (offset + i):.2g}" for i in bins]
