/* The op table's math functions for CUDA, by type: CUDA's own where there is one, none of the fast approximations.
 *
 *   nl_<function>_f32(float), nl_<function>_f64(double); integers are in intmath.h
 */
#ifndef NL_FUNCTIONS_H
#define NL_FUNCTIONS_H
#include "types.h"

NL_ANYWHERE uint32_t nl_bits_f32(float x) { return __float_as_uint(x); }
NL_ANYWHERE float nl_from_bits_f32(uint32_t u) { return __uint_as_float(u); }
NL_ANYWHERE uint64_t nl_bits_f64(double x) { return (uint64_t)__double_as_longlong(x); }
NL_ANYWHERE double nl_from_bits_f64(uint64_t u) { return __longlong_as_double((long long)u); }

/* The least number, with which a search for the largest begins where sums beside it are scaled. */
#define NL_LEAST_F32 (-0x1.fffffep127f)
#define NL_LEAST_F64 (-0x1.fffffffffffffp1023)

/* joined: two sums of exp(x - most), each with its most, as one with the larger. sum_around: such a sum, around c instead
 * of most; where that is infinite, of which the sum says nothing, the largest summand.
 * Tests give 0 or 1 in the type of the argument. nan wins in max_nan and min_nan, and is the sign of nan. */
#define NL_FUNCTIONS(T, S, B)                                                                                \
    NL_ANYWHERE T nl_exp_##S(T x) { return exp##B(x); }                                                      \
    NL_ANYWHERE T nl_exp2_##S(T x) { return exp2##B(x); }                                                    \
    NL_ANYWHERE T nl_expm1_##S(T x) { return expm1##B(x); }                                                  \
    NL_ANYWHERE T nl_log_##S(T x) { return log##B(x); }                                                      \
    NL_ANYWHERE T nl_log2_##S(T x) { return log2##B(x); }                                                    \
    NL_ANYWHERE T nl_log1p_##S(T x) { return log1p##B(x); }                                                  \
    NL_ANYWHERE T nl_pow_##S(T x, T y) { return pow##B(x, y); }                                              \
    NL_ANYWHERE T nl_sin_##S(T x) { return sin##B(x); }                                                      \
    NL_ANYWHERE T nl_cos_##S(T x) { return cos##B(x); }                                                      \
    NL_ANYWHERE T nl_tan_##S(T x) { return tan##B(x); }                                                      \
    NL_ANYWHERE T nl_atan_##S(T x) { return atan##B(x); }                                                    \
    NL_ANYWHERE T nl_asin_##S(T x) { return asin##B(x); }                                                    \
    NL_ANYWHERE T nl_acos_##S(T x) { return acos##B(x); }                                                    \
    NL_ANYWHERE T nl_atan2_##S(T y, T x) { return atan2##B(y, x); }                                          \
    NL_ANYWHERE T nl_hypot_##S(T x, T y) { return hypot##B(x, y); }                                          \
    NL_ANYWHERE T nl_sinh_##S(T x) { return sinh##B(x); }                                                    \
    NL_ANYWHERE T nl_cosh_##S(T x) { return cosh##B(x); }                                                    \
    NL_ANYWHERE T nl_asinh_##S(T x) { return asinh##B(x); }                                                  \
    NL_ANYWHERE T nl_acosh_##S(T x) { return acosh##B(x); }                                                  \
    NL_ANYWHERE T nl_atanh_##S(T x) { return atanh##B(x); }                                                  \
    NL_ANYWHERE T nl_log10_##S(T x) { return log10##B(x); }                                                  \
    NL_ANYWHERE T nl_cbrt_##S(T x) { return cbrt##B(x); }                                                    \
    NL_ANYWHERE T nl_fmod_##S(T x, T y) { return fmod##B(x, y); }                                            \
    NL_ANYWHERE T nl_tanh_##S(T x) { return tanh##B(x); }                                                    \
    NL_ANYWHERE T nl_erf_##S(T x) { return erf##B(x); }                                                      \
    NL_ANYWHERE T nl_sigmoid_##S(T x) { return (T)1 / ((T)1 + exp##B(-x)); }                                 \
    NL_ANYWHERE T nl_sigmoid2_##S(T x) { return (T)1 / ((T)1 + exp2##B(-x)); }                               \
    NL_ANYWHERE T nl_fabs_##S(T x) { return fabs##B(x); }                                                    \
    NL_ANYWHERE T nl_sqrt_##S(T x) { return sqrt##B(x); }                                                    \
    NL_ANYWHERE T nl_rint_##S(T x) { return rint##B(x); }                                                    \
    NL_ANYWHERE T nl_floor_##S(T x) { return floor##B(x); }                                                  \
    NL_ANYWHERE T nl_ceil_##S(T x) { return ceil##B(x); }                                                    \
    NL_ANYWHERE T nl_trunc_##S(T x) { return trunc##B(x); }                                                  \
    NL_ANYWHERE T nl_isnan_##S(T x) { return x != x ? (T)1 : (T)0; }                                         \
    NL_ANYWHERE T nl_isinf_##S(T x) { return fabs##B(x) == (T)INFINITY ? (T)1 : (T)0; }                      \
    NL_ANYWHERE T nl_isfinite_##S(T x) { return fabs##B(x) < (T)INFINITY ? (T)1 : (T)0; }                    \
    NL_ANYWHERE T nl_max_nan_##S(T a, T b) { return a >= b || a != a ? a : b; }                              \
    NL_ANYWHERE T nl_min_nan_##S(T a, T b) { return a <= b || a != a ? a : b; }                              \
    NL_ANYWHERE T nl_joined_##S(T most, T sum, T other_most, T other)                                        \
    {                                                                                                        \
        const T more = other_most - most, scale = exp##B(-fabs##B(more));                                    \
        return more > 0 ? sum * scale + other : sum + other * scale;                                         \
    }                                                                                                        \
    NL_ANYWHERE T nl_sum_around_##S(T most, T sum, T c)                                                      \
    {                                                                                                        \
        const T scale = exp##B(most - c);                                                                    \
        return fabs##B(most) < (T)INFINITY ? sum * scale : scale;                                            \
    }                                                                                                        \
    NL_ANYWHERE T nl_sign_##S(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x == 0 ? (T)0 : x; }
