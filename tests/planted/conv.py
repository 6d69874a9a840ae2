"""Faults in convolution: sizes, checks, the NumPy definition, and the ends of the C templates."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from planted.table import CPU, FAMILIES, GEOMETRY, C, Mutant

FAMILY, DEFINITION = FAMILIES + "conv.py", FAMILIES + "conv_definition.py"
SIZES, KERNELS, PLAN = GEOMETRY + "conv.py", CPU + "conv.py", CPU + "conv_plan.py"
DIRECT, UPDATE, TILE = C + "conv_direct.c.j2", C + "conv_update.c.j2", C + "conv_tile.h"
FINISH, WINOGRAD, WINOGRAD_PLAN = C + "conv_finish.h", C + "conv_winograd.c.j2", CPU + "conv_winograd.py"
POINTS, POINTWISE, POINTWISE_PLAN = C + "conv_points.h", C + "conv_pointwise.c.j2", CPU + "conv_pointwise.py"

THIN, THIN_UPDATE, PACK, STRIPS = C + "conv_thin.c.j2", C + "conv_thin_update.c.j2", C + "conv_thin.h", C + "conv_strips.h"
RUNS, FILTERS, THIN_PLAN = C + "conv_runs.h", C + "conv_filters.h", CPU + "conv_thin.py"
MANY, FEW = C + "conv_winograd_many.h", C + "conv_winograd_few.h"


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
    fault("definition: group index wrong", DEFINITION, "return slice(group * channels, (group + 1) * channels)", "return slice((g.groups - 1 - group) * channels, (g.groups - group) * channels)"),
    fault("definition: stride phase wrong", DEFINITION, "first = max(0, -(offset // stride))", "first = max(0, -offset // stride)"),
    fault("definition: dilation ignored", DEFINITION, "offset = tap * dilation - pad", "offset = tap - pad"),
    fault("definition: last position of a tap dropped", DEFINITION, "(length - 1 - offset) // stride + 1)", "(length - 1 - offset) // stride)"),
    fault("definition: alpha ignored in update_conv", FAMILY, "if beta != 0 else alpha * result", "if beta != 0 else result"),
    fault("definition: beta ignored in update_conv", FAMILY, "alpha * result + beta * target", "alpha * result + target"),
    fault("grad_bias scaled by alpha", FAMILY, "sums.sum(errors.reshape((g.K, g.sizeO // g.K)), axis=1)", "sums.sum(errors.reshape((g.K, g.sizeO // g.K)), axis=1) * float(alpha)"),
    fault("number of images at call time ignored", FAMILY, "return layer.at_batch(images)", "return layer"),
    fault("alias check of X removed", FAMILY, 'read if same else {**read, "X": epilogue.X}', "read"),
    fault("alias check of bsum removed", FAMILY, '        check_apart(name, {"bsum": epilogue.bsum}, {**read, "X": epilogue.X, target_name: target})\n', ""),
    fault("alias check of update_conv removed", FAMILY, '        check_apart(name, {"grad_F": target, "grad_bias": grad_bias}, {"I": I, "E": E})\n', ""),
    fault("dilation ignored in sizes", GEOMETRY + "sizes.py", "extent = window_extent(window, dilation)", "extent = window"),
    fault("dilation ignored in sizes of deconvolutions", SIZES, "2 * p + window_extent(s, d)", "2 * p + s"),
    fault("C: alpha ignored", FINISH, "v = g->alpha * v + bias;", "v = v + bias;"),
    fault("C: bias of another group", DIRECT, "g->bias[map]", "g->bias[k]"),
    fault("C: bias of another group, in sums that are stored from registers", DIRECT, "g->bias + map", "g->bias + kt * KB"),
    fault("C: relu slope ignored, in sums that are stored from registers", TILE, "relu(sum[k][j], slope)", "relu(sum[k][j], 0)"),
    fault("C: bsum of results that are stored from registers", TILE, "to->totals[k] += __builtin_convertvector", "to->totals[k] = __builtin_convertvector"),
    fault("C: results past the caches of the first map for all", TILE, "NL_STREAM_VECTOR(out + j * LANES", "NL_STREAM_VECTOR(to->out + j * LANES"),
    fault("C: relu slope ignored", FINISH, "slope == 0 ? (vec){ 0 } : slope * v", "(vec){ 0 }"),
    fault("C: brelu uses output instead of X", FINISH, "& (x > 0))", "& (v > 0))"),
    fault("C: beta ignored in short runs", FINISH, "copy_some(&old, x + i, n - i);", "(void)x;"),
    fault("C: bsum before relu", FINISH, "sum += out[i];", "sum += alpha * acc[i] + bias;"),
    fault("C: bsum drops the tail", FINISH, "for (i = 0; i < n; i++)\n", "for (i = 0; i < n - n % 8; i++)\n"),
    fault("C: parts of maps off by one", DIRECT, "a.tile_hi = tiles * (part + 1) / m[MAP_PARTS];", "a.tile_hi = tiles * (part + 1) / m[MAP_PARTS] - (part + 1 < m[MAP_PARTS]);"),
    fault("C: first block of an input that is not packed read again", DIRECT, "w.strips = input_row(g->in, m, &a, c, 0, 0)", "w.strips = input_row(g->in, m, &a, 0, 0, 0)"),
    fault("C: columns of an input that is not packed", DIRECT, "(a->q0 + q) * a->phase[STEP_W] * m[IMAGES]", "q * a->phase[STEP_W] * m[IMAGES]"),
    fault("C: first row of an input that is read in place for all", DIRECT, "run.x += p * a->phase[STEP_H]", "run.x += a->p0 * 0"),
    fault("C: images of the first block for all, read in place", DIRECT, "* m[IN_W] * m[IMAGES] + a->n0;", "* m[IN_W] * m[IMAGES];"),
    fault("C: planes of an input that is read in place", DIRECT, "(c * m[IN_D] + rows->planes[i]) * m[IN_H]", "(c * m[IN_D] + i) * m[IN_H]"),
    fault("C: taps of one column for the next that reads others", DIRECT, "if (lo != s_lo || hi != s_hi)", "if (lo != s_lo)"),
    fault("C: results go past the caches without what ends them", FINISH, "nl_stream(r.out + at, some,", "nl_stream(r.out + at, r.acc + i * r.acc_step + k,"),
    fault("C: sums of earlier channels lost where the last store results", DIRECT, "w.once = w.first && w.last && m[BY_TILE];", "w.once = w.last && m[BY_TILE];"),
    fault("pointwise: first block of channels read again", POINTWISE, "const real *x = g->in + (a->group * channels + c) * step + lane;", "const real *x = g->in + a->group * channels * step + lane;"),
    fault("pointwise: later blocks of channels overwrite", POINTWISE, "c == 0, plain && there == KB", "1, plain && there == KB"),
    fault("pointwise: last lane of a tail dropped", POINTWISE, "j < lanes ? x[i * step + j] : 0", "j < lanes - 1 ? x[i * step + j] : 0"),
    fault("pointwise: channels of a copied panel shifted", POINTWISE, "*(vec *)(panel + i * TILE + j * LANES) = v[j];", "*(vec *)(panel + (i > 0 ? i - 1 : 0) * TILE + j * LANES) = v[j];"),
    fault("C: alpha ignored in results from registers", TILE, "sum[k][j] = alpha * sum[k][j] + bias[k];", "sum[k][j] = sum[k][j] + bias[k];"),
    fault("pointwise: bias of another group", POINTWISE, "g->bias == NULL ? zeros : g->bias + map", "g->bias == NULL ? zeros : g->bias + kt * KB"),
    fault("pointwise: relu left out of results from registers", POINTWISE, "g->epilogue & 1, g->slope, NULL", "0, g->slope, NULL"),
    fault("pointwise: parts of maps off by one", POINTWISE, ".tile_hi = tiles * (part + 1) / m[MAP_PARTS] };", ".tile_hi = tiles * (part + 1) / m[MAP_PARTS] - (part + 1 < m[MAP_PARTS]) };"),
    fault("pointwise: filters of the first group for all", POINTWISE_PLAN, '"FILTER_GROUP": g.K // g.groups,', '"FILTER_GROUP": 0,'),
    fault("C: taps of the last input row dropped", DIRECT, "(h < 0 || h >= m[IN_H]))\n", "(h < 0 || h >= m[IN_H] - 1))\n"),
    fault("Winograd: filters not flipped in the data gradient", WINOGRAD, "(flip ? 8 - tap : tap)", "tap"),
    fault("Winograd: window shifted", MANY, "(OUT * b->ty + i), there", "(OUT * b->ty + i + 1), there"),
    fault("Winograd: last row of an odd height dropped", WINOGRAD, "rows = smaller(OUT * b.lines, there(m[OUT_H], b.top, m[DIL_H]) - OUT * b.ty)", "rows = there(m[OUT_H], b.top, m[DIL_H]) - OUT * b.ty < OUT * b.lines ? 0 : OUT * b.lines"),
    fault("Winograd: a column past the image is read", MANY, "w >= 0 && w < width", "w >= 0 && w <= width"),
    fault("Winograd: bias of another part of the maps", WINOGRAD, "g->bias[map]", "g->bias[map - first]"),
    fault("Winograd: later blocks of channels overwrite", WINOGRAD, "products_{{ nv }}(x, a.lanes, filters, p.count, sums + lane, a.lanes, c == 0);", "products_{{ nv }}(x, a.lanes, filters, p.count, sums + lane, a.lanes, 1);"),
    fault("Winograd: sign of a point", POINTS, "to[1] = (p[1] - p[2]) - p[3];", "to[1] = (p[1] - p[2]) + p[3];"),
    fault("Winograd: weight of a point of tiles of 4 x 4", POINTS, "to[3] = b + 8 * d + p[5];", "to[3] = b + 4 * d + p[5];"),
    fault("Winograd: images of the first block for all", MANY, "* m[IMAGES] + a->n0 : zeros", "* m[IMAGES] : zeros"),
    fault("Winograd: first plane for all", MANY, "(c * m[PLANES] + b->plane) * m[IN_H]", "(c * m[PLANES]) * m[IN_H]"),
    fault("Winograd: sums of all units in one row", WINOGRAD, "a.sums_row = index / m[PARTS];", "a.sums_row = 0;"),
    fault("Winograd: enable_winograd ignored", WINOGRAD_PLAN, "if not allowed or not plain", "if not plain"),
    fault("Winograd: used where the filter moves by more than one", WINOGRAD_PLAN, " and g.strides == (1, 1, 1)", ""),
    fault("Winograd: padding of the data gradient", WINOGRAD_PLAN, "[2 * dilation - pad if backward else pad", "[2 - pad if backward else pad"),
    fault("Winograd: channels backward read as forward", WINOGRAD, "sum[k][j] += f[backward ? k * count : k] * x[j];", "sum[k][j] += f[k] * x[j];"),
    fault("Winograd: residues modulo the dilation of the width for the height", WINOGRAD, "b.top = residue / m[DIL_W] % m[DIL_H];", "b.top = residue % m[DIL_H];"),
    fault("Winograd: last results of a residue dropped", WINOGRAD, "return step == 1 ? size : (size - first + step - 1) / step;", "return (size - first) / step;"),
    fault("Winograd: input of the first area for all that share it", WINOGRAD, "shared + (a.sums_row * ((channels + block - 1) / block) + c / block)", "shared + (c / block)"),
    fault("Winograd: pieces of a block of channels in one place", WINOGRAD, "m[V_SIZE] + at * a.lanes, v_step", "m[V_SIZE], v_step"),
    fault("Winograd of few images: columns after the last not cleared", FEW, "    clear_few(to + right * nb, (count - right) * nb);\n", ""),
    fault("Winograd of few images: rows in the padding not cleared", FEW, "            memset(to, 0, (size_t)(OUT * size) * sizeof *to);\n", "            ;\n"),
    fault("Winograd of few images: lanes after the last row overwrite the next channel's", FEW, "if (left >= LANES)", "if (left != LANES)"),
    fault("Winograd of few images: dilation of rows ignored", FEW, "m[DIL_H] * (OUT * b->ty + i)", "(OUT * b->ty + i)"),
    fault("Winograd of few images: images of the first block for all", FEW, "copy_row(plane + h * W * N, W, N, a->n0, a->nb,", "copy_row(plane + h * W * N, W, N, 0, a->nb,"),
    fault("Winograd of few images: columns swapped", FEW, "d[1] = ODD(p, q);", "d[1] = ODD(r, s);"),
    fault("Winograd of few images: results of one column for all", FEW, "apart + (i * OUT + k % OUT) * size", "apart + (i * OUT) * size"),
    fault("C: alpha ignored in update_conv", UPDATE, "sum = alpha * sum + beta * old;", "sum = sum + beta * old;"),
    fault("C: beta ignored in update_conv", UPDATE, "sum = alpha * sum + beta * old;", "sum = beta != 0 ? alpha * sum + old : alpha * sum;"),
    fault("C: parts of a gradient not added up", UPDATE, "sum += *(const vec *)(at + part * size);", "sum = *(const vec *)(at + part * size);"),
    fault("C: last column of a tap dropped", UPDATE, "widen(&t->lane, &t->lanes, range[2], range[3]);", "widen(&t->lane, &t->lanes, range[2], range[3] - 1);"),
    fault("C: last lanes of an error dropped", UPDATE, "to[i * step + k] = from[k][at + i];", "to[i * step + k] = 0;"),
    fault("bsum of float16 before it is rounded", KERNELS, "rounded = epilogue.bsum is not None and target.dtype != read.dtype", "rounded = False"),
    fault("brelu without beta does not read the old output", KERNELS, "keep=epilogue.reads_old", "keep=epilogue.beta != 0 and epilogue.reads_old"),
    fault("kernels: dilation ignored", PLAN, "(s, s * dilation - padding)", "(s, s - padding)"),
    fault("kernels: window shifted", PLAN, "(s, s * dilation - padding)", "(s, s * dilation - padding + 1)"),
    fault("kernels: stride phase wrong in the data gradient", PLAN, "(s, start + padding - s * dilation)", "(s, padding - start - s * dilation)"),
    fault("kernels: last phase of the data gradient dropped", PLAN, "for start in range(min(stride, inputs)):", "for start in range(max(1, min(stride, inputs) - 1)):"),
    fault("kernels: filters of the first group for all", PLAN, '"FILTER_GROUP": g.K // g.groups}', '"FILTER_GROUP": 0}'),
    fault("runs: garbage between rows stored", DIRECT, "const int64_t acc_step = m[FLAT] ? a->pitch", "const int64_t acc_step = m[FLAT] ? a->pitch - 1"),
    fault("runs: rows in the padding not cleared", STRIPS, "                clear_few(to, strip->size);\n", ""),
    fault("short runs: old values not read", RUNS, "copy_runs(old, n, x + q * step, step, n, some);", "copy_runs(old, n, out + q * step, step, n, some);"),
    fault("short runs: the rest of a row not stored", RUNS, "const int64_t some = count - q < SIDE / n ? count - q : SIDE / n;", "const int64_t some = count - q < SIDE / n ? count - q - (q > 0) : SIDE / n;"),
    fault("filters: maps of the last tile dropped", FILTERS, "w[k] = i * KB + k < maps ? f[k * map_step] : 0;", "w[k] = 0;"),
    fault("filters: the second part of the channels packed in the place of the first", DIRECT, "rest % job->parts * job->part, last", "rest % job->parts * 16, last"),
    fault("thin: the last lanes of a run dropped", THIN, "    if (lane < lanes)\n        tile(x + lane, at, w, taps, acc + lane, 1);\n", ""),
    fault("thin: only the first channel of a group", THIN, "at[c * t.taps + j] = c * t.channel_size + t.at[j];", "at[c * t.taps + j] = t.at[j];"),
    fault("thin: bias of another group", THIN, "g->bias[map]", "g->bias[map % m[MAPS]]"),
    fault("thin: bsum of another area", THIN, "g->sums[t->a.sums_row * m[ALL_MAPS] + map] = sum;", "g->sums[map] = sum;"),
    fault("thin: rows of the first area for all", PACK, "t.first = t.a.p0 * ph[STEP_H]", "t.first = 0 * ph[STEP_H]"),
    fault("thin: spread errors read where zeros are", PACK, "ahead = up_w > 1 ? ((up_w - (first + t->left[0]) % up_w) % up_w) : 0;", "ahead = 0;"),
    fault("thin: rows of spread errors read where zeros are", PACK, "if ((t->first + h) % up_h != 0)", "if (0)"),
    fault("thin: padding of spread errors", THIN_PLAN, "(s, padding - s * dilation)", "(s, padding - s)"),
    fault("thin: sums of areas not added up", THIN_UPDATE, "sum += job->sums[", "sum = job->sums["),
    fault("thin: beta ignored in update_conv", THIN_UPDATE, "job->alpha * (real)sum + job->beta * *to", "job->alpha * (real)sum + *to"),
    fault("thin: zeros between rows times an infinity", THIN_UPDATE, "isfinite(made[j]) ? made[j] : exact_dot(m, t, errors, x + t->at[i + j])", "made[j]"),
    fault("thin: the last taps dropped", THIN_UPDATE, "for (int64_t j = 0; j < some; j++)\n                        one_dot(", "for (int64_t j = 0; j < some - 1; j++)\n                        one_dot("),
)
