/* Where the results of an area go, and storing them: what conv_direct and conv_thin share. The including file defines
 * what conv_finish.h needs, and the fields of the meta array. */
#ifndef NL_CONV_STORE_H
#define NL_CONV_STORE_H
#include <stdint.h>
#include "conv_finish.h"
#include "conv_strips.h"

/* Where results go: the first column of the unit in output row p of a map. */
static int64_t place(const int64_t *m, const struct area *a, int64_t map, int64_t p)
{
    const int64_t *ph = a->phase, plane = a->plane * ph[OUT_STEP_D] + ph[OUT_START_D];
    const int64_t row = (map * m[OUT_D] + plane) * m[OUT_H] + p * ph[OUT_STEP_H] + ph[OUT_START_H];
    return (row * m[OUT_W] + a->q0 * ph[OUT_STEP_W] + ph[OUT_START_W]) * m[IMAGES] + a->n0;
}

/* Store runs of n results, step apart; returns their sum. Short ones are finished side by side. */
static double store_runs(const struct call *g, const real *from, real *out, const real *x, real bias, int64_t n, int64_t step, int64_t count)
{
    enum { SIDE = 256 };
    real made[SIDE], old[SIDE];
    double sum = 0;
    if (n >= 4 * LANES) {
        const struct runs runs = { from, x, out, count, n, n, step };
        return finish(g, &runs, bias);
    }
    for (int64_t q = 0; q < count; q += SIDE / n) {
        const int64_t some = count - q < SIDE / n ? count - q : SIDE / n;
        const struct runs runs = { from + q * n, old, made, 1, some * n, 0, 0 };
        if (g->epilogue & 6)
            copy_runs(old, n, x + q * step, step, n, some);
        sum += finish_runs(g, &runs, bias);
        copy_runs(out + q * step, step, made, n, n, some);
    }
    return sum;
}

#endif
