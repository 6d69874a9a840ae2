/* The small functions and the conversions of vecmath.h, which includes this file. */
#ifndef NL_VECMATH_SMALL_H
#define NL_VECMATH_SMALL_H

/* Rounding: one instruction where there is one. Without it, adding 2^23 (2^52) leaves no place for a fraction. */
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__ARM_NEON)
NL_FN float nl_rint_f32(float x) { return __builtin_rintf(x); }
NL_FN float nl_floor_f32(float x) { return __builtin_floorf(x); }
NL_FN float nl_ceil_f32(float x) { return __builtin_ceilf(x); }
NL_FN float nl_trunc_f32(float x) { return __builtin_truncf(x); }
NL_FN double nl_rint_f64(double x) { return __builtin_rint(x); }
NL_FN double nl_floor_f64(double x) { return __builtin_floor(x); }
NL_FN double nl_ceil_f64(double x) { return __builtin_ceil(x); }
NL_FN double nl_trunc_f64(double x) { return __builtin_trunc(x); }
#else
#define NL_ROUNDINGS(T, S, B, WHOLE)                                                                        \
    NL_FN T nl_rint_##S(T x) {                                                                              \
        T size = __builtin_fabs##B(x), whole = (size + (T)WHOLE) - (T)WHOLE;                                \
        return size < (T)WHOLE ? __builtin_copysign##B(whole, x) : x;                                       \
    }                                                                                                       \
    NL_FN T nl_floor_##S(T x) {                                                                             \
        T whole = nl_rint_##S(x);                                                                           \
        return whole > x ? whole - 1 : whole;                                                               \
    }                                                                                                       \
    NL_FN T nl_ceil_##S(T x) { return -nl_floor_##S(-x); }                                                  \
    NL_FN T nl_trunc_##S(T x) { return __builtin_copysign##B(nl_floor_##S(__builtin_fabs##B(x)), x); }
NL_ROUNDINGS(float, f32, f, 0x1p23)
NL_ROUNDINGS(double, f64, , 0x1p52)
#undef NL_ROUNDINGS
#endif

/* To find the largest of many floats with nan among them at the cost of a plain maximum: the largest magnitude, as
 * bits, is kept beside it, and says in the end whether there was a nan. */
NL_FN uint32_t nl_magnitude_f32(float x) { return nl_bits_f32(x) & 0x7fffffffu; }
NL_FN float nl_or_nan_f32(float x, uint32_t magnitude) { return magnitude > 0x7f800000u ? NL_NAN_F32 : x; }

/* Tests give 0 or 1 in the type of the argument. nan wins in max_nan and min_nan, and is the sign of nan. */
#define NL_SMALL(T, S, B, INF)                                                                              \
    NL_FN T nl_fabs_##S(T x) { return __builtin_fabs##B(x); }                                                \
    NL_FN T nl_sqrt_##S(T x) { return __builtin_sqrt##B(x); }                                               \
    NL_FN T nl_isnan_##S(T x) { return x != x ? (T)1 : (T)0; }                                              \
    NL_FN T nl_isfinite_##S(T x) { return __builtin_fabs##B(x) < INF ? (T)1 : (T)0; }                       \
    NL_FN T nl_isinf_##S(T x) { return __builtin_fabs##B(x) == INF ? (T)1 : (T)0; }                          \
    NL_FN T nl_max_nan_##S(T a, T b) {                                                                      \
        T larger = b > a ? b : a; /* a where one is nan */                                                  \
        return b != b ? a + b : larger;                                                                     \
    }                                                                                                       \
    NL_FN T nl_min_nan_##S(T a, T b) {                                                                      \
        T smaller = b < a ? b : a;                                                                          \
        return b != b ? a + b : smaller;                                                                    \
    }                                                                                                       \
    NL_FN T nl_sign_##S(T x) {                                                                              \
        T one_sided = x < 0 ? (T)-1 : x;                                                                    \
        one_sided = x > 0 ? (T)1 : one_sided;                                                               \
        return x == 0 ? (T)0 : one_sided;                                                                   \
    }
NL_SMALL(float, f32, f, NL_INF_F32)
NL_SMALL(double, f64, , NL_INF_F64)
#undef NL_SMALL

/* x * sgn(by) * 2^rint(log2|by|), exactly rounded; x * 0 where by is 0, x * inf where it is infinite.
 * Adding CARRY (2 less the first number above sqrt 2, as bits) carries into the exponent above sqrt 2. The power is
 * taken apart where it leaves the range of the type: half of it above 2, 2^DIGITS times it for a subnormal by. */
