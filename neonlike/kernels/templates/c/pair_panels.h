/* Panels of pairs (see pairs.h): of matrices that are packed or computed step by step, after gemm_tile.h.
 *
 * Panels for float and for pairs are laid out alike; of pairs there are half as many lines.
 */
#ifndef NL_PAIR_PANELS_H
#define NL_PAIR_PANELS_H

#include "gemm_tile.h"
#if PAIRS == 3
#include "tiles.h"
#endif

/* Lines of a panel with that many numbers along the inner dimension. */
NL_FN int64_t lines_of(int64_t depth) {
    return PAIRS ? (depth + 1) / 2 : depth;
}

/* As many lines, or the next multiple that fills tiles of the processor (tiles.h) where these multiply pairs. */
NL_FN int64_t whole_lines(int64_t lines) {
#if PAIRS == 3
    return nl_in_tiles(lines);
#else
    return lines;
#endif
}

/* Lines of a packed matrix with that many numbers along the inner dimension. */
NL_FN int64_t depth_of(int64_t numbers) {
    return whole_lines(lines_of(numbers));
}

#if PAIRS
typedef uint16_t nl_half_anywhere __attribute__((may_alias));

/* Pair each two lines of a panel of B in place; the last one of an odd number with zero. */
NL_FN void pair_panel(REAL *panel, int64_t lines, int64_t width) {
    for (int64_t k = 0; 2 * k < lines; k++) {
        const REAL *const first = panel + 2 * k * width;
        nl_pair_lines(panel + k * width, first, 2 * k + 1 < lines ? first + width : 0, width);
    }
}

/* As pack_b, pairs lo to hi of the rows of B. */
__attribute__((unused)) static void pack_row_pairs(const REAL *b, int64_t row, int64_t columns, int64_t rows, int64_t lo, int64_t hi, REAL *out) {
    for (int64_t q = 0; q < columns; q += TILE_COLUMNS) {
        const int64_t width = panel_width(columns - q), count = smaller(width, columns - q);
        for (int64_t k = lo; k < hi; k++) {
            const REAL *const first = b + 2 * k * row + q;
            nl_pair_lines(out + q * depth_of(rows) + k * width, first, 2 * k + 1 < rows ? first + row : 0, count);
        }
    }
}

/* Round the first `count` floats of a line of TILE_COLUMNS to the lower (0) or upper (1) halves of a line of pairs, whose
 * other halves another thread may write at the same time; `alone`: the upper halves become 0. Halves that pad the panel
 * may be written. */
NL_FN void store_halves(REAL *to, const REAL *line, int64_t count, int upper, int alone) {
    for (int64_t i = 0; i < count; i += NL_PAIRED) {
#if defined(NL_PAIR_INSTRUCTION)
        const nl_words halves = __builtin_convertvector(nl_rounded(*(const nl_words_anywhere *)(line + i)), nl_words);
        const uint32_t mask = alone ? 0xffffffffu : upper ? 0xaaaaaaaau : 0x55555555u;
        __asm__("vmovdqu16 %1, %0%{%2%}" : "+m"(*(nl_words_anywhere *)(to + i)) : "v"(upper ? halves << 16 : halves), "Yk"(mask));
#else
        const int64_t some = smaller(NL_PAIRED, count - i);
        nl_words x = {0};
        memcpy(&x, line + i, (size_t)some * sizeof *line);
        const nl_upper halves = nl_rounded(x);
        nl_half_anywhere *const at = (nl_half_anywhere *)(to + i);
        for (int64_t j = 0; j < some; j++)
            at[2 * j + upper] = halves[j];
        for (int64_t j = 0; alone && j < some; j++)
            at[2 * j + 1] = 0;
#endif
    }
}
#endif

#endif
