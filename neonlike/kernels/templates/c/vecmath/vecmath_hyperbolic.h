/* Hyperbolic functions and their inverses, of the kind of vecmath.h. */
#ifndef NL_VECMATH_HYPERBOLIC_H
#define NL_VECMATH_HYPERBOLIC_H

#include "vecmath.h"

/* e^x / 2 for x from 0 on, which has room where e^x has none */

NL_FN float nl_half_exp_f32(float x) {
    int32_t bits = nl_exponent_f32(nl_muladd_f32(x, 0x1.715476p+0f, NL_MAGIC_254_F32));
    float n = nl_from_bits_f32((uint32_t)bits) - NL_MAGIC_254_F32;
    float r = nl_muladd_f32(-n, NL_LN2_HI_F32, x);
    r = nl_muladd_f32(-n, NL_LN2_LO_F32, r);
    return nl_scale_f32(nl_expm1_reduced_f32(r) + 1.0f, bits - 1);
}

NL_FN double nl_half_exp_f64(double x) {
    nl_exp_parts_f64 e = nl_exp_split_f64(x > 711.0 ? 711.0 : x);
    return (1.0 + nl_expm1_reduced_f64(e.r)) * nl_from_bits_f64((nl_bits_f64(e.sum) + 1021u) << 52) * 2.0;
}

/* sinh(x) for x from 0 to 1: x + x^3 P(x^2) */

NL_FN float nl_sinh_small_f32(float x) { /* SINH_F32 */
    float u = x * x, p = 0x1.ab3c56p-13f;
    p = nl_muladd_f32(p, u, 0x1.10f77cp-7f);
    p = nl_muladd_f32(p, u, 0x1.555598p-3f);
    return nl_muladd_f32(p, u * x, x);
}

NL_FN double nl_sinh_small_f64(double x) { /* SINH_F64 */
    double u = x * x, p = 0x1.b4c75a357a601p-41;
    p = nl_muladd_f64(p, u, 0x1.611a561f36ba1p-33);
    p = nl_muladd_f64(p, u, 0x1.ae64671b14757p-26);
    p = nl_muladd_f64(p, u, 0x1.71de3a465b241p-19);
    p = nl_muladd_f64(p, u, 0x1.a01a01a02899dp-13);
    p = nl_muladd_f64(p, u, 0x1.11111111110a6p-7);
    p = nl_muladd_f64(p, u, 0x1.5555555555556p-3);
    return nl_muladd_f64(p, u * x, x);
}

/* The inverses by log1p, whose error is that of its argument at most. Beyond LARGE, 1 + x is x to the last place, and
 * asinh and acosh are log(2x). */
#define NL_HYPERBOLIC(T, S, B, LARGE, LN2, NAN)                                                             \
    NL_FN T nl_cosh_##S(T x) {                                                                              \
        T half = nl_half_exp_##S(__builtin_fabs##B(x));                                                     \
        return half + (T)0.25 / half;                                                                       \
    }                                                                                                       \
    NL_FN T nl_sinh_##S(T x) {                                                                              \
        T size = __builtin_fabs##B(x), half = nl_half_exp_##S(size);                                        \
        T large = half - (T)0.25 / half, small = nl_sinh_small_##S(size);                                   \
        return __builtin_copysign##B(size < 1 ? small : large, x);                                          \
    }                                                                                                       \
    NL_FN T nl_asinh_##S(T x) {                                                                             \
        T size = __builtin_fabs##B(x), bounded = size > (T)LARGE ? (T)1 : size;                             \
        T square = bounded * bounded, root = __builtin_sqrt##B(1 + square);                                 \
        T less = square / (1 + root) + bounded;                                                             \
        T more = size > (T)LARGE ? (T)LN2 : (T)0;                                                           \
        return __builtin_copysign##B(nl_log1p_##S(size > (T)LARGE ? size : less) + more, x);                \
    }                                                                                                       \
    NL_FN T nl_acosh_##S(T x) {                                                                             \
        T bounded = x > (T)LARGE ? (T)1 : x, beyond = bounded - 1;                                          \
        T less = beyond + __builtin_sqrt##B(beyond * (beyond + 2));                                         \
        T more = x > (T)LARGE ? (T)LN2 : (T)0;                                                              \
        T result = nl_log1p_##S(x > (T)LARGE ? x : less) + more;                                            \
        return x < 1 ? NAN : result;                                                                        \
    }                                                                                                       \
    NL_FN T nl_atanh_##S(T x) {                                                                             \
        T size = __builtin_fabs##B(x);                                                                      \
        return __builtin_copysign##B((T)0.5 * nl_log1p_##S(2 * size / (1 - size)), x);                      \
    }
NL_HYPERBOLIC(float, f32, f, 0x1p26, 0x1.62e43p-1, NL_NAN_F32)
NL_HYPERBOLIC(double, f64, , 0x1p54, 0x1.62e42fefa39efp-1, NL_NAN_F64)
#undef NL_HYPERBOLIC

/* log(1 + e^x) = max(x, 0) + log(1 + z) with z = e^-|x| from 0 to 1 */

/* log(1 + z) = z - z^2/2 + z^3 P(z) (LOG1P_UNIT_F32) */
NL_FN float nl_softplus_f32(float x) {
    float z = nl_exp_negative_f32(-__builtin_fabsf(x));
    float p = -0x1.e2026ap-9f;
    p = nl_muladd_f32(p, z, 0x1.6667cap-6f);
    p = nl_muladd_f32(p, z, -0x1.f3115ap-5f);
    p = nl_muladd_f32(p, z, 0x1.c396cep-4f);
    p = nl_muladd_f32(p, z, -0x1.3edd34p-3f);
    p = nl_muladd_f32(p, z, 0x1.94fa68p-3f);
    p = nl_muladd_f32(p, z, -0x1.ff7d72p-3f);
    p = nl_muladd_f32(p, z, 0x1.55527ep-2f);
    float rest = nl_muladd_f32(nl_muladd_f32(p, z, -0.5f), z * z, z);
    return (x > 0 ? x : 0.0f) + rest;
}

NL_FN double nl_softplus_f64(double x) {
    double z = nl_exp_negative_f64(-__builtin_fabs(x));
    int above = z > 0x1.a827999fcef32p-2; /* sqrt(2) - 1: log(1 + z) = log(2) + log(1 + (z-1)/2) */
    double f = above ? nl_muladd_f64(0.5, z, -0.5) : z;
    double low = (above ? NL_LN2_LO_F64 : 0.0) - nl_log_defect_f64(f);
    return (x > 0 ? x : 0.0) + ((above ? NL_LN2_HI_F64 : 0.0) + (low + f));
}

#endif
