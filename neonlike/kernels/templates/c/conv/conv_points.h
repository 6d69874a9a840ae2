/* The three transforms of conv/winograd.c.j2 along one axis, for tiles of 2 and of 4 results (Lavin and Gray, arXiv
 * 1509.09308), and how points are paired and stored. The including file defines real, vec, loose, INLINE, OUT, EDGE and
 * PAIRS, and includes pairs.h and conv_finish.h before. */
#ifndef NL_CONV_POINTS_H
#define NL_CONV_POINTS_H

#include <stdint.h>

/* B^T applied to a row or column of an input tile, G to one of a filter, A^T to one of the sums. */
#if OUT == 2
INLINE void input_points(const vec *d, vec *to)
{
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
}

INLINE void filter_points(const vec *f, vec *to)
{
    const real half = (real)0.5;
    to[0] = f[0];
    to[1] = half * ((f[0] + f[2]) + f[1]);
    to[2] = half * ((f[0] + f[2]) - f[1]);
    to[3] = f[2];
}

INLINE void results(const vec *p, vec *to)
{
    to[0] = p[0] + (p[1] + p[2]);
    to[1] = (p[1] - p[2]) - p[3];
}
#else
INLINE void input_points(const vec *d, vec *to)
{
    const vec a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
    to[0] = (4 * d[0] - 5 * d[2]) + d[4];
    to[1] = a + b;
    to[2] = a - b;
    to[3] = c + e;
    to[4] = c - e;
    to[5] = (4 * d[1] - 5 * d[3]) + d[5];
}

INLINE void filter_points(const vec *f, vec *to)
{
    const real sixth = (real)1 / 6;
    const vec a = sixth * (f[0] + f[2]), b = sixth * f[1];
    const vec c = sixth * (f[0] * (real)0.25 + f[2]), d = sixth * (real)0.5 * f[1];
    to[0] = (real)0.25 * f[0];
    to[1] = -(a + b);
    to[2] = b - a;
    to[3] = c + d;
    to[4] = c - d;
    to[5] = f[2];
}

INLINE void results(const vec *p, vec *to)
{
    const vec a = p[1] + p[2], b = p[1] - p[2], c = p[3] + p[4], d = p[3] - p[4];
    to[0] = p[0] + a + c;
    to[1] = b + 2 * d;
    to[2] = a + 4 * c;
    to[3] = b + 8 * d + p[5];
}
#endif

#if PAIRS
/* Pairs of two channels' numbers. */
INLINE vec paired(vec first, vec second)
{
    nl_words one = { 0 }, other = { 0 };
    memcpy(&one, &first, sizeof first);
    memcpy(&other, &second, sizeof second);
    one = nl_pairs_of(one, other);
    memcpy(&first, &one, sizeof first);
    return first;
}
#else
#define paired(first, second) (second)
#endif

/* The first n elements, fewer than LANES. */
APART vec load_some(const real *from, int64_t n)
{
    vec v = { 0 };
    copy_some(&v, from, n);
    return v;
}

/* Store the first n elements, fewer than LANES, of each of EDGE vectors, `step` apart. */
APART void store_some(real *to, int64_t step, const vec *from, int64_t n)
{
    for (int i = 0; i < EDGE; i++, to += step)
        copy_some(to, &from[i], n);
}

/* Store EDGE vectors, `step` apart: whole ones, or the first n elements of each. */
INLINE void store_points(real *to, int64_t step, const vec *points, int whole, int64_t n)
{
    if (whole)
#pragma GCC unroll 6
        for (int i = 0; i < EDGE; i++)
            *(loose *)(to + i * step) = points[i];
    else {
        vec some[EDGE]; /* a copy, so that the points stay in registers */
#pragma GCC unroll 6
        for (int i = 0; i < EDGE; i++)
            some[i] = points[i];
        store_some(to, step, some, n);
    }
}

/* A^T applied to each column of a tile's EDGE x EDGE sums, which are `point_step` apart: OUT values for each column. */
INLINE void results_of_columns(const real *sums, int64_t point_step, vec to[OUT][EDGE])
{
#pragma GCC unroll 6
    for (int j = 0; j < EDGE; j++) {
        vec p[EDGE], y[OUT];
#pragma GCC unroll 6
        for (int i = 0; i < EDGE; i++)
            p[i] = *(const loose *)(sums + (EDGE * i + j) * point_step);
        results(p, y);
#pragma GCC unroll 4
        for (int i = 0; i < OUT; i++)
            to[i][j] = y[i];
    }
}

#endif
