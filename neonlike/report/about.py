"""The sections of a report about the run itself: summary, network, machine, versions, command, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from neonlike.errors import NeonlikeError
from neonlike.logger import logger
from neonlike.markup import table
from neonlike.models import graph
from neonlike.models.explain import COLUMNS, cells
from neonlike.report import charts
from neonlike.report.parts import note, of_run, scrolled
from neonlike.report.run import Run, RunCurve
from neonlike.report.safe_svg import shapes_of

OLD = "The file was written without the facts of its run: by an older version, or not by Callbacks."
LABELS = {"train": "cost of training", "loss": "cost of evaluation"}


def summary(runs: Sequence[Run]) -> str:
    """A line for each run: epochs, time, last and best values."""
    names = list(dict.fromkeys(_label(one) for run in runs for one in run.curves if one.group in ("cost", "metrics")))
    rows = []
    for run in runs:
        values = {_label(one): _last_and_best(one) for one in run.curves}
        done = f"{run.epochs} of {run.of_epochs}" if run.of_epochs else str(run.epochs)
        rows.append([run.name, done, _duration(run), *(values.get(name, "") for name in names)])
    return scrolled(table("", ["run", "epochs", "time", *names], rows), "Summary of the runs")


def _label(one: RunCurve) -> str:
    return LABELS.get(one.name, one.name) if one.group == "cost" else one.name


def _last_and_best(one: RunCurve) -> str:
    """The last finite value, and of a cost on evaluation data the best."""
    finite = np.flatnonzero(np.isfinite(one.y))
    if not len(finite):
        return ""
    last = f"{one.y[finite[-1]]:.4g}"
    if one.by_minibatch or one.group != "cost":
        return last
    best = finite[int(np.argmin(one.y[finite]))]
    return f"{last}, lowest {one.y[best]:.4g} in epoch {int(one.x[best]) + 1}"


def _duration(run: Run) -> str:
    if run.seconds is None:
        return "not ended"
    whole = round(run.seconds)
    minutes, seconds = divmod(whole, 60)
    return f"{run.seconds:.1f} s" if whole < 60 else f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def network(runs: Sequence[Run]) -> str:
    """The layers of each run's network, and their graph."""
    return "".join(of_run(runs, run, _network(run)) for run in runs)


def _network(run: Run) -> str:
    rows = run.network.get("rows", [])
    if not rows:
        return note(OLD)
    parameters = sum(row["parameters"] for row in rows)
    listed = scrolled(table("", COLUMNS, map(cells, rows)), "Layers of the network")
    leaves = sum(bool(row["outputs"]) for row in rows)
    return f"<p>{parameters:,} parameters in {leaves} layers</p>{_drawn(run)}{listed}"


def _drawn(run: Run) -> str:
    """The graph, if Graphviz is installed."""
    dot = run.network.get("dot", "")
    try:
        drawn = graph.draw(dot) if dot else None
        shapes = None if drawn is None else shapes_of(drawn.decode())
    except NeonlikeError as error:
        logger.warning("report: %s", error)
        shapes = None
    if shapes is None:
        return note("The graph is drawn by Graphviz's program dot, where that is installed; the table has it as text.")
    svg = shapes.replace(graph.INK, charts.INK).replace(graph.GROUND, "none")
    picture = charts.embedded(svg, "The graph of the network; the table below lists its layers", 60)
    return f'<figure class="graph">{picture}</figure>'


def facts(runs: Sequence[Run]) -> str:
    """Tables of the facts of all runs, a column for each."""
    topics = list(dict.fromkeys(topic for run in runs for topic in run.facts))
    if not topics:
        return note(OLD)
    parts = []
    for topic in topics:
        names = list(dict.fromkeys(name for run in runs for name in run.facts.get(topic, {})))
        rows = ([name, *(run.facts.get(topic, {}).get(name, "") for run in runs)] for name in names)
        heads = [run.name for run in runs] if len(runs) > 1 else ["value"]
        parts.append(f"<h3>{escape(topic.capitalize())}</h3>{scrolled(table('', [topic, *heads], rows), topic)}")
    return "".join(parts)
