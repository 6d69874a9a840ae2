/* Common parts of the unrolls of recurrent layers: the split of a step among threads, and its matrix product with an
 * epilogue.
 *
 * A step is one loop (GRU: two) over tiles, which threads share: panels of units (rows of h), of each one or more tiles
 * of samples. Each thread begins with the same tiles in all steps, so that their rows of W stay in its cache. Results
 * do not depend on which thread computes what.
 *
 * One sample, forward, is multiplied otherwise: see rnn_one.h.
 */
#ifndef NL_RNN_STEPS_H
#define NL_RNN_STEPS_H

#include "pair_panels.h"
#include "rnn_one.h"
#include "rnn_unroll.h"
#if PAIRS == 3
#include "rnn_tiles.h"
#endif
#include "team.h"

/* Whether role `next` of the step after `step` is the same tensor as role `now` of `step`. */
NL_FN int passed_on(const struct unroll *u, int64_t step, int now, int next) {
    return step + 1 < u->steps && operand(u, now, step) == operand(u, next, step + 1) &&
           stride(u, now, step) == stride(u, next, step + 1);
}

#if PAIRS == 3
#define PACK_PANEL pack_tiles
#else
#define PACK_PANEL pack_a
#endif

struct weights {
    const struct unroll *u;
    const REAL *w;
    int64_t gates, depth;
    REAL *packed;
};

__attribute__((unused)) static void pack_panels(const void *context, int64_t lo, int64_t hi, int64_t me) {
    const struct weights *s = context;
    const struct unroll *u = s->u;
    (void)me;
    for (int64_t p = lo; p < hi; p++)
        PACK_PANEL(s->w, u->w_row, u->w_column, u->units, s->gates, p * (TILE_ROWS / s->gates), s->depth, s->packed + p * TILE_ROWS * whole_lines(s->depth));
}

/* Pack the panels of `gates` blocks of rows of W, from `w` on, `depth` lines; for one sample `w` itself is multiplied. */
NL_FN void pack_weights(const struct unroll *u, const REAL *w, int64_t gates, int64_t depth, REAL *packed) {
    if (for_one(u))
        return;
    const struct weights s = {u, w, gates, depth, packed};
    const int64_t panels = panels_of(u->units, gates);
    nl_share(pack_panels, &s, panels, nl_unit(panels, u->threads, 1, 1), u->threads);
}

/* Name the lines that the epilogue of `at` will access: rows of a step's tensor are too far apart for hardware
 * prefetching. */
NL_FN void name_operands(const struct unroll *u, struct patch at, struct touched touched, struct ahead *ahead) {
    int64_t count = 0;
    for (int64_t role = 0; touched.roles >> role; role++) {
        const stored *from = touched.roles >> role & 1 ? operand(u, role, at.step + touched.ahead) : 0;
        const int64_t pitch = from ? stride(u, role, at.step + touched.ahead) : 0;
        for (int64_t g = 0; from && g < (touched.gated >> role & 1 ? touched.gates : 1); g++)
            for (int64_t r = 0; r < at.rows; r++) {
                const stored *row = from + (g * u->units + at.unit + r) * pitch + at.column;
                ahead->line[count++] = row;
                if (!HALF) /* a row in 16 bits fills one line */
                    ahead->line[count++] = row + TILE_COLUMNS / 2;
            }
    }
    ahead->count = count;
}

#if PAIRS != 3
/* As multiply, for a tile more than one vector wide, and fetch `ahead` meanwhile, a few lines at a time: the core waits
 * once it has asked for more than it can keep track of. W may have left the caches since the step before, and hardware
 * prefetching ends with each page. Not inlined: its registers alone. */
