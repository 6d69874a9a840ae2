/* Sine, cosine and tangent, of the kind of vecmath.h.
 *
 * nl_sin, nl_cos and nl_tan take every number, the bounded forms, two to four times as fast, those below 2^20.
 */
#ifndef NL_VECMATH_TRIGONOMETRY_H
#define NL_VECMATH_TRIGONOMETRY_H

#include "vecmath.h"

/* Negative from 2^20 on, and for nan. A difference of bits, since comparing floats takes more instructions. */
NL_FN int32_t nl_angle_in_range_f32(float x) { return 0x497fffff - (int32_t)(nl_bits_f32(x) & 0x7fffffffu); }

NL_FN int64_t nl_angle_in_range_f64(double x) {
    return 0x412fffffffffffff - (int64_t)(nl_bits_f64(x) & 0x7fffffffffffffffu);
}

/* float32, in float64 */

/* x = (n + t) pi/2 or (n + t) pi with |t| <= 1/2 + 2^-11; n in the low bits of `sum` */
typedef struct { double t; uint64_t sum; } nl_angle_parts;

/* Of x (per_x + rest): the first product is exact and far below 2^52. Without the second, which is small, n is near
 * enough. */
NL_FN nl_angle_parts nl_angle_split_f64(double x, double per_x, double rest) {
    double sum = nl_muladd_f64(x, per_x, NL_MAGIC_F64), t = nl_muladd_f64(x, per_x, -(sum - NL_MAGIC_F64));
    return (nl_angle_parts){nl_muladd_f64(x, rest, t), nl_bits_f64(sum)};
}

/* As above of 1/2 more, which the cosine is: the half is taken off n, where it costs no digits. */
NL_FN nl_angle_parts nl_angle_split_cos_f64(double x, double per_x, double rest) {
    double sum = nl_muladd_f64(x, per_x, 0.5) + NL_MAGIC_F64, n = sum - NL_MAGIC_F64;
    return (nl_angle_parts){nl_muladd_f64(x, rest, nl_muladd_f64(x, per_x, -(n - 0.5))), nl_bits_f64(sum)};
}

/* The same of `turns` as they are. */
NL_FN nl_angle_parts nl_angle_whole_f64(double turns) {
    double sum = turns + NL_MAGIC_F64;
    return (nl_angle_parts){turns - (sum - NL_MAGIC_F64), nl_bits_f64(sum)};
}

NL_FN nl_angle_parts nl_angle_whole_cos_f64(double turns) {
    double sum = (turns + 0.5) + NL_MAGIC_F64, n = sum - NL_MAGIC_F64;
    return (nl_angle_parts){turns - (n - 0.5), nl_bits_f64(sum)};
}

/* x / 2 pi less whole turns, for any x: summed over 29 bits of 1 / 2 pi at a time (TURNS_F32). Each product is exact, so
 * whole turns can be taken off it exactly, up to the largest float32; an infinite x gives nan. The last two windows never
 * hold a whole turn. */
NL_FN double nl_turns_f32(double x) {
    double p0 = x * 0x1.45f306cp-3, p1 = x * 0x1.c9c882ap-31, p2 = x * 0x1.4fe13a8p-61;
    double p3 = x * 0x1.f47d4d3p-88, p4 = x * 0x1.dc0db62p-118;
    double turns = (p0 - nl_rint_f64(p0)) + (p1 - nl_rint_f64(p1));
    turns += p2 - nl_rint_f64(p2);
    turns += p3 - nl_rint_f64(p3);
    turns += p4 - nl_rint_f64(p4);
    return nl_muladd_f64(x, 0x1.2b3278872084p-147, turns);
}

NL_FN nl_angle_parts nl_choose_angle_f32(float x, nl_angle_parts bounded, nl_angle_parts far) {
    int is_far = __builtin_fabsf(x) >= 0x1p20f;
    return (nl_angle_parts){is_far ? far.t : bounded.t, is_far ? far.sum : bounded.sum};
}

/* The sine of (n + t) pi, whose sign alternates with n (SIN_PI_F64) */
NL_FN float nl_sin_pi_f32(nl_angle_parts half_turns) {
    double t = half_turns.t, u = t * t, p = 0x1.3da65e590dc1dp-4;
    p = nl_muladd_f64(p, u, -0x1.324c401c0913ep-1);
    p = nl_muladd_f64(p, u, 0x1.4668aa776a7b6p+1);
    p = nl_muladd_f64(p, u, -0x1.4abbc14b81feep+2);
    p = nl_muladd_f64(p, u, 0x1.921fb5200989ap+1);
    return (float)nl_from_bits_f64(nl_bits_f64(p * t) ^ half_turns.sum << 63);
}

