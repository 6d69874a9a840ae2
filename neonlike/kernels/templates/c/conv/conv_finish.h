/* Epilogue of convolutions, applied to sums as they are stored (Epilogue in primitives/conv/request.py), for
 * conv/direct, maps, thin, few, depthwise, pointwise and winograd. The including file defines real, LANES, vec (LANES of
 * real), loose (the same, unaligned), INLINE, and struct call with alpha, beta, slope, sums, and epilogue, a bit mask: 1 for
 * relu, 2 for brelu, 4 for beta, 8 for streaming stores (followed by nl_stream_end). */
#ifndef NL_CONV_FINISH_H
#define NL_CONV_FINISH_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "stream.h"
#include "conv_results.h"

/* A function of its own, whatever its callers: neither inlined nor cloned for constants among the arguments. Copies of what
 * few calls reach would take longer to compile than the rest of a convolution. */
#if defined(__clang__)
#define APART static __attribute__((noinline))
#else
#define APART static __attribute__((noinline, noclone))
#endif

typedef __typeof__((vec){ 0 } < (vec){ 0 }) mask;

/* slope * v where v is negative; 0 if slope is 0, even for infinite v. */
INLINE vec relu(vec v, real slope)
{
    const mask negative = v < 0;
    const vec small = slope == 0 ? (vec){ 0 } : slope * v;
    return (vec)(((mask)v & ~negative) | ((mask)small & negative));
}

/* alpha, bias, brelu, relu, beta x of a vector of sums. */
INLINE vec finished(const struct call *g, vec v, vec x, real bias)
{
    v = g->alpha * v + bias;
    if (g->epilogue & 2)
        v *= (vec)(((mask)((vec){ 0 } + 1) & (x > 0)) | ((mask)((vec){ 0 } + g->slope) & (x < 0)));
    if (g->epilogue & 1)
        v = relu(v, g->slope);
    return g->epilogue & 4 ? v + g->beta * x : v;
}

/* Sums and their results: count runs of n elements each. x may alias out exactly. */
struct runs {
    const real *acc;
    const stored *x;
    stored *out;
    int64_t count, n, acc_step, out_step;
};

/* Apply the epilogue to n sums and store them; returns the sum of the stored values if it is asked for. */
INLINE double finish_run(const struct call *g, const real *restrict acc, stored *out, const stored *x, real bias, int64_t n)
{
    int64_t i = 0;
#if IN_HALVES
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vec old[2] = { { 0 } };
        if (g->epilogue & 6)
            old[0] = load(x + i), old[1] = load(x + i + LANES);
        store_two(out + i, finished(g, *(const loose *)(acc + i), old[0], bias), finished(g, *(const loose *)(acc + i + LANES), old[1], bias));
    }
#endif
    for (; i + LANES <= n; i += LANES) {
        vec old = { 0 };
        if (g->epilogue & 6)
            old = load(x + i);
        store(out + i, finished(g, *(const loose *)(acc + i), old, bias));
    }
    if (i < n) { /* acc is readable past the last one */
        vec v, old = { 0 };
        if (g->epilogue & 6)
            old = load_first(x + i, n - i);
        v = finished(g, *(const loose *)(acc + i), old, bias);
        store_first(out + i, v, n - i);
    }
    double sum = 0;
    if (g->sums != NULL) {
#pragma omp simd reduction(+:sum)
        for (i = 0; i < n; i++)
            sum += load_one(out + i);
    }
    return sum;
}

/* finish_runs with the runs' fields as arguments: a call passes them in registers, where runs are short. */
APART double finish_each(const struct call *call, const real *acc, const stored *x, stored *out, int64_t n, int64_t count, int64_t acc_step, int64_t out_step, real bias)
{
    const struct call g = *call; /* a local copy: stores cannot alias it */
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += finish_run(&g, acc + i * acc_step, out + i * out_step, x + i * out_step, bias, n);
    return sum;
}

/* Apply the epilogue to runs and store them; returns the sum of the stored values. */
static inline double finish_runs(const struct call *g, const struct runs *r, real bias)
{
    return finish_each(g, r->acc, r->x, r->out, r->n, r->count, r->acc_step, r->out_step, bias);
}

/* The same with streaming stores, some results at a time. */
APART double stream_runs(const struct call *g, const struct runs *runs, real bias)
{
    enum { SOME = 128 };
    stored some[SOME] __attribute__((aligned(64)));
    const struct runs r = *runs;
    double sum = 0;
    for (int64_t i = 0; i < r.count; i++)
        for (int64_t k = 0; k < r.n; k += SOME) {
            const int64_t n = r.n - k < SOME ? r.n - k : SOME, at = i * r.out_step + k;
            sum += finish_each(g, r.acc + i * r.acc_step + k, r.x + at, some, n, 1, 0, 0, bias);
            nl_stream(r.out + at, some, n * (int64_t)sizeof *some);
        }
    return sum;
}

static inline double finish(const struct call *g, const struct runs *runs, real bias)
{
    return g->epilogue & 8 ? stream_runs(g, runs, bias) : finish_runs(g, runs, bias);
}

#endif
