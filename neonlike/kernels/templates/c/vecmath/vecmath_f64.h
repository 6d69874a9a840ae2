/* The float64 functions of vecmath.h, which includes this file. The methods are those of vecmath_f32.h. */
#ifndef NL_VECMATH_F64_H
#define NL_VECMATH_F64_H

#define NL_LN2_HI_F64 0x1.62e42fefa4p-1 /* 40 bits: times an exponent it is exact */
#define NL_LN2_LO_F64 -0x1.8432a1b0e2634p-43
#define NL_LOG2_E_F64 0x1.71547652b82fep+0

/* 2^n * p for n in the low bits of `sum`, -1075 <= n <= 1024, rounded once. `deep`: n < -1000. */
NL_FN double nl_scale_f64(double p, double sum, int deep) {
    uint64_t bias = deep ? 1022u + 128u : 1022u;
    double rest = deep ? 0x1p-127 : 2.0;
    return p * nl_from_bits_f64((nl_bits_f64(sum) + bias) << 52) * rest;
}

/* Exponentials */

/* e^r - 1 (EXP_F64) */
NL_FN double nl_expm1_reduced_f64(double r) {
    double q = 0x1.1e3cc9aa6ff2fp-29;
    q = nl_muladd_f64(q, r, 0x1.af6c60ba0de8cp-26);
    q = nl_muladd_f64(q, r, 0x1.27e5b4fc5e905p-22);
    q = nl_muladd_f64(q, r, 0x1.71ddefdccb897p-19);
    q = nl_muladd_f64(q, r, 0x1.a01a0135f81c4p-16);
    q = nl_muladd_f64(q, r, 0x1.a01a01b398dccp-13);
    q = nl_muladd_f64(q, r, 0x1.6c16c16c3078ep-10);
    q = nl_muladd_f64(q, r, 0x1.111111110ec1ap-7);
    q = nl_muladd_f64(q, r, 0x1.5555555555502p-5);
    q = nl_muladd_f64(q, r, 0x1.555555555555bp-3);
    q = nl_muladd_f64(q, r, 0.5);
    return nl_muladd_f64(q, r * r, r);
}

typedef struct { double sum, r; } nl_exp_parts_f64;

NL_FN nl_exp_parts_f64 nl_exp_split_f64(double x) {
    double sum = nl_muladd_f64(x, NL_LOG2_E_F64, NL_MAGIC_F64);
    double n = sum - NL_MAGIC_F64;
    double r = nl_muladd_f64(-n, NL_LN2_HI_F64, x);
    return (nl_exp_parts_f64){sum, nl_muladd_f64(-n, NL_LN2_LO_F64, r)};
}

NL_FN double nl_exp_f64(double x) {
    double clipped = x > 710.0 ? 710.0 : x;
    clipped = clipped < -746.0 ? -746.0 : clipped;
    nl_exp_parts_f64 e = nl_exp_split_f64(clipped);
    return nl_scale_f64(1.0 + nl_expm1_reduced_f64(e.r), e.sum, clipped < -700.0);
}

/* e^x for x up to 0, where nothing overflows */
NL_FN double nl_exp_negative_f64(double x) {
    double clipped = x < -746.0 ? -746.0 : x;
    nl_exp_parts_f64 e = nl_exp_split_f64(clipped);
    return nl_scale_f64(1.0 + nl_expm1_reduced_f64(e.r), e.sum, clipped < -700.0);
}

/* P(r) of 2^r = 1 + r (ln 2 + r P(r)) for |r| <= 1/2 (EXP2_F64) */
NL_FN double nl_exp2_terms_f64(double r) {
    double p = 0x1.c6db7b3b71698p-36;
    p = nl_muladd_f64(p, r, 0x1.ea14d08f7ee5ap-32);
    p = nl_muladd_f64(p, r, 0x1.e4cd9b8e4403fp-28);
    p = nl_muladd_f64(p, r, 0x1.b524d07813b73p-24);
    p = nl_muladd_f64(p, r, 0x1.62c0229b064fap-20);
    p = nl_muladd_f64(p, r, 0x1.ffcbfc7af9b42p-17);
    p = nl_muladd_f64(p, r, 0x1.430912f8596a8p-13);
    p = nl_muladd_f64(p, r, 0x1.5d87fe78a125bp-10);
    p = nl_muladd_f64(p, r, 0x1.3b2ab6fba4ea8p-7);
    p = nl_muladd_f64(p, r, 0x1.c6b08d704a0d6p-5);
    return nl_muladd_f64(p, r, 0x1.ebfbdff82c58fp-3);
}

