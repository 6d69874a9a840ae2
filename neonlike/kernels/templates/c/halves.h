/* Conversion of blocks of float16 to and from float32, and of bfloat16. Compilers vectorize these with
 * about ten bit operations instead of the one instruction for it: so kernels convert a block before and after they compute
 * with it.
 */
#ifndef NL_HALVES_H
#define NL_HALVES_H
#include "vecmath.h"
/* NL_TO_FLOATS and NL_TO_HALVES convert NL_HALVES at once, the macros of NL_SOME the first of 16. By the compiler's own functions:
 * immintrin.h, which declares all of these, takes longer to read than most kernels to compile. */
#if defined(__has_builtin)
#define NL_HAS(function) __has_builtin(function)
#else
#define NL_HAS(function) 1
#endif
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__F16C__) && NL_HAS(__builtin_ia32_vcvtph2ps512_mask) && \
    NL_HAS(__builtin_ia32_vcvtps2ph512_mask) && NL_HAS(__builtin_ia32_loaddquhi256_mask) && \
    NL_HAS(__builtin_ia32_storedquhi256_mask) && NL_HAS(__builtin_ia32_loadups512_mask) && \
    NL_HAS(__builtin_ia32_storeups512_mask)
#define NL_HALVES 16
#define NL_SOME(count) ((uint16_t)((1u << (count)) - 1))
#define NL_TO_FLOATS(v) __builtin_ia32_vcvtph2ps512_mask(v, (nl_floats){0}, -1, 4)
#define NL_TO_HALVES(v) __builtin_ia32_vcvtps2ph512_mask(v, 0, (nl_halves){0}, -1)
#define NL_LOAD_HALVES(from, some) __builtin_ia32_loaddquhi256_mask((const void *)(from), (nl_halves){0}, some)
#define NL_LOAD_FLOATS(from, some) __builtin_ia32_loadups512_mask((const void *)(from), (nl_floats){0}, some)
#define NL_STORE_HALVES(to, v, some) __builtin_ia32_storedquhi256_mask((void *)(to), v, some)
#define NL_STORE_FLOATS(to, v, some) __builtin_ia32_storeups512_mask((void *)(to), v, some)
#elif defined(__F16C__) && NL_HAS(__builtin_ia32_vcvtph2ps256) && NL_HAS(__builtin_ia32_vcvtps2ph256)
#define NL_HALVES 8
#define NL_TO_FLOATS(v) __builtin_ia32_vcvtph2ps256(v)
#define NL_TO_HALVES(v) __builtin_ia32_vcvtps2ph256(v, 0)
#endif
#if defined(NL_HALVES)
typedef short nl_halves __attribute__((vector_size(2 * NL_HALVES)));
typedef float nl_floats __attribute__((vector_size(4 * NL_HALVES)));
typedef short nl_halves_anywhere __attribute__((vector_size(2 * NL_HALVES), aligned(1), may_alias));
typedef float nl_floats_anywhere __attribute__((vector_size(4 * NL_HALVES), aligned(1), may_alias));
#endif
/* Numbers that fill a vector. bfloat16 is converted by explicit ones: gcc unrolls a loop over a vector's numbers and then has four
 * times as many instructions. */
#if defined(__AVX512F__)
#define NL_AT_ONCE 16
#elif defined(__AVX2__)
#define NL_AT_ONCE 8
#else
#define NL_AT_ONCE 4
#endif
typedef uint32_t nl_words_at_once __attribute__((vector_size(4 * NL_AT_ONCE), aligned(4), may_alias));
typedef uint16_t nl_uppers_at_once __attribute__((vector_size(2 * NL_AT_ONCE), aligned(2), may_alias));
typedef int nl_ints16 __attribute__((vector_size(64)));
typedef uint32_t nl_bits16 __attribute__((vector_size(64)));
typedef uint16_t nl_uppers __attribute__((vector_size(32)));
typedef uint16_t nl_uppers_anywhere __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t nl_uppers32 __attribute__((vector_size(64)));
typedef uint16_t nl_uppers32_anywhere __attribute__((vector_size(64), aligned(2), may_alias));

