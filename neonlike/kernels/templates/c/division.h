/* a // b and a % b as Python and NumPy have them: the remainder has the sign of b. In C and in CUDA: the two languages
 * share this text, and each says by NL_DIVIDING how its functions are declared. In C they must be inlined, or the loop
 * around them is not vectorised. nl_fmod is exact, so what is left here is the arithmetic of NumPy's npy_divmod, and
 * gives its bits.
 */
#ifndef NL_DIVISION_H
#define NL_DIVISION_H

#define NL_DIVISION(T, S, COPYSIGN)                                                                         \
    /* Negative where b must be added to the remainder to give it the sign of b. */                                      \
    NL_DIVIDING T nl_signs_##S(T a, T b) { return COPYSIGN((T)1, a) * COPYSIGN((T)1, b); }                  \
    NL_DIVIDING T nl_mod_##S(T a, T b) {                                                                    \
        T rest = nl_fmod_##S(a, b);                                                                         \
        T moved = nl_signs_##S(rest, b) < 0 ? rest + b : rest;                                              \
        return rest == 0 ? COPYSIGN((T)0, b) : moved;                                                       \
    }                                                                                                       \
    NL_DIVIDING T nl_floordiv_##S(T a, T b) {                                                               \
        T rest = nl_fmod_##S(a, b), ratio = a / b, quotient = (a - rest) / b;                               \
        T lower = nl_signs_##S(rest, b) < 0 ? quotient - 1 : quotient;                                      \
        quotient = rest == 0 ? quotient : lower;                                                            \
        T whole = nl_floor_##S(quotient);                                                                   \
        whole = quotient - whole > (T)0.5 ? whole + 1 : whole; /* the quotient was rounded */               \
        whole = quotient == 0 ? COPYSIGN((T)0, ratio) : whole;                                              \
        return b == 0 ? ratio : whole;                                                                      \
    }
NL_DIVISION(float, f32, NL_COPYSIGN_F32)
NL_DIVISION(double, f64, NL_COPYSIGN_F64)
#undef NL_DIVISION
#endif
