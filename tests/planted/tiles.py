"""Faults in matrix products and convolutions by Intel's tiles (AMX)."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, KERNELS, C, Mutant

HEADER, PANELS, PRODUCT, CHOICE = C + "tiles.h", C + "gemm_tiles.j2", C + "gemm_packed.c.j2", KERNELS + "c/gemm.py"
DIRECT, UPDATE, PLAN = C + "conv/tiles.j2", C + "conv/update_tiles.j2", CPU + "primitives/conv/tiles.py"

MUTANTS = tuple(
    Mutant("tiles", name, file, old, new)
    for name, file, old, new in (
        ("words behind the end of A's rows are left as they were", PANELS, "            memset(out, 0, NL_TILE_SIDE * NL_TILE_SIDE * sizeof(REAL));", "            (void)0;"),
        ("words behind the end of A's columns are left as they were", PANELS, "        square[k] = (simd){0};\n", ""),
        ("lines behind the end of B are left as they were", PRODUCT, "        memset(packed + (q - left) * g->depth + lines * width, 0, ", "        memset(packed + (q - left) * g->depth, 0, 0 * "),
        ("the inner dimension fills no tiles", PRODUCT, "nl_in_tiles(depth)", "depth"),
        ("both tiles of a panel of A are the first", PANELS, "nl_sums_add(a, a + NL_TILE_SIDE * NL_TILE_SIDE, LINE", "nl_sums_add(a, a, LINE"),
        ("sums of two tiles change places", HEADER, "nl_tile_store(1, (char *)to + 64, step)", "nl_tile_store(2, (char *)to + 64, step)"),
        ("alpha is left out", PANELS, "direct = whole && g->alpha == 1 && (g", "direct = whole && (g"),
        ("beta is left out", PANELS, " && (g->beta == 0 || g->beta == 1);", ";"),
        ("what C held is left out", PANELS, "    if (direct && g->beta == 1)\n        nl_sums_load", "    if (0)\n        nl_sums_load"),
        ("threads do not begin with tiles", PRODUCT, "        nl_tiles_begin(&nl_whole_tiles);                                                   \\\n", ""),
        ("threads keep their tiles", PRODUCT, "        nl_tiles_end();                                                                    \\\n", ""),
        ("factors of the instruction change places", HEADER, '"tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum', '"tdpbf16ps %%tmm" #a ", %%tmm" #b ", %%tmm" #sum'),
        ("the emulation keeps subnormal numbers", HEADER, "return x & ~((nl_tile_row)((x & 0x7f800000u) == 0) & 0x7fffffffu);", "return x;"),
        ("the last panel of A reaches behind the working memory", CHOICE, "m + ROWS_BY_TILES)", "m + TILE_ROWS)"),
        ("wrong products pass", CHOICE, "        if not np.array_equal(found, wanted):", "        if found.shape != wanted.shape:"),
        ("the system is not asked", CHOICE, "tiles_work(ask_for_tiles(compiler), exact", "tiles_work(True, exact"),
        ("the variable has no effect", CHOICE, " and settings.AMX.get()", ""),
        ("narrow products use tiles", CHOICE, "with_tiles(pairs, compiler) if min(m, k, n) >= NARROWEST_BY_TILES else pairs", "with_tiles(pairs, compiler)"),
        ("tiles pass for vdpbf16ps in reports", KERNELS + "c/pairs.py", "    if pairs == TILES:\n        return \"bfloat16 by tdpbf16ps\"\n", ""),
    )
) + tuple(
    Mutant("conv_tiles", name, file, old, new)
    for name, file, old, new in (
        ("strips that fill up tiles are left as they were", DIRECT, "    memset(strips + channels * each, 0, ", "    memset(strips + channels * each, 0, 0 * "),
        ("filters that fill up tiles are left as they were", DIRECT, "            if (there < NL_TILE_SIDE || rows < KB)", "            if (0)"),
        ("both tiles of filters are the first", DIRECT, "nl_sums_add(w, w + NL_TILE_SIDE * NL_TILE_SIDE, LINE", "nl_sums_add(w, w, LINE"),
        ("sums of earlier channels are left out", DIRECT, "    if (to->first)\n        nl_sums_zero", "    if (1)\n        nl_sums_zero"),
        ("lanes of the second tile are those of the first", HEADER, "nl_tile_load(7, (const char *)b + 64, b_step)", "nl_tile_load(7, b, b_step)"),
        ("threads do not begin with tiles", C + "conv/direct.c.j2", "    nl_tiles_begin(&nl_whole_tiles);\n", ""),
        ("narrow convolutions use tiles", PLAN, "    if min(g.C, g.K) // g.groups < NARROWEST_BY_TILES:", "    if min(g.C, g.K) < 1:"),
        ("images that fill no tiles have gradients by them", PLAN, " or g.N % (2 * TILE_SIDE)", " or g.N % 2"),
        ("gradients: both tiles of channels are the first", UPDATE, "*low = x + NL_TILE_SIDE * each;", "*low = x;"),
        ("gradients: every position reads the first one's rows", UPDATE, "g->m[ph[AT_H] + 2 * w->r + 1];", "g->m[ph[AT_H] + 1];"),
        ("gradients: rows of the padding are read", UPDATE, "row = w->range[0]; row < w->range[1]", "row = 0; row < w->range[1]"),
        ("gradients: sums behind the last channel are written", UPDATE, "whole = count % NL_TILE_SIDE == 0;", "whole = 1;"),
        ("gradients: sums of earlier areas are left out", UPDATE, "    if (whole)\n        nl_sums_load", "    if (0)\n        nl_sums_load"),
        ("workspaces are those without tiles", CPU + "primitives/conv/hooks.py", "dict.fromkeys((0, 1, with_tiles(1, self.compiler)))", "dict.fromkeys((0, 1))"),
        ("pointwise: every channel is the first", C + "conv/pointwise.c.j2", "memcpy(panel + i * TILE, x + i * step,", "memcpy(panel + i * TILE, x,"),
        ("pointwise: every tile of channels reads the first one's filters", C + "conv/pointwise.c.j2", "(int32_t)(i * NL_TILE_SIDE * KB) };", "0 };"),
        ("convolutions of few outputs use tiles", PLAN, "    elif few_positions(words, backward, vector, itemsize):", "    elif words is None:"),
        ("sums are not of whole tiles of channels", CPU + "primitives/conv/plan.py", "some = even(ceil_div(channels, each), some // each) * each", "some = max(1, some)"),
    )
)  # fmt: skip
