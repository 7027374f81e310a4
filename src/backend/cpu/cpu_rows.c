/* cpu_rows.c - which plan serves which op: the cpu's whole list of kernel rows. */
#include "backend/cpu/cpu_plan.h"

static const mica__kernel_row rows[] = {
    {MICA_OP_COPY, "copy", NULL, mica__cpu_plan_copy},
    {MICA_OP_FILL, "fill", NULL, mica__cpu_plan_fill},
    {MICA_OP_ADVANCE, "advance", NULL, mica__cpu_plan_advance},
    {MICA_OP_ADD, "add", NULL, mica__cpu_plan_binary},
    {MICA_OP_MUL, "mul", NULL, mica__cpu_plan_binary},
    {MICA_OP_SILU_MUL, "silu_mul", NULL, mica__cpu_plan_binary},
    {MICA_OP_GELU_MUL, "gelu_mul", NULL, mica__cpu_plan_binary},
    {MICA_OP_GELU, "gelu", NULL, mica__cpu_plan_unary},
    {MICA_OP_GELU_ERF, "gelu_erf", NULL, mica__cpu_plan_unary},
    {MICA_OP_SOFTCAP, "softcap", NULL, mica__cpu_plan_unary},
    {MICA_OP_CHAIN, "chain", NULL, mica__cpu_plan_chain},
    {MICA_OP_RMS_NORM, "rms_norm", NULL, mica__cpu_plan_rms_norm},
    {MICA_OP_LAYER_NORM, "layer_norm", NULL, mica__cpu_plan_layer_norm},
    {MICA_OP_SOFTMAX, "softmax", NULL, mica__cpu_plan_softmax},
    {MICA_OP_ROPE, "rope", NULL, mica__cpu_plan_rope},
    {MICA_OP_KV_WRITE, "kv_write", NULL, mica__cpu_plan_kv_write},
    {MICA_OP_ATTENTION, "attention", NULL, mica__cpu_plan_attention},
    {MICA_OP_MATMUL, "matmul", NULL, mica__cpu_plan_matmul},
    {MICA_OP_MATMUL_EXPERTS, "matmul_experts", NULL, mica__cpu_plan_experts},
    {MICA_OP_ROUTE, "route", NULL, mica__cpu_plan_route},
    {MICA_OP_EXPERT_SUM, "expert_sum", NULL, mica__cpu_plan_expert_sum},
    {MICA_OP_EMBEDDING, "embedding", NULL, mica__cpu_plan_embedding},
    {MICA_OP_ARGMAX, "argmax", NULL, mica__cpu_plan_argmax},
    {MICA_OP_PENALIZE, "penalize", NULL, mica__cpu_plan_penalize},
    {MICA_OP_SAMPLE, "sample", NULL, mica__cpu_plan_sample},
};

const mica__kernel_row *mica__cpu_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)(sizeof rows / sizeof rows[0]);
    return rows;
}
