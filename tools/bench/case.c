/* case.c - the rows, and the few ways in which they are set up. Sizes are those of a 1B model. */
#include "bench/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/catalogue.h"
#include "bench/weights.h"

#define MAX_LISTED 128

/* Numbers of about 1. */
static mica_status filled(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                          mica_buffer **out)
{
    if (mica_register_of(dtype) != MICA_REGISTER_F32)
        return tool_constant_create(device, dtype, ndim, shape, 1, out);
    return tool_weight_create(device, dtype, ndim, shape, 1, out);
}

static mica_status activation(mica_device *device, mica_dtype dtype, uint64_t a, uint64_t b,
                              mica_buffer **out)
{
    return filled(device, dtype, 2, (uint64_t[]){a, b}, out);
}

static mica_status index_vector(mica_device *device, uint64_t count, double value, mica_buffer **out)
{
    return tool_constant_create(device, MICA_DTYPE_U32, 1, &count, value, out);
}

/* ---- any op whose operands are numbers: size = the first operand's; the others follow from it ---- */

/* The first operand has as many dimensions as its shape names, of size[0] but for the last, which is size[1]. */
static mica_operand_desc first_operand(const bench_case *c, const char *shape)
{
    mica_operand_desc desc = {.dtype = c->type, .ndim = 1};
    for (const char *at = shape; *at != 0; at++)
        desc.ndim += *at == ',';
    if (strcmp(shape, "any") == 0 || strcmp(shape, "[..]") == 0)
        desc.ndim = 2;
    for (uint32_t d = 0; d < desc.ndim; d++)
        desc.shape[d] = c->size[d + 1 == desc.ndim];
    return desc;
}

