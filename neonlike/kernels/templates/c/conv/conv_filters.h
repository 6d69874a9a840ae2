/* Filters of a convolution packed KB output maps side by side: what conv_direct and conv_pointwise share. The including
 * file defines real and KB. */
#ifndef NL_CONV_FILTERS_H
#define NL_CONV_FILTERS_H
#include <stdint.h>
#include <string.h>

/* Tiles of maps to pack at a time, and channels of a unit of packing. Filters that lie map by map are transposed: what is
 * read of a map is a few lines side by side then, and what is written stays in the first-level cache. */
static inline int64_t pack_tiles(int64_t map_step)
{
    return map_step == 1 ? 8 : 1; /* more written streams than that do not stay in the cache */
}

static inline int64_t pack_channels(int64_t map_step)
{
    return map_step == 1 ? 16 : 64;
}

/* One tap of a group's filters, tiles first to last, channels lo to hi: tiles of maps lie tile_step apart, channels
 * to_step, and maps past the last are zero. Filters are read where a channel's lie channel_step and a map's map_step
 * apart, one of which is 1. */
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
                    for (int64_t k = 0; k < KB; k++)
                        w[k] = i * KB + k < maps ? f[k] : 0;
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
                    for (int64_t k = 0; k < KB; k++)
                        w[k] = i * KB + k < maps ? f[k * map_step] : 0;
            }
}

#endif
