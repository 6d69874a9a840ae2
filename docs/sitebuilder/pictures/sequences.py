"""Pictures of sequences: attention, and the cells of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sitebuilder.pictures.computing import backend
from sitebuilder.pictures.drawing import BLUE, GREEN, ORANGE, PALE, PINK, VIOLET, Canvas


def attention() -> Canvas:
    """Scores, weights and results of a causal attention of six queries."""
    be = backend()
    layer = be.attention_layer(None, 1, 1, 6, 3, value_size=6, causal=True)
    draw = np.random.default_rng(3).standard_normal
    q, k, out = be.array(1.6 * draw((6, 3))), be.array(draw((6, 3))), be.empty((6, 6))
    be.fprop_attention(layer, q, k, be.array(np.eye(6)), out)  # with these values the results are the weights
    weights = out.get()
    hidden = weights == 0
    canvas, cell = Canvas(51.5), 2.5
    canvas.text((11 + 3 * cell, 1.4), "keys Kᵀ")
    canvas.grid((11, 2.8), [[ORANGE] * 6] * 3, cell=cell)
    canvas.text((1 + 1.5 * cell, 10.5), "queries Q")
    canvas.grid((1, 12), [[BLUE] * 3] * 6, cell=cell)
    canvas.grid((11, 12), np.where(hidden, None, PALE), cell=cell)
    for line, words in enumerate(("scores", "scale · Q Kᵀ", "", "dashed: hidden,", "as causal=True")):
        canvas.text((28, 14 + 2.3 * line), words, align="left", size=9.5)
    canvas.arrow((13.5, 27.6), (13.5, 32.9))
    canvas.text((14.8, 30.2), "softmax of each row", align="left", size=9)
    shades = [[_between(PALE, "#2f7de1", float(weight)) if weight else None for weight in row] for row in weights]
    top = 33.5
    canvas.grid((1, top), shades, cell=cell)
    canvas.grid((21, top), [[VIOLET] * 3] * 6, cell=cell)
    canvas.grid((34, top), [[GREEN] * 3] * 6, cell=cell)
    canvas.text((18.5, top + 3 * cell), "×", size=13)
    canvas.text((31.3, top + 3 * cell), "=", size=13)
    for middle, words in ((1 + 3 * cell, "weights A"), (21 + 1.5 * cell, "values V"), (34 + 1.5 * cell, "output O")):
        canvas.text((middle, top + 16.4), words, size=9.5)
    return canvas


def _between(low: str, high: str, share: float) -> str:
    """A colour between two."""
    ends = [np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) for color in (low, high)]
    return "#" + "".join(f"{round(part):02x}" for part in ends[0] + (ends[1] - ends[0]) * share)


def rnn() -> Canvas:
    """A recurrent cell, and the steps of an unroll."""
    canvas = Canvas(33)
    canvas.text((3.4, 3), "hₜ₋₁")
    canvas.arrow((1, 5.5), (8, 5.5))
    canvas.box((8, 3.2), (7, 4.6), "W ·", fill=BLUE, round=0.6, size=10)
    canvas.arrow((15, 5.5), (19.7, 5.5))
    canvas.dot((21, 5.5), "+")
    canvas.arrow((21, 12), (21, 6.8))
    canvas.text((21, 13.4), "uₜ + b")
    canvas.arrow((22.3, 5.5), (27, 5.5))
    canvas.box((27, 3.2), (7, 4.6), "f", fill=ORANGE, round=0.6, size=10)
    canvas.arrow((34, 5.5), (45, 5.5))
    canvas.text((42.5, 3), "hₜ")
    canvas.text((1, 18), "all steps are one call:", align="left", size=9)
    names = ("h₀", "h₁", "h₂", "h₃")
    for step in range(3):
        left = 6 + 13 * step
        canvas.arrow((left - 5, 23), (left, 23))
        canvas.text((left - 2.8, 21), names[step], size=9)
        canvas.box((left, 20.7), (8, 4.6), "cell", fill=PALE, round=0.6, size=9)
        canvas.arrow((left + 4, 30), (left + 4, 25.3))
        canvas.text((left + 4, 31.4), ("u₁", "u₂", "u₃")[step], size=9)
    canvas.arrow((40, 23), (45, 23))
    canvas.text((42.2, 21), names[3], size=9)
    return canvas


def _gate(canvas: Canvas, left: float, top: float, words: str, fill: Any) -> None:
    canvas.box((left, top), (7.4, 5.2), words, fill=fill, round=0.6, size=9)


def lstm() -> Canvas:
    """An LSTM cell."""
    canvas = Canvas(43)
    canvas.text((3, 3.6), "cₜ₋₁")
    canvas.text((43, 3.6), "cₜ")
    for start, end in ((1, 6.4), (9, 19.2), (21.8, 45)):
        canvas.arrow((start, 6), (end, 6))
    canvas.dot((7.7, 6), "×")
    canvas.dot((20.5, 6), "+")
    gates = (("f\nforget", 4, BLUE), ("i\ninput", 13, ORANGE), ("g\ncandidate", 22, PINK), ("o\noutput", 31, GREEN))
    for words, left, fill in gates:
        _gate(canvas, left, 22, words, fill)
        canvas.arrow((left + 3.7, 32), (left + 3.7, 27.2))
    canvas.arrow((7.7, 22), (7.7, 7.3))
    canvas.arrow((16.7, 22), (16.7, 15), (19.2, 15))
    canvas.arrow((25.7, 22), (25.7, 15), (21.8, 15))
    canvas.dot((20.5, 15), "×")
    canvas.arrow((20.5, 13.7), (20.5, 7.3))
    canvas.arrow((38.5, 6), (38.5, 8.2))
    canvas.box((36.2, 8.2), (4.6, 4), "τ", fill=PALE, round=0.6, size=10)
    canvas.arrow((38.5, 12.2), (38.5, 15.7))
    canvas.dot((38.5, 17), "×")
    canvas.arrow((34.7, 22), (34.7, 17), (37.2, 17))
    canvas.arrow((39.8, 17), (45, 17))
    canvas.text((43.5, 14.8), "hₜ")
    canvas.box((4, 32), (34.4, 4.2), "W hₜ₋₁ + uₜ + b", fill=PALE, round=0.6, size=10)
    canvas.arrow((1, 34.1), (4, 34.1))
    canvas.text((2, 31), "hₜ₋₁", size=9)
    canvas.arrow((21.2, 40.6), (21.2, 36.2))
    canvas.text((21.2, 41.8), "uₜ", size=9.5)
    canvas.text((40, 26), "σ: f, i, o", size=9, align="left")
    canvas.text((40, 23.6), "τ: g", size=9, align="left")
    return canvas


def gru() -> Canvas:
    """A GRU cell."""
    canvas = Canvas(43)
    canvas.text((3, 2.8), "hₜ₋₁")
    canvas.text((43, 2.8), "hₜ")
    for start, end in ((1, 20.7), (23.3, 33.2), (35.8, 45)):
        canvas.arrow((start, 5), (end, 5))
    canvas.dot((22, 5), "×")
    canvas.dot((34.5, 5), "+")
    canvas.arrow((3, 5), (3, 34.1), (7, 34.1))
    canvas.arrow((3, 17), (9.4, 17))
    canvas.dot((10.7, 17), "×")
    _gate(canvas, 7, 23.6, "r\nreset", BLUE)
    canvas.arrow((10.7, 23.6), (10.7, 18.3))
    canvas.arrow((12, 17), (15.5, 17))
    canvas.box((15.5, 14.2), (12.6, 5.6), "n = τ(Wₙ ·\n+ uₙ + bₙ)", fill=PINK, round=0.6, size=9)
    canvas.arrow((28.1, 17), (33.2, 17))
    canvas.dot((34.5, 17), "×")
    canvas.arrow((34.5, 15.7), (34.5, 6.3))
    _gate(canvas, 30.8, 23.6, "z\nupdate", GREEN)
    canvas.arrow((34.5, 23.6), (34.5, 18.3))
    canvas.arrow((38.2, 26.2), (42.3, 26.2), (42.3, 17.6))
    canvas.box((39.6, 14.2), (5.4, 3.4), "1 − z", fill=PALE, round=0.6, size=9)
    canvas.arrow((42.3, 14.2), (42.3, 10), (22, 10), (22, 6.3))
    canvas.box((7, 32), (31.2, 4.2), "σ(W hₜ₋₁ + uₜ + b), rows r and z", fill=PALE, round=0.6, size=10)
    canvas.arrow((10.7, 32), (10.7, 28.8))
    canvas.arrow((34.5, 32), (34.5, 28.8))
    canvas.arrow((22.6, 40.6), (22.6, 36.2))
    canvas.text((22.6, 41.8), "uₜ", size=9.5)
    return canvas
