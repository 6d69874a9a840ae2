/* Results as they lie in memory: numbers of the type `stored`, which is `real` or, if IN_HALVES, bfloat16 (result.j2). Those
 * are rounded once, when they are kept, as halves.h rounds; old ones are float again when they are taken. The including file
 * defines real, LANES, vec, loose and INLINE. */
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

#if !IN_HALVES
#define NUMBER(result) (result)
#define TAKE(from) (*(const loose *)(from))
#define KEEP(to, v) (*(loose *)(to) = (v))
#define TAKE_SOME(v, from, n) copy_some(&(v), from, n)
#define KEEP_SOME(to, v, n) copy_some(to, &(v), n)
#else
#include "halves.h"
#define NUMBER(result) nl_bf16_to_f32(result)
#define TAKE(from) taken(from)
#define KEEP(to, v) keep(to, v)
#define TAKE_SOME(v, from, n) ((v) = taken_some(from, n))
#define KEEP_SOME(to, v, n) keep_some(to, v, n)
#if defined(NL_NARROWS) && LANES == 16
#define BY_INSTRUCTION
#endif

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t uppers __attribute__((vector_size(2 * LANES)));
typedef uint16_t loose_uppers __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint16_t two_uppers __attribute__((vector_size(4 * LANES))); /* of two vectors */
typedef uint16_t loose_two_uppers __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

INLINE vec floats_of(uppers v)
{
#if defined(NL_SOME) && LANES == 16
    return (vec)nl_floats_of((nl_halves)v);
#else
    return (vec)(__builtin_convertvector(v, words) << 16);
#endif
}

INLINE vec taken(const uint16_t *from)
{
    return floats_of(*(const loose_uppers *)from);
}

/* The first n, fewer than LANES; the others are zero. */
INLINE vec taken_some(const uint16_t *from, int64_t n)
{
#if defined(NL_SOME) && LANES == 16
    return floats_of((uppers)NL_LOAD_HALVES(from, NL_SOME(n)));
#else
    uppers some = { 0 };
    copy_numbers(&some, from, n, sizeof *from);
    return floats_of(some);
#endif
}

/* nl_f32_to_bf16 of each. */
INLINE uppers uppers_of(vec v)
{
#if defined(BY_INSTRUCTION)
    return nl_uppers_of(v);
#else
    const words x = (words)v, nearest = (x + 0x7fffu + (x >> 16 & 1u)) >> 16, nan = (words)((x & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector((nearest & ~nan) | ((x >> 16 | 0x40u) & nan), uppers);
#endif
}

INLINE void keep(uint16_t *to, vec v)
{
    *(loose_uppers *)to = uppers_of(v);
}

INLINE void keep_some(uint16_t *to, vec v, int64_t n)
{
    const uppers some = uppers_of(v);
#if defined(NL_SOME) && LANES == 16
    NL_STORE_HALVES(to, (nl_halves)some, NL_SOME(n));
#else
    copy_numbers(to, &some, n, sizeof *to);
#endif
}

/* Those of x, then of y; by the instruction only where no number is subnormal. */
INLINE two_uppers uppers_of_two(vec x, vec y)
{
#if defined(BY_INSTRUCTION)
    return nl_uppers_of_two(x, y);
#else
    const uppers each[2] = { uppers_of(x), uppers_of(y) };
    two_uppers both;
    memcpy(&both, each, sizeof both);
    return both;
#endif
}

INLINE void keep_two(uint16_t *to, vec x, vec y)
{
#if defined(BY_INSTRUCTION)
    nl_store_two(to, x, y);
#else
    keep(to, x);
    keep(to + LANES, y);
#endif
}
#endif
#endif
