/* Products of bfloat16 by pairs: two numbers that are multiplied and added one after the other lie in one word of 32
 * bits, the first in the lower half. So kernels for float read factors of pairs as they read floats, with half as many
 * along the inner dimension; they only move them, and add products by ADD_PRODUCT. Sums are float.
 *
 * The file that includes this may define PAIRS: 0, the default, for factors of float or double, 1 for pairs by the processor's
 * instruction (AVX512-BF16) where it has one, 2 for pairs without it: its twin in plain arithmetic, 3 for pairs that tiles
 * multiply (tiles.h); they are rounded as for 1. */
#ifndef NL_PAIRS_H
#define NL_PAIRS_H
#include <stdint.h>
#include <string.h>

#include "team.h"

#ifndef PAIRS
#define PAIRS 0
#endif
#if (PAIRS == 1 || PAIRS == 3) && defined(__AVX512BF16__)
#define NL_PAIR_INSTRUCTION
#endif

typedef int32_t nl_word_anywhere __attribute__((may_alias));

#if !PAIRS
#define SPLAT(type, factor) ((factor) - (type){ 0 })
#define ADD_SPLAT(sum, splat, v) ((sum) += (splat) * (v))
#define ADD_PRODUCT(sum, factor, v) ((sum) += (factor) * (v))
#define ADD_NUMBER(sum, one, other) ((sum) += (one) * (other))
#else
#define SPLAT(type, factor)                                                                                            \
    __extension__({                                                                                                    \
        typedef int32_t nl_ints __attribute__((vector_size(sizeof(type))));                                            \
        (type)(*(const nl_word_anywhere *)&(factor) - (nl_ints){ 0 });                                                 \
    })
#define ADD_NUMBER(sum, one, other) ((sum) = nl_add_pair(sum, &(one), &(other)))
#define ADD_PRODUCT(sum, factor, v) ADD_SPLAT(sum, SPLAT(__typeof__(sum), factor), v)
#if defined(NL_PAIR_INSTRUCTION)
/* By a variable of its own: compilers keep an array in memory whose elements an asm statement changes. */
#define ADD_SPLAT(sum, splat, v)                                                                                       \
    do {                                                                                                               \
        __typeof__(sum) sum_ = (sum);                                                                                  \
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum_) : "v"(v), "v"(splat));                                             \
        (sum) = sum_;                                                                                                  \
    } while (0)
#else
#define ADD_SPLAT(sum, splat, v)                                                                                       \
    do {                                                                                                               \
        typedef int32_t nl_ints __attribute__((vector_size(sizeof(sum))));                                             \
        typedef __typeof__(sum) nl_sums;                                                                               \
        const nl_ints one_ = (nl_ints)(splat), other_ = (nl_ints)(v), upper_ = (nl_ints){ 0 } - 65536;                 \
        (sum) += (nl_sums)(one_ << 16) * (nl_sums)(other_ << 16);                                                      \
        (sum) += (nl_sums)(one_ & upper_) * (nl_sums)(other_ & upper_);                                                \
    } while (0)
#endif

/* Add the products of two pairs to a sum. */
static inline float nl_add_pair(float sum, const float *one, const float *other)
{
    const uint32_t a = (uint32_t)*(const nl_word_anywhere *)one, b = (uint32_t)*(const nl_word_anywhere *)other;
    const uint32_t halves[4] = { a << 16, b << 16, a & 0xffff0000u, b & 0xffff0000u };
    float x[4];
    memcpy(x, halves, sizeof x);
    return sum + x[0] * x[1] + x[2] * x[3];
}

enum { NL_PAIRED = 16, NL_PAIRS_OF_UNIT = 4096 }; /* words of a vector, and of a unit of work */
typedef uint32_t nl_words __attribute__((vector_size(4 * NL_PAIRED)));
typedef uint32_t nl_words_anywhere __attribute__((vector_size(4 * NL_PAIRED), aligned(4), may_alias));
typedef uint32_t nl_words_stored __attribute__((vector_size(4 * NL_PAIRED), aligned(2), may_alias)); /* where bfloat16 lie */
typedef uint16_t nl_upper __attribute__((vector_size(2 * NL_PAIRED)));
typedef uint16_t nl_upper_anywhere __attribute__((vector_size(2 * NL_PAIRED), aligned(2), may_alias));

