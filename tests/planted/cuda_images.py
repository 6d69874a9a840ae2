"""Faults in CUDA templates and the host code of pooling, LRN, region pooling, suppression and detection."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, Mutant

T, GPU = KERNELS + "templates/cuda/", "neonlike/backends/gpu/"
ELEMENTS, FORWARD, BACKWARD = T + "elements.j2", T + "pool/forward.cu.j2", T + "pool/backward.cu.j2"
LRN, LRN_FORWARD, LRN_BACKWARD = T + "lrn/common.j2", T + "lrn/forward.cu.j2", T + "lrn/backward.cu.j2"
ROI_CHECK, ROI_FORWARD, ROI_BACKWARD = T + "roi/check.cu.j2", T + "roi/forward.cu.j2", T + "roi/backward.cu.j2"
BOXES, OVERLAPS, SWEEP = T + "nms/boxes.cu.j2", T + "nms/overlaps.cu.j2", T + "nms/sweep.cu.j2"
CANDIDATES, RANKS, ROWS = T + "nms/candidates.cu.j2", T + "nms/ranks.cu.j2", T + "nms/rows.cu.j2"


def pool(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault that the tests of pooling on the GPU must catch."""
    return Mutant("pool_cuda", name, file, old, new)


def lrn(name: str, file: str, old: str, new: str) -> Mutant:
    """The same of local response normalisation."""
    return Mutant("lrn_cuda", name, file, old, new)


def roi(name: str, file: str, old: str, new: str) -> Mutant:
    """The same of region pooling."""
    return Mutant("roi_cuda", name, file, old, new)


def nms(name: str, file: str, old: str, new: str) -> Mutant:
    """The same of suppression."""
    return Mutant("nms_cuda", name, file, old, new)


def detection(name: str, file: str, old: str, new: str) -> Mutant:
    """The same of SSD's detection output."""
    return Mutant("detection_cuda", name, file, old, new)


