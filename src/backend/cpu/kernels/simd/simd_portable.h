/*
 * simd_portable.h - eight lanes as two 16-byte vectors of the compiler's own, for any processor.
 *
 * Included by simd.h alone, which says what each function means. vf_fma rounds twice here.
 */
#ifndef MICA_CPU_SIMD_PORTABLE_H
#define MICA_CPU_SIMD_PORTABLE_H

#define VW 8

typedef float mica__f4 __attribute__((vector_size(16)));
typedef int32_t mica__i4 __attribute__((vector_size(16)));
typedef uint32_t mica__u4 __attribute__((vector_size(16)));
typedef struct vf {
    mica__f4 lo, hi;
} vf;
typedef struct vi {
    mica__i4 lo, hi;
} vi;
typedef vi vm; /* all ones or all zeros per lane */

static inline vf vf_load(const void *src)
{
    vf v; /* half by half: one copy of the whole goes through the stack */
    memcpy(&v.lo, src, sizeof v.lo);
    memcpy(&v.hi, (const unsigned char *)src + sizeof v.lo, sizeof v.hi);
    return v;
}

static inline void vf_store(void *dst, vf v)
{
    memcpy(dst, &v.lo, sizeof v.lo);
    memcpy((unsigned char *)dst + sizeof v.lo, &v.hi, sizeof v.hi);
}

static inline vf vf_load_n(const void *src, uint64_t n)
{
    float lane[VW] = {0};
    if (n == VW)
        return vf_load(src);
    memcpy(lane, src, n * sizeof lane[0]);
    return vf_load(lane);
}

static inline void vf_store_n(void *dst, vf v, uint64_t n)
{
    float lane[VW];
    vf_store(lane, v);
    memcpy(dst, lane, n == VW ? sizeof lane : n * sizeof lane[0]);
}

static inline vf vf_set1(float x)
{
    const mica__f4 v = {x, x, x, x};
    return (vf){v, v};
}

static inline vf vf_add(vf a, vf b)
{
    return (vf){a.lo + b.lo, a.hi + b.hi};
}

static inline vf vf_sub(vf a, vf b)
{
    return (vf){a.lo - b.lo, a.hi - b.hi};
}

static inline vf vf_mul(vf a, vf b)
{
    return (vf){a.lo * b.lo, a.hi * b.hi};
}

static inline vf vf_div(vf a, vf b)
{
    return (vf){a.lo / b.lo, a.hi / b.hi};
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return (vf){a.lo * b.lo + c.lo, a.hi * b.hi + c.hi};
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return (vf){c.lo - a.lo * b.lo, c.hi - a.hi * b.hi};
}

static inline vf vf_sqrt(vf a)
{
    float lane[VW];
    vf_store(lane, a);
    for (int i = 0; i < VW; i++)
        lane[i] = sqrtf(lane[i]);
    return vf_load(lane);
}

static inline vi vf_bits(vf a)
{
    return (vi){(mica__i4)a.lo, (mica__i4)a.hi};
}

static inline vf vi_value(vi a)
{
    return (vf){__builtin_convertvector(a.lo, mica__f4), __builtin_convertvector(a.hi, mica__f4)};
}

static inline vf vi_float(vi a)
{
    return (vf){(mica__f4)a.lo, (mica__f4)a.hi};
}

static inline vi vi_set1(int32_t x)
{
    const mica__i4 v = {x, x, x, x};
    return (vi){v, v};
}

/* Lanes wrap, so the sums are taken without signs. */
static inline vi vi_add(vi a, vi b)
{
    return (vi){(mica__i4)((mica__u4)a.lo + (mica__u4)b.lo), (mica__i4)((mica__u4)a.hi + (mica__u4)b.hi)};
}

static inline vi vi_sub(vi a, vi b)
{
    return (vi){(mica__i4)((mica__u4)a.lo - (mica__u4)b.lo), (mica__i4)((mica__u4)a.hi - (mica__u4)b.hi)};
}

static inline vi vi_and(vi a, vi b)
{
    return (vi){a.lo & b.lo, a.hi & b.hi};
}

static inline vi vi_or(vi a, vi b)
{
    return (vi){a.lo | b.lo, a.hi | b.hi};
}

static inline vi vi_shl(vi a, int k)
{
    return (vi){(mica__i4)((mica__u4)a.lo << k), (mica__i4)((mica__u4)a.hi << k)};
}

static inline vi vi_half(vi a)
{
    return (vi){a.lo >> 1, a.hi >> 1};
}

static inline vm vf_lt(vf a, vf b)
{
    return (vm){a.lo < b.lo, a.hi < b.hi};
}

static inline vm vf_eq(vf a, vf b)
{
    return (vm){a.lo == b.lo, a.hi == b.hi};
}

