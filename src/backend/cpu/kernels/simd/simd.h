/*
 * simd.h - vectors of f32 for the cpu kernels: VW lanes, one form per instruction set.
 *
 * A kernel is written once over these names. Loads and stores take any address. The _n forms touch lanes
 * below n alone (0 <= n <= VW): others read as zero and are not stored, and no byte past them is looked at.
 *
 *   vf_load vf_store vf_load_n vf_store_n          f32
 *   vf_load_f16 vf_store_f16 vf_load_bf16 vf_store_bf16, each with _n: widened exactly, narrowed to nearest
 *                                                  even, NaN kept
 *   vf_load_i8                                     VW signed bytes
 *   vf_load_level(level, src, upper)               level[i], of sixteen whole numbers in a byte, for the lower or the upper halves
 *                                                  i of VW bytes; vf_level is what the table is made of
 *   vf_set1 vf_set1_f16 (of the half at an address) vf_zero vf_add vf_sub vf_mul vf_div
 *   vf_fma(a, b, c)   a * b + c; rounded once on avx2 and avx512, twice in the portable form
 *   vf_fnma(a, b, c)  c - a * b, the same
 *   vf_max vf_min     b where either is NaN or both are equal, as the x86 instructions do
 *   vf_greatest vf_least  NaN where either is; 0 is above -0
 *   vf_sum            lanes i and i + VW/2 first, then halves again: one fixed tree
 *   vf_hmax           greatest lane, same tree
 *   vf_lt vf_eq       a mask vm, false for NaN; vf_select(m, a, b) is m ? a : b; vm_bits gives lane i in bit i
 *   vf_bits vi_float  the same bits as integers and back; vi_set1 vi_add vi_sub vi_and vi_or vi_shl; vi_value is the f32 of
 *                     the integer
 *   vf_scale2(v, n)   v * 2^n for whole n in [-252, 254]
 *   vf_merge_n(a, b, n)  lanes below n of a, the others of b; vf_swap_pairs exchanges lanes 2i and 2i+1,
 *                     vf_swap_twos and vf_swap_fours (and with 16 lanes vf_swap_eights) neighbouring runs of 2, 4, 8 lanes
 *   vf_pick(from, at)  lane i is from[at[i]], at[i] below 2 VW; all 2 VW floats at `from` may be read
 *   vf_zip_low vf_zip_high     lanes of a and b in turn: those of the first halves, those of the second
 *   vf_unzip_even vf_unzip_odd the even or the odd lanes of a, then those of b
 *   vf_shift_up(v, fill, k)  lane i is lane i - k of v, those below k of fill; k a constant power of two; vf_last has the last
 *                     lane everywhere
 *   vd vl vu          lanes of f64 and integers of that size, which C's operators work on; a vf is VD_PARTS of them (vf_widen, vf_narrow);
 *                     vd_fma, vd_min, vd_max as above, vd_lt, vd_eq and vl_negative a mask vk for vd_select; & of masks is both
 *   vd_near_div(a, b)  within 2^-42 of a / b; b neither 0 nor infinite
 *   vf_abs vf_neg vf_copysign vf_sqrt vf_exp vf_log vf_log1p vf_tanh vf_silu vf_gelu vf_gelu_erf vf_softcap
 *
 * Greatest errors, of every 1009th of all 2^32 inputs, in all forms, against double precision, in units in the
 * last place of the exact result: exp 0.99 (0.73 where it is subnormal); log 0.88; log1p 0.92; tanh 2.5; silu 2.8 above -87 (below, its
 * factor exp(x) is subnormal: 2e-43 absolute); gelu 2.5 above -1, then growing to 64 at -6.5, where an f32 holds
 * u no better. silu and gelu, absolute: 1.2e-7 max(1, |x|).
 */
