/* A step's product for one sample, forward: rows of W that are contiguous are multiplied where they are (packing them
 * takes as long as several steps), and the lanes of the epilogue are units, whose values are gathered from the rows of
 * the operands.
 */
#ifndef NL_RNN_ONE_H
#define NL_RNN_ONE_H

#include "rnn_unroll.h"

#define QUARTER (VECTOR_BYTES / sizeof(REAL) < 4 ? 2 : 4)
typedef REAL quarter __attribute__((vector_size(QUARTER * sizeof(REAL))));

/* out[r] = row r of W . b, for rows that begin `step` apart. Not inlined: one copy, its registers alone. */
__attribute__((noinline, unused)) static void multiply_rows(const stored *w, int64_t step, int64_t rows, const REAL *b, int64_t depth, REAL *out) {
    enum { ROWS = 8 }; /* at a time */
    const int64_t whole = depth / LANES * LANES;
    for (int64_t first = 0; first < rows; first += ROWS, w += ROWS * step) {
        const int64_t there = smaller(ROWS, rows - first);
        const stored *row[ROWS];
        simd sum[ROWS];
        for (int r = 0; r < ROWS; r++) {
            row[r] = w + (r < there ? r : 0) * step;
            sum[r] = (simd){0};
        }
        for (int64_t k = 0; k < whole; k += LANES) {
            const simd line = *(const simd_anywhere *)(b + k);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++)
                sum[r] += load(row[r] + k) * line;
        }
        quarter part[ROWS]; /* lanes are added in vectors as long as these are wide enough */
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            const union {
                simd whole;
                quarter parts[LANES / QUARTER];
            } lanes = {sum[r]};
            part[r] = lanes.parts[0];
#pragma GCC unroll 8
            for (int i = 1; i < LANES / QUARTER; i++)
                part[r] += lanes.parts[i];
        }
        for (int r = 0; r < there; r++) {
            REAL total = QUARTER == 4 ? (part[r][0] + part[r][1]) + (part[r][2] + part[r][3]) : part[r][0] + part[r][1];
            for (int64_t k = whole; k < depth; k++)
                total += load_one(row[r] + k) * b[k];
            out[first + r] = total;
        }
    }
}

/* Values of some units, from `first` on, of each role in lines of TILE_COLUMNS: those of the first gate, of the second. */
struct lines {
    stored *table[ROLES];
    int64_t strides[ROLES], first, count;
    stored values[ROLES][GATES_MOST][TILE_COLUMNS] __attribute__((aligned(64)));
};

/* Let each role that the stage reads or writes have lines, if there is an operand. */
NL_FN void name_lines(const struct stage *s, struct lines *l) {
    for (int64_t role = 0; role < ROLES; role++) {
        const int there = (s->touched.read | s->touched.written) >> role & 1 && operand(s->u, role, s->step);
        l->table[role] = there ? l->values[role][0] : 0;
        l->strides[role] = TILE_COLUMNS;
    }
}

/* Copy `roles` from the operands of a stage to lines, or back. */
NL_FN void move_lines(const struct stage *s, struct lines *l, int64_t roles, const int back) {
    const struct unroll *u = s->u;
    for (int64_t role = 0; roles >> role; role++) {
        stored *const there = roles >> role & 1 ? operand(u, role, s->step) : 0;
        const int64_t pitch = there ? stride(u, role, s->step) : 0;
        const int64_t gates = !there ? 0 : s->touched.gated >> role & 1 ? s->touched.gates : 1;
        for (int64_t g = 0; g < gates; g++) {
            stored *const from = there + (g * u->units + l->first) * pitch, *const line = l->values[role][g];
            for (int64_t i = 0; i < l->count; i++)
                if (back)
                    from[i * pitch] = line[i];
                else
                    line[i] = from[i * pitch];
        }
    }
}

/* The part that a thread computes in place of part `p`: in every other step those of its share come in reverse. So it
 * begins with the rows of W that it read last, which its cache still holds; in the same order each time, a share that
 * is larger than the cache would never be found there. */
NL_FN int64_t part_taken(const struct stage *s, int64_t p) {
    const int64_t parts = parts_of(s->u, s->gates), unit = parts_at_a_time(s->u, parts);
    const int64_t units = (parts + unit - 1) / unit, shares = smaller(s->u->threads, units);
    const int64_t mine = ((p / unit + 1) * shares - 1) / units; /* as workers split units */
    const int64_t first = units * mine / shares * unit, end = smaller(parts, units * (mine + 1) / shares * unit);
    return s->step % 2 ? first + end - 1 - p : p;
}

/* Parts lo to hi of the product for one sample. To `finish` units are what samples are otherwise: it is given operands
 * of one unit, whose columns are the units of a part. */
NL_FN void multiply_for_one(const struct stage *s, int64_t lo, int64_t hi, epilogue *finish) {
    const struct unroll *u = s->u;
    REAL tile[TILE_SIZE] __attribute__((aligned(64)));
    struct lines l;
    name_lines(s, &l);
    for (int64_t p = lo; p < hi; p++) {
        l.first = part_taken(s, p) * TILE_COLUMNS, l.count = smaller(TILE_COLUMNS, u->units - l.first);
        move_lines(s, &l, s->touched.read, 0);
        for (int64_t g = 0; g < s->gates; g++) {
            REAL *const sums = tile + g * (TILE_ROWS / s->gates) * TILE_COLUMNS;
            const int64_t from = g * u->units + l.first;
            multiply_rows(u->given + (s->row + from) * u->w_row, u->w_row, l.count, s->b, s->depth, sums);
            for (int64_t i = 0; u->bias && i < l.count; i++)
                sums[i] += load_one(u->bias + s->row + from + i);
        }
        const struct unroll units = {.table = l.table, .strides = l.strides, .steps = 1, .units = 1, .samples = l.count, .numbers = u->numbers, .threads = 1, .one = 1};
        const struct patch at = {0, 0, 1, 0, l.count, l.count, tile};
        if (l.count == TILE_COLUMNS)
            finish(&units, at, TILE_COLUMNS, s->next + l.first);
        else
            finish(&units, at, l.count, s->next + l.first);
        move_lines(s, &l, s->touched.written, 1);
    }
}

#endif
