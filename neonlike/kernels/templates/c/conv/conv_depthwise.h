/* Geometry of a depthwise convolution: what conv_depthwise and conv_depthwise_update share (conv/depthwise.py describes
 * META). The lanes of a vector are LANES channels at one position (ACROSS_CHANNELS), or consecutive images of one
 * channel, read in place. Across channels the input is transposed first: whole rows, padded with zeros at both ends.
 * The including file defines real, LANES, vec, loose, INLINE, transpose and the fields of the meta array. */
#ifndef NL_CONV_DEPTHWISE_H
#define NL_CONV_DEPTHWISE_H
#include <stdint.h>
#include <string.h>

#define WIDE (ACROSS_CHANNELS ? LANES : 1) /* elements of a position, as they are read */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A unit of work: a block of output rows for channels c0 to c1. */
struct band {
    int64_t index, p0, p1, c0, c1;
    int64_t lo, hi; /* input rows that it reads */
};

/* Output columns with the same taps inside the image: `size` columns from `start`, the first of which reads from input
 * column `first`. */
struct run {
    int64_t start, size, first;
    int64_t taps;        /* of the row and these columns, in the image */
    const int64_t *list; /* of each: where it reads, number among the filter's */
};

/* The row of the input that tap i of output row p reads. */
INLINE int64_t row_read(const int64_t *m, int64_t p, int64_t i)
{
    return p / m[ROW_PHASES] * m[ROW_STEP] + m[m[ROW_TAPS_AT] + 2 * i + 1];
}

static struct band find_band(const int64_t *m, int64_t unit)
{
    const int64_t index = unit / m[UNIT_BLOCKS], c0 = unit % m[UNIT_BLOCKS] * m[UNIT_CHANNELS], *phases = m + m[ROW_PHASES_AT];
    struct band b = { .index = index, .p0 = index * m[BAND], .c0 = c0, .lo = m[IN_H] };
    b.p1 = smaller(b.p0 + m[BAND], m[OUT_H]);
    b.c1 = smaller(c0 + m[UNIT_CHANNELS], m[CHANNELS]);
    for (int64_t p = b.p0; p < b.p1; p++)
        for (int64_t i = phases[p % m[ROW_PHASES]]; i < phases[p % m[ROW_PHASES] + 1]; i++) {
            const int64_t h = row_read(m, p, i);
            if (h >= 0 && h < m[IN_H]) {
                b.lo = smaller(b.lo, h);
                b.hi = b.hi > h + 1 ? b.hi : h + 1;
            }
        }
    b.lo = smaller(b.lo, b.hi);
    return b;
}

/* The taps of output row p that are in the image, from `lo` to `hi` of those of its phase; returns where the first would
 * read, from the row `first` of the input. */
static int64_t find_rows(const int64_t *m, int64_t p, int64_t first, int64_t *lo, int64_t *hi)
{
    const int64_t *phases = m + m[ROW_PHASES_AT] + p % m[ROW_PHASES], begin = phases[0], end = phases[1];
    for (*lo = begin; *lo < end && (row_read(m, p, *lo) < 0 || row_read(m, p, *lo) >= m[IN_H]); ++*lo)
        ;
    for (*hi = *lo; *hi < end && row_read(m, p, *hi) >= 0 && row_read(m, p, *hi) < m[IN_H]; ++*hi)
        ;
    *lo -= begin;
    *hi -= begin;
    return (p / m[ROW_PHASES] * m[ROW_STEP] - first) * m[PITCH] * WIDE;
}

/* Run i of output row p, of whose phase the rows lo to hi are in the image. */
static struct run find_run(const int64_t *m, int64_t p, int64_t i, int64_t lo, int64_t hi)
{
    const int64_t *at = m + m[RUNS_AT] + 4 * i, *lists = m + m[LISTS_AT], across = at[3];
    return (struct run){ at[0], at[1], at[2], across * (hi - lo), m + lists[p % m[ROW_PHASES] * m[RUNS] + i] + 2 * across * lo };
}

#if ACROSS_CHANNELS
/* Transpose up to LANES channels of n positions, `step` apart at `from`, to one vector per position, stored at
 * places[position]. */
static void to_channels(const real *from, int64_t step, int64_t channels, int64_t n, const int32_t *places, real *to)
{
    int64_t i = 0;
    while (n >= LANES && i < n) {
        vec v[LANES];
        i = smaller(i, n - LANES); /* the last vector overlaps the one before */
#pragma GCC unroll 16
        for (int64_t k = 0; k < LANES; k++)
            v[k] = *(const loose *)(from + smaller(k, channels - 1) * step + i);
        transpose(v);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            *(vec *)(to + places[i + j]) = v[j];
        i += LANES;
    }
    for (; i < n; i++)
        for (int64_t k = 0; k < LANES; k++)
            to[places[i] + k] = from[smaller(k, channels - 1) * step + i];
}

/* Transpose the input rows that a unit reads. */
static void pack_rows(const int64_t *m, const struct band *b, const real *in, int32_t *places, real *to)
{
    const int64_t width = m[IN_W] * m[IMAGES], left = m[LEFT] * m[IMAGES], right = m[PITCH] - left - width, size = m[IN_H] * width;
    for (int64_t h = 0; h < b->hi - b->lo; h++) {
        real *row = to + h * m[PITCH] * LANES;
        memset(row, 0, (size_t)(left * LANES) * sizeof *row);
        memset(row + (left + width) * LANES, 0, (size_t)(right * LANES) * sizeof *row);
        for (int64_t i = 0; i < width; i++)
            places[h * width + i] = (int32_t)((h * m[PITCH] + left + i) * LANES);
    }
    to_channels(in + b->c0 * size + b->lo * width, size, b->c1 - b->c0, (b->hi - b->lo) * width, places, to);
}
#endif

#endif
