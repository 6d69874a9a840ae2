/* Functions of vecmath.h for whole arrays, where instructions that a compiler does not choose by itself make them faster.
 *
 * NL_ARRAYS says that they are; elsewhere a loop over the function of one number does. Both give the same bits.
 */
#ifndef NL_VECMATH_ARRAY_H
#define NL_VECMATH_ARRAY_H

#include "vecmath.h"

#if defined(__AVX512F__) && defined(__GNUC__)
#define NL_ARRAYS 1

typedef float nl_f32x16 __attribute__((vector_size(64)));
typedef float nl_loose_f32x16 __attribute__((vector_size(64), aligned(4), may_alias));

/* Maxima and minima that give their second operand where one is nan; a * 2^b, also of subnormal results. */
#define NL_WITH_F32X16(instruction, a, b) \
    __extension__({ nl_f32x16 made; __asm__(instruction " %2, %1, %0" : "=v"(made) : "v"(a), "v"(b)); made; })

/* a * b + c, rounded once */
#define NL_FMA_F32X16(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)0xffff, 4)

/* As nl_exp_f32; vscalefps does in one instruction what takes nl_scale_f32 six. Beyond the limits results are 0 and inf. */
NL_FN nl_f32x16 nl_exp_f32x16(nl_f32x16 x) {
    const nl_f32x16 none = {0}, least = none - 104.0f, most = none + 104.0f;
    nl_f32x16 clipped = NL_WITH_F32X16("vminps", most, NL_WITH_F32X16("vmaxps", least, x));
    nl_f32x16 sum = NL_FMA_F32X16(clipped, none + 0x1.715476p+0f, none + NL_MAGIC_F32);
    nl_f32x16 n = sum - NL_MAGIC_F32;
    nl_f32x16 r = NL_FMA_F32X16(-n, none + NL_LN2_HI_F32, clipped);
    r = NL_FMA_F32X16(-n, none + NL_LN2_LO_F32, r);
    nl_f32x16 r2 = r * r; /* EXP_SHORT_F32 */
    nl_f32x16 high = NL_FMA_F32X16(r, none + 0x1.10628ep-7f, none + 0x1.572aep-5f);
    nl_f32x16 low = NL_FMA_F32X16(r, none + 0x1.5557bp-3f, none + 0x1.fffdfap-2f);
    return NL_WITH_F32X16("vscalefps", NL_FMA_F32X16(NL_FMA_F32X16(high, r2, low), r2, 1.0f + r), n);
}
#else
#define NL_ARRAYS 0
#endif

/* e^x of n numbers, in place */
NL_FN void nl_exp_array_f32(float *x, int64_t n) {
    int64_t i = 0;
#if NL_ARRAYS
    for (; i + 16 <= n; i += 16)
        *(nl_loose_f32x16 *)(x + i) = nl_exp_f32x16(*(const nl_loose_f32x16 *)(x + i));
#endif
    for (int64_t k = i; k < n; k++)
        x[k] = nl_exp_f32(x[k]);
}
#endif
