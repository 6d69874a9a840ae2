/* The float32 functions of vecmath.h, which includes this file. */
#ifndef NL_VECMATH_F32_H
#define NL_VECMATH_F32_H

#define NL_LN2_HI_F32 0x1.62e4p-1f /* 15 bits: times an exponent it is exact */
#define NL_LN2_LO_F32 0x1.7f7d1cp-20f

/* As NL_MAGIC_F32, but leaves n + 254 in the low bits of the sum. */
#define NL_MAGIC_254_F32 (NL_MAGIC_F32 + 254.0f)

/* Bits of a magic sum with n held below 251: 2^n is infinite there. Held as an integer, since for a minimum of floats
 * compilers test nan as well. */
NL_FN int32_t nl_exponent_f32(float sum) {
    int32_t bits = (int32_t)nl_bits_f32(sum);
    return bits < 0x4b400000 + 254 + 250 ? bits : 0x4b400000 + 254 + 250;
}

/* 2^n * p for the n + 254 in `bits`, in two halves, so that 2^128 has room and a subnormal result is rounded once. The
 * exponent of a float is biased by 127, and both halves of 254 are that; the magic number above is shifted out. */
NL_FN float nl_scale_f32(float p, int32_t bits) {
    int32_t half = bits >> 1;
    return p * nl_from_bits_f32((uint32_t)half << 23) * nl_from_bits_f32((uint32_t)(bits - half) << 23);
}

/* Exponentials: e^x = 2^n e^r with n = rint(x / ln 2), |r| <= ln(2) / 2. */

NL_FN float nl_exp_f32(float x) {
    int32_t bits = nl_exponent_f32(nl_muladd_f32(x, 0x1.715476p+0f, NL_MAGIC_254_F32));
    float n = nl_from_bits_f32((uint32_t)bits) - NL_MAGIC_254_F32;
    float r = nl_muladd_f32(-n, NL_LN2_HI_F32, x);
    r = nl_muladd_f32(-n, NL_LN2_LO_F32, r);
    float r2 = r * r; /* EXP_SHORT_F32 */
    float high = nl_muladd_f32(0x1.10628ep-7f, r, 0x1.572aep-5f);
    float low = nl_muladd_f32(0x1.5557bp-3f, r, 0x1.fffdfap-2f);
    float result = nl_scale_f32(nl_muladd_f32(nl_muladd_f32(high, r2, low), r2, 1.0f + r), bits);
    return x < -104.0f ? 0.0f : result; /* where n is not in `bits` any more */
}

/* e^x for x up to 0, where nothing overflows */
NL_FN float nl_exp_negative_f32(float x) {
    float sum = nl_muladd_f32(x, 0x1.715476p+0f, NL_MAGIC_254_F32), n = sum - NL_MAGIC_254_F32;
    float r = nl_muladd_f32(-n, NL_LN2_HI_F32, x);
    r = nl_muladd_f32(-n, NL_LN2_LO_F32, r);
    float r2 = r * r; /* EXP_SHORT_F32 */
    float high = nl_muladd_f32(0x1.10628ep-7f, r, 0x1.572aep-5f);
    float low = nl_muladd_f32(0x1.5557bp-3f, r, 0x1.fffdfap-2f);
    float p = nl_muladd_f32(nl_muladd_f32(high, r2, low), r2, 1.0f + r);
    return x < -104.0f ? 0.0f : nl_scale_f32(p, (int32_t)nl_bits_f32(sum));
}

/* P(r) of 2^r = 1 + r (ln 2 + r P(r)) for |r| <= 1/2 (EXP2_F32) */
NL_FN float nl_exp2_terms_f32(float r) {
    float p = 0x1.470d12p-13f;
    p = nl_muladd_f32(p, r, 0x1.5f737ep-10f);
    p = nl_muladd_f32(p, r, 0x1.3b270cp-7f);
    p = nl_muladd_f32(p, r, 0x1.c6ae7p-5f);
    return nl_muladd_f32(p, r, 0x1.ebfbe2p-3f);
}

NL_FN float nl_exp2_f32(float x) {
    int32_t bits = nl_exponent_f32(x + NL_MAGIC_254_F32);
    float r = x - (nl_from_bits_f32((uint32_t)bits) - NL_MAGIC_254_F32);
    float q = nl_muladd_f32(nl_exp2_terms_f32(r), r, 0x1.62e432p-1f);
    float result = nl_scale_f32(nl_muladd_f32(q, r, 1.0f), bits);
    return x < -151.0f ? 0.0f : result;
}

/* e^r - 1 (EXP_F32); the relative error stays small at 0. */
NL_FN float nl_expm1_reduced_f32(float r) {
    float r2 = r * r;
    float high = nl_muladd_f32(0x1.123a6ap-7f, r, 0x1.5558f4p-5f);
    float low = nl_muladd_f32(0x1.55549p-3f, r, 0x1.fffffcp-2f);
    high = nl_muladd_f32(0x1.6a2384p-10f, r2, high);
    return nl_muladd_f32(nl_muladd_f32(high, r2, low), r2, r);
}

