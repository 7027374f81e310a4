/*
 * functions.h - the functions of scalars.def over vectors of f32, beyond those of simd.h.
 *
 * What models call often is computed in f32. The others go through lanes of f64 (vd), whose spare bits make plain formulas exact to
 * about half a unit in the last place of f32; each of those is one function that is called, as their code is long.
 */
#ifndef MICA_CPU_SIMD_FUNCTIONS_H
#define MICA_CPU_SIMD_FUNCTIONS_H

#include "backend/cpu/kernels/simd/simd.h"

/* ---- in f32 ---- */

static inline vf vf_sign(vf a)
{
    return vf_select(vf_lt(vf_zero(), a), vf_set1(1.0f), vf_select(vf_lt(a, vf_zero()), vf_set1(-1.0f), a));
}

/* NaN stays. */
static inline vf vf_within(vf a, float low, float high)
{
    return vf_max(vf_set1(low), vf_min(vf_set1(high), a));
}

/* Adding 2^23 to a magnitude below it leaves a whole number, rounded to nearest even; from there on all are whole. */
static inline vf vf_round(vf a)
{
    const vf size = vf_abs(a), magic = vf_set1(0x1p23f);
    const vf whole = vf_copysign(vf_sub(vf_add(size, magic), magic), a);
    return vf_select(vf_lt(size, magic), whole, a);
}

static inline vf vf_floor(vf a)
{
    const vf r = vf_round(a);
    return vf_sub(r, vf_select(vf_lt(a, r), vf_set1(1.0f), vf_zero()));
}

static inline vf vf_trunc(vf a)
{
    return vf_copysign(vf_floor(vf_abs(a)), a);
}

/* 2^n times e^r, r the rest times ln 2. */
static inline vf vf_exp2(vf x)
{
    const vf bounded = vf_max(vf_set1(-151.0f), vf_min(vf_set1(129.0f), x)), magic = vf_set1(12582912.0f);
    const vf shifted = vf_add(bounded, magic);
    const vf r = vf_mul(vf_sub(bounded, vf_sub(shifted, magic)), vf_set1(0.693147181f));
    const vf tail = vf_fma(vf_mul(r, r), mica__exp_tail(r), r);
    return vf_scale2(vf_add(vf_set1(1.0f), tail), vi_sub(vf_bits(shifted), vf_bits(magic)));
}

/* 2^n (e^r - 1 + (1 - 2^-n)): near 0 n is 0, and nothing cancels. Below -18 it is -1. */
static inline vf vf_expm1(vf x)
{
    const vf one = vf_set1(1.0f);
    vi n;
    const vf r = mica__reduce_ln2(vf_max(vf_set1(-18.0f), vf_min(vf_set1(89.0f), x)), &n);
    const vf tail = vf_fma(vf_mul(r, r), mica__exp_tail(r), r);
    const vf rest = vf_sub(one, vf_scale2(one, vi_sub(vi_set1(0), n)));
    return vf_select(vf_eq(x, vf_zero()), x, vf_scale2(vf_add(tail, rest), n));
}

static inline vf vf_sigmoid(vf x)
{
    const vf e = vf_exp(vf_neg(vf_abs(x))), one = vf_set1(1.0f);
    return vf_div(vf_select(vf_lt(x, vf_zero()), e, one), vf_add(one, e));
}

/* tanh(log(1 + e^x)) = ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1), by e = exp(-|x|). */
static inline vf vf_mish(vf x)
{
    const vf e = vf_exp(vf_neg(vf_abs(x))), two = vf_set1(2.0f), square = vf_mul(e, e);
    const vm below = vf_lt(x, vf_zero());
    const vf top = vf_fma(two, e, vf_select(below, square, vf_set1(1.0f)));
    return vf_mul(x, vf_div(top, vf_add(top, vf_select(below, two, vf_mul(two, square)))));
}

static inline vf vf_elu(vf x, vf alpha)
{
    return vf_select(vf_lt(vf_zero(), x), x, vf_mul(alpha, vf_expm1(x)));
}

