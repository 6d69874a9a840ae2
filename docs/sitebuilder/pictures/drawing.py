"""Canvas of a picture: cells, grids, boxes, arrows and words, in colours that read on light and on dark pages.

The background is transparent. Words outside of cells are of a middle grey, with much the same contrast to white and to
black; those within are dark, on light fills.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

WIDTH = 46
"""Units of a canvas's width; a unit is a tenth of an inch. Text of 10 points is 10 pixels high on a narrow phone."""
INK, GREY, EDGE = "#1f2328", "#757c86", "#8b929c"
PALE, BLUE, ORANGE, GREEN, PINK, VIOLET = "#e8ebef", "#9ecbff", "#ffc47d", "#a3dfa0", "#f7b3c6", "#cdb8f5"
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "neonlike", "font.family": "DejaVu Sans"}
Point = tuple[float, float]


class Canvas:
    """Drawing of 46 units width, with y from the top down.

    Parameters
    ----------
    height : float
        Units.
    """

    def __init__(self, height: float) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(WIDTH / 10, height / 10), dpi=72)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(height, 0)

    def text(self, at: Point, words: str, *, size: float = 10, color: str = GREY, align: str = "center") -> None:
        """Write words around, or with ``align`` left or right of, a point.

        Parameters
        ----------
        at : (float, float)
        words : str
        size : float
            Points.
        color : str
        align : "center", "left" or "right"
            Which side of the words the point is at.
        """
        self.axes.text(*at, words, fontsize=size, color=color, ha=align, va="center_baseline", linespacing=1.25)

    def box(self, at: Point, extent: Point, words: str = "", *, fill: str | None = PALE, **style: Any) -> None:
        """Draw a rectangle, with its words in the middle.

        Parameters
        ----------
        at, extent : (float, float)
            The upper left corner; width and height.
        words : str
        fill : str or None
            Colour; None: only a dashed edge.
        **style
            Of the text; ``edge`` and ``line`` are colour and width of the edge, ``round`` the radius of the corners.
        """
        from matplotlib.patches import FancyBboxPatch, Rectangle

        edge, line, radius = style.pop("edge", EDGE), style.pop("line", 0.7), style.pop("round", 0)
        look = {"facecolor": fill or "none", "edgecolor": edge, "linewidth": line}
        if fill is None:
            look["linestyle"] = (0, (2, 2))
        if radius:
            shape: Any = FancyBboxPatch(at, *extent, boxstyle=f"round,pad=0,rounding_size={radius}", **look)
        else:
            shape = Rectangle(at, *extent, **look)
        self.axes.add_patch(shape)
        if words:
            middle = at[0] + extent[0] / 2, at[1] + extent[1] / 2
            self.text(middle, words, **{"color": INK if fill else GREY, "size": 9, **style})

    def grid(self, at: Point, fills: Any, words: Any = None, *, cell: float = 3, **style: Any) -> None:
        """Draw a matrix of cells.

        Parameters
        ----------
        at : (float, float)
            The upper left corner.
        fills : array of str or None (rows, columns)
            Colour of each cell.
        words : array of str (rows, columns), optional
        cell : float
            Side of a cell.
        **style
            As of ``box``.
        """
        for (row, column), fill in np.ndenumerate(np.asarray(fills, object)):
            said = "" if words is None else str(words[row][column])
            self.box((at[0] + column * cell, at[1] + row * cell), (cell, cell), said, fill=fill, **style)

    def frame(self, at: Point, extent: Point, color: str) -> None:
        """Draw a thick edge around cells."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle(at, *extent, facecolor="none", edgecolor=color, linewidth=2.2))

    def arrow(self, *points: Point, color: str = GREY, head: bool = True, width: float = 1.2) -> None:
        """Draw a line through points, with a head at its end.

        Parameters
        ----------
        *points : (float, float)
        color : str
        head : bool
        width : float
        """
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        style = "-|>,head_width=2,head_length=3.5" if head else "-"
        look = {"arrowstyle": style, "color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
        self.axes.add_patch(FancyArrowPatch(path=Path(points), mutation_scale=1, joinstyle="miter", **look))

    def dot(self, at: Point, words: str = "", *, radius: float = 1.3, fill: str = PALE, size: float = 10) -> None:
        """Draw a circle with a sign in it.

        Parameters
        ----------
        at : (float, float)
            The centre.
        words : str
        radius : float
        fill : str
        size : float
            Of the sign, in points.
        """
        from matplotlib.patches import Circle

        self.axes.add_patch(Circle(at, radius, facecolor=fill, edgecolor=EDGE, linewidth=0.7, zorder=2))
        self.axes.text(*at, words, fontsize=size, color=INK, ha="center", va="center_baseline", zorder=3)

    def words(self) -> list[tuple[str, float, Any]]:
        """Each piece of text with its size in points and the rectangle that it takes, in points from below."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        renderer = FigureCanvasAgg(self.figure).get_renderer()
        return [(text.get_text(), text.get_fontsize(), text.get_window_extent(renderer)) for text in self.axes.texts]

    def svg(self) -> str:
        """Text of the picture as an SVG file, the same each time."""
        import matplotlib

        with matplotlib.rc_context(SETTINGS):
            file = io.StringIO()
            self.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def fills(values: Any, colors: Mapping[Any, str | None]) -> Any:
    """Colours of cells by their values."""
    return [[colors[value] for value in row] for row in np.asarray(values).tolist()]


def shown(values: Any, digits: int = 0) -> list[list[str]]:
    """Numbers as words, with so many digits behind the point."""
    return [[f"{value:.{digits}f}" for value in row] for row in np.asarray(values).tolist()]
