/* The inner part of a matrix product: packed panels of A times packed panels of B, a tile of C in vector registers.
 *
 * Before this is included, REAL is float or double, and PAIRS as in pairs.h.
 *
 * A panel of A is TILE_ROWS rows, column after column. A panel of B is up to TILE_COLUMNS columns, row after row; the
 * last one is one vector wide where that is enough. So the panel that begins at column q of B lies at q * depth.
 *
 * 12 x 2 vectors fill the 32 registers of AVX-512 (24 sums, 2 of B; A is broadcast from memory): 275 of the 280 GFLOP/s
 * that one core of the machine this was written on can do. 8 x 3, 6 x 4 and 14 x 2 measured the same.
 */
#ifndef NL_GEMM_TILE_H
#define NL_GEMM_TILE_H

#include <stdint.h>
#include <string.h>

#include "pairs.h"
#include "vecmath.h"

#if defined(__AVX512F__) || PAIRS == 3
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#if PAIRS == 3
#define TILE_ROWS 32 /* two of tiles.h */
#elif defined(__AVX512F__) || defined(__aarch64__)
#define TILE_ROWS 12 /* 32 registers */
#else
#define TILE_ROWS 4 /* 16 registers; also a multiple of an LSTM's four gates */
#endif

#define LANES ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define TILE_COLUMNS (2 * LANES)
#define TILE_SIZE (TILE_ROWS * TILE_COLUMNS)

typedef REAL simd __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL simd_anywhere __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

#define AHEAD 16 /* lines ahead that a factor is prefetched which is packed as it is multiplied */

NL_FN int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Columns of a panel, padding included, of which the first `left` (at least 1) are used. */
NL_FN int64_t panel_width(int64_t left) {
    return left > LANES ? TILE_COLUMNS : LANES;
}

/* Columns of all panels of a matrix with that many columns. */
NL_FN int64_t padded(int64_t columns) {
    return (columns + LANES - 1) / LANES * LANES;
}

/* A tile's factors: element (r, k) of A is a[r * row + k * column], line k of B begins at b[k * line]. */
struct factors {
    const REAL *a;
    int64_t row, column;
    const REAL *b;
    int64_t line, depth;
};

NL_FN void no_sums(simd sum[TILE_ROWS][2], const int vectors) {
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = (simd){0};
}

/* Add products to the sums of the first `rows` rows of a tile. A factor that is read for the first time can be packed
 * into pack_a or pack_b, so that waiting for memory overlaps with arithmetic. */
NL_FN void add_rows(struct factors f, simd sum[TILE_ROWS][2], const int rows, const int vectors, REAL *pack_a, REAL *pack_b) {
    const REAL *from[(TILE_ROWS + 2) / 3]; /* one pointer for three rows: addressing modes add 0, 1 or 2 strides */
    for (int i = 0; i < (rows + 2) / 3; i++)
        from[i] = f.a + 3 * i * f.row;
    for (int64_t k = 0; k < f.depth; k++) {
        simd line[2];
        for (int j = 0; j < vectors; j++)
            line[j] = ((const simd_anywhere *)f.b)[j];
        if (pack_b) {
            for (int j = 0; j < vectors; j++) {
                ((simd *)pack_b)[j] = line[j];
                __builtin_prefetch(f.b + AHEAD * f.line + j * LANES);
            }
            __builtin_prefetch(f.b + AHEAD * f.line + vectors * LANES - 1); /* an unaligned line spans one cache line more */
            pack_b += vectors * LANES;
        }
        if (pack_a) {
            memcpy(pack_a, from[0], rows * sizeof(REAL));
            pack_a += TILE_ROWS;
            __builtin_prefetch(from[0] + AHEAD * f.column);
            __builtin_prefetch(from[0] + AHEAD * f.column + rows - 1);
        }
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < vectors; j++)
                ADD_PRODUCT(sum[r][j], from[r / 3][r % 3 * f.row], line[j]);
        for (int i = 0; i < (rows + 2) / 3; i++)
            from[i] += f.column;
        f.b += f.line;
    }
}

/* As add_rows, to the sums of a whole tile. */
NL_FN void add_products(struct factors f, simd sum[TILE_ROWS][2], const int vectors, REAL *pack_a, REAL *pack_b) {
    add_rows(f, sum, TILE_ROWS, vectors, pack_a, pack_b);
}

/* Multiply packed panels of A and B, the latter `vectors` vectors wide. */
NL_FN void sum_products(const REAL *a, const REAL *b, int64_t depth, simd sum[TILE_ROWS][2], const int vectors) {
    no_sums(sum, vectors);
    add_products((struct factors){a, 1, TILE_ROWS, b, vectors * LANES, depth}, sum, vectors, 0, 0);
}

