/* x^-bpower for the usual powers of local response normalisation, and for any power: nl_lrn_power_<which>_<type>. */
#ifndef NL_LRN_POWER_H
#define NL_LRN_POWER_H
#include "vecmath_power.h"

#define NL_LRN_POWERS(T, S)                                                                                 \
    NL_FN T nl_lrn_power_half_##S(T x, T bpower) {                                                          \
        (void)bpower;                                                                                       \
        return (T)1 / nl_sqrt_##S(x);                                                                       \
    }                                                                                                       \
    NL_FN T nl_lrn_power_three_quarters_##S(T x, T bpower) {                                                \
        T root = nl_sqrt_##S(x);                                                                            \
        (void)bpower;                                                                                       \
        return (T)1 / (root * nl_sqrt_##S(root));                                                           \
    }                                                                                                       \
    NL_FN T nl_lrn_power_one_##S(T x, T bpower) {                                                           \
        (void)bpower;                                                                                       \
        return (T)1 / x;                                                                                    \
    }                                                                                                       \
    NL_FN T nl_lrn_power_any_##S(T x, T bpower) { return nl_pow_##S(x, -bpower); }
NL_LRN_POWERS(float, f32)
NL_LRN_POWERS(double, f64)
#undef NL_LRN_POWERS

#endif
