/* What is done to sums of a convolution when they are stored (Epilogue in families/conv.py): what conv_direct,
 * conv_pointwise and conv_winograd share. The including file defines real, INLINE, and struct call with alpha, beta,
 * slope, sums, and epilogue: 1 for relu, 2 for brelu, 4 for beta, 8 to store results past the caches (then nl_stream_end
 * ends it). */
#ifndef NL_CONV_FINISH_H
#define NL_CONV_FINISH_H
#include <stdint.h>
#include <stdlib.h>
#include "stream.h"

/* alpha, bias, brelu, relu, beta x, store; returns the sum of what was stored. x may be out: element by element. */
INLINE double finish(const struct call *g, const real *restrict acc, real *out, const real *x, real bias, int64_t n)
{
    const real alpha = g->alpha, beta = g->beta, slope = g->slope;
    const int relu = g->epilogue & 1, brelu = g->epilogue & 2, add = g->epilogue & 4;
#define RELU(v) ((v) < 0 ? (slope == 0 ? 0 : slope * (v)) : (v))
    if (!brelu && !add) {
        if (relu)
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) {
                const real v = alpha * acc[i] + bias;
                out[i] = RELU(v);
            }
        else
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++)
                out[i] = alpha * acc[i] + bias;
    } else
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) {
            real v = alpha * acc[i] + bias;
            if (brelu)
                v *= x[i] > 0 ? 1 : x[i] < 0 ? slope : 0;
            if (relu)
                v = RELU(v);
            out[i] = add ? v + beta * x[i] : v;
        }
    double sum = 0;
    if (g->sums != NULL) {
#pragma omp simd reduction(+:sum)
        for (int64_t i = 0; i < n; i++)
            sum += out[i];
    }
    return sum;
}

/* The same; past the caches if the call says so. */
INLINE double finish_large(const struct call *g, const real *restrict acc, real *out, const real *x, real bias, int64_t n)
{
    enum { SOME = 128 };
    real some[SOME] __attribute__((aligned(64)));
    if (!(g->epilogue & 8))
        return finish(g, acc, out, x, bias, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i += SOME) {
        const int64_t count = n - i < SOME ? n - i : SOME;
        sum += finish(g, acc + i, some, x + i, bias, count);
        nl_stream(out + i, some, count * (int64_t)sizeof *some);
    }
    return sum;
}

#endif
