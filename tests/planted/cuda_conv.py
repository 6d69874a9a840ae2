"""Faults in convolution on the GPU: how it is cut, its steps, and the kernels."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CUDA, GPU, PRIMITIVES, Mutant

PLAN, PROGRAM, UPDATE, HOOKS, KERNELS = (GPU + f"primitives/conv/{name}.py" for name in ("plan", "program", "update", "hooks", "kernels"))
COLUMNS, FILTERS, FINISH, SUMS = (CUDA + f"conv/{name}.cu.j2" for name in ("columns", "filters", "finish", "sums"))
FOLD, DIRECT, DIRECT_UPDATE, ENDS = CUDA + "conv/fold.cu.j2", CUDA + "conv/direct.cu.j2", CUDA + "conv/direct_update.cu.j2", CUDA + "conv/ends.j2"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("conv_cuda", name, file, old, new)


IMPLICIT, FRAGMENTS, UPDATE_KERNEL, TURNED = (CUDA + f"conv/{name}" for name in ("implicit.cu.j2", "implicit_products.j2", "implicit_update.cu.j2", "turned.cu.j2"))


def implicit(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of the family of the implicit kernel, which has tests of its own."""
    return Mutant("implicit_cuda", name, file, old, new)


WINOGRAD, WINOGRAD_KERNELS, FAMILY = GPU + "primitives/conv/winograd.py", GPU + "primitives/conv/winograd_kernels.py", PRIMITIVES + "conv/family.py"
POINTS, POINTS_OF_SOURCE, POINTS_OF_FILTERS, RESULTS, GRADIENT = (
    CUDA + f"conv/winograd_{name}" for name in ("points.j2", "source.cu.j2", "filters.cu.j2", "results.cu.j2", "gradient.cu.j2")
)


