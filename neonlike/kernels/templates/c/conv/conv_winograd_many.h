/* The transforms of conv/winograd.c.j2 where images fill vectors: the lanes of a vector are images of one tile, loaded
 * and stored in place. */
#ifndef NL_CONV_WINOGRAD_MANY_H
#define NL_CONV_WINOGRAD_MANY_H
#include <stdint.h>

/* The input rows that a row of tiles reads of a channel; rows outside the image are zero, as is a channel past the last. */
struct rows {
    const real *at[EDGE];
    int64_t step[EDGE]; /* from column to column */
};

static struct rows find_rows(const struct call *g, const struct area *a, int64_t c, const struct band *b)
{
    static const real zeros[LANES] __attribute__((aligned(64)));
    const int64_t *m = g->meta;
    struct rows rows;
    for (int i = 0; i < EDGE; i++) {
        const int64_t h = b->top - m[PAD_H] + m[DIL_H] * (OUT * b->ty + i), there = h >= 0 && h < m[IN_H] && c < m[CHANNELS];
        rows.at[i] = there ? g->in + ((c * m[PLANES] + b->plane) * m[IN_H] + h) * m[IN_W] * m[IMAGES] + a->n0 : zeros;
        rows.step[i] = there ? m[IMAGES] : 0;
    }
    return rows;
}

/* B^T d of one column of an image. */
INLINE void column(const struct rows *rows, int64_t w, int64_t width, int64_t n, vec *t)
{
    vec d[EDGE];
    const int there = w >= 0 && w < width;
#pragma GCC unroll 6
    for (int i = 0; i < EDGE; i++) {
        d[i] = (vec){ 0 };
        if (there)
            d[i] = *(const loose *)(rows->at[i] + w * rows->step[i] + (rows->step[i] ? n : 0));
    }
    input_points(d, t);
}

/* B^T d B of a run of tiles in a row of tiles: v[point][tile][image]; `second`: of a pair whose first numbers are there. */
static void transform_run(const struct rows *rows, int64_t first, int64_t step, int64_t width, int64_t tiles, int64_t nb, real *restrict v, int64_t point_step, int second)
{
    for (int64_t n = 0; n < nb; n += LANES) {
        vec t[EDGE][EDGE]; /* of columns */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            column(rows, first + step * j, width, n, t[OUT + j]);
        for (int64_t tile = 0; tile < tiles; tile++) {
            real *to = v + tile * nb + n;
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++)
#pragma GCC unroll 6
                for (int i = 0; i < EDGE; i++)
                    t[j][i] = t[OUT + j][i];
#pragma GCC unroll 4
            for (int j = 2; j < EDGE; j++)
                column(rows, first + step * (OUT * tile + j), width, n, t[j]);
#pragma GCC unroll 6
            for (int i = 0; i < EDGE; i++) {
                vec d[EDGE], points[EDGE];
#pragma GCC unroll 6
                for (int j = 0; j < EDGE; j++)
                    d[j] = t[j][i];
                input_points(d, points);
#pragma GCC unroll 6
                for (int j = 0; j < EDGE; j++, to += point_step)
                    *(vec *)to = second ? paired(*(const vec *)to, points[j]) : points[j];
            }
        }
    }
}

/* V of some words of channels: v[point][word][lane]. */
static void transform_input(const struct call *g, const struct area *a, int64_t c, int64_t count, real *restrict v, int64_t point_step, real *some)
{
    const int64_t *m = g->meta;
    (void)some;
    for (int64_t t = 0, run; t < a->tiles; t += run) {
        const struct band b = find_band(m, a, t, 1);
        run = b.run;
        for (int64_t i = 0; i < EACH * count; i++) {
            const struct rows rows = find_rows(g, a, EACH * c + i, &b);
            transform_run(&rows, b.left - m[PAD_W] + m[DIL_W] * OUT * b.tx, m[DIL_W], m[IN_W], run, a->nb, v + i / EACH * a->lanes + t * a->nb, point_step, i % EACH);
        }
    }
}

/* Input to prefetch before it is transformed: words of channels c to c + count of an area. */
struct ahead {
    const struct area *a;
    int64_t c, count, done; /* channels prefetched so far */
};

/* Prefetch another share of it during other computation; all is prefetched when share == shares. */
static void prefetch_share(const struct call *g, struct ahead *ahead, int64_t share, int64_t shares)
{
    const int64_t *m = g->meta, until = EACH * ahead->count * share / shares, N = m[IMAGES];
    const struct area *a = ahead->a;
    for (; ahead->done < until; ahead->done++)
        for (int64_t t = 0, run; t < a->tiles; t += run) {
            const struct band b = find_band(m, a, t, 1);
            const struct rows rows = find_rows(g, a, EACH * ahead->c + ahead->done, &b);
            run = b.run;
            const int64_t first = b.left - m[PAD_W] + m[DIL_W] * OUT * b.tx, lo = first < 0 ? (-first + m[DIL_W] - 1) / m[DIL_W] * m[DIL_W] + first : first;
            const int64_t hi = smaller(first + m[DIL_W] * (OUT * run + 2), m[IN_W]);
            for (int i = 0; i < EDGE; i++)
                if (rows.step[i])
                    for (int64_t w = lo; w < hi; w += m[DIL_W])
                        for (int64_t n = 0; n < a->nb; n += 64 / sizeof(real))
                            __builtin_prefetch(rows.at[i] + w * N + n, 0, 2);
        }
}

/* A^T M A: results [OUT][OUT * tiles][nb] of a run of tiles. */
static void transform_output(const real *restrict acc, int64_t point_step, int64_t tiles, int64_t nb, real *restrict to, int64_t row, real *apart)
{
    (void)apart;
    for (int64_t tile = 0; tile < tiles; tile++)
        for (int64_t n = 0; n < nb; n += LANES) {
            vec t[OUT][EDGE];
            results_of_columns(acc + tile * nb + n, point_step, t);
#pragma GCC unroll 4
            for (int i = 0; i < OUT; i++) {
                vec y[OUT];
                results(t[i], y);
#pragma GCC unroll 4
                for (int j = 0; j < OUT; j++)
                    *(vec *)(to + i * row + (OUT * tile + j) * nb + n) = y[j];
            }
        }
}

#endif
