"""Pictures of normalisation: the elements that share a mean and variance, and windows over channels."""

from __future__ import annotations

import numpy as np

from sitebuilder.pictures.computing import backend
from sitebuilder.pictures.drawing import BLUE, GREEN, ORANGE, PALE, PINK, VIOLET, Canvas

ROWS = (BLUE, ORANGE, GREEN, PINK, VIOLET, "#f5e6a3")


def batchnorm() -> Canvas:
    """Elements with a mean of their own, for statistics by channel and by position."""
    be = backend()
    channels, positions, samples = 2, 3, 4
    canvas, cell = Canvas(30), 3.3
    for left, rows, title in ((4, channels, "γ of C elements"), (28, channels * positions, "γ of C·H·W elements")):
        x = np.arange(24.0).reshape(channels * positions, samples)
        sums = [be.empty((rows, 1)) for _ in range(4)]
        ones, zeros, y = be.ones((rows, 1)), be.zeros((rows, 1)), be.empty(x.shape)
        be.compound_fprop_bn(be.array(x), *sums, ones, zeros, y, 0.1, 0.0, True)
        means = sums[2].get()[:, 0]
        owner = np.array([[np.abs(means - x.reshape(rows, -1).mean(1)[row * rows // len(x)]).argmin()] * samples
                          for row in range(len(x))])  # fmt: skip
        canvas.text((left + 2 * cell, 1.6), title)
        canvas.grid((left, 5.6), [[ROWS[number] for number in row] for row in owner], cell=cell)
        canvas.text((left + 2 * cell, 4), f"{rows} means", size=9)
        canvas.text((left + 2 * cell, 27), "samples n →", size=9)
        for c in range(channels):
            canvas.text((left - 2, 5.6 + cell * (positions * c + 1.5)), f"c={c}", size=9)
    return canvas


def lrn() -> Canvas:
    """Channels in the denominator of each channel, for windows of five."""
    be = backend()
    channels, window = 8, 5
    layer = be.lrn_layer(None, 1, channels, J=window)
    reads = np.zeros((channels, channels), bool)
    for channel in range(channels):
        image = np.zeros((channels, 1))
        image[channel] = 1
        out, denom = be.empty((channels, 1)), be.empty((channels, 1))
        be.fprop_lrn(layer, be.array(image), out, denom)
        reads[:, channel] = denom.get()[:, 0] > 1
    canvas, cell = Canvas(33), 3.1
    colors = np.where(reads, BLUE, PALE)
    colors[np.diag_indices(channels)] = ORANGE
    canvas.text((12 + 4 * cell, 1.6), "channels whose squares are added, j →", size=9.5)
    words = [[str(j) if reads[c, j] else "" for j in range(channels)] for c in range(channels)]
    canvas.grid((12, 3.4), colors, words, cell=cell)
    for c in range(channels):
        canvas.text((11, 3.4 + cell * (c + 0.5)), f"denom {c}", align="right", size=9)
    canvas.text((12, 30.2), "orange: the channel itself", align="left", size=9)
    return canvas
