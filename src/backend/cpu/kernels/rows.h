/*
 * rows.h - what kernels do to one contiguous row, so that a fused record and its parts give the same bits.
 *
 * Element i of a row always goes through lane i % VW, and the last, partial vector through the same lanes
 * masked. A row pointer may be unaligned: read and write it through these functions or through simd.h.
 */
#ifndef MICA_CPU_ROWS_H
#define MICA_CPU_ROWS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "mica/types.h"
#include "backend/cpu/kernels/simd/simd.h"

/* f32, f16 and bf16 are what activations may be. */
static inline uint64_t row_element_bytes(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 ? 4 : 2;
}

/* Asks for the lines of n bytes, whoever's they are: they come while something else is computed. What is read row by row with work in between leaves
 * memory idle otherwise. */
static inline void row_ahead(const unsigned char *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 64)
        __builtin_prefetch(at + i);
}

static inline vf row_load_n(const void *src, uint16_t dtype, uint64_t n)
{
    if (dtype == MICA_DTYPE_F32)
        return vf_load_n(src, n);
    return dtype == MICA_DTYPE_F16 ? vf_load_f16_n(src, n) : vf_load_bf16_n(src, n);
}

static inline void row_store_n(void *dst, uint16_t dtype, vf v, uint64_t n)
{
    if (dtype == MICA_DTYPE_F32)
        vf_store_n(dst, v, n);
    else if (dtype == MICA_DTYPE_F16)
        vf_store_f16_n(dst, v, n);
    else
        vf_store_bf16_n(dst, v, n);
}

/* The row as f32: `src` itself where it is that already, else converted into `tmp`, which holds n floats. */
static inline const float *row_f32(const void *src, uint16_t dtype, uint64_t n, float *tmp)
{
    if (dtype == MICA_DTYPE_F32)
        return (const float *)src;
    const unsigned char *from = src;
    uint64_t i = 0;
    if (dtype == MICA_DTYPE_F16)
        for (; i + VW <= n; i += VW)
            vf_store(tmp + i, vf_load_f16(from + 2 * i));
    else
        for (; i + VW <= n; i += VW)
            vf_store(tmp + i, vf_load_bf16(from + 2 * i));
    if (i < n)
        vf_store_n(tmp + i, row_load_n(from + 2 * i, dtype, n - i), n - i);
    return tmp;
}

/* Rounds the row to its type. `dst` may be `src`. */
static inline void row_store(void *dst, uint16_t dtype, const float *src, uint64_t n)
{
    unsigned char *to = dst;
    uint64_t i = 0;
    if (dtype == MICA_DTYPE_F32) { /* not memcpy, which compilers make a slow instruction of for rows */
        for (; i + VW <= n && (const void *)src != dst; i += VW)
            vf_store(to + 4 * i, vf_load(src + i));
        if (i < n && (const void *)src != dst)
            vf_store_n(to + 4 * i, vf_load_n(src + i, n - i), n - i);
        return;
    }
    if (dtype == MICA_DTYPE_F16)
        for (; i + VW <= n; i += VW)
            vf_store_f16(to + 2 * i, vf_load(src + i));
    else
        for (; i + VW <= n; i += VW)
            vf_store_bf16(to + 2 * i, vf_load(src + i));
    if (i < n)
        row_store_n(to + 2 * i, dtype, vf_load_n(src + i, n - i), n - i);
}

/* 1 / sqrt(mean(x^2) + eps). Vector j of the row goes to sum j % 4; the four are added as (0+1) + (2+3). */
static inline float row_rms_scale(const float *x, uint64_t n, float eps)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++) {
            const vf v = vf_load(x + i + j * VW);
            sum[j] = vf_fma(v, v, sum[j]);
        }
    for (int j = 0; i < n; i += VW, j++) {
        const vf v = vf_load_n(x + i, n - i < VW ? n - i : VW);
        sum[j] = vf_fma(v, v, sum[j]);
    }
    const float total = vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    return 1.0f / sqrtf(total / (float)n + eps);
}

/* A vector, or the first n lanes of one, rounded to the type. */
static inline void row_store_upto(void *dst, uint16_t dtype, vf v, uint64_t n)
{
    if (n < VW)
        row_store_n(dst, dtype, v, n);
    else if (dtype == MICA_DTYPE_F32)
        vf_store(dst, v);
    else if (dtype == MICA_DTYPE_F16)
        vf_store_f16(dst, v);
    else
        vf_store_bf16(dst, v);
}