/* The nearest bfloat16 of each float, ties to even; subnormal numbers become 0, nan stays nan. */
static inline nl_upper nl_rounded(nl_words x)
{
#if defined(NL_PAIR_INSTRUCTION)
    nl_upper rounded;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
    return rounded;
#else
    const nl_words size = x & 0x7fffffffu, sign = x & 0x80000000u;
    const nl_words nearest = x + 0x7fffu + (x >> 16 & 1u), quiet = x | 0x400000u;
    const nl_words nan = (nl_words)(size > 0x7f800000u), tiny = (nl_words)(size < 0x800000u);
    const nl_words found = (nearest & ~nan & ~tiny) | (quiet & nan) | (sign & tiny);
    return __builtin_convertvector(found >> 16, nl_upper);
#endif
}

#if defined(NL_PAIR_INSTRUCTION) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) /* gcc has it from version 12 on */
#define NL_PAIRS_AT_ONCE
#endif
#endif

static inline nl_words nl_pairs_of(nl_words first, nl_words second)
{
#if defined(NL_PAIRS_AT_ONCE)
    typedef uint16_t nl_halves __attribute__((vector_size(4 * NL_PAIRED)));
    nl_halves both; /* of all words of the first, then of all of the second */
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(first), "v"(second));
    return (nl_words)__builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25,
                                             10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#endif
    return __builtin_convertvector(nl_rounded(first), nl_words) | __builtin_convertvector(nl_rounded(second), nl_words) << 16;
}

/* The pairs of neighbours in 32 floats, the first half of which is `first`. */
static inline nl_words nl_neighbours_of(nl_words first, nl_words second)
{
#if defined(NL_PAIR_INSTRUCTION)
    nl_words both;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(first), "v"(second));
    return both;
#else
    const nl_upper halves[2] = { nl_rounded(first), nl_rounded(second) };
    nl_words both;
    memcpy(&both, halves, sizeof both);
    return both;
#endif
}

/* Which words of a vector are numbers lo to hi, as a mask. */
static inline uint32_t nl_some(int64_t lo, int64_t hi)
{
    lo = lo > 0 ? lo : 0;
    hi = hi < NL_PAIRED ? hi : NL_PAIRED;
    return lo < hi ? 0xffffu >> (NL_PAIRED - (hi - lo)) << lo : 0;
}

/* The words lo to hi of the vector at `from`; only these are read, the others are zero. */
static inline nl_words nl_take(const float *from, int64_t lo, int64_t hi)
{
    nl_words x = { 0 };
#if defined(NL_PAIR_INSTRUCTION)
    __asm__("vmovdqu32 %1, %0%{%2%}%{z%}" : "=v"(x) : "m"(*(const nl_words_anywhere *)from), "Yk"(nl_some(lo, hi)));
#else
    for (int64_t i = lo > 0 ? lo : 0; i < NL_PAIRED && i < hi; i++)
        memcpy((char *)&x + 4 * i, from + i, 4);
#endif
    return x;
}

/* Store the first `count` words of a vector. */
static inline void nl_put(float *to, nl_words x, int64_t count)
{
#if defined(NL_PAIR_INSTRUCTION)
    __asm__("vmovdqu32 %1, %0%{%2%}" : "+m"(*(nl_words_anywhere *)to) : "v"(x), "Yk"(nl_some(0, count)));
#else
    memcpy(to, &x, (size_t)(count < NL_PAIRED ? count : NL_PAIRED) * 4);
#endif
}

/* Pair each float of a line with that of another one; with zero if there is none. */
static inline void nl_pair_lines(float *to, const float *first, const float *second, int64_t count)
{
    int64_t i = 0;
    for (; i + NL_PAIRED <= count; i += NL_PAIRED) {
        nl_words other = { 0 };
        if (second)
            other = *(const nl_words_anywhere *)(second + i);
        *(nl_words_anywhere *)(to + i) = nl_pairs_of(*(const nl_words_anywhere *)(first + i), other);
    }
    if (i < count) {
        nl_words other = { 0 };
        if (second)
            other = nl_take(second + i, 0, count - i);
        nl_put(to + i, nl_pairs_of(nl_take(first + i, 0, count - i), other), count - i);
    }
}