/* ---- lanes of f64 ---- */

#define VF_CALLED static __attribute__((noinline, unused))

static inline vd vd_set1(double x)
{
    return (vd){0} + x;
}

static inline vd vd_select(vl mask, vd a, vd b)
{
    return (vd)(((vl)a & mask) | ((vl)b & ~mask));
}

static inline vd vd_abs(vd a)
{
    return (vd)((vl)a & INT64_MAX);
}

/* The lanes of y whose bit is set become `of` the lanes of a and b: what a formula does not reach. */
static vf vf_patch(vf y, vm far, double (*of)(double, double), vf a, vf b)
{
    float x[VW], z[VW], r[VW];
    uint32_t lanes = vm_bits(far);
    if (lanes == 0)
        return y;
    vf_store(x, a);
    vf_store(z, b);
    vf_store(r, y);
    for (int i = 0; i < VW; i++)
        if ((lanes >> i & 1) != 0)
            r[i] = (float)of((double)x[i], (double)z[i]);
    return vf_load(r);
}

/* |a| - n |b| with n whole: exact below 2^27, where n |b| has no more than 51 bits; n is one off at most. */
static inline vd vd_rem(vd a, vd b)
{
    const vd x = vd_abs(a), y = vd_abs(b), q = x / y;
    const vd n = (q + 0x1.8p52) - 0x1.8p52;
    vd r = x - n * y;
    r = vd_select(r < 0, r + y, r);
    r = vd_select((y == (double)INFINITY) & (x < (double)INFINITY), x, r);
    return (vd)((vl)r | ((vl)a & INT64_MIN));
}

VF_CALLED vf vf_rem(vf a, vf b)
{
    vd x[VD_PARTS], y[VD_PARTS];
    vf_widen(a, x);
    vf_widen(b, y);
    for (int i = 0; i < VD_PARTS; i++)
        x[i] = vd_rem(x[i], y[i]);
    return vf_patch(vf_narrow(x), vf_lt(vf_mul(vf_abs(b), vf_set1(0x1p27f)), vf_abs(a)), fmod, a, b);
}

static inline vf vf_mod(vf a, vf b)
{
    const vf r = vf_rem(a, b), zero = vf_zero(), moved = vf_add(r, b);
    const vf below = vf_select(vf_lt(zero, r), moved, r), above = vf_select(vf_lt(r, zero), moved, r);
    return vf_select(vf_eq(r, zero), vf_copysign(zero, b), vf_select(vf_lt(b, zero), below, above));
}

/* ---- exponentials and logarithms ---- */

#define LN2 0.6931471805599453

static inline vd vd_poly(vd x, const double *c, int count)
{
    vd p = vd_set1(c[0]);
    for (int i = 1; i < count; i++)
        p = p * x + c[i];
    return p;
}

/* 2^x for |x| <= 200, the ends beyond; NaN stays. 2^n times the series of e^(r ln 2), |r| <= 1/2, within 2^-37 of it. */
static inline vd vd_exp2(vd x)
{
    static const double series[] = {
        1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
        1.0 / 24,      1.0 / 6,      0.5,         1,          1};
    x = vd_select(x < -200, vd_set1(-200), vd_select(x > 200, vd_set1(200), x));
    const vd shifted = x + 0x1.8p52, r = (x - (shifted - 0x1.8p52)) * 0.6931471805599453;
    return (vd)((vl)vd_poly(r, series, 11) + ((vl)shifted << 52));
}

#if MICA__ISA_LEVEL != 3
/* v 2^n for whole n, by two factors of which none is subnormal. */
static inline vd vd_scale2(vd v, vd n)
{
    const vd half = (n * 0.5 + 0x1.8p52) - 0x1.8p52;
    const vl first = (vl)(half + (0x1.8p52 + 1023)) << 52, second = (vl)(n - half + (0x1.8p52 + 1023)) << 52;
    return v * (vd)first * (vd)second;
}
#endif

