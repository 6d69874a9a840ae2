"""Charts of a report, drawn by matplotlib as SVG in the page's colours.

SVG is part of the page: it is sharp on paper and at any zoom, its texts are texts, and the page's CSS colours it for
light and dark. Bokeh would add 1.3 MB of JavaScript to each page, draws on a canvas and waits for it.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from neonlike.errors import MissingExtra

INK, FAINT = "#0a00f0", "#0a00f1"
"""Stand-ins for the page's colours ``--ink`` and ``--line``."""
COLOURS = 8
"""Number of the page's colours of curves, ``--c0`` to ``--c7``; their stand-ins are ``#0a0000`` to ``#0a0007``."""
WIDE, SMALL = 5.0, 4.0
"""Widths in inches, of charts that stand alone and of those that stand beside others."""
REM = 6.0
"""Width on the page by inch, in the unit of its font: texts of charts are then as large as small texts of the page."""
FROM_ZERO = ("MiB",)
"""Units of values that are only understood with zero on the axis."""
MOST_NAMES = 15
"""Classes whose counts are written into the confusion matrix."""

_numbers = itertools.count()


class Series(NamedTuple):
    """A curve of a chart; curves of one run have one colour, dashed for data that is not trained on."""

    label: str
    x: np.ndarray
    y: np.ndarray
    colour: int
    dashed: bool = False


def require_matplotlib() -> None:
    """Raise MissingExtra unless matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "a report's charts are drawn by matplotlib; install it with: pip install 'neonlike[viz]'"
        ) from error


def colour(number: int) -> str:
    """Stand-in for a colour of curves."""
    return f"#0a000{number % COLOURS}"


class _Chart:
    """A figure with one pair of axes, in the settings of all charts; ``svg`` draws it."""

    def __init__(self, width: float, height: float) -> None:
        require_matplotlib()
        import matplotlib
        from matplotlib.figure import Figure

        settings = {
            "svg.fonttype": "none", "svg.hashsalt": "neonlike", "font.size": 9.0, "text.color": INK,
            "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
            "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": FAINT, "grid.linewidth": 0.5,
            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
            "axes.formatter.useoffset": False, "axes.formatter.limits": (-3, 5), "text.parse_math": False,
            "axes.axisbelow": True,
        }  # fmt: skip
        self._context = matplotlib.rc_context(settings)
        self._context.__enter__()
        try:
            # To fit the margins to the texts takes as long as to draw; of small charts there may be a hundred.
            self.figure = Figure(figsize=(width, height), layout=None if width == SMALL else "constrained")
            if width == SMALL:
                self.figure.subplots_adjust(left=0.15, right=0.98, bottom=0.2, top=0.93)
            self.axes: Any = self.figure.add_subplot()
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __enter__(self) -> _Chart:
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def svg(self, alt: str) -> str:
        """The chart as an element of the page, with a text for those who do not see it."""
        buffer = io.StringIO()
        self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        return embedded(buffer.getvalue(), alt, REM * self.figure.get_figwidth())


def embedded(svg: str, alt: str, width: float) -> str:
    """An SVG file as an element of a page: in the page's colours, with ids of its own, at most ``width`` rem wide."""
    mark = f"g{next(_numbers)}-"
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<title>.*?</title>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{mark}', text)
    text = re.sub(r'href="#', f'href="#{mark}', text).replace("url(#", f"url(#{mark}")
    text = text.replace(INK, "var(--ink)").replace(FAINT, "var(--line)")
    text = re.sub(r"#0a000(\d)", r"var(--c\1)", text)
    head, rest = text.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(alt)}" style="max-width:{width:.1f}rem">{rest}'


def lines(series: Sequence[Series], x_label: str, y_label: str, alt: str, width: float = WIDE) -> str:
    """Draw curves over one another, with a legend; gaps where values are missing."""
    with _Chart(width, 2.5 if width == WIDE else 2.2) as chart:
        axes = chart.axes
        for one in series:
            few = len(one.x) <= 30
            axes.plot(
                one.x, one.y, color=colour(one.colour), linestyle="--" if one.dashed else "-", linewidth=1.4,
                marker="." if few else None, label=one.label,
            )  # fmt: skip
        axes.set_xlabel(x_label)
        axes.set_ylabel("" if width == SMALL else y_label)  # the title of a small chart is the same
        if y_label in FROM_ZERO:
            axes.set_ylim(bottom=0)
        axes.grid(True)
        if len(series) > 1:
            axes.legend(fontsize=8)
        return chart.svg(alt)


def histogram(counts: np.ndarray, extent: tuple[float, float, float, float], x_label: str, alt: str) -> str:
    """Draw counts (bins, steps) as colours; ``extent`` has the first and last step, and the lowest and highest bin."""
    with _Chart(SMALL, 2.0) as chart:
        shown = np.ma.masked_equal(np.log1p(counts), 0)
        chart.axes.imshow(
            shown, origin="lower", aspect="auto", extent=extent, cmap="viridis", interpolation="nearest"
        )  # fmt: skip
        chart.axes.set_xlabel(x_label)
        chart.axes.set_ylabel("magnitude, log2")
        chart.axes.yaxis.get_major_locator().set_params(integer=True)
        return chart.svg(alt)


def matrix(counts: np.ndarray, names: Sequence[str], alt: str) -> str:
    """Draw a confusion matrix: rows are classes, columns answers, colours shares of a class."""
    size = len(counts)
    with _Chart(4.8, 4.5) as chart:
        axes = chart.axes
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xlabel("answer")
        axes.set_ylabel("class")
        if size <= MOST_NAMES:
            axes.set_xticks(range(size), names, rotation=90 if max(map(len, names)) > 3 else 0)
            axes.set_yticks(range(size), names)
            for row, column in zip(*np.nonzero(counts), strict=True):
                ink = "white" if shares[row, column] > 0.5 else "#1f2328"
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=ink, fontsize=7)
        return chart.svg(alt)


def bars(names: Sequence[str], parts: Mapping[str, Sequence[float]], x_label: str, alt: str) -> str:
    """Draw horizontal bars, the first on top, each of parts one behind the other."""
    with _Chart(WIDE, 0.9 + 0.2 * len(names)) as chart:
        axes, left = chart.axes, np.zeros(len(names))
        for number, (label, values) in enumerate(parts.items()):
            axes.barh(range(len(names)), values, left=left, color=colour(number), label=label, height=0.7)
            left = left + np.asarray(values, float)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(x_label)
        axes.grid(True, axis="x")
        if len(parts) > 1:
            axes.legend(fontsize=8)
        return chart.svg(alt)