static inline void nl_widen_f16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(NL_HALVES)
    for (; i + NL_HALVES <= count; i += NL_HALVES)
        *(nl_floats_anywhere *)(to + i) = NL_TO_FLOATS(*(const nl_halves_anywhere *)(from + i));
#endif
#if defined(NL_SOME)
    if (i < count) {
        NL_STORE_FLOATS(to + i, NL_TO_FLOATS(NL_LOAD_HALVES(from + i, NL_SOME(count - i))), NL_SOME(count - i));
        i = count;
    }
#endif
    for (; i < count; i++)
        to[i] = nl_f16_to_f32(from[i]);
}

/* The first `count` of 16, padded with zeros: all 16 are stored, so that a vector load right after is forwarded. */
static inline void nl_widen_part_f16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
#if defined(NL_SOME)
    *(nl_floats_anywhere *)to = NL_TO_FLOATS(NL_LOAD_HALVES(from, NL_SOME(count)));
#else
    for (int64_t i = 0; i < 16; i++)
        to[i] = i < count ? nl_f16_to_f32(from[i]) : 0;
#endif
}

static inline void nl_narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(NL_HALVES)
    for (; i + NL_HALVES <= count; i += NL_HALVES)
        *(nl_halves_anywhere *)(to + i) = NL_TO_HALVES(*(const nl_floats_anywhere *)(from + i));
#endif
#if defined(NL_SOME)
    if (i < count) {
        NL_STORE_HALVES(to + i, NL_TO_HALVES(NL_LOAD_FLOATS(from + i, NL_SOME(count - i))), NL_SOME(count - i));
        i = count;
    }
#endif
    for (; i < count; i++)
        to[i] = nl_f32_to_f16(from[i]);
}

#if defined(NL_SOME)
/* 16 of nl_bf16_to_f32. gcc makes four instructions of the conversion that clang makes one of. */
static inline nl_floats nl_floats_of(nl_halves upper)
{
#if NL_HAS(__builtin_ia32_pmovzxwd512_mask)
    return (nl_floats)((nl_bits16)__builtin_ia32_pmovzxwd512_mask(upper, (nl_ints16){0}, -1) << 16);
#else
    return (nl_floats)(__builtin_convertvector((nl_uppers)upper, nl_bits16) << 16);
#endif
}
#endif

static inline void nl_widen_bf16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(NL_SOME)
    for (; i + 16 <= count; i += 16)
        *(nl_floats_anywhere *)(to + i) = nl_floats_of(*(const nl_halves_anywhere *)(from + i));
    if (i < count) {
        NL_STORE_FLOATS(to + i, nl_floats_of(NL_LOAD_HALVES(from + i, NL_SOME(count - i))), NL_SOME(count - i));
        i = count;
    }
#else
    for (; i + NL_AT_ONCE <= count; i += NL_AT_ONCE)
        *(nl_words_at_once *)(to + i) = __builtin_convertvector(*(const nl_uppers_at_once *)(from + i), nl_words_at_once) << 16;
#endif
    for (; i < count; i++)
        to[i] = nl_bf16_to_f32(from[i]);
}

/* As nl_widen_part_f16. */
static inline void nl_widen_part_bf16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
#if defined(NL_SOME)
    *(nl_floats_anywhere *)to = nl_floats_of(NL_LOAD_HALVES(from, NL_SOME(count)));
#else
    for (int64_t i = 0; i < 16; i++) {
        uint16_t upper = 0;
        if (i < count)
            upper = from[i];
        to[i] = nl_bf16_to_f32(upper);
    }
#endif
}

