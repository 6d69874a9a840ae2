/* Products of quads (quads.h) by Intel's tiles (tiles.h): quads of weights are a tile's signed bytes, and words its unsigned ones.
 *
 * A panel of weights is ROWS rows high, two tiles; for each NL_TILE_SIDE words of the inner dimension it has these tiles whole.
 * Quads behind the last number are 0, so that it makes no difference what words they are multiplied by. */
#ifndef NL_QUAD_TILES_H
#define NL_QUAD_TILES_H

#include "quads.h"
#include "tiles.h"

_Static_assert(ROWS == 2 * NL_TILE_SIDE && LANES == NL_TILE_SIDE, "a panel is two tiles high, and a vector the row of a tile");

/* As pack_rows, for add_tiles. */
static inline void pack_tiles(const int8_t *from, int64_t rows, int64_t columns, int64_t panel, int32_t *quads, int64_t *less)
{
    const int64_t depth = nl_in_tiles((columns + 3) / 4);
    quads += panel * ROWS * depth;
    memset(quads, 0, (size_t)(ROWS * depth) * sizeof *quads);
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t row = panel * ROWS + r, count = row < rows ? columns : 0;
        const int8_t *const at = from + row * columns;
        int64_t sum = 0;
        for (int64_t k = 0; k < count; k++)
            sum += at[k];
        for (int64_t k = 0; k < count; k += 4 * NL_TILE_SIDE) {
            const int64_t left = count - k;
            memcpy(quads + k / 4 * ROWS + r * NL_TILE_SIDE, at + k, (size_t)(left < 4 * NL_TILE_SIDE ? left : 4 * NL_TILE_SIDE));
        }
        less[row] = 128 * sum;
    }
}

/* Sums of whole tiles, `high` by `wide`, over `depth` lines that fill tiles. */
static inline __attribute__((always_inline)) void add_whole(const int32_t *quads, const uint32_t *words, int64_t depth,
                                                            nl_ints sum[ROWS][2], const int high, const int wide)
{
    enum { LINE = 4 * NL_TILE_SIDE };
    int32_t *const to = (int32_t *)sum;
    nl_sums_zero();
    for (int64_t k = 0; k < depth; k += NL_TILE_SIDE, quads += ROWS * NL_TILE_SIDE, words += wide * NL_TILE_SIDE * NL_TILE_SIDE)
        nl_sums_add_bytes(quads, quads + NL_TILE_SIDE * NL_TILE_SIDE, LINE, words, wide * LINE, high, wide);
    nl_sums_store(to, to + 2 * NL_TILE_SIDE * NL_TILE_SIDE, 2 * LINE, high, wide);
}

APART void add_square(const int32_t *quads, const uint32_t *words, int64_t depth, nl_ints sum[ROWS][2])
{
    add_whole(quads, words, depth, sum, 2, 2);
}

APART void add_low(const int32_t *quads, const uint32_t *words, int64_t depth, nl_ints sum[ROWS][2])
{
    add_whole(quads, words, depth, sum, 1, 2);
}

APART void add_slim(const int32_t *quads, const uint32_t *words, int64_t depth, nl_ints sum[ROWS][2])
{
    add_whole(quads, words, depth, sum, 2, 1);
}

APART void add_single(const int32_t *quads, const uint32_t *words, int64_t depth, nl_ints sum[ROWS][2])
{
    add_whole(quads, words, depth, sum, 1, 1);
}

/* As add_lines, of `depth` lines that fill tiles. */
static inline void add_tiles(const int32_t *quads, const uint32_t *words, int64_t depth, nl_ints sum[ROWS][2], int64_t height, int vectors)
{
    if (height > NL_TILE_SIDE && vectors == 2)
        add_square(quads, words, depth, sum);
    else if (vectors == 2)
        add_low(quads, words, depth, sum);
    else if (height > NL_TILE_SIDE)
        add_slim(quads, words, depth, sum);
    else
        add_single(quads, words, depth, sum);
}

#endif
