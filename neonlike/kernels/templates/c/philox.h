/* Philox4x32-10: element e of call c under seed s takes word e % 4 of the block with counter (e / 4, c) and key s
 * (Salmon et al., SC 2011); float64 draws take two words. As neonlike/optree/philox.py, number for number. */
#ifndef NL_PHILOX_H
#define NL_PHILOX_H
#include <stdint.h>

#ifndef NL_ANYWHERE /* CUDA has its own: the two languages share this text */
#define NL_ANYWHERE static inline
#endif

typedef struct { uint32_t x0, x1, x2, x3; } nl_block;

NL_ANYWHERE nl_block nl_philox(uint64_t counter, uint64_t call, uint64_t seed)
{
    uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32), x2 = (uint32_t)call, x3 = (uint32_t)(call >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)x0 * 0xD2511F53u, p1 = (uint64_t)x2 * 0xCD9E8D57u;
        const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0, y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)p1;
        x3 = (uint32_t)p0;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const nl_block found = { x0, x1, x2, x3 };
    return found;
}

NL_ANYWHERE float nl_rand_f32(int64_t element, int64_t seed, int64_t call)
{
    const nl_block b = nl_philox((uint64_t)element >> 2, (uint64_t)call, (uint64_t)seed);
    const uint32_t low = element & 1 ? b.x1 : b.x0, high = element & 1 ? b.x3 : b.x2;
    return (float)(int32_t)((element & 2 ? high : low) >> 8) * 0x1p-24f;
}

NL_ANYWHERE double nl_rand_f64(int64_t element, int64_t seed, int64_t call)
{
    const nl_block b = nl_philox((uint64_t)element >> 1, (uint64_t)call, (uint64_t)seed);
    const uint32_t first = element & 1 ? b.x2 : b.x0, second = element & 1 ? b.x3 : b.x1;
    return (double)(int64_t)((uint64_t)(first >> 5) << 26 | second >> 6) * 0x1p-53;
}

#ifndef NL_CUDA
/* Numbers first to first + n in out, which has room for 8 more; every block is computed once. Returns where the first one
 * lies. */
static inline const float *nl_draw_f32(float *out, int64_t first, int64_t n, int64_t seed, int64_t call)
{
    const uint64_t block = (uint64_t)first >> 2;
    const int blocks = (int)(((first & 3) + n + 3) / 4);
#pragma omp simd
    for (int b = 0; b < blocks; b++) {
        const nl_block r = nl_philox(block + (uint64_t)b, (uint64_t)call, (uint64_t)seed);
        out[4 * b] = (float)(int32_t)(r.x0 >> 8) * 0x1p-24f;
        out[4 * b + 1] = (float)(int32_t)(r.x1 >> 8) * 0x1p-24f;
        out[4 * b + 2] = (float)(int32_t)(r.x2 >> 8) * 0x1p-24f;
        out[4 * b + 3] = (float)(int32_t)(r.x3 >> 8) * 0x1p-24f;
    }
    return out + (first & 3);
}

static inline const double *nl_draw_f64(double *out, int64_t first, int64_t n, int64_t seed, int64_t call)
{
    const uint64_t block = (uint64_t)first >> 1;
    const int blocks = (int)(((first & 1) + n + 1) / 2);
#pragma omp simd
    for (int b = 0; b < blocks; b++) {
        const nl_block r = nl_philox(block + (uint64_t)b, (uint64_t)call, (uint64_t)seed);
        out[2 * b] = (double)(int64_t)((uint64_t)(r.x0 >> 5) << 26 | r.x1 >> 6) * 0x1p-53;
        out[2 * b + 1] = (double)(int64_t)((uint64_t)(r.x2 >> 5) << 26 | r.x3 >> 6) * 0x1p-53;
    }
    return out + (first & 1);
}
#else
/* Numbers first to first + N, both multiples of 4: every block is computed once. */
template <int N> struct nl_numbers { float v[N]; };

template <int N> NL_ANYWHERE nl_numbers<N> nl_draw_f32(int64_t first, int64_t seed, int64_t call)
{
    nl_numbers<N> out;
#pragma unroll
    for (int b = 0; b < N; b += 4) {
        const nl_block r = nl_philox((uint64_t)(first + b) >> 2, (uint64_t)call, (uint64_t)seed);
        out.v[b] = (float)(int32_t)(r.x0 >> 8) * 0x1p-24f;
        out.v[b + 1] = (float)(int32_t)(r.x1 >> 8) * 0x1p-24f;
        out.v[b + 2] = (float)(int32_t)(r.x2 >> 8) * 0x1p-24f;
        out.v[b + 3] = (float)(int32_t)(r.x3 >> 8) * 0x1p-24f;
    }
    return out;
}
#endif
#endif
