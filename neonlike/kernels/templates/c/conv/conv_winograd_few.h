/* The transforms of conv/winograd.c.j2 where images do not fill vectors: the lanes of a vector are consecutive tiles of
 * a row and all images. The rows that tiles read are copied first, padded with zeros: unchanged for one image
 * (FEW_IMAGES == 1), whose even and odd columns are separated in registers, else with columns of equal residue modulo
 * OUT contiguous. The including file also defines EVEN, ODD, FRONT and BACK of two vectors. */
#ifndef NL_CONV_WINOGRAD_FEW_H
#define NL_CONV_WINOGRAD_FEW_H
#include <stdint.h>
#include <string.h>

#define SINGLE (FEW_IMAGES == 1 && OUT == 2)

/* Elements of one residue's columns in a copied row, and of the row, with room for a vector that reads past the end. */
static int64_t strip_size(const int64_t *m, int64_t nb)
{
    return ((m[TILES_W] + 1) * nb + LANES - 1) / LANES * LANES + LANES;
}

/* Copy n elements in whole vectors, which may copy more; `end`: of the readable memory. */
INLINE void copy_vectors(real *to, const real *from, int64_t n, const real *end)
{
    for (int64_t i = 0; i < n; i += LANES)
        if (from + i + LANES <= end)
            *(loose *)(to + i) = *(const loose *)(from + i);
        else
            copy_few(to + i, from + i, smaller(LANES, n - i));
}

/* pack_row with whole vectors: what is written past the end of a column is overwritten by the next one. */
static void copy_row(const real *row, int64_t width, int64_t all, int64_t lo, int64_t nb, int64_t first, int64_t step, int64_t count, real *to, const real *end)
{
    if (nb > LANES || (nb == 1 && step > 1)) {
        pack_row(row, width, all, lo, lo + nb, first, step, count, to);
        return;
    }
    int64_t left = 0, right = count;
    while (left < count && first + step * left < 0)
        left++;
    while (right > left && first + step * (right - 1) >= width)
        right--;
    const real *from = row + (first + step * left) * all + lo;
    clear_few(to, left * nb);
    if (step == 1 && nb == all)
        copy_vectors(to + left * nb, from, (right - left) * nb, end);
    else
        for (int64_t j = 0; j < right - left; j++)
            copy_vectors(to + (left + j) * nb, from + j * step * all, nb, end);
    clear_few(to + right * nb, (count - right) * nb);
}

/* Copy the rows that a block of tile rows reads of a channel: to[row][residue][column][image]; zeros past the last. */
static void copy_band(const struct call *g, const struct area *a, int64_t c, const struct band *b, real *to)
{
    const int64_t *m = g->meta, N = m[IMAGES], W = m[IN_W], size = strip_size(m, a->nb), first = b->left - m[PAD_W] + m[DIL_W] * OUT * b->tx;
    const real *plane = g->in + (c * m[PLANES] + b->plane) * m[IN_H] * W * N, *end = g->in + m[CHANNELS] * m[PLANES] * m[IN_H] * W * N;
    for (int64_t i = 0; i < OUT * b->lines + 2; i++, to += OUT * size) {
        const int64_t h = b->top - m[PAD_H] + m[DIL_H] * (OUT * b->ty + i);
        if (h < 0 || h >= m[IN_H] || c >= m[CHANNELS])
            memset(to, 0, (size_t)(OUT * size) * sizeof *to);
        else if (SINGLE)
            copy_row(plane + h * W, W, 1, 0, 1, first, m[DIL_W], OUT * b->run + 2, to, end);
        else
            for (int64_t f = 0; f < OUT; f++)
                copy_row(plane + h * W * N, W, N, a->n0, a->nb, first + m[DIL_W] * f, OUT * m[DIL_W], b->run + (f < 2), to + f * size, end);
    }
}

/* The columns of LANES tiles and images of a copied row: from lane `at` on. */
INLINE void load_columns(const real *row, int64_t at, int64_t nb, int64_t size, vec *d)
{
    if (SINGLE) {
        const real *x = row + OUT * at;
        const vec p = *(const loose *)x, q = *(const loose *)(x + LANES), r = *(const loose *)(x + 2), s = *(const loose *)(x + LANES + 2);
        d[0] = EVEN(p, q);
        d[1] = ODD(p, q);
        d[2] = EVEN(r, s);
        d[3] = ODD(r, s);
    } else
#pragma GCC unroll 6
        for (int j = 0; j < EDGE; j++)
            d[j] = *(const loose *)(row + j % OUT * size + j / OUT * nb + at);
}

/* B^T d of the rows of LANES tiles and images, from lane `at` on. */
INLINE void points_of_rows(const real *rows, int64_t at, int64_t nb, int64_t size, vec t[EDGE][EDGE])
{
#pragma GCC unroll 6
    for (int i = 0; i < EDGE; i++) {
        vec d[EDGE];
        load_columns(rows + i * OUT * size, at, nb, size, d);
        input_points(d, t[i]);
    }
}

