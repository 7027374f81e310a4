/* cuda_plan_native.h - matmul records as the native kernels of src/kernels/native/cuda see them. Knows no driver. */
#ifndef MICA_CUDA_PLAN_NATIVE_H
#define MICA_CUDA_PLAN_NATIVE_H

#include "backend/gpu/gpu_plan_weight.h"

#define MICA__CUDA_MATRIX 90u /* the compute capability whose own words those of wgmma.cu are */
#define MICA__CUDA_WIDE 16u   /* bytes that a thread or a bulk copy reads at once */
/* Of x: up to this many the weights are the traffic, beyond it the arithmetic. */
#define MICA__CUDA_FEW_ROWS 8u

/* A matmul with weights [N, K] and rows of x one stride apart. Rows are byte strides. */
typedef struct mica__cuda_matmul {
    const mica__record *record;
    const mica__matmul_record *params;
    uint32_t weights;
    uint64_t rows, k;
    uint64_t x_stride, residual_stride, y_stride[MICA__MAX_WEIGHTS];
    uint32_t y_type[MICA__MAX_WEIGHTS];
    bool residual;
    uint32_t norm; /* as the kernels have it: 0, 1, or 2 with a weight */
} mica__cuda_matmul;

/* False where the native kernels do not serve the record whatever its weights are made of: hidden, an old device, batched
 * weights, activations that are no floats, rows that are not evenly apart. */
bool mica__cuda_matmul_look(const mica__record *record, const mica__device_info *info,
                            mica__cuda_matmul *out);
/* Whether a weight is for dequantize.cu; others are for dequantize_any.cu, if for either. */
bool mica__cuda_matmul_decodes(const mica__cuda_matmul *m, uint32_t weight);
/* Whether matrix units take all of its weights in one type of 16 bits (MK_F16, MK_BF16) and the precision allows it. */
bool mica__cuda_matmul_half(const mica__cuda_matmul *m, uint32_t *out_half);
uint32_t mica__cuda_matmul_slot(uint32_t weight);
const mica__operand *mica__cuda_matmul_weight(const mica__cuda_matmul *m, uint32_t weight);
/* How many weights from `first` on are alike. */
uint32_t mica__cuda_matmul_alike(const mica__cuda_matmul *m, uint32_t first);
bool mica__cuda_is_half(uint16_t dtype);
/* Types that dequantize.cu and dot_planes.cu take as they lie; the others are taken apart by blocks.kc. */
bool mica__cuda_is_known(uint16_t dtype);
/* Whether native kernels read a weight of `ndim` dimensions with rows of k: of these types, in these layouts. */
bool mica__cuda_weight_reads(const mica__operand *weight, uint32_t ndim, uint64_t k);
/* Whether dequantize_any.cu unpacks one: quantised, in whole runs of 32 columns, tables of scales of 16 bits or less. */
bool mica__cuda_weight_unpacks(const mica__record *record, const mica__operand *weight);
/* Whether its rows, and planes where it has some, begin at multiples of MICA__CUDA_WIDE bytes. */
bool mica__cuda_weight_is_even(const mica__operand *weight);
/* Whether it has the table (MICA__WEIGHT_…): data always, of some types scales and biases. */
bool mica__cuda_weight_has(const mica__operand *weight, uint32_t table);
mk_steps mica__cuda_weight_steps(const mica__operand *weight, uint32_t dimension);
/* Whether both are of one type and layout, with everything as far apart. */
bool mica__cuda_weight_alike(const mica__operand *a, const mica__operand *b);
/* The constants of dequantize_any.cu for it; `even`: it and all that are read with it. */
void mica__cuda_any_constants(mica__plan *plan, const mica__operand *weight, bool even);
/* How many of `tile` hold n, the last one perhaps in part. */
uint64_t mica__cuda_tiles(uint64_t n, uint64_t tile);
/* Whether activations rounded to `half` (MK_F16, MK_BF16) are what a precision allows. */
bool mica__cuda_half_is_enough(uint32_t half, uint32_t precision);
/* Where the planes of a row begin, in bytes; returns how many there are, one where rows are numbers. */
uint32_t mica__cuda_planes(const mica__operand *weight, mk_u64 at[4], mk_u32 bytes[4]);
/* Binds weights [first, first + count), each with its scales and biases where they have tables, and the first again for those that four would have besides. */
void mica__cuda_bind_weights(mica__plan *plan, const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                             uint32_t access);
/* The y of those weights, likewise; one that is not there is the first's. */
void mica__cuda_bind_ys(mica__plan *plan, const mica__cuda_matmul *m, uint32_t first, uint32_t count);
/* An operand that may be absent: x then stands in its place and is not read there. */
void mica__cuda_bind_or_x(mica__plan *plan, const mica__cuda_matmul *m, uint32_t slot, bool there);

/* Rows of x in 16 bits for the matrix units: where they and their scales lie in the scratch. */
typedef struct mica__cuda_x {
    uint32_t half, order; /* MK_F16 or MK_BF16; MK_X_TILES or MK_X_WINDOWS */
    uint32_t k_tiles;     /* of 64 columns */
    uint64_t tiles, end, scales;
} mica__cuda_x;

/* Puts them there by tiles/pack_x, after the norm that the matmul has. */
mica_status mica__cuda_plan_x(const mica__cuda_matmul *m, const mica__cuda_x *x, mica__plan *plan);

#endif