/* r, and in the low bits of `sum` n + 127: shifted left by 23, the bits of 2^n */
typedef struct { float sum, r; } nl_exp_parts_f32;

NL_FN nl_exp_parts_f32 nl_exp_split_f32(float x) {
    float sum = nl_muladd_f32(x, 0x1.715476p+0f, NL_MAGIC_F32 + 127.0f);
    float n = sum - (NL_MAGIC_F32 + 127.0f);
    float r = nl_muladd_f32(-n, NL_LN2_HI_F32, x);
    return (nl_exp_parts_f32){sum, nl_muladd_f32(-n, NL_LN2_LO_F32, r)};
}

/* 2^n (e^r - 1) + (2^n - 1) for -126 <= n <= 128, in halves because of 2^128. */
NL_FN float nl_expm1_core_f32(float x) {
    nl_exp_parts_f32 e = nl_exp_split_f32(x);
    float half_power = nl_from_bits_f32((nl_bits_f32(e.sum) - 1u) << 23);
    return 2.0f * nl_muladd_f32(half_power, nl_expm1_reduced_f32(e.r), half_power - 0.5f);
}

NL_FN float nl_expm1_f32(float x) {
    float clipped = x > 89.0f ? 89.0f : x;
    clipped = clipped < -20.0f ? -20.0f : clipped;
    float result = nl_expm1_core_f32(clipped);
    return __builtin_fabsf(x) < 0x1p-25f ? x : result; /* keeps -0 and subnormals */
}

/* tanh(n ln(2)/2 + b) by the theorem of addition, |b| <= ln(2)/4: (m + p t) / (p + m t) with t = tanh(b) (TANH_F32),
 * m = 2^n - 1, p = 2^n + 1. What rounding ln(2) costs b is nothing to the result, and where n = 0 it is t itself. The
 * numerator is never the larger. Beyond 9.02 it is 1 to the last place. */
NL_FN float nl_tanh_f32(float x) {
    float size = __builtin_fabsf(x);
    float sum = nl_muladd_f32(size, 0x1.715476p+1f, NL_MAGIC_F32 + 127.0f);
    float b = nl_muladd_f32(-(sum - (NL_MAGIC_F32 + 127.0f)), 0x1.62e43p-2f, size);
    float power = nl_from_bits_f32(nl_bits_f32(sum) << 23);
    float b2 = b * b;
    float t = nl_muladd_f32(b * b2, nl_muladd_f32(0x1.0c7f6ap-3f, b2, -0x1.554feap-2f), b);
    float m = power - 1.0f, p = power + 1.0f;
    float quotient = nl_muladd_f32(p, t, m) / nl_muladd_f32(m, t, p);
    return __builtin_copysignf(size > 9.02f ? 1.0f : quotient, x);
}

/* With z = e^-|x| nothing overflows: 1 / (1 + z) on the right, z / (1 + z) on the left. */
NL_FN float nl_sigmoid_f32(float x) {
    float z = nl_exp_negative_f32(-__builtin_fabsf(x));
    float numerator = x < 0 ? z : 1.0f;
    return numerator / (1.0f + z);
}

/* 1 / (1 + 2^-x) */
NL_FN float nl_sigmoid2_f32(float x) {
    float z = nl_exp2_f32(-__builtin_fabsf(x));
    float numerator = x < 0 ? z : 1.0f;
    return numerator / (1.0f + z);
}

/* 1 - w^8, where w = erfc(|x|)^(1/8) is smooth and of moderate size, so a short polynomial does: 8 (1 - w) =
 * |x| + |x| P(|x|) (ERF_F32). With d = 1 - w, 1 - w^2 = d (2 - d), three times. Each d is kept multiplied by the power
 * of two that makes it |x| at 0: no subnormal is lost. Beyond 3.92 it is 1, and nothing less: 1 + erf is a factor of gelu,
 * to be 0 where x is far below 0. */
NL_FN float nl_erf_f32(float x) {
    float size = __builtin_fabsf(x);
    float s2 = size * size;
    float a = nl_muladd_f32(0x1.1d34bcp-1f, size, 0x1.06eba8p-3f);
    float b = nl_muladd_f32(-0x1.afd58p-5f, size, 0x1.11d09ep-6f);
    float c = nl_muladd_f32(0x1.0ce028p-8f, size, -0x1.871d88p-10f);
    float d = nl_muladd_f32(0x1.4227d6p-15f, size, -0x1.74c308p-11f);
    float e = nl_muladd_f32(nl_muladd_f32(nl_muladd_f32(nl_muladd_f32(d, s2, c), s2, b), s2, a), size, size);
    e = nl_muladd_f32(-(0.0625f * e), e, e); /* of 8 (1 - w), 4 (1 - w^2) */
    e = nl_muladd_f32(-(0.125f * e), e, e);
    e = nl_muladd_f32(-(0.25f * e), e, e);
    e = size > 3.92f ? 1.0f : e;
    return __builtin_copysignf(e, x);
}

/* Logarithms: x = 2^k m with sqrt(1/2) <= m < sqrt(2), log(m) = f - f^2/2 + f^3 P(f) with f = m - 1. */

#define NL_SQRT_HALF_BITS_F32 0x3f3504f3u

