/* Strips with all columns from the first to the last one read (see conv_strips.h), for conv/maps and conv/update. The including
 * file defines STEP, the elements between neighbouring lanes. */
#ifndef NL_CONV_WHOLE_H
#define NL_CONV_WHOLE_H
#include "conv_strips.h"

/* Set up strips for the columns of `phases` phases along the width; columns STEP apart are packed with those between. */
static void lay_out_whole(const int64_t *m, const struct area *a, int64_t phases, struct strip *strip)
{
    const int64_t *ph = a->phase, nb = a->n1 - a->n0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t w = 0; w < phases; w++, ph += PHASE_SIZE)
        for (int64_t s = 0; s < ph[TAPS_W]; s++) {
            const int64_t at = m[ph[AT_W] + 2 * s + 1];
            least = at < least ? at : least;
            most = at > most ? at : most;
        }
    const int there = least <= most;
    const int64_t columns = there ? (a->q1 - a->q0 - 1) * STEP + most - least + 1 : 0;
    strip->reach[0] = there ? columns - (a->q1 - a->q0) : -1;
    strip->base[0] = 0;
    strip->least = there ? least : 0;
    strip->size = ((columns * nb + LANES - 1) / LANES | 1) * LANES;
}

/* Offset of each tap of a phase in a strip that lay_out_whole set up. */
static void find_taps(const int64_t *m, const struct area *a, const int64_t *ph, const struct strip *strip)
{
    for (int64_t s = 0; s < ph[TAPS_W]; s++)
        strip->taps[s] = (m[ph[AT_W] + 2 * s + 1] - strip->least) * (a->n1 - a->n0);
}

#endif
