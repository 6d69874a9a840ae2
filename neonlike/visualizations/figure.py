"""Bokeh figures (an optional package) of the data from :mod:`neonlike.visualizations.data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.distributed.first import by_first
from neonlike.errors import MissingExtra
from neonlike.util.atomic import replacing
from neonlike.util.persist import expand
from neonlike.visualizations.data import Curve, Histogram, Picture, convert_rgb_to_bokehrgba
from neonlike.visualizations.page import COLOURS, curves, page, responses

__all__ = ["cost_fig", "deconv_figs", "deconv_summary_page", "hist_fig", "image_fig", "x_label"]


def _figure(**options: Any) -> Any:
    try:
        from bokeh.plotting import figure
    except ImportError as error:
        raise MissingExtra(
            "figures need bokeh; install it with: pip install 'neonlike[viz]' (the command nvis does without)"
        ) from error
    return figure(**options)


def x_label(epoch_axis: bool) -> str:
    """The title of an axis of epochs, or of minibatches.

    Examples
    --------
    >>> from neonlike.visualizations.figure import x_label
    >>> x_label(epoch_axis=True)
    'Epoch'
    """
    return "Epoch" if epoch_axis else "Minibatch"


def deconv_summary_page(filename: str, cost_data: Sequence[Curve], deconv_data: Sequence[Any]) -> str:
    """Write an HTML page with cost curves and feature-map responses, without bokeh.

    Parameters
    ----------
    filename : path
        Path of the HTML page.
    cost_data : list of (name, x, y)
        Result of :func:`~neonlike.visualizations.data.h5_cost_data`.
    deconv_data : list of (layer, pictures)
        Result of :func:`~neonlike.visualizations.data.h5_deconv_data`.

    Returns
    -------
    str
        The path.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.visualizations.figure import deconv_summary_page
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "page.html")
    >>> deconv_summary_page(path, [("cost", np.arange(3.0), np.ones(3))], []) == path
    True
    >>> folder.cleanup()
    """
    sections = [curves(cost_data, x_label(True)), *(responses(*layer) for layer in deconv_data)]
    path = expand(filename)

    def write() -> None:
        with replacing(path) as file:
            file.write(page("What feature maps respond to", sections).encode())

    by_first(write)
    return path


def cost_fig(cost_data: Sequence[Curve], plot_height: int, plot_width: int, epoch_axis: bool = True) -> Any:
    """A figure of the curves of :func:`~neonlike.visualizations.data.h5_cost_data`.

    Parameters
    ----------
    cost_data : list of (name, x, y)
        The curves.
    plot_height, plot_width : int
        Size in pixels.
    epoch_axis : bool
        Whether x is in epochs, not in minibatches.

    Returns
    -------
    bokeh.plotting.figure
        The figure.

    Raises
    ------
    MissingExtra
        If bokeh is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.visualizations.figure import cost_fig
    >>> cost_fig([("cost", np.arange(3), np.ones(3))], plot_height=300, plot_width=600).title.text
    'Cost'
    """
    label = x_label(epoch_axis)
    fig = _figure(height=plot_height, width=plot_width, title="Cost", x_axis_label=label, y_axis_label="Cost")
    for number, (name, x, y) in enumerate(cost_data):
        fig.line(x, y, line_width=2, color=COLOURS[number % len(COLOURS)], legend_label=name)
    return fig


def hist_fig(
    hist_data: Histogram, plot_height: int, plot_width: int, x_range: Any = None, epoch_axis: bool = True
) -> Any:
    """A figure of one histogram of :func:`~neonlike.visualizations.data.h5_hist_data` over time.

    Parameters
    ----------
    hist_data : tuple
        One entry of :func:`~neonlike.visualizations.data.h5_hist_data`.
    plot_height, plot_width : int
        Size in pixels.
    x_range : optional
        Range of another figure, to be panned together.
    epoch_axis : bool
        Whether x is in epochs, not in minibatches.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.visualizations.figure import hist_fig
    >>> hist_fig(("dense_0_W", np.ones((64, 2)), 64, 2, 64, -48), plot_height=300, plot_width=600).title.text
    'dense_0_W'
    """
    name, counts, height, width, _, offset = hist_data
    fig = _figure(
        height=plot_height, width=plot_width, title=name, x_axis_label=x_label(epoch_axis),
        y_axis_label="Magnitude, log2", x_range=(0, width) if x_range is None else x_range,
        y_range=(offset, offset + height),
    )  # fmt: skip
    fig.image([np.log1p(counts)], x=0, y=offset, dw=width, dh=height, palette="Viridis256")
    return fig


def image_fig(data: np.ndarray, h: int, w: int, x_range: Any, y_range: Any, plot_size: int) -> Any:
    """A figure of a picture, uint8 ``(H, W, 3)``, drawn on ``w`` by ``h`` units.

    Parameters
    ----------
    data : ndarray
        The picture.
    h, w : int
        Height and width in units of the axes.
    x_range, y_range : tuple of float
        Ranges of the axes.
    plot_size : int
        Height and width of the figure in pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.visualizations.figure import image_fig
    >>> image_fig(np.zeros((8, 8, 3), dtype=np.uint8), 8, 8, (0, 8), (0, 8), plot_size=120).width
    120
    """
    fig = _figure(height=plot_size, width=plot_size, x_range=x_range, y_range=y_range, toolbar_location=None)
    fig.axis.visible = False
    fig.image_rgba([convert_rgb_to_bokehrgba(data)], x=0, y=0, dw=w, dh=h)
    return fig


def deconv_figs(
    layer_name: str, layer_data: Sequence[Picture], fm_max: int = 8, plot_size: int = 120
) -> list[tuple[int, Any, Any]]:
    """Figures of a layer of :func:`~neonlike.visualizations.data.h5_deconv_data`.

    Parameters
    ----------
    layer_name : str
        Name of the layer, for the titles.
    layer_data : list of (feature map, image, response)
        The pictures of the layer.
    fm_max : int
        Number of feature maps.
    plot_size : int
        Height and width of each figure in pixels.

    Returns
    -------
    list of (feature map, figure of the image, figure of the response)
        Figures of the first ``fm_max`` feature maps of the layer.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.visualizations.figure import deconv_figs
    >>> picture = np.zeros((8, 8, 3), dtype=np.uint8)
    >>> [number for number, image, response in deconv_figs("conv", [(0, picture, picture), (1, picture, picture)])]
    [0, 1]
    """
    found = []
    for number, original, response in layer_data[:fm_max]:
        height, width = original.shape[:2]
        pair = [
            image_fig(np.broadcast_to(picture, (height, width, 3)), height, width, (0, width), (0, height), plot_size)
            for picture in (original, response)
        ]
        pair[0].title = f"{layer_name}, feature map {number}"
        found.append((number, *pair))
    return found