NL_FUNCTIONS(float, f32, f)
NL_FUNCTIONS(double, f64, )
#undef NL_FUNCTIONS

/* As nl_joined_f32, of sums of many parts. */
NL_ANYWHERE double nl_joined_wide_f32(float most, double sum, float other_most, double other)
{
    const float more = other_most - most;
    const double scale = (double)expf(-fabsf(more));
    return more > 0 ? sum * scale + other : sum + other * scale;
}

#define NL_DIVIDING NL_ANYWHERE
#define NL_COPYSIGN_F32 copysignf
#define NL_COPYSIGN_F64 copysign
#include "division.h"

/* x * sgn(by) * 2^rint(log2|by|), exactly rounded; x * 0 where by is 0, x * inf where it is infinite. As the one of
 * vecmath_small.h, where the constants are explained. */
#define NL_SHIFT_BY(T, S, U, B, TINY, CARRY, EXPONENT, ONE, UP, DOWN)                                        \
    NL_ANYWHERE T nl_shift_by_##S(T x, T by)                                                                 \
    {                                                                                                        \
        const T size = fabs##B(by);                                                                          \
        const U tall = size >= 2 ? (U)ONE : (U)0;                                                            \
        const T normal = size < (T)TINY ? size * (T)UP : size;                                               \
        T rest = size < (T)TINY ? (T)DOWN : (T)1;                                                            \
        rest = size >= 2 ? (T)2 : rest;                                                                      \
        rest = size == (T)INFINITY ? (T)INFINITY : rest;                                                     \
        T power = nl_from_bits_##S(((nl_bits_##S(normal) + (U)CARRY) & (U)EXPONENT) - tall);                 \
        power = by < 0 ? -power : power;                                                                     \
        return by != by ? by : (x * power) * rest;                                                           \
    }
NL_SHIFT_BY(float, f32, uint32_t, f, 0x1p-126, 0x004afb0c, 0x7f800000, 0x00800000, 0x1p24, 0x1p-24)
NL_SHIFT_BY(double, f64, uint64_t, , 0x1p-1022, 0x00095f619980c433, 0x7ff0000000000000, 0x0010000000000000, 0x1p53,
            0x1p-53)
#undef NL_SHIFT_BY
#endif