/* e^x for x <= 0, to three units in the last place of f64; subnormal, then 0, below -708; NaN stays. ln 2 in two parts, so that n times the first is
 * exact. Odd and even terms of the series are two chains of half the length. */
static inline vd vd_exp(vd x)
{
    static const double odd[] = {1.0 / 39916800, 1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6, 1},
                        even[] = {1.0 / 479001600, 1.0 / 3628800, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 0.5, 1};
    const vd bounded = vd_select(x < -750, vd_set1(-750), x), magic = vd_set1(0x1.8p52);
    const vd n = vd_fma(bounded, vd_set1(1 / LN2), magic) - magic;
    const vd r = vd_fma(n, vd_set1(-0x1.a39ef35793c76p-33), vd_fma(n, vd_set1(-0x1.62e42feep-1), bounded));
    const vd square = r * r;
    vd p = vd_set1(odd[0]), q = vd_set1(even[0]);
    for (int i = 1; i < 6; i++)
        p = vd_fma(p, square, vd_set1(odd[i]));
    for (int i = 1; i < 7; i++)
        q = vd_fma(q, square, vd_set1(even[i]));
    return vd_scale2(vd_fma(p, r, q), n);
}

/* n + log2(m), m from sqrt(1/2) to sqrt(2): the series of s = (m - 1) / (m + 1), |s| < 0.172, within 2^-50 of it. Not for subnormal
 * x, which no f32 is in f64. */