/* The tangent of (n + t) pi/2 by sine and cosine (SINQ_F64, COSQ_F64), which change places with n */
NL_FN float nl_tan_quarters_f32(nl_angle_parts quarters) {
    double t = quarters.t, u = t * t, sine = -0x1.2d90530262f83p-8, cosine = 0x1.d9f3b3be9a1bap-11;
    sine = nl_muladd_f64(sine, u, 0x1.465e845df776bp-4);
    sine = nl_muladd_f64(sine, u, -0x1.4abbb8df2f5acp-1);
    sine = nl_muladd_f64(sine, u, 0x1.921fb52e3df3p+0) * t;
    cosine = nl_muladd_f64(cosine, u, -0x1.55c656adf0e1fp-6);
    cosine = nl_muladd_f64(cosine, u, 0x1.03c1deb1830a2p-2);
    cosine = nl_muladd_f64(cosine, u, -0x1.3bd3cc7e879e4p+0);
    cosine = nl_muladd_f64(cosine, u, 1.0);
    int odd = quarters.sum & 1u;
    return (float)((odd ? -cosine : sine) / (odd ? sine : cosine));
}

/* 1 / pi in 29 bits, whose product is exact, and the rest (TURNS_BOUNDED_F32) */
#define NL_HALF_TURNS_F64 0x1.45f306dp-2
#define NL_HALF_TURNS_LO_F64 0x1.9391054a7f09dp-31

NL_FN nl_angle_parts nl_half_turns_bounded_f32(float x) {
    return nl_angle_split_f64((double)x, NL_HALF_TURNS_F64, NL_HALF_TURNS_LO_F64);
}

NL_FN nl_angle_parts nl_half_turns_cos_bounded_f32(float x) {
    return nl_angle_split_cos_f64((double)x, NL_HALF_TURNS_F64, NL_HALF_TURNS_LO_F64);
}

NL_FN nl_angle_parts nl_quarters_bounded_f32(float x) {
    return nl_angle_split_f64((double)x, 2 * NL_HALF_TURNS_F64, 2 * NL_HALF_TURNS_LO_F64);
}

NL_FN float nl_sin_bounded_f32(float x) { return nl_sin_pi_f32(nl_half_turns_bounded_f32(x)); }
NL_FN float nl_cos_bounded_f32(float x) { return nl_sin_pi_f32(nl_half_turns_cos_bounded_f32(x)); }
NL_FN float nl_tan_bounded_f32(float x) { return nl_tan_quarters_f32(nl_quarters_bounded_f32(x)); }

NL_FN float nl_sin_f32(float x) {
    nl_angle_parts far = nl_angle_whole_f64(2 * nl_turns_f32((double)x));
    return nl_sin_pi_f32(nl_choose_angle_f32(x, nl_half_turns_bounded_f32(x), far));
}

NL_FN float nl_cos_f32(float x) {
    nl_angle_parts far = nl_angle_whole_cos_f64(2 * nl_turns_f32((double)x));
    return nl_sin_pi_f32(nl_choose_angle_f32(x, nl_half_turns_cos_bounded_f32(x), far));
}

NL_FN float nl_tan_f32(float x) {
    nl_angle_parts far = nl_angle_whole_f64(4 * nl_turns_f32((double)x));
    return nl_tan_quarters_f32(nl_choose_angle_f32(x, nl_quarters_bounded_f32(x), far));
}

/* float64 */

/* Four windows of 53 bits of 1 / 2 pi (TURNS_F64), each scaled to [0, 1), as x needs them: those before are whole
 * turns when multiplied by x, those after too small to matter. Five steps find them, as in a binary search: where
 * x is too large for the windows at hand, they all move on by some places, and x shrinks by as much. Then
 * |x| < 2^105, and 2^52 <= |x| if anything moved. */
typedef struct { double x, w0, w1, w2, w3; } nl_turn_windows;

#define NL_FAR(LIMIT, SHRINK)                                                                               \
    far = __builtin_fabs(x) >= LIMIT;                                                                       \
    x = far ? x * SHRINK : x;
#define NL_MOVE(i, next) w##i = far ? next : w##i;

