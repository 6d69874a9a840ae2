/* Conversion of blocks of float16 to and from float32. Compilers vectorize these conversions with about ten bit
 * operations instead of the one instruction for it: so kernels convert a block before and after they compute with it.
 */
#ifndef NL_HALVES_H
#define NL_HALVES_H
#include "vecmath.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline void nl_widen_f16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(__AVX512F__) && defined(__F16C__)
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if (i < count) {
        const __mmask16 rest = (__mmask16)((1u << (count - i)) - 1);
        _mm512_mask_storeu_ps(to + i, rest, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rest, from + i)));
        i = count;
    }
#endif
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < count; i++)
        to[i] = nl_f16_to_f32(from[i]);
}

/* The first `count` of 16, padded with zeros: all 16 are stored, so that a vector load right after is forwarded. */
static inline void nl_widen_part_f16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__F16C__)
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from)));
#else
    for (int64_t i = 0; i < 16; i++)
        to[i] = i < count ? nl_f16_to_f32(from[i]) : 0;
#endif
}

static inline void nl_narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    int64_t i = 0;
#if defined(__AVX512F__) && defined(__F16C__)
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if (i < count) {
        const __mmask16 rest = (__mmask16)((1u << (count - i)) - 1);
        const __m512 last = _mm512_maskz_loadu_ps(rest, from + i);
        _mm256_mask_storeu_epi16(to + i, rest, _mm512_cvtps_ph(last, _MM_FROUND_TO_NEAREST_INT));
        i = count;
    }
#endif
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < count; i++)
        to[i] = nl_f32_to_f16(from[i]);
}
#endif
