/* Packed input of a convolution with few channels and maps per group, for conv/thin and conv/thin_update: strips of all
 * rows that an area reads, including rows outside the image, so that each tap has the same offset from any output row.
 * The padding is cleared once per area and stays zero from group to group. The including file defines real, LANES,
 * INLINE and the fields of the meta array. */
#ifndef NL_CONV_THIN_H
#define NL_CONV_THIN_H
#include <stdint.h>
#include <string.h>
#include "conv_strips.h"

/* An area, and the offsets at which its taps read. */
struct thin {
    struct area a;
    struct strip strip;
    int64_t first, rows, planes, plane_size, channel_size; /* first row of the input, how many; elements */
    int64_t *plane;                                        /* planes in the image that taps read */
    int64_t *left, *right;                                 /* columns in the image, of each residue modulo the step */
    int64_t taps, *at, *tap;                               /* of a channel: offsets in the strips, indices in the filter window */
    int64_t row_step;                                      /* in the strips, from an output row to the next */
};

/* Numbers that lie_thin needs room for. */
static inline int64_t thin_numbers(const int64_t *ph)
{
    return ph[TAPS_D] + 4 * ph[STEP_W] + ph[TAPS_W] + 2 * ph[TAPS_D] * ph[TAPS_H] * ph[TAPS_W];
}