NL_FN nl_turn_windows nl_turn_windows_f64(double x) {
    double w0 = 0x1.45f306dc9c88p-3, w1 = 0x1.529fc2757d1f5p-1, w2 = 0x1.a6ee06db14accp-3;
    double w3 = 0x1.3c439041fe514p-3, w4 = 0x1.1d5ef5de2b0dbp-1, w5 = 0x1.246e3a424dd2ep-1;
    double w6 = 0x1.924bba82746p-10, w7 = 0x1.21cfe1deb1cbp-3, w8 = 0x1.29a73ee88235ep-2;
    double w9 = 0x1.52ebb4484e99cp-1, w10 = 0x1.c09ad17df904ep-2, w11 = 0x1.91d639835339cp-3;
    double w12 = 0x1.a4e422fc5defcp-1, w13 = 0x1.283b1ff897ffdp-1, w14 = 0x1.c0b301fde5e23p-1;
    double w15 = 0x1.6b414da3eda68p-4, w16 = 0x1.3f6793e584dbap-1, w17 = 0x1.e8c7ecd3cbfd4p-2;
    double w18 = 0x1.6ba93dd63f5fp-3;
    int far;
    NL_FAR(0x1p900, 0x1p-848)
    NL_MOVE(0, w16) NL_MOVE(1, w17) NL_MOVE(2, w18) NL_MOVE(3, 0x1.7c5ecf41ce7dep-1)
    NL_MOVE(4, 0x1.4a525d4d7f6bcp-3) NL_MOVE(5, 0x1.b11f8d5d0856p-1)
    NL_FAR(0x1p476, 0x1p-424)
    NL_MOVE(0, w8) NL_MOVE(1, w9) NL_MOVE(2, w10) NL_MOVE(3, w11) NL_MOVE(4, w12) NL_MOVE(5, w13)
    NL_MOVE(6, w14) NL_MOVE(7, w15) NL_MOVE(8, w16) NL_MOVE(9, w17) NL_MOVE(10, w18)
    NL_FAR(0x1p264, 0x1p-212)
    NL_MOVE(0, w4) NL_MOVE(1, w5) NL_MOVE(2, w6) NL_MOVE(3, w7) NL_MOVE(4, w8) NL_MOVE(5, w9)
    NL_MOVE(6, w10)
    NL_FAR(0x1p158, 0x1p-106)
    NL_MOVE(0, w2) NL_MOVE(1, w3) NL_MOVE(2, w4) NL_MOVE(3, w5) NL_MOVE(4, w6)
    NL_FAR(0x1p105, 0x1p-53)
    NL_MOVE(0, w1) NL_MOVE(1, w2) NL_MOVE(2, w3) NL_MOVE(3, w4)
    return (nl_turn_windows){x, w0, w1, w2, w3};
}
#undef NL_FAR
#undef NL_MOVE

/* r in radians, |r| <= pi/4, and in the low bits of `sum` the number of quarter turns */
typedef struct { nl_pair r; uint64_t sum; } nl_angle;

/* r as the sum of the products, whole turns taken off exactly, to 2^-105 of a turn. That
 * holds to the last place for |x| < 2^52. Of the numbers beyond, those next to a multiple of pi/2 lose some: the
 * hardest of each binade, found by continued fractions, keep the sine within 6 units in the last place. */
NL_FN nl_angle nl_angle_far_f64(double x) {
    nl_turn_windows w = nl_turn_windows_f64(x);
    nl_pair p0 = nl_two_product(w.x, w.w0), p1 = nl_two_product(w.x * 0x1p-53, w.w1);
    nl_pair p2 = nl_two_product(w.x * 0x1p-106, w.w2);
    nl_pair a = nl_two_sum(p0.hi - nl_rint_f64(p0.hi), p0.lo - nl_rint_f64(p0.lo));
    nl_pair b = nl_two_sum(a.hi, p1.hi - nl_rint_f64(p1.hi));
    nl_pair c = nl_two_sum(p1.lo, p2.hi);
    nl_pair turns = nl_two_sum(b.hi, c.hi);
    double low = nl_muladd_f64(w.x * 0x1p-159, w.w3, (a.lo + b.lo) + turns.lo + c.lo + p2.lo);

    double quarters = 4.0 * turns.hi, sum = quarters + NL_MAGIC_F64;
    nl_pair t = nl_fast_two_sum(quarters - (sum - NL_MAGIC_F64), 4.0 * low);
    nl_pair r = nl_two_product(t.hi, 0x1.921fb54442d18p+0);
    r.lo += nl_muladd_f64(t.hi, 0x1.1a62633145c07p-54, t.lo * 0x1.921fb54442d18p+0);
    return (nl_angle){r, nl_bits_f64(sum)};
}

/* Less multiples of pi/2, of which two parts of 33 bits have exact products (HALF_PI_BOUNDED_F64). Next to a multiple the
 * second difference is exact, and the third part may be as large as it. */
