/* Where the results of an area go: what conv_direct and conv_thin share. The including file defines
 * what conv_finish.h needs, and the fields of the meta array. */
#ifndef NL_CONV_STORE_H
#define NL_CONV_STORE_H
#include <stdint.h>
#include "conv_runs.h"
#include "conv_strips.h"

/* Where results go: the first column of the unit in output row p of a map. */
static int64_t place(const int64_t *m, const struct area *a, int64_t map, int64_t p)
{
    const int64_t *ph = a->phase, plane = a->plane * ph[OUT_STEP_D] + ph[OUT_START_D];
    const int64_t row = (map * m[OUT_D] + plane) * m[OUT_H] + p * ph[OUT_STEP_H] + ph[OUT_START_H];
    return (row * m[OUT_W] + a->q0 * ph[OUT_STEP_W] + ph[OUT_START_W]) * m[IMAGES] + a->n0;
}

#endif