/* B^T applied to column j of points_of_rows. */
INLINE void points_of_column(vec t[EDGE][EDGE], int j, vec *points)
{
    vec d[EDGE];
#pragma GCC unroll 6
    for (int i = 0; i < EDGE; i++)
        d[i] = t[i][j];
    input_points(d, points);
}

/* B^T d B of a row of tiles with `lanes` lanes; to: destination of the first point; other: from the rows of a pair's first
 * channel to those of its second. Lanes written past them are overwritten by the next row; there is room for `room` lanes. */
static void transform_line(const real *restrict rows, int64_t other, int64_t lanes, int64_t nb, int64_t size, real *restrict to, int64_t room, int64_t point_step)
{
    for (int64_t at = 0; at < lanes; at += LANES) {
        vec t[EDGE][EDGE], first[EDGE][EDGE]; /* of rows; points of a pair's first channel */
        points_of_rows(rows, at, nb, size, t);
        if (PAIRS) {
#pragma GCC unroll 6
            for (int j = 0; j < EDGE; j++)
                points_of_column(t, j, first[j]);
            points_of_rows(rows + other, at, nb, size, t);
        }
        const int64_t left = room - at;
#pragma GCC unroll 6
        for (int j = 0; j < EDGE; j++) {
            vec points[EDGE];
            points_of_column(t, j, points);
#pragma GCC unroll 6
            for (int i = 0; i < EDGE; i++)
                points[i] = paired(first[j][i], points[i]);
            store_points(to + at + j * point_step, EDGE * point_step, points, left >= LANES, left);
        }
    }
}

/* V of some words of channels: v[point][word][lane]. */
static void transform_input(const struct call *g, const struct area *a, int64_t c, int64_t count, real *restrict v, int64_t point_step, real *some)
{
    const int64_t *m = g->meta, size = strip_size(m, a->nb);
    memset(some, 0, (size_t)m[RESULTS_SIZE] * sizeof *some);
    for (int64_t i = 0; i < count; i++, v += a->lanes) {
        for (int point = 0; point < POINTS; point++) /* zero the lanes past the last tile */
            *(vec *)(v + point * point_step + a->lanes - LANES) = (vec){ 0 };
        for (int64_t t = 0, tiles; t < a->tiles; t += tiles) {
            const struct band b = find_band(m, a, t, m[TILES_H]);
            const int64_t rows = (OUT * b.lines + 2) * OUT * size;
            tiles = b.lines * b.run;
            for (int64_t k = 0; k < EACH; k++)
                copy_band(g, a, EACH * (c + i) + k, &b, some + k * rows);
            for (int64_t line = 0; line < b.lines; line++) {
                const int64_t lane = (t + line * b.run) * a->nb;
                transform_line(some + OUT * line * OUT * size, rows, b.run * a->nb, a->nb, size, v + lane, a->lanes - lane, point_step);
            }
        }
    }
}

/* No software prefetching: what is read of a channel is contiguous. */
struct ahead {
    const struct area *a;
    int64_t c, count, done;
};

static void prefetch_share(const struct call *g, struct ahead *ahead, int64_t share, int64_t shares)
{
    (void)g, (void)ahead, (void)share, (void)shares;
}

/* A^T M A: results [OUT][OUT * tiles][nb] of a run of tiles in a row; apart: buffer in which each column of a tile is
 * contiguous. */
static void transform_output(const real *restrict acc, int64_t point_step, int64_t tiles, int64_t nb, real *restrict to, int64_t row, real *restrict apart)
{
    const int64_t lanes = tiles * nb, size = row / OUT;
    for (int64_t at = 0; at < lanes; at += LANES) {
        vec t[OUT][EDGE];
        results_of_columns(acc + at, point_step, t);
#pragma GCC unroll 4
        for (int i = 0; i < OUT; i++) {
            vec y[OUT];
            results(t[i], y);
            if (SINGLE) {
                *(loose *)(to + i * row + OUT * at) = FRONT(y[0], y[1]);
                *(loose *)(to + i * row + OUT * at + LANES) = BACK(y[0], y[1]);
            } else
#pragma GCC unroll 4
                for (int j = 0; j < OUT; j++)
                    *(loose *)(apart + (i * OUT + j) * size + at) = y[j];
        }
    }
    for (int64_t i = 0; !SINGLE && i < OUT; i++)
        for (int64_t k = 0; k < OUT * tiles; k++) {
            const real *from = apart + (i * OUT + k % OUT) * size + k / OUT * nb;
            if (nb <= LANES)
                *(loose *)(to + i * row + k * nb) = *(const loose *)from;
            else
                copy_runs(to + i * row + k * nb, 0, from, 0, nb, 1);
        }
}

#endif