static inline vf vf_select(vm m, vf a, vf b)
{
    const vi x = vf_bits(a), y = vf_bits(b);
    return vi_float((vi){(x.lo & m.lo) | (y.lo & ~m.lo), (x.hi & m.hi) | (y.hi & ~m.hi)});
}

static inline vf vf_merge_n(vf a, vf b, uint64_t n)
{
    float lane[VW], rest[VW];
    vf_store(lane, a);
    vf_store(rest, b);
    for (uint64_t i = n; i < VW; i++)
        lane[i] = rest[i];
    return vf_load(lane);
}

static inline vf vf_swap_pairs(vf a)
{
    return (vf){{a.lo[1], a.lo[0], a.lo[3], a.lo[2]}, {a.hi[1], a.hi[0], a.hi[3], a.hi[2]}};
}

static inline vf vf_swap_twos(vf a)
{
    return (vf){{a.lo[2], a.lo[3], a.lo[0], a.lo[1]}, {a.hi[2], a.hi[3], a.hi[0], a.hi[1]}};
}

static inline vf vf_swap_fours(vf a)
{
    return (vf){a.hi, a.lo};
}

static inline vf vf_zip_low(vf a, vf b)
{
    return (vf){{a.lo[0], b.lo[0], a.lo[1], b.lo[1]}, {a.lo[2], b.lo[2], a.lo[3], b.lo[3]}};
}

static inline vf vf_zip_high(vf a, vf b)
{
    return (vf){{a.hi[0], b.hi[0], a.hi[1], b.hi[1]}, {a.hi[2], b.hi[2], a.hi[3], b.hi[3]}};
}

static inline vf vf_unzip_even(vf a, vf b)
{
    return (vf){{a.lo[0], a.lo[2], a.hi[0], a.hi[2]}, {b.lo[0], b.lo[2], b.hi[0], b.hi[2]}};
}

static inline vf vf_unzip_odd(vf a, vf b)
{
    return (vf){{a.lo[1], a.lo[3], a.hi[1], a.hi[3]}, {b.lo[1], b.lo[3], b.hi[1], b.hi[3]}};
}

static inline vf vf_pick(const float *from, vi at)
{
    vf v = vf_set1(0.0f);
    for (int i = 0; i < VW / 2; i++) {
        v.lo[i] = from[at.lo[i]];
        v.hi[i] = from[at.hi[i]];
    }
    return v;
}

static inline uint32_t vm_bits(vm m)
{
    int32_t lane[VW];
    memcpy(lane, &m, sizeof lane);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < VW; i++)
        bits |= (uint32_t)(lane[i] & 1) << i;
    return bits;
}