static mica_status op_create(mica_device *device, const bench_case *c, bench_set *set)
{
    mica_operand_desc desc[BENCH_BUFFERS] = {{.dtype = MICA_DTYPE_NONE}};
    mica_op_info info;
    TOOL_TRY(mica_op_get_info(c->op, &info));
    for (uint32_t i = 0; i < info.operands; i++) {
        mica_op_operand operand;
        TOOL_TRY(mica_op_get_operand(c->op, i, &operand));
        if (operand.optional != 0 && strcmp(operand.shape, "any") == 0)
            continue; /* what repeats has no shape of its own: it stays absent */
        desc[i] = i == 0 ? first_operand(c, operand.shape) : (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
        if (i > 0 && (operand.types >> c->type & 1) != 0)
            desc[i].dtype = operand.access == MICA_ACCESS_READ ? MICA_DTYPE_F32 : c->type;
    }
    TOOL_TRY(mica_op_infer(c->op, c->family->params, desc, info.operands));
    for (uint32_t i = 0; i < info.operands; i++)
        if (desc[i].dtype != MICA_DTYPE_NONE)
            TOOL_TRY(filled(device, desc[i].dtype, desc[i].ndim, desc[i].shape, &set->buffer[i]));
    return MICA_OK;
}

static const bench_family op_family = {op_create, NULL, 1};
static const bench_family norm_family = {op_create, &(const mica_norm_params){1e-5f}, 1};
static const bench_family softmax_family = {op_create, &(const mica_softmax_params){.scale = 1}, 1};

static const bench_family row_sum_family = {op_create, &(const mica_reduce_params){.axes = 1}, 1};
static const bench_family column_sum_family = {op_create, &(const mica_reduce_params){.axes = 2}, 1};

/* x, weight, bias, y, or x, dy, weight, dx, dweight, dbias: weights and biases are rows. size = rows, columns */
static mica_status normalize_create(mica_device *device, const bench_case *c, bench_set *set)
{
    const uint32_t backward = c->op == MICA_OP_NORMALIZE_BACKWARD, count = backward != 0 ? 6 : 4;
    const uint32_t whole = backward != 0 ? 1u << 0 | 1u << 1 | 1u << 3 : 1u << 0 | 1u << 3;
    for (uint32_t i = 0; i < count; i++)
        TOOL_TRY(filled(device, (whole >> i & 1) != 0 ? c->type : MICA_DTYPE_F32, 1 + (whole >> i & 1),
                        c->size + 1 - (whole >> i & 1), &set->buffer[i]));
    return MICA_OK;
}

static const bench_family normalize_family = {normalize_create, &(const mica_normalize_params){.eps = 1e-5f},
                                              1};

/* ---- regions of one op: size = rows, columns ---- */

enum { FILL = MICA_SCALAR_COUNT, SILU_MUL, GELU_MUL, CLIPPED_SWIGLU, SOFTCAP, CLAMP, ELU };
enum { REGION_Y = 3 };

static uint32_t region_inputs(const bench_case *c)
{
    mica_scalar_info info = {0};
    if (c->scalar >= MICA_SCALAR_COUNT)
        return c->scalar == FILL ? 0 : c->scalar >= SOFTCAP ? 1 : 2;
    (void)mica_scalar_get_info(c->scalar, &info);
    return info.values;
}

static mica_dtype result_of(const bench_case *c)
{
    mica_scalar_info info = {0};
    if (c->scalar < MICA_SCALAR_COUNT)
        (void)mica_scalar_get_info(c->scalar, &info);
    return info.out != 0 ? MICA_DTYPE_BOOL : c->type;
}

static mica_status region_create(mica_device *device, const bench_case *c, bench_set *set)
{
    for (uint32_t i = 0; i < region_inputs(c); i++) {
        const mica_dtype dtype = c->scalar == MICA_SCALAR_SELECT && i == 0 ? MICA_DTYPE_BOOL : c->type;
        TOOL_TRY(activation(device, dtype, c->size[0], c->size[1], &set->buffer[i]));
    }
    return activation(device, result_of(c), c->size[0], c->size[1], &set->buffer[REGION_Y]);
}

static mica_status region_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    mica_buffer *const *b = set->buffer;
    switch (c->scalar) {
    case FILL: return mica_fill(e, 1, b[REGION_Y]);
    case SILU_MUL: return mica_silu_mul(e, b[0], b[1], b[REGION_Y]);
    case GELU_MUL: return mica_gelu_mul(e, b[0], b[1], b[REGION_Y]);
    case CLIPPED_SWIGLU: return mica_clipped_swiglu(e, b[0], b[1], 1.702f, 7, b[REGION_Y]);
    case SOFTCAP: return mica_softcap(e, b[0], 30, b[REGION_Y]);
    case CLAMP: return mica_clamp(e, b[0], -1, 1, b[REGION_Y]);
    case ELU: return mica_elu(e, b[0], 1, b[REGION_Y]);
    default: break;
    }
    mica_region_step step = {
        (uint8_t)c->scalar, (uint8_t)mica_register_of(result_of(c)), {0, 1, 2}, 0, {0}, {0}};
    mica_region_desc desc = {region_inputs(c), 1, 1, {0}, {0}, {MICA_REGION_NONE}, &step};
    mica_region *region = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        desc.input[i] =
            (uint8_t)mica_register_of(c->scalar == MICA_SCALAR_SELECT && i == 0 ? MICA_DTYPE_BOOL : c->type);
        step.value[i] = i < desc.input_count ? (uint8_t)i : MICA_REGION_NONE;
    }
    desc.output[0] = (uint8_t)desc.input_count;
    TOOL_TRY(mica_region_create(&desc, &region));
    const mica_status status = mica_region_apply(e, region, b, b + REGION_Y);
    mica_region_release(region);
    return status;
}

static const bench_family region_family = {region_create, NULL, 1};

mica_status bench_case_encode(mica_encoder *encoder, const bench_case *c, const bench_set *set)
{
    mica_op_info info;
    if (c->op == MICA_OP_REGION)
        return region_encode(encoder, c, set);
    TOOL_TRY(mica_op_get_info(c->op, &info));
    return mica_op_apply(encoder, c->op, c->family->params, set->buffer, info.operands + info.grouped);
}

/* ---- rope and kv_write (the type is the cache's): size = tokens, heads, head size ---- */

static mica_status rope_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, c->size, 1, &set->buffer[0]));
    TOOL_TRY(tool_positions_create(device, c->size[0], &set->buffer[1]));
    return tool_weight_create(device, c->type, 3, c->size, 1, &set->buffer[3]);
}

