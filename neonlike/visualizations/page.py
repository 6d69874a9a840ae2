"""Curves, histograms and pictures as a self-contained HTML page with embedded SVG and PNG."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from neonlike.visualizations.data import Curve, Histogram, Picture

WIDTH, HEIGHT, MARGIN = 720, 320, 56
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
STYLE = "body{font:14px sans-serif;margin:2em}img{image-rendering:pixelated;margin:2px}svg text{font-size:12px}"
MOST_POINTS = 2000
"""Maximum number of points of a curve; longer curves are averaged over neighbours."""


def page(title: str, sections: Sequence[str]) -> str:
    """Build the text of a page.

    Parameters
    ----------
    title : str
        Title of the page.
    sections : sequence of str
        HTML texts, in order.
    """
    head = f'<!doctype html><html><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"{head}<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>{''.join(sections)}</body></html>\n"


def curves(found: Sequence[Curve], x_label: str) -> str:
    """Plot all curves with axes and a legend; non-finite values are left out.

    Parameters
    ----------
    found : list of (name, x, y)
        The curves.
    x_label : str
        Title of the x axis.
    """
    drawn = [(name, *thinned(x, y)) for name, x, y in found]
    xs = np.concatenate([x for _, x, _ in drawn]) if drawn else np.array([])
    ys = np.concatenate([y for _, _, y in drawn]) if drawn else np.array([])
    if not len(xs):
        return "<p>No costs were recorded.</p>"
    left, right, low, high = xs.min(), max(xs.max(), xs.min() + 1e-9), ys.min(), max(ys.max(), ys.min() + 1e-9)

    def place(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        across, up = (x - left) / (right - left), (y - low) / (high - low)
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)

    parts = [_axes(left, right, low, high, x_label)]
    for number, (name, x, y) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(*place(x, y), strict=True))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
        where = f'x="{WIDTH - MARGIN - 100}" y="{MARGIN + 16 * number}"'
        parts.append(f'<text {where} fill="{colour}">{html.escape(name)}</text>')
    return f'<h2>Costs</h2><svg width="{WIDTH}" height="{HEIGHT}">{"".join(parts)}</svg>'


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """The finite values of a curve, averaged over neighbours if they are more than ``most``."""
    finite = np.isfinite(y)
    x, y = x[finite].astype(float), y[finite].astype(float)
    if len(x) <= most:
        return x, y
    parts = np.array_split(np.arange(len(x)), most)
    return np.array([x[part].mean() for part in parts]), np.array([y[part].mean() for part in parts])


def _axes(left: float, right: float, low: float, high: float, x_label: str) -> str:
    x0, x1, y0, y1 = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN, MARGIN
    parts = [f'<path d="M{x0} {y1}V{y0}H{x1}" fill="none" stroke="#444"/>']
    for i in range(5):
        across, up = x0 + i * (x1 - x0) / 4, y0 - i * (y0 - y1) / 4
        x, y = left + i * (right - left) / 4, low + i * (high - low) / 4
        parts.append(f'<text x="{across:.0f}" y="{y0 + 18}" text-anchor="middle">{x:.4g}</text>')
        parts.append(f'<text x="{x0 - 6}" y="{up + 4:.0f}" text-anchor="end">{y:.4g}</text>')
    middle = f'x="{(x0 + x1) / 2}" y="{HEIGHT - 12}" text-anchor="middle"'
    return "".join(parts) + f"<text {middle}>{html.escape(x_label)}</text>"


def histogram(found: Histogram) -> str:
    """Picture of a histogram over time: one column per step, small magnitudes at the bottom, darker for more."""
    name, counts, _, _, bins, offset = found
    shade = np.log1p(counts[::-1].astype(float))
    grey = (255 - 255 * shade / max(shade.max(), 1e-9)).astype(np.uint8)
    picture = image(np.repeat(grey[:, :, None], 3, axis=2), WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
    return f"<h3>{html.escape(name)}</h3><p>magnitudes from 2^{offset} to 2^{offset + bins - 1}</p>{picture}"


def responses(layer: str, pictures: Sequence[Picture], size: int = 96) -> str:
    """Pairs of pictures of a layer: an image, and a feature map's response in it.

    Parameters
    ----------
    layer : str
        Name of the layer.
    pictures : list of (feature map, image, response)
        The pictures, uint8 ``(H, W, C)``.
    size : int
        Height and width in pixels of the page.
    """
    shown = []
    for number, original, response in pictures:
        shown.append(f"<span title='feature map {number}'>{image(original, size)}{image(response, size)}</span>")
    return f"<h3>layer {html.escape(layer)}</h3><p>{' '.join(shown)}</p>"


def image(pixels: np.ndarray, width: int, height: int | None = None) -> str:
    """Build an ``img`` element of uint8 pixels ``(H, W, C)`` with one or three channels.

    Parameters
    ----------
    pixels : ndarray
        The picture.
    width : int
        Width on the page, in pixels.
    height : int, optional
        Height on the page; the width by default.

    Returns
    -------
    str
        HTML text, with the picture in it as PNG.
    """
    encoded = base64.b64encode(png(pixels)).decode()
    return f'<img width="{width}" height="{height or width}" src="data:image/png;base64,{encoded}">'


def png(pixels: np.ndarray) -> bytes:
    """Encode uint8 pixels ``(H, W, 1 or 3)`` as a PNG file.

    Parameters
    ----------
    pixels : ndarray
        The picture, uint8.
    """
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2}[channels]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes())),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(content)) + tag + content + struct.pack(">I", zlib.crc32(tag + content))
        for tag, content in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