#define NL_SHIFT_BY(T, S, U, B, INF, TINY, CARRY, EXPONENT, ONE, DIGITS)                                    \
    NL_FN T nl_shift_by_##S(T x, T by) {                                                                    \
        T size = __builtin_fabs##B(by), rest = (T)1;                                                        \
        U tall = size >= 2 ? (U)ONE : (U)0;                                                                 \
        T normal = size < (T)TINY ? size * (T)0x1p##DIGITS : size;                                          \
        rest = size < (T)TINY ? (T)0x1p-##DIGITS : rest;                                                    \
        rest = size >= 2 ? (T)2 : rest;                                                                     \
        rest = size == INF ? INF : rest;                                                                    \
        T power = nl_from_bits_##S(((nl_bits_##S(normal) + (U)CARRY) & (U)EXPONENT) - tall);                \
        power = by < 0 ? -power : power;                                                                    \
        T shifted = (x * power) * rest;                                                                     \
        return by != by ? by : shifted;                                                                     \
    }
NL_SHIFT_BY(float, f32, uint32_t, f, NL_INF_F32, 0x1p-126, 0x004afb0c, 0x7f800000, 0x00800000, 24)
NL_SHIFT_BY(double, f64, uint64_t, , NL_INF_F64, 0x1p-1022, 0x00095f619980c433, 0x7ff0000000000000,
            0x0010000000000000, 53)
#undef NL_SHIFT_BY

/* Conversions to integers round halves to even and saturate; nan becomes 0. */
#define NL_TO_NARROW(T, S, I, NAME, LOW, HIGH, MAGIC)                                                       \
    NL_FN I nl_sat_##S##_##NAME(T x) {                                                                       \
        T inside = x < (T)LOW ? (T)LOW : x;                                                                 \
        inside = inside > (T)HIGH ? (T)HIGH : inside;                                                       \
        inside = x == x ? inside : (T)0;                                                                    \
        return (I)nl_bits_##S(inside + MAGIC);                                                              \
    }
NL_TO_NARROW(float, f32, int8_t, i8, -128, 127, NL_MAGIC_F32)
NL_TO_NARROW(float, f32, uint8_t, u8, 0, 255, NL_MAGIC_F32)
NL_TO_NARROW(float, f32, int16_t, i16, -32768, 32767, NL_MAGIC_F32)
NL_TO_NARROW(float, f32, uint16_t, u16, 0, 65535, NL_MAGIC_F32)
NL_TO_NARROW(double, f64, int8_t, i8, -128, 127, NL_MAGIC_F64)
NL_TO_NARROW(double, f64, uint8_t, u8, 0, 255, NL_MAGIC_F64)
NL_TO_NARROW(double, f64, int16_t, i16, -32768, 32767, NL_MAGIC_F64)
NL_TO_NARROW(double, f64, uint16_t, u16, 0, 65535, NL_MAGIC_F64)
NL_TO_NARROW(double, f64, int32_t, i32, -0x1p31, 0x1.fffffffcp30, NL_MAGIC_F64)
NL_TO_NARROW(double, f64, uint32_t, u32, 0, 0x1.fffffffep31, NL_MAGIC_F64)
#undef NL_TO_NARROW

NL_FN int32_t nl_sat_f32_i32(float x) {
    float inside = x < -0x1p31f ? -0x1p31f : x;
    inside = x < 0x1p31f ? inside : 0.0f; /* nan, or more than the type holds */
    int32_t whole = (int32_t)nl_rint_f32(inside);
    return x >= 0x1p31f ? INT32_MAX : whole;
}

NL_FN uint32_t nl_sat_f32_u32(float x) {
    float inside = x > 0 ? x : 0.0f;
    inside = x < 0x1p32f ? inside : 0.0f;
    float lower = inside < 0x1p31f ? inside : inside - 0x1p31f;
    uint32_t whole = (uint32_t)(int32_t)nl_rint_f32(lower) + (inside < 0x1p31f ? 0u : 0x80000000u);
    return x >= 0x1p32f ? UINT32_MAX : whole;
}

NL_FN int64_t nl_sat_f64_i64(double x) {
    double inside = x < -0x1p63 ? -0x1p63 : x;
    inside = x < 0x1p63 ? inside : 0.0;
    double whole = nl_rint_f64(inside);
#if defined(__AVX512DQ__) || defined(__aarch64__)
    int64_t result = (int64_t)whole;
#else /* no vector instruction for it: each half is read off a sum with a large constant */
    double upper = nl_floor_f64(whole * 0x1p-32), lower = whole - upper * 0x1p32;
    uint64_t low_word = nl_bits_f64(lower + 0x1p52) & 0xffffffffu;
    int64_t result = (int64_t)((nl_bits_f64(upper + NL_MAGIC_F64) << 32) + low_word);
#endif
    return x >= 0x1p63 ? INT64_MAX : result;
}