MUTANTS = (
    pool("forward: of equal values the last is the maximum", FORWARD, "!(value <= result[l])", "!(value < result[l])"),
    pool("forward: means over the padding too", FORWARD, "(min(h0 + g.R, g.H) - max(h0, 0))", "g.R"),
    pool("forward: rows of windows over each other", FORWARD, "* g.H + h0 + r) * g.W + w0;", "* g.H + h0) * g.W + w0;"),
    pool("forward: large windows end a column early", FORWARD, "{{ i }} < min(g.{{ size }}, g.{{ length }} - {{ start }})", "{{ i }} < min(g.{{ size }}, g.{{ length }} - {{ start }} - 1)"),
    pool("forward: root left out", FORWARD, "result[l] = sqrt(result[l]);", "result[l] = result[l] * (real)1;"),
    pool("beta ignored", ELEMENTS, "alpha * result[l] + beta * LOAD(old.v[l])", "alpha * result[l] + LOAD(old.v[l])"),
    pool("backward: the last window left out", BACKWARD, "g.{{ end }} - 1);", "g.{{ end }} - 2);"),
    pool("backward: positions count from the padding's end", BACKWARD, "+ h - p * g.str_h) * g.S;", "+ h - g.pad_h - p * g.str_h) * g.S;"),
    pool("backward: means over the padding too", BACKWARD, '* {{ count("h0", "R", "H") }};', "* g.R;"),
    pool("backward: gradient of l2 without the input", BACKWARD, "read ? result[l] * LOAD(x.v[l]) : (real)0;", "result[l];"),
    pool("backward: gradient of l2 in no window", BACKWARD, "read ? result[l] * LOAD(x.v[l]) : (real)0;", "result[l] * LOAD(x.v[l]);"),
    pool("vectors over the end of the images", GPU + "primitives/elements.py", "while innermost % length:", "while innermost % length > 2:"),
    pool("windows taken as whole", GPU + "primitives/pool.py", '"clipped"] = bool((layer.counts != layer.window).any())', '"clipped"] = False'),
    lrn("forward: window starts a channel late", LRN_FORWARD, "mine.first - HALF + j - 1,", "mine.first - HALF + j,"),
    lrn("forward: a row is read twice", LRN_FORWARD, "next = row_of(input, c + HALF + 1,", "next = row_of(input, c + HALF,"),
    lrn("forward: denominator without 1", LRN_FORWARD, "(real)1 + scale * total[l]", "scale * total[l]"),
    lrn("forward: long windows lack the last channel", LRN_FORWARD, "row <= min(c + HALF, channels - 1)", "row < min(c + HALF, channels - 1)"),
    lrn("backward: shares past the last channel count", LRN_BACKWARD, "            shares[WINDOW - 1][l] = 0;\n", "            shares[WINDOW - 1][l] = WINDOW > 1 ? shares[WINDOW / 2][l] : (real)0;\n"),
    lrn("backward: direct part of another channel", LRN_BACKWARD, "result[l] = direct[0][l] -", "result[l] = direct[HALF][l] -"),
    lrn("backward: long windows without the input", LRN_BACKWARD, "result[l] -= slope * LOAD(x.v[l]) * total[l];", "result[l] -= slope * total[l];"),
    lrn("power 3/4 is 1", LRN, "(root * sqrt(root))", "(root * root)"),
    lrn("the last span of channels left out", GPU + "primitives/lrn.py", "-(-channels // span), 1", "max(channels // span, 1), 1"),
    lrn("backward is passed the forward scale", GPU + "primitives/lrn.py", "numbers = request.slope, *request.rest", "numbers = request.scale, *request.rest"),
    roi("forward: bins end a row early", ROI_FORWARD, "ceil((i + 1) * step)", "floor((i + 1) * step)"),
    roi("forward: regions without their last element", ROI_FORWARD, "- low + 1, 1.0)", "- low, 1.0)"),
    roi("forward: all regions in the first image", ROI_FORWARD, "+ (nl_index)BOX(roi[0]);", "+ 0;"),
    roi("forward: empty bins have a position", ROI_FORWARD, "first = empty ? -1 :", "first = empty ? 0 :"),
    roi("forward: columns of bins from rows", ROI_FORWARD, "bin_of(BOX(roi[1]), BOX(roi[3]),", "bin_of(BOX(roi[2]), BOX(roi[4]),"),
    roi("backward: what was added before is lost", ROI_BACKWARD, "real sum = adds ? total[to[k]] : (real)0;", "real sum = 0;"),
    roi("backward: of errors in one place only the first is added", ROI_BACKWARD, "left = to[k] >= 0 ? alike : 0;", "left = to[k] >= 0 ? alike & -alike : 0;"),
    roi("backward: rounded sums are those of the first channel", ROI_BACKWARD, "delta[channel * size + i] =", "delta[i] ="),
    roi("check: one image too many", ROI_CHECK, "image < (double)images", "image <= (double)images"),
    roi("check: one position too many", ROI_CHECK, "where[i] >= area", "where[i] > area"),
    roi("check: the answer of the first block alone", GPU + "primitives/roi.py", "answers[:, 0].min()", "answers[:1, 0].min()"),
    nms("boxes of score 0 remain", BOXES, "score == 0)", "score < 0)"),
    nms("boxes: areas without the offset", BOXES, "x2 - x1 + offset,", "x2 - x1,"),
    nms("a box overlaps itself", OVERLAPS, "first + j > row", "first + j >= row"),
    nms("widths without the offset", OVERLAPS, "width = right - left + offset,", "width = right - left,"),
    nms("bits of a later band at the first rows", GPU + "primitives/nms.py", "numbers = count, words, top, rows,", "numbers = count, words, 0, rows,"),
    nms("the next group is not dropped", SWEEP, "word = group + 1 + me;", "word = group + 2 + me;"),
    nms("what is kept overlaps as the first group does", SWEEP, "overlaps[(first - top + __ffs", "overlaps[(__ffs"),
    nms("dropped boxes drop others", SWEEP, "if (left >> i & 1)", "if (i >= 0)"),
    nms("the nan that comes first in the order is named", SWEEP, "(unsigned long long)order[i])", "(unsigned long long)i)"),
    detection("scores of the background", CANDIDATES, "* images + images + list]", "* images + list]"),
    detection("scores of 0 take part", CANDIDATES, "out = score == 0 || ", "out = "),
    detection("scores that are the threshold take part", CANDIDATES, "!(score > (real)least)", "!(score >= (real)least)"),
    detection("offsets of the first image", CANDIDATES, "[(b * 4 + k) * images + image]", "[(b * 4 + k) * images]"),
    detection("sizes from the ratio of widths", CANDIDATES, "[(b * 4 + 2 + k) * images", "[(b * 4 + 2) * images"),
    detection("bits of a list over those of the one before", CANDIDATES, "gone[list * blocks * (THREADS / 32) + i / 32]", "gone[i / 32]"),
    detection("lists share their bits", OVERLAPS, "overlaps += blockIdx.z * rows * words;", ""),
    detection("lists share what is gone", SWEEP, "gone += blockIdx.x * room;", ""),
    detection("later lists start from the first one's boxes", GPU + "primitives/nms.py", "boxes.sorted + 40 * count * first", "boxes.sorted + 0 * first"),
    detection("keys of images over each other", RANKS, "(image * (lists / images) + kind)", "(kind)"),
    detection("what is not kept has a key", RANKS, "here = j < kept[0];", "here = j <= kept[0];"),
    detection("rows are those of the list's first boxes", ROWS, "2 + place - kind * count] : 0;", "2] : 0;"),
    detection("classes count from the background", ROWS, "(kind + 1);", "(kind);"),
)
