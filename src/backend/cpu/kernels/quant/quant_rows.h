/*
 * quant_rows.h - sixteen rows of a quantised weight against any number of activation rows: what matmul and the
 * expert-routed matmul are made of. Either layout of the weight gives the same bits.
 */
#ifndef MICA_CPU_QUANT_ROWS_H
#define MICA_CPU_QUANT_ROWS_H

#include "backend/cpu/kernels/quant/matmul_quant.h"
#include "backend/cpu/kernels/rows.h"
#include "quant/packed.h"

/* One matrix [n, k]. source.row_stride is the stride of the view: an eighth of a group when packed. */
typedef struct mica__quant_weight {
    mica__packed_source source;
    mica__packed_form form; /* block_values 0: none, so quant_rows_f32 alone serves it */
    uint64_t n;
    uint32_t layout; /* mica_layout */
} mica__quant_weight;

/* Matrix `index` of a view whose dimensions above the last two are counted as one. */
static inline unsigned char *mica__quant_matrix_at(const mica__cpu_view *view, uint64_t index)
{
    unsigned char *at = view->data;
    for (uint32_t d = view->ndim - 2u; d-- > 0;) {
        at += index % view->shape[d] * view->stride[d];
        index /= view->shape[d];
    }
    return at;
}

/* Matrix `index` of a weight; scales and biases are absent views unless it is canonical and has
 * them. */
static inline mica__quant_weight mica__quant_weight_of(const mica__cpu_view *data,
                                                       const mica__cpu_view *scales,
                                                       const mica__cpu_view *biases, uint64_t index)
{
    const uint32_t row = data->ndim - 2u;
    mica__quant_weight w = {.n = data->shape[row], .layout = data->layout};
    if (!mica__packed_form_of(data->dtype, data->group_size, &w.form))
        w.form.block_values = 0;
    w.source.data = mica__quant_matrix_at(data, index);
    w.source.row_stride = data->stride[row];
    w.source.k = data->shape[row + 1];
    w.source.group_size = data->group_size;
    w.source.dtype = data->dtype;
    if (scales->data != NULL) {
        w.source.scales = mica__quant_matrix_at(scales, index);
        w.source.scale_stride = scales->stride[row];
        w.source.scale_dtype = scales->dtype;
    }
    if (biases->data != NULL) {
        w.source.biases = mica__quant_matrix_at(biases, index);
        w.source.bias_stride = biases->stride[row];
    }
    return w;
}

/* out [columns][16] = activations . the rows of a unit^T: [row, row + 8) and as many mica__quant_far further on; rows past
 * n give anything. x: one activation row per column, mica__q8_block or float. `work`: mica__quant_work_bytes. */
void MICA__ISA(quant_rows_q8)(const mica__quant_weight *weight, uint64_t row, const void *const *x,
                              uint64_t columns, void *work, float *out);
void MICA__ISA(quant_rows_f32)(const mica__quant_weight *weight, uint64_t row, const void *const *x,
                               uint64_t columns, void *work, float *out);

/* The elements of a unit in a row of n: from it as f32, and to it. */
static inline void quant_load_unit(const unsigned char *src, uint16_t dtype, uint64_t n, uint64_t row,
                                   float out[MICA__QUANT_ROWS])
{
    for (uint32_t i = 0; i < MICA__QUANT_ROWS; i += MICA__PACKED_ROWS, row += mica__quant_far(n)) {
        const uint64_t left = mica__quant_rows_left(n, row);
        if (left > 0)
            vf_store_n(out + i, row_load_n(src + row * row_element_bytes(dtype), dtype, left), left);
    }
}

static inline void quant_store_unit(unsigned char *dst, uint16_t dtype, uint64_t n, uint64_t row,
                                    const float in[MICA__QUANT_ROWS])
{
    for (uint32_t i = 0; i < MICA__QUANT_ROWS; i += MICA__PACKED_ROWS, row += mica__quant_far(n)) {
        const uint64_t left = mica__quant_rows_left(n, row);
        if (left > 0)
            row_store(dst + row * row_element_bytes(dtype), dtype, in + i, left);
    }
}

#endif