static inline vd vd_log2(vd x)
{
    static const double series[] = {2 / 17.0, 2 / 15.0, 2 / 13.0, 2 / 11.0, 2 / 9.0,
                                    2 / 7.0,  2 / 5.0,  2 / 3.0,  2};
    const vl bits = (vl)x;
    const vl biased =
        (bits - 0x3fe6a09e667f3bcd + 0x3ff0000000000000) & ~INT64_C(0xfffffffffffff); /* (n + 1023) 2^52 */
    const vd n = (vd)((vl)((vu)biased >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    const vd m = (vd)(bits - (biased - 0x3ff0000000000000)), s = (m - 1) / (m + 1);
    const vd log = n + s * vd_poly(s * s, series, 9) * 1.4426950408889634;
    const vd other = vd_select(x == 0, vd_set1(-(double)INFINITY),
                               vd_select(x == (double)INFINITY, x, vd_set1((double)NAN)));
    return vd_select((x > 0) & (x < (double)INFINITY), log, other);
}

static inline vd vd_log10(vd x)
{
    return vd_log2(x) * 0.30102999566398120;
}

/* Below 2^-3 by the series, which (e - 1/e) / 2 would lose. */
static inline vd vd_sinh(vd x)
{
    static const double series[] = {1.0 / 5040, 1.0 / 120, 1.0 / 6, 1};
    const vd a = vd_abs(x), e = vd_exp2(a * (1 / LN2));
    const vd y = (vd)((vl)(0.5 * (e - 1 / e)) | ((vl)x & INT64_MIN));
    return vd_select(a < 0.125, x * vd_poly(x * x, series, 4), y);
}

static inline vd vd_cosh(vd x)
{
    const vd e = vd_exp2(vd_abs(x) * (1 / LN2));
    return 0.5 * (e + 1 / e);
}

/* Below 2^-9 by the series. */
static inline vd vd_asinh(vd x)
{
    const vd a = vd_abs(x), z = x * x, y = vd_log2(a + vd_sqrt(z + 1)) * LN2;
    return vd_select(a < 0x1p-9, x * (1 + z * (z * 0.075 - 1.0 / 6)), (vd)((vl)y | ((vl)x & INT64_MIN)));
}

static inline vd vd_acosh(vd x)
{
    return vd_select(x < 1, vd_set1((double)NAN), vd_log2(x + vd_sqrt((x - 1) * (x + 1))) * LN2);
}

static inline vd vd_atanh(vd x)
{
    const vd z = x * x, y = vd_log2((1 + x) / (1 - x)) * (LN2 / 2);
    return vd_select(z < 0x1p-18, x * (1 + z * (z * 0.2 + 1.0 / 3)), y);
}

/* ---- the error function ---- */

/* erfc |x| = exp(-x^2) t p(t), t = 1 / (1 + 0.35 |x|); p was fitted on |x| <= 10.3, within 2.4e-11 of it. */
static inline vd vd_erfc_above(vd x)
{
    static const double fit[] = {0.013118634681247243, -0.11358267419077976, 0.4104189874025813,
                                 -0.7905587004508163,  0.8843370462461064,   -0.6723080402871607,
                                 0.42646315394535184,  -0.06113069570444826, 0.16898824645172253,
                                 0.15296019263664437,  0.1864409838589292,   0.19738363460257013,
                                 0.19746923078447334};
    const vd t = 1 / (1 + 0.35 * vd_abs(x));
    return vd_exp2(x * x * (-1 / LN2)) * t * vd_poly(t, fit, 13);
}

static inline vd vd_erfc(vd x)
{
    const vd y = vd_erfc_above(x);
    return vd_select(x < 0, 2 - y, y);
}

/* Below 1/2 by the series, whose next term is below 2^-35 of it. */
static inline vd vd_erf(vd x)
{
    static const double series[] = {-1.0 / 75600, 1.0 / 9360, -1.0 / 1320, 1.0 / 216,
                                    -1.0 / 42,    0.1,        -1.0 / 3,    1};
    const vd near = x * vd_poly(x * x, series, 8) * 1.1283791670955126;
    const vd y = (vd)((vl)(1 - vd_erfc_above(x)) | ((vl)x & INT64_MIN));
    return vd_select(vd_abs(x) < 0.5, near, y);
}

/* ---- angles ---- */

/* The angle of (x, y): of the lesser over the greater by atan, whose argument is kept below tan(pi / 8), where the fit is within
 * 2.6e-14 of it. */
static inline vd vd_atan2(vd y, vd x)
{
    static const double fit[] = {0.030710840419945266, -0.05877834047900667, 0.0756463372538972,
                                 -0.09078527485431484, 0.11110395972317927,  -0.14285690902902273,
                                 0.19999999615216124,  -0.3333333333088831,  0.9999999999999744};
    const vd up = vd_abs(y), along = vd_abs(x);
    const vl steep = up > along;
    const vd top = vd_select(steep, along, up), under = vd_select(steep, up, along);
    vd q = vd_select(under == 0, under, top / under);
    q = vd_select(top == (double)INFINITY, vd_set1(1), q);
    const vl far = q > 0.41421356237309503;
    const vd u = vd_select(far, (q - 1) / (q + 1), q);
    vd r = u * vd_poly(u * u, fit, 9);
    r = vd_select(far, r + 0.7853981633974483, r);
    r = vd_select(steep, 1.5707963267948966 - r, r);
    r = vd_select((vl)x < 0, 3.141592653589793 - r, r);
    return vd_select((vd_abs(x) <= (double)INFINITY) & (vd_abs(y) <= (double)INFINITY),
                     (vd)((vl)r | ((vl)y & INT64_MIN)), x + y);
}

static inline vd vd_asin(vd x)
{
    return vd_atan2(x, vd_sqrt((1 - x) * (1 + x)));
}

static inline vd vd_acos(vd x)
{
    return vd_atan2(vd_sqrt((1 - x) * (1 + x)), x);
}

#define VD_REACH 0x1p20f /* of the reduction below; beyond it lanes are taken one by one */

/* x less n pi/2, |x| <= 2^20: pi/2 has its first 33 bits apart, which n times is exact. Sine and cosine of the rest by their series,
 * within 2^-37. n's low bits are those of the quadrant. */
static inline vl vd_quadrant(vd x, vd *out_sin, vd *out_cos)
{
    static const double sine[] = {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1};
    static const double cosine[] = {
        1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1};
    const vd shifted = x * 0.6366197723675814 + 0x1.8p52, n = shifted - 0x1.8p52;
    const vd r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
    *out_sin = r * vd_poly(z, sine, 6);
    *out_cos = vd_poly(z, cosine, 7);
    return (vl)shifted;
}

static inline vd vd_sin(vd x)
{
    vd s, c;
    const vl n = vd_quadrant(x, &s, &c);
    return (vd)((vl)vd_select((n & 1) == 0, s, c) ^ (n & 2) << 62);
}

static inline vd vd_cos(vd x)
{
    vd s, c;
    const vl n = vd_quadrant(x, &s, &c);
    return (vd)((vl)vd_select((n & 1) == 0, c, s) ^ ((n + 1) & 2) << 62);
}

static inline vd vd_tan(vd x)
{
    vd s, c;
    const vl odd = (vd_quadrant(x, &s, &c) & 1) != 0;
    return vd_select(odd, -c, s) / vd_select(odd, s, c);
}

/* ---- over vectors of f32 ---- */

#define VF_BY_F64(name)                    \
    VF_CALLED vf vf_##name(vf a)           \
    {                                      \
        vd x[VD_PARTS];                    \
        vf_widen(a, x);                    \
        for (int i = 0; i < VD_PARTS; i++) \
            x[i] = vd_##name(x[i]);        \
        return vf_narrow(x);               \
    }
VF_BY_F64(log2)
VF_BY_F64(log10)
VF_BY_F64(sinh)
VF_BY_F64(cosh)
VF_BY_F64(asinh)
VF_BY_F64(acosh)
VF_BY_F64(atanh)
VF_BY_F64(erf)
VF_BY_F64(erfc)
VF_BY_F64(asin)
VF_BY_F64(acos)

#define VF_ANGLE(name)                                                                        \
    static double far_##name(double a, double b)                                              \
    {                                                                                         \
        (void)b;                                                                              \
        return name(a);                                                                       \
    }                                                                                         \
    VF_CALLED vf vf_##name(vf a)                                                              \
    {                                                                                         \
        vd x[VD_PARTS];                                                                       \
        vf_widen(a, x);                                                                       \
        for (int i = 0; i < VD_PARTS; i++)                                                    \
            x[i] = vd_##name(x[i]);                                                           \
        return vf_patch(vf_narrow(x), vf_lt(vf_set1(VD_REACH), vf_abs(a)), far_##name, a, a); \
    }
VF_ANGLE(sin)
VF_ANGLE(cos)
VF_ANGLE(tan)

VF_CALLED vf vf_atan2(vf a, vf b)
{
    vd y[VD_PARTS], x[VD_PARTS];
    vf_widen(a, y);
    vf_widen(b, x);
    for (int i = 0; i < VD_PARTS; i++)
        y[i] = vd_atan2(y[i], x[i]);
    return vf_narrow(y);
}

/* 2^(b log2 |a|), whose sign is a's where b is odd; what has no such power is NaN. */
VF_CALLED vf vf_pow(vf a, vf b)
{
    const vf one = vf_set1(1.0f), half = vf_mul(b, vf_set1(0.5f)), size = vf_abs(a);
    const vm whole = vf_eq(vf_round(b), b), even = vf_eq(vf_round(half), half);
    vd x[VD_PARTS], y[VD_PARTS];
    vf_widen(size, x);
    vf_widen(b, y);
    for (int i = 0; i < VD_PARTS; i++)
        x[i] = vd_exp2(vd_log2(x[i]) * y[i]);
    const vf power = vf_select(vf_eq(size, one), vf_select(vf_eq(b, b), one, b), vf_narrow(x));
    const vf odd = vf_select(whole, vf_select(even, power, vf_copysign(power, a)), power);
    const vm inside = vf_lt(vf_neg(vf_set1(INFINITY)), a); /* finite, where it is below 0 */
    const vf none = vf_select(inside, vf_select(whole, odd, vf_set1(NAN)), odd);
    const vf y_of = vf_select(vf_lt(a, vf_zero()), none, odd);
    return vf_select(vf_eq(b, vf_zero()), one, vf_select(vf_eq(a, one), one, y_of));
}

#endif
