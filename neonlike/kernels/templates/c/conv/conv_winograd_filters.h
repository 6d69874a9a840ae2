/* The filters of conv/winograd.c.j2, transformed and packed as the products read them. Included there, which defines
 * struct call, the tile and smaller(). */
/* G f G^T of n contiguous filters with taps step apart: to[point][n]; whole vectors are written if `room`. */
static void transform_filters(const real *f, int64_t step, int flip, int64_t n, real *restrict to, int64_t to_step, int room)
{
    for (int64_t k = 0; k < n; k += LANES) {
        const int64_t some = smaller(LANES, n - k);
        vec rows[3][EDGE];
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            vec taps[3];
#pragma GCC unroll 3
            for (int j = 0; j < 3; j++) {
                const int tap = 3 * i + j;
                const real *from = f + (flip ? 8 - tap : tap) * step + k;
                taps[j] = some == LANES ? (vec)*(const loose *)from : load_some(from, some);
            }
            filter_points(taps, rows[i]);
        }
#pragma GCC unroll 6
        for (int j = 0; j < EDGE; j++) {
            const vec column[3] = { rows[0][j], rows[1][j], rows[2][j] };
            vec points[EDGE];
            filter_points(column, points);
            store_points(to + j * to_step + k, EDGE * to_step, points, some == LANES || room, some);
        }
    }
}

/* Transformed filters of a part and a block of channels: [point][map tile of the part], then [channel][KB]; backward, where
 * images are few, [KB][channel]. */
struct packed {
    real *at;
    int64_t first, tiles, c0, count; /* map tiles and channels */
    int64_t step; /* from point to point: an odd number of vectors, so that points map to different cache sets */
};

static struct packed find_packed(const struct call *g, int64_t part, int64_t block)
{
    const int64_t *m = g->meta, first = part * m[PART_TILES], c0 = block * m[CHANNEL_BLOCK], channels = m[CHANNELS];
    struct packed p = { NULL, first, smaller(m[PART_TILES], (m[MAPS] + KB - 1) / KB - first), c0, smaller(m[CHANNEL_BLOCK], channels - c0), 0 };
    p.step = (p.tiles * p.count * KB / LANES + 1 | 1) * LANES;
    p.at = g->filters + ((first * channels + c0 * p.tiles) * KB + (part * ((channels + m[CHANNEL_BLOCK] - 1) / m[CHANNEL_BLOCK]) + block) * 2 * LANES) * POINTS;
    return p;
}

enum { PACK = 8 }; /* map tiles whose filters are transformed at a time */

/* Transform filters of count channels from c on and map tiles lo to hi, forward: channel by channel, whose maps are
 * contiguous. Maps past the last are zero. Taps are too far apart for hardware prefetching. */
static void pack_forward(const struct call *g, const struct packed *p, int64_t c, int64_t count, int64_t lo, int64_t hi)
{
    enum { ROOM = PACK * KB + LANES, AHEAD = 2 };
    const int64_t *m = g->meta, n = smaller(hi * KB, m[MAPS]) - lo * KB;
    real some[POINTS][ROOM];
    for (int point = 0; point < POINTS; point++)
        memset(some[point] + n, 0, (size_t)((hi - lo) * KB - n) * sizeof(real));
    for (int64_t i = 0; i < count; i++) {
        const real *from = g->filter + (c + i) * m[FILTER_CHANNEL] + lo * KB;
        if (c + i + AHEAD < m[CHANNELS])
            for (int tap = 0; tap < 9; tap++)
                for (int64_t k = 0; k < n; k += 64 / (int64_t)sizeof(real))
                    __builtin_prefetch(from + AHEAD * m[FILTER_CHANNEL] + tap * m[FILTER_TAP] + k, 0, 3);
        transform_filters(from, m[FILTER_TAP], 0, n, some[0], ROOM, (hi - lo) * KB == n);
        for (int point = 0; point < POINTS; point++)
            for (int64_t j = lo; j < hi; j++)
                memcpy(p->at + point * p->step + ((j - p->first) * p->count + c + i - p->c0) * KB, some[point] + (j - lo) * KB, KB * sizeof(real));
    }
}

#if FEW_IMAGES
/* The same backward: map by map, whose channels are contiguous. */
static void pack_backward(const struct call *g, const struct packed *p, int64_t c, int64_t count, int64_t lo, int64_t hi)
{
    const int64_t *m = g->meta;
    for (int64_t map = lo * KB; map < hi * KB; map++) {
        real *to = p->at + (map - p->first * KB) * p->count + c - p->c0;
        if (map < m[MAPS])
            transform_filters(g->filter + c + map * m[FILTER_MAP], m[FILTER_TAP], 1, count, to, p->step, 0);
        else
            for (int point = 0; point < POINTS; point++)
                memset(to + point * p->step, 0, (size_t)count * sizeof(real));
    }
}
#else
/* The same backward, where channels lie side by side: transposed, so that a product reads one stream of memory. With as many
 * streams as maps, each of a few lines, nothing is fetched ahead, and 512 x 512 filters are in no cache. */
static void pack_backward(const struct call *g, const struct packed *p, int64_t c, int64_t count, int64_t lo, int64_t hi)
{
    enum { SIDE = 32 };
    const int64_t *m = g->meta;
    real some[POINTS][SIDE], all[POINTS][SIDE * KB];
    for (int64_t tile = lo; tile < hi; tile++)
        for (int64_t i = 0, n; i < count; i += n) {
            n = smaller(SIDE, count - i);
            for (int64_t k = 0; k < KB; k++) {
                const int64_t map = tile * KB + k;
                if (map < m[MAPS])
                    transform_filters(g->filter + c + i + map * m[FILTER_MAP], m[FILTER_TAP], 1, n, some[0], SIDE, 1);
                else
                    memset(some, 0, sizeof some);
                for (int point = 0; point < POINTS; point++)
                    for (int64_t j = 0; j < n; j++)
                        all[point][j * KB + k] = some[point][j];
            }
            for (int point = 0; point < POINTS; point++)
                memcpy(p->at + point * p->step + ((tile - p->first) * p->count + c + i - p->c0) * KB, all[point], (size_t)(n * KB) * sizeof(real));
        }
}
#endif

/* Transform every parts-th band of the filters of a part and block of channels, from number `first` on. */
static void pack_filters(const struct call *g, const struct packed *p, int64_t first, int64_t parts)
{
    const int backward = g->meta[FILTER_MAP] != 1;
    const int64_t side = backward ? 256 : 16, many = backward ? 2 : PACK;
    int64_t item = 0;
    for (int64_t i = 0; i < p->count; i += side)
        for (int64_t lo = 0; lo < p->tiles; lo += many)
            if (item++ % parts == first)
                (backward ? pack_backward : pack_forward)(g, p, p->c0 + i, smaller(side, p->count - i), p->first + lo, p->first + smaller(lo + many, p->tiles));
}
