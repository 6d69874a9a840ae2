/* Copies of short input rows, for packing strips (conv_strips.h) and Winograd tiles of few images
 * (conv_winograd_few.h). The including file defines real. */
#ifndef NL_CONV_ROWS_H
#define NL_CONV_ROWS_H
#include <stdint.h>
#include <string.h>

/* The including file may define TAKE_RUN(to, from, n), by which n elements are read that are not packed as they are, and READS,
 * the elements in memory for one that is packed. */
#ifndef READS
#define READS 1
#endif

/* memcpy of a few elements, inline: a call would take longer than the copy. */
static inline void copy_few(real *restrict to, const real *restrict from, int64_t n)
{
    for (; n >= 16; n -= 16, to += 16, from += 16)
        memcpy(to, from, 16 * sizeof *to);
#define NL_COPY(some) if (n & some) { memcpy(to, from, some * sizeof *to); to += some; from += some; }
    NL_COPY(8)
    NL_COPY(4)
    NL_COPY(2)
    NL_COPY(1)
#undef NL_COPY
}

/* memset to zero, likewise. */
static inline void clear_few(real *to, int64_t n)
{
    static const real zeros[16];
    for (; n > 16; n -= 16, to += 16)
        copy_few(to, zeros, 16);
    copy_few(to, zeros, n);
}

enum { FEW = 256 }; /* elements that are copied inline */

/* Copy runs of n elements, from_step and to_step apart. */
static inline void copy_runs(real *restrict to, int64_t to_step, const real *restrict from, int64_t from_step, int64_t n, int64_t count)
{
#if defined(TAKE_RUN)
    for (int64_t j = 0; j < count; j++)
        TAKE_RUN(to + j * to_step, from + j * from_step * READS, n);
#else
    if (n == 1 && to_step == 1 && from_step == 2) /* a constant stride, for which compilers emit vector code */
        for (int64_t j = 0; j < count; j++)
            to[j] = from[2 * j];
    else if (n == 1)
        for (int64_t j = 0; j < count; j++)
            to[j * to_step] = from[j * from_step];
#define NL_COPY_ALL(some) \
    else if (n == some) \
        for (int64_t j = 0; j < count; j++) \
            memcpy(to + j * to_step, from + j * from_step, some * sizeof *to);
    NL_COPY_ALL(2)
    NL_COPY_ALL(4)
    NL_COPY_ALL(8)
#undef NL_COPY_ALL
    else if (n <= FEW)
        for (int64_t j = 0; j < count; j++)
            copy_few(to + j * to_step, from + j * from_step, n);
    else
        for (int64_t j = 0; j < count; j++)
            memcpy(to + j * to_step, from + j * from_step, (size_t)n * sizeof *to);
#endif
}

/* Pack count columns of an input row, every step-th from column `first`: [count][images lo to hi]; zero outside the
 * row. */
static void pack_row(const real *restrict row, int64_t width, int64_t all, int64_t lo, int64_t hi, int64_t first,
                     int64_t step, int64_t count, real *restrict to)
{
    const int64_t n = hi - lo;
    int64_t left = first < 0 ? (-first + step - 1) / step : 0; /* columns before the first of the row */
    int64_t right = first < width ? (width - 1 - first) / step + 1 : 0; /* columns up to the last of it */
    left = left < count ? left : count;
    right = right < left ? left : right < count ? right : count;
    const real *from = row + ((first + step * left) * all + lo) * READS;
    clear_few(to, left * n);
    if (step == 1 && n == all)
        copy_runs(to + left * n, 0, from, 0, (right - left) * n, right > left);
    else
        copy_runs(to + left * n, n, from, step * all, n, right - left);
    clear_few(to + right * n, (count - right) * n);
}

#endif
