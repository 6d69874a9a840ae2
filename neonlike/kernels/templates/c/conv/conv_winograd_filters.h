/* The filters of conv/winograd.c.j2, transformed and packed as the products read them. Included there, which defines
 * struct call, the tile and smaller(). */
/* G f G^T of n contiguous filters with taps step apart: to[point][n]; whole vectors are written if `room`. `second`: of
 * pairs whose first numbers are there. */
INLINE void transform_each(const real *f, int64_t step, int flip, int64_t n, real *restrict to, int64_t to_step, int room, int second)
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
#pragma GCC unroll 6
            for (int i = 0; second && i < EDGE; i++)
                points[i] = paired(*(const loose *)(to + (EDGE * i + j) * to_step + k), points[i]);
            store_points(to + j * to_step + k, EDGE * to_step, points, some == LANES || room, some);
        }
    }
}

static void transform_filters(const real *f, int64_t step, int flip, int64_t n, real *to, int64_t to_step, int room)
{
    transform_each(f, step, flip, n, to, to_step, room, 0);
}

/* Transformed filters of a part and a block of words of channels: [point][map tile of the part], then [word][KB]; backward,
 * where images are few, [KB][word]. */
struct packed {
    real *at;
    int64_t first, tiles, c0, count; /* map tiles and words of channels */
    int64_t step; /* from point to point: an odd number of vectors, so that points map to different cache sets */
};

static struct packed find_packed(const struct call *g, int64_t part, int64_t block)
{
    const int64_t *m = g->meta, first = part * m[PART_TILES], c0 = block * m[CHANNEL_BLOCK], channels = m[WORDS];
    struct packed p = { NULL, first, smaller(m[PART_TILES], (m[MAPS] + KB - 1) / KB - first), c0, smaller(m[CHANNEL_BLOCK], channels - c0), 0 };
    p.step = (p.tiles * p.count * KB / LANES + 1 | 1) * LANES;
    p.at = g->filters + ((first * channels + c0 * p.tiles) * KB + (part * ((channels + m[CHANNEL_BLOCK] - 1) / m[CHANNEL_BLOCK]) + block) * 2 * LANES) * POINTS;
    return p;
}

enum { PACK = 8 }; /* map tiles whose filters are transformed at a time */

/* Transform filters of channel c and map tiles lo to hi, forward: maps are contiguous, and zero past the last. Taps are too
 * far apart for hardware prefetching. */
INLINE void transform_channel(const struct call *g, int64_t c, int64_t lo, int64_t n, int room, real *some, int64_t step, int second)
{
    enum { AHEAD = 2 * EACH };
    const int64_t *m = g->meta;
    const real *from = g->filter + c * m[FILTER_CHANNEL] + lo * KB;
    if (c + AHEAD < m[CHANNELS])
        for (int tap = 0; tap < 9; tap++)
            for (int64_t k = 0; k < n; k += 64 / (int64_t)sizeof(real))
                __builtin_prefetch(from + AHEAD * m[FILTER_CHANNEL] + tap * m[FILTER_TAP] + k, 0, 3);
    transform_each(from, m[FILTER_TAP], 0, n, some, step, room, second);
}

/* The same of a word of channels. */
INLINE void transform_word(const struct call *g, int64_t word, int64_t lo, int64_t n, int room, real *some, int64_t step)
{
    transform_channel(g, EACH * word, lo, n, room, some, step, 0);
#if PAIRS
    if (EACH * word + 1 < g->meta[CHANNELS])
        transform_channel(g, EACH * word + 1, lo, n, room, some, step, 1);
    else
        for (int point = 0; point < POINTS; point++)
            nl_pair_lines(some + point * step, some + point * step, NULL, n);
#endif
}

/* Transform filters of count words of channels from c on and a map, backward: channels are contiguous. */
static void transform_map(const struct call *g, int64_t c, int64_t count, int64_t map, real *to, int64_t step, int room)
{
    const int64_t *m = g->meta;
    const real *from = g->filter + EACH * c + map * m[FILTER_MAP];
#if PAIRS
    enum { ONCE = 64 };
    real some[POINTS][ONCE];
    (void)room;
    for (int64_t i = 0; i < EACH * count; i += ONCE) {
        const int64_t n = smaller(smaller(ONCE, EACH * count - i), m[CHANNELS] - EACH * c - i);
        transform_filters(from + i, m[FILTER_TAP], 1, n, some[0], ONCE, 1);
        for (int point = 0; point < POINTS; point++)
            nl_pair_neighbours(to + point * step + i / EACH, some[point], n);
    }
#else
    transform_filters(from, m[FILTER_TAP], 1, count, to, step, room);
#endif
}

/* Transform filters of count words of channels from c on and map tiles lo to hi, forward. */
static void pack_forward(const struct call *g, const struct packed *p, int64_t c, int64_t count, int64_t lo, int64_t hi)
{
    enum { ROOM = PACK * KB + LANES };
    const int64_t n = smaller(hi * KB, g->meta[MAPS]) - lo * KB;
    real some[POINTS][ROOM];
    for (int point = 0; point < POINTS; point++)
        memset(some[point] + n, 0, (size_t)((hi - lo) * KB - n) * sizeof(real));
    for (int64_t i = 0; i < count; i++) {
        transform_word(g, c + i, lo, n, (hi - lo) * KB == n, some[0], ROOM);
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
            transform_map(g, c, count, map, to, p->step, 0);
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
                    transform_map(g, c + i, n, map, some[0], SIDE, 1);
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
