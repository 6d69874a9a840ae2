/* Inverse trigonometry and lengths, of the kind of vecmath.h. */
#ifndef NL_VECMATH_ANGLES_H
#define NL_VECMATH_ANGLES_H

#include "vecmath.h"

/* asin(t) for t from 0 to 1/2, of u = t^2: t + t^3 P(t^2) */

NL_FN float nl_asin_half_f32(float t, float u) { /* ASIN_F32 */
    float p = 0x1.596d38p-5f;
    p = nl_muladd_f32(p, u, 0x1.8c282ep-6f);
    p = nl_muladd_f32(p, u, 0x1.747e4ap-5f);
    p = nl_muladd_f32(p, u, 0x1.3301e4p-4f);
    p = nl_muladd_f32(p, u, 0x1.5555c8p-3f);
    return nl_muladd_f32(p, u * t, t);
}

NL_FN double nl_asin_half_f64(double t, double u) { /* ASIN_F64 */
    double p = 0x1.056c38f1368d5p-5;
    p = nl_muladd_f64(p, u, -0x1.09cf7c7030ffep-6);
    p = nl_muladd_f64(p, u, 0x1.3ff23358dd11bp-6);
    p = nl_muladd_f64(p, u, 0x1.abd32bf086781p-8);
    p = nl_muladd_f64(p, u, 0x1.8ec28476561ebp-7);
    p = nl_muladd_f64(p, u, 0x1.c6fdd559dfd5ep-7);
    p = nl_muladd_f64(p, u, 0x1.1c6be09154dc9p-6);
    p = nl_muladd_f64(p, u, 0x1.6e89f45455781p-6);
    p = nl_muladd_f64(p, u, 0x1.f1c72c38096a4p-6);
    p = nl_muladd_f64(p, u, 0x1.6db6db427dab1p-5);
    p = nl_muladd_f64(p, u, 0x1.333333336e7acp-4);
    p = nl_muladd_f64(p, u, 0x1.555555555539p-3);
    return nl_muladd_f64(p, u * t, t);
}

/* Above 1/2, asin(x) = pi/2 - 2 asin(sqrt((1-x)/2)), where 1 - x is exact; beyond 1 the root is nan. Angles of atan2
 * are counted from the nearer axis: `base` is 0, pi/2 or pi. */
#define NL_ANGLES(T, S, B, HALF_PI, HALF_PI_LO, INF)                                                        \
    NL_FN T nl_asin_##S(T x) {                                                                              \
        T size = __builtin_fabs##B(x), above = (T)0.5 * (1 - size);                                         \
        T root = __builtin_sqrt##B(above), square = size * size;                                            \
        T angle = nl_asin_half_##S(size > (T)0.5 ? root : size, size > (T)0.5 ? above : square);            \
        T complement = (T)HALF_PI - (2 * angle - (T)HALF_PI_LO);                                            \
        return __builtin_copysign##B(size > (T)0.5 ? complement : angle, x);                                \
    }                                                                                                       \
    NL_FN T nl_acos_##S(T x) {                                                                              \
        T size = __builtin_fabs##B(x), above = (T)0.5 * (1 - size);                                         \
        T root = __builtin_sqrt##B(above), square = size * size;                                            \
        T angle = nl_asin_half_##S(size > (T)0.5 ? root : size, size > (T)0.5 ? above : square);            \
        T inner = (T)HALF_PI - (__builtin_copysign##B(angle, x) - (T)HALF_PI_LO);                           \
        T left = 2 * ((T)HALF_PI - (angle - (T)HALF_PI_LO));                                                \
        T outer = x < 0 ? left : 2 * angle;                                                                 \
        return size > (T)0.5 ? outer : inner;                                                               \
    }                                                                                                       \
    NL_FN T nl_atan2_##S(T y, T x) {                                                                        \
        T up = __builtin_fabs##B(y), across = __builtin_fabs##B(x);                                         \
        T low = up > across ? across : up, high = up > across ? up : across;                                \
        T ratio = low / high;                                                                               \
        ratio = low == high ? (T)1 : ratio; /* also of two infinities */                                    \
        ratio = high == 0 ? low : ratio; /* 0, or nan */                                                    \
        T angle = nl_atan_unit_##S(ratio);                                                                  \
        T side = __builtin_copysign##B((T)1, x);                                                            \
        T quarters = side < 0 ? (T)2 : (T)0;                                                                \
        quarters = up > across ? (T)1 : quarters;                                                           \
        T turned = up > across ? -angle : angle;                                                            \
        turned = turned * side;                                                                             \
        T result = nl_muladd_##S(quarters, (T)HALF_PI, nl_muladd_##S(quarters, (T)HALF_PI_LO, turned));     \
        return __builtin_copysign##B(result, y);                                                            \
    }
NL_ANGLES(float, f32, f, 0x1.921fb6p+0, -0x1.777a5cp-25, NL_INF_F32)
NL_ANGLES(double, f64, , 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, NL_INF_F64)
#undef NL_ANGLES

/* sqrt(x^2 + y^2) without overflow on the way; infinite where one is, whatever the other */

NL_FN float nl_hypot_f32(float x, float y) {
    double a = (double)x, b = (double)y;
    float result = (float)__builtin_sqrt(nl_muladd_f64(a, a, b * b));
    result = __builtin_fabsf(x) == NL_INF_F32 ? NL_INF_F32 : result;
    return __builtin_fabsf(y) == NL_INF_F32 ? NL_INF_F32 : result;
}

NL_FN double nl_hypot_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    double high = a > b ? a : b, low = a > b ? b : a;
    double ratio = low / high;
    ratio = high == 0 ? low : ratio; /* 0, or nan */
    double result = high * __builtin_sqrt(nl_muladd_f64(ratio, ratio, 1.0));
    result = a == NL_INF_F64 ? a : result;
    return b == NL_INF_F64 ? b : result;
}

#endif
