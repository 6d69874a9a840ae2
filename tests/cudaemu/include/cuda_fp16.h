// The real cuda_fp16.h in host mode, and what it declares for device code only.
#ifndef CUEMU_CUDA_FP16_H
#define CUEMU_CUDA_FP16_H

#include_next <cuda_fp16.h>

extern "C++" {
static inline __half __hfma(__half a, __half b, __half c) {
    // The double product is exact, so that one rounding to half remains after the sum's to float.
    return __double2half((double)__half2float(a) * (double)__half2float(b) + (double)__half2float(c));
}

static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                          __hfma(__high2half(a), __high2half(b), __high2half(c)));
}

#define CUEMU_HALF_FUNCTION(NAME, FUNCTION)                                                       \
    static inline __half h##NAME(__half a) { return __float2half_rn(FUNCTION(__half2float(a))); } \
    static inline __half2 h2##NAME(__half2 a) {                                                   \
        return __halves2half2(h##NAME(__low2half(a)), h##NAME(__high2half(a)));                   \
    }
CUEMU_HALF_FUNCTION(exp, expf)
CUEMU_HALF_FUNCTION(log, logf)
CUEMU_HALF_FUNCTION(sqrt, sqrtf)
CUEMU_HALF_FUNCTION(rsqrt, rsqrtf)
CUEMU_HALF_FUNCTION(tanh, tanhf)
CUEMU_HALF_FUNCTION(sin, sinf)
CUEMU_HALF_FUNCTION(cos, cosf)
CUEMU_HALF_FUNCTION(floor, floorf)
CUEMU_HALF_FUNCTION(ceil, ceilf)
CUEMU_HALF_FUNCTION(rint, rintf)
CUEMU_HALF_FUNCTION(trunc, truncf)

static inline __half2 atomicAdd(__half2 *address, __half2 v) {
    return cuemu::update(address, [=](__half2 old) { return __hadd2(old, v); });
}
static inline __half atomicAdd(__half *address, __half v) {
    return cuemu::update(address, [=](__half old) { return __hadd(old, v); });
}
}  // extern "C++"

#endif
