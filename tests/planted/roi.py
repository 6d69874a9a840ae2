"""Faults in regions of interest: bins, the NumPy definitions, the C templates, checks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import PRIMITIVES, C, Mutant

FAMILY, DEFINITION, FORWARD, BACKWARD, NMS = PRIMITIVES + "roi/family.py", PRIMITIVES + "roi/definition.py", C + "roi_fprop.c.j2", C + "roi_bprop.c.j2", C + "nms.c.j2"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("roi", name, file, old, new)


MUTANTS = (
    fault("corners rounded halves up", DEFINITION, "np.clip(np.rint(scaled),", "np.clip(np.floor(scaled + 0.5),"),
    fault("corners far away are no numbers", DEFINITION, "np.clip(np.rint(scaled), -FARTHEST, FARTHEST)", "np.rint(scaled)"),
    fault("regions one element short", DEFINITION, "np.maximum(high - low + 1, 1)", "np.maximum(high - low, 1)"),
    fault("bins end early", DEFINITION, "np.ceil(np.arange(1, count + 1) * step)", "np.floor(np.arange(1, count + 1) * step)"),
    fault("last row and column cut off", DEFINITION, "0, length).astype(np.int64)", "0, length - 1).astype(np.int64)"),
    fault("definition: position without the bin's column", FAMILY, "request.W + left + column", "request.W + column"),
    fault("definition: errors of bins not added up", FAMILY, "np.add.at(delta, (channel, where[found], images[region]), error[found])", "delta[channel, where[found], images[region]] = error[found]"),
    fault("definition: nms threshold >=", FAMILY, "- shared) > request.threshold", "- shared) >= request.threshold"),
    fault("definition: nms union counts what is shared twice", FAMILY, "(areas[i] + areas[rest] - shared)", "(areas[i] + areas[rest])"),
    fault("nms: normalized ignored", DEFINITION, "0.0 if self.normalized else 1.0", "1.0"),
    fault("nms: boxes of score 0 kept", DEFINITION, "rows = np.flatnonzero(scores)", "rows = np.arange(scores.size)"),
    fault("nms: boxes not sorted", DEFINITION, "if (np.diff(scores[rows]) > 0).any():", "if False:"),
    fault("position past the map accepted", FAMILY, "where.max() >= request.H * request.W", "where.max() > request.H * request.W"),
    fault("alias check removed", FAMILY, '        check_apart(name, {"O": O, "argmax": argmax}, {"I": I, "rois": rois})\n', ""),
    fault("C forward: the last of equal maxima", FORWARD, "!(v[l] <= largest[l])", "!(v[l] < largest[l])"),
    fault("C forward: empty bins have a position", FORWARD, "where[r][l] = -1;", "where[r][l] = 0;"),
    fault("C forward: all regions in the first image", FORWARD, "turned + a->image[region] * area * LANES", "turned + 0 * a->image[region] * area * LANES"),
    fault("C forward: bins of a row mixed up", FORWARD, "(region * a->wide + bin % a->wide)", "(region * a->wide + a->wide - 1 - bin % a->wide)"),
    fault("C backward: errors of bins not added up", BACKWARD, "+= a->error[from + region]", "= a->error[from + region]"),
    fault("C backward: old gradients stay", BACKWARD, "        memset(to, 0, (size_t)(a->area * a->images) * sizeof(real));\n", ""),
    fault("C nms: threshold >=", NMS, "> threshold;", ">= threshold;"),
    fault("C nms: width of boxes that do not meet is negative", NMS, "            width = width > 0 ? width : 0;\n", ""),
)
