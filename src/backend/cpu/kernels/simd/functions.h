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

/* The magnitude of a with the sign of b. */
static inline vd vd_copysign(vd a, vd b)
{
    return (vd)(((vl)a & INT64_MAX) | ((vl)b & INT64_MIN));
}

/* |a| - n |b| with n whole: exact below 2^27, where n |b| has no more than 51 bits; n is one off at most. */
static inline vd vd_rem(vd a, vd b)
{
    const vd x = vd_abs(a), y = vd_abs(b), q = x / y, end = vd_set1((double)INFINITY);
    const vd n = (q + 0x1.8p52) - 0x1.8p52;
    vd r = x - n * y;
    r = vd_select(vd_lt(r, vd_set1(0)), r + y, r);
    r = vd_select(vd_eq(y, end) & vd_lt(x, end), x, r);
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

/* A polynomial, the highest power first: even and odd powers apart, two chains of half the length. */
static inline vd vd_poly(vd x, const double *c, int count)
{
    const vd square = x * x;
    vd p = vd_set1(c[0]), q = vd_set1(c[1]);
    for (int i = 2; i < count; i++)
        if (i % 2 == 0)
            p = vd_fma(p, square, vd_set1(c[i]));
        else
            q = vd_fma(q, square, vd_set1(c[i]));
    return count % 2 == 1 ? vd_fma(q, x, p) : vd_fma(p, x, q);
}

/* 2^x for |x| <= 200, the ends beyond; NaN stays. 2^n times 2^r, |r| <= 1/2, fitted within 2^-40 of it. */
static inline vd vd_exp2(vd x)
{
    static const double fit[] = {1.317585811452075e-06, 1.5309737422403704e-05, 0.00015403851748731123,
                                 0.0013333452062246837, 0.0096181285428623784,  0.055504109393417128,
                                 0.24022650698880371,   0.69314718054651414,    0.9999999999997623};
    const vd bounded = vd_max(vd_set1(-200), vd_min(vd_set1(200), x));
    const vd shifted = bounded + 0x1.8p52, r = bounded - (shifted - 0x1.8p52);
    return (vd)((vl)vd_poly(r, fit, 9) + ((vl)shifted << 52));
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

/* e^x for x <= 750, to three units in the last place of f64; infinite above 709, subnormal, then 0, below -708; NaN stays. ln 2 in two parts,
 * so that n times the first is exact. Odd and even terms of the series are two chains of half the length. */
static inline vd vd_exp(vd x)
{
    static const double odd[] = {1.0 / 39916800, 1.0 / 362880, 1.0 / 5040, 1.0 / 120, 1.0 / 6, 1},
                        even[] = {1.0 / 479001600, 1.0 / 3628800, 1.0 / 40320, 1.0 / 720, 1.0 / 24, 0.5, 1};
    const vd bounded = vd_max(vd_set1(-750), x), magic = vd_set1(0x1.8p52);
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

/* log(1 + x) of x in [0, 1], to three units in the last place of f64: x - s (x - r), s = x / (2 + x), where r is 2 s^2 times a series of s^2 <= 1/9. */
static inline vd vd_log1p_unit(vd x)
{
    static const double series[] = {1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                                    1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    const vd s = x / (2 + x), square = s * s;
    return x - s * (x - (square + square) * vd_poly(square, series, 14));
}

/* n + log2(m), m = (1 + s) / (1 - s) from 2/3 to 3/2, |s| <= 0.2: within 2^-48 of it. */
static inline vd vd_log2_of(vd n, vd s)
{
    static const double fit[] = {0.25502153931793242, 0.26020256620659976, 0.32066444422103663,
                                 0.41219754156785954, 0.57707802421498533, 0.96179669390376932,
                                 2.885390081777937};
    return vd_fma(s, vd_poly(s * s, fit, 7), n);
}

/* (n + 1023) 2^52 as n. */
static inline vd vl_exponent(vl biased)
{
    return (vd)((vl)((vu)biased >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
}

/* Of x above 0, neither subnormal, which no f32 is in f64, nor infinite. m is from sqrt(1/2) to sqrt(2). */
static inline vd vd_log2(vd x)
{
    const vl bits = (vl)x;
    const vl biased = (bits - 0x3fe6a09e667f3bcd + 0x3ff0000000000000) & ~INT64_C(0xfffffffffffff);
    const vd m = (vd)(bits - (biased - 0x3ff0000000000000));
    return vd_log2_of(vl_exponent(biased), vd_near_div(m - 1, m + 1));
}

static inline vd vd_log10(vd x)
{
    return vd_log2(x) * 0.30102999566398120;
}

/* Below 1/4 by a fit, as (e - 1/e) / 2 would lose bits. */
static inline vd vd_sinh(vd x)
{
    static const double fit[] = {0.00019875722227753485, 0.0083333198836980892, 0.16666666683458634,
                                 0.99999999999967271};
    const vd a = vd_abs(x), e = vd_exp2(a * (1 / LN2));
    const vd y = 0.5 * (e - vd_near_div(vd_set1(1), e));
    return vd_select(vd_lt(a, vd_set1(0.25)), x * vd_poly(x * x, fit, 4), vd_copysign(y, x));
}

static inline vd vd_cosh(vd x)
{
    const vd e = vd_exp2(vd_abs(x) * (1 / LN2));
    return 0.5 * (e + vd_near_div(vd_set1(1), e));
}

/* Below 1/4 by a fit. Not of infinite x. */
static inline vd vd_asinh(vd x)
{
    static const double fit[] = {-0.019407382235581069, 0.030180096958323681, -0.04463642390498436,
                                 0.074999906756282791,  -0.16666666617104073, 0.99999999999957268};
    const vd a = vd_abs(x), z = x * x, y = vd_log2(a + vd_near_sqrt(z + 1)) * LN2;
    return vd_select(vd_lt(a, vd_set1(0.25)), x * vd_poly(z, fit, 6), vd_copysign(y, x));
}

/* Of 1 and more, not of infinity. */
static inline vd vd_acosh(vd x)
{
    return vd_log2(x + vd_near_sqrt((x - 1) * (x + 1))) * LN2;
}

/* Half the logarithm of (1 + x) / (1 - x) = 2^n m, |x| < 1: where n is 0, s is x. */
static inline vd vd_atanh(vd x)
{
    const vd top = 1 + x, under = 1 - x;
    const vl biased = ((vl)top - (vl)under + 0x3ff8000000000000) & ~INT64_C(0xfffffffffffff);
    const vd n = vl_exponent(biased), scaled = (vd)((vl)under + (biased - 0x3ff0000000000000));
    const vd s = vd_select(vd_eq(n, vd_set1(0)), x, vd_near_div(top - scaled, top + scaled));
    return vd_copysign(vd_log2_of(n, s) * (LN2 / 2), x);
}

/* log(1 + x) for x from 0 to 1: 2 s + s^3 p(s^2) of s = x / (2 + x), p within 2^-28 of it; 2 s is x - s x, which loses less. */
static inline vf vf_log1p_unit(vf x)
{
    static const float fit[] = {0.244130746f, 0.213932484f, 0.286207229f, 0.399986923f, 0.666666806f};
    const vf s = vf_div(x, vf_add(x, vf_set1(2.0f))), z = vf_mul(s, s);
    vf p = vf_set1(fit[0]);
    for (int i = 1; i < 5; i++)
        p = vf_fma(p, z, vf_set1(fit[i]));
    return vf_fma(s, vf_fma(z, p, vf_neg(x)), x);
}

/* log(1 + e^-|x|). */
static inline vf vf_log1p_exp(vf x)
{
    return vf_log1p_unit(vf_exp(vf_neg(vf_abs(x))));
}

/* ---- the error function ---- */

/* exp(-x^2) t p(t), t = 1 / (1 + 0.35 |x|); p was fitted on |x| <= 10.3, within 2.4e-11 of it. |x| <= 20. */
static inline vd vd_erfc(vd x)
{
    static const double fit[] = {0.013118634681247243, -0.11358267419077976, 0.4104189874025813,
                                 -0.7905587004508163,  0.8843370462461064,   -0.6723080402871607,
                                 0.42646315394535184,  -0.06113069570444826, 0.16898824645172253,
                                 0.15296019263664437,  0.1864409838589292,   0.19738363460257013,
                                 0.19746923078447334};
    const vd t = vd_near_div(vd_set1(1), vd_fma(vd_set1(0.35), vd_abs(x), vd_set1(1)));
    const vd y = vd_exp2(x * x * (-1 / LN2)) * t * vd_poly(t, fit, 13);
    return vd_select(vl_negative((vl)x), 2 - y, y);
}

/* Below 1 x + x p(x^2), above 1 - exp(p(|x|)), of which the fit is the smaller part; 1 from 4 on. */
static inline vf vf_erf(vf x)
{
    static const float low[] = {7.85386146e-05f, -0.000801019371f, 0.00518832775f, -0.0268538129f,
                                0.112835854f,    -0.37612626f,     0.128379167f};
    static const float high[] = {-1.46818948e-05f, 0.000341134728f, -0.00360483862f, 0.0232647415f,
                                 -0.104741089f,    -0.637278199f,   -1.12716138f,    -0.00041126032f};
    const vf a = vf_abs(x), z = vf_mul(x, x), bounded = vf_min(vf_set1(4.0f), a);
    vf p = vf_set1(low[0]), q = vf_set1(high[0]);
    for (int i = 1; i < 7; i++)
        p = vf_fma(p, z, vf_set1(low[i]));
    for (int i = 1; i < 8; i++)
        q = vf_fma(q, bounded, vf_set1(high[i]));
    const vf above = vf_copysign(vf_sub(vf_set1(1.0f), vf_exp(q)), x);
    return vf_select(vf_lt(a, vf_set1(1.0f)), vf_fma(x, p, x), above);
}

/* ---- angles ---- */

/* atan of q from 0 to 1, within 2^-36 of it. */
static inline vd vd_atan_unit(vd q)
{
    static const double fit[] = {0.00043295866008153245, -0.0032783034922930906, 0.011646626399844092,
                                 -0.026338644135732149,  0.04396728531277911,    -0.060426368523348602,
                                 0.075039633341650633,   -0.090516205671270125,  0.11105741760511481,
                                 -0.14285271440703956,   0.19999980837760112,    -0.33333333005325216,
                                 0.99999999999065348};
    return q * vd_poly(q * q, fit, 13);
}

#define PI 3.141592653589793

/* The angle of (x, y), from that of the greater of the two. */
static inline vd vd_atan2(vd y, vd x)
{
    const vd up = vd_abs(y), along = vd_abs(x), under = vd_max(up, along), top = vd_min(up, along);
    const vd zero = vd_set1(0), most = vd_set1(0x1p1000);
    /* both 0, or one or both infinite */
    const vd whole = vd_select(vd_lt(most, top), vd_set1(1), zero);
    const vd q = vd_select(vd_lt(zero, under) & vd_lt(under, most), vd_near_div(top, under), whole);
    vd r = vd_atan_unit(q);
    r = vd_select(vd_lt(along, up), PI / 2 - r, r);
    r = vd_select(vl_negative((vl)x), PI - r, r);
    return vd_copysign(r, y);
}

static inline vd vd_atan(vd x)
{
    const vd one = vd_set1(1), a = vd_abs(x), under = vd_max(one, vd_min(vd_set1(0x1p200), a));
    const vd r = vd_atan_unit(vd_near_div(vd_min(one, a), under));
    return vd_copysign(vd_select(vd_lt(one, a), PI / 2 - r, r), x);
}

/* asin of a magnitude a up to 1/2; above (`far`), half of what it is below pi / 2. */
static inline vd vd_asin_part(vd a, vk far)
{
    static const double fit[] = {0.03315876989950433,  0.0017149954311794452, 0.020762567269965958,
                                 0.021838620799858769, 0.030430116767469064,  0.044640438219258498,
                                 0.07500006048583395,  0.16666666608638916,   1.0000000000009148};
    const vd z = vd_select(far, 0.5 - 0.5 * a, a * a);
    return vd_select(far, vd_near_sqrt(z), a) * vd_poly(z, fit, 9);
}

static inline vd vd_asin(vd x)
{
    const vd a = vd_abs(x);
    const vk far = vd_lt(vd_set1(0.5), a);
    const vd r = vd_asin_part(a, far);
    return vd_copysign(vd_select(far, PI / 2 - (r + r), r), x);
}

static inline vd vd_acos(vd x)
{
    const vd a = vd_abs(x);
    const vk far = vd_lt(vd_set1(0.5), a), left = vl_negative((vl)x);
    const vd r = vd_asin_part(a, far), twice = r + r;
    return vd_select(far, vd_select(left, PI - twice, twice), PI / 2 - vd_copysign(r, x));
}

#define VD_REACH 0x1p20f /* of the reductions below; beyond it lanes are taken one by one */

/* x less n pi, |x| <= 2^20, n whole or half so: pi has its first 33 bits apart, which n times is exact. */
static inline vd vd_less_pi(vd x, vd n)
{
    return vd_fma(n, vd_set1(-0x1.0b4611a626331p-33), vd_fma(n, vd_set1(-0x1.921fb544p+1), x));
}

/* The sine of r, |r| <= pi / 2, within 2^-43, with its sign changed where `turns` is odd. */
static inline vd vd_sin_of(vd r, vl turns)
{
    static const double fit[] = {1.5401144070655028e-10,  -2.5029517044761077e-08, 2.7556931879529647e-06,
                                 -0.00019841266411064156, 0.008333333318762539,    -0.16666666666432273,
                                 0.99999999999993749};
    return (vd)((vu)(r * vd_poly(r * r, fit, 7)) ^ (vu)turns << 63);
}

static inline vd vd_sin(vd x)
{
    const vd shifted = vd_fma(x, vd_set1(1 / PI), vd_set1(0x1.8p52));
    return vd_sin_of(vd_less_pi(x, shifted - 0x1.8p52), (vl)shifted);
}

/* The sine of a quarter more. */
static inline vd vd_cos(vd x)
{
    const vd shifted = vd_fma(x, vd_set1(1 / PI), vd_set1(0.5)) + 0x1.8p52;
    return vd_sin_of(vd_less_pi(x, shifted - 0x1.8p52 - 0.5), (vl)shifted);
}

/* n counts quarters here. */
static inline vd vd_tan(vd x)
{
    static const double sine[] = {2.7171497047496865e-06, -0.00019839178018132717, 0.008333328689024944,
                                  -0.16666666630434432, 0.99999999999544853};
    static const double cosine[] = {-2.7167947505039566e-07, 2.4798843779785685e-05, -0.0013888879932056743,
                                    0.041666666533646937,    -0.4999999999927095,    0.99999999999993427};
    const vd shifted = vd_fma(x, vd_set1(2 / PI), vd_set1(0x1.8p52));
    const vd r = vd_less_pi(x, 0.5 * (shifted - 0x1.8p52)), z = r * r;
    const vd s = r * vd_poly(z, sine, 5), c = vd_poly(z, cosine, 6);
    const vk odd = vl_negative((vl)((vu)shifted << 63));
    return vd_near_div(vd_select(odd, -c, s), vd_select(odd, s, c));
}

/* ---- over vectors of f32 ---- */

/* `before` is what takes the place of the vector a, `after` the result, by y; both may be what they were. */
#define VF_BY_F64(name, before, after)     \
    VF_CALLED vf vf_##name(vf a)           \
    {                                      \
        vd x[VD_PARTS];                    \
        vf_widen(before, x);               \
        for (int i = 0; i < VD_PARTS; i++) \
            x[i] = vd_##name(x[i]);        \
        const vf y = vf_narrow(x);         \
        return after;                      \
    }

/* a itself where it is not below infinity, NaN where it is below `least`. */
static inline vf vf_ends(vf a, vf y, float least)
{
    return vf_select(vf_lt(a, vf_set1(least)), vf_set1(NAN), vf_select(vf_lt(a, vf_set1(INFINITY)), y, a));
}

static inline vf vf_log_ends(vf a, vf y)
{
    return vf_select(vf_eq(a, vf_zero()), vf_set1(-INFINITY), vf_ends(a, y, 0));
}

static inline vf vf_atanh_ends(vf a, vf y)
{
    const vf size = vf_abs(a), one = vf_set1(1.0f);
    const vf end = vf_select(vf_eq(size, one), vf_copysign(vf_set1(INFINITY), a), vf_set1(NAN));
    return vf_select(vf_lt(size, one), y, end);
}

VF_BY_F64(log2, a, vf_log_ends(a, y))
VF_BY_F64(log10, a, vf_log_ends(a, y))
VF_BY_F64(sinh, a, y)
VF_BY_F64(cosh, a, y)
VF_BY_F64(asinh, a, vf_select(vf_lt(vf_abs(a), vf_set1(INFINITY)), y, a))
VF_BY_F64(acosh, a, vf_ends(a, y, 1))
VF_BY_F64(atanh, a, vf_atanh_ends(a, y))
VF_BY_F64(erfc, vf_within(a, -20, 20), y)
VF_BY_F64(atan, a, y)
VF_BY_F64(asin, a, y)
VF_BY_F64(acos, a, y)

#define VF_ANGLE(name)                           \
    static double far_##name(double a, double b) \
    {                                            \
        (void)b;                                 \
        return name(a);                          \
    }                                            \
    VF_BY_F64(name, a, vf_patch(y, vf_lt(vf_set1(VD_REACH), vf_abs(a)), far_##name, a, a))
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
    const vf r = vf_narrow(y);
    return vf_select(vf_eq(a, a), vf_select(vf_eq(b, b), r, b), a);
}

/* |a|^b of a 0, infinite or NaN: |a| itself, or where b is below 0 one over it, which its bits from those of infinity are. */
static inline vf vf_pow_end(vf size, vf b)
{
    const vf other = vi_float(vi_sub(vi_set1(0x7f800000), vf_bits(size)));
    return vf_select(vf_eq(b, b), vf_select(vf_lt(b, vf_zero()), other, size), b);
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
    vf power = vf_select(vf_lt(size, vf_set1(INFINITY)), vf_narrow(x), vf_pow_end(size, b));
    power = vf_select(vf_lt(vf_zero(), size), power, vf_pow_end(size, b));
    power = vf_select(vf_eq(size, one), vf_select(vf_eq(b, b), one, b), power);
    const vf odd = vf_select(whole, vf_select(even, power, vf_copysign(power, a)), power);
    const vm inside = vf_lt(vf_neg(vf_set1(INFINITY)), a); /* finite, where it is below 0 */
    const vf none = vf_select(inside, vf_select(whole, odd, vf_set1(NAN)), odd);
    const vf y_of = vf_select(vf_lt(a, vf_zero()), none, odd);
    return vf_select(vf_eq(b, vf_zero()), one, vf_select(vf_eq(a, one), one, y_of));
}

#endif
