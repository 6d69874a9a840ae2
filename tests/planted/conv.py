"""Faults in convolution: sizes, checks, the NumPy definition, and the ends of the C templates."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from planted.table import CPU, FAMILIES, GEOMETRY, C, Mutant

FAMILY, SIZES, KERNELS, PLAN = FAMILIES + "conv.py", GEOMETRY + "conv.py", CPU + "conv.py", CPU + "conv_plan.py"
DIRECT, UPDATE, STRIPS = C + "conv_direct.c.j2", C + "conv_update.c.j2", C + "conv_strips.h"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("conv", name, file, old, new)


MUTANTS = (
    fault("definition: alpha ignored", FAMILY, "        result *= self.alpha\n", ""),
    fault("definition: bias dropped", FAMILY, "result += host(self.bias,", "host(self.bias,"),
    fault("definition: relu slope ignored", FAMILY, "self.slope * result if self.slope else 0", "0"),
    fault("definition: brelu uses output instead of X", FAMILY, "(x > 0) + self.slope * (x < 0)", "(result > 0) + self.slope * (result < 0)"),
    fault("definition: beta ignored", FAMILY, "result + self.beta * x", "result + x"),
    fault("definition: bsum before relu and beta", FAMILY, "stored = host(target, matrix.shape).sum(", "stored = matrix.sum("),
    fault("definition: group index wrong", FAMILY, "return slice(group * channels, (group + 1) * channels)", "return slice((g.groups - 1 - group) * channels, (g.groups - group) * channels)"),
    fault("definition: stride phase wrong", FAMILY, "first = max(0, -(offset // stride))", "first = max(0, -offset // stride)"),
    fault("definition: dilation ignored", FAMILY, "offset = tap * dilation - pad", "offset = tap - pad"),
    fault("definition: last position of a tap dropped", FAMILY, "(length - 1 - offset) // stride + 1)", "(length - 1 - offset) // stride)"),
    fault("definition: alpha ignored in update_conv", FAMILY, "if beta != 0 else alpha * result", "if beta != 0 else result"),
    fault("definition: beta ignored in update_conv", FAMILY, "alpha * result + beta * target", "alpha * result + target"),
    fault("grad_bias scaled by alpha", FAMILY, "sums.sum(errors.reshape((g.K, g.sizeO // g.K)), axis=1)", "sums.sum(errors.reshape((g.K, g.sizeO // g.K)), axis=1) * float(alpha)"),
    fault("number of images at call time ignored", FAMILY, "return layer.at_batch(images)", "return layer"),
    fault("alias check of X removed", FAMILY, 'read if same else {**read, "X": epilogue.X}', "read"),
    fault("alias check of bsum removed", FAMILY, '        check_apart(name, {"bsum": epilogue.bsum}, {**read, "X": epilogue.X, target_name: target})\n', ""),
    fault("alias check of update_conv removed", FAMILY, '        check_apart(name, {"grad_F": target, "grad_bias": grad_bias}, {"I": I, "E": E})\n', ""),
    fault("dilation ignored in sizes", GEOMETRY + "sizes.py", "extent = window_extent(window, dilation)", "extent = window"),
    fault("dilation ignored in sizes of deconvolutions", SIZES, "2 * p + window_extent(s, d)", "2 * p + s"),
    fault("C: alpha ignored", DIRECT, "out[i] = alpha * acc[i] + bias;", "out[i] = acc[i] + bias;"),
    fault("C: bias of another group", DIRECT, "g->bias[map]", "g->bias[k]"),
    fault("C: relu slope ignored", DIRECT, "(slope == 0 ? 0 : slope * (v))", "0"),
    fault("C: brelu uses output instead of X", DIRECT, "v *= x[i] > 0 ? 1 : x[i] < 0 ? slope : 0;", "v *= v > 0 ? 1 : v < 0 ? slope : 0;"),
    fault("C: beta ignored on the 1x1 path", DIRECT, "add ? v + beta * x[i] : v", "add && g->meta[TAPS_HW] > 1 ? v + beta * x[i] : v"),
    fault("C: bsum before relu", DIRECT, "sum += out[i];", "sum += alpha * acc[i] + bias;"),
    fault("C: bsum drops the tail", DIRECT, "        for (int64_t i = 0; i < n; i++)\n            sum += out[i];", "        for (int64_t i = 0; i < n - n % 8; i++)\n            sum += out[i];"),
    fault("C: parts of maps off by one", DIRECT, "a.tile_hi = tiles * (part + 1) / m[MAP_PARTS];", "a.tile_hi = tiles * (part + 1) / m[MAP_PARTS] - (part + 1 < m[MAP_PARTS]);"),
    fault("C: taps of the last input row dropped", STRIPS, "if (h < 0 || h >= m[IN_H])\n", "if (h < 0 || h >= m[IN_H] - 1)\n"),
    fault("C: alpha ignored in update_conv", UPDATE, "to[k] = (real)alpha * sum[k] +", "to[k] = sum[k] +"),
    fault("C: beta ignored in update_conv", UPDATE, "(beta != 0 ? (real)beta * to[k] : 0)", "(beta != 0 ? to[k] : 0)"),
    fault("C: parts of a gradient not added up", UPDATE, "sum += *(const some *)(at + part * size);", "sum = *(const some *)(at + part * size);"),
    fault("C: last lanes of an error dropped", UPDATE, "if (i < n) { /*", "if (0) { /*"),
    fault("bsum of float16 before it is rounded", KERNELS, "rounded = epilogue.bsum is not None and target.dtype != read.dtype", "rounded = False"),
    fault("brelu without beta does not read the old output", KERNELS, "keep=epilogue.reads_old", "keep=epilogue.beta != 0 and epilogue.reads_old"),
    fault("kernels: dilation ignored", PLAN, "(s, s * dilation - padding)", "(s, s - padding)"),
    fault("kernels: window shifted", PLAN, "(s, s * dilation - padding)", "(s, s * dilation - padding + 1)"),
    fault("kernels: stride phase wrong in the data gradient", PLAN, "(s, start + padding - s * dilation)", "(s, padding - start - s * dilation)"),
    fault("kernels: last phase of the data gradient dropped", PLAN, "for start in range(min(stride, inputs)):", "for start in range(max(1, min(stride, inputs) - 1)):"),
    fault("kernels: filters of the first group for all", PLAN, '"FILTER_GROUP": g.K // g.groups}', '"FILTER_GROUP": 0}'),
)
