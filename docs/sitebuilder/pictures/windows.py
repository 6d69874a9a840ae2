"""Pictures of windows over images: layout in memory, convolution and its gradients, groups, pooling, regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from sitebuilder.pictures.computing import backend
from sitebuilder.pictures.drawing import BLUE, GREEN, GREY, ORANGE, PALE, PINK, VIOLET, WIDTH, Canvas, fills, shown

ORANGE_LINE, BLUE_LINE = "#d9822b", "#2f7de1"


def layout() -> Canvas:
    """Offsets of the elements of a tensor (C, D, H, W, N) of 2, 1, 2, 2 and 3."""
    be = backend()
    images = be.empty((2, 1, 2, 2, 3))
    canvas = Canvas(31.5)
    colors = {0: BLUE, 1: ORANGE}
    for c in range(2):
        left = 1 + 23 * c
        canvas.text((left + 10.5, 1.6), f"channel c = {c}")
        for h, w in np.ndindex(2, 2):
            at = left + 11 * w, 3.6 + 7.4 * h
            offsets = [sum(i * step for i, step in zip((c, 0, h, w, n), images.strides)) for n in range(3)]
            canvas.grid(at, [[colors[c]] * 3], [offsets], cell=3.3)
            canvas.text((at[0] + 5, at[1] + 4.9), f"h = {h}, w = {w}", size=9)
    canvas.text((1, 19.3), "samples n = 0, 1, 2 of each position are neighbours", align="left", size=9)
    canvas.text((1, 22.4), "offsets in memory:", align="left", size=9)
    cell = 44 / 12
    for at in range(images.size):
        canvas.box((1 + at % 12 * cell, 24 + at // 12 * 3.2), (cell, 3.2), str(at), fill=colors[at // 12], size=8.5)
    return canvas


def read_by(be: Any, layer: Any, at: tuple[int, int]) -> Any:
    """Weights by which the output ``at`` reads each input, for filters of ones: the gradient of its error."""
    error = np.zeros(layer.dimO)
    error[0, 0, at[0], at[1], 0] = 1
    taps, delta = be.ones(layer.dimF), be.empty(layer.dimI)
    be.bprop_conv(layer, taps, be.array(error), delta)
    return delta.get()[0, 0, :, :, 0]


def _padded(values: Any, pad: int) -> Any:
    return np.pad(np.asarray(values, object), pad, constant_values="pad")


def conv_window() -> Canvas:
    """Inputs that an output reads, for two filters of 3 x 3."""
    be = backend()
    canvas = Canvas(55.5)
    cases = [
        (be.conv_layer(None, 1, 1, 1, H=5, W=5, R=3, S=3, pad_h=1, pad_w=1, str_h=2, str_w=2), 1, (0, 1),
         "stride 2, padding 1", "it moves by 2"),
        (be.conv_layer(None, 1, 1, 1, H=7, W=7, R=3, S=3, dil_h=2, dil_w=2), 0, (1, 1),
         "dilation 2", "elements lie 2 apart"),
    ]  # fmt: skip
    top = 0.0
    for layer, pad, at, title, remark in cases:
        read = _padded(read_by(be, layer, at), pad)
        side, outside = len(read), {0.0: PALE, 1.0: ORANGE, "pad": None}
        canvas.text((1, top + 1.6), title, align="left", size=11)
        canvas.grid((1, top + 3.2), fills(read, outside), cell=2.9)
        extent = layer.dilation[1] * 2 + 1
        corner = [step * place for step, place in zip(layer.strides[1:], at)]
        canvas.frame((1 + 2.9 * corner[1], top + 3.2 + 2.9 * corner[0]), (2.9 * extent, 2.9 * extent), ORANGE_LINE)
        out = np.zeros((layer.P, layer.Q), object)
        out[at] = 1
        right = 31
        canvas.grid((right, top + 3.2), fills(out, {0: PALE, 1: ORANGE}), cell=2.9)
        canvas.arrow((2 + 2.9 * side, top + 7.6), (right - 1, top + 7.6))
        size = 3.2 + 2.9 * layer.P
        canvas.text((right, top + size + 1.7), f"output {layer.P} × {layer.Q}", align="left", size=9)
        canvas.text((right, top + size + 4), remark, align="left", size=8.5)
        inner = f"input {layer.DHW[1]} × {layer.DHW[2]}" + (", dashed: zeros" if pad else "")
        canvas.text((1, top + 4.8 + 2.9 * side), inner, align="left", size=9)
        top += 28
    return canvas


def conv_backward() -> Canvas:
    """Outputs that read an input element, and the taps by which they do."""
    be = backend()
    layer = be.conv_layer(None, 1, 1, 1, H=5, W=5, R=3, S=3, pad_h=1, pad_w=1)
    at = (2, 1)
    image = np.zeros(layer.dimI)
    image[0, 0, at[0], at[1], 0] = 1
    taps, out = be.array(np.arange(1.0, 10).reshape(layer.dimF)), be.empty(layer.dimO)
    be.fprop_conv(layer, be.array(image), taps, out)
    used = out.get()[0, 0, :, :, 0].astype(int)
    canvas, colors = Canvas(31), {0: PALE} | {tap: BLUE for tap in range(1, 10)}
    words = [["" if not tap else f"w{tap}" for tap in row] for row in used]
    canvas.text((10.3, 1.6), "errors of the outputs, E")
    canvas.grid((1, 3.2), fills(used, colors), words, cell=3.7, size=8.5)
    middle = np.zeros((5, 5), int)
    middle[at] = 1
    canvas.text((35.8, 1.6), "gradient of the inputs")
    canvas.grid((26.5, 3.2), fills(middle, {0: PALE, 1: ORANGE}), cell=3.7)
    canvas.arrow((20.2, 12.4), (25.8, 12.4))
    canvas.text((WIDTH / 2, 24), "∇I = w1 E + w2 E + … + w9 E", size=10)
    canvas.text((WIDTH / 2, 26.4), "each error times the weight by which", size=9)
    canvas.text((WIDTH / 2, 28.4), "its output has read the input", size=9)
    return canvas


def conv_groups() -> Canvas:
    """Channels that each map reads, for one group, two groups, and as many as channels."""
    be = backend()
    canvas = Canvas(25)
    titles = {1: "groups=1", 2: "groups=2", 4: "groups=4"}
    group_colors = [BLUE, ORANGE, GREEN, PINK]
    for place, (groups, title) in enumerate(titles.items()):
        layer = be.conv_layer(None, 1, 4, 4, groups=groups)
        left = 1 + 15.6 * place
        canvas.text((left + 6.3, 1.6), title, size=10)
        for channel in range(4):
            image = np.zeros(layer.dimI)
            image[channel] = 1
            out = be.empty(layer.dimO)
            be.fprop_conv(layer, be.array(image), be.ones(layer.dimF), out)
            color = group_colors[channel * groups // 4]
            for k in np.flatnonzero(out.get()):
                canvas.arrow((left + 3.2, 5.3 + 4.4 * channel), (left + 9.2, 5.3 + 4.4 * k), width=0.9)
            for side in (0, 9.4):
                canvas.box((left + side, 3.8 + 4.4 * channel), (3, 3), str(channel), fill=color)
        canvas.text((left + 1.5, 22.6), "C", size=9)
        canvas.text((left + 10.9, 22.6), "K", size=9)
    return canvas


POOLED = np.array([[3, 1, 4, 1, 5], [7, 2, 8, 5, 3], [2, 4, 6, 0, 1], [3, 5, 3, 2, 4], [6, 2, 1, 9, 3]], float)


def pooling() -> Canvas:
    """Maxima, means and gradients of four windows that overlap."""
    be = backend()
    canvas, cell = Canvas(47), 3.4
    canvas.text((1 + 2.5 * cell, 1.6), "input")
    results = {}
    for op in ("max", "avg"):
        layer = be.pool_layer(None, op, 1, 1, H=5, W=5, R=3, S=3, str_h=2, str_w=2)
        out, delta = be.empty(layer.dimO2), be.empty(layer.dimI2)
        argmax = be.empty(layer.dimO2, dtype=np.uint8) if op == "max" else None
        be.fprop_pool(layer, be.array(POOLED), out, argmax)
        be.bprop_pool(layer, be.ones(layer.dimO2), delta, argmax)
        results[op] = out.get().reshape(2, 2), delta.get().reshape(5, 5)
    colors = np.full((5, 5), PALE, object)
    colors[results["max"][1] > 0] = ORANGE
    canvas.grid((1, 3.2), colors, shown(POOLED), cell=cell)
    canvas.frame((1, 3.2), (3 * cell, 3 * cell), ORANGE_LINE)
    canvas.frame((1 + 2 * cell, 3.2), (3 * cell, 3 * cell), BLUE_LINE)
    for op, left, color in (("max", 24, ORANGE), ("avg", 35, BLUE)):
        canvas.text((left + 4.3, 1.6), op)
        canvas.grid((left, 3.2), [[color] * 2] * 2, shown(results[op][0], int(op == "avg")), cell=4.3)
    canvas.text((24, 14.2), "windows of 3 × 3, stride 2:", align="left", size=9)
    canvas.text((24, 16.4), "neighbours share inputs", align="left", size=9)
    canvas.text((1, 24.3), "gradients of the inputs for errors of 1", align="left")
    for op, left, color in (("max", 1, ORANGE), ("avg", 24, BLUE)):
        slopes = results[op][1]
        colors = np.where(slopes > 0, color, PALE)
        words = shown(slopes) if op == "max" else [[f"{round(9 * value)}/9" for value in row] for row in slopes]
        canvas.text((left + 2.5 * cell, 26.8), op, size=9)
        canvas.grid((left, 28.2), colors, words, cell=cell, size=8.5)
    return canvas


def regions() -> Canvas:
    """Bins of a region of interest on a feature map, and their largest elements."""
    be = backend()
    high, wide = 7, 9
    values = (np.arange(high * wide) * 37 % 64).astype(float).reshape(high, wide)
    region = [0.0, 1.0, 1.0, 7.0, 5.0]
    out, argmax = be.empty((4, 1)), be.empty((4, 1), dtype="int32")
    where = np.full((high, wide), PALE, object)
    bins = [BLUE, GREEN, PINK, ORANGE]
    feature, rois = be.array(values.reshape(-1, 1)), be.array([region])
    be.roipooling_fprop(feature, rois, out, argmax, 1, 1, high, wide, 2, 2, 1.0)
    inside = np.zeros((high, wide), int)
    for number in range(4):  # a bin has the elements that become its maximum if they are the largest
        for h, w in np.ndindex(high, wide):
            trial, found = np.zeros((high * wide, 1)), be.empty((4, 1))
            trial[h * wide + w] = 1
            be.roipooling_fprop(be.array(trial), rois, found, argmax, 1, 1, high, wide, 2, 2, 1.0)
            if found.get()[number, 0] == 1:
                inside[h, w] += 1
                where[h, w] = VIOLET if inside[h, w] > 1 else bins[number]
    canvas = Canvas(29)
    canvas.text((1, 1.6), "feature map and region", align="left")
    canvas.grid((1, 3.2), where, shown(values), cell=3.1, size=8)
    canvas.frame((1 + 3.1 * region[1], 3.2 + 3.1 * region[2]), (7 * 3.1, 5 * 3.1), "#4b7bd1")
    canvas.text((38.5, 1.6), "maximum of each bin", size=9)
    canvas.grid((34, 4.5), [bins[:2], bins[2:]], shown(out.get().reshape(2, 2)), cell=4.5)
    canvas.arrow((29.7, 9), (33.3, 9))
    canvas.text((1, 26.8), "violet: in two or four bins", align="left", size=9, color=GREY)
    return canvas
