/* The block of output computed by one unit of work of conv/direct and conv/maps. The including file defines KB (maps of
 * a register tile), TILE (its lanes), and the fields of the meta array (META and PHASE in conv/plan.py). */
#ifndef NL_CONV_AREA_H
#define NL_CONV_AREA_H
#include <stdint.h>
#include "conv_strips.h"

static struct area find_area(const int64_t *m, int64_t index)
{
    struct area a;
    const int64_t *ph = m + m[PHASES_AT];
    a.sums_row = index / m[MAP_PARTS];
    for (; index >= ph[UNITS]; ph += PHASE_SIZE)
        index -= ph[UNITS];
    a.phase = ph;
    const int64_t tiles = (m[MAPS] + KB - 1) / KB;
    const int64_t part = index % m[MAP_PARTS]; /* innermost: the parts read the same input */
    index /= m[MAP_PARTS];
    a.tile_lo = tiles * part / m[MAP_PARTS];
    a.tile_hi = tiles * (part + 1) / m[MAP_PARTS];
    a.q0 = index % ph[COLUMN_BLOCKS] * ph[COLUMN_BLOCK];
    index /= ph[COLUMN_BLOCKS];
    a.p0 = index % ph[ROW_BLOCKS] * ph[ROW_BLOCK];
    index /= ph[ROW_BLOCKS];
    a.n0 = index % m[IMAGE_BLOCKS] * m[IMAGE_BLOCK];
    index /= m[IMAGE_BLOCKS];
    a.plane = index % ph[COUNT_D];
    a.group = index / ph[COUNT_D];
    a.p1 = a.p0 + ph[ROW_BLOCK] < ph[COUNT_H] ? a.p0 + ph[ROW_BLOCK] : ph[COUNT_H];
    a.q1 = a.q0 + ph[COLUMN_BLOCK] < ph[COUNT_W] ? a.q0 + ph[COLUMN_BLOCK] : ph[COUNT_W];
    a.n1 = a.n0 + m[IMAGE_BLOCK] < m[IMAGES] ? a.n0 + m[IMAGE_BLOCK] : m[IMAGES];
    a.lanes = (a.q1 - a.q0) * (a.n1 - a.n0);
    a.pitch = m[FLAT] ? a.lanes + ph[REACH_W] * (a.n1 - a.n0) : 0;
    a.lanes += (a.p1 - a.p0 - 1) * a.pitch;
    a.acc_step = (a.lanes + TILE - 1) / TILE * TILE;
    return a;
}

#endif
