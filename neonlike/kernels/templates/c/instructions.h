/* The functions of immintrin.h that kernels call, by gcc's own functions: gcc takes longer to read immintrin.h, which
 * declares thousands, than to compile most kernels. Other compilers, and a gcc without one of them, read it. */
#ifndef NL_INSTRUCTIONS_H
#define NL_INSTRUCTIONS_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__has_builtin)
#define NL_HAS(function) __has_builtin(__builtin_ia32_##function)
#else
#define NL_HAS(function) 0
#endif
#if defined(__AVX2__) && NL_HAS(unpcklps256) && NL_HAS(unpckhps256) && NL_HAS(unpcklpd256) && NL_HAS(unpckhpd256) && \
    NL_HAS(shufps256) && NL_HAS(vperm2f128_ps256) && NL_HAS(vperm2f128_pd256) && NL_HAS(pmovzxbd256) && \
    NL_HAS(packusdw128) && NL_HAS(packuswb128) && NL_HAS(extract128i256) && NL_HAS(si_si256)
#define NL_GCC_AVX2 1
#endif
#if defined(__AVX512F__) && NL_HAS(cmpps512_mask) && NL_HAS(cmppd512_mask) && NL_HAS(cmpd512_mask) && NL_HAS(cmpq512_mask) && \
    NL_HAS(movaps512_mask) && NL_HAS(movapd512_mask) && NL_HAS(movdqa32_512_mask) && NL_HAS(movdqa64_512_mask) && \
    NL_HAS(maxps512_mask) && NL_HAS(maxpd512_mask) && NL_HAS(addps512_mask) && \
    (!defined(__AVX512BW__) || !defined(__AVX512VL__) || NL_HAS(pcmpeqb128_mask)) && \
    (!defined(__AVX512VPOPCNTDQ__) || NL_HAS(vpopcountq_v8di))
#define NL_GCC_AVX512 1
#endif

#if (defined(__AVX512F__) && !defined(NL_GCC_AVX512)) || (defined(__AVX2__) && !defined(NL_GCC_AVX2))
#include <immintrin.h>
#else
#if defined(NL_GCC_AVX2)
typedef float __m256 __attribute__((vector_size(32), may_alias));
typedef double __m256d __attribute__((vector_size(32), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef long long nl_any_256i __attribute__((vector_size(32), may_alias, aligned(1)));
typedef char nl_16_bytes __attribute__((vector_size(16)));
typedef short nl_8_shorts __attribute__((vector_size(16)));
typedef int nl_4_ints __attribute__((vector_size(16)));
typedef int nl_8_ints __attribute__((vector_size(32)));
typedef long long nl_any_8_bytes __attribute__((may_alias, aligned(1)));
#define _mm256_unpacklo_ps(x, y) __builtin_ia32_unpcklps256(x, y)
#define _mm256_unpackhi_ps(x, y) __builtin_ia32_unpckhps256(x, y)
#define _mm256_unpacklo_pd(x, y) __builtin_ia32_unpcklpd256(x, y)
#define _mm256_unpackhi_pd(x, y) __builtin_ia32_unpckhpd256(x, y)
#define _mm256_shuffle_ps(x, y, which) __builtin_ia32_shufps256(x, y, which)
#define _mm256_permute2f128_ps(x, y, which) __builtin_ia32_vperm2f128_ps256(x, y, which)
#define _mm256_permute2f128_pd(x, y, which) __builtin_ia32_vperm2f128_pd256(x, y, which)
#define _mm256_cvtepu8_epi32(x) ((__m256i)__builtin_ia32_pmovzxbd256((nl_16_bytes)(x)))
#define _mm256_castsi256_si128(x) ((__m128i)__builtin_ia32_si_si256((nl_8_ints)(x)))
#define _mm256_extracti128_si256(x, which) ((__m128i)__builtin_ia32_extract128i256(x, which))
#define _mm256_loadu_si256(from) ((__m256i)*(const nl_any_256i *)(from))
#define _mm256_storeu_si256(to, x) ((void)(*(nl_any_256i *)(to) = (x)))
#define _mm_loadl_epi64(from) ((__m128i){ *(const nl_any_8_bytes *)(from), 0 })
#define _mm_storel_epi64(to, x) ((void)(*(nl_any_8_bytes *)(to) = ((__m128i)(x))[0]))
#define _mm_packus_epi32(x, y) ((__m128i)__builtin_ia32_packusdw128((nl_4_ints)(x), (nl_4_ints)(y)))
#define _mm_packus_epi16(x, y) ((__m128i)__builtin_ia32_packuswb128((nl_8_shorts)(x), (nl_8_shorts)(y)))
#endif
#if defined(NL_GCC_AVX512)
typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef unsigned char __mmask8;
typedef unsigned short __mmask16;
typedef int nl_16_ints __attribute__((vector_size(64)));
#define _CMP_EQ_OQ 0x00
#define _CMP_GT_OQ 0x1e
/* The last argument: rounded as the processor is told to. Where no lane keeps another value, -1 is the mask. */
#define _mm512_cmp_ps_mask(x, y, how) ((__mmask16)__builtin_ia32_cmpps512_mask(x, y, how, -1, 4))
#define _mm512_cmp_pd_mask(x, y, how) ((__mmask8)__builtin_ia32_cmppd512_mask(x, y, how, -1, 4))
#define _mm512_mask_cmplt_epi32_mask(mask, x, y) \
    ((__mmask16)__builtin_ia32_cmpd512_mask((nl_16_ints)(x), (nl_16_ints)(y), 1, mask))
#define _mm512_mask_cmplt_epi64_mask(mask, x, y) ((__mmask8)__builtin_ia32_cmpq512_mask(x, y, 1, mask))
#define _mm512_mask_mov_ps(old, mask, x) __builtin_ia32_movaps512_mask(x, old, mask)
#define _mm512_mask_mov_pd(old, mask, x) __builtin_ia32_movapd512_mask(x, old, mask)
#define _mm512_mask_mov_epi32(old, mask, x) \
    ((__m512i)__builtin_ia32_movdqa32_512_mask((nl_16_ints)(x), (nl_16_ints)(old), mask))
#define _mm512_mask_mov_epi64(old, mask, x) __builtin_ia32_movdqa64_512_mask(x, old, mask)
#define _mm512_max_ps(x, y) __builtin_ia32_maxps512_mask(x, y, (__m512){ 0 }, -1, 4)
#define _mm512_max_pd(x, y) __builtin_ia32_maxpd512_mask(x, y, (__m512d){ 0 }, -1, 4)
#define _mm512_mask_add_ps(old, mask, x, y) __builtin_ia32_addps512_mask(x, y, old, mask, 4)
#define _mm_cmpeq_epi8_mask(x, y) ((__mmask16)__builtin_ia32_pcmpeqb128_mask((nl_16_bytes)(x), (nl_16_bytes)(y), -1))
#define _mm512_popcnt_epi64(x) __builtin_ia32_vpopcountq_v8di(x)
#endif
#endif
#undef NL_HAS
#endif
