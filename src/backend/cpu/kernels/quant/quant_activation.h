/*
 * quant_activation.h - one row of x as a quantised matmul reads it: converted, normalised, then 8-bit runs or f32.
 *
 * The steps are those of rows.h, so that a fused norm gives the bits of the norm op.
 */
#ifndef MICA_CPU_QUANT_ACTIVATION_H
#define MICA_CPU_QUANT_ACTIVATION_H

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/kernels/quant/matmul_quant.h"
#include "backend/cpu/kernels/quant/quant_dot.h"
#include "backend/cpu/kernels/rows.h"

/* The run of n <= 32 values at x, by the rule in quant/quant.h. Adding 1.5 * 2^23 rounds to the nearest whole number,
 * ties to even, and leaves it in the low bits. */
static inline void quant_run(const float *x, uint64_t n, mica__q8_block *out)
{
    const vf magic = vf_set1(12582912.0f), infinity = vf_set1(INFINITY);
    vf v[32 / VW], most = vf_zero();
    uint32_t finite = UINT32_MAX;
    for (uint64_t j = 0; j < 32 / VW; j++) {
        const uint64_t left = n > j * VW ? n - j * VW : 0;
        v[j] = left >= VW ? vf_load(x + j * VW) : left > 0 ? vf_load_n(x + j * VW, left) : vf_zero();
        const vf size = vf_abs(v[j]);
        most = vf_max(most, size);
        finite &= vm_bits(vf_lt(size, infinity));
    }
    const float m = vf_hmax(most), id = 127.0f / m;
    const int good = finite == (UINT32_MAX >> (32 - VW));
    if (!good || !(id < INFINITY)) {
        *out = (mica__q8_block){.d = good ? 0.0f : NAN, .s = good ? 0.0f : NAN};
        return;
    }
    int32_t half[2] = {0, 0};
    for (uint64_t j = 0; j < 32 / VW; j++) {
        const vi q = vi_sub(vf_bits(vf_add(vf_mul(v[j], vf_set1(id)), magic)), vf_bits(magic));
        quant_store_i8(out->q + j * VW, q);
        half[j * VW / 16] += quant_vi_sum(q);
    }
    const int32_t sum = half[0] + half[1];
    out->d = m / 127.0f;
    out->s = out->d * (float)sum;
    out->sum8 = -8 * sum;
    out->sum16 = -16 * sum;
    out->sum128 = -128 * sum;
    for (int h = 0; h < 2; h++) {
        out->half32[h] = -32 * half[h];
        out->half[h] = (int16_t)half[h];
    }
}

/* Row r of a view whose dimensions above the last are counted as one. */
static inline unsigned char *quant_row_at(const mica__cpu_view *view, uint64_t r)
{
    unsigned char *at = view->data;
    if (r == 0)
        return at; /* decoding one token: no division */
    for (uint32_t d = view->ndim - 1u; d-- > 0;) {
        at += r % view->shape[d] * view->stride[d];
        r /= view->shape[d];
    }
    return at;
}

/* Row r of x into dst, in the forms that `a` asks for. `tmp` holds 2 k floats. */
static inline void quant_activate(const mica__quant_activation *a, const mica__cpu_view *x,
                                  const mica__cpu_view *norm_weight, uint64_t r, float *tmp,
                                  unsigned char *dst)
{
    const uint64_t k = a->k;
    const float *row = row_f32(quant_row_at(x, r), x->dtype, k, tmp);
    if (a->norm) {
        const float *weight = NULL;
        if (norm_weight->data != NULL)
            weight = row_f32(norm_weight->data, norm_weight->dtype, k, tmp + k);
        row_rms_norm(row, weight, a->eps, k, tmp);
        row = tmp;
    }
    if (a->forms & MICA__QUANT_F32)
        memcpy(dst + mica__quant_f32_offset(a), row, k * sizeof *row);
    mica__q8_block *run = (mica__q8_block *)(void *)dst;
    for (uint64_t i = 0; (a->forms & MICA__QUANT_Q8) && i < k; i += 32)
        quant_run(row + i, k - i < 32 ? k - i : 32, run++);
}

#endif
