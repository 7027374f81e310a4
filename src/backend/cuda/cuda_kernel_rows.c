/* cuda_kernel_rows.c - the kernel rows of CUDA: its own first, then those of all GPUs. */
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_plan.h"
#include "backend/gpu/gpu_plan.h"

static const mica__kernel_row rows[] = {
    {MICA_OP_MATMUL, "matmul_cublaslt", mica__cuda_blas_serves, mica__cuda_plan_blas},
    {MICA_OP_MATMUL, "matmul_stream", mica__cuda_stream_serves, mica__cuda_plan_stream},
    {MICA_OP_MATMUL, "matmul_direct", mica__cuda_direct_serves, mica__cuda_plan_direct},
    {MICA_OP_MATMUL, "matmul_gemm", mica__cuda_gemm_serves, mica__cuda_plan_gemm},
    {MICA_OP_MATMUL_EXPERTS, "matmul_routed", mica__cuda_routed_serves, mica__cuda_plan_routed},
    {MICA_OP_ATTENTION, "attention_prefill", mica__cuda_attention_prefill_serves,
     mica__cuda_plan_attention_prefill},
    {MICA_OP_ATTENTION, "attention_decode", mica__cuda_attention_decode_serves,
     mica__cuda_plan_attention_decode},
    {MICA_OP_DELTA_NET, "delta_tiles", mica__cuda_delta_serves, mica__cuda_plan_delta},
#define MICA__GPU_KERNEL_ROW(op, name, plan) {MICA_OP_##op, name, NULL, plan},
#include "backend/gpu/gpu_kernel_rows.def"
#undef MICA__GPU_KERNEL_ROW
};

const mica__kernel_row *mica__cuda_kernel_rows(uint32_t *out_count)
{
    *out_count = sizeof rows / sizeof rows[0];
    return rows;
}
