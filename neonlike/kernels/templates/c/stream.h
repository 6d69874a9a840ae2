/* Stores that go past the caches, for results larger than these: a plain store reads the line it will overwrite.
 * Results are collected in a strip of NL_STRIP elements first; meanwhile the inputs of the next strip are fetched, since
 * otherwise nothing is read while a strip is stored. */
#ifndef NL_STREAM_H
#define NL_STREAM_H
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static inline void nl_stream(void *to, const void *from, int64_t bytes)
{
    char *out = to;
    const char *in = from;
    int64_t done = 0;
#if defined(__AVX512F__)
    for (; ((uintptr_t)out & 63) == 0 && done + 64 <= bytes; done += 64)
        _mm512_stream_si512((void *)(out + done), _mm512_loadu_si512((const void *)(in + done)));
#elif defined(__AVX__)
    for (; ((uintptr_t)out & 31) == 0 && done + 32 <= bytes; done += 32)
        _mm256_stream_si256((__m256i *)(out + done), _mm256_loadu_si256((const __m256i *)(in + done)));
#elif defined(__SSE2__)
    for (; ((uintptr_t)out & 15) == 0 && done + 16 <= bytes; done += 16)
        _mm_stream_si128((__m128i *)(out + done), _mm_loadu_si128((const __m128i *)(in + done)));
#endif
    if (done < bytes)
        memcpy(out + done, in + done, (size_t)(bytes - done));
}

/* Store one vector at a multiple of its size: past the caches if it has the width that code is compiled for. */
#if defined(__AVX512F__)
#define NL_STREAM(to, v) _mm512_stream_si512((__m512i *)(to), (__m512i)(v))
#define NL_STREAMED __m512i
#elif defined(__AVX__)
#define NL_STREAM(to, v) _mm256_stream_si256((__m256i *)(to), (__m256i)(v))
#define NL_STREAMED __m256i
#elif defined(__SSE2__)
#define NL_STREAM(to, v) _mm_stream_si128((__m128i *)(to), (__m128i)(v))
#define NL_STREAMED __m128i
#endif
#if defined(NL_STREAM)
#define NL_STREAM_VECTOR(to, v)                                                                                \
    do {                                                                                                       \
        if (sizeof(v) == sizeof(NL_STREAMED))                                                                  \
            NL_STREAM(to, __builtin_choose_expr(sizeof(v) == sizeof(NL_STREAMED), (v), (NL_STREAMED){0}));     \
        else                                                                                                   \
            *(__typeof__(v) *)(to) = (v);                                                                      \
    } while (0)
#else
#define NL_STREAM_VECTOR(to, v) (*(__typeof__(v) *)(to) = (v))
#endif

/* After it, other threads see what was stored. */
static inline void nl_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
#endif