NL_FN double nl_exp2_f64(double x) {
    double clipped = x > 1025.0 ? 1025.0 : x;
    clipped = clipped < -1076.0 ? -1076.0 : clipped;
    double sum = clipped + NL_MAGIC_F64;
    double r = clipped - (sum - NL_MAGIC_F64);
    double q = nl_muladd_f64(nl_exp2_terms_f64(r), r, 0x1.62e42fefa39efp-1);
    return nl_scale_f64(nl_muladd_f64(q, r, 1.0), sum, clipped < -1005.0);
}

NL_FN double nl_expm1_core_f64(double x) {
    nl_exp_parts_f64 e = nl_exp_split_f64(x);
    double half_power = nl_from_bits_f64((nl_bits_f64(e.sum) + 1022u) << 52);
    return 2.0 * nl_muladd_f64(half_power, nl_expm1_reduced_f64(e.r), half_power - 0.5);
}

NL_FN double nl_expm1_f64(double x) {
    double clipped = x > 710.0 ? 710.0 : x;
    clipped = clipped < -40.0 ? -40.0 : clipped;
    double result = nl_expm1_core_f64(clipped);
    return __builtin_fabs(x) < 0x1p-54 ? x : result;
}

NL_FN double nl_tanh_f64(double x) {
    double size = __builtin_fabs(x);
    size = size > 20.0 ? 20.0 : size;
    double e = nl_expm1_core_f64(2.0 * size);
    return __builtin_copysign(e / (e + 2.0), x);
}

NL_FN double nl_sigmoid_f64(double x) {
    double z = nl_exp_negative_f64(-__builtin_fabs(x));
    double numerator = x < 0 ? z : 1.0;
    return numerator / (1.0 + z);
}

NL_FN double nl_sigmoid2_f64(double x) {
    double z = nl_exp2_f64(-__builtin_fabs(x));
    double numerator = x < 0 ? z : 1.0;
    return numerator / (1.0 + z);
}