def tiles(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of the family of Winograd's method, which has tests of its own."""
    return Mutant("winograd_cuda", name, file, old, new)


MUTANTS = (
    fault("phases: taps step by the stride alone", PLAN, "skip = stride // common", "skip = stride"),
    fault("phases: dilation ignored in the slope", PLAN, "-(dilation // common))", "-1)"),
    fault("bands: the last one as long as the others", PLAN, "Band(first, min(size, columns - first))", "Band(first, size)"),
    fault("a window that is the whole image, with padding, read in place", PLAN, "    if any(g.padding):\n        return False\n", ""),
    fault("plain: bsum left out", PROGRAM, " or given.bias is not None or given.bsum is not None", " or given.bias is not None"),
    fault("plain: beta on the old values though X is given", PROGRAM, "(e.beta == 0 or given.x is None)", "True"),
    fault("old values overwritten by the product before they are read", PROGRAM, "(self.scattered or old or self.given.dtype != self.real)", "(self.scattered or self.given.dtype != self.real)"),
    fault("filters of a later phase not packed", PROGRAM, "phase is not packed and self._packs(phase)", "packed is None and self._packs(phase)"),
    fault("partial sums of bands in one place", PROGRAM, "            before += tiles\n", ""),
    fault("columns of groups next to each other", PROGRAM, "strides = (rows * step * size, step * size, size)", "strides = (step * size, step * size, size)"),
    fault("update: what is left of a band dropped", UPDATE, "            if left.size:\n", "            if left.size and not each:\n"),
    fault("update: later bands overwrite the earlier ones", UPDATE, "1.0 if turn else first[1]", "first[1]"),
    fault("update: what is left of a band overwrites the first part", UPDATE, "left, 1.0 if each else beta)", "left, beta)"),
    fault("update: errors of the first group for all", UPDATE, "(piece.group * next_group[1] + band.first", "(band.first"),
    fault("a program of aligned tensors for all", HOOKS, "given._replace(aligned=aligned)", "given._replace(aligned=True)"),
    fault("X that is the target taken for another tensor", HOOKS, "        if X is not None and (not reads or X.alias_of(target) == 1):\n            X = None\n", "        if X is not None and not reads:\n            X = None\n"),
    fault("CUDA: columns: padding above not zero", COLUMNS, "z < depth && y >= 0 && y < height", "z < depth && y < height"),
    fault("CUDA: columns: stride of rows for columns", COLUMNS, "(nl_index)m.w.outputs * (nl_index)m.w.stride", "(nl_index)m.w.outputs * (nl_index)m.h.stride"),
    fault("CUDA: columns: band begins at 0", COLUMNS, "place = (nl_index)m.first + column,", "place = column,"),
    fault("CUDA: filters: first tap ignored", FILTERS, "(nl_index)m.s.step + (nl_index)m.s.first", "(nl_index)m.s.step"),
    fault("CUDA: finish: relu before brelu", ENDS, "    if (ends.bits & BRELU)\n        a *=", "    if (ends.bits & RELU)\n        a = a < 0 ? (slope != 0 ? slope * a : (nl_real)0) : a;\n    if (ends.bits & BRELU)\n        a *="),
    fault("CUDA: finish: beta before relu", ENDS, "    a = (nl_real)ends.alpha * a + bias;\n", "    a = (nl_real)ends.alpha * a + bias + (ends.bits & BETA ? (nl_real)ends.beta * x : 0);\n"),
    fault("CUDA: finish: bsum of what was not rounded", FINISH, "total += (nl_real){{ load_out }};", "total += a * (nl_real)1.01;"),
    fault("CUDA: finish: sums of the first warp only", ENDS, "all += warps[warp];", "all += warp ? 0 : warps[warp];"),
    fault("CUDA: finish: scattered rows one apart", FINISH, "(nl_index)m.h.every + (nl_index)m.h.first", "(nl_index)m.h.every"),
    fault("CUDA: fold: the first part twice", FOLD, "g_parts[part * size + i]", "g_parts[part / 2 * size + i]"),
    fault("CUDA: fold: old values counted with beta 0", FOLD, "    if (beta != 0)\n", ""),
    fault("CUDA: direct: backward takes positions between strides", DIRECT, " && there % (nl_index)axis.stride == 0", ""),
    fault("CUDA: direct: channels of the first group", DIRECT, "g_source + group * (nl_index)m.channels * plane + image", "g_source + image"),
    fault("CUDA: direct update: the first map's group for all", DIRECT_UPDATE, "map / (nl_index)m.maps * (nl_index)m.channels + channel", "channel"),
    fault("CUDA: direct update: sums of one warp", DIRECT_UPDATE, "total += warps[warp][me];", "total += warp ? 0 : warps[warp][me];"),
    implicit("a stage waited for by one group too few", IMPLICIT, "nl_copy_wait(STAGES - 2);", "nl_copy_wait(STAGES - 1);"),
    implicit("rows of the step before", IMPLICIT, "nl_row_of(first + (step + STAGES) * DEPTH + me, m)", "nl_row_of(first + (step + STAGES - 1) * DEPTH + me, m)"),
    implicit("rows behind the last product read", IMPLICIT, "k < (int32_t)m.depth ? h : NOWHERE", "h"),
    implicit("positions in front of an image not seen in depth", KERNELS, "phase[0].outputs, abs(phase[0].offset) + 1)", "phase[0].outputs)"),
    implicit("channels of the first group", IMPLICIT, "plane = group * (nl_index)m.channels * (nl_index)m.d.read + d;", "plane = d;"),
    implicit("filters of the first group", IMPLICIT, "g_filters + group * (nl_index)m.filter_group + first_map", "g_filters + first_map"),
    implicit("stride of rows for columns", IMPLICIT, "(nl_index)m.w.outputs * (nl_index)m.w.stride", "(nl_index)m.w.outputs * (nl_index)m.h.stride"),
    implicit("bias of the map in its group", IMPLICIT, "m.maps + first_map + row;\n        const nl_real bias", "m.maps + first_map + row - (g_bias ? group : 0);\n        const nl_real bias"),
    implicit("sums of all phases in one place", IMPLICIT, "(nl_index)m.first_tile + tile] = sum", "tile] = sum"),
    implicit("scattered rows one apart", IMPLICIT, "(nl_index)m.h.every + (nl_index)m.h.first", "(nl_index)m.h.every"),
    implicit("quarters of a fragment exchanged", FRAGMENTS, "&LEFT(lane / 8 % 2 * 8, lane / 16 * 8 + lane % 8)", "&LEFT(lane / 16 * 8, lane % 16)"),
    implicit("fragments of columns exchanged", FRAGMENTS, "&RIGHT(lane / 16 * 8, lane % 16)", "&RIGHT(lane / 8 % 2 * 8, lane / 16 * 8 + lane % 8)"),
    implicit("sums of a fragment in the wrong rows", FRAGMENTS, "(16 * i + part / 2 * 8) * RESULT_ROW + 8 * j + part % 2", "(16 * i + part % 2 * 8) * RESULT_ROW + 8 * j + part / 2"),
    implicit("filters not rounded to tf32", FRAGMENTS, "left[i][part] = nl_tf32(LEFT(", "left[i][part] = __float_as_uint(LEFT("),
    implicit("float32: the second run of columns beside the first", FRAGMENTS, "results[(i / 4 * 32 + i % 4) * RESULT_ROW + j / 4 * 16 + j % 4]", "results[(i / 4 * 32 + i % 4) * RESULT_ROW + j]"),
    implicit("split: every part begins with the first product", IMPLICIT, '"(int)blockIdx.y * (int)m.part_steps * DEPTH" if split else "0"', '"0"'),
    implicit("split: filters from the first product on", IMPLICIT, "(nl_index)first + (nl_index)step * DEPTH + i", "(nl_index)step * DEPTH + i"),
    implicit("split: rows of the first part", IMPLICIT, "nl_row_of(first + i, m)", "nl_row_of(i, m)"),
    implicit("split: a part goes on to the end", IMPLICIT, '"min(left, (int)m.part_steps)" if split', '"left" if split'),
    implicit("split: all parts in one place", IMPLICIT, "g_out + (nl_index)blockIdx.y * (nl_index)m.part_size + map * columns", "g_out + map * columns"),
    implicit("split: maps of the first group", IMPLICIT, "group * (nl_index)m.maps + first_map + row;\n        float", "first_map + row;\n        float"),
    implicit("split: the last part is not added", CUDA + "conv/finish.cu.j2", "part < (nl_index)m.parts;", "part + 1 < (nl_index)m.parts;"),
    implicit("split: parts of the whole depth", PROGRAM, "made * self.maps * count", "self.maps * count"),
    implicit("split: where tiles are many", PLAN, "return 1 if tiles >= TILES // 2 else", "return"),
    implicit("update: what is read behind the last column", UPDATE_KERNEL, "    if (column >= end)\n        place.h = NOWHERE;\n", ""),
    implicit("update: parts begin with the first column", UPDATE_KERNEL, "begin = part * (nl_index)m.part;", "begin = 0;"),
    implicit("update: maps of the first group", UPDATE_KERNEL, "(group * (nl_index)m.maps + map) * columns", "map * columns"),
    implicit("update: windows of the step before", UPDATE_KERNEL, "(nl_index)(step + STAGES) * DEPTH", "(nl_index)(step + STAGES - 1) * DEPTH"),
    implicit("update: a fragment transposed as it is loaded", FRAGMENTS, "nl_ldmatrix4{{ \"\" if along else \"_trans\" }}(right", "nl_ldmatrix4_trans(right"),
    implicit("turned filters: not turned", TURNED, "tile[x][y];", "tile[y][x];"),
    implicit("turned filters: first tap ignored", TURNED, "(nl_index)m.s.step + (nl_index)m.s.first", "(nl_index)m.s.step"),
    implicit("copies of 16 bytes from anywhere", KERNELS, "vector_length(dtype, innermost, aligned)", "vector_length(dtype, innermost, True)"),
    implicit("a method that is set changes no call that was made before", HOOKS, "        self.executor.replay.clear()  # calls convolve as was set when they were made\n", ""),
    implicit("a form taken though copies are no whole units", PROGRAM, "any(size % lanes for size in innermost) or thin(g)", "thin(g)"),
    implicit("tiles that stay empty not counted", PLAN, "round_up(maps, tile.rows) * round_up(rows, tile.depth) * count", "maps * rows * count"),
    fault("CUDA: sums of the first parts only", SUMS, "i < count; i +=", "i < 1; i +="),
    tiles("taken for TF32", WINOGRAD, ' or implicit_kind(dtype, products.blas.precision) != "f32"', ' or implicit_kind(dtype, products.blas.precision) not in ("f32", "tf32")'),
    tiles("the padding of the forward pass backward", WINOGRAD, "[2 - pad if request.backward else pad for pad", "[pad for pad"),
    tiles("partial sums of bands in one place", WINOGRAD, "            before += count\n", ""),
    tiles("filters not transposed forward", WINOGRAD, "(size, g.K * size)  # from map", "(g.C * size, size)  # from map"),
    tiles("update: later bands overwrite the earlier ones", WINOGRAD, "1.0, 1.0 if turn else 0.0)", "1.0, 0.0)"),
    tiles("update: errors padded like images", WINOGRAD, "(g.dimO, (0, 0), (ERRORS", "(g.dimO, (g.padding[1], g.padding[2]), (ERRORS"),
    tiles("update: parts of a later band overtake the first one's", WINOGRAD, "part = round_up(ceil_div(band.size, parts), UNIT)", "part = max(band.size // parts // UNIT, 1) * UNIT"),
    tiles("vectors of images that have none", WINOGRAD_KERNELS, "vector_length(F32, tiles.images, aligned)", "vector_length(F32, 8, aligned)"),
    tiles("the switch not seen by calls of update that were made before", FAMILY, "    @repeatable(\"enable_winograd\")\n    def update_conv(", "    @repeatable()\n    def update_conv("),
    tiles("memory stated for no tiles of 4 x 4", HOOKS, "EDGES = (0, 2, 4)", "EDGES = (0, 2)"),
    tiles("few channels taken", PLAN, "    if min(g.C, g.K) < LEAST_MAPS:\n        return 0\n", ""),
    tiles("rule: stored transforms cost nothing", PLAN, "moved * ((g.C + g.K) * tiles.lanes + filters)", "moved * filters"),
    tiles("rule: transformed filters cost nothing", PLAN, "((g.C + g.K) * tiles.lanes + filters)", "((g.C + g.K) * tiles.lanes)"),
    tiles("rule: strides have a form", PLAN, "g.strides == g.dilation == (1, 1, 1) and", "g.dilation == (1, 1, 1) and"),
    tiles("CUDA: rows above an image read", POINTS_OF_SOURCE, "y >= 0 && y < height", "y < height"),
    tiles("CUDA: lanes behind the last one not zero", POINTS_OF_SOURCE, "bool there = lane < (nl_index)m.size;", "bool there = true;"),
    tiles("CUDA: every part begins where the first one does", POINTS_OF_SOURCE, "(number * POINTS * channels + channel)", "(channel)"),
    tiles("CUDA: a band begins at 0", POINTS_OF_SOURCE, "place = (nl_index)m.first + lane, tile", "place = lane, tile"),
    tiles("CUDA: filters of a data gradient not rotated", POINTS_OF_FILTERS, '{{ "8 - " if turned else "" }}', ""),
    tiles("CUDA: filters of 4 x 4: a sign", POINTS, "to[2] = b - a;\n    to[3] = c + d;", "to[2] = a - b;\n    to[3] = c + d;"),
    tiles("CUDA: errors of 4 x 4: a factor", POINTS, "d = 2 * e[1] + 8 * e[3];", "d = 2 * e[1] + 4 * e[3];"),
    tiles("CUDA: the second row of tiles one row down", RESULTS, "% (nl_index)m.tiles_h * OUT, w =", "% (nl_index)m.tiles_h, w ="),
    tiles("CUDA: old values of the first column for all", RESULTS, "(g_x + line + j * images)", "(g_x + line)"),
    tiles("CUDA: bsum of what was not finished", RESULTS, "total += out.v[l];", "total += results[l][j];"),
    tiles("CUDA: gradient: the first part twice", GRADIENT, "from += POINTS * all;", "from += part ? POINTS * all : 0;"),
    tiles("CUDA: gradient: old values counted with beta 0", GRADIENT, "            if (beta != 0)\n", ""),
    tiles("CUDA: gradient: taps transposed", GRADIENT, "i = (3 * r + s) * maps", "i = (3 * s + r) * maps"),
)