#if defined(NL_SOME) && defined(__AVX512BF16__) && defined(__AVX512DQ__)
#define NL_NARROWS
/* 16 of nl_f32_to_bf16, of which some are subnormal: the instructions make these 0. */
static inline nl_uppers nl_uppers_of_subnormal(nl_floats x)
{
    const nl_bits16 bits = (nl_bits16)x, some = (nl_bits16)((bits & 0x7f800000u) == 0);
    nl_uppers upper;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(upper) : "v"(x));
    const nl_bits16 others = __builtin_convertvector(upper, nl_bits16) & ~some;
    return __builtin_convertvector((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 & some | others, nl_uppers);
}

/* 16 of nl_f32_to_bf16. */
static inline nl_uppers nl_uppers_of(nl_floats x)
{
    nl_uppers upper;
    int tiny;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(upper) : "v"(x));
    __asm__("vfpclassps $0x20, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(tiny) : "v"(x) : "k1");
    if (__builtin_expect(tiny, 0))
        upper = nl_uppers_of_subnormal(x);
    return upper;
}

/* The same of x, then of y, where no number is subnormal. */
static inline nl_uppers32 nl_uppers_of_two(nl_floats x, nl_floats y)
{
    nl_uppers32 upper;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(upper) : "v"(x), "v"(y));
    return upper;
}

/* Set in a mask of 16 bits which numbers of x are subnormal. */
#define NL_ADD_SUBNORMAL(mask, x) \
    __asm__("vfpclassps $0x20, %1, %%k1\n\tkorw %%k1, %0, %0" : "+k"(mask) : "v"(x) : "k1")

/* Store the same of x, then of y: two vectors take one conversion and one branch. */
static inline void nl_store_two(uint16_t *to, nl_floats x, nl_floats y)
{
    const nl_uppers32 upper = nl_uppers_of_two(x, y);
    int tiny;
    __asm__("vfpclassps $0x20, %1, %%k1\n\tvfpclassps $0x20, %2, %%k2\n\tkortestw %%k1, %%k2" : "=@ccnz"(tiny) : "v"(x), "v"(y) : "k1", "k2");
    if (__builtin_expect(tiny, 0)) {
        *(nl_uppers_anywhere *)to = nl_uppers_of_subnormal(x);
        *(nl_uppers_anywhere *)(to + 16) = nl_uppers_of_subnormal(y);
    } else
        *(nl_uppers32_anywhere *)to = upper;
}

/* The same of numbers that are not subnormal; *tiny is not 0 behind it if some are, of these or earlier ones. */
static inline void nl_store_two_noting(uint16_t *to, nl_floats x, nl_floats y, uint16_t *tiny)
{
    NL_ADD_SUBNORMAL(*tiny, x);
    NL_ADD_SUBNORMAL(*tiny, y);
    *(nl_uppers32_anywhere *)to = nl_uppers_of_two(x, y);
}
#endif

static inline void nl_narrow_bf16(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(NL_NARROWS)
    for (; i + 32 <= count; i += 32)
        nl_store_two(to + i, *(const nl_floats_anywhere *)(from + i), *(const nl_floats_anywhere *)(from + i + 16));
    if (i + 16 <= count) {
        *(nl_uppers_anywhere *)(to + i) = nl_uppers_of(*(const nl_floats_anywhere *)(from + i));
        i += 16;
    }
    if (i < count) {
        const nl_floats rest = NL_LOAD_FLOATS(from + i, NL_SOME(count - i));
        NL_STORE_HALVES(to + i, (nl_halves)nl_uppers_of(rest), NL_SOME(count - i));
        i = count;
    }
#else
    for (; i + NL_AT_ONCE <= count; i += NL_AT_ONCE) {
        const nl_words_at_once x = *(const nl_words_at_once *)(from + i), nearest = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
        const nl_words_at_once nan = (nl_words_at_once)((x & 0x7fffffffu) > 0x7f800000u);
        *(nl_uppers_at_once *)(to + i) = __builtin_convertvector((nearest & ~nan) | ((x >> 16 | 0x40u) & nan), nl_uppers_at_once);
    }
#endif
    for (; i < count; i++)
        to[i] = nl_f32_to_bf16(from[i]);
}
#endif