__attribute__((noinline, unused)) static void multiply_and_fetch(const REAL *a, const REAL *b, int64_t depth, const struct ahead *ahead,
                                                                 REAL *tile) {
    enum { EACH = 8 }; /* steps of the inner dimension between fetches */
    const int64_t parts = depth < EACH ? 1 : depth / EACH, several = (ahead->count + parts - 1) / parts;
    const int64_t bytes = (ahead->bytes / parts + 63) / 64 * 64;
    const stored *const *line = ahead->line, *const *const end = line + ahead->count;
    const char *next = ahead->next, *const last = next + ahead->bytes;
    simd sum[TILE_ROWS][2];
    no_sums(sum, 2);
    for (; depth >= EACH; depth -= EACH, a += EACH * TILE_ROWS, b += EACH * TILE_COLUMNS) {
        for (const stored *const *until = line + several; line < until && line < end; line++)
            __builtin_prefetch(*line);
        for (const char *until = next + bytes; next < until && next < last; next += 64)
            __builtin_prefetch(next, 0, 2);
        add_products((struct factors){a, 1, TILE_ROWS, b, TILE_COLUMNS, EACH}, sum, 2, 0, 0);
    }
    add_products((struct factors){a, 1, TILE_ROWS, b, TILE_COLUMNS, depth}, sum, 2, 0, 0);
    keep_sums(sum, tile, 2);
}
#endif

/* The patch of tile i of a stage. */
NL_FN struct patch patch_of(const struct stage *s, int64_t i, const REAL *tile) {
    const struct unroll *u = s->u;
    const int64_t tiles = tiles_of(u), each = TILE_ROWS / s->gates, unit = i / tiles * each, column = i % tiles * TILE_COLUMNS;
    const int64_t there = smaller(TILE_COLUMNS, u->samples - column), width = panel_width(there);
    return (struct patch){s->step, unit, smaller(each, u->units - unit), column, width, there, tile};
}

/* Multiply the panel of W at `a` by the columns of B that a patch stands for; fetch what its epilogue will access, and
 * as large a share of the `next` bytes behind this panel as the patch is of all samples. */
NL_FN void multiply_patch(const struct stage *s, struct patch at, const REAL *a, int64_t next, REAL *tile) {
    const struct unroll *u = s->u;
    const REAL *const b = s->b + at.column * s->depth;
    struct ahead ahead;
    name_operands(u, at, s->touched, &ahead);
#if PAIRS == 3
    ahead.next = (const char *)(a + TILE_ROWS * s->depth) + next / u->samples * at.column;
    ahead.bytes = next / u->samples * at.width;
    multiply_panels(a, b, s->depth, &ahead, tile, s->gates > 1 ? TILE_ROWS : at.rows, at.width);
#else
    if (at.width < TILE_COLUMNS) {
        for (int64_t i = 0; i < ahead.count; i++)
            __builtin_prefetch(ahead.line[i]);
        multiply(a, b, s->depth, smaller(at.width, u->samples - at.column), tile);
        return;
    }
    ahead.next = (const char *)(a + TILE_ROWS * s->depth) + next / u->samples * at.column;
    ahead.bytes = next / u->samples * TILE_COLUMNS;
    multiply_and_fetch(a, b, s->depth, &ahead, tile);
#endif
}

/* Parts lo to hi of the product; `finish` processes every tile while it is in the L1 cache. It is inlined, and a
 * second time for full tiles, where its loops have constant length. */
NL_FN void multiply_tiles(const struct stage *s, int64_t lo, int64_t hi, epilogue *finish) {
    const struct unroll *u = s->u;
    if (for_one(u)) {
        multiply_for_one(s, lo, hi, finish);
        return;
    }
    const int64_t tiles = tiles_of(u), panels = panels_of(u->units, s->gates), size = TILE_ROWS * s->depth;
    REAL *const next = s->next;
    REAL tile[TILE_SIZE] __attribute__((aligned(64)));
#if PAIRS == 3
    nl_tiles_begin(&nl_whole_tiles);
#endif
    for (int64_t i = lo; i < hi; i++) {
        struct patch at = patch_of(s, i, tile);
        const int64_t p = i / tiles, follows = p + 1 < panels ? size * (int64_t)sizeof(REAL) : 0;
        multiply_patch(s, at, s->packed + p * size, follows, tile);
        if (u->samples - at.column >= TILE_COLUMNS) {
            at.there = TILE_COLUMNS, at.width = TILE_COLUMNS; /* for the compiler */
            finish(u, at, TILE_COLUMNS, next);
        } else
            finish(u, at, HALF ? at.width : u->samples - at.column, next);
    }
#if PAIRS == 3
    nl_tiles_end();
#endif
}