static mica_status kv_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, c->size, 1, &set->buffer[0]));
    TOOL_TRY(tool_positions_create(device, c->size[0], &set->buffer[1]));
    return tool_weight_create(device, c->type, 3, c->size, 1, &set->buffer[4]);
}

static const mica_rope_params rope_params = {.mode = MICA_ROPE_NEOX, .theta = 500000};
static const bench_family rope_family = {rope_create, &rope_params, 1};
static const bench_family kv_family = {kv_create, NULL, 1};

/* ---- attention: size = tokens, keys, head size; 32 query heads on 8 key heads ---- */

enum { HEADS = 32, KV_HEADS = 8 };

static mica_status attention_create(mica_device *device, const bench_case *c, bench_set *set)
{
    uint64_t q[3] = {c->size[0], HEADS, c->size[2]}, kv[3] = {c->size[1], KV_HEADS, c->size[2]};
    TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, q, 1, &set->buffer[0]));
    TOOL_TRY(tool_weight_create(device, c->type, 3, kv, 1, &set->buffer[1]));
    TOOL_TRY(tool_weight_create(device, c->type, 3, kv, 1, &set->buffer[2]));
    TOOL_TRY(
        index_vector(device, c->size[0], (double)c->size[1] - 1, &set->buffer[3])); /* all see every key */
    TOOL_TRY(index_vector(device, 1, (double)c->size[1], &set->buffer[4]));
    return tool_weight_create(device, MICA_DTYPE_F32, 3, q, 1, &set->buffer[8]);
}

static const bench_family attention_family = {attention_create, NULL, 1};

/* ---- matmul, routed matmul, embedding: size = m, n, k ---- */

enum { EXPERTS = 8, USED = 2 };

static mica_status matmul_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(
        tool_weight_packed(device, c->type, 2, &c->size[1], 1 / sqrt((double)c->size[2]), &set->buffer[1]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[1], &set->buffer[2]);
}

/* Activations of the weight's type too, as libraries for dense products take them. */
static mica_status dense_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(
        tool_weight_packed(device, c->type, 2, &c->size[1], 1 / sqrt((double)c->size[2]), &set->buffer[1]));
    return activation(device, c->type, c->size[0], c->size[1], &set->buffer[2]);
}

static const bench_family matmul_family = {matmul_create, NULL, 1};
static const bench_family dense_family = {dense_create, NULL, 1};

/* Each token uses USED of EXPERTS experts, in turn. */
static mica_status experts_create(mica_device *device, const bench_case *c, bench_set *set)
{
    uint64_t weight[3] = {EXPERTS, c->size[1], c->size[2]}, ids[2] = {c->size[0], USED};
    uint64_t y[3] = {c->size[0], USED, c->size[1]};
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(tool_weight_packed(device, c->type, 3, weight, 1 / sqrt((double)c->size[2]), &set->buffer[2]));
    TOOL_TRY(tool_ids_create(device, 2, ids, EXPERTS, &set->buffer[1]));
    return tool_weight_create(device, MICA_DTYPE_F32, 3, y, 1, &set->buffer[3]);
}

static const bench_family experts_family = {experts_create, NULL, 1};

/* ---- route and expert_sum without what is optional: size = tokens, slots, experts or columns ---- */

static mica_status route_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 2, c->size, &set->buffer[3]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[1], &set->buffer[4]);
}

static mica_status expert_sum_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, c->size, 1, &set->buffer[0]));
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[1], &set->buffer[1]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[5]);
}

static const mica_route_params route_params = {.softmax_first = 1, .normalise = 1};
static const bench_family route_family = {route_create, &route_params, 1};
static const bench_family expert_sum_family = {expert_sum_create, NULL, 1};

static mica_status embedding_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_packed(device, c->type, 2, &c->size[1], 1, &set->buffer[0]));
    TOOL_TRY(index_vector(device, c->size[0], (double)c->size[1] / 2, &set->buffer[1]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[2]);
}

static const bench_family embedding_family = {embedding_create, NULL, 0};