NL_FN int64_t nl_sat_f32_i64(float x) { return nl_sat_f64_i64((double)x); }

NL_FN uint64_t nl_sat_f64_u64(double x) {
    double inside = x > 0 ? x : 0.0;
    inside = x < 0x1p64 ? inside : 0.0; /* nan, or more than the type holds */
    uint64_t whole = (uint64_t)nl_rint_f64(inside);
    return x >= 0x1p64 ? UINT64_MAX : whole;
}

NL_FN uint64_t nl_sat_f32_u64(float x) { return nl_sat_f64_u64((double)x); }

/* float16 is held as uint16_t. Its exponent bias is 15, that of float32 127; it has 13 bits of significand fewer.
 * clang vectorises the instructions of F16C; gcc 12 does not, but it does the arithmetic on bits. */
#if defined(__F16C__) && defined(__clang_major__) && __clang_major__ >= 15
NL_FN float nl_f16_to_f32(uint16_t half) {
    union { uint16_t u; _Float16 f; } cast = {half};
    return (float)cast.f;
}

NL_FN uint16_t nl_f32_to_f16(float x) {
    union { _Float16 f; uint16_t u; } cast = {(_Float16)x};
    return cast.u;
}
#else
NL_FN float nl_f16_to_f32(uint16_t half) {
    uint32_t size = ((uint32_t)half & 0x7fffu) << 13;
    uint32_t normal = size + ((size < 0x0f800000u ? 112u : 224u) << 23); /* infinity and nan keep all ones */
    float tiny = nl_from_bits_f32(size + (113u << 23)) - 0x1p-14f;
    uint32_t magnitude = size < 0x00800000u ? nl_bits_f32(tiny) : normal;
    return nl_from_bits_f32(magnitude | ((uint32_t)half & 0x8000u) << 16);
}

NL_FN uint16_t nl_f32_to_f16(float x) {
    uint32_t bits = nl_bits_f32(x), size = bits & 0x7fffffffu;
    uint32_t normal = (size + 0xfffu + ((size >> 13) & 1u) - (112u << 23)) >> 13; /* nearest, halves to even */
    float tiny = nl_from_bits_f32(size) + 0.5f; /* whose unit in the last place is that of a subnormal float16 */
    uint32_t half = size < 0x38800000u ? nl_bits_f32(tiny) - 0x3f000000u : normal;
    half = size >= 0x477ff000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x1ffu) : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}
#endif

/* bfloat16, held as uint16_t, is the upper half of a float32: to nearest, halves to even, nan kept. */
NL_FN float nl_bf16_to_f32(uint16_t upper) { return nl_from_bits_f32((uint32_t)upper << 16); }

NL_FN uint16_t nl_f32_to_bf16(float x) {
    uint32_t bits = nl_bits_f32(x);
    uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16; /* what overflows carries into infinity */
    uint32_t nan = 0u - ((0x7f800000u - (bits & 0x7fffffffu)) >> 31); /* all ones or none: of a test gcc makes jumps */
    return (uint16_t)(((bits >> 16 | 0x40u) & nan) | (nearest & ~nan));
}

/* float32 on the way to 16 bits, rounded to odd where inexact, which keeps what the second rounding must know: both
 * together round once (Boldo and Melquiond 2008). */
NL_FN float nl_odd_f64(double x) {
    float near = (float)x;
    double back = (double)near;
    uint32_t bits = nl_bits_f32(near), less = __builtin_fabs(back) > __builtin_fabs(x) ? 1u : 0u;
    uint32_t odd = (bits - less) | 1u;
    uint32_t kept = back == x ? bits : odd;
    return nl_from_bits_f32(x != x ? bits : kept);
}

/* Of integers, which float64 holds exactly below 2^53; beyond, the bits that are left out are kept as one. */
NL_FN float nl_odd_unsigned(uint64_t size) {
    uint64_t upper = size >> 20 | ((size & 0xfffffu) != 0 ? 1u : 0u);
    double wide = size >> 44 != 0 ? (double)(int64_t)upper * 0x1p20 : (double)(int64_t)size;
    return nl_odd_f64(wide);
}

NL_FN float nl_odd_whole(int64_t x) {
    float odd = nl_odd_unsigned(x < 0 ? 0u - (uint64_t)x : (uint64_t)x);
    return x < 0 ? -odd : odd;
}

#endif
