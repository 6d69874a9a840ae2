"""The sections of a report about what a network answers: confusion matrix and wrongly classified samples."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from neonlike.markup import table
from neonlike.report import charts
from neonlike.report.parts import chart_with_table, note, of_run
from neonlike.report.run import Run
from neonlike.util.png import encode_png

MOST_TABLE, MOST_DRAWN, MOST_PAIRS = 20, 200, 25
"""Classes of a matrix as a table and as a chart, and pairs of classes in a list."""
HOW = "Callbacks(eval_set=data, eval_freq=1) records the answers to the evaluation data, of a network with classes."


def confusion(runs: Sequence[Run]) -> str:
    """The confusion matrix of each run."""
    return "".join(of_run(runs, run, _confusion(run)) for run in runs)


def _confusion(run: Run) -> str:
    counts = run.confusion
    if counts is None or not counts.size:
        return note(f"There is no confusion matrix. {run.wrong.get('why') or HOW}")
    names = [_name(run, number) for number in range(len(counts))]
    total, right = int(counts.sum()), int(np.trace(counts))
    share = 100 * right / max(total, 1)
    title = f"{right:,} of {total:,} right ({share:.2f}%), epoch {run.wrong.get('epoch', 0) + 1}"
    if len(counts) <= MOST_TABLE:
        head = ["class", *(f"answer {name}" for name in names)]
        listed = table(title, head, ([name, *map(str, row)] for name, row in zip(names, counts, strict=True)))
    else:
        listed = _pairs(counts, names)
    if len(counts) > MOST_DRAWN:
        return f"<p>{title}</p>{listed}"
    alt = f"Confusion matrix of {len(counts)} classes: {title}"
    return chart_with_table(title, charts.matrix(counts, names, alt), listed)


def _pairs(counts: np.ndarray, names: Sequence[str]) -> str:
    """The pairs of classes that are taken for each other most often."""
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    places = [divmod(int(place), len(counts)) for place in order if wrong.flat[place]]
    rows = [[names[row], names[column], f"{counts[row, column]:,}"] for row, column in places]
    return table("Classes that are most often taken for others", ["class", "answer", "samples"], rows)


def wrong(runs: Sequence[Run]) -> str:
    """Samples that the network of each run is most wrongly sure of."""
    return "".join(of_run(runs, run, _wrong(run)) for run in runs)


def _wrong(run: Run) -> str:
    samples = run.wrong.get("samples", [])
    if not samples:
        if run.confusion is not None and not run.wrong.get("why"):
            return "<p>Every sample is classified right.</p>"
        return note(f"No samples were recorded. {run.wrong.get('why') or HOW}")
    if any(number in run.images for number in range(len(samples))):
        shown = [_figure(run, number, sample) for number, sample in enumerate(samples)]
        return f'<p>Those that it is surest of come first.</p><div class="samples">{"".join(shown)}</div>'
    rows = [
        [str(sample.get("index", "")), _name(run, sample["truth"]), _name(run, sample["guess"]),
         f"{sample['output']:.3f}", _content(sample)]
        for sample in samples
    ]  # fmt: skip
    columns = ["sample", "class", "answer", "its output", "content"]
    return f'<div class="wide">{table("Those that it is surest of come first", columns, rows)}</div>'


def _figure(run: Run, number: int, sample: dict[str, Any]) -> str:
    """An image with its class and the answer."""
    truth, guess = _name(run, sample["truth"]), _name(run, sample["guess"])
    label = f"{truth}, answered {guess}"
    place = f"sample {sample['index']}, " if "index" in sample else ""
    caption = f"<figcaption>{escape(label)}<br><small>{place}output {sample['output']:.2f}</small></figcaption>"
    pixels = run.images.get(number)
    if pixels is None:
        return f"<figure>{escape(_content(sample))}{caption}</figure>"
    encoded = base64.b64encode(encode_png(pixels)).decode()
    return f'<figure><img src="data:image/png;base64,{encoded}" alt="{escape(place + label)}">{caption}</figure>'


def _content(sample: dict[str, Any]) -> str:
    if "text" in sample:
        return str(sample["text"])
    values = ", ".join(f"{value:.4g}" for value in sample.get("values", []))
    return f"{values} … ({sample['size']} values)" if sample.get("size", 0) > len(sample.get("values", [])) else values


def _name(run: Run, number: int) -> str:
    return str(run.wrong.get("names", {}).get(str(number), number))