/* ---- pad: size = rows, columns; gather and scatter: size = ids, rows, columns ---- */

static const mica_pad_params pad_params = {.low = {1, 1}, .high = {1, 1}};
static const mica_scatter_params scatter_params = {.mode = MICA_SCATTER_ADD};

static mica_status pad_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[0], c->size[1], &set->buffer[0]));
    return activation(device, c->type, c->size[0] + 2, c->size[1] + 2, &set->buffer[1]);
}

static const bench_family pad_family = {pad_create, &pad_params, 1};

static mica_status gather_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[1], c->size[2], &set->buffer[0]));
    TOOL_TRY(tool_ids_create(device, 1, &c->size[0], c->size[1], &set->buffer[1]));
    return activation(device, c->type, c->size[0], c->size[2], &set->buffer[2]);
}

static mica_status scatter_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(tool_ids_create(device, 1, &c->size[0], c->size[1], &set->buffer[1]));
    return activation(device, c->type, c->size[1], c->size[2], &set->buffer[2]);
}

static const bench_family gather_family = {gather_create, NULL, 1};
static const bench_family scatter_family = {scatter_create, &scatter_params, 1};

/* ---- the end of a step: size = rows, vocabulary ---- */

static mica_status settings_create(mica_device *device, uint64_t rows, mica_buffer **out)
{
    return tool_constant_create(device, MICA_DTYPE_U32, 2, (uint64_t[]){rows, MICA_SAMPLE_WORDS}, 0, out);
}

static mica_status penalize_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[0], c->size[1], &set->buffer[0]));
    TOOL_TRY(settings_create(device, c->size[0], &set->buffer[1]));
    return activation(device, c->type, c->size[0], c->size[1], &set->buffer[6]);
}

static mica_status sample_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, c->type, c->size[0], c->size[1], &set->buffer[0]));
    TOOL_TRY(settings_create(device, c->size[0], &set->buffer[2]));
    return index_vector(device, c->size[0], 0, &set->buffer[4]);
}

static const bench_family penalize_family = {penalize_create, NULL, 1};
static const bench_family sample_family = {sample_create, NULL, 1};

/* ---- the rows ---- */

#define ROWS(op, type, family)                                          \
    {                                                                   \
        MICA_OP_##op, MICA_DTYPE_##type, {1024, 2048, 0}, &family, 0, 0 \
    }
#define REGION(scalar, type)                                                          \
    {                                                                                 \
        MICA_OP_REGION, MICA_DTYPE_##type, {1024, 2048, 0}, &region_family, 0, scalar \
    }
#define MATMUL(type, m, n, k)                                              \
    {                                                                      \
        MICA_OP_MATMUL, MICA_DTYPE_##type, {m, n, k}, &matmul_family, 0, 0 \
    }
#define LARGE(type, m, n, k)                                               \
    {                                                                      \
        MICA_OP_MATMUL, MICA_DTYPE_##type, {m, n, k}, &matmul_family, 1, 0 \
    }
/* The matrices of an 8B model in decode, and some of them for batches and in prefill. */
#define EIGHT(type)                                                                                \
    LARGE(type, 1, 4096, 4096), LARGE(type, 1, 28672, 4096), LARGE(type, 1, 4096, 14336),          \
        LARGE(type, 1, 128256, 4096), LARGE(type, 32, 4096, 4096), LARGE(type, 32, 28672, 4096),   \
        LARGE(type, 32, 4096, 14336), LARGE(type, 64, 28672, 4096), LARGE(type, 128, 28672, 4096), \
        LARGE(type, 128, 4096, 14336), LARGE(type, 2048, 14336, 4096), LARGE(type, 2048, 4096, 14336)
/* Two of them in decode. */
#define DECODED(type) LARGE(type, 1, 28672, 4096), LARGE(type, 1, 4096, 14336)
/* Decode and prefill of one weight type. */
#define BOTH(type) MATMUL(type, 1, 8192, 2048), MATMUL(type, 128, 2048, 2048)