/* `finish` without a product, on tiles lo to hi, which have no values. */
NL_FN void finish_tiles(const struct stage *s, int64_t lo, int64_t hi, epilogue *finish) {
    for (int64_t i = lo; i < hi; i++) {
        const struct patch at = patch_of(s, i, 0);
        finish(s->u, at, HALF ? at.width : smaller(TILE_COLUMNS, s->u->samples - at.column), s->next);
    }
}

/* MULTIPLY(finish) defines multiply_then_finish: a product and the epilogue `finish` of each tile, on all threads.
 * FINISH(finish) defines only_finish: the epilogue without a product. */
#define SHARED(name, finish, tiles_of_stage) \
    __attribute__((unused)) static void name##_part(const void *stage, int64_t lo, int64_t hi, int64_t me) { \
        struct stage mine = *(const struct stage *)stage; \
        const struct unroll u = *mine.u; /* what is stored cannot change it: its fields stay in registers */ \
        (void)me; \
        mine.u = &u; \
        tiles_of_stage(&mine, lo, hi, finish); \
    } \
    NL_FN void name(const struct stage s) { \
        const int64_t parts = parts_of(s.u, s.gates); \
        nl_share(name##_part, &s, parts, parts_at_a_time(s.u, parts), s.u->threads); \
    }
#define MULTIPLY(finish) SHARED(multiply_then_##finish, finish, multiply_tiles)
#define FINISH(finish) SHARED(only_##finish, finish, finish_tiles)

struct state {
    const struct unroll *u;
    int role;
    int64_t step;
    REAL *out;
};

/* Widen lines lo to hi of the panel of B, or of its pairs, that begins at column q. */
NL_FN void pack_lines(const struct unroll *u, const stored *from, int64_t step, int64_t q, int64_t lo, int64_t hi, REAL *out) {
    const int64_t width = panel_width(u->samples - q), count = smaller(width, u->samples - q);
    for (int64_t k = lo; k < hi; k++) {
#if PAIRS
        REAL first[TILE_COLUMNS], second[TILE_COLUMNS];
        const int both = 2 * k + 1 < u->units;
        read_line(first, from + 2 * k * step, count);
        if (both)
            read_line(second, from + (2 * k + 1) * step, count);
        nl_pair_lines(out + k * width, first, both ? second : 0, count);
#else
        read_line(out + k * width, from + k * step, count);
#endif
    }
}

__attribute__((unused)) static void pack_rows(const void *context, int64_t lo, int64_t hi, int64_t me) {
    const struct state *s = context;
    const struct unroll *u = s->u;
    (void)me;
    const stored *from = operand(u, s->role, s->step);
    const int64_t step = stride(u, s->role, s->step);
#if HALF
    for (int64_t q = 0; !for_one(u) && q < u->samples; q += TILE_COLUMNS)
        pack_lines(u, from + q, step, q, lo, hi, s->out + q * depth_of(u->units));
#elif PAIRS
    pack_row_pairs(from, step, u->samples, u->units, lo, hi, s->out);
#else
    if (!for_one(u))
        pack_b(from, step, u->samples, u->units, lo, hi, s->out);
#endif
    for (int64_t k = lo; for_one(u) && k < hi; k++)
        s->out[k] = load_one(from + k * step);
}

/* Pack the tensor `role` of `step`. */
NL_FN void pack_state(const struct unroll *u, int role, int64_t step, REAL *out) {
    const struct state s = {u, role, step, out};
    const int64_t lines = lines_of(u->units);
    nl_share(pack_rows, &s, lines, nl_unit(lines, u->threads, 16, 1), u->threads);
}

/* Where an epilogue writes row `row` of the next product's B, which has `depth`: to its place in the packed B or, with
 * pairs or in 16 bits, to `line`. keep_row follows. */
NL_FN REAL *packed_row(REAL *b, struct patch at, int64_t depth, int64_t row, REAL line[TILE_COLUMNS]) {
    return PAIRS || HALF ? line : b + at.column * depth + row * at.width;
}

/* Store the `count` values that an epilogue wrote to `packed_row`, unless they are there: in 16 bits as they are read where
 * they were stored, so that a state is the same whether it is passed on or packed. */
NL_FN void keep_row(REAL *b, struct patch at, int64_t depth, int64_t row, const REAL *line, int64_t count) {
#if PAIRS
    REAL *const pairs = b + at.column * depth_of(depth) + row / 2 * at.width;
    store_halves(pairs, line, count, row & 1, row % 2 == 0 && row + 1 == depth);
#elif HALF
    stored rounded[TILE_COLUMNS];
    write_line(rounded, line, count);
    read_line(b + at.column * depth + row * at.width, rounded, count);
#else
    (void)b, (void)at, (void)depth, (void)row, (void)line, (void)count;
#endif
}

NL_FN stored *row_of(const struct unroll *u, int role, struct patch at, int64_t row) {
    return operand(u, role, at.step) + row * stride(u, role, at.step) + at.column;
}

/* Where an epilogue writes a row of the tensor `role`: to its place or, in 16 bits, to `line`. store_row follows. */
NL_FN REAL *new_row(const struct unroll *u, int role, struct patch at, int64_t row, REAL *line) {
#if HALF
    (void)u, (void)role, (void)at, (void)row;
    return line;
#else
    (void)line;
    return row_of(u, role, at, row);
#endif
}

/* The same with the `count` values that it has; store_row follows if they are changed. */
NL_FN REAL *old_row(const struct unroll *u, int role, struct patch at, int64_t row, int64_t count, REAL *line) {
    REAL *const values = new_row(u, role, at, row, line);
    if (HALF)
        read_padded(values, row_of(u, role, at, row), at.there, count);
    return values;
}

/* Store what an epilogue wrote to `line`, unless it is in its place. */
NL_FN void store_row(const struct unroll *u, int role, struct patch at, int64_t row, const REAL *line) {
    if (HALF)
        write_line(row_of(u, role, at, row), line, at.there);
}

NL_FN REAL bias_of(const struct unroll *u, int64_t row) {
    return u->bias ? load_one(u->bias + row) : 0;
}

/* Add the tile to the tensor `role`. */
NL_FN void add_tile(const struct unroll *u, int role, struct patch at, int64_t count) {
    for (int64_t r = 0; r < at.rows; r++) {
        const REAL *tile = at.tile + r * TILE_COLUMNS;
        REAL line[TILE_COLUMNS], *sum = old_row(u, role, at, at.unit + r, count, line);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sum[i] += tile[i];
        store_row(u, role, at, at.unit + r, line);
    }
}

/* W in 16 bits, whose rows or columns are widened line by line. */
struct widening {
    const stored *from;
    int64_t step, next, length; /* between lines, and between numbers of a line */
    REAL *out;
};

__attribute__((unused)) static void widen_lines(const void *context, int64_t lo, int64_t hi, int64_t me) {
    const struct widening *w = context;
    (void)me;
    for (int64_t line = lo; line < hi; line++) {
        const stored *const from = w->from + line * w->step;
        REAL *const out = w->out + line * w->length;
        if (w->next == 1)
            read_line(out, from, w->length);
        for (int64_t k = 0; w->next != 1 && k < w->length; k++)
            out[k] = load_one(from + k * w->next);
    }
}

/* Let W be the given one; in 16 bits widened, in the memory before the packed W, unless its pairs are multiplied. */
NL_FN void widen_weights(struct unroll *u) {
#if HALF && !PAIRS
    const int64_t rows = (FORWARD ? WEIGHTS : 1) * u->units, depth = (FORWARD ? 1 : WEIGHTS) * u->units;
    const int by_column = u->w_row == 1 && u->w_column != 1;
    const struct widening by_rows = {u->given, u->w_row, u->w_column, depth, u->packed}, by_columns = {u->given, u->w_column, 1, rows, u->packed};
    const int64_t lines = by_column ? depth : rows;
    u->w = u->packed;
    if (for_one(u))
        return;
    nl_share(widen_lines, by_column ? &by_columns : &by_rows, lines, nl_unit(lines, u->threads, 16, 1), u->threads);
    u->packed += (rows * depth + 15) / 16 * 16;
    u->w_row = by_column ? 1 : depth;
    u->w_column = by_column ? rows : 1;
#elif !PAIRS
    u->w = u->given;
#else
    (void)u;
#endif
}

/* With pairs: let W be its pairs along the inner dimension, which take the memory before the packed W. Its rows or its
 * columns are contiguous. */
NL_FN void pair_weights(struct unroll *u) {
#if PAIRS
    const int64_t rows = (FORWARD ? WEIGHTS : 1) * u->units, depth = (FORWARD ? 1 : WEIGHTS) * u->units;
    const int neighbours = u->w_column == 1;
    const int64_t by_row[NL_PAIRING] = {rows, depth, u->w_row, NL_NEIGHBOURS, 0, 0, HALF};
    const int64_t by_column[NL_PAIRING] = {depth, rows, u->w_column, NL_ROWS, 0, 0, HALF};
    u->w = nl_pair_up((const float *)(const void *)u->given, neighbours ? by_row : by_column, &u->packed, u->threads);
    u->w_row = neighbours ? lines_of(depth) : 1;
    u->w_column = neighbours ? 1 : rows;
#else
    (void)u;
#endif
}

/* Defined by the template: pack W, and all steps. */
static void pack(const struct unroll *u);
static void run(const struct unroll *u);

/* A group of samples through all steps: lo and hi are tiles. */
__attribute__((unused)) static void run_group(const void *context, int64_t lo, int64_t hi, int64_t me) {
    const struct unroll *const whole = context;
    struct unroll group = *whole;
    (void)me;
    group.first = lo * TILE_COLUMNS;
    group.samples = smaller(hi * TILE_COLUMNS, whole->samples) - group.first;
    group.work += group.first * whole->units * BUFFERS;
    group.threads = 1;
    run(&group);
}

/* Tiles of a group of samples that a thread takes through all steps; 0: all threads share each step.
 *
 * Samples do not depend on each other. A thread that keeps its own never waits for others, nor reads what these have
 * written a moment before, which comes from their caches slowly: on two threads of a Zen 4, an LSTM of 512 units and 64
 * samples took 1.2 times as long backward without groups, one of 256 units 1.4 times. But each thread reads all of W in
 * each step, which has to come from a cache then, and needs about as many samples as the others. */
NL_FN int64_t group_of(const struct unroll *u) {
    enum { MOST_BYTES = 8 << 20, MOST_TILES = 2 };
    const int64_t tiles = tiles_of(u), each = (tiles + u->threads - 1) / u->threads;
    const int64_t bytes = WEIGHTS * u->units * u->units * (int64_t)sizeof(REAL), vectors = padded(u->samples) / LANES;
    if (!GROUPED || !u->apart || u->threads == 1 || bytes > MOST_BYTES || 2 * each * u->threads * 8 > vectors * 9)
        return 0;
    return smaller(each, MOST_TILES);
}

NL_FN void run_all(const struct unroll *u) {
    const int64_t each = group_of(u);
    pack(u);
    if (each)
        nl_share(run_group, u, tiles_of(u), each, u->threads);
    else
        run(u);
}

/* UNROLL(name) defines the kernel. */
#define UNROLL(name) \
    void name(stored *const *table, const int64_t *strides, int64_t steps, int64_t units, int64_t samples, int64_t apart, \
              const stored *w, int64_t w_row, int64_t w_column, const stored *bias, const double *numbers, REAL *work, int64_t threads) { \
        struct unroll u = {table, strides, steps, units, 0, samples, w, 0, w_row, w_column, bias, numbers, work, \
                                 work + padded(samples) * units * BUFFERS, threads, \
                                 FORWARD && !PAIRS && samples == 1 && w_column == 1 && w_row > 0, (int)apart}; \
        widen_weights(&u); \
        pair_weights(&u); \
        run_all(&u); \
    }

#endif
