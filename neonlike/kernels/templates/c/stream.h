/* Stores that go past the caches, for results larger than these: a plain store reads the line it will overwrite.
 * Results are collected in a strip of some elements first; meanwhile the inputs of the next strip are fetched, since
 * otherwise nothing is read while a strip is stored. */
#ifndef NL_STREAM_H
#define NL_STREAM_H
#include <stdint.h>
#include <string.h>
/* NL_STREAM stores one NL_STREAMED, a vector as wide as code is compiled for, at a multiple of its size. By the compiler's
 * own functions: immintrin.h, which declares all of these, takes longer to read than most kernels to compile. */
#if defined(__AVX512F__)
#define NL_STREAMED_BYTES 64
#elif defined(__AVX__)
#define NL_STREAMED_BYTES 32
#elif defined(__SSE2__)
#define NL_STREAMED_BYTES 16
#endif
#if defined(NL_STREAMED_BYTES)
typedef long long nl_streamed __attribute__((vector_size(NL_STREAMED_BYTES), may_alias));
typedef long long nl_unaligned __attribute__((vector_size(NL_STREAMED_BYTES), aligned(1), may_alias));
#if defined(__clang__)
#define NL_STREAM(to, v) __builtin_nontemporal_store((nl_streamed)(v), (nl_streamed *)(to))
#elif NL_STREAMED_BYTES == 64
#define NL_STREAM(to, v) __builtin_ia32_movntdq512((nl_streamed *)(to), (nl_streamed)(v))
#elif NL_STREAMED_BYTES == 32
#define NL_STREAM(to, v) __builtin_ia32_movntdq256((nl_streamed *)(to), (nl_streamed)(v))
#else
#define NL_STREAM(to, v) __builtin_ia32_movntdq((nl_streamed *)(to), (nl_streamed)(v))
#endif
#define NL_STREAM_VECTOR(to, v)                                                                                \
    do {                                                                                                       \
        if (sizeof(v) == sizeof(nl_streamed))                                                                  \
            NL_STREAM(to, __builtin_choose_expr(sizeof(v) == sizeof(nl_streamed), (v), (nl_streamed){0}));     \
        else                                                                                                   \
            *(__typeof__(v) *)(to) = (v);                                                                      \
    } while (0)
#else
#define NL_STREAM_VECTOR(to, v) (*(__typeof__(v) *)(to) = (v))
#endif

static inline void nl_stream(void *to, const void *from, int64_t bytes)
{
    char *out = to;
    const char *in = from;
    int64_t done = 0;
#if defined(NL_STREAM)
    for (; ((uintptr_t)out & (NL_STREAMED_BYTES - 1)) == 0 && done + NL_STREAMED_BYTES <= bytes; done += NL_STREAMED_BYTES)
        NL_STREAM(out + done, *(const nl_unaligned *)(in + done));
#endif
    if (done < bytes)
        memcpy(out + done, in + done, (size_t)(bytes - done));
}

/* Fence: after it, other threads see the streaming stores. */
static inline void nl_stream_end(void)
{
#if defined(__SSE2__)
    __builtin_ia32_sfence();
#endif
}
#endif