/* y[i] = (x[i] * r) * weight[i] with r of row_rms_scale; weight NULL is left out. y may be x. */
static inline void row_rms_norm(const float *x, const float *weight, float eps, uint64_t n, float *y)
{
    const vf r = vf_set1(row_rms_scale(x, n, eps));
    uint64_t i = 0;
    for (; i + VW <= n; i += VW) {
        const vf scaled = vf_mul(vf_load(x + i), r);
        vf_store(y + i, weight != NULL ? vf_mul(scaled, vf_load(weight + i)) : scaled);
    }
    if (i < n) {
        const vf scaled = vf_mul(vf_load_n(x + i, n - i), r);
        vf_store_n(y + i, weight != NULL ? vf_mul(scaled, vf_load_n(weight + i, n - i)) : scaled, n - i);
    }
}

/* y = a + b, y = a * b. y may be a or b. */
static inline void row_add(const float *a, const float *b, uint64_t n, float *y)
{
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(y + i, vf_add(vf_load(a + i), vf_load(b + i)));
    if (i < n)
        vf_store_n(y + i, vf_add(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i)), n - i);
}

static inline void row_mul(const float *a, const float *b, uint64_t n, float *y)
{
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(y + i, vf_mul(vf_load(a + i), vf_load(b + i)));
    if (i < n)
        vf_store_n(y + i, vf_mul(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i)), n - i);
}

/* Scales the row into z, fills its last vector up with -inf and gives the greatest element (NaN is passed over). */
static inline float row_softmax_scale(const float *x, float scale, uint64_t n, float *z)
{
    const vf factor = vf_set1(scale), lowest = vf_set1(-INFINITY);
    vf greatest = lowest;
    for (uint64_t i = 0; i < n; i += VW) {
        vf v = n - i < VW ? vf_load_n(x + i, n - i) : vf_load(x + i);
        v = vf_mul(v, factor);
        v = n - i < VW ? vf_merge_n(v, lowest, n - i) : v;
        greatest = vf_max(v, greatest);
        vf_store(z + i, v);
    }
    return vf_hmax(greatest);
}

/* z = exp(z - greatest); gives the sum. */
static inline float row_softmax_exp(float *z, float greatest, uint64_t n)
{
    const vf top = vf_set1(greatest);
    vf sum = vf_zero();
    for (uint64_t i = 0; i < n; i += VW) {
        const vf e = vf_exp(vf_sub(vf_load(z + i), top));
        vf_store(z + i, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}

/* The greatest was -inf: all zeros, unless a NaN hides among the rest. */
static inline float row_softmax_blank(const float *z, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (z[i] != z[i])
            return z[i];
    return 0.0f;
}

/* z = exp(x * scale - greatest); gives what all are to be multiplied by. z has room for whole vectors. */
static inline float row_softmax_weights(const float *x, float scale, uint64_t n, float *z)
{
    const float greatest = row_softmax_scale(x, scale, n, z);
    if (greatest == -INFINITY) {
        const float value = row_softmax_blank(z, n);
        for (uint64_t i = 0; i < n; i++)
            z[i] = value;
        return 1.0f;
    }
    return 1.0f / row_softmax_exp(z, greatest, n);
}

/* z = softmax(x * scale); z has room for whole vectors. */
static inline void row_softmax(const float *x, float scale, uint64_t n, float *z)
{
    const vf factor = vf_set1(row_softmax_weights(x, scale, n, z));
    for (uint64_t i = 0; i < n; i += VW)
        vf_store(z + i, vf_mul(vf_load(z + i), factor));
}

static inline float row_element(const unsigned char *src, uint16_t dtype)
{
    uint16_t half;
    float value;
    if (dtype == MICA_DTYPE_F32) {
        memcpy(&value, src, sizeof value);
        return value;
    }
    memcpy(&half, src, sizeof half);
    return dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(half) : mica__bf16_to_f32(half);
}

/* As row_f32 for a row whose elements lie `stride` bytes apart; 0 repeats one element. */
static inline const float *row_f32_strided(const void *src, uint16_t dtype, uint64_t stride, uint64_t n,
                                           float *tmp)
{
    const unsigned char *from = src;
    if (stride == row_element_bytes(dtype))
        return row_f32(src, dtype, n, tmp);
    if (stride == 0) {
        const float value = row_element(from, dtype);
        for (uint64_t i = 0; i < n; i++)
            tmp[i] = value;
        return tmp;
    }
    for (uint64_t i = 0; i < n; i++)
        tmp[i] = row_element(from + i * stride, dtype);
    return tmp;
}

/* As row_store for a row whose elements lie `stride` bytes apart. */
static inline void row_store_strided(void *dst, uint16_t dtype, uint64_t stride, const float *src, uint64_t n)
{
    unsigned char *to = dst;
    if (stride == row_element_bytes(dtype)) {
        row_store(dst, dtype, src, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        const float value = row_element((const unsigned char *)src + i * sizeof value, MICA_DTYPE_F32);
        const uint16_t half = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(value) : mica__f32_to_bf16(value);
        if (dtype == MICA_DTYPE_F32)
            memcpy(to + i * stride, &value, sizeof value);
        else
            memcpy(to + i * stride, &half, sizeof half);
    }
}

#endif