/* The area number index: phase, plane, block of rows, block of columns. */
static struct area thin_area(const int64_t *m, int64_t index)
{
    const int64_t *ph = m + m[PHASES_AT];
    struct area a = { .n1 = m[IMAGES], .sums_row = index };
    for (; index >= ph[UNITS]; ph += PHASE_SIZE)
        index -= ph[UNITS];
    a.phase = ph;
    a.q0 = index % ph[COLUMN_BLOCKS] * ph[COLUMN_BLOCK];
    index /= ph[COLUMN_BLOCKS];
    a.p0 = index % ph[ROW_BLOCKS] * ph[ROW_BLOCK];
    a.plane = index / ph[ROW_BLOCKS];
    a.p1 = a.p0 + ph[ROW_BLOCK] < ph[COUNT_H] ? a.p0 + ph[ROW_BLOCK] : ph[COUNT_H];
    a.q1 = a.q0 + ph[COLUMN_BLOCK] < ph[COUNT_W] ? a.q0 + ph[COLUMN_BLOCK] : ph[COUNT_W];
    a.lanes = (a.q1 - a.q0) * m[IMAGES];
    a.pitch = m[FLAT] ? a.lanes + ph[REACH_W] * m[IMAGES] : 0;
    a.acc_step = m[FLAT] ? a.pitch : (a.lanes + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    a.lanes += m[FLAT] ? (a.p1 - a.p0 - 1) * a.pitch : 0;
    return a;
}

/* Set up the strips of an area and clear them; numbers: scratch memory of thin_numbers elements. */
static struct thin lie_thin(const int64_t *m, int64_t index, int64_t *numbers, real *strips)
{
    struct thin t = { .a = thin_area(m, index) };
    const int64_t *ph = t.a.phase, *dt = m + ph[AT_D], *dr = m + ph[AT_H], nr = ph[TAPS_H], ns = ph[TAPS_W], step = ph[STEP_W];
    int64_t **const parts[] = { &t.plane, &t.strip.base, &t.strip.reach, &t.left, &t.right, &t.strip.taps, &t.at, &t.tap };
    const int64_t sizes[] = { ph[TAPS_D], step, step, step, step, ns, ph[TAPS_D] * nr * ns, 0 };
    for (int i = 0; i < 8; numbers += sizes[i++])
        *parts[i] = numbers;
    lay_out(&t.a, m + ph[AT_W], &t.strip);
    const int64_t first = t.a.q0 * step + t.strip.least;
    for (int64_t f = 0; f < step; f++) {
        const int64_t count = t.strip.reach[f] < 0 ? 0 : t.a.q1 - t.a.q0 + t.strip.reach[f], from = first + f;
        const int64_t left = from < 0 ? (-from + step - 1) / step : 0, right = from < m[IN_W] ? (m[IN_W] - 1 - from) / step + 1 : 0;
        t.right[f] = right < count ? right : count;
        t.left[f] = left < t.right[f] ? left : t.right[f];
    }
    t.first = t.a.p0 * ph[STEP_H] + ph[ROW_LEAST];
    t.rows = nr * ns == 0 ? 0 : ph[ROW_REACH] - (ph[ROW_BLOCK] - (t.a.p1 - t.a.p0)) * ph[STEP_H];
    t.plane_size = t.rows * t.strip.size;
    t.row_step = ph[STEP_H] * t.strip.size;
    for (int64_t d = 0; d < ph[TAPS_D] * (t.rows > 0); d++) {
        const int64_t plane = t.a.plane * ph[STEP_D] + dt[2 * d + 1];
        if (plane < 0 || plane >= m[IN_D])
            continue;
        for (int64_t i = 0; i < nr * ns; i++, t.taps++) {
            t.at[t.taps] = t.planes * t.plane_size + (dr[2 * (i / ns) + 1] - ph[ROW_LEAST]) * t.strip.size + t.strip.taps[i % ns];
            t.tap[t.taps] = dt[2 * d] * m[TAPS_HW] + dr[2 * (i / ns)] * m[TAPS_ROW] + m[ph[AT_W] + 2 * (i % ns)];
        }
        t.plane[t.planes++] = plane;
    }
    t.channel_size = t.planes * t.plane_size;
    memset(strips, 0, (size_t)m[STRIPS_SIZE] * sizeof *strips);
    return t;
}

/* Pack one channel of the group in t->a; `to` holds zeros where the padding is. With steps UP_D, UP_H and UP_W above one
 * the input is that with as many minus one zeros between its elements, which IN_D, IN_H and IN_W count. */
static void pack_thin(const real *in, const int64_t *m, const struct thin *t, int64_t c, real *to)
{
    const int64_t N = m[IMAGES], step = t->a.phase[STEP_W], first = t->a.q0 * step + t->strip.least;
    const int64_t up_h = m[UP_H], up_w = m[UP_W], ahead = up_w > 1 ? ((up_w - (first + t->left[0]) % up_w) % up_w) : 0;
    const int64_t lo = t->first < 0 ? -t->first : 0, hi = t->first + t->rows > m[IN_H] ? m[IN_H] - t->first : t->rows;
    const int64_t depth = (m[IN_D] - 1) / m[UP_D] + 1, height = (m[IN_H] - 1) / up_h + 1, width = (m[IN_W] - 1) / up_w + 1;
    const real *channel = in + (t->a.group * m[CHANNELS] + c) * depth * height * width * N;
    for (int64_t i = 0; i < t->planes; i++) {
        if (t->plane[i] % m[UP_D] != 0)
            continue;
        const real *plane = channel + t->plane[i] / m[UP_D] * height * width * N;
        real *strip = to + i * t->plane_size + lo * t->strip.size;
        for (int64_t h = lo; h < hi; h++, strip += t->strip.size) {
            if ((t->first + h) % up_h != 0)
                continue;
            const real *row = plane + (t->first + h) / up_h * width * N;
            if (up_w > 1) { /* one phase, and steps of one */
                const int64_t left = t->left[0] + ahead, count = (t->right[0] - left + up_w - 1) / up_w;
                copy_runs(strip + left * N, up_w * N, row + (first + left) / up_w * N, N, N, count);
                continue;
            }
            for (int64_t f = 0; f < step; f++) {
                const int64_t left = t->left[f], count = t->right[f] - left;
                const real *from = row + (first + f + step * left) * N;
                real *at = strip + t->strip.base[f] + left * N;
                if (step == 1)
                    copy_runs(at, 0, from, 0, count * N, count > 0);
                else
                    copy_runs(at, N, from, step * N, N, count);
            }
        }
    }
}

#endif