static const bench_case cases[] = {
    ROWS(COPY, F32, op_family),
    ROWS(COPY, BF16, op_family),
    REGION(FILL, F32),
    REGION(SILU_MUL, F32),
    REGION(GELU_MUL, F32),
    REGION(CLIPPED_SWIGLU, F32),
    REGION(SOFTCAP, F32),
    REGION(CLAMP, F32),
    REGION(ELU, F32),
    REGION(MICA_SCALAR_ADD, BF16),
    ROWS(RMS_NORM, F32, norm_family),
    ROWS(RMS_NORM, BF16, norm_family),
    ROWS(LAYER_NORM, F32, norm_family),
    ROWS(SOFTMAX, F32, softmax_family),
    {MICA_OP_NORMALIZE, MICA_DTYPE_F32, {4096, 4096, 0}, &normalize_family, 0, 0},
    {MICA_OP_NORMALIZE_BACKWARD, MICA_DTYPE_F32, {4096, 4096, 0}, &normalize_family, 0, 0},
    {MICA_OP_REDUCE, MICA_DTYPE_F32, {4096, 4096, 0}, &row_sum_family, 0, 0},
    {MICA_OP_REDUCE, MICA_DTYPE_F32, {4096, 4096, 0}, &column_sum_family, 0, 0},
    {MICA_OP_REDUCE, MICA_DTYPE_F32, {1, 10000000, 0}, &op_family, 0, 0},
    {MICA_OP_ROPE, MICA_DTYPE_F32, {512, HEADS, 64}, &rope_family, 0, 0},
    {MICA_OP_KV_WRITE, MICA_DTYPE_F16, {512, KV_HEADS, 64}, &kv_family, 0, 0},
    {MICA_OP_KV_WRITE, MICA_DTYPE_Q8_0, {512, KV_HEADS, 64}, &kv_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 1024, 64}, &attention_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 8192, 64}, &attention_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {128, 512, 64}, &attention_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {1, 1024, 64}, &attention_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {1, 8192, 64}, &attention_family, 0, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {128, 512, 64}, &attention_family, 0, 0},
    MATMUL(F32, 1024, 1024, 1024),
    BOTH(F32),
    BOTH(F16),
    BOTH(BF16),
    BOTH(Q4_0),
    BOTH(Q4_1),
    BOTH(Q5_0),
    BOTH(Q5_1),
    BOTH(Q8_0),
    BOTH(Q2_K),
    BOTH(Q3_K),
    BOTH(Q4_K),
    BOTH(Q5_K),
    BOTH(Q6_K),
    BOTH(IQ4_NL),
    BOTH(IQ4_XS),
    BOTH(AFFINE4),
    BOTH(AFFINE6),
    BOTH(AFFINE8),
    EIGHT(Q4_0),
    EIGHT(Q4_K),
    EIGHT(Q8_0),
    EIGHT(F16),
    DECODED(Q2_K),
    DECODED(Q3_K),
    DECODED(Q5_K),
    DECODED(Q6_K),
    DECODED(Q4_1),
    DECODED(Q5_0),
    DECODED(Q5_1),
    DECODED(IQ4_NL),
    DECODED(IQ4_XS),
    DECODED(MXFP4),
    DECODED(AFFINE4),
    DECODED(AFFINE8),
    LARGE(F32, 4096, 4096, 4096),
    {MICA_OP_MATMUL, MICA_DTYPE_BF16, {4096, 4096, 4096}, &dense_family, 1, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 8192, 128}, &attention_family, 1, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {2048, 2048, 128}, &attention_family, 1, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_BF16, {2048, 2048, 128}, &attention_family, 1, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {2048, 2048, 128}, &attention_family, 1, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F32, {2048, 2048, 128}, &attention_family, 1, 0},
    {MICA_OP_MATMUL_EXPERTS, MICA_DTYPE_Q4_K, {1, 768, 2048}, &experts_family, 0, 0},
    {MICA_OP_MATMUL_EXPERTS, MICA_DTYPE_Q4_K, {64, 768, 2048}, &experts_family, 0, 0},
    {MICA_OP_ROUTE, MICA_DTYPE_F32, {1, 8, 128}, &route_family, 0, 0},
    {MICA_OP_ROUTE, MICA_DTYPE_F32, {512, 8, 128}, &route_family, 0, 0},
    {MICA_OP_EXPERT_SUM, MICA_DTYPE_F32, {1, 8, 2048}, &expert_sum_family, 0, 0},
    {MICA_OP_EXPERT_SUM, MICA_DTYPE_F32, {512, 8, 2048}, &expert_sum_family, 0, 0},
    {MICA_OP_EMBEDDING, MICA_DTYPE_Q4_0, {128, 32000, 2048}, &embedding_family, 0, 0},
    ROWS(PAD, F32, pad_family),
    ROWS(PAD, BF16, pad_family),
    {MICA_OP_GATHER, MICA_DTYPE_F32, {2048, 32000, 2048}, &gather_family, 0, 0},
    {MICA_OP_GATHER, MICA_DTYPE_F32, {65536, 65536, 8}, &gather_family, 0, 0},
    {MICA_OP_SCATTER, MICA_DTYPE_F32, {2048, 32000, 2048}, &scatter_family, 0, 0},
    {MICA_OP_SCATTER, MICA_DTYPE_BF16, {2048, 32000, 2048}, &scatter_family, 0, 0},
    {MICA_OP_PENALIZE, MICA_DTYPE_F32, {8, 128256, 0}, &penalize_family, 0, 0},
    {MICA_OP_SAMPLE, MICA_DTYPE_F32, {8, 128256, 0}, &sample_family, 0, 0},
};

