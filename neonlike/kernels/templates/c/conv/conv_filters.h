/* Filters of a convolution packed by groups of KB output maps, maps innermost, for conv/direct and conv/pointwise. The
 * including file defines real and KB, and includes conv_finish.h before. */
#ifndef NL_CONV_FILTERS_H
#define NL_CONV_FILTERS_H
#include <stdint.h>
#include <string.h>

/* Map tiles packed at a time, and channels of a unit of packing. Filters stored map by map are transposed: these sizes
 * read a few consecutive cache lines of each map, and keep what is written in the L1 cache. */
static inline int64_t pack_tiles(int64_t map_step)
{
    return map_step == 1 ? 8 : 1; /* more write streams do not stay in the L1 cache */
}

static inline int64_t pack_channels(int64_t map_step)
{
    return map_step == 1 ? 16 : 64;
}

/* Pack the last maps, fewer than KB, of one channel and tap. */
APART void pack_last(const real *f, int64_t map_step, int64_t maps, real *w)
{
    for (int64_t k = 0; k < KB; k++)
        w[k] = k < maps ? f[k * map_step] : 0;
}

/* Pack one tap of a group's filters for map tiles first to last, channels lo to hi. Destination strides: tile_step (map
 * tiles), to_step (channels); maps past the last are zero. Source strides: channel_step and map_step, one of which is
 * 1. */
static void pack_tap(const real *from, int64_t channel_step, int64_t map_step, int64_t maps, int64_t first, int64_t last, int64_t lo, int64_t hi,
                     real *to, int64_t to_step, int64_t tile_step)
{
    if (map_step == 1)
        for (int64_t c = lo; c < hi; c++)
            for (int64_t i = first; i < last; i++) {
                const real *f = from + c * channel_step + i * KB;
                real *w = to + i * tile_step + c * to_step;
                if ((i + 1) * KB <= maps)
                    memcpy(w, f, KB * sizeof *w);
                else
                    pack_last(f, 1, maps - i * KB, w);
            }
    else
        for (int64_t i = first; i < last; i++)
            for (int64_t c = lo; c < hi; c++) {
                const real *f = from + c * channel_step + i * KB * map_step;
                real *w = to + i * tile_step + c * to_step;
                if ((i + 1) * KB <= maps)
#pragma GCC unroll 32
                    for (int64_t k = 0; k < KB; k++)
                        w[k] = f[k * map_step];
                else
                    pack_last(f, map_step, maps - i * KB, w);
            }
}

#endif
