/* Input rows packed into contiguous strips, for conv/direct, maps, thin and update. The including file defines real, LANES,
 * and the fields of the meta array (META and PHASE in conv/plan.py). */
#ifndef NL_CONV_STRIPS_H
#define NL_CONV_STRIPS_H
#include <stdint.h>
#include <string.h>
#include "conv_rows.h"

#ifndef STEP
#define STEP 1 /* else the stride, where rows are packed with the columns between those that a tap reads */
#endif

/* A unit of work: a block of output rows and columns, for some images and a range of map tiles of one group. */
struct area {
    const int64_t *phase;
    int64_t group, tile_lo, tile_hi; /* map tiles */
    int64_t plane, p0, p1, q0, q1, n0, n1;
    int64_t lanes, acc_step; /* of an output row or, if flat, of all rows; and rounded up to whole tiles */
    int64_t pitch;           /* flat: lanes from an output row to the next one's */
    int64_t sums_row;
};

/* Layout of a strip, the columns of one input row that taps read: columns of equal residue modulo the stride are
 * contiguous. */
struct strip {
    int64_t size, least; /* offset of the first column */
    int64_t *base, *reach; /* of each residue: its offset; columns beyond the block's, -1 if no tap reads it */
    int64_t *taps; /* offset of each tap */
};

static void lay_out(const struct area *a, const int64_t *offsets, struct strip *strip)
{
    const int64_t *ph = a->phase, ns = ph[TAPS_W], step = ph[STEP_W], nb = a->n1 - a->n0;
    strip->size = 0;
    strip->least = ns > 0 ? offsets[1] : 0;
    for (int64_t s = 1; s < ns; s++)
        strip->least = offsets[2 * s + 1] < strip->least ? offsets[2 * s + 1] : strip->least;
    for (int64_t f = 0; f < step; f++) {
        strip->reach[f] = -1;
        for (int64_t s = 0; s < ns; s++) {
            const int64_t at = offsets[2 * s + 1] - strip->least;
            if (at % step == f && at / step > strip->reach[f])
                strip->reach[f] = at / step;
        }
        strip->base[f] = strip->size;
        if (strip->reach[f] >= 0)
            strip->size += (a->q1 - a->q0 + strip->reach[f]) * nb;
    }
    strip->size = a->pitch > 0 ? a->pitch : ((strip->size + LANES - 1) / LANES | 1) * LANES; /* an odd number of vectors, so that strips do not start in the same cache set */
    for (int64_t s = 0; s < ns; s++) {
        const int64_t at = offsets[2 * s + 1] - strip->least;
        strip->taps[s] = strip->base[at % step] + at / step * nb;
    }
}

/* Input rows that the unit reads: planes inside the image, and rows inside it; for flat areas also the rows outside,
 * which are zero. */
struct rows {
    int64_t plane_count, row_count, *planes, *depth_taps; /* each plane in the image, and the tap that reads it */
    int64_t first, reach, *slots; /* of rows first to first + reach: index of the strip, or -1 */
};

static void find_rows(const int64_t *m, const struct area *a, struct rows *rows)
{
    const int64_t *ph = a->phase, *dt = m + ph[AT_D], *dr = m + ph[AT_H], nr = ph[TAPS_H], step = ph[STEP_H];
    rows->reach = ph[ROW_REACH];
    rows->first = a->p0 * step + ph[ROW_LEAST];
    rows->plane_count = rows->row_count = 0;
    for (int64_t t = 0; t < ph[TAPS_D]; t++) {
        const int64_t d = a->plane * ph[STEP_D] + dt[2 * t + 1];
        if (d >= 0 && d < m[IN_D]) {
            rows->planes[rows->plane_count] = d;
            rows->depth_taps[rows->plane_count++] = t;
        }
    }
    for (int64_t i = 0; i < rows->reach; i++)
        rows->slots[i] = -1;
    for (int64_t p = a->p0; p < a->p1; p++)
        for (int64_t r = 0; r < nr; r++) {
            const int64_t h = p * step + dr[2 * r + 1];
            if (a->pitch > 0 || (h >= 0 && h < m[IN_H]))
                rows->slots[h - rows->first] = 0;
        }
    for (int64_t i = 0; i < rows->reach; i++)
        if (rows->slots[i] == 0)
            rows->slots[i] = rows->row_count++;
}

