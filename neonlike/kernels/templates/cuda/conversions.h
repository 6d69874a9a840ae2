/* Conversions when elements are read and stored: float16, bfloat16, saturation, stochastic rounding. */
#ifndef NL_CONVERSIONS_H
#define NL_CONVERSIONS_H
#include "functions.h"

/* To integers: halves to even, saturated; nan becomes 0. LOW and END bound what the type holds, END excluded. */
#define NL_TO_INTEGER(T, S, B, I, NAME, LOW, END, MAX)                                                       \
    NL_ANYWHERE I nl_sat_##S##_##NAME(T x)                                                                   \
    {                                                                                                        \
        const T whole = rint##B(x);                                                                          \
        return whole < (T)END ? (whole >= (T)LOW ? (I)whole : (I)(LOW)) : x != x ? (I)0 : (I)MAX;            \
    }
#define NL_TO_INTEGERS(T, S, B)                                                                              \
    NL_TO_INTEGER(T, S, B, int8_t, i8, -128, 128, INT8_MAX)                                                  \
    NL_TO_INTEGER(T, S, B, uint8_t, u8, 0, 256, UINT8_MAX)                                                   \
    NL_TO_INTEGER(T, S, B, int16_t, i16, -32768, 32768, INT16_MAX)                                           \
    NL_TO_INTEGER(T, S, B, uint16_t, u16, 0, 65536, UINT16_MAX)                                              \
    NL_TO_INTEGER(T, S, B, int32_t, i32, INT32_MIN, 0x1p31, INT32_MAX)                                       \
    NL_TO_INTEGER(T, S, B, uint32_t, u32, 0, 0x1p32, UINT32_MAX)                                             \
    NL_TO_INTEGER(T, S, B, int64_t, i64, INT64_MIN, 0x1p63, INT64_MAX)                                       \
    NL_TO_INTEGER(T, S, B, uint64_t, u64, 0, 0x1p64, UINT64_MAX)
NL_TO_INTEGERS(float, f32, f)
NL_TO_INTEGERS(double, f64, )
#undef NL_TO_INTEGERS
#undef NL_TO_INTEGER

/* float16 is held as uint16_t. */
#ifndef __CUEMU__
NL_ANYWHERE float nl_f16_to_f32(uint16_t half)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

NL_ANYWHERE uint16_t nl_f32_to_f16(float x)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}
#else
/* The same in arithmetic on bits; vecmath_small.h has the explanation. */
NL_ANYWHERE float nl_f16_to_f32(uint16_t half)
{
    const uint32_t size = ((uint32_t)half & 0x7fffu) << 13;
    const uint32_t normal = size + ((size < 0x0f800000u ? 112u : 224u) << 23);
    const float tiny = nl_from_bits_f32(size + (113u << 23)) - 0x1p-14f;
    return nl_from_bits_f32((size < 0x00800000u ? nl_bits_f32(tiny) : normal) | ((uint32_t)half & 0x8000u) << 16);
}

NL_ANYWHERE uint16_t nl_f32_to_f16(float x)
{
    const uint32_t bits = nl_bits_f32(x), size = bits & 0x7fffffffu;
    const uint32_t normal = (size + 0xfffu + ((size >> 13) & 1u) - (112u << 23)) >> 13;
    const float tiny = nl_from_bits_f32(size) + 0.5f;
    uint32_t half = size < 0x38800000u ? nl_bits_f32(tiny) - 0x3f000000u : normal;
    half = size >= 0x477ff000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7fffu : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}
#endif

/* bfloat16, held as uint16_t, is the upper half of a float32. */
NL_ANYWHERE float nl_bf16_to_f32(uint16_t upper) { return nl_from_bits_f32((uint32_t)upper << 16); }

NL_ANYWHERE uint16_t nl_f32_to_bf16(float x)
{
#if !defined(__CUEMU__) && __CUDA_ARCH__ >= 800
    uint16_t upper;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(upper) : "f"(x));
    return upper;
#else
    const uint32_t bits = nl_bits_f32(x);
    const uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16; /* overflow carries into infinity */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : nearest);
#endif
}

/* float32 on the way to 16 bits, rounded to odd where inexact; vecmath_small.h has the explanation. */
NL_ANYWHERE float nl_odd_f64(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    const uint32_t bits = nl_bits_f32(near);
    return back == x || x != x ? near : nl_from_bits_f32((bits - (fabs(back) > fabs(x) ? 1u : 0u)) | 1u);
}

NL_ANYWHERE float nl_odd_unsigned(uint64_t size)
{
    const uint64_t upper = size >> 20 | ((size & 0xfffffu) != 0 ? 1u : 0u);
    const double wide = size >> 44 != 0 ? (double)upper * 0x1p20 : (double)size;
    return nl_odd_f64(wide);
}

NL_ANYWHERE float nl_odd_whole(int64_t x)
{
    const float odd = nl_odd_unsigned(x < 0 ? 0u - (uint64_t)x : (uint64_t)x);
    return x < 0 ? -odd : odd;
}

/* x rounded to `digits` bits of significand behind the first, up with the probability that keeps the expectation:
 * `chance` is uniform in [0, 1). The unit does not fall below that of exponent `least`, where the type it is stored in
 * has its subnormals. The result is x truncated, or one unit more: no sum is rounded on the way. */
NL_ANYWHERE float nl_stochastic_f32(float x, int digits, int least, float chance)
{
    const int exponent = (int)(nl_bits_f32(x) >> 23 & 255u);
    if (exponent == 255 || (exponent < 32 && least < 32))
        return x; /* nan, infinities, and numbers whose units float32 does not have */
    const int unit_exponent = (exponent > least ? exponent : least) - digits;
    const float unit = nl_from_bits_f32((uint32_t)unit_exponent << 23);
    const float steps = fabsf(x) / unit, whole = floorf(steps);
    const float rounded = (whole + (chance < steps - whole ? 1.0f : 0.0f)) * unit;
    return rounded < INFINITY ? copysignf(rounded, x) : x;
}

NL_ANYWHERE double nl_stochastic_f64(double x, int digits, double chance)
{
    const int exponent = (int)(nl_bits_f64(x) >> 52 & 2047u);
    if (exponent == 2047 || exponent < 64)
        return x;
    const double unit = nl_from_bits_f64((uint64_t)(exponent - digits) << 52);
    const double steps = fabs(x) / unit, whole = floor(steps);
    const double rounded = (whole + (chance < steps - whole ? 1.0 : 0.0)) * unit;
    return rounded < (double)INFINITY ? copysign(rounded, x) : x;
}

/* To integers: a uniform number is added in the direction of the sign, and the fraction truncated. */
NL_ANYWHERE double nl_stochastic_whole(double x, double chance)
{
    const double size = fabs(x), whole = floor(size);
    return size < 0x1p53 ? copysign(whole + (chance < size - whole ? 1.0 : 0.0), x) : x;
}
#endif