#ifndef MICA_CPU_SIMD_H
#define MICA_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define MICA__ISA_LEVEL_portable 0
#define MICA__ISA_LEVEL_avx2 2
#define MICA__ISA_LEVEL_avx512 3
#define MICA__ISA_LEVEL_OF2(isa) MICA__ISA_LEVEL_##isa
#define MICA__ISA_LEVEL_OF(isa) MICA__ISA_LEVEL_OF2(isa)
#define MICA__ISA_LEVEL MICA__ISA_LEVEL_OF(MICA_ISA)

#if MICA__ISA_LEVEL == 3
#include "backend/cpu/kernels/simd/simd_avx512.h"
#elif MICA__ISA_LEVEL == 2
#include "backend/cpu/kernels/simd/simd_avx2.h"
#else
#include "backend/cpu/kernels/simd/simd_portable.h"
#endif

static inline vf vf_zero(void)
{
    return vf_set1(0.0f);
}

static inline vf vf_abs(vf a)
{
    return vi_float(vi_and(vf_bits(a), vi_set1(0x7fffffff)));
}

/* Adding the sign's bit flips it. */
static inline vf vf_neg(vf a)
{
    return vi_float(vi_add(vf_bits(a), vi_set1(INT32_MIN)));
}

#if MICA__ISA_LEVEL != 3
/* vf_max of either order is the same number, but for zeros of two signs, which meet in `and`, and NaN. */
static inline vf vf_greatest(vf a, vf b)
{
    const vf most = vi_float(vi_and(vf_bits(vf_max(a, b)), vf_bits(vf_max(b, a)))), sum = vf_add(a, b);
    return vf_select(vf_eq(a, a), vf_select(vf_eq(b, b), most, sum), sum);
}

static inline vf vf_least(vf a, vf b)
{
    const vf most = vi_float(vi_or(vf_bits(vf_min(a, b)), vf_bits(vf_min(b, a)))), sum = vf_add(a, b);
    return vf_select(vf_eq(a, a), vf_select(vf_eq(b, b), most, sum), sum);
}
#endif

/* The magnitude of a (which is not negative) with the sign of b. */
static inline vf vf_copysign(vf a, vf b)
{
    return vi_float(vi_or(vf_bits(a), vi_and(vf_bits(b), vi_set1(INT32_MIN))));
}

#define MICA__WHOLE \
    12582912.0f /* 1.5 * 2^23: adding it rounds to whole numbers and leaves them in the low bits */

/* x = n ln 2 + r with |r| <= ln 2 / 2; gives r, and n + MICA__WHOLE. |x| < 2^21. ln 2 is split so that n times its upper part is exact. */
static inline vf mica__take_ln2(vf x, vf *out_shifted)
{
    const vf magic = vf_set1(MICA__WHOLE);
    *out_shifted = vf_fma(x, vf_set1(1.44269504f), magic);
    const vf n = vf_sub(*out_shifted, magic);
    const vf r = vf_fma(n, vf_set1(-0.693145751953125f), x);
    return vf_fma(n, vf_set1(-1.42860682e-6f), r);
}

/* The same with n as lanes of integers. */
static inline vf mica__reduce_ln2(vf x, vi *out_n)
{
    vf shifted;
    const vf r = mica__take_ln2(x, &shifted);
    *out_n = vi_sub(vf_bits(shifted), vf_bits(vf_set1(MICA__WHOLE)));
    return r;
}

/* v * 2^n, as vf_scale2, given n + MICA__WHOLE. */
static inline vf mica__scale2_shifted(vf v, vf shifted)
{
#if MICA__ISA_LEVEL == 3
    return _mm512_scalef_ps(v, vf_sub(shifted, vf_set1(MICA__WHOLE)));
#else
    return vf_scale2(v, vi_sub(vf_bits(shifted), vf_bits(vf_set1(MICA__WHOLE))));
#endif
}

