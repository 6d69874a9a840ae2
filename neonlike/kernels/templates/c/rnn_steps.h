/* What the unrolls of recurrent layers share: who computes which rows, and a step's matrix product with an epilogue.
 *
 * An unroll runs in one parallel region. A thread owns some units (rows of h) for all steps, so it packs its own rows
 * of W, and they stay in its cache; threads wait for each other once (GRU: twice) a step. How sums are made does not
 * depend on the number of threads.
 */
#ifndef NL_RNN_STEPS_H
#define NL_RNN_STEPS_H

#include "gemm_tile.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* The operands of all steps: tensor `role` of step s begins at table[role * steps + s] (0: there is none), its rows
 * are strides[role * steps + s] apart. A column is one sample. */
struct unroll {
    REAL *const *table;
    const int64_t *strides;
    int64_t steps, units, samples;
    const REAL *w; /* element (r, k) lies at w[r * w_row + k * w_column] */
    int64_t w_row, w_column;
    const REAL *bias; /* 0: none */
    const double *numbers; /* of the activations */
    REAL *work; /* packed B of two steps (GRU: and more), then packed W */
};

/* The panels of rows that one of `count` threads owns. */
struct share {
    int64_t lo, hi;
};

NL_FN struct share share_of(int64_t panels, int64_t mine, int64_t count) {
    return (struct share){panels * mine / count, panels * (mine + 1) / count};
}

NL_FN int64_t panels_of(int64_t units, int64_t gates) {
    return (units + TILE_ROWS / gates - 1) / (TILE_ROWS / gates);
}

NL_FN REAL *operand(const struct unroll *u, int role, int64_t step) {
    return u->table[role * u->steps + step];
}

NL_FN int64_t stride(const struct unroll *u, int role, int64_t step) {
    return u->strides[role * u->steps + step];
}

/* Whether `next` of the step after `step` is the very tensor that is `now` of `step`. */
NL_FN int passed_on(const struct unroll *u, int64_t step, int now, int next) {
    return step + 1 < u->steps && operand(u, now, step) == operand(u, next, step + 1) &&
           stride(u, now, step) == stride(u, next, step + 1);
}

NL_FN void wait_for_all(int64_t count) {
    if (count > 1) {
#pragma omp barrier
    }
}

/* Pack the caller's panels of `gates` blocks of rows of W, from `w` on. */
NL_FN void pack_share(const struct unroll *u, const REAL *w, int64_t gates, struct share mine, int64_t depth, REAL *packed) {
    for (int64_t p = mine.lo; p < mine.hi; p++)
        pack_a(w, u->w_row, u->w_column, u->units, gates, p * (TILE_ROWS / gates), depth, packed + p * TILE_ROWS * depth);
}

/* The part of a tile that an epilogue finishes: units unit to unit + rows, samples column to column + count. */
struct patch {
    int64_t step, unit, rows, column, width;
    const REAL *tile;
};

typedef void epilogue(const struct unroll *u, struct patch at, int64_t count, REAL *next);

/* The tensors that an epilogue reads or writes: one bit a role, in `gated` those with a block of rows for each of
 * `gates` gates. They are those of the step `ahead` steps later. */
struct touched {
    int64_t roles, gated, gates, ahead;
};

/* Have the memory that the epilogue of `at` will touch come nearer while its product is computed: rows of a step's
 * tensor are far apart, so the processor does not guess them. */
NL_FN void fetch(const struct unroll *u, struct patch at, struct touched touched) {
    for (int64_t role = 0; touched.roles >> role; role++) {
        const REAL *from = touched.roles >> role & 1 ? operand(u, role, at.step + touched.ahead) : 0;
        const int64_t pitch = from ? stride(u, role, at.step + touched.ahead) : 0;
        for (int64_t g = 0; from && g < (touched.gated >> role & 1 ? touched.gates : 1); g++)
            for (int64_t r = 0; r < at.rows; r++) {
                const REAL *row = from + (g * u->units + at.unit + r) * pitch + at.column;
                __builtin_prefetch(row);
                __builtin_prefetch(row + TILE_COLUMNS / 2);
            }
    }
}

