// The real cuda_bf16.h in host mode, and what it declares for device code only.
#ifndef CUEMU_CUDA_BF16_H
#define CUEMU_CUDA_BF16_H

#include_next <cuda_bf16.h>

extern "C++" {
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __float2bfloat16_rn(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
}

#define CUEMU_BFLOAT_FUNCTION(NAME, FUNCTION) \
    static inline __nv_bfloat16 h##NAME(__nv_bfloat16 a) { return __float2bfloat16_rn(FUNCTION(__bfloat162float(a))); }
CUEMU_BFLOAT_FUNCTION(exp, expf)
CUEMU_BFLOAT_FUNCTION(log, logf)
CUEMU_BFLOAT_FUNCTION(sqrt, sqrtf)
CUEMU_BFLOAT_FUNCTION(rsqrt, rsqrtf)
CUEMU_BFLOAT_FUNCTION(tanh, tanhf)
CUEMU_BFLOAT_FUNCTION(floor, floorf)
CUEMU_BFLOAT_FUNCTION(ceil, ceilf)
CUEMU_BFLOAT_FUNCTION(rint, rintf)
CUEMU_BFLOAT_FUNCTION(trunc, truncf)

static inline __nv_bfloat162 atomicAdd(__nv_bfloat162 *address, __nv_bfloat162 v) {
    return cuemu::update(address, [=](__nv_bfloat162 old) { return __hadd2(old, v); });
}
static inline __nv_bfloat16 atomicAdd(__nv_bfloat16 *address, __nv_bfloat16 v) {
    return cuemu::update(address, [=](__nv_bfloat16 old) { return __hadd(old, v); });
}
}  // extern "C++"

#endif
