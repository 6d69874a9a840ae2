/* Stores of the results of an area, for conv/direct, conv/maps and conv/thin. The including file defines
 * what conv_finish.h needs, and the fields of the meta array. */
#ifndef NL_CONV_STORE_H
#define NL_CONV_STORE_H
#include <stdint.h>
#include "conv_runs.h"
#include "conv_strips.h"

/* Offset of the results: the unit's first column in output row p of a map. */
static int64_t place(const int64_t *m, const struct area *a, int64_t map, int64_t p)
{
    const int64_t *ph = a->phase, plane = a->plane * ph[OUT_STEP_D] + ph[OUT_START_D];
    const int64_t row = (map * m[OUT_D] + plane) * m[OUT_H] + p * ph[OUT_STEP_H] + ph[OUT_START_H];
    return (row * m[OUT_W] + a->q0 * ph[OUT_STEP_W] + ph[OUT_START_W]) * m[IMAGES] + a->n0;
}

/* Store the results of a map: rows of columns `step` apart, from sums whose rows are acc_step apart. */
static inline void store_map(const struct call *g, const struct area *a, int64_t map, const real *from, int64_t acc_step, int64_t columns, int64_t step)
{
    const int64_t *m = g->meta, N = m[IMAGES], nb = a->n1 - a->n0, out_step = a->phase[OUT_STEP_H] * m[OUT_W] * N;
    const real bias = g->bias == NULL ? 0 : g->bias[map];
    const stored *x = g->x == NULL ? g->out : g->x;
    int64_t at = place(m, a, map, a->p0);
    double sum = 0;
    if (step == 1 && nb == N) {
        const struct runs rows = { from, x + at, g->out + at, a->p1 - a->p0, columns * nb, acc_step, out_step };
        sum = finish(g, &rows, bias);
    } else
        for (int64_t p = a->p0; p < a->p1; p++, from += acc_step, at += out_step)
            sum += store_runs(g, from, g->out + at, x + at, bias, nb, step * N, columns);
    if (g->sums != NULL)
        g->sums[a->sums_row * m[ALL_MAPS] + map] = sum;
}

#endif
