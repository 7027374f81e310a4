/*
 * gpu_plan_weight.h - what plans of matmul, matmul_experts and embedding share: weights and rows of x as kernels know them.
 *
 * A weight is an operand with its scales and biases in the two slots behind it, absent or not. Knows no driver.
 */
#ifndef MICA_GPU_PLAN_WEIGHT_H
#define MICA_GPU_PLAN_WEIGHT_H

#include "backend/gpu/gpu_plan.h"

/* UNSUPPORTED unless kernels read the weight and its sizes fit their parameters. */
mica_status mica__gpu_weight_check(const mica__record *record, const mica__operand *weight);
/* What the rows look like. */
mk_weight mica__gpu_weight_describe(const mica__operand *weight);
/* Whether one dispatch can serve both. */
bool mica__gpu_weight_alike(const mica__operand *a, const mica__operand *b);
/* Whether activations meet it as 8-bit codes, and whether matvec.kc reads the codes themselves: blocks outside of planes take
 * the numbers they stand for. */
bool mica__gpu_weight_takes_codes(const mica__operand *weight, uint32_t precision);
bool mica__gpu_weight_reads_codes(const mica__operand *weight, uint32_t precision);
/* The entry of matvec.kc for `count` weights and `rows` rows of x, and the weights that it takes: 1 or MK_MATVEC_WEIGHTS. */
const char *mica__gpu_weight_entry(uint32_t count, uint32_t rows, const mica__device_info *info,
                                   uint32_t *out_sides);
/* log2 of the runs of 32 work-items that share a row in matvec.kc: as many as leave each of them enough to read at once. */
uint32_t mica__gpu_weight_slice_bits(const mica__operand *weight, const mica__device_info *info);
/* Groups of matvec.kc for `units` pairs of rows. */
uint32_t mica__gpu_weight_groups(uint32_t units, uint32_t slice_bits);
/* The constants of matvec.kc for it. */
void mica__gpu_weight_constants(mica__plan *plan, const mica__operand *weight, bool codes);
/* Binds the weight in slot `slot`; of the types that have them its scales and biases too (MK_WEIGHT of blocks.kc). */
void mica__gpu_weight_bind(mica__plan *plan, const mica__record *record, uint32_t slot);

/* Rows of several operands with the same leading dimensions, merged where all allow it. */
#define MICA__GPU_ROW_VIEWS 6
typedef struct mica__gpu_rows {
    mica__gpu_view view[MICA__GPU_ROW_VIEWS];
    uint32_t count;
    uint64_t rows;
} mica__gpu_rows;

/* Adds the leading dimensions of an operand; gives its number. */
uint32_t mica__gpu_rows_add(mica__gpu_rows *rows, const mica__operand *operand);
/* Merges; UNSUPPORTED where more dimensions are left than kernels have. No operand is added after. */
mica_status mica__gpu_rows_merge(mica__gpu_rows *rows, const mica__record *record);
/* Shape, aligned at the end, and dimensions. */
void mica__gpu_rows_shape(const mica__gpu_rows *rows, mk_u32 shape[MK_ROW_DIMS], mk_u32 *out_ndim);
void mica__gpu_rows_strides(const mica__gpu_rows *rows, uint32_t view, mk_u64 stride[MK_ROW_DIMS]);

/* Rows of x made ready in the record's scratch: forms of kernels/params/activation.h, and where each of them lies. */
typedef struct mica__gpu_activation {
    uint64_t rows, k, padded;
    uint32_t forms;
    uint64_t codes, meta, plain, rounded, end; /* offsets in the scratch; `end` is where it is free */
} mica__gpu_activation;

/* The places of the forms of `rows` rows of k values. */
mica__gpu_activation mica__gpu_activation_of(uint64_t rows, uint64_t k, uint32_t forms);
/* The dispatch that makes them of view `view` of `rows`, operand x_slot; norm_slot: weight of a norm, asked for by `norm`. */
mica_status mica__gpu_plan_activation(const mica__record *record, const mica__gpu_activation *a,
                                      const mica__gpu_rows *rows, uint32_t view, uint32_t x_slot,
                                      uint32_t norm_slot, mica__plan *plan);
/* Binds codes, scales and sums as x of matvec.kc; `out_meta` is where the latter two are behind the codes. */
void mica__gpu_activation_bind_codes(mica__plan *plan, const mica__gpu_activation *a, mk_u64 *out_meta);

#endif