NL_FN nl_angle nl_angle_bounded_f64(double x) {
    double sum = nl_muladd_f64(x, 0x1.45f306dc9c883p-1, NL_MAGIC_F64), n = sum - NL_MAGIC_F64;
    double first = nl_muladd_f64(-n, 0x1.921fb544p+0, x), second = nl_muladd_f64(-n, 0x1.0b4611a6p-34, first);
    double lost = nl_muladd_f64(-n, 0x1.0b4611a6p-34, first - second);
    return (nl_angle){nl_fast_two_sum(second, nl_muladd_f64(-n, 0x1.3198a2e037073p-69, lost)), nl_bits_f64(sum)};
}

NL_FN nl_angle nl_angle_f64(double x) {
    nl_angle bounded = nl_angle_bounded_f64(x), far = nl_angle_far_f64(x);
    int is_far = __builtin_fabs(x) >= 0x1p20;
    nl_pair r = {is_far ? far.r.hi : bounded.r.hi, is_far ? far.r.lo : bounded.r.lo};
    return (nl_angle){r, is_far ? far.sum : bounded.sum};
}

NL_FN double nl_sin_reduced_f64(nl_pair r) { /* SIN_F64 */
    double u = r.hi * r.hi, p = 0x1.5d8dfce379168p-33;
    p = nl_muladd_f64(p, u, -0x1.ae5e546e4401bp-26);
    p = nl_muladd_f64(p, u, 0x1.71de35603abd6p-19);
    p = nl_muladd_f64(p, u, -0x1.a01a019bf579ap-13);
    p = nl_muladd_f64(p, u, 0x1.111111110f78fp-7);
    p = nl_muladd_f64(p, u, -0x1.5555555555548p-3);
    return r.hi + nl_muladd_f64(p, u * r.hi, r.lo);
}

NL_FN double nl_cos_reduced_f64(nl_pair r) { /* COS_F64 */
    double u = r.hi * r.hi, p = -0x1.8facd1667e6c4p-37;
    p = nl_muladd_f64(p, u, 0x1.1ee9e89107a2fp-29);
    p = nl_muladd_f64(p, u, -0x1.27e4f80534821p-22);
    p = nl_muladd_f64(p, u, 0x1.a01a019cab75ap-16);
    p = nl_muladd_f64(p, u, -0x1.6c16c16c1514p-10);
    p = nl_muladd_f64(p, u, 0x1.555555555554cp-5);
    double head = nl_muladd_f64(-0.5, u, 1.0), lost = nl_muladd_f64(-0.5, u, 1.0 - head);
    return head + (lost + nl_muladd_f64(p, u * u, -(r.hi * r.lo)));
}

/* The sign bit where bit 1 of q is set: in the second half of the turn. */
NL_FN double nl_flip_f64(double x, uint64_t q) { return nl_from_bits_f64(nl_bits_f64(x) ^ (q & 2u) << 62); }

NL_FN double nl_sin_angle_f64(nl_angle angle) {
    double sine = nl_sin_reduced_f64(angle.r), cosine = nl_cos_reduced_f64(angle.r);
    return nl_flip_f64(angle.sum & 1u ? cosine : sine, angle.sum);
}

NL_FN double nl_cos_angle_f64(nl_angle angle) {
    double sine = nl_sin_reduced_f64(angle.r), cosine = nl_cos_reduced_f64(angle.r);
    return nl_flip_f64(angle.sum & 1u ? sine : cosine, angle.sum + 1u);
}

NL_FN double nl_tan_angle_f64(nl_angle angle) {
    double sine = nl_sin_reduced_f64(angle.r), cosine = nl_cos_reduced_f64(angle.r);
    return (angle.sum & 1u ? -cosine : sine) / (angle.sum & 1u ? sine : cosine);
}

/* Below 2^-27 the sine, the tangent and the argument are the same to the last place: keeps -0 and subnormals. */
#define NL_ANGLE_FUNCTIONS(NAME, ANGLE)                                                                     \
    NL_FN double nl_sin##NAME##_f64(double x) {                                                             \
        double result = nl_sin_angle_f64(ANGLE(x));                                                         \
        return __builtin_fabs(x) < 0x1p-27 ? x : result;                                                    \
    }                                                                                                       \
    NL_FN double nl_cos##NAME##_f64(double x) { return nl_cos_angle_f64(ANGLE(x)); }                        \
    NL_FN double nl_tan##NAME##_f64(double x) {                                                             \
        double result = nl_tan_angle_f64(ANGLE(x));                                                         \
        return __builtin_fabs(x) < 0x1p-27 ? x : result;                                                    \
    }
NL_ANGLE_FUNCTIONS(, nl_angle_f64)
NL_ANGLE_FUNCTIONS(_bounded, nl_angle_bounded_f64)
#undef NL_ANGLE_FUNCTIONS

#endif