NL_FN void keep_sums(simd sum[TILE_ROWS][2], REAL *tile, const int vectors) {
#pragma GCC unroll 12
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < vectors; j++)
            ((simd *)(tile + r * TILE_COLUMNS))[j] = sum[r][j];
}

/* sum_products for a single column, with rows in the lanes instead of columns, which would fill one lane. Four
 * independent accumulators hide the latency of additions. */
NL_FN void sum_column(const REAL *a, const REAL *b, int64_t depth, int64_t width, REAL *tile) {
    REAL sum[4][TILE_ROWS] = {{0}};
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4)
        for (int j = 0; j < 4; j++)
            for (int r = 0; r < TILE_ROWS; r++)
                ADD_NUMBER(sum[j][r], a[(k + j) * TILE_ROWS + r], b[(k + j) * width]);
    for (; k < depth; k++)
        for (int r = 0; r < TILE_ROWS; r++)
            ADD_NUMBER(sum[0][r], a[k * TILE_ROWS + r], b[k * width]);
    for (int r = 0; r < TILE_ROWS; r++)
        tile[r * TILE_COLUMNS] = sum[0][r] + sum[1][r] + (sum[2][r] + sum[3][r]);
}

/* tile = panel of A . panel of B, of which `count` columns are needed; rows of the tile are TILE_COLUMNS apart. Not
 * inlined: one copy, its registers alone. */
__attribute__((noinline, unused)) static void multiply(const REAL *a, const REAL *b, int64_t depth, int64_t count, REAL *tile) {
    simd sum[TILE_ROWS][2];
    if (count > LANES) {
        sum_products(a, b, depth, sum, 2);
        keep_sums(sum, tile, 2);
    } else if (count > 1) {
        sum_products(a, b, depth, sum, 1);
        keep_sums(sum, tile, 1);
    } else
        sum_column(a, b, depth, panel_width(count), tile);
}

/* One panel of A: rows first, first + 1, ... of each of `blocks` blocks of `height` rows; TILE_ROWS / blocks of each,
 * block after block, so that a tile holds all gates of its units. Rows past the end of a block are 0.
 * Element (r, k) lies at a[r * row + k * column]. */
__attribute__((unused)) static void pack_a(const REAL *a, int64_t row, int64_t column, int64_t height, int64_t blocks, int64_t first,
                                           int64_t depth, REAL *out) {
    const int64_t each = TILE_ROWS / blocks, count = smaller(height - first, TILE_ROWS);
    if (row == 1 && blocks == 1) {
        if (count < TILE_ROWS)
            memset(out, 0, depth * TILE_ROWS * sizeof(REAL));
        for (int64_t k = 0; k < depth; k++)
            if (count == TILE_ROWS) /* of known length: no call */
                memcpy(out + k * TILE_ROWS, a + k * column + first, TILE_ROWS * sizeof(REAL));
            else
                for (int64_t r = 0; r < count; r++)
                    out[k * TILE_ROWS + r] = a[k * column + first + r];
        return;
    }
    const REAL *from[TILE_ROWS];
    for (int64_t r = 0; r < TILE_ROWS; r++)
        from[r] = r < each * blocks && first + r % each < height ? a + (r / each * height + first + r % each) * row : 0;
    if (column == 1) {
        for (int64_t r = 0; r < TILE_ROWS; r++)
            for (int64_t k = 0; k < depth; k++)
                out[k * TILE_ROWS + r] = from[r] ? from[r][k] : 0;
        return;
    }
    for (int64_t k = 0; k < depth; k++)
        for (int64_t r = 0; r < TILE_ROWS; r++)
            out[k * TILE_ROWS + r] = from[r] ? from[r][k * column] : 0;
}

/* Rows lo to hi of B, depth rows by `columns` columns, into all its panels. Columns that pad a panel are left alone.
 * Element (k, j) lies at b[k * row + j]. */
__attribute__((unused)) static void pack_b(const REAL *b, int64_t row, int64_t columns, int64_t depth, int64_t lo, int64_t hi, REAL *out) {
    for (int64_t q = 0; q < columns; q += TILE_COLUMNS) {
        const int64_t width = panel_width(columns - q), count = smaller(width, columns - q);
        for (int64_t k = lo; k < hi; k++) {
            const REAL *const from = b + k * row + q;
            REAL *const to = out + q * depth + k * width;
            if (count == TILE_COLUMNS) /* of known length: no call */
                memcpy(to, from, TILE_COLUMNS * sizeof(REAL));
            else
                memcpy(to, from, count * sizeof(REAL));
        }
    }
}

#endif
