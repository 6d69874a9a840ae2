/* Included by all CUDA kernels: integer types, how helper functions are declared, division by known sizes. */
#ifndef NL_TYPES_H
#define NL_TYPES_H
#include <math.h>
#include <stdint.h>

#define NL_CUDA 1
#define NL_ANYWHERE static __device__ __forceinline__
#define NL_ALL_LANES 0xffffffffu

/* n / size without a division, for 0 <= n < 2^31 (Granlund and Montgomery, PLDI 1994); `divisors` of cuda/fit.py makes
 * the multiplier and the shift. */
NL_ANYWHERE int32_t nl_quotient(int32_t n, int32_t multiplier, int32_t shift)
{
    return (int32_t)((__umulhi((uint32_t)n, (uint32_t)multiplier) + (uint32_t)n) >> shift);
}
#endif
