/* Products of unrolls by Intel's tiles (tiles.h): panels of W, and the tile of a patch.
 *
 * A panel of W is two tiles high. For each NL_TILE_SIDE lines of the inner dimension it has these tiles whole; lines of B are a
 * tile's rows as they lie. Of both, lines behind the last are zero. */
#ifndef NL_RNN_TILES_H
#define NL_RNN_TILES_H

#include "rnn_unroll.h"
#include "tiles.h"

_Static_assert(TILE_ROWS == 2 * NL_TILE_SIDE && LANES == NL_TILE_SIDE, "a panel is two tiles high, and a vector the row of a tile");

/* As pack_a, of `depth` lines that may fill no tiles. */
__attribute__((unused)) static void pack_tiles(const REAL *a, int64_t row, int64_t column, int64_t height, int64_t blocks, int64_t first,
                                               int64_t depth, REAL *out) {
    for (int64_t k = 0; k < depth; k += NL_TILE_SIDE, out += TILE_ROWS * NL_TILE_SIDE) {
        REAL line[NL_TILE_SIDE][TILE_ROWS] = {{0}};
        pack_a(a + k * column, row, column, height, blocks, first, smaller(NL_TILE_SIDE, depth - k), line[0]);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int i = 0; i < NL_TILE_SIDE; i++)
                out[r * NL_TILE_SIDE + i] = line[i][r];
    }
}

/* Clear the lines of a packed B of so many numbers that only fill tiles: nothing else writes them. */
NL_FN void clear_ends(const struct unroll *u, REAL *b, int64_t numbers) {
    const int64_t lines = lines_of(numbers), depth = depth_of(numbers);
    for (int64_t q = 0; q < u->samples; q += TILE_COLUMNS) {
        const int64_t width = panel_width(u->samples - q);
        memset(b + q * depth + lines * width, 0, (size_t)((depth - lines) * width) * sizeof(REAL));
    }
}

/* A tile of `high` by `wide` tiles of the processor; fetch `ahead` meanwhile, a few lines at a time. */
NL_FN void multiply_whole(const REAL *a, const REAL *b, int64_t depth, const struct ahead *ahead, REAL *tile, const int high, const int wide) {
    enum { LINE = NL_TILE_SIDE * sizeof(REAL) };
    const int64_t parts = depth / NL_TILE_SIDE, several = (ahead->count + parts - 1) / parts;
    const int64_t bytes = (ahead->bytes / parts + 63) / 64 * 64;
    const stored *const *line = ahead->line, *const *const end = line + ahead->count;
    const char *next = ahead->next, *const last = next + ahead->bytes;
    nl_sums_zero();
    for (int64_t k = 0; k < depth; k += NL_TILE_SIDE, a += TILE_ROWS * NL_TILE_SIDE, b += wide * NL_TILE_SIDE * NL_TILE_SIDE) {
        for (const stored *const *until = line + several; line < until && line < end; line++)
            __builtin_prefetch(*line);
        for (const char *until = next + bytes; next < until && next < last; next += 64)
            __builtin_prefetch(next, 0, 2);
        nl_sums_add(a, a + NL_TILE_SIDE * NL_TILE_SIDE, LINE, b, wide * LINE, high, wide);
    }
    nl_sums_store(tile, tile + NL_TILE_SIDE * TILE_COLUMNS, 2 * LINE, high, wide);
}

/* Not inlined: their registers alone. */
#define PANELS_OF(name, high, wide)                                                                                                              \
    __attribute__((noinline, unused)) static void name(const REAL *a, const REAL *b, int64_t depth, const struct ahead *ahead, REAL *tile) { \
        multiply_whole(a, b, depth, ahead, tile, high, wide);                                                                                    \
    }
PANELS_OF(multiply_square, 2, 2)
PANELS_OF(multiply_low, 1, 2)
PANELS_OF(multiply_slim, 2, 1)
PANELS_OF(multiply_single, 1, 1)

/* Multiply a panel of W, of which `rows` rows count, by one of B, `width` wide. */
NL_FN void multiply_panels(const REAL *a, const REAL *b, int64_t depth, const struct ahead *ahead, REAL *tile, int64_t rows, int64_t width) {
    if (rows > NL_TILE_SIDE && width > NL_TILE_SIDE)
        multiply_square(a, b, depth, ahead, tile);
    else if (width > NL_TILE_SIDE)
        multiply_low(a, b, depth, ahead, tile);
    else if (rows > NL_TILE_SIDE)
        multiply_slim(a, b, depth, ahead, tile);
    else
        multiply_single(a, b, depth, ahead, tile);
}

#endif
