/* The functions of intmath.h for integers of 8, 16 and 32 bits, where results are known to fit (see narrow.py). */
#ifndef NL_INTMATH_NARROW_H
#define NL_INTMATH_NARROW_H
#include <stdint.h>

#define NL_NARROW(S, T)                                                                             \
    static inline T nl_wrap_add_##S(T a, T b) { return (T)((uint32_t)a + (uint32_t)b); }            \
    static inline T nl_wrap_sub_##S(T a, T b) { return (T)((uint32_t)a - (uint32_t)b); }            \
    static inline T nl_wrap_mul_##S(T a, T b) { return (T)((uint32_t)a * (uint32_t)b); }            \
    static inline T nl_fabs_##S(T a) { return (T)(a < 0 ? 0u - (uint32_t)a : (uint32_t)a); }        \
    static inline T nl_sign_##S(T a) { return (T)((a > 0) - (a < 0)); }                             \
    static inline T nl_rint_##S(T a) { return a; }                                                  \
    static inline T nl_floor_##S(T a) { return a; }                                                 \
    static inline T nl_ceil_##S(T a) { return a; }                                                  \
    static inline T nl_trunc_##S(T a) { return a; }                                                 \
    static inline T nl_max_nan_##S(T a, T b) { return a > b ? a : b; }                              \
    static inline T nl_min_nan_##S(T a, T b) { return a < b ? a : b; }
NL_NARROW(i8, int8_t)
NL_NARROW(i16, int16_t)
NL_NARROW(i32, int32_t)
NL_NARROW(u8, uint8_t)
NL_NARROW(u16, uint16_t)
NL_NARROW(u32, uint32_t)
#undef NL_NARROW

/* Sums and differences that saturate; signed ones overflow if the result's sign is another than it can be. */
#define NL_SATURATED(S, T, UNSIGNED, LOW, HIGH)                                               \
    static inline T nl_sat_add_##S(T a, T b) {                                                \
        const T sum = (T)((UNSIGNED)a + (UNSIGNED)b), end = (T)(a < 0 ? (LOW) : (HIGH));      \
        return (T)((a ^ sum) & (b ^ sum)) < 0 ? end : sum;                                    \
    }                                                                                         \
    static inline T nl_sat_sub_##S(T a, T b) {                                                \
        const T rest = (T)((UNSIGNED)a - (UNSIGNED)b), end = (T)(a < 0 ? (LOW) : (HIGH));     \
        return (T)((a ^ b) & (a ^ rest)) < 0 ? end : rest;                                    \
    }
#define NL_SATURATED_ABOVE_0(S, T, HIGH)                                                                        \
    static inline T nl_sat_add_##S(T a, T b) { const T sum = (T)(a + b); return sum < a ? (T)(HIGH) : sum; }    \
    static inline T nl_sat_sub_##S(T a, T b) { return (T)(a < b ? 0 : a - b); }
NL_SATURATED(i8, int8_t, uint8_t, INT8_MIN, INT8_MAX)
NL_SATURATED(i16, int16_t, uint16_t, INT16_MIN, INT16_MAX)
NL_SATURATED(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
NL_SATURATED_ABOVE_0(u8, uint8_t, UINT8_MAX)
NL_SATURATED_ABOVE_0(u16, uint16_t, UINT16_MAX)
NL_SATURATED_ABOVE_0(u32, uint32_t, UINT32_MAX)
#undef NL_SATURATED
#undef NL_SATURATED_ABOVE_0

/* In two steps, each one instruction of vector code; gcc makes eight of one expression. */
#define NL_SATURATE_NARROW(FROM, S, TYPE, TO, LOW, HIGH)         \
    static inline TO nl_sat_##FROM##_##S(TYPE a) {               \
        const TYPE above = a < (LOW) ? (TYPE)(LOW) : a;          \
        return (TO)(above > (HIGH) ? (TYPE)(HIGH) : above);      \
    }
#define NL_ABOVE_0(FROM, S, TYPE, TO) \
    static inline TO nl_sat_##FROM##_##S(TYPE a) { return (TO)(a < 0 ? 0 : a); }
NL_ABOVE_0(i8, u8, int8_t, uint8_t)
NL_ABOVE_0(i8, u16, int8_t, uint16_t)
NL_ABOVE_0(i8, u32, int8_t, uint32_t)
NL_ABOVE_0(i8, u64, int8_t, uint64_t)
NL_SATURATE_NARROW(i16, i8, int16_t, int8_t, INT8_MIN, INT8_MAX)
NL_SATURATE_NARROW(i16, u8, int16_t, uint8_t, 0, UINT8_MAX)
NL_ABOVE_0(i16, u16, int16_t, uint16_t)
NL_ABOVE_0(i16, u32, int16_t, uint32_t)
NL_ABOVE_0(i16, u64, int16_t, uint64_t)
NL_SATURATE_NARROW(i32, i8, int32_t, int8_t, INT8_MIN, INT8_MAX)
NL_SATURATE_NARROW(i32, u8, int32_t, uint8_t, 0, UINT8_MAX)
NL_SATURATE_NARROW(i32, i16, int32_t, int16_t, INT16_MIN, INT16_MAX)
NL_SATURATE_NARROW(i32, u16, int32_t, uint16_t, 0, UINT16_MAX)
NL_ABOVE_0(i32, u32, int32_t, uint32_t)
NL_ABOVE_0(i32, u64, int32_t, uint64_t)
#undef NL_SATURATE_NARROW
#undef NL_ABOVE_0
#endif