/* Packed W times packed B, the caller's panels of it; every tile goes to `finish` while it is in the nearest cache.
 * `finish` is inlined, and once more for full tiles, where its loops have a fixed length. */
NL_FN void product(const struct unroll *u, int64_t step, const REAL *packed, const REAL *b, int64_t depth, int64_t gates,
                   struct share mine, epilogue *finish, REAL *next, struct touched touched) {
    const int64_t each = TILE_ROWS / gates;
    REAL tile[TILE_SIZE] __attribute__((aligned(64)));
    for (int64_t p = mine.lo; p < mine.hi; p++)
        for (int64_t q = 0; q < u->samples; q += TILE_COLUMNS) {
            const int64_t width = panel_width(u->samples - q), unit = p * each;
            const struct patch at = {step, unit, smaller(each, u->units - unit), q, width, tile};
            fetch(u, at, touched);
            multiply(packed + p * TILE_ROWS * depth, b + q * depth, depth, smaller(width, u->samples - q), tile);
            if (u->samples - q >= TILE_COLUMNS)
                finish(u, at, TILE_COLUMNS, next);
            else
                finish(u, at, u->samples - q, next);
        }
}

/* `finish` without a product: on the caller's units, with no tile. */
NL_FN void each_patch(const struct unroll *u, int64_t step, int64_t gates, struct share mine, epilogue *finish, REAL *next) {
    const int64_t each = TILE_ROWS / gates;
    for (int64_t p = mine.lo; p < mine.hi; p++)
        for (int64_t q = 0; q < u->samples; q += TILE_COLUMNS) {
            const struct patch at = {step, p * each, smaller(each, u->units - p * each), q, panel_width(u->samples - q), 0};
            finish(u, at, smaller(TILE_COLUMNS, u->samples - q), next);
        }
}

/* Pack the tensor `role` of `step`, each thread a part of its rows; to be followed by wait_for_all. */
NL_FN void pack_state(const struct unroll *u, int role, int64_t step, int64_t mine, int64_t count, REAL *out) {
    const int64_t lo = u->units * mine / count, hi = u->units * (mine + 1) / count;
    pack_b(operand(u, role, step), stride(u, role, step), u->samples, u->units, lo, hi, out);
}

/* Where unit `unit` of a patch lies in a packed B of `depth` rows. */
NL_FN REAL *packed_row(REAL *b, struct patch at, int64_t depth, int64_t row) {
    return b + at.column * depth + row * at.width;
}

NL_FN REAL *row_of(const struct unroll *u, int role, struct patch at, int64_t row) {
    return operand(u, role, at.step) + row * stride(u, role, at.step) + at.column;
}

NL_FN REAL bias_of(const struct unroll *u, int64_t row) {
    return u->bias ? u->bias[row] : 0;
}

/* Add the tile to the tensor `role`. */
NL_FN void add_tile(const struct unroll *u, int role, struct patch at, int64_t count) {
    for (int64_t r = 0; r < at.rows; r++) {
        const REAL *tile = at.tile + r * TILE_COLUMNS;
        REAL *sum = row_of(u, role, at, at.unit + r);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sum[i] += tile[i];
    }
}

/* What a template defines: all steps, as thread `me` of `count`. */
static void run(const struct unroll *u, int64_t me, int64_t count);

NL_FN void run_on(const struct unroll *u, int64_t threads) {
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        run(u, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)threads;
    run(u, 0, 1);
}

#define UNROLL(name) \
    void name(REAL *const *table, const int64_t *strides, int64_t steps, int64_t units, int64_t samples, const REAL *w, \
              int64_t w_row, int64_t w_column, const REAL *bias, const double *numbers, REAL *work, int64_t threads) { \
        const struct unroll u = {table, strides, steps, units, samples, w, w_row, w_column, bias, numbers, work}; \
        run_on(&u, threads); \
    }

#endif
