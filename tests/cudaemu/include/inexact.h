// With CUEMU_INEXACT=1 the functions of the C library err as far as NVIDIA's may (CUDA programming guide, "Mathematical
// Functions"): a test that passes only with nearly exact ones fails. Which way and how far depends on the result alone.
// What float32 has exactly stays, exp(0) for one, and no result leaves the function's range.
#ifndef CUEMU_INEXACT_H
#define CUEMU_INEXACT_H
#include <math.h>

extern "C++" {
namespace cuemu {

// `right`, as T, moved by up to `ulps` units in the last place within [low, high].
template <class T>
CUEMU_UNSANITIZED static inline T astray(double right, int ulps, double low, double high) {
    T moved = (T)right;
    if ((float)right == right || moved - moved != 0) return moved;
    const uint64_t scrambled = (to_bits((double)moved) ^ 0x2545f4914f6cdd1dull) * 0x9e3779b97f4a7c15ull;
    int steps = (int)((scrambled >> 40) % (2 * ulps + 1)) - ulps;
    for (; steps > 0; --steps) moved = sizeof(T) == 4 ? nextafterf(moved, INFINITY) : nextafter(moved, INFINITY);
    for (; steps < 0; ++steps) moved = sizeof(T) == 4 ? nextafterf(moved, -INFINITY) : nextafter(moved, -INFINITY);
    return moved < (T)low ? (T)low : moved > (T)high ? (T)high : moved;
}

}  // namespace cuemu

// Units in the last place for float and for double.
#define CUEMU_ASTRAY(NAME, F, D, LOW, HIGH)                                                                       \
    static inline float cuemu_astray_##NAME##f(float x) { return cuemu::astray<float>(NAME((double)x), F, LOW, HIGH); } \
    static inline double cuemu_astray_##NAME(double x) { return cuemu::astray<double>(NAME(x), D, LOW, HIGH); }   \
    static inline float cuemu_astray_##NAME(float x) { return cuemu::astray<float>(NAME((double)x), F, LOW, HIGH); }
CUEMU_ASTRAY(exp, 2, 1, 0, INFINITY)
CUEMU_ASTRAY(exp2, 2, 1, 0, INFINITY)
CUEMU_ASTRAY(expm1, 1, 1, -1, INFINITY)
CUEMU_ASTRAY(log, 1, 1, -INFINITY, INFINITY)
CUEMU_ASTRAY(log2, 1, 1, -INFINITY, INFINITY)
CUEMU_ASTRAY(log1p, 1, 1, -INFINITY, INFINITY)
CUEMU_ASTRAY(sin, 2, 2, -1, 1)
CUEMU_ASTRAY(cos, 2, 2, -1, 1)
CUEMU_ASTRAY(tan, 4, 2, -INFINITY, INFINITY)
CUEMU_ASTRAY(atan, 2, 2, -1.5707963267948966, 1.5707963267948966)
CUEMU_ASTRAY(asin, 2, 2, -1.5707963267948966, 1.5707963267948966)
CUEMU_ASTRAY(acos, 2, 2, 0, 3.141592653589793)
CUEMU_ASTRAY(sinh, 3, 2, -INFINITY, INFINITY)
CUEMU_ASTRAY(cosh, 2, 1, 1, INFINITY)
CUEMU_ASTRAY(asinh, 3, 3, -INFINITY, INFINITY)
CUEMU_ASTRAY(acosh, 4, 3, 0, INFINITY)
CUEMU_ASTRAY(atanh, 3, 2, -INFINITY, INFINITY)
CUEMU_ASTRAY(log10, 2, 1, -INFINITY, INFINITY)
CUEMU_ASTRAY(cbrt, 1, 1, -INFINITY, INFINITY)
CUEMU_ASTRAY(tanh, 2, 1, -1, 1)
CUEMU_ASTRAY(erf, 2, 2, -1, 1)
#undef CUEMU_ASTRAY
#define CUEMU_ASTRAY2(NAME, F, D, LOW, HIGH)                                                                      \
    static inline float cuemu_astray_##NAME##f(float x, float y) { return cuemu::astray<float>(NAME((double)x, (double)y), F, LOW, HIGH); } \
    static inline double cuemu_astray_##NAME(double x, double y) { return cuemu::astray<double>(NAME(x, y), D, LOW, HIGH); }
CUEMU_ASTRAY2(atan2, 3, 2, -3.141592653589793, 3.141592653589793)
CUEMU_ASTRAY2(hypot, 3, 2, 0, INFINITY)
#undef CUEMU_ASTRAY2
static inline float cuemu_astray_powf(float x, float y) { return cuemu::astray<float>(pow((double)x, (double)y), 4, -INFINITY, INFINITY); }
static inline double cuemu_astray_pow(double x, double y) { return cuemu::astray<double>(pow(x, y), 2, -INFINITY, INFINITY); }
}  // extern "C++"

#define expf(x) cuemu_astray_expf(x)
#define exp(x) cuemu_astray_exp(x)
#define exp2f(x) cuemu_astray_exp2f(x)
#define exp2(x) cuemu_astray_exp2(x)
#define expm1f(x) cuemu_astray_expm1f(x)
#define expm1(x) cuemu_astray_expm1(x)
#define logf(x) cuemu_astray_logf(x)
#define log(x) cuemu_astray_log(x)
#define log2f(x) cuemu_astray_log2f(x)
#define log2(x) cuemu_astray_log2(x)
#define log1pf(x) cuemu_astray_log1pf(x)
#define log1p(x) cuemu_astray_log1p(x)
#define sinf(x) cuemu_astray_sinf(x)
#define sin(x) cuemu_astray_sin(x)
#define cosf(x) cuemu_astray_cosf(x)
#define cos(x) cuemu_astray_cos(x)
#define tanf(x) cuemu_astray_tanf(x)
#define tan(x) cuemu_astray_tan(x)
#define atanf(x) cuemu_astray_atanf(x)
#define atan(x) cuemu_astray_atan(x)
#define asinf(x) cuemu_astray_asinf(x)
#define asin(x) cuemu_astray_asin(x)
#define acosf(x) cuemu_astray_acosf(x)
#define acos(x) cuemu_astray_acos(x)
#define sinhf(x) cuemu_astray_sinhf(x)
#define sinh(x) cuemu_astray_sinh(x)
#define coshf(x) cuemu_astray_coshf(x)
#define cosh(x) cuemu_astray_cosh(x)
#define asinhf(x) cuemu_astray_asinhf(x)
#define asinh(x) cuemu_astray_asinh(x)
#define acoshf(x) cuemu_astray_acoshf(x)
#define acosh(x) cuemu_astray_acosh(x)
#define atanhf(x) cuemu_astray_atanhf(x)
#define atanh(x) cuemu_astray_atanh(x)
#define log10f(x) cuemu_astray_log10f(x)
#define log10(x) cuemu_astray_log10(x)
#define cbrtf(x) cuemu_astray_cbrtf(x)
#define cbrt(x) cuemu_astray_cbrt(x)
#define atan2f(x, y) cuemu_astray_atan2f(x, y)
#define atan2(x, y) cuemu_astray_atan2(x, y)
#define hypotf(x, y) cuemu_astray_hypotf(x, y)
#define hypot(x, y) cuemu_astray_hypot(x, y)
#define tanhf(x) cuemu_astray_tanhf(x)
#define tanh(x) cuemu_astray_tanh(x)
#define erff(x) cuemu_astray_erff(x)
#define erf(x) cuemu_astray_erf(x)
#define powf(x, y) cuemu_astray_powf(x, y)
#define pow(x, y) cuemu_astray_pow(x, y)

#endif
