"""Faults in scaled dot-product attention: the definition, the C and CUDA templates, how work is cut, checks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, CUDA, GEOMETRY, GPU, PRIMITIVES, C, Mutant

FAMILY, DEFINITION, HOOKS = PRIMITIVES + "attention/family.py", PRIMITIVES + "attention/definition.py", CPU + "primitives/attention.py"
TILES, FORWARD, BACKWARD = (C + f"attention/{name}" for name in ("tiles.j2", "forward.c.j2", "backward.c.j2"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("attention", name, file, old, new)


BY_TILES = C + "attention/by_tiles.j2"
SHARED, ONWARD, QUERIES, KEYS = (CUDA + f"attention/{name}" for name in ("common.j2", "forward.cu.j2", "queries.cu.j2", "keys.cu.j2"))
GPU_HOOKS, PLAN = GPU + "primitives/attention.py", GPU + "primitives/attention_plan.py"


def of_tiles(name: str, file: str, old: str, new: str) -> Mutant:
    """The same where the processor's tiles multiply."""
    return Mutant("attention_tiles", name, file, old, new)


def gpu(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of the CUDA kernels."""
    return Mutant("attention_cuda", name, file, old, new)


MUTANTS = (
    fault("default scale not a root", FAMILY, "1 / math.sqrt(made.size)", "1 / made.size"),
    fault("values of another number than keys accepted", FAMILY, "            if tensor.shape != wanted:\n", '            if tensor.shape != wanted and what != "V":\n'),
    fault("alias check of gradients removed", FAMILY, '        check_apart(name, outputs, {"Q": Q, "K": K, "V": V, "O": O, "lse": lse, "E": E})\n', ""),
    fault("without keys, gradients stay as they were", FAMILY, "                self.assign(gradient, 0)\n", "                pass\n"),
    fault("causal pairs of more keys than queries", GEOMETRY + "attention.py", "few = min(self.queries, self.keys)", "few = self.keys"),
    fault("definition: causal one key too many", DEFINITION, "F.greater(numbers[:, :seen].T, numbers[:, :rows] + first)", "F.greater(numbers[:, :seen].T, numbers[:, :rows] + first + 1)"),
    fault("definition: causal forgets where a band begins", DEFINITION, "numbers[:, :rows] + first)", "numbers[:, :rows])"),
    fault("definition: scores not scaled", DEFINITION, "be.batched_dot(q, k.T, scores, alpha=request.layer.scale)", "be.batched_dot(q, k.T, scores)"),
    fault("definition: -inf minus -inf", DEFINITION, "F.maximum(F.max(scores, axis=2), -float(np.finfo(kind).max))", "F.max(scores, axis=2)"),
    fault("definition: gradient of the softmax without its mean", DEFINITION, "weights * (slopes - delta[:, first:end])", "weights * slopes"),
    fault("definition: gradient of keys of the last band alone", DEFINITION, "dk[:, :seen], alpha=layer.scale, beta=1.0)", "dk[:, :seen], alpha=layer.scale)"),
    fault("definition: gradients of copies not stored", DEFINITION, "    tensor.backend.assign(tensor, stand_in.reshape(tensor.shape))\n", "    tensor.backend.assign(stand_in, stand_in)\n"),
    fault("C: causal one key too few", TILES, "s->causal ? smaller(end - first, count) : count", "s->causal ? smaller(end - first - 1, count) : count"),
    fault("C: heads of a sample all the first", TILES, "+ head % s->inner * o.inner", ""),
    fault("C: last panel of features read as a full one", TILES, "b + k * line, line, smaller(width, a.depth - k)}", "b + k * line, line, width}"),
    fault("C: strided columns stored side by side", TILES, "out[(q + i) * column] = scale * row[i];", "out[q + i] = scale * row[i];"),
    fault("C forward: old sums not rescaled", FORWARD, "    return factor;\n", "    return 1;\n"),
    fault("C forward: old totals not rescaled", FORWARD, "*total = *total * factor + sum;", "*total = *total + sum;"),
    fault("C forward: -inf minus -inf", FORWARD, "now > LEAST ? now : 0;", "now;"),
    fault("C forward: padding counts", FORWARD, "        s[j] = LEAST;\n", "        s[j] = s[j];\n"),
    fault("C forward: logarithm without the largest score", FORWARD, "l->top[r] + nl_log_", "nl_log_"),
    fault("C forward: last block of a head left out", FORWARD, "c.rows - 1) / c.rows;", "c.rows - 1) / c.rows - (c.sizes.queries > c.rows);"),
    fault("C backward: delta forgotten", BACKWARD, "p[j] * (s[j] - delta);", "p[j] * s[j];"),
    fault("C backward: keys not seen get gradients", BACKWARD, "        p[j] = s[j] = 0;\n", "        s[j] = 0;\n"),
    fault("C backward: queries before a tile of keys left in", BACKWARD, "s->causal && k + j > first ? smaller(k + j - first, rows) : 0;", "0;"),
    fault("C backward: causal starts a block too late", BACKWARD, "s->causal ? k / ROWS * ROWS : 0;", "s->causal ? (k + ROWS) / ROWS * ROWS : 0;"),
    fault("C backward: gradient of keys not scaled", BACKWARD, "store_row(l->of_keys, j, s->size, c->scale,", "store_row(l->of_keys, j, s->size, 1,"),
    fault("C backward: last part of the keys left out", BACKWARD, "for (int64_t p = 1; p < c->parts; p++)", "for (int64_t p = 1; p < c->parts - 1; p++)"),
    fault("C backward: sums of the head before", BACKWARD, "        memset(sums, 0, (size_t)c->high * sizeof(REAL));\n", "        (void)size;\n"),
    fault("C backward: as many parts as threads", HOOKS, "min(ceil_div(UNITS, request.heads), ceil_div", "min(threads, ceil_div"),
    fault("pairs: the last key of an odd number lost", FORWARD, "l->values + q * KEYS, lines_of(seen)", "l->values + q * KEYS, seen / 2"),
    fault("pairs: the last line of an odd number not paired", TILES, "pair_panel(out + q * room, count,", "pair_panel(out + q * room, count - count % 2,"),
    fault("pairs: queries before a tile of keys counted as floats", BACKWARD, "line = lines_of(from),", "line = from,"),
    fault("pairs: a query behind the last is the other one of a pair", BACKWARD, "i + 1 < hi ? scores + (i + 1) * PITCH : 0", "scores + (i + 1) * PITCH"),
    fault("pairs: left factors of strided features read as contiguous", TILES, "from.column == 1 ? line : gathered", "line"),
    of_tiles("words of a left factor that fill up tiles are left as they were", TILES, "            memset(out + q * room, 0, (size_t)(count * width) * sizeof(REAL));\n", "            ;\n"),
    of_tiles("lines of a right factor that fill up tiles are left as they were", TILES, "    memset(panel + lines * width, 0, ", "    memset(panel + lines * width, 0, 0 * "),
    of_tiles("turned lines lie where they have no whole tiles", TILES, "out + q * depth_of(columns);", "out + q * lines_of(columns);"),
    of_tiles("pairs of queries that fill up tiles are left as they were", BACKWARD, "        memset(scores + line * PITCH, 0, (size_t)wide * sizeof(REAL));\n", "        (void)wide;\n"),
    of_tiles("weights that fill up tiles are left as they were", BY_TILES, "return 2 * depth_of(count);", "return count;"),
    of_tiles("both tiles of a left factor are the first", BY_TILES, "nl_sums_add(a, a + below, ", "nl_sums_add(a, a, "),
    of_tiles("sums of what was multiplied before are left out", BY_TILES, "    if (p->add)\n", "    if (0)\n"),
    of_tiles("queries behind the 16th of a tile are left out", BY_TILES, "    if (rows > NL_TILE_SIDE && columns > NL_TILE_SIDE)\n        multiply_square", "    if (rows > TILE_ROWS && columns > NL_TILE_SIDE)\n        multiply_square"),
    of_tiles("scores not scaled", BY_TILES, "scale != 1 && r < ", "scale > 1e9 && r < "),
    of_tiles("a panel's pairs are not turned", BY_TILES, "turn_square(square, width, square, width);", "(void)square;"),
    of_tiles("sums of keys change places within a tile", BY_TILES, "tile + i * width + j, width);", "tile + (TILE_ROWS - LANES - i) * width + j, width);"),
    of_tiles("gradients of values not turned", BACKWARD, "    turn_sums(l->of_values, count, s->value_size);\n", ""),
    of_tiles("old sums not rescaled", FORWARD, "    scale_rows(sums, rows, s->value_size, factor);\n", ""),
    of_tiles("forward: threads do not begin with tiles", FORWARD, "    nl_tiles_begin(&nl_whole_tiles);\n", ""),
    of_tiles("forward: threads keep their tiles", FORWARD, "    nl_tiles_end();\n", ""),
    of_tiles("backward: threads do not begin with tiles", BACKWARD, "    nl_tiles_begin(&nl_whole_tiles);\n", ""),
    of_tiles("backward: threads keep their tiles", BACKWARD, "    nl_tiles_end();\n", ""),
    of_tiles("tiles reach behind the working memory", HOOKS, "ROWS_BY_TILES if pairs == TILES else TILE_ROWS", "TILE_ROWS"),
    of_tiles("few queries use tiles", HOOKS, "min(fewest, layer.queries, layer", "min(fewest, layer"),
    of_tiles("few keys use tiles", HOOKS, "layer.keys // 2) >= FEWEST_BY_TILES", "layer.keys) >= FEWEST_BY_TILES"),
    of_tiles("the kernel of vdpbf16ps in place of that of tiles", HOOKS, "return with_tiles(pairs, self.compiler) if", "return pairs if"),
    gpu("heads of a sample all the first", SHARED, " + head % s.inner * o.inner;", ";"),
    gpu("lines stored side by side", SHARED, "*(nl_unit *)(to + (first + line) * step + place)", "*(nl_unit *)(to + (first + line) * size + place)"),
    gpu("lines behind the last are read", SHARED, "const bool there = (first + line < count) & (place < size);", "const bool there = place < size;"),
    gpu("weights of halves taken twice", SHARED, "nl_pair(right_half[0], right_half[1])", "nl_pair(left_half[0], left_half[1])"),
    gpu("tf32: lines in the order of the lanes", SHARED, "others[(8 * k + 1) * (WIDTH + PAD) + 8 * j]", "others[(8 * k + 4) * (WIDTH + PAD) + 8 * j]"),
    gpu("weights of a tile read before they are there", SHARED, "= weights[j][i];\n    __syncwarp();", "= weights[j][i];"),
    gpu("forward: old sums not rescaled", ONWARD, "sums[j][i] *= before[i / 2];", "sums[j][i] *= 1;"),
    gpu("forward: old totals not rescaled", ONWARD, "total[r] *= before[r];", "total[r] *= 1;"),
    gpu("forward: -inf minus -inf", ONWARD, "most[r] > least ? most[r] : 0;", "most[r];"),
    gpu("forward: causal one key too many", ONWARD, "(s.causal && key > query))", "(s.causal && key > query + 1))"),
    gpu("forward: causal blocks end early", ONWARD, "s.causal ? min(first + OWN, all_keys)", "s.causal ? min(first + OWN - 16, all_keys)"),
    gpu("forward: values not waited for", ONWARD, "        nl_copy_wait(0);\n        __syncthreads(); /* the values are there", "        __syncthreads(); /* the values are there"),
    gpu("forward: logarithm to base 2", ONWARD, "(nl_real)LN2 * (top[r]", "(top[r]"),
    gpu("queries: delta forgotten", QUERIES, "* (slopes[j][i] - delta[i / 2]);", "* slopes[j][i];"),
    gpu("queries: keys replaced as they are read", QUERIES, "        __syncthreads(); /* nobody reads the keys any more */\n", ""),
    gpu("queries: hidden keys count", QUERIES, "                            slopes[j][i] = 0;\n", "                            slopes[j][i] *= 1;\n"),
    gpu("keys: causal starts a tile late", KEYS, "first / OTHERS * OTHERS", "(first + OTHERS) / OTHERS * OTHERS"),
    gpu("keys: hidden queries count", KEYS, "                            weights[j][i] = 0;\n", "                            weights[j][i] *= 1;\n"),
    gpu("keys: logarithms of the tile before", KEYS, "            fetch_sums(q + OTHERS);\n", ""),
    gpu("keys: gradient not scaled", KEYS, "scales[2] = {(nl_real)scale, (nl_real)scale};", "scales[2] = {1, 1};"),
    gpu("whole units though steps are odd", GPU_HOOKS, "wide, sums = aligned and even,", "wide, sums = aligned,"),
    gpu("strided elements read as lines", GPU_HOOKS, "return tensor if _is_lined(tensor) else plain(tensor)", "return tensor"),
    gpu("precision ignored", PLAN, "implicit_kind(dtype, precision)", 'implicit_kind(dtype, "float32")'),
    gpu("wide heads in one launch", PLAN, "elements * real <= MOST_SUMS", "elements * real <= 8 * MOST_SUMS"),
)