static const bench_case small_cases[] = {
    {MICA_OP_RMS_NORM, MICA_DTYPE_F32, {1, 4096, 0}, &norm_family, 0, 0},
    MATMUL(Q8_0, 1, 1024, 1024),
};

#define MAX_CASES (sizeof cases / sizeof *cases + (size_t)MICA_SCALAR_COUNT + MAX_LISTED)

const bench_case *bench_cases(size_t *out_count)
{
    static bench_case all[MAX_CASES];
    size_t count = 0, listed_count = 0;
    const bench_listed *listed = bench_catalogue(&listed_count);
    for (uint32_t scalar = 1; scalar < MICA_SCALAR_COUNT; scalar++) {
        mica_scalar_info info;
        if (mica_scalar_get_info(scalar, &info) != MICA_OK || !info.is_op)
            continue;
        const bench_case floats = REGION(scalar, F32), words = REGION(scalar, I32);
        all[count++] = (info.in >> MICA_REGISTER_F32 & 1) != 0 ? floats : words;
    }
    for (size_t i = 0; i < listed_count && i < MAX_LISTED; i++)
        all[count++] =
            (bench_case){listed[i].op, listed[i].type, {0, 0, 0}, &listed[i].family, listed[i].large, 0};
    memcpy(all + count, cases, sizeof cases);
    *out_count = count + sizeof cases / sizeof *cases;
    return all;
}

const char *bench_case_name(const bench_case *c)
{
    static const char *const few[] = {"fill",    "silu_mul", "gelu_mul", "clipped_swiglu",
                                      "softcap", "clamp",    "elu"};
    if (c->op != MICA_OP_REGION)
        return mica_op_name(c->op);
    return c->scalar >= MICA_SCALAR_COUNT ? few[c->scalar - MICA_SCALAR_COUNT] : mica_scalar_name(c->scalar);
}

const bench_case *bench_small_cases(size_t *out_count)
{
    *out_count = sizeof small_cases / sizeof *small_cases;
    return small_cases;
}

void bench_case_shape(const bench_case *c, char *out, size_t capacity)
{
    const bench_listed *listed = bench_listed_of(c);
    int three = c->size[2] != 0;
    if (listed != NULL) {
        snprintf(out, capacity, "%s", listed->shape);
        return;
    }
    int used =
        snprintf(out, capacity, three ? "%llu x %llu x %llu" : "%llu x %llu", (unsigned long long)c->size[0],
                 (unsigned long long)c->size[1], (unsigned long long)c->size[2]);
    if (c->family == &row_sum_family || c->family == &column_sum_family)
        snprintf(out + used, capacity - (size_t)used, c->family == &row_sum_family ? ", rows" : ", columns");
}
