/* Powers, |x|^y = 2^(y log2|x|), and the logarithm they are made of: of the kind of vecmath.h.
 *
 * An error of the logarithm is multiplied by up to 1075 (150 in float32), so it has twice the precision of the result, as a
 * sum of two numbers. Where the exact power is a number of the type, as often with whole x and y, the result is that.
 */
#ifndef NL_VECMATH_POWER_H
#define NL_VECMATH_POWER_H

#include "vecmath.h"

/* a * b + c rounded once; exact where c takes off all but the rounding of a * b. */
#if NL_HAS_FMA
NL_FN float nl_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
NL_FN double nl_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
NL_FN float nl_fma_f32(float a, float b, float c) { return (float)((double)a * (double)b + (double)c); }
NL_FN double nl_fma_f64(double a, double b, double c) {
    nl_pair product = nl_two_product(a, b);
    return (product.hi + c) + product.lo;
}
#endif

typedef struct { float hi, lo; } nl_pair_f32;

/* P(u) of log2: POW_LOG2_F32, POW_LOG2_F64 */

NL_FN float nl_log2_terms_f32(float u) {
    float p = 0x1.5899aap-2f;
    p = nl_muladd_f32(p, u, 0x1.a5cfd2p-2f);
    return nl_muladd_f32(p, u, 0x1.2776ep-1f);
}

NL_FN double nl_log2_terms_f64(double u) {
    double p = 0x1.85e37f882aacbp-3;
    p = nl_muladd_f64(p, u, 0x1.87b15db2f2527p-3);
    p = nl_muladd_f64(p, u, 0x1.c69f8557690a6p-3);
    p = nl_muladd_f64(p, u, 0x1.0c9a63e9a8a5fp-2);
    p = nl_muladd_f64(p, u, 0x1.484b142161393p-2);
    p = nl_muladd_f64(p, u, 0x1.a61762a759d51p-2);
    return nl_muladd_f64(p, u, 0x1.2776c50ef9d23p-1);
}

/* log2 of a number in parts, k + s (A + u (B + u P(u))) with s = (m-1) / (m+1), u = s^2 (A, B: LOG2_SLOPE and its third).
 * Each `lo` is what rounding took off the line before. `lost` is of s, which the logarithm multiplies by A / (1 - u). */
#define NL_LOG2_PAIR(T, S, PAIR, A, A_LO, B, B_LO)                                                          \
    NL_FN PAIR nl_log2_pair_parts_##S(nl_log_parts_##S l) {                                                 \
        T f = l.m - 1, sum = l.m + 1, sum_lost = l.m - (sum - 1), inverse = 1 / sum, s = f * inverse;       \
        T lost = nl_fma_##S(-s, sum_lost, nl_fma_##S(-s, sum, f)) * inverse;                                \
        T u = s * s, u_lo = nl_fma_##S(s, s, -u), p = nl_log2_terms_##S(u);                                 \
        T w = nl_fma_##S(u, p, B), w_lo = nl_fma_##S(u, p, B - w) + B_LO;                                   \
        T v = nl_fma_##S(u, w, A), v_lo = nl_fma_##S(u, w, A - v) + A_LO;                                   \
        v_lo = nl_fma_##S(u_lo, w, nl_fma_##S(u, w_lo, v_lo));                                              \
        T slope = nl_fma_##S(u, nl_fma_##S(u, A, A), A);                                                    \
        T hi = nl_fma_##S(s, v, l.k), lo = nl_fma_##S(s, v, l.k - hi);                                      \
        return (PAIR){hi, nl_fma_##S(lost, slope, nl_fma_##S(s, v_lo, lo))};                                \
    }
NL_LOG2_PAIR(float, f32, nl_pair_f32, 0x1.715476p+1f, 0x1.4ae0cp-25f, 0x1.ec709ep-1f, 0.0f)
NL_LOG2_PAIR(double, f64, nl_pair, 0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55, 0x1.ec709dc3a03fdp-1,
             0x1.d27f05548af0cp-55)
#undef NL_LOG2_PAIR

/* Of a positive finite x */
NL_FN nl_pair_f32 nl_log2_pair_f32(float x) { return nl_log2_pair_parts_f32(nl_log_split_any_f32(x)); }
NL_FN nl_pair nl_log2_pair_f64(double x) { return nl_log2_pair_parts_f64(nl_log_split_any_f64(x)); }

/* 2^(z + lo) for |z| < 2^22 (2^50) and a small lo, in halves as nl_scale_f32 has it. The exponent is held in a range as an
 * integer: in AVX-512 that is one instruction for each side. The head of the polynomial takes its rounding along. */

NL_FN float nl_exp2_pair_f32(float z, float lo) {
    float sum = z + NL_MAGIC_254_F32, r = z - (sum - NL_MAGIC_254_F32);
    int32_t bits = (int32_t)nl_bits_f32(sum), least = 0x4b400000 + 254 - 200, most = 0x4b400000 + 254 + 200;
    bits = bits < least ? least : bits;
    bits = bits > most ? most : bits;
    float q = nl_exp2_terms_f32(r) * r;
    float head = nl_fma_f32(r, 0x1.62e43p-1f, 1.0f), rest = nl_fma_f32(r, 0x1.62e43p-1f, 1.0f - head);
    rest = nl_fma_f32(lo * 0x1.62e43p-1f, nl_fma_f32(q, r, head), rest);
    return nl_scale_f32(head + nl_fma_f32(q, r, rest), bits);
}

