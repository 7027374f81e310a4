/* cuda_plan_blas.c - which matmuls cuBLASLt does: plain ones of floats, all of one type, with many rows. */
#include "backend/cuda/cuda_plan.h"

#include "backend/cuda/cuda_blas.h"
#include "backend/gpu/gpu_plan.h"
#include "base/env.h"

#define LEAST_ROWS 64u /* below, the weights are the traffic, and our own kernels read them as fast */
#define LEAST_SIDE 128u
#define ALIGNMENT 16u

/* [rows, columns] with a stride between rows, whatever the leading dimensions. */
typedef struct matrix {
    uint64_t rows, columns, stride;
} matrix;

static bool as_matrices(const mica__operand *x, const mica__operand *y, matrix out[2])
{
    mica__gpu_view view[2] = {mica__gpu_view_of(x), mica__gpu_view_of(y)};
    if (x->ndim != y->ndim || x->ndim < 2)
        return false;
    mica__gpu_view_collapse(view, 2, 1);
    if (view[0].ndim != 2)
        return false;
    for (uint32_t i = 0; i < 2; i++)
        out[i] = (matrix){view[i].shape[0], view[i].shape[1], view[i].stride[0]};
    return true;
}

static int32_t type_of(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32   ? MICA__CUDA_BLAS_F32
           : dtype == MICA_DTYPE_F16 ? MICA__CUDA_BLAS_F16
                                     : MICA__CUDA_BLAS_BF16;
}

static uint64_t bytes_of(const mica__operand *operand)
{
    return operand->dtype == MICA_DTYPE_F32 ? 4 : 2;
}

static bool is_aligned(const mica__operand *operand, uint64_t stride)
{
    return operand->offset % ALIGNMENT == 0 && stride % ALIGNMENT == 0;
}

bool mica__cuda_blas_serves(const mica__record *record, const mica__device_info *info)
{
    const mica__matmul_record *params = record->params;
    const mica__operand *x = &record->operand[MICA__MATMUL_X];
    const mica__operand *weight = &record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)];
    const mica__operand *y = &record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)];
    matrix m[2];
    if (info->compute < 80 || mica__env_debug(MICA__DEBUG_NOCUBLAS))
        return false;
    if (params->weight_count != 1 || params->norm != 0 || params->gate != MICA__GATE_NONE ||
        params->softcap != 0.0f || mica__operand_present(&record->operand[MICA__MATMUL_RESIDUAL]))
        return false;
    if (!mica__gpu_is_float(weight->dtype) || x->dtype != weight->dtype ||
        (y->dtype != MICA_DTYPE_F32 && y->dtype != weight->dtype) ||
        weight->layout != MICA_LAYOUT_CANONICAL || weight->ndim != 2 || !as_matrices(x, y, m))
        return false;
    return m[0].rows >= LEAST_ROWS && m[0].columns >= LEAST_SIDE && m[1].columns >= LEAST_SIDE &&
           is_aligned(x, m[0].stride) && is_aligned(weight, weight->stride[0]) && is_aligned(y, m[1].stride);
}

mica_status mica__cuda_plan_blas(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__MATMUL_X];
    const mica__operand *weight = &record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)];
    const mica__operand *y = &record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)];
    matrix m[2] = {{0, 0, 0}, {0, 0, 0}};
    (void)info;
    as_matrices(x, y, m);
    mica__cuda_blas_params params = {.m = m[0].rows,
                                     .n = m[1].columns,
                                     .k = m[0].columns,
                                     .x_stride = (int64_t)(m[0].stride / bytes_of(x)),
                                     .weight_stride = (int64_t)(weight->stride[0] / bytes_of(weight)),
                                     .y_stride = (int64_t)(m[1].stride / bytes_of(y)),
                                     .workspace = MICA__CUDA_BLAS_WORKSPACE,
                                     .type = type_of(weight->dtype),
                                     .y_type = type_of(y->dtype)};
    const mica_status status = mica__gpu_plan_next(plan, "cublaslt", 1);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__MATMUL_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA), 0);
    mica__gpu_plan_operand(plan, record, MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y), 0);
    mica__gpu_plan_scratch(plan, 0, MICA__CUDA_BLAS_WORKSPACE, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
