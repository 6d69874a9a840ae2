"""Faults in products and convolutions of factors rounded to pairs of bfloat16."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, KERNELS, C, Mutant

HEADER, CONV, PAIRS = C + "pairs.h", CPU + "primitives/conv/pairs.py", KERNELS + "c/pairs.py"
PACKING, PRODUCT, POINTWISE = C + "gemm_pack_pairs.j2", C + "gemm_packed.c.j2", C + "conv/pointwise.c.j2"
TAKING, UPDATE = C + "gemm_take_pairs.j2", C + "conv/update.c.j2"
STORING, HALVES, LAUNCH = C + "gemm_store.j2", C + "halves.h", KERNELS + "c/gemm.py"
STRIPS, ROWS = C + "conv/conv_strips.h", C + "conv/conv_rows.h"
FACTORS = CPU + "primitives/factors.py"

MUTANTS = tuple(
    Mutant("pairs", name, file, old, new)
    for name, file, old, new in (
        ("ties are rounded up", HEADER, "x + 0x7fffu + (x >> 16 & 1u)", "x + 0x8000u"),
        ("factors are cut off", HEADER, "(nearest & ~nan & ~tiny)", "(x & ~nan & ~tiny)"),
        ("a nan may become an infinity", HEADER, "(nearest & ~nan & ~tiny) | (quiet & nan)", "(nearest & ~tiny)"),
        ("subnormal numbers stay", HEADER, "(nearest & ~nan & ~tiny)", "(nearest & ~nan)"),
        ("only the first products of pairs in plain arithmetic", HEADER, "        (sum) += (nl_sums)(one_ & upper_) * (nl_sums)(other_ & upper_);", "        (void)upper_;"),
        ("one column: both products by the first factor", HEADER, "x[0] * x[1] + x[2] * x[3]", "x[0] * x[1] + x[0] * x[3]"),
        ("rows of a pair change places", HEADER, "nl_words) | __builtin_convertvector(nl_rounded(second), nl_words) << 16", "nl_words) << 16 | __builtin_convertvector(nl_rounded(second), nl_words)"),
        ("the end of a row is paired with itself", HEADER, "other = nl_take(second + i, 0, count - i)", "other = nl_take(first + i, 0, count - i)"),
        ("an odd row is paired with what follows it", HEADER, "2 * line + 1 < p->rows ? from", "2 * line < p->rows ? from"),
        ("an odd number is paired with what follows it", HEADER, "floats < 2 * count ? floats : 2 * count", "2 * count"),
        ("units of a line begin one late", HEADER, "(unit - line * p->units) * NL_PAIRS_OF_UNIT;", "(unit - line * p->units) * (NL_PAIRS_OF_UNIT + 1);"),
        ("the second operand overwrites the first", HEADER, "    *work += (p.lines * p.words + 1023) / 1024 * 1024;", "    *work += p.lines * p.words / 2048 * 1024;"),
        ("a row's pairs begin without its padding", HEADER, "one = first + i - before,", "one = first + i,"),
        ("the second of a pair beyond its row", HEADER, "-other, length - other)", "-other, length - one)"),
        ("the end of a row left out", HEADER, "count - NL_PAIRED)), (count + 1) / 2);", "count - NL_PAIRED)), count / 2);"),
        ("columns that are a stride apart", CONV, "Pairs.APART, pad, step)", "Pairs.APART, pad, 1)"),
        ("every column of a single image's outputs", CONV, "(*g.strides[:2], 2 * step)", "(*g.strides[:2], step)"),
        ("padding counts twice", CONV, "(*g.padding[:2], 0)", "(*g.padding[:2], pad)"),
        ("rows of the data gradient's filters", CONV, "Pairing(each * taps, g.K, g.K, Pairs", "Pairing(each * taps - 1, g.K, g.K, Pairs"),
        ("groups share a pair", CONV, " or (g.groups > 1 and channels // g.groups % 2)", ""),
        ("pairs wherever there are channels", CONV, "    return products * (inner - half(inner)) // inner >=", "    return True or products >="),
        ("short lines cost nothing", CONV, " + COST_OF_LINE * lines", ""),
        ("empty lanes of maps do not count", CONV, "g.flops // 2 // maps * round_up(maps, VECTOR)", "g.flops // 2"),
        ("a pointwise kernel pairs each row with itself", POINTWISE, "other = nl_take(x + step + j,", "other = nl_take(x + j,"),
        ("a pointwise kernel pairs the first group's lanes only", POINTWISE, "(a->group * channels + c) * ROWS(m) * step + lane", "c * ROWS(m) * step + lane"),
        ("images without a partner", CONV, "    if g.N % 2:", "    if False:"),
        ("odd rows are paired as they are packed", CONV, "kind = Pairs.NEIGHBOURS if row % 2 else kind", "kind = Pairs(kind)"),
        ("errors of later pairs begin at half their place", UPDATE, "* N + a->n0) * READS;", "* N + a->n0);"),
        ("vectors of later pairs lie at half their place", UPDATE, "(from + 2 * at)", "(from + at)"),
        ("the last errors of later pairs lie at half their place", UPDATE, "(at + i) * READS, 1)", "at + i, 1)"),
        ("rows of later pairs begin at half their place", STRIPS, "m[IN_W] * m[IMAGES] * READS;", "m[IN_W] * m[IMAGES];"),
        ("columns of later pairs begin at half their place", ROWS, "all + lo) * READS;", "all + lo);"),
        ("runs of later pairs are half as far apart", ROWS, "from_step * READS, n)", "from_step, n)"),
        ("steps of a second factor change places", PAIRS, "*reversed(other.steps_of_numbers)", "*other.steps_of_numbers"),
        ("steps of stored factors counted in floats", PAIRS, "(step // x.itemsize for step in x.strides)", "(step // 4 for step in x.strides)"),
        ("an odd row of B is paired with what follows it", PACKING, "is_second ? first + row : 0", "first + row"),
        ("a line that is packed early reaches into the next panel", TAKING, "0, g.depth - 1, steps_of", "0, g.depth, steps_of"),
        ("an odd row of B that is packed early is paired with what follows it", TAKING, "0, g->numbers / 2, steps_of", "0, (g->numbers + 1) / 2, steps_of"),
        ("the last line of panels that are packed early is left out", TAKING, "g.later ? later.line : 0, following", "g.later ? g.depth : 0, following"),
        ("the last line of a panel of B that is packed early is left out", TAKING, "TILE_COLUMNS, later.line, following", "TILE_COLUMNS, lines_of(g->numbers), following"),
        ("panels side by side begin elsewhere", PACKING, "w[1], w[2], 8, 9", "w[0], w[2], 8, 9"),
        ("lines of stored numbers change places", HEADER, "(nl_words)__builtin_shufflevector(first, second, 0", "(nl_words)__builtin_shufflevector(second, first, 0"),
        ("a panel's last line reaches into the next panel", PACKING, "second && (lines - k) * TILE_ROWS >= NL_PAIRED", "second != 0"),
        ("numbers behind the last block are paired", PRODUCT, "g->numbers = smaller(depth * OF_WORD, numbers - first * OF_WORD);", "g->numbers = depth * OF_WORD;"),
        ("blocks begin at half their depth", PRODUCT, "g.b.at = b + first * OF_WORD * g.b.row", "g.b.at = b + first * g.b.row"),
        ("subnormal numbers that are stored stay", HEADER, "    x &= ~(lower & 0x7fffu) & ~(upper & 0x7fff0000u);", "    (void)lower, (void)upper;"),
        ("a stored odd number is paired with what follows it", HEADER, "memcpy(&rest, from + i, (size_t)(count - i) * 2);", "memcpy(&rest, from + i, (size_t)(count - i + 1) * 2);"),
        ("the second line of stored numbers left out", HEADER, "(second ? (uint32_t)second[i] << 16 : 0u)", "0u"),
        ("stored numbers that are apart are neighbours", HEADER, "other = one + apart;\n        if (one >= 0 && other", "other = one + 1;\n        if (one >= 0 && other"),
        ("stored numbers in front of a row", HEADER, "const uint32_t lower = one >= 0 && one < length ? row[one] : 0", "const uint32_t lower = one < length ? row[one < 0 ? 0 : one] : 0"),
        ("a stored odd line is joined with what follows it", HEADER, "2 * line + 1 < p->rows ? lower + p->step : 0", "lower + p->step"),
        ("the end of a stored row is joined with what follows it", HEADER, "left < 2 * count ? left : 2 * count", "2 * count"),
        ("only the first operand is stored", CONV, "one._replace(stored=True), other._replace(stored=True)", "one._replace(stored=True), other"),
        ("stored factors are converted", KERNELS + "c/gemm.py", "    if not (rounded and are_stored(a, b)):", "    if True:"),
        ("plans outlive the precision", CPU + "backend.py", "        self.executor.clear()  # plans and calls", "        self.executor.replay.clear()  # plans and calls"),
    )
) + tuple(
    Mutant("factors", name, file, old, new)
    for name, file, old, new in (
        ("plain arithmetic passes for the instruction", KERNELS + "c/pairs.py", "if pairs == INSTRUCTION == pair_form(compiler)", "if pairs"),
        ("products of 16 bits pass for float32", KERNELS + "c/gemm.py", "    pairs = form_of({a.dtype.name, b.dtype.name}, pairs, compiler)", "    pass"),
        ("all unrolls are rounded", FACTORS, "form_of(call.units, call.samples, self", "form_of(10**3, 10**3, self"),
        ("all convolutions are rounded", FACTORS, 'int(dict(plan.variant).get("pairs", 0))', "pairs"),
        ("gradients of filters pass for the forward pass", FACTORS, 'if operation == "update":', "if False:"),
        ("without a compiler, too", FACTORS, "0 if self.compiler is None else self._form(", "self._form("),
        ("the backward pass is not asked", "neonlike/models/explain.py", "layer.products(backward)", "layer.products(False)"),
    )
) + tuple(
    Mutant("stored", name, file, old, new)
    for name, file, old, new in (
        ("subnormal results are stored as zeros", STORING, "__builtin_expect(tiny == 0, 1)", "1"),
        ("subnormal results of the second vector are not noted", HALVES, "NL_ADD_SUBNORMAL(*tiny, y);", "NL_ADD_SUBNORMAL(*tiny, x);"),
        ("old values are those of the first results", STORING, "nl_widen_bf16(widened, g->stored + c, count);", "nl_widen_bf16(widened, g->stored, count);"),
        ("sums of a step overwrite those of the one before", STORING, "                sum[r][j] = beta * ((const simd_anywhere *)(sums + c + r * row))[j] + alpha * sum[r][j];", "                sum[r][j] = alpha * sum[r][j];"),
        ("every step of the inner dimension is stored", PRODUCT, "g.last = k - first <= DEPTH;", "g.last = 1;"),
        ("the last step is not the last", PRODUCT, "g.last = k - first <= DEPTH;", "g.last = k - first < DEPTH;"),
        ("old values are added at each step", PRODUCT, "g.first = first == 0,", "g.first = 1,"),
        ("sums lie where panels are", PRODUCT, "        g.shared = work += padded(m * meta[4]);", "        g.shared = work;"),
        ("memory for sums as if rows had no gaps", LAUNCH, "m * sizes[4] + LANES if halved", "m * n + LANES if halved"),
        ("the result of other factors is stored, too", LAUNCH, "return c.dtype.name == BFLOAT16 and are_stored(a, b)", "return c.dtype.name == BFLOAT16"),
        ("a result that others read is only stored", KERNELS + "run/stage.py", "len(self.others) == 1 and not plan.kept(stage)", "len(self.others) == 1"),
        ("the result's array is chosen for a kernel that does not store it", KERNELS + "c/products.py", "if out is None or not self._is_stored(run, out):", "if True:"),
    )
)  # fmt: skip