/* 2^n given n + MICA__WHOLE, n from -126 to 127. */
static inline vf mica__power2(vf shifted)
{
    return vi_float(vi_add(vi_shl(vf_bits(shifted), 23), vi_set1(0x3f800000)));
}

/* c[0] x^(count - 1) + .. + c[count - 1]. */
static inline __attribute__((always_inline)) vf mica__poly(vf x, const float *c, int count)
{
    vf p = vf_set1(c[0]);
    for (int i = 1; i < count; i++)
        p = vf_fma(p, x, vf_set1(c[i]));
    return p;
}

/* (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2, fitted: within 3.8e-9 of exp(r). */
static inline vf mica__exp_tail(vf r)
{
    static const float fit[] = {0.00138634886f, 0.00836762041f, 0.0416672453f, 0.166665331f, 0.5f};
    return mica__poly(r, fit, 5);
}

/* Infinity above 88.72, gradual underflow to 0 below -87.3, NaN for NaN. */
static inline vf vf_exp(vf x)
{
    const vf bounded = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
    vf shifted;
    const vf r = mica__take_ln2(bounded, &shifted);
    const vf tail = vf_fma(vf_mul(r, r), mica__exp_tail(r), r);
    return mica__scale2_shifted(vf_add(vf_set1(1.0f), tail), shifted);
}

