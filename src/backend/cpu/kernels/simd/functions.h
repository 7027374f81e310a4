/*
 * functions.h - the functions of scalars.def over vectors of f32, beyond those of simd.h.
 *
 * Greatest errors, measured as those in simd.h: exp2 1.1, expm1 1.5, log2 2.3, log10 1.6, sin and cos 1.8, tan 3.3, asin 1.9, acos 1.1,
 * atan 1.3, atan2 1.5, sinh 1.8, cosh 1.9, asinh 1.3, acosh 1.5, atanh 2.5, erf 1.0, erfc 5.4, sigmoid 2.1. pow and rem go through lanes
 * of f64 (vd), whose spare bits make plain formulas exact to about half a unit; their code is long, so that each is one function that
 * is called.
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

/* (2^r - 1) / r for |r| <= 1/2, fitted: within 3e-9 of 2^r. */
static inline vf mica__exp2_rest(vf r)
{
    static const float fit[] = {0.00015329264f, 0.00133909693f, 0.00961849932f,
                                0.0555035956f,  0.240226477f,   0.693147182f};
    return mica__poly(r, fit, 6);
}

/* 2^n times 2^r. */
static inline vf vf_exp2(vf x)
{
    const vf bounded = vf_max(vf_set1(-151.0f), vf_min(vf_set1(129.0f), x)), magic = vf_set1(MICA__WHOLE);
    const vf shifted = vf_add(bounded, magic), r = vf_sub(bounded, vf_sub(shifted, magic));
    return mica__scale2_shifted(vf_fma(r, mica__exp2_rest(r), vf_set1(1.0f)), shifted);
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

/* log(1 + x) for x from 0 to 1: 2 s + s^3 p(s^2) of s = x / (2 + x), p within 2^-28 of it; 2 s is x - s x, which loses less. */
static inline vf vf_log1p_unit(vf x)
{
    static const float fit[] = {0.244130746f, 0.213932484f, 0.286207229f, 0.399986923f, 0.666666806f};
    const vf s = vf_div(x, vf_add(x, vf_set1(2.0f))), z = vf_mul(s, s);
    return vf_fma(s, vf_fma(z, mica__poly(z, fit, 5), vf_neg(x)), x);
}

/* log(1 + e^-|x|). */
static inline vf vf_log1p_exp(vf x)
{
    return vf_log1p_unit(vf_exp(vf_neg(vf_abs(x))));
}

/* ---- logarithms to other bases, and the inverses of hyperbolic functions ---- */

/* The logarithm of 1 + f is f (slope + lacks) + f^2 p(f), p fitted within 2.8e-8 of f times that. */
static inline vf vf_log2(vf x)
{
    static const float fit[] = {-0.0666740909f, 0.152825922f,  -0.19033201f, 0.208723158f, -0.240106419f,
                                0.288409263f,   -0.360677123f, 0.480900049f, -0.721347511f};
    vf n;
    const vf f = vf_sub(mica__take_exponent(x, &n), vf_set1(1.0f));
    const vf rest = vf_fma(vf_mul(f, f), mica__poly(f, fit, 9), vf_mul(f, vf_set1(1.92596299e-08f)));
    return mica__log_ends(x, vf_add(n, vf_fma(f, vf_set1(1.44269502f), rest)));
}

/* n log 2 in two parts, of which n times the first is exact. */
static inline vf vf_log10(vf x)
{
    static const float fit[] = {-0.0202287305f, 0.0461411774f, -0.0572825819f, 0.0627975389f, -0.0722756162f,
                                0.0868222713f,  -0.108574979f, 0.144765288f,   -0.217147231f};
    vf n;
    const vf f = vf_sub(mica__take_exponent(x, &n), vf_set1(1.0f));
    const vf small = vf_fma(f, vf_set1(-1.01030501e-08f), vf_mul(n, vf_set1(4.60503898e-06f)));
    const vf rest = vf_fma(vf_mul(f, f), mica__poly(f, fit, 9), small);
    const vf part = vf_fma(f, vf_set1(0.434294492f), rest);
    return mica__log_ends(x, vf_fma(n, vf_set1(0.301025390625f), part));
}

/* Below 3/4 by a fit of asinh(x) / x, as rounding 1 + x would lose bits; from there on log(x + sqrt(1 + x^2)), log 2x where squares
 * would be too great. */
#define MICA__SQUARED 0x1p30f

static inline vf vf_asinh(vf x)
{
    static const float fit[] = {0.00469303085f, -0.015358503f, 0.0281617343f,
                                -0.0442646667f, 0.0749695078f, -0.166665837f};
    const vf a = vf_abs(x), bounded = vf_min(vf_set1(MICA__SQUARED), a), one = vf_set1(1.0f);
    const vf square = vf_mul(bounded, bounded), root = vf_sqrt(vf_fma(bounded, bounded, one));
    const vf sum = vf_add(bounded, root), lost = vf_sub(bounded, vf_sub(sum, root));
    const vm large = vf_lt(bounded, a);
    const vf log = mica__log_sum(vf_select(large, a, sum), lost, vf_select(large, one, vf_zero()));
    const vf near = vf_fma(vf_mul(a, square), mica__poly(square, fit, 6), a);
    const vf y = vf_select(vf_lt(a, vf_set1(0.75f)), near, log);
    return vf_copysign(vf_select(vf_lt(a, vf_set1(INFINITY)), y, a), x);
}

/* log(1 + t + sqrt(2 t + t^2)), t = x - 1. */
static inline vf vf_acosh(vf x)
{
    const vf one = vf_set1(1.0f), bounded = vf_min(vf_set1(MICA__SQUARED), x), t = vf_sub(bounded, one);
    const vf r = vf_add(t, vf_sqrt(vf_fma(t, t, vf_add(t, t))));
    const vf sum = vf_add(one, r), lost = vf_sub(r, vf_sub(sum, one));
    const vm large = vf_lt(bounded, x);
    const vf y = mica__log_sum(vf_select(large, x, sum), lost, vf_select(large, one, vf_zero()));
    return vf_select(vf_lt(x, one), vf_set1(NAN), vf_select(vf_lt(x, vf_set1(INFINITY)), y, x));
}

/* Half the logarithm of (1 + a) / (1 - a) = 2^n (1 + s) / (1 - s): n is 0 and s is a up to 1/5. s is a + (1 - 2^n (1 - a)) over
 * (1 + a) + 2^n (1 - a). */
static inline vf vf_atanh(vf x)
{
    static const float fit[] = {0.151935384f, 0.199782744f, 0.333334804f};
    const vf a = vf_abs(x), one = vf_set1(1.0f), top = vf_add(one, a), under = vf_sub(one, a);
    const vi apart = vi_add(vi_sub(vf_bits(top), vf_bits(under)), vi_set1(0x400000));
    const vi whole = vi_and(apart, vi_set1(-0x800000)); /* n 2^23 */
    const vf n = vf_mul(vi_value(whole), vf_set1(0x1p-23f)),
             power = vi_float(vi_add(whole, vi_set1(0x3f800000)));
    const vf upper = vf_add(a, vf_fma(a, power, vf_sub(one, power)));
    const vf s = vf_div(upper, vf_fma(under, power, top)), z = vf_mul(s, s);
    const vf rest = vf_fma(vf_mul(s, z), mica__poly(z, fit, 3), vf_mul(n, vf_set1(0.5f * 1.42860682e-6f)));
    const vf y = vf_fma(n, vf_set1(0.5f * 0.693145751953125f), vf_add(s, rest));
    const vf end = vf_select(vf_eq(a, one), vf_set1(INFINITY), vf_set1(NAN));
    return vf_copysign(vf_select(vf_lt(a, one), y, end), x);
}

/* ---- hyperbolic functions ---- */

/* |x| = n ln 2 + r: a quarter of 2^n + 2^-n and of 2^-n - 2^n, sinh(r), and cosh(r) - 1 = r^2 p(r^2). */
typedef struct mica__hyperbola {
    vf sum, apart, sine, more;
} mica__hyperbola;

static inline mica__hyperbola mica__take_hyperbola(vf x)
{
    static const float sine[] = {0.000199741044f, 0.00833317544f, 0.166666672f};
    static const float cosine[] = {0.00139354263f, 0.0416664593f, 0.5f};
    vf shifted;
    const vf r = mica__take_ln2(vf_min(vf_set1(89.5f), vf_abs(x)), &shifted), z = vf_mul(r, r);
    const vf bounded = vf_min(vf_set1(MICA__WHOLE + 64), shifted); /* 2^-64 is nothing beside 2^64 */
    const vi quarter = vi_set1(0x3e800000);
    const vf up = vi_float(vi_add(quarter, vi_shl(vf_bits(shifted), 23)));
    const vf down = vi_float(vi_sub(quarter, vi_shl(vf_bits(bounded), 23)));
    return (mica__hyperbola){vf_add(up, down), vf_sub(down, up),
                             vf_fma(vf_mul(r, z), mica__poly(z, sine, 3), r),
                             vf_mul(z, mica__poly(z, cosine, 3))};
}

static inline vf vf_sinh(vf x)
{
    const mica__hyperbola h = mica__take_hyperbola(x);
    const vf half = vf_sub(vf_fma(h.sine, h.sum, vf_neg(vf_mul(h.more, h.apart))), h.apart);
    return vf_copysign(vf_add(half, half), x);
}

static inline vf vf_cosh(vf x)
{
    const mica__hyperbola h = mica__take_hyperbola(x);
    const vf half = vf_add(vf_fnma(h.sine, h.apart, vf_mul(h.more, h.sum)), h.sum);
    return vf_add(half, half);
}

/* ---- the error function ---- */

/* exp(-a^2) t p(t - 5/8), t = 1 / (1 + 0.3 a) of a = |x|; p was fitted on a <= 10.1, within 2^-25 of it. a^2 is head^2, which is exact,
 * and a rest below 0.04, which goes into what is left of ln 2. p is steep: what t lost in rounding is put back. */
static inline vf vf_erfc(vf x)
{
    static const float fit[] = {-0.12981227f, -0.162133753f, 0.195486411f, 0.83901298f, 1.38098323f,
                                1.51793158f,  1.25046432f,   0.804314613f, 0.408633083f};
    const vf one = vf_set1(1.0f), a = vf_min(vf_set1(10.5f), vf_abs(x)), apart = vf_mul(a, vf_set1(0x1p12f));
    const vf head = vf_sub(vf_add(apart, a), apart);
    const vf rest = vf_mul(vf_sub(head, a), vf_add(head, a));
    vf shifted;
    const vf r = vf_add(mica__take_ln2(vf_neg(vf_mul(head, head)), &shifted), rest);
    const vf e = vf_add(one, vf_fma(vf_mul(r, r), mica__exp_tail(r), r));
    const vf t = vf_div(one, vf_fma(vf_set1(0.3f), a, one));
    const vf lost = vf_mul(t, vf_fnma(vf_mul(vf_set1(0.3f), t), a, vf_sub(one, t)));
    const vf p = mica__poly(vf_add(vf_sub(t, vf_set1(0.625f)), lost), fit, 9);
    const vf y = mica__scale2_shifted(vf_mul(e, vf_fma(p, lost, vf_mul(p, t))), shifted);
    return vf_select(vf_lt(x, vf_zero()), vf_sub(vf_set1(2.0f), y), y);
}

/* Below 1 x + x p(x^2), above 1 - 2^p(|x|), of which the fit is the smaller part; 1 from 4 on. */
static inline vf vf_erf(vf x)
{
    static const float low[] = {7.80690316e-05f, -0.00079978531f, 0.0051871622f, -0.0268533472f,
                                0.112835787f,    -0.37612626f,    0.128379166f};
    static const float high[] = {0.000269471639f, -0.00425872486f, 0.0315321758f,   -0.148811311f,
                                 -0.920574248f,   -1.6260941f,     -0.000479959155f};
    static const float power[] = {0.00132695353f, 0.00967129227f, 0.0555071086f, 0.240222469f, 0.693147004f};
    const vf a = vf_abs(x), z = vf_mul(x, x), magic = vf_set1(MICA__WHOLE), one = vf_set1(1.0f);
    const vf q = mica__poly(vf_min(vf_set1(4.0f), a), high, 7), shifted = vf_add(q, magic);
    const vf r = vf_sub(q, vf_sub(shifted, magic)), scale = mica__power2(shifted);
    const vf above = vf_fnma(vf_mul(scale, r), mica__poly(r, power, 5), vf_sub(one, scale));
    return vf_select(vf_lt(a, one), vf_fma(x, mica__poly(z, low, 7), x), vf_copysign(above, x));
}

/* ---- angles ---- */

#define HALF_PI 1.57079637f
#define HALF_PI_LACKS -4.37113883e-08f

/* A multiple of pi / 2, given as one of HALF_PI, and r. */
static inline vf mica__from_half_pi(vf turned, vf r)
{
    return vf_add(turned, vf_fma(turned, vf_set1(HALF_PI_LACKS / HALF_PI), r));
}

/* atan of q from 0 to 1, within 2^-28 of it. */
static inline vf mica__atan_unit(vf q)
{
    static const float fit[] = {-0.0017875476f, 0.0108873611f, -0.0311270021f, 0.0579065457f, -0.0840047523f,
                                0.109511748f,   -0.142640516f, 0.19998531f,    -0.333332986f};
    const vf z = vf_mul(q, q);
    return vf_fma(vf_mul(q, z), mica__poly(z, fit, 9), q);
}

static inline vf vf_atan(vf x)
{
    const vf one = vf_set1(1.0f), a = vf_abs(x);
    const vf r = mica__atan_unit(vf_div(vf_min(one, a), vf_max(one, a)));
    const vf far = mica__from_half_pi(vf_set1(HALF_PI), vf_neg(r));
    return vf_copysign(vf_select(vf_lt(one, a), far, r), x);
}

/* Whether the sign is set, of -0 too. */
static inline vm mica__is_negative(vf a)
{
    return vf_lt(vf_copysign(vf_set1(1.0f), a), vf_zero());
}

/* The angle of (x, y), from that of the greater of the two. */
static inline vf vf_atan2(vf y, vf x)
{
    const vf up = vf_abs(y), along = vf_abs(x), under = vf_max(up, along), top = vf_min(up, along);
    const vf zero = vf_zero(), end = vf_set1(INFINITY), one = vf_set1(1.0f);
    const vm steep = vf_lt(along, up);
    /* both 0, or both infinite */
    const vf q = vf_select(vf_eq(under, zero), zero, vf_select(vf_eq(top, end), one, vf_div(top, under)));
    const vf r = vf_copysign(mica__atan_unit(q), x);
    const vf level = vf_select(mica__is_negative(x), vf_set1(2 * HALF_PI), zero);
    const vf angle =
        mica__from_half_pi(vf_select(steep, vf_set1(HALF_PI), level), vf_select(steep, vf_neg(r), r));
    const vf signed_of = vf_copysign(angle, y);
    return vf_select(vf_eq(y, y), vf_select(vf_eq(x, x), signed_of, x), y);
}

/* The asin of a magnitude a up to 1/2 is s and more; above (`far`), half of what it is below pi / 2. */
static inline vf mica__asin_part(vf a, vm far, vf *out_more)
{
    static const float fit[] = {0.0422117971f, 0.0241520926f, 0.0454760417f, 0.0749525204f, 0.166667536f};
    const vf z = vf_select(far, vf_fnma(vf_set1(0.5f), a, vf_set1(0.5f)), vf_mul(a, a));
    const vf s = vf_select(far, vf_sqrt(z), a);
    *out_more = vf_mul(vf_mul(s, z), mica__poly(z, fit, 5));
    return s;
}

static inline vf vf_asin(vf x)
{
    const vf a = vf_abs(x), two = vf_set1(2.0f);
    const vm far = vf_lt(vf_set1(0.5f), a);
    vf more;
    const vf s = mica__asin_part(a, far, &more), rest = vf_fnma(two, more, vf_set1(HALF_PI_LACKS));
    const vf below = vf_add(vf_fnma(two, s, vf_set1(HALF_PI)), rest);
    return vf_copysign(vf_select(far, below, vf_add(s, more)), x);
}

static inline vf vf_acos(vf x)
{
    const vf a = vf_abs(x), zero = vf_zero();
    const vm far = vf_lt(vf_set1(0.5f), a);
    vf more;
    const vf s = mica__asin_part(a, far, &more), r = vf_copysign(vf_add(s, more), x);
    const vf level = vf_select(vf_lt(x, zero), vf_set1(2 * HALF_PI), zero);
    return mica__from_half_pi(vf_select(far, level, vf_set1(HALF_PI)),
                              vf_select(far, vf_add(r, r), vf_neg(r)));
}

#define VF_REACH 0x1p20f /* of the reductions below; beyond it lanes are taken one by one */

/* x less n half turns of pi / 2, n whole or half so, as if rounded once. Differences of such numbers and multiples of the 24 bits of pi / 2 are exact,
 * where products are not rounded; where they are, in f64: pi / 2 has its first 33 bits apart, which n times is exact. */
static inline vf mica__less_half_pi(vf x, vf n)
{
#if MICA__ISA_LEVEL == 0
    vd a[VD_PARTS], b[VD_PARTS];
    vf_widen(x, a);
    vf_widen(n, b);
    for (int i = 0; i < VD_PARTS; i++)
        a[i] = vd_fma(b[i], vd_set1(-0x1.0b4611a626331p-34), vd_fma(b[i], vd_set1(-0x1.921fb544p+0), a[i]));
    return vf_narrow(a);
#else
    const vf near = vf_fnma(n, vf_set1(HALF_PI_LACKS), vf_fnma(n, vf_set1(HALF_PI), x));
    return vf_fnma(n, vf_set1(-0x1.ee59dap-50f), near);
#endif
}

/* The sine of r, |r| <= 1.615, within 2^-26.8 and never beyond 1, with its sign changed where `turns` is odd. */
static inline vf mica__sin_of(vf r, vf turns)
{
    static const float fit[] = {2.5982647e-06f, -0.000198064052f, 0.00833302643f, -0.166666582f};
    const vf z = vf_mul(r, r), y = vf_fma(vf_mul(r, z), mica__poly(z, fit, 4), r);
    const vi odd = vi_shl(vf_bits(turns), 31);
    return vi_float(vi_add(vf_bits(vf_within(y, -1.0f, 1.0f)), odd));
}

static inline vf mica__sin_near(vf x)
{
    const vf magic = vf_set1(MICA__WHOLE), shifted = vf_fma(x, vf_set1(0.318309886f), magic);
    const vf n = vf_sub(shifted, magic);
    const vf y = mica__sin_of(mica__less_half_pi(x, vf_add(n, n)), shifted);
    return vf_select(vf_eq(x, vf_zero()), x, y); /* -0 too */
}

/* The sine of a quarter more. */
static inline vf mica__cos_near(vf x)
{
    const vf magic = vf_set1(MICA__WHOLE);
    const vf shifted = vf_add(vf_fma(x, vf_set1(0.318309886f), vf_set1(0.5f)), magic);
    const vf n = vf_sub(shifted, magic);
    return mica__sin_of(mica__less_half_pi(x, vf_sub(vf_add(n, n), vf_set1(1.0f))), shifted);
}

/* r + r^3 p(r^2), fitted within 2^-28 on |r| <= 0.83; of an odd quarter -1 over it. */
static inline vf mica__tan_near(vf x)
{
    static const float fit[] = {0.00508075999f, -0.00138782943f, 0.0120411888f, 0.0208013281f,
                                0.0541561767f,  0.133317858f,    0.33333376f};
    const vf magic = vf_set1(MICA__WHOLE), shifted = vf_fma(x, vf_set1(0.636619772f), magic),
             one = vf_set1(1.0f);
    const vf r = mica__less_half_pi(x, vf_sub(shifted, magic)), z = vf_mul(r, r);
    const vf t = vf_fma(vf_mul(r, z), mica__poly(z, fit, 7), r);
    const vm odd = vf_eq(vi_value(vi_and(vf_bits(shifted), vi_set1(1))), one);
    const vf y = vf_div(vf_select(odd, vf_neg(one), t), vf_select(odd, t, one));
    return vf_select(vf_eq(x, vf_zero()), x, y);
}

/* ---- over vectors of f32 ---- */

#define VF_ANGLE(name)                                                                                  \
    static double far_##name(double a, double b)                                                        \
    {                                                                                                   \
        (void)b;                                                                                        \
        return name(a);                                                                                 \
    }                                                                                                   \
    VF_CALLED vf vf_##name(vf a)                                                                        \
    {                                                                                                   \
        return vf_patch(mica__##name##_near(a), vf_lt(vf_set1(VF_REACH), vf_abs(a)), far_##name, a, a); \
    }
VF_ANGLE(sin)
VF_ANGLE(cos)
VF_ANGLE(tan)

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
