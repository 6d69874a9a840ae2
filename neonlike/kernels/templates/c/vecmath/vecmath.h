/* Math functions that any C compiler vectorises: no branch, no table, no call into a library.
 *
 *   nl_<function>_f32(float), nl_<function>_f64(double)
 *
 * exp exp2 expm1 log log2 log1p atan tanh erf sigmoid sigmoid2     (vecmath_f32.h, vecmath_f64.h)
 * fabs sqrt rint floor ceil trunc sign max_nan min_nan isnan isinf isfinite shift_by, conversions (vecmath_small.h)
 *
 * What only some op-trees use is in vecmath_more.h. nl_<function>_bounded gives the bits of nl_<function> in less time, where
 * nl_pow_in_range (of sin, cos and tan, nl_angle_in_range) is not negative: a loop can take it if all of these, combined
 * by |, are not.
 *
 * The error bounds in units in the last place (ulp) are asserted by tests/kernels/c/test_vecmath.py. All functions are right
 * on nan, infinities, signed zeros, and on subnormal arguments and results. Flags: -O3 -fno-math-errno
 * -fno-trapping-math; every value of -ffp-contract and machines without fused multiply-add will do: where a function
 * gains by one rounding for a product and a sum, it asks for it (nl_muladd). Not -ffast-math: the rounding by a large
 * constant and the compensated sums below would be optimised away.
 *
 * Constants and polynomials come from benchmarks/_fit_vecmath.py, which names them as the comments here do.
 */
#ifndef NL_VECMATH_H
#define NL_VECMATH_H

#include <stdint.h>

#ifdef __FAST_MATH__
#error "vecmath.h needs the arithmetic as written: compile without -ffast-math"
#endif

#define NL_FN static inline __attribute__((always_inline, unused))

#if defined(__FP_FAST_FMA) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define NL_HAS_FMA 1
#else
#define NL_HAS_FMA 0
#endif

#define NL_INF_F32 __builtin_inff()
#define NL_NAN_F32 __builtin_nanf("")
#define NL_INF_F64 __builtin_inf()
#define NL_NAN_F64 __builtin_nan("")

/* Added to a small number, leaves its nearest whole number in the low bits of the sum. */
#define NL_MAGIC_F32 0x1.8p23f
#define NL_MAGIC_F64 0x1.8p52

NL_FN uint32_t nl_bits_f32(float x) {
    union { float f; uint32_t u; } cast = {x};
    return cast.u;
}

NL_FN float nl_from_bits_f32(uint32_t u) {
    union { uint32_t u; float f; } cast = {u};
    return cast.f;
}

NL_FN uint64_t nl_bits_f64(double x) {
    union { double f; uint64_t u; } cast = {x};
    return cast.u;
}

NL_FN double nl_from_bits_f64(uint64_t u) {
    union { uint64_t u; double f; } cast = {u};
    return cast.f;
}

/* a * b + c: rounded once where the machine has an instruction for it, else twice */
#if NL_HAS_FMA
NL_FN float nl_muladd_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
NL_FN double nl_muladd_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
NL_FN float nl_muladd_f32(float a, float b, float c) { return a * b + c; }
NL_FN double nl_muladd_f64(double a, double b, double c) { return a * b + c; }
#endif

/* An unevaluated sum: lo is at most half a unit in the last place of hi. */
typedef struct { double hi, lo; } nl_pair;

/* a + b exactly (Knuth, TAOCP 2, 4.2.2). The operands must not be products: a contraction would change them. */
NL_FN nl_pair nl_two_sum(double a, double b) {
    double sum = a + b, b_part = sum - a;
    return (nl_pair){sum, (a - (sum - b_part)) + (b - b_part)};
}

/* a + b exactly where |a| >= |b| or a is 0 (Dekker 1971). */
NL_FN nl_pair nl_fast_two_sum(double a, double b) {
    double sum = a + b;
    return (nl_pair){sum, (a - sum) + b};
}

/* a * b exactly. The product is an fma too, lest a compiler contract it with a later addition. */
NL_FN nl_pair nl_two_product(double a, double b) {
#if NL_HAS_FMA
    double product = __builtin_fma(a, b, 0.0);
    return (nl_pair){product, __builtin_fma(a, b, -product)};
#else
    double a_split = 0x1.000002p27 * a, b_split = 0x1.000002p27 * b; /* Dekker 1971 */
    double a_hi = a_split - (a_split - a), b_hi = b_split - (b_split - b);
    double a_lo = a - a_hi, b_lo = b - b_hi, product = a * b;
    return (nl_pair){product, a_lo * b_lo - (((product - a_hi * b_hi) - a_lo * b_hi) - a_hi * b_lo)};
#endif
}

#include "vecmath_small.h"

#include "vecmath_f32.h"
#include "vecmath_f64.h"

#endif
