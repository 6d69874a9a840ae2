"""Faults in recurrent unrolls: checks, the definitions in op-trees, the C templates and the packed product."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, PRIMITIVES, C, Mutant

SIMPLE, GATED, STEPS = PRIMITIVES + "rnn/family.py", PRIMITIVES + "rnn/gated.py", PRIMITIVES + "rnn/steps.py"
KERNELS = CPU + "primitives/rnn.py"
C_STEPS, C_ONE, C_PAIRS = C + "rnn_steps.h", C + "rnn_one.h", C + "pair_panels.h"
C_SIMPLE, C_LSTM, C_GRU = C + "rnn_simple.c.j2", C + "rnn_lstm.c.j2", C + "rnn_gru.c.j2"
LAUNCH = "neonlike/kernels/c/gemm.py"
C_TILES = C + "rnn_tiles.h"
TILE, GEMM, PACK, STORE = (C + name for name in ("gemm_tile.h", "gemm_packed.c.j2", "gemm_pack.j2", "gemm_store.j2"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("rnn", name, file, old, new)


def of_tiles(name: str, file: str, old: str, new: str) -> Mutant:
    """The same where the processor's tiles multiply."""
    return Mutant("unroll_tiles", name, file, old, new)


MUTANTS = (
    fault("reverse ignored", STEPS, "chosen[::-1] if reverse else chosen", "chosen"),
    fault("num_used_steps ignored", STEPS, "used = num_steps if num_used_steps is None else min(num_used_steps, num_steps)", "used = num_steps"),
    fault("last steps used instead of the first", STEPS, "list(tensors[:used])", "list(tensors[num_steps - used :])"),
    fault("alias check between roles removed", STEPS, "                    check_apart(steps.operation, {name: mine}, {other: its})\n", "                    pass\n"),
    fault("both directions: W not transposed", SIMPLE, "W_recur_f.T, W_recur_b.T", "W_recur_f, W_recur_b.T"),
    fault("both directions: the second runs forward", SIMPLE, "h_ff_b, h_b, b_b, *common, True)", "h_ff_b, h_b, b_b, *common, False)"),
    fault("definition: bias skipped at the last step", SIMPLE, "total if bias is None else", 'total if bias is None or h is steps.roles["h_s"][-1] else'),
    fault("definition: h_ff added twice", SIMPLE, "dot(weight, h_prev) + h_ff\n", "dot(weight, h_prev) + h_ff + h_ff\n"),
    fault("definition: error before a step replaced", SIMPLE, "delta_prev + dot(weight, delta)", "dot(weight, delta)"),
    fault("definition: LSTM forget gate swapped", GATED, "f * c_prev + i * g)", "i * c_prev + f * g)"),
    fault("definition: LSTM error of the cell replaced", GATED, "dc + act.bprop(c_act) * o * delta", "act.bprop(c_act) * o * delta"),
    fault("definition: LSTM output gate without its slope", GATED, "gate_act.bprop(o) * delta * c_act", "delta * c_act"),
    fault("definition: GRU reset gate on the wrong product", GATED, "dot(weight[2 * n :], reset_here)", "dot(weight[2 * n :], h_prev)"),
    fault("definition: GRU update gate turned round", GATED, "(1.0 - z) * h_prev + z * candidate", "z * h_prev + (1.0 - z) * candidate"),
    fault("definition: GRU error through the reset gate dropped", GATED, " + r * q\n", "\n"),
    fault("definition: GRU n has no bias", GATED, "ff[2 * n :] + b_n)", "ff[2 * n :])"),
    fault("C: bias dropped", C_STEPS, "return u->bias ? load_one(u->bias + row) : 0;", "return u->bias ? 0 * load_one(u->bias + row) : 0;"),
    fault("C: every state taken as passed on", C_STEPS, "operand(u, now, step) == operand(u, next, step + 1) &&", "(operand(u, now, step) || operand(u, next, step + 1)) &&"),
    fault("C: error before a step replaced", C_STEPS, "sum[i] += tile[i];", "sum[i] = tile[i];"),
    fault("C: thread partition off by one", C_STEPS, "tiles_of_stage(&mine, lo, hi, finish);", "tiles_of_stage(&mine, lo + (lo > 0), hi, finish);"),
    fault("C: bias skipped at the last step", C_SIMPLE, "bias = bias_of(u, at.unit + r);", "bias = at.step + 1 < u->steps ? bias_of(u, at.unit + r) : 0;"),
    fault("C: h_ff added twice", C_SIMPLE, "act(tile[i] + ff[i] + bias,", "act(tile[i] + 2 * ff[i] + bias,"),
    fault("C: error of a step replaced by the next one's", C_SIMPLE, "* (delta[i] + tile[i])", "* tile[i]"),
    fault("C: LSTM forget gate swapped", C_LSTM, "f * c_prev[i] + in * g", "in * c_prev[i] + f * g"),
    fault("C: LSTM error of the cell replaced", C_LSTM, "sum = dc[i] + slope", "sum = slope"),
    fault("C: LSTM cell before the first step not 0", C_LSTM, "carried[i] = c_prev ? c_prev[i] : 0;", "carried[i] = c_prev ? c_prev[i] : 1;"),
    fault("C: LSTM error of the forget gate of a wrong factor", C_LSTM, "sum * carried[i]", "sum * g"),
    fault("C: GRU reset gate on the wrong product", C_GRU, "reset[j] = open * h_prev[j];", "reset[j] = h_prev[j];"),
    fault("C: GRU update gate turned round", C_GRU, "(1 - z[j]) * h_prev[j] + z[j] * now", "z[j] * h_prev[j] + (1 - z[j]) * now"),
    fault("C: GRU error through the reset gate dropped", C_GRU, " + r[j] * q[j];", ";"),
    fault("C: numbers of one activation read for the other", PRIMITIVES + "rnn/formula.py", "numbers + {len(numbers)}", "numbers + {0 * len(numbers)}"),
    fault("C: overlapping steps run in parallel", STEPS, "        if mine.alias_of(its) == 2:\n            return False\n", ""),
    fault("packed product: a column loses one of four sums", TILE, "(sum[2][r] + sum[3][r])", "sum[2][r]"),
    fault("packed product: beta ignored at edges", STORE, "g->beta * c[i] + g->alpha * tile[i]", "c[i] + g->alpha * tile[i]"),
    fault("packed product: beta ignored", STORE, "*at = beta * *at + alpha", "*at = *at + alpha"),
    fault("packed product: the last columns of copied rows lost", GEMM, "copy_words(copy + r * PITCH + k, from, numbers);", "copy_words(copy + r * PITCH + k, from, numbers - 1);"),
    fault("packed product: copied rows read by A's step", GEMM, "copied ? PITCH : g->a.row", "g->a.row"),
    fault("packed product: columns of A lie as far apart as rows", GEMM, "{a, 1, g->a.column, b, TILE_COLUMNS", "{a, 1, g->a.row, b, TILE_COLUMNS"),
    fault("packed product: a square is not turned", PACK, "    transpose(square);\n", ""),
    fault("packed product: beta counts once a block", GEMM, "first ? 1 : (REAL)beta", "(REAL)beta"),
    fault("packed product: a row of the last panel lost", GEMM, "LOW, rows, c, 0, 0", "LOW, rows - 1, c, 0, 0"),
    fault("packed product: the last part is not added", GEMM, "i < p->count", "i + 1 < p->count"),
    fault("packed product: only a part's last block counts", GEMM, "first > part * p->depth", "0 * part"),
    fault("packed product: all parts read the first columns of B", GEMM, "left * g.b.column;\n            g.c = ", "0 * left;\n            g.c = "),
    fault("packed product: parts for each thread", LAUNCH, "depth = depth_of_parts(sizes, itemsize)", "depth = depth_of_parts(sizes, itemsize) * threads"),
    fault("C: one sample: bias of the first gate for all", C_ONE, "load_one(u->bias + s->row + from + i);", "load_one(u->bias + l.first + i);"),
    fault("C: one sample: the end of a row left out", C_ONE, "total += load_one(row[r] + k) * b[k];", "total += 0;"),
    fault("C: one sample: rows of the last panel read as the first", C_ONE, "row[r] = w + (r < there ? r : 0) * step;", "row[r] = w + (r < there - 1 ? r : 0) * step;"),
    fault("C: one sample: the first part of a share for all, going back", C_ONE, "first + end - 1 - p : p", "first : p"),
    fault("C: groups of samples all begin with the first", C_STEPS, "group.first = lo * TILE_COLUMNS;", "group.first = 0 * lo;"),
    fault("C: groups share their working memory", C_STEPS, "group.work += group.first * whole->units * BUFFERS;", "group.work += 0 * group.first;"),
    fault("C: samples that move are taken apart", STEPS, "return all(b - a >= width for", "return all(True for"),
    fault("C: rows of another pitch in the same memory", STEPS, "        elif here != pitch:\n            return False\n", ""),
    fault("repeated: activations of the first call", KERNELS, "request = replace(self.request, **dict(zip((\"activation\", \"gate_activation\"), functions)))", "request = self.request"),
    fault("pairs: the last one of an odd number keeps its upper half (AVX512-BF16)", C_PAIRS, "alone ? 0xffffffffu : upper", "alone ? 0x55555555u : upper"),
    fault("pairs: the same in plain arithmetic", C_PAIRS, "alone && j < some", "alone && 0 * some"),
    fault("pairs: upper halves of lower ones (AVX512-BF16)", C_PAIRS, "upper ? halves << 16 : halves", "halves"),
    fault("pairs: weights by column paired by row", C_STEPS, "neighbours ? by_row : by_column", "by_row"),
    fault("pairs: a part of W begins where that of floats does", C_GRU, "lines_of(2 * u->units) * u->w_column", "2 * u->units * u->w_column"),
    fault("pairs: a state packed for its step loses the last one", C_STEPS, "const int64_t lines = lines_of(u->units);", "const int64_t lines = u->units / 2;"),
    fault("16 bits: a state passed on is not rounded", C_STEPS, "    read_line(b + at.column * depth + row * at.width, rounded, count);", "    memcpy(b + at.column * depth + row * at.width, line, count * sizeof(REAL));"),
    fault("16 bits: W widened by column read by row", C_STEPS, "u->w_row = by_column ? 1 : depth;", "u->w_row = depth;"),
    fault("16 bits: the last sample of a part of a tile is not stored", C_STEPS, "write_line(row_of(u, role, at, row), line, at.there);", "write_line(row_of(u, role, at, row), line, at.there - (at.there < at.width));"),
    fault("16 bits: the last pair of a packed state loses a half", C_STEPS, "both = 2 * k + 1 < u->units;", "both = 2 * k + 2 < u->units;"),
    fault("16 bits: LSTM's error of the cell is not stored", C_LSTM, "        store_row(u, DC, at, unit, of_dc);\n", ""),
    fault("16 bits: the bias in float32", KERNELS, "host(bias, dtype=bias.dtype)", "host(bias)"),
    fault("pairs: calls of the precision before repeated", CPU + "backend.py", "        self.executor.clear()  # plans", "        # plans"),
    of_tiles("lines that fill tiles are left as they were", C_TILES, "        memset(b + q * depth + lines * width, 0, (size_t)((depth - lines) * width) * sizeof(REAL));\n", ""),
    of_tiles("numbers of W that fill tiles are left as they were", C_TILES, "line[NL_TILE_SIDE][TILE_ROWS] = {{0}};", "line[NL_TILE_SIDE][TILE_ROWS];\n        memset(line, 0xff, sizeof line);"),
    of_tiles("both tiles of a panel of W are the first", C_TILES, "nl_sums_add(a, a + NL_TILE_SIDE * NL_TILE_SIDE, LINE", "nl_sums_add(a, a, LINE"),
    of_tiles("sums of two tiles change places", C_TILES, "nl_sums_store(tile, tile + NL_TILE_SIDE * TILE_COLUMNS,", "nl_sums_store(tile + NL_TILE_SIDE * TILE_COLUMNS, tile,"),
    of_tiles("panels of gates are as high as their units", C_STEPS, "s->gates > 1 ? TILE_ROWS : at.rows", "at.rows"),
    of_tiles("a state of its step lies where it has no whole tiles", C_PAIRS, "out + q * depth_of(rows) + k", "out + q * lines_of(rows) + k"),
    of_tiles("a state passed on lies where it has no whole tiles", C_STEPS, "b + at.column * depth_of(depth) + row / 2", "b + at.column * lines_of(depth) + row / 2"),
    of_tiles("threads do not begin with tiles", C_STEPS, "    nl_tiles_begin(&nl_whole_tiles);\n", ""),
    of_tiles("threads keep their tiles", C_STEPS, "    nl_tiles_end();\n", ""),
    of_tiles("GRU: the errors of gates keep what filled their tiles", C_GRU, "    clear_ends(u, now + size, 2 * units);\n", ""),
    of_tiles("panels of W reach behind the working memory", KERNELS, "ROWS_BY_TILES if pairs == TILES else MOST_ROWS", "MOST_ROWS"),
    of_tiles("few samples use tiles", KERNELS, "with_tiles(pairs, compiler) if samples >= FEWEST_BY_TILES else pairs", "with_tiles(pairs, compiler)"),
)