/* ERF_F64 up to 1, ERFC_F64 above; beyond 5.92 it is 1 to the last place. */
NL_FN double nl_erf_f64(double x) {
    double size = __builtin_fabs(x);
    size = size > 5.95 ? 5.95 : size;
    double u = size * size;
    double p = 0x1.0579a69d4bb26p-34;
    p = nl_muladd_f64(p, u, -0x1.386abe81bc097p-30);
    p = nl_muladd_f64(p, u, 0x1.f7a4112daf135p-27);
    p = nl_muladd_f64(p, u, -0x1.5f1d36a3432d6p-23);
    p = nl_muladd_f64(p, u, 0x1.b9def1995c1e6p-20);
    p = nl_muladd_f64(p, u, -0x1.f4d1df38db4aep-17);
    p = nl_muladd_f64(p, u, 0x1.f9a321a116d34p-14);
    p = nl_muladd_f64(p, u, -0x1.c02db3d8ecdbep-11);
    p = nl_muladd_f64(p, u, 0x1.565bcd0db02c7p-8);
    p = nl_muladd_f64(p, u, -0x1.b82ce3128499cp-6);
    p = nl_muladd_f64(p, u, 0x1.ce2f21a042b2p-4);
    p = nl_muladd_f64(p, u, -0x1.812746b0379e6p-2);
    p = nl_muladd_f64(p, u, 0x1.06eba8214db69p-3);
    double inner = nl_muladd_f64(p, size, size);
    /* even and odd powers apart: half the chain of dependent operations */
    double even = -0x1.2770a566cdcf2p-40;
    even = nl_muladd_f64(even, u, -0x1.19f0881c26816p-30);
    even = nl_muladd_f64(even, u, -0x1.0df22d4e767eap-23);
    even = nl_muladd_f64(even, u, -0x1.226126d5f8974p-18);
    even = nl_muladd_f64(even, u, -0x1.79cc0f5f806a3p-15);
    even = nl_muladd_f64(even, u, 0x1.780292cb9bb07p-15);
    even = nl_muladd_f64(even, u, 0x1.cfbbbec3a1edp-10);
    even = nl_muladd_f64(even, u, -0x1.3893950a726e9p-6);
    even = nl_muladd_f64(even, u, 0x1.45f42b569fb89p-1);
    even = nl_muladd_f64(even, u, 0x1.81ba196677dafp-23);
    double odd = 0x1.a5dc3681d2e3bp-35;
    odd = nl_muladd_f64(odd, u, 0x1.d4345c7ba1c18p-27);
    odd = nl_muladd_f64(odd, u, 0x1.c8a497c546b18p-21);
    odd = nl_muladd_f64(odd, u, 0x1.150e13985a3bdp-16);
    odd = nl_muladd_f64(odd, u, 0x1.2722a2c10239ep-14);
    odd = nl_muladd_f64(odd, u, -0x1.5028fcdb0f1d4p-11);
    odd = nl_muladd_f64(odd, u, -0x1.261d6fd36b816p-12);
    odd = nl_muladd_f64(odd, u, 0x1.a4da4d83886c5p-4);
    odd = nl_muladd_f64(odd, u, 0x1.20dd562ed08dep+0);
    double q = nl_muladd_f64(odd, size, even);
    nl_exp_parts_f64 e = nl_exp_split_f64(-q);
    double power = nl_from_bits_f64((nl_bits_f64(e.sum) + 1023u) << 52);
    double outer = nl_muladd_f64(-power, 1.0 + nl_expm1_reduced_f64(e.r), 1.0);
    return __builtin_copysign(size < 1.0 ? inner : outer, x);
}

/* Logarithms: with s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - s (f - s^2 R(s^2)) */

#define NL_SQRT_HALF_BITS_F64 0x3fe6a09e667f3bcdu
#define NL_ONE_BITS_F64 0x3ff0000000000000u

typedef struct { double k, m; } nl_log_parts_f64;