static inline vf vf_max(vf a, vf b)
{
    return vf_select(vf_lt(b, a), a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return vf_select(vf_lt(a, b), a, b);
}

static inline float vf_sum(vf a)
{
    const mica__f4 s = a.lo + a.hi;
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static inline float vf_hmax(vf a)
{
    const vf swapped = {a.hi, a.lo};
    const mica__f4 s = vf_max(a, swapped).lo;
    const float x = s[0] > s[2] ? s[0] : s[2], y = s[1] > s[3] ? s[1] : s[3];
    return x > y ? x : y;
}

/* v * 2^(n/2) * 2^(n - n/2), so that each factor is a normal number. */
static inline vf vf_scale2(vf v, vi n)
{
    const vi half = vi_half(n), bias = vi_set1(127);
    const vf first = vi_float(vi_shl(vi_add(half, bias), 23));
    const vf second = vi_float(vi_shl(vi_add(vi_sub(n, half), bias), 23));
    return vf_mul(vf_mul(v, first), second);
}

/* Four halves, each in its lane, to f32. The exponent moves by a multiplication, which is exact and makes normal
 * numbers of subnormal ones; infinity and NaN get the full exponent afterwards. */
static inline mica__f4 mica__f16_widen(mica__u4 half)
{
    const mica__u4 code = half & 0x7fff, sign = (half & 0x8000) << 16;
    const mica__f4 shift = {0x1p112f, 0x1p112f, 0x1p112f, 0x1p112f};
    const mica__u4 finite = (mica__u4)((mica__f4)(code << 13) * shift);
    const mica__u4 special = (mica__u4)(code > 0x7bff), nan = (mica__u4)(code > 0x7c00);
    return (mica__f4)(sign | finite | (special & 0x7f800000) | (nan & 0x400000));
}

/* Four f32 to halves, each in its lane. Below 2^-14 the sum with 0.5 rounds to units of 2^-24, those of a
 * subnormal half; above, half a unit less one, and one more for an odd last bit, is added before the cut. */
static inline mica__u4 mica__f16_narrow(mica__f4 value)
{
    const mica__u4 bits = (mica__u4)value, sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const mica__f4 half = {0.5f, 0.5f, 0.5f, 0.5f};
    const mica__u4 small = (mica__u4)((mica__f4)magnitude + half) - (mica__u4)half;
    const mica__u4 normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const mica__u4 is_small = (mica__u4)(magnitude < 0x38800000), is_nan = (mica__u4)(magnitude > 0x7f800000);
    const mica__u4 is_large = (mica__u4)(magnitude > 0x477fefff) & ~is_nan; /* rounds to 2^16 and up */
    const mica__u4 nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    const mica__u4 middle = ~(is_small | is_large | is_nan);
    return sign | (small & is_small) | (normal & middle) | (is_large & 0x7c00) | (nan & is_nan);
}

static inline mica__u4 mica__bf16_narrow(mica__f4 value)
{
    const mica__u4 bits = (mica__u4)value, is_nan = (mica__u4)((bits & 0x7fffffff) > 0x7f800000);
    const mica__u4 near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
    return (near & ~is_nan) | (nan & is_nan);
}

static inline vf vf_load_f16(const void *src)
{
    uint16_t h[VW];
    memcpy(h, src, sizeof h);
    return (vf){mica__f16_widen((mica__u4){h[0], h[1], h[2], h[3]}),
                mica__f16_widen((mica__u4){h[4], h[5], h[6], h[7]})};
}

static inline vf vf_load_i8(const void *src)
{
    int8_t b[VW];
    memcpy(b, src, sizeof b);
    return (vf){{b[0], b[1], b[2], b[3]}, {b[4], b[5], b[6], b[7]}};
}

typedef float vf_level;

static inline vf vf_load_level(const vf_level level[16], const void *src, int upper)
{
    uint64_t bytes;
    memcpy(&bytes, src, sizeof bytes);
    bytes >>= upper ? 4 : 0;
    return (vf){
        {level[bytes & 15], level[bytes >> 8 & 15], level[bytes >> 16 & 15], level[bytes >> 24 & 15]},
        {level[bytes >> 32 & 15], level[bytes >> 40 & 15], level[bytes >> 48 & 15], level[bytes >> 56 & 15]}};
}

static inline vf vf_set1_f16(const void *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    return vf_set1(mica__f16_to_f32(half));
}

static inline vf vf_load_bf16(const void *src)
{
    uint16_t h[VW];
    memcpy(h, src, sizeof h);
    const mica__u4 lo = {h[0], h[1], h[2], h[3]}, hi = {h[4], h[5], h[6], h[7]};
    return (vf){(mica__f4)(lo << 16), (mica__f4)(hi << 16)};
}

static inline void mica__store_halves(void *dst, mica__u4 lo, mica__u4 hi)
{
    uint16_t h[VW];
    for (int i = 0; i < 4; i++) {
        h[i] = (uint16_t)lo[i];
        h[i + 4] = (uint16_t)hi[i];
    }
    memcpy(dst, h, sizeof h);
}

static inline void vf_store_f16(void *dst, vf v)
{
    mica__store_halves(dst, mica__f16_narrow(v.lo), mica__f16_narrow(v.hi));
}

static inline void vf_store_bf16(void *dst, vf v)
{
    mica__store_halves(dst, mica__bf16_narrow(v.lo), mica__bf16_narrow(v.hi));
}

/* ---- lanes that move ---- */

static inline vf vf_shift_up(vf v, vf fill, int k)
{
    float lane[2 * VW];
    vf_store(lane, fill);
    vf_store(lane + k, v);
    return vf_load(lane);
}

static inline vf vf_last(vf a)
{
    return vf_set1(a.hi[3]);
}

/* ---- lanes of f64 ---- */

#define VD_PARTS 4 /* of a vf */
typedef double vd __attribute__((vector_size(16)));
typedef int64_t vl __attribute__((vector_size(16)));
typedef uint64_t vu __attribute__((vector_size(16)));

static inline void vf_widen(vf a, vd *out)
{
    out[0] = (vd){a.lo[0], a.lo[1]};
    out[1] = (vd){a.lo[2], a.lo[3]};
    out[2] = (vd){a.hi[0], a.hi[1]};
    out[3] = (vd){a.hi[2], a.hi[3]};
}

static inline vf vf_narrow(const vd *a)
{
    return (vf){{(float)a[0][0], (float)a[0][1], (float)a[1][0], (float)a[1][1]},
                {(float)a[2][0], (float)a[2][1], (float)a[3][0], (float)a[3][1]}};
}

static inline vd vd_fma(vd a, vd b, vd c)
{
    return a * b + c;
}

#include "backend/cpu/kernels/simd/simd_parts.h"

#endif
