/* The op table's functions for int64 and uint64, and conversions that saturate. */
#ifndef NL_INTMATH_H
#define NL_INTMATH_H
#include <stdint.h>

#ifndef NL_ANYWHERE /* CUDA has its own: the two languages share this text */
#define NL_ANYWHERE static inline
#endif

/* Wrap where they overflow; C leaves that undefined for signed integers. */
NL_ANYWHERE int64_t nl_wrap_add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
NL_ANYWHERE int64_t nl_wrap_sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
NL_ANYWHERE int64_t nl_wrap_mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

NL_ANYWHERE int64_t nl_fabs_i64(int64_t a) { return a < 0 ? nl_wrap_sub_i64(0, a) : a; }
NL_ANYWHERE int64_t nl_sign_i64(int64_t a) { return (a > 0) - (a < 0); }
NL_ANYWHERE int64_t nl_rint_i64(int64_t a) { return a; }
NL_ANYWHERE int64_t nl_floor_i64(int64_t a) { return a; }
NL_ANYWHERE int64_t nl_ceil_i64(int64_t a) { return a; }
NL_ANYWHERE int64_t nl_trunc_i64(int64_t a) { return a; }
NL_ANYWHERE int64_t nl_max_nan_i64(int64_t a, int64_t b) { return a > b ? a : b; }
NL_ANYWHERE int64_t nl_min_nan_i64(int64_t a, int64_t b) { return a < b ? a : b; }
NL_ANYWHERE int64_t nl_isfinite_i64(int64_t a) { (void)a; return 1; }
NL_ANYWHERE int64_t nl_isnan_i64(int64_t a) { (void)a; return 0; }
NL_ANYWHERE int64_t nl_isinf_i64(int64_t a) { (void)a; return 0; }

/* Division as NumPy has it: by 0 it gives 0, and the least number divided by -1 wraps; C leaves both undefined. */
NL_ANYWHERE int64_t nl_fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
NL_ANYWHERE int64_t nl_mod_i64(int64_t a, int64_t b) {
    int64_t rest = nl_fmod_i64(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
NL_ANYWHERE int64_t nl_floordiv_i64(int64_t a, int64_t b) {
    int64_t rest = nl_fmod_i64(a, b), quotient = b == 0 ? 0 : b == -1 ? nl_wrap_sub_i64(0, a) : a / b;
    return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}

/* Shifts by less than 0 or more than 63 bits, which C leaves undefined, give 0 or -1 by the sign, as in NumPy. */
NL_ANYWHERE int64_t nl_left_shift_i64(int64_t a, int64_t b) {
    return b >= 0 && b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}
NL_ANYWHERE int64_t nl_right_shift_i64(int64_t a, int64_t b) {
    return b >= 0 && b < 64 ? a >> b : a < 0 ? -1 : 0;
}

/* uint64: modulo 2^64. */
NL_ANYWHERE uint64_t nl_wrap_add_u64(uint64_t a, uint64_t b) { return a + b; }
NL_ANYWHERE uint64_t nl_wrap_sub_u64(uint64_t a, uint64_t b) { return a - b; }
NL_ANYWHERE uint64_t nl_wrap_mul_u64(uint64_t a, uint64_t b) { return a * b; }
NL_ANYWHERE uint64_t nl_fabs_u64(uint64_t a) { return a; }
NL_ANYWHERE uint64_t nl_sign_u64(uint64_t a) { return a > 0; }
NL_ANYWHERE uint64_t nl_rint_u64(uint64_t a) { return a; }
NL_ANYWHERE uint64_t nl_floor_u64(uint64_t a) { return a; }
NL_ANYWHERE uint64_t nl_ceil_u64(uint64_t a) { return a; }
NL_ANYWHERE uint64_t nl_trunc_u64(uint64_t a) { return a; }
NL_ANYWHERE uint64_t nl_max_nan_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
NL_ANYWHERE uint64_t nl_min_nan_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
NL_ANYWHERE uint64_t nl_isfinite_u64(uint64_t a) { (void)a; return 1; }
NL_ANYWHERE uint64_t nl_isnan_u64(uint64_t a) { (void)a; return 0; }
NL_ANYWHERE uint64_t nl_isinf_u64(uint64_t a) { (void)a; return 0; }
NL_ANYWHERE uint64_t nl_fmod_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
NL_ANYWHERE uint64_t nl_mod_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
NL_ANYWHERE uint64_t nl_floordiv_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
NL_ANYWHERE uint64_t nl_left_shift_u64(uint64_t a, uint64_t b) { return b < 64 ? a << b : 0; }
NL_ANYWHERE uint64_t nl_right_shift_u64(uint64_t a, uint64_t b) { return b < 64 ? a >> b : 0; }

/* -1, 0 or 1: whether a is less than b, equal or greater. */
NL_ANYWHERE int64_t nl_compared_u64(uint64_t a, int64_t b) {
    return b < 0 ? 1 : (a > (uint64_t)b) - (a < (uint64_t)b);
}

NL_ANYWHERE uint64_t nl_sat_i64_u64(int64_t a) { return a < 0 ? 0 : (uint64_t)a; }
#define NL_SATURATE(SHORT, TYPE, LOW, HIGH)                                                                          \
    NL_ANYWHERE TYPE nl_sat_i64_##SHORT(int64_t a) { return (TYPE)(a < (LOW) ? (LOW) : a > (HIGH) ? (HIGH) : a); }  \
    NL_ANYWHERE TYPE nl_sat_u64_##SHORT(uint64_t a) { return (TYPE)(a > (uint64_t)(HIGH) ? (uint64_t)(HIGH) : a); }
NL_SATURATE(i64, int64_t, INT64_MIN, INT64_MAX)
NL_SATURATE(i8, int8_t, INT8_MIN, INT8_MAX)
NL_SATURATE(u8, uint8_t, 0, UINT8_MAX)
NL_SATURATE(i16, int16_t, INT16_MIN, INT16_MAX)
NL_SATURATE(u16, uint16_t, 0, UINT16_MAX)
NL_SATURATE(i32, int32_t, INT32_MIN, INT32_MAX)
NL_SATURATE(u32, uint32_t, 0, (int64_t)UINT32_MAX)
#undef NL_SATURATE
#endif
