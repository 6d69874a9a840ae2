/* Accumulators of a register tile, KB maps x NV vectors: their initial values, and where they are stored. For
 * conv_direct and conv_pointwise. The including file defines real, LANES, KB, NV, vec (LANES of real), loose (the same,
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
    real *out; /* the result; NULL: store partial sums */
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

/* Store them as partial sums or, with the epilogue, as results. */
INLINE void leave_sums(vec sum[KB][NV], const struct sums *to, const int nv)
{
    real *out = to->out;
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
}

#endif
