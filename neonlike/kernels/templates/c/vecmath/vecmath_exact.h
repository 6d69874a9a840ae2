/* Functions whose result is often a whole number, which must come out exactly: of the kind of vecmath.h. */
#ifndef NL_VECMATH_EXACT_H
#define NL_VECMATH_EXACT_H

#include "vecmath_power.h"

/* log10, of log2 to twice the precision */
#define NL_LOG10(T, S, PAIR, LOG10_2, LOG10_2_LO)                                                           \
    NL_FN T nl_log10_##S(T x) {                                                                             \
        PAIR l = nl_log2_pair_##S(x);                                                                       \
        T product = nl_fma_##S(l.hi, LOG10_2, 0), lost = nl_fma_##S(l.hi, LOG10_2, -product);               \
        return nl_log_limits_##S(x, product + (lost + nl_muladd_##S(l.lo, LOG10_2, l.hi * LOG10_2_LO)));    \
    }
NL_LOG10(float, f32, nl_pair_f32, 0x1.344136p-2f, -0x1.ec10cp-27f)
NL_LOG10(double, f64, nl_pair, 0x1.34413509f79ffp-2, -0x1.9dc1da994fd21p-59)
#undef NL_LOG10

/* Cube roots: x = 2^k m, the root of m by a polynomial (CBRT_F64) and one step of Halley's method */

/* The cube root of a positive normal x, to 2^-40 */
NL_FN double nl_cbrt_near_f64(double x) {
    nl_log_parts_f64 l = nl_log_split_f64(x);
    double sum = nl_muladd_f64(l.k, 0x1.5555555555555p-2, NL_MAGIC_F64);
    double rest = nl_muladd_f64(-3.0, sum - NL_MAGIC_F64, l.k); /* -1, 0 or 1 */
    double root = 0x1.dcf0f2b645dcdp-5;
    root = nl_muladd_f64(root, l.m, -0x1.2958b167b7f9dp-2);
    root = nl_muladd_f64(root, l.m, 0x1.7abc1270643d2p-1);
    root = nl_muladd_f64(root, l.m, 0x1.f854951341804p-2);
    double cube = root * root * root;
    root = root - root * (cube - l.m) / nl_muladd_f64(2.0, cube, l.m);
    double factor = rest > 0 ? 0x1.428a2f98d728bp+0 : 1.0;
    factor = rest < 0 ? 0x1.965fea53d6e3dp-1 : factor;
    return root * factor * nl_from_bits_f64((nl_bits_f64(sum) + 1023u) << 52);
}

NL_FN float nl_cbrt_f32(float x) {
    float root = (float)nl_cbrt_near_f64(__builtin_fabs((double)x));
    root = __builtin_copysignf(root, x);
    root = 0.5f * x == x ? x : root; /* 0 and infinity */
    return x != x ? x : root;
}

/* A root t of 26 bits has an exact square; one more step of Halley's method from there is right to 0.7 ulp, and exact
 * where t is. */
NL_FN double nl_cbrt_f64(double x) {
    double size = __builtin_fabs(x), normal = size < 0x1p-1022 ? size * 0x1p54 : size;
    double near = nl_cbrt_near_f64(normal);
    double t = nl_from_bits_f64((nl_bits_f64(near) + 0x4000000u) & ~(uint64_t)0x7ffffff);
    double quotient = normal / (t * t);
    double root = nl_muladd_f64(t, (quotient - t) / (t + t + quotient), t);
    root = __builtin_copysign(size < 0x1p-1022 ? root * 0x1p-18 : root, x);
    root = 0.5 * x == x ? x : root;
    return x != x ? x : root;
}

/* The remainder of x / y with the sign of x, exactly. x = a 2^i and y = b 2^j with whole a and b, so it is 2^j times
 * a 2^(i-j) mod b: modular exponentiation, in numbers that float64 holds exactly. i - j is 16 (64) times a small number,
 * whose power of 2 is squared four (six) times, and a rest. */

/* v mod m in [-m/2, m/2], exactly: v and the multiple of m are whole and below 2^53 */
NL_FN double nl_mod_whole_f64(double v, double m, double inverse) { return nl_muladd_f64(-nl_rint_f64(v * inverse), m, v); }

/* i - j, but 0 below, where x itself is the remainder: the powers of a negative number of places would be subnormal, and a
 * processor takes ten times as long for those. */
NL_FN uint64_t nl_places_f64(uint64_t difference) { return (int64_t)difference < 0 ? 0u : difference; }

