"""Faults in matrix products by Intel's tiles (AMX)."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, C, Mutant

HEADER, PANELS, PRODUCT, CHOICE = C + "tiles.h", C + "gemm_tiles.j2", C + "gemm_packed.c.j2", KERNELS + "c/gemm.py"

MUTANTS = tuple(
    Mutant("tiles", name, file, old, new)
    for name, file, old, new in (
        ("words behind the end of A's rows are left as they were", PANELS, "            memset(out, 0, NL_TILE_SIDE * NL_TILE_SIDE * sizeof(REAL));", "            (void)0;"),
        ("words behind the end of A's columns are left as they were", PANELS, "        square[k] = (simd){0};\n", ""),
        ("lines behind the end of B are left as they were", PRODUCT, "        memset(packed + (q - left) * g->depth + lines * width, 0, ", "        memset(packed + (q - left) * g->depth, 0, 0 * "),
        ("the inner dimension fills no tiles", PRODUCT, "(depth + NL_TILE_SIDE - 1) / NL_TILE_SIDE * NL_TILE_SIDE", "depth"),
        ("both tiles of a panel of A are the first", PANELS, "nl_tile_load(5, a + NL_TILE_SIDE * NL_TILE_SIDE, LINE)", "nl_tile_load(5, a, LINE)"),
        ("sums of two tiles change places", PANELS, "nl_tile_store(1, to + NL_TILE_SIDE, row", "nl_tile_store(2, to + NL_TILE_SIDE, row"),
        ("alpha is left out", PANELS, "direct = whole && g->alpha == 1 && (g", "direct = whole && (g"),
        ("beta is left out", PANELS, " && (g->beta == 0 || g->beta == 1);", ";"),
        ("what C held is left out", PANELS, "    if (direct && g->beta == 1) {", "    if (0) {"),
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
)  # fmt: skip
