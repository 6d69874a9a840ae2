/* Filters of a convolution packed KB output maps side by side: what conv_direct and conv_pointwise share. The including
 * file defines real and KB. */
#ifndef NL_CONV_FILTERS_H
#define NL_CONV_FILTERS_H
#include <stdint.h>
#include <string.h>

/* One tap of a group's filters, channels lo to hi: tiles of maps lie tile_step apart, channels to_step, and maps past
 * the last are zero. Filters are read where a channel's lie channel_step and a map's map_step apart, one of which is 1:
 * the innermost loops run along that. */
static void pack_tap(const real *from, int64_t channel_step, int64_t map_step, int64_t maps, int64_t lo, int64_t hi, real *to,
                     int64_t to_step, int64_t tile_step)
{
    const int64_t some = 8; /* tiles side by side: more written streams than that do not stay in the cache */
    const int64_t tiles = (maps + KB - 1) / KB;
    for (int64_t first = 0; first < tiles; first += some) {
        const int64_t last = first + some < tiles ? first + some : tiles;
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
            for (int64_t k = first * KB; k < last * KB; k++)
                for (int64_t c = lo; c < hi; c++)
                    to[k / KB * tile_step + c * to_step + k % KB] = k < maps ? from[k * map_step + c * channel_step] : 0;
    }
}

#endif