NL_FN float nl_fmod_f32(float x, float y) {
    uint64_t x_bits = nl_bits_f64(__builtin_fabs((double)x)), y_bits = nl_bits_f64(__builtin_fabs((double)y));
    double a = nl_from_bits_f64((x_bits & 0x000fffffffffffffu) | 0x4160000000000000u); /* 2^23 times the fraction */
    double b = nl_from_bits_f64((y_bits & 0x000fffffffffffffu) | 0x4160000000000000u);
    uint64_t places = nl_places_f64((x_bits >> 52) - (y_bits >> 52));
    double inverse = 1.0 / b, power = nl_from_bits_f64(((places >> 4) + 1023u) << 52);
    power = nl_mod_whole_f64(power * power, b, inverse);
    power = nl_mod_whole_f64(power * power, b, inverse);
    power = nl_mod_whole_f64(power * power, b, inverse);
    power = nl_mod_whole_f64(power * power, b, inverse);
    double rest = nl_mod_whole_f64(power * a, b, inverse);
    rest = nl_mod_whole_f64(rest * nl_from_bits_f64(((places & 15u) + 1023u) << 52), b, inverse);
    rest = rest < 0 ? rest + b : rest;
    rest = rest * nl_from_bits_f64((y_bits & 0x7ff0000000000000u) - 0x0170000000000000u);
    float result = __builtin_fabsf(x) < __builtin_fabsf(y) ? __builtin_fabsf(x) : (float)rest;
    result = __builtin_fabsf(x) < NL_INF_F32 ? result : NL_NAN_F32;
    result = __builtin_fabsf(y) > 0 ? result : NL_NAN_F32;
    return __builtin_copysignf(result, x);
}

/* c - q m, where that is a whole number below 2^53 */
NL_FN double nl_minus_product_f64(double c, double q, double m) {
#if NL_HAS_FMA
    return __builtin_fma(-q, m, c);
#else
    nl_pair product = nl_two_product(q, m);
    return (c - product.hi) - product.lo;
#endif
}

/* v w mod m in [-m/2, m/2], exactly, for whole v and w in [-m/2, m/2] and m in [2^52, 2^53) */
NL_FN double nl_mod_product_f64(double v, double w, double m, double inverse) {
    nl_pair p = nl_two_product(v, w);
    double rest = nl_minus_product_f64(p.hi, nl_rint_f64(p.hi * inverse), m); /* below m: the quotient is off by 0.4 */
    return nl_muladd_f64(-nl_rint_f64((rest + p.lo) * inverse), m, rest) + p.lo;
}

/* v 2^n mod m, for n up to 32 */
NL_FN double nl_mod_shifted_f64(double v, uint64_t n, double m, double inverse) {
    double shifted = v * nl_from_bits_f64((n + 1023u) << 52);
    return nl_minus_product_f64(shifted, nl_rint_f64(shifted * inverse), m);
}

NL_FN double nl_fmod_f64(double x, double y) {
    double x_size = __builtin_fabs(x), y_size = __builtin_fabs(y);
    uint64_t x_down = x_size < 0x1p-1022 ? 54u : 0u, y_down = y_size < 0x1p-1022 ? 54u : 0u;
    uint64_t x_bits = nl_bits_f64(x_size < 0x1p-1022 ? x_size * 0x1p54 : x_size);
    uint64_t y_bits = nl_bits_f64(y_size < 0x1p-1022 ? y_size * 0x1p54 : y_size);
    double a = nl_from_bits_f64((x_bits & 0x000fffffffffffffu) | 0x4330000000000000u); /* 2^52 times the fraction */
    double b = nl_from_bits_f64((y_bits & 0x000fffffffffffffu) | 0x4330000000000000u);
    uint64_t places = nl_places_f64(((x_bits >> 52) - x_down) - ((y_bits >> 52) - y_down));
    double inverse = 1.0 / b, power = nl_from_bits_f64(((places >> 6) + 1023u) << 52);
    power = nl_mod_product_f64(power, power, b, inverse);
    power = nl_mod_product_f64(power, power, b, inverse);
    power = nl_mod_product_f64(power, power, b, inverse);
    power = nl_mod_product_f64(power, power, b, inverse);
    power = nl_mod_product_f64(power, power, b, inverse);
    power = nl_mod_product_f64(power, power, b, inverse);
    double rest = nl_mod_product_f64(power, nl_mod_whole_f64(a, b, inverse), b, inverse);
    uint64_t left = places & 63u, first = left >> 1;
    rest = nl_mod_shifted_f64(rest, first, b, inverse);
    rest = nl_mod_shifted_f64(rest, left - first, b, inverse);
    rest = rest < 0 ? rest + b : rest;
    uint64_t scale = (y_bits >> 52) + 971u - y_down, part = scale >> 1; /* 2^(scale - 2046), in two steps */
    rest = rest * nl_from_bits_f64(part << 52) * nl_from_bits_f64((scale - part) << 52);
    double result = x_size < y_size ? x_size : rest;
    result = x_size < NL_INF_F64 ? result : NL_NAN_F64;
    result = y_size > 0 ? result : NL_NAN_F64;
    return __builtin_copysign(result, x);
}

#endif