/* Pair the floats of a line with their neighbours; the last one of an odd number with zero. */
static inline void nl_pair_neighbours(float *to, const float *from, int64_t count)
{
    for (; count >= 2 * NL_PAIRED; count -= 2 * NL_PAIRED, to += NL_PAIRED, from += 2 * NL_PAIRED)
        *(nl_words_anywhere *)to = nl_neighbours_of(*(const nl_words_anywhere *)from, *(const nl_words_anywhere *)(from + NL_PAIRED));
    if (count > 0)
        nl_put(to, nl_neighbours_of(nl_take(from, 0, count), nl_take(from + NL_PAIRED, 0, count - NL_PAIRED)), (count + 1) / 2);
}

/* Pairs of numbers that are stored in bfloat16, as they are multiplied: subnormal ones become 0. */
static inline nl_words nl_words_of_stored(nl_words x)
{
#if !defined(NL_PAIR_INSTRUCTION) /* the instruction takes subnormal numbers for 0 */
    const nl_words lower = (nl_words)((x & 0x7f80u) == 0), upper = (nl_words)((x & 0x7f800000u) == 0);
    x &= ~(lower & 0x7fffu) & ~(upper & 0x7fff0000u);
#endif
    return x;
}

/* Whether bfloat16 that are neighbours serve as pairs where they are. */
#if defined(NL_PAIR_INSTRUCTION)
#define NL_STORED_PAIRS(from) ((uintptr_t)(from) % 4 == 0)
#else
#define NL_STORED_PAIRS(from) 0
#endif

/* As nl_pairs_of. */
static inline nl_words nl_joined(nl_upper first, nl_upper second)
{
#if defined(NL_PAIRS_AT_ONCE)
    return (nl_words)__builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25,
                                             10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#else
    return nl_words_of_stored(__builtin_convertvector(first, nl_words) | __builtin_convertvector(second, nl_words) << 16);
#endif
}

/* As nl_pair_lines and nl_pair_neighbours, of numbers that are bfloat16. */
static inline void nl_join_lines(float *to, const uint16_t *first, const uint16_t *second, int64_t count)
{
    int64_t i = 0;
    for (; i + NL_PAIRED <= count; i += NL_PAIRED) {
        nl_upper other = { 0 };
        if (second)
            other = *(const nl_upper_anywhere *)(second + i);
        *(nl_words_anywhere *)(to + i) = nl_joined(*(const nl_upper_anywhere *)(first + i), other);
    }
    for (; i < count; i++) {
        const nl_words word = nl_words_of_stored((nl_words){ first[i] | (second ? (uint32_t)second[i] << 16 : 0u) });
        memcpy(to + i, &word, 4);
    }
}

static inline void nl_join_neighbours(float *to, const uint16_t *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 2 * NL_PAIRED <= count; i += 2 * NL_PAIRED)
        *(nl_words_anywhere *)(to + i / 2) = nl_words_of_stored(*(const nl_words_stored *)(from + i));
    if (i < count) {
        nl_words rest = { 0 };
        memcpy(&rest, from + i, (size_t)(count - i) * 2);
        rest = nl_words_of_stored(rest);
        memcpy(to + i / 2, &rest, (size_t)(count - i + 1) / 2 * 4);
    }
}

/* Pair floats of a row that are `apart`, from `before` floats in front of it on: `count` pairs, the first of which is number
 * `first`. Outside of the row there are zeros. */
static inline void nl_pair_apart(float *to, const float *row, int64_t length, int64_t before, int64_t apart, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i += NL_PAIRED) {
        const int64_t one = first + i - before, other = one + apart;
        nl_put(to + i, nl_pairs_of(nl_take(row + one, -one, length - one), nl_take(row + other, -other, length - other)), count - i);
    }
}