/* k and m of a positive normal x. The exponent becomes a float64 as the low bits of 2^52. */
NL_FN nl_log_parts_f64 nl_log_split_f64(double x) {
    uint64_t lifted = nl_bits_f64(x) + (NL_ONE_BITS_F64 - NL_SQRT_HALF_BITS_F64);
    double m = nl_from_bits_f64((lifted & 0x000fffffffffffffu) + NL_SQRT_HALF_BITS_F64);
    return (nl_log_parts_f64){nl_from_bits_f64((lifted >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0), m};
}

/* As above; a subnormal x is multiplied by 2^54 first. */
NL_FN nl_log_parts_f64 nl_log_split_any_f64(double x) {
    int subnormal = x < 0x1p-1022;
    nl_log_parts_f64 parts = nl_log_split_f64(subnormal ? x * 0x1p54 : x);
    parts.k -= subnormal ? 54.0 : 0.0;
    return parts;
}

/* f - log(1 + f) = f^2/2 - s (f^2/2 + s^2 R(s^2)) (LOG_F64) */
NL_FN double nl_log_defect_f64(double f) {
    double s = f / (2.0 + f), u = s * s, half_square = 0.5 * f * f;
    double p = 0x1.2f02ea6b46dcbp-3;
    p = nl_muladd_f64(p, u, 0x1.39a1fb4016755p-3);
    p = nl_muladd_f64(p, u, 0x1.74663c55d7545p-3);
    p = nl_muladd_f64(p, u, 0x1.c71c521648704p-3);
    p = nl_muladd_f64(p, u, 0x1.24924941e0bb4p-2);
    p = nl_muladd_f64(p, u, 0x1.999999997feebp-2);
    p = nl_muladd_f64(p, u, 0x1.5555555555592p-1);
    return nl_muladd_f64(-s, nl_muladd_f64(p, u, half_square), half_square);
}

NL_FN double nl_log_limits_f64(double x, double result) {
    double limit = x == 0 ? -NL_INF_F64 : NL_NAN_F64;
    limit = x > 0 ? result : limit;
    return x == NL_INF_F64 ? x : limit;
}

NL_FN double nl_log_f64(double x) {
    nl_log_parts_f64 l = nl_log_split_any_f64(x);
    double f = l.m - 1.0;
    double low = nl_muladd_f64(l.k, NL_LN2_LO_F64, -nl_log_defect_f64(f));
    return nl_log_limits_f64(x, nl_muladd_f64(l.k, NL_LN2_HI_F64, low + f));
}

NL_FN double nl_log2_f64(double x) {
    nl_log_parts_f64 l = nl_log_split_any_f64(x);
    double f = l.m - 1.0;
    return nl_log_limits_f64(x, nl_muladd_f64(f - nl_log_defect_f64(f), NL_LOG2_E_F64, l.k));
}

NL_FN double nl_log1p_f64(double x) {
    double u = 1.0 + x, x_part = u - 1.0;
    double lost = (1.0 - (u - x_part)) + (x - x_part);
    nl_log_parts_f64 l = nl_log_split_f64(u);
    uint64_t half_power = 0x4000000000000000u - (nl_bits_f64(u) - nl_bits_f64(l.m)); /* 2^(1-k), 0 for k = 1024 */
    double f = nl_muladd_f64(0.5 * lost, nl_from_bits_f64(half_power), l.m - 1.0);
    double low = nl_muladd_f64(l.k, NL_LN2_LO_F64, -nl_log_defect_f64(f));
    double result = nl_log_limits_f64(u, nl_muladd_f64(l.k, NL_LN2_HI_F64, low + f));
    return __builtin_fabs(x) < 0x1p-54 ? x : result;
}

/* atan(t) for t from 0 to 1 */
NL_FN double nl_atan_unit_f64(double t) { /* ATAN_F64 */
    double u = t * t, p = -0x1.0c46e97457beap-17;
    p = nl_muladd_f64(p, u, 0x1.97fab994278afp-14);
    p = nl_muladd_f64(p, u, -0x1.26d43efe02f01p-11);
    p = nl_muladd_f64(p, u, 0x1.0eaa018698fb9p-9);
    p = nl_muladd_f64(p, u, -0x1.64cdaa7f1b4a6p-8);
    p = nl_muladd_f64(p, u, 0x1.6b1d2d97c135cp-7);
    p = nl_muladd_f64(p, u, -0x1.2ce63ae529219p-6);
    p = nl_muladd_f64(p, u, 0x1.a9334b92996e5p-6);
    p = nl_muladd_f64(p, u, -0x1.0b928f19a1425p-5);
    p = nl_muladd_f64(p, u, 0x1.388ae97d0d41cp-5);
    p = nl_muladd_f64(p, u, -0x1.5ef8c8d377f05p-5);
    p = nl_muladd_f64(p, u, 0x1.84a8e82e89125p-5);
    p = nl_muladd_f64(p, u, -0x1.aed83db2b64b1p-5);
    p = nl_muladd_f64(p, u, 0x1.e1d44f1ee46aep-5);
    p = nl_muladd_f64(p, u, -0x1.11103269166e8p-4);
    p = nl_muladd_f64(p, u, 0x1.3b139c52fc0cdp-4);
    p = nl_muladd_f64(p, u, -0x1.745d15e5e2fa8p-4);
    p = nl_muladd_f64(p, u, 0x1.c71c71b7ee31ep-4);
    p = nl_muladd_f64(p, u, -0x1.24924924609a6p-3);
    p = nl_muladd_f64(p, u, 0x1.9999999998f81p-3);
    p = nl_muladd_f64(p, u, -0x1.555555555555p-2);
    return nl_muladd_f64(p, u * t, t);
}

NL_FN double nl_atan_f64(double x) {
    double size = __builtin_fabs(x), inverse = 1.0 / size;
    double angle = nl_atan_unit_f64(size > 1.0 ? inverse : size);
    double complement = 0x1.921fb54442d18p+0 - (angle - 0x1.1a62633145c07p-54);
    return __builtin_copysign(size > 1.0 ? complement : angle, x);
}

#endif
