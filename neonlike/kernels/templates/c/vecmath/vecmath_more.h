/* More functions of the kind of vecmath.h, under the same rules: those that only op-trees use.
 *
 * pow                                        (vecmath_power.h)
 * sin cos tan                                (vecmath_trigonometry.h)
 * asin acos atan2 hypot                      (vecmath_angles.h)
 * sinh cosh asinh acosh atanh softplus       (vecmath_hyperbolic.h)
 * log10 cbrt fmod                            (vecmath_exact.h)
 * mod floordiv: remainder and quotient with the sign rules of Python, by fmod           (division.h)
 */
#ifndef NL_VECMATH_MORE_H
#define NL_VECMATH_MORE_H

#include "vecmath.h"

#include "vecmath_power.h"
#include "vecmath_trigonometry.h"
#include "vecmath_angles.h"
#include "vecmath_hyperbolic.h"
#include "vecmath_exact.h"

#define NL_DIVIDING NL_FN
#define NL_COPYSIGN_F32 __builtin_copysignf
#define NL_COPYSIGN_F64 __builtin_copysign
#include "division.h"

#endif
