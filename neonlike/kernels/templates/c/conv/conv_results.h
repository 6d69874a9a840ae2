/* Parts of vectors of results, and two vectors of them; whole ones are loaded and stored as stored.j2 says. The including file
 * defines real, LANES, vec, loose and INLINE, IN_HALVES, whether results are bfloat16, and includes stored.j2. */
#ifndef NL_CONV_RESULTS_H
#define NL_CONV_RESULTS_H
#include <stdint.h>
#include <string.h>

/* Copy fewer than LANES numbers of `each` bytes. */
INLINE void copy_numbers(void *to, const void *from, int64_t n, const size_t each)
{
    char *there = to;
    const char *here = from;
#pragma GCC unroll 6
    for (int k = 5; k >= 0; k--) {
        const size_t bytes = each << k;
        if (1 << k < LANES && n & 1 << k) {
            memcpy(there, here, bytes);
            there += bytes;
            here += bytes;
        }
    }
}

#define copy_some(to, from, n) copy_numbers(to, from, n, sizeof(real))

/* The first n results, fewer than LANES; the others are zero. */
INLINE vec load_first(const stored *from, int64_t n)
{
#if IN_HALVES && defined(NL_SOME) && LANES == 16
    vec v;
    nl_widen_part_bf16((real *)&v, from, n);
    return v;
#else
    stored some[LANES] = { 0 };
    copy_numbers(some, from, n, sizeof *some);
    return load(some);
#endif
}

/* Store the first n, fewer than LANES. */
INLINE void store_first(stored *to, vec v, int64_t n)
{
    stored some[LANES];
    store(some, v);
#if IN_HALVES && defined(NL_SOME) && LANES == 16
    NL_STORE_HALVES(to, *(const nl_halves_anywhere *)some, NL_SOME(n));
#else
    copy_numbers(to, some, n, sizeof *to);
#endif
}

#if IN_HALVES
#if defined(NL_NARROWS) && LANES == 16
#define BY_INSTRUCTION /* results are rounded by one */
#endif
typedef stored two_uppers __attribute__((vector_size(2 * LANES * sizeof(stored)))); /* of two vectors */
typedef stored loose_two_uppers __attribute__((vector_size(2 * LANES * sizeof(stored)), aligned(sizeof(stored)), may_alias));

/* Results of x, then of y; by the instruction only where no number is subnormal. */
INLINE two_uppers uppers_of_two(vec x, vec y)
{
#if defined(BY_INSTRUCTION)
    return nl_uppers_of_two(x, y);
#else
    stored each[2 * LANES];
    two_uppers both;
    store(each, x);
    store(each + LANES, y);
    memcpy(&both, each, sizeof both);
    return both;
#endif
}

INLINE void store_two(stored *to, vec x, vec y)
{
#if defined(BY_INSTRUCTION)
    nl_store_two(to, x, y);
#else
    store(to, x);
    store(to + LANES, y);
#endif
}
#endif
#endif