/* x = 2^n m, m in [3/4, 3/2); gives m, and n as a number. Of x above 0 and below infinity. */
static inline vf mica__take_exponent(vf x, vf *out_n)
{
#if MICA__ISA_LEVEL == 3
    const vf m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
    *out_n = vf_sub(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
    return m;
#else
    const vm small = vf_lt(x, vf_set1(0x1p-126f)); /* made a normal number first */
    const vi bits = vf_bits(vf_select(small, vf_mul(x, vf_set1(0x1p23f)), x));
    const vi whole = vi_and(vi_sub(bits, vi_set1(0x3f400000)), vi_set1(-0x800000)); /* n 2^23 */
    *out_n = vf_sub(vf_mul(vi_value(whole), vf_set1(0x1p-23f)), vf_select(small, vf_set1(23.0f), vf_zero()));
    return vi_float(vi_sub(bits, whole));
#endif
}

/* What a logarithm y of x is where x is 0 (-infinity), below it (NaN), infinite or NaN (x). */
static inline vf mica__log_ends(vf x, vf y)
{
    const vf above = vf_select(vf_lt(x, vf_set1(INFINITY)), y, x);
    const vf below = vf_select(vf_eq(x, vf_zero()), vf_set1(-INFINITY), vf_set1(NAN));
    return vf_select(vf_lt(x, vf_set1(0x1p-149f)), below, above);
}

/* n ln 2 + log(1 + f) of f in [-1/4, 1/2]: f + f^2 p(f), where p was fitted, within 4.8e-9 of log(1 + f) in units of f. */
static inline vf mica__log_of(vf n, vf f)
{
    static const float fit[] = {-0.046174977f, 0.105829641f,  -0.131863639f, 0.144674718f, -0.166437775f,
                                0.199911132f,  -0.250001937f, 0.333334476f,  -0.5f};
    const vf rest = vf_fma(vf_mul(f, f), mica__poly(f, fit, 9), vf_mul(n, vf_set1(1.42860682e-6f)));
    return vf_fma(n, vf_set1(0.693145751953125f), vf_add(f, rest));
}

static inline vf vf_log(vf x)
{
    vf n;
    const vf m = mica__take_exponent(x, &n);
    const vf log = mica__log_of(n, vf_sub(m, vf_set1(1.0f)));
#if MICA__ISA_LEVEL == 3
    return log; /* the exponent of 0 is -infinity, and so on */
#else
    return mica__log_ends(x, log);
#endif
}

/* The logarithm of u + lost, lost being below half a unit in the last place of u, times 2^more. Of u above 0 and below infinity. */
static inline vf mica__log_sum(vf u, vf lost, vf more)
{
    vf n;
    const vf m = mica__take_exponent(u, &n);
#if MICA__ISA_LEVEL == 3
    const vf part = _mm512_scalef_ps(lost, vf_neg(n));
#else /* in two steps: n may be 128 */
    const vi whole = vi_sub(vf_bits(u), vf_bits(m));
    const vf part = vf_mul(vf_mul(lost, vf_set1(0.5f)), vi_float(vi_sub(vi_set1(0x40000000), whole)));
#endif
    return mica__log_of(vf_add(n, more), vf_add(vf_sub(m, vf_set1(1.0f)), part));
}

/* log(u) with u = 1 + x rounded, and what was lost there. */
static inline vf vf_log1p(vf x)
{
    const vf one = vf_set1(1.0f), u = vf_add(one, x);
    const vf lost = vf_sub(x, vf_sub(u, one));
    return vf_select(vf_eq(u, one), x, mica__log_ends(u, mica__log_sum(u, lost, vf_zero())));
}

/* From t = exp(2|x|) - 1, which keeps its relative accuracy at 0: t / (t + 2). */
static inline vf vf_tanh(vf x)
{
    const vf bounded = vf_min(vf_set1(10.0f), vf_abs(x));
    vf shifted;
    const vf r = mica__take_ln2(vf_add(bounded, bounded), &shifted);
    const vf tail = vf_fma(vf_mul(r, r), mica__exp_tail(r), r);
    const vf power = mica__power2(shifted);
    const vf t = vf_fma(power, tail, vf_sub(power, vf_set1(1.0f)));
    return vf_copysign(vf_div(t, vf_add(t, vf_set1(2.0f))), x);
}

/* x / (1 + exp(-x)), written with exp(-|x|) so that nothing overflows before the result is tiny. */
static inline vf vf_silu(vf x)
{
    const vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf top = vf_select(vf_lt(x, vf_zero()), vf_mul(x, e), x);
    return vf_div(top, vf_add(vf_set1(1.0f), e));
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = 0.79788 (x + 0.044715 x^3) within [-15, 15]. */
static inline vf vf_gelu(vf x)
{
    const vf cube = vf_mul(vf_mul(x, x), x);
    const vf u = vf_mul(vf_set1(0.7978845608f), vf_fma(vf_set1(0.044715f), cube, x));
    const vf bounded = vf_max(vf_set1(-15.0f), vf_min(vf_set1(15.0f), u));
    const vf e = vf_exp(vf_mul(vf_set1(-2.0f), bounded));
    return vf_div(x, vf_add(vf_set1(1.0f), e));
}

/* x times the normal distribution's integral up to x, which is h below 0 and 1 - h above, h = exp(-x^2/2) t p(t) with
 * t = 1 / (1 + 0.35 |x|). p was fitted to erfc(|x|/sqrt 2) exp(x^2/2) / 2t: within 3.3e-8 of it for every t. */
static inline vf vf_gelu_erf(vf x)
{
    static const float fit[] = {-0.02916393242776394f, 0.14406083524227142f,   -0.255901962518692f,
                                0.15939302742481232f,  -0.023263903334736824f, 0.105574831366539f,
                                0.11981549113988876f,  0.13986434042453766f,   0.13962125778198242f};
    const vf one = vf_set1(1.0f);
    const vf t = vf_div(one, vf_fma(vf_set1(0.35f), vf_abs(x), one));
    const vf e = vf_exp(vf_mul(vf_mul(vf_set1(-0.5f), x), x));
    const vf h = vf_mul(vf_mul(mica__poly(t, fit, 9), t), e);
    return vf_mul(x, vf_select(vf_lt(x, vf_zero()), h, vf_sub(one, h)));
}

/* cap tanh(x / cap). */
static inline vf vf_softcap(vf x, vf cap)
{
    return vf_mul(cap, vf_tanh(vf_div(x, cap)));
}

#endif