/* As nl_pair_apart, of a row of bfloat16. */
static inline void nl_join_apart(float *to, const uint16_t *row, int64_t length, int64_t before, int64_t apart, int64_t first, int64_t count)
{
    int64_t i = 0;
    while (i < count) {
        const int64_t one = i + first - before, other = one + apart;
        if (one >= 0 && other + NL_PAIRED <= length && i + NL_PAIRED <= count) {
            nl_join_lines(to + i, row + one, row + other, NL_PAIRED);
            i += NL_PAIRED;
        } else {
            const uint32_t lower = one >= 0 && one < length ? row[one] : 0, upper = other >= 0 && other < length ? row[other] : 0;
            const nl_words word = nl_words_of_stored((nl_words){ lower | upper << 16 });
            memcpy(to + i++, &word, 4);
        }
    }
}

/* What pairs are of: each two rows, neighbours in a row, floats apart in it; each two rows, which the kernel itself pairs. */
enum { NL_ROWS, NL_NEIGHBOURS, NL_APART, NL_LATER };

/* Rows of floats, or of bfloat16 if they are `stored` so, `step` apart, whose pairs are made. */
struct nl_pairing {
    const float *from;
    float *to;
    int64_t rows, length, step, kind, before, apart, stored;
    int64_t lines, words, units; /* lines of pairs; words and units of each */
};

/* Join `count` pairs of a line of bfloat16, from `first` on. */
static inline void nl_join_unit(const struct nl_pairing *p, int64_t line, int64_t first, int64_t count, float *to)
{
    const uint16_t *const rows = (const uint16_t *)(const void *)p->from;
    if (p->kind == NL_APART)
        nl_join_apart(to, rows + line * p->step, p->length, p->before, p->apart, first, count);
    else if (p->kind == NL_NEIGHBOURS) {
        const int64_t left = p->length - 2 * first;
        nl_join_neighbours(to, rows + line * p->step + 2 * first, left < 2 * count ? left : 2 * count);
    } else {
        const uint16_t *const lower = rows + 2 * line * p->step + first;
        nl_join_lines(to, lower, 2 * line + 1 < p->rows ? lower + p->step : 0, count);
    }
}

static void nl_pair_units(const void *context, int64_t lo, int64_t hi, int64_t me)
{
    const struct nl_pairing *p = context;
    (void)me;
    for (int64_t unit = lo; unit < hi; unit++) {
        const int64_t line = p->units > 1 ? unit / p->units : unit, first = (unit - line * p->units) * NL_PAIRS_OF_UNIT;
        const int64_t left = p->words - first;
        const int64_t count = left < NL_PAIRS_OF_UNIT ? left : NL_PAIRS_OF_UNIT;
        float *const to = p->to + line * p->words + first;
        if (p->stored)
            nl_join_unit(p, line, first, count, to);
        else if (p->kind == NL_APART)
            nl_pair_apart(to, p->from + line * p->step, p->length, p->before, p->apart, first, count);
        else if (p->kind == NL_NEIGHBOURS) {
            const int64_t floats = p->length - 2 * first;
            nl_pair_neighbours(to, p->from + line * p->step + 2 * first, floats < 2 * count ? floats : 2 * count);
        } else {
            const float *const from = p->from + 2 * line * p->step + first;
            nl_pair_lines(to, from, 2 * line + 1 < p->rows ? from + p->step : 0, count);
        }
    }
}

enum { NL_KIND = 3, NL_PAIRING = 7 }; /* numbers that describe a pairing: rows, length, step, kind, before, apart, stored */

/* Pair an operand in working memory, which goes on behind it; returns where the pairs lie, line after line. What the kernel
 * pairs stays where it is. */
static inline const float *nl_pair_up(const float *from, const int64_t *how, float **work, int64_t threads)
{
    struct nl_pairing p = { from, *work, how[0], how[1], how[2], how[NL_KIND], how[4], how[5], how[6], how[0], how[1] + how[4], 0 };
    if (p.kind == NL_LATER)
        return from;
    if (p.kind == NL_ROWS)
        p.lines = (p.rows + 1) / 2;
    else if (p.kind == NL_NEIGHBOURS)
        p.words = (p.length + 1) / 2;
    p.units = (p.words + NL_PAIRS_OF_UNIT - 1) / NL_PAIRS_OF_UNIT;
    nl_share(nl_pair_units, &p, p.lines * p.units, nl_unit(p.lines * p.units, threads, 1 + NL_PAIRS_OF_UNIT / (p.words + 1), 1), threads);
    *work += (p.lines * p.words + 1023) / 1024 * 1024;
    return p.to;
}
#endif
#endif