NL_FN double nl_exp2_pair_f64(double z, double lo) {
    double magic = NL_MAGIC_F64 + 2046.0, sum = z + magic, r = (z - (sum - magic)) + lo;
    int64_t bits = (int64_t)nl_bits_f64(sum), least = 0x4338000000000000 + 2046 - 1400;
    int64_t most = 0x4338000000000000 + 2046 + 1400;
    bits = bits < least ? least : bits;
    bits = bits > most ? most : bits;
    double q = nl_exp2_terms_f64(r) * r;
    double head = nl_fma_f64(r, 0x1.62e42fefa39efp-1, 1.0), rest = nl_fma_f64(r, 0x1.62e42fefa39efp-1, 1.0 - head);
    uint64_t whole = (uint64_t)bits, half = whole >> 1;
    double power = head + nl_fma_f64(q, r, rest);
    return power * nl_from_bits_f64(half << 52) * nl_from_bits_f64((whole - half) << 52);
}

/* The special cases of IEEE 754 pow around `power`, which is |x|^y where x is neither 0 nor infinite: those two are
 * equal to their halves, and each other's inverse. `factor` is what a negative x multiplies by: 1 for an even y, -1
 * for an odd one, nan for a fraction but at the ends. One condition a line: of `a || b ? ... : ...` gcc 12 makes
 * branches here, and no vectors. */
#define NL_POW_LIMITS(T, S, B, INF)                                                                         \
    NL_FN T nl_pow_limits_##S(T x, T y, T power) {                                                          \
        T size = __builtin_fabs##B(x), half_size = (T)0.5 * size, half = (T)0.5 * y;                        \
        T inverse = nl_from_bits_##S(nl_bits_##S(INF) - nl_bits_##S(size));                                 \
        T end = y < 0 ? inverse : size;                                                                     \
        T result = half_size == size ? end : power;                                                         \
        T fraction = half_size == size ? (T)1 : (T)__builtin_nan("");                                       \
        T parity = nl_rint_##S(half) == half ? (T)1 : (T)-1;                                                \
        T factor = nl_rint_##S(y) == y ? parity : fraction;                                                 \
        factor = __builtin_copysign##B((T)1, x) < 0 ? factor : (T)1;                                        \
        result = result * factor;                                                                           \
        result = x != x ? x : result;                                                                       \
        result = y != y ? y : result;                                                                       \
        result = x == 1 ? (T)1 : result;                                                                    \
        return y == 0 ? (T)1 : result;                                                                      \
    }
NL_POW_LIMITS(float, f32, f, NL_INF_F32)
NL_POW_LIMITS(double, f64, , NL_INF_F64)
#undef NL_POW_LIMITS

/* Negative but where x is positive, normal and finite and |y| at most 2^14 */

NL_FN int32_t nl_pow_in_range_f32(float x, float y) {
    uint32_t bits = nl_bits_f32(x), exponent = nl_bits_f32(y) & 0x7fffffffu;
    return (int32_t)(bits | (bits - 0x00800000u) | (0x7f7fffffu - bits) | (0x46800000u - exponent));
}

NL_FN int64_t nl_pow_in_range_f64(double x, double y) {
    uint64_t bits = nl_bits_f64(x), exponent = nl_bits_f64(y) & 0x7fffffffffffffffu;
    uint64_t outside = bits | (bits - 0x0010000000000000u) | (0x7fefffffffffffffu - bits);
    return (int64_t)(outside | (0x40d0000000000000u - exponent));
}

/* x^y in that range, where it is nl_pow, and everywhere. Beyond |y| = FAR every power but that of 1 over- or underflows,
 * as it does beyond |y log2(x)| = TOP, where what rounding took off the product may be large. */
#define NL_POW(T, S, B, PAIR, FAR, TOP)                                                                     \
    NL_FN T nl_pow_bounded_##S(T x, T y) {                                                                  \
        PAIR l = nl_log2_pair_parts_##S(nl_log_split_##S(x));                                               \
        T z = nl_fma_##S(y, l.hi, 0), z_lo = nl_fma_##S(y, l.lo, nl_fma_##S(y, l.hi, -z));                  \
        return nl_exp2_pair_##S(z, z_lo);                                                                   \
    }                                                                                                       \
    NL_FN T nl_pow_##S(T x, T y) {                                                                          \
        T size = __builtin_fabs##B(y);                                                                      \
        T exponent = __builtin_copysign##B(size > (T)FAR ? (T)FAR : size, y);                               \
        PAIR l = nl_log2_pair_##S(__builtin_fabs##B(x));                                                    \
        T z = nl_fma_##S(exponent, l.hi, 0);                                                                \
        T z_lo = nl_fma_##S(exponent, l.lo, nl_fma_##S(exponent, l.hi, -z));                                \
        T far = __builtin_fabs##B(z);                                                                       \
        z_lo = far > (T)TOP ? (T)0 : z_lo;                                                                  \
        z = far > (T)TOP ? __builtin_copysign##B((T)TOP, z) : z;                                            \
        return nl_pow_limits_##S(x, y, nl_exp2_pair_##S(z, z_lo));                                          \
    }
NL_POW(float, f32, f, nl_pair_f32, 0x1p40, 512)
NL_POW(double, f64, , nl_pair, 0x1p70, 4096)
#undef NL_POW

#endif
