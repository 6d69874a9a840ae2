/* Accumulators of a register tile, KB maps x NV vectors: their initial values, and where they are stored. For
 * conv/direct and conv/pointwise. The including file defines real, LANES, KB, NV, vec (LANES of real), loose (the same,
 * unaligned) and INLINE, and includes conv_finish.h before. */
#ifndef NL_CONV_TILE_H
#define NL_CONV_TILE_H
#include <stdint.h>
#include "stream.h"

typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));

/* Destination of the sums of a tile. */
struct sums {
    real *acc; /* partial sums between blocks of channels */
    int64_t acc_step;
    int first; /* whether there are no partial sums yet */
    stored *out; /* the result; NULL: store partial sums */
    int64_t out_step;
    int streamed;
    real alpha;
    const real *bias; /* of each map of the tile */
    int relu;
    real slope;
    doubles *totals; /* of results, of each map; NULL: not wanted */
};

/* The sums so far of KB maps x nv vectors. */
INLINE void take_sums(vec sum[KB][NV], const struct sums *to, const int nv)
{
#pragma GCC unroll 32
    for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
        for (int j = 0; j < nv; j++)
            sum[k][j] = to->first ? (vec){ 0 } : *(const vec *)(to->acc + k * to->acc_step + j * LANES);
}

#if IN_HALVES
#if defined(BY_INSTRUCTION)
/* Round sums of which some are subnormal. */
APART void store_subnormal(vec sum[KB][NV], stored *out, int64_t step, int64_t count)
{
    for (int k = 0; k < KB; k++, out += step)
        nl_narrow_bf16(out, (const float *)sum[k], count);
}
#endif

/* Round and store them. Sums of rounded results are taken behind the kernel. */
INLINE void store_sums(vec sum[KB][NV], stored *out, int64_t step, int streamed, const int nv)
{
#if defined(BY_INSTRUCTION)
    uint16_t tiny = 0;
#pragma GCC unroll 32
    for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
        for (int j = 0; j < nv; j++)
            NL_ADD_SUBNORMAL(tiny, sum[k][j]);
    if (__builtin_expect(tiny != 0, 0)) {
        vec all[KB][NV]; /* a copy, so that the sums stay in registers */
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                all[k][j] = sum[k][j];
        store_subnormal(all, out, step, nv * LANES);
        return;
    }
#endif
#pragma GCC unroll 32
    for (int k = 0; k < KB; k++, out += step) {
#pragma GCC unroll 32
        for (int j = 0; j + 1 < nv; j += 2) {
            two_uppers both = uppers_of_two(sum[k][j], sum[k][j + 1]);
            if (streamed)
                NL_STREAM_VECTOR(out + j * LANES, both);
            else
                *(loose_two_uppers *)(out + j * LANES) = both;
        }
        if (nv % 2)
            store(out + (nv - 1) * LANES, sum[k][nv - 1]);
    }
}
#endif

/* Store them as partial sums or, with the epilogue, as results. */
INLINE void leave_sums(vec sum[KB][NV], const struct sums *to, const int nv)
{
    stored *out = to->out;
    const int64_t step = out != NULL ? to->out_step : to->acc_step;
    if (out == NULL) {
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                *(vec *)(to->acc + k * step + j * LANES) = sum[k][j];
        return;
    }
    const real alpha = to->alpha, *bias = to->bias;
#pragma GCC unroll 32
    for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
        for (int j = 0; j < nv; j++)
            sum[k][j] = alpha * sum[k][j] + bias[k];
    if (to->relu) {
        const real slope = to->slope;
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                sum[k][j] = relu(sum[k][j], slope);
    }
    if (to->totals != NULL)
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                to->totals[k] += __builtin_convertvector(sum[k][j], doubles);
#if IN_HALVES
    store_sums(sum, out, step, to->streamed, nv);
#else
    if (to->streamed)
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++, out += step)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                NL_STREAM_VECTOR(out + j * LANES, sum[k][j]);
    else
#pragma GCC unroll 32
        for (int k = 0; k < KB; k++, out += step)
#pragma GCC unroll 32
            for (int j = 0; j < nv; j++)
                *(loose *)(out + j * LANES) = sum[k][j];
#endif
}

#endif