typedef struct { float k, m; } nl_log_parts_f32;

/* k and m of a positive normal x */
NL_FN nl_log_parts_f32 nl_log_split_f32(float x) {
    uint32_t offset = nl_bits_f32(x) - NL_SQRT_HALF_BITS_F32;
    float m = nl_from_bits_f32((offset & 0x007fffffu) + NL_SQRT_HALF_BITS_F32);
    return (nl_log_parts_f32){(float)((int32_t)offset >> 23), m};
}

/* As above; a subnormal x is multiplied by 2^25 first. */
NL_FN nl_log_parts_f32 nl_log_split_any_f32(float x) {
    int subnormal = x < 0x1p-126f;
    nl_log_parts_f32 parts = nl_log_split_f32(subnormal ? x * 0x1p25f : x);
    parts.k -= subnormal ? 25.0f : 0.0f;
    return parts;
}

/* f - log(1 + f) (LOG_F32) */
NL_FN float nl_log_defect_f32(float f) {
    float p = 0x1.14578p-4f;
    p = nl_muladd_f32(p, f, -0x1.de3bdep-4f);
    p = nl_muladd_f32(p, f, 0x1.e6f052p-4f);
    p = nl_muladd_f32(p, f, -0x1.fc220ap-4f);
    p = nl_muladd_f32(p, f, 0x1.23376ap-3f);
    p = nl_muladd_f32(p, f, -0x1.555c4ep-3f);
    p = nl_muladd_f32(p, f, 0x1.99a4b6p-3f);
    p = nl_muladd_f32(p, f, -0x1.000006p-2f);
    p = nl_muladd_f32(p, f, 0x1.555548p-2f);
    return nl_muladd_f32(-p, f, 0.5f) * (f * f);
}

/* `result` for finite positive x; the limits elsewhere */
NL_FN float nl_log_limits_f32(float x, float result) {
    float limit = x == 0 ? -NL_INF_F32 : NL_NAN_F32;
    limit = x > 0 ? result : limit;
    return x == NL_INF_F32 ? x : limit;
}

NL_FN float nl_log_f32(float x) {
    nl_log_parts_f32 l = nl_log_split_any_f32(x);
    float f = l.m - 1.0f;
    float low = nl_muladd_f32(l.k, NL_LN2_LO_F32, -nl_log_defect_f32(f));
    return nl_log_limits_f32(x, nl_muladd_f32(l.k, NL_LN2_HI_F32, low + f));
}

NL_FN float nl_log2_f32(float x) {
    nl_log_parts_f32 l = nl_log_split_any_f32(x);
    float f = l.m - 1.0f;
    return nl_log_limits_f32(x, nl_muladd_f32(f - nl_log_defect_f32(f), 0x1.715476p+0f, l.k));
}

/* log(u) for u = 1 + x; what the sum lost goes into f. */
NL_FN float nl_log1p_f32(float x) {
    float u = 1.0f + x, x_part = u - 1.0f;
    float lost = (1.0f - (u - x_part)) + (x - x_part);
    nl_log_parts_f32 l = nl_log_split_f32(u);
    uint32_t half_power = 0x40000000u - (nl_bits_f32(u) - nl_bits_f32(l.m)); /* 2^(1-k), 0 for k = 128 */
    float f = nl_muladd_f32(0.5f * lost, nl_from_bits_f32(half_power), l.m - 1.0f);
    float low = nl_muladd_f32(l.k, NL_LN2_LO_F32, -nl_log_defect_f32(f));
    float result = nl_log_limits_f32(u, nl_muladd_f32(l.k, NL_LN2_HI_F32, low + f));
    return __builtin_fabsf(x) < 0x1p-25f ? x : result;
}

/* atan(t) for t from 0 to 1: t + t^3 P(t^2) (ATAN_F32) */
NL_FN float nl_atan_unit_f32(float t) {
    float u = t * t, p = 0x1.23f9e8p-10f;
    p = nl_muladd_f32(p, u, -0x1.df980ep-8f);
    p = nl_muladd_f32(p, u, 0x1.714bb6p-6f);
    p = nl_muladd_f32(p, u, -0x1.6e1a0ap-5f);
    p = nl_muladd_f32(p, u, 0x1.1422f2p-4f);
    p = nl_muladd_f32(p, u, -0x1.68e714p-4f);
    p = nl_muladd_f32(p, u, 0x1.c4f1e8p-4f);
    p = nl_muladd_f32(p, u, -0x1.247374p-3f);
    p = nl_muladd_f32(p, u, 0x1.9997ep-3f);
    p = nl_muladd_f32(p, u, -0x1.555552p-2f);
    return nl_muladd_f32(p, u * t, t);
}

/* pi/2 less that of 1/|x| above 1 */
NL_FN float nl_atan_f32(float x) {
    float size = __builtin_fabsf(x), inverse = 1.0f / size;
    float angle = nl_atan_unit_f32(size > 1.0f ? inverse : size);
    float complement = 0x1.921fb6p+0f - (angle + 0x1.777a5cp-25f);
    return __builtin_copysignf(size > 1.0f ? complement : angle, x);
}

#endif
