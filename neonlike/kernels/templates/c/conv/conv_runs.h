/* Stores of runs of results at a stride. The including file defines what conv_finish.h needs. */
#ifndef NL_CONV_RUNS_H
#define NL_CONV_RUNS_H
#include <stdint.h>
#include "conv_finish.h"
#include "conv_rows.h"

#if IN_HALVES
/* As copy_runs, of results. */
static inline void copy_results(stored *restrict to, int64_t to_step, const stored *restrict from, int64_t from_step, int64_t n, int64_t count)
{
    for (int64_t j = 0; n == 1 && j < count; j++)
        to[j * to_step] = from[j * from_step];
    for (int64_t j = 0; n > 1 && j < count; j++) {
        stored *there = to + j * to_step;
        const stored *here = from + j * from_step;
        int64_t left = n;
        for (; left >= LANES; left -= LANES, there += LANES, here += LANES)
            memcpy(there, here, LANES * sizeof *there);
        copy_numbers(there, here, left, sizeof *there);
    }
}
#else
#define copy_results copy_runs
#endif

/* Store runs of n results, step apart; returns their sum. Short runs are finished in one contiguous buffer first. */
APART double store_runs(const struct call *g, const real *from, stored *out, const stored *x, real bias, int64_t n, int64_t step, int64_t count)
{
    enum { SIDE = 256 };
    stored made[SIDE], old[SIDE];
    double sum = 0;
    if (n >= 4 * LANES) {
        const struct runs runs = { from, x, out, count, n, n, step };
        return finish(g, &runs, bias);
    }
    for (int64_t q = 0; q < count; q += SIDE / n) {
        const int64_t some = count - q < SIDE / n ? count - q : SIDE / n;
        const struct runs runs = { from + q * n, old, made, 1, some * n, 0, 0 };
        if (g->epilogue & 6)
            copy_results(old, n, x + q * step, step, n, some);
        sum += finish_runs(g, &runs, bias);
        copy_results(out + q * step, step, made, n, n, some);
    }
    return sum;
}

#endif