/* Input columns that the strips of an area hold. */
static void columns_read(const int64_t *m, const struct area *a, const struct strip *strip, int64_t *lo, int64_t *hi)
{
    const int64_t first = a->q0 * a->phase[STEP_W] + strip->least;
    const int64_t last = first + (a->q1 - a->q0) * a->phase[STEP_W] + a->phase[TAPS_W];
    *lo = first < 0 ? 0 : first;
    *hi = last > m[IN_W] ? m[IN_W] : last;
}

/* A row of the input: that of channel c (of the group), plane d and height h. */
static const real *input_row(const real *in, const int64_t *m, const struct area *a, int64_t c, int64_t d, int64_t h)
{
    return in + (((a->group * m[CHANNELS] + c) * m[IN_D] + d) * m[IN_H] + h) * m[IN_W] * m[IMAGES] * READS;
}

static inline void prefetch(const real *from, const real *to)
{
    for (; from < to; from += 64 / sizeof(real))
        __builtin_prefetch(from, 0, 2);
}

/* Input to prefetch before it is packed: channels c to c + count of an area. */
struct ahead {
    const struct area *a;
    const struct rows *rows;
    int64_t c, count, done; /* rows prefetched so far */
};

/* Prefetch another share of it during other computation; all is prefetched when share == shares. */
static void prefetch_share(const real *in, const int64_t *m, const struct strip *strip, struct ahead *ahead, int64_t share, int64_t shares)
{
    const struct area *a = ahead->a;
    const struct rows *rows = ahead->rows;
    const int64_t until = ahead->count * rows->plane_count * share / shares;
    int64_t lo, hi;
    columns_read(m, a, strip, &lo, &hi);
    for (; ahead->done < until; ahead->done++)
        for (int64_t h = 0; h < rows->reach; h++)
            if (rows->slots[h] >= 0 && rows->first + h >= 0 && rows->first + h < m[IN_H]) {
                const real *row = input_row(in, m, a, ahead->c + ahead->done / rows->plane_count, rows->planes[ahead->done % rows->plane_count], rows->first + h);
                prefetch(row + lo * m[IMAGES] * READS, row + hi * m[IMAGES] * READS);
            }
}

/* Pack strips of channels c to c + count: [channel][plane][input row]. Rows are too short and too far apart for
 * hardware prefetching, so those AHEAD channels later are prefetched. */
static void pack(const real *in, const int64_t *m, const struct area *a, const struct rows *rows, const struct strip *strip, int64_t c, int64_t count, real *to)
{
    enum { AHEAD = 4 };
    const int64_t N = m[IMAGES], W = m[IN_W], move = a->phase[STEP_W], step = STEP > 1 ? 1 : move, channel = m[IN_D] * m[IN_H] * W * N;
    int64_t lo, hi;
    columns_read(m, a, strip, &lo, &hi);
    for (int64_t i = 0; i < count * rows->plane_count; i++)
        for (int64_t h = 0; h < rows->reach; h++) {
            if (rows->slots[h] < 0)
                continue;
            if (rows->first + h < 0 || rows->first + h >= m[IN_H]) {
                clear_few(to, strip->size);
                to += strip->size;
                continue;
            }
            const int64_t from = c + i / rows->plane_count;
            const real *row = input_row(in, m, a, from, rows->planes[i % rows->plane_count], rows->first + h);
            if (from + AHEAD < c + count)
                prefetch(row + (AHEAD * channel + lo * N) * READS, row + (AHEAD * channel + hi * N) * READS);
            for (int64_t f = 0; f < step; f++)
                if (strip->reach[f] >= 0)
                    pack_row(row, W, N, a->n0, a->n1, a->q0 * move + strip->least + f, step, a->q1 - a->q0 + strip->reach[f], to + strip->base[f]);
            to += strip->size;
        }
}

#endif
