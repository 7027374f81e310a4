/* bench_case.c - the rows, and the few ways in which they are set up. Sizes are those of a 1B model. */
#include "bench_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "weights.h"

static mica_status activation(mica_device *device, mica_dtype dtype, uint64_t a, uint64_t b,
                              mica_buffer **out)
{
    uint64_t shape[2] = {a, b};
    return tool_weight_create(device, dtype, 2, shape, 1, out);
}

static mica_status index_vector(mica_device *device, uint64_t count, double value, mica_buffer **out)
{
    return tool_constant_create(device, MICA_DTYPE_U32, 1, &count, value, out);
}

static double sum_of_bytes(const bench_case *c, const bench_set *set)
{
    double sum = 0;
    (void)c;
    for (int i = 0; i < BENCH_BUFFERS; i++)
        sum += set->buffer[i] != NULL ? (double)tool_buffer_bytes(set->buffer[i]) : 0;
    return sum;
}

/* ---- elementwise and rows: size = rows, columns ---- */

static int input_count(mica_op op)
{
    const int two =
        op == MICA_OP_ADD || op == MICA_OP_MUL || op == MICA_OP_SILU_MUL || op == MICA_OP_GELU_MUL;
    return two ? 2 : op == MICA_OP_FILL ? 0 : 1;
}

static mica_status rows_create(mica_device *device, const bench_case *c, bench_set *set)
{
    int inputs = input_count(c->op);
    for (int i = 0; i < inputs; i++)
        TOOL_TRY(activation(device, c->type, c->size[0], c->size[1], &set->buffer[i]));
    if (c->op == MICA_OP_ARGMAX)
        return index_vector(device, c->size[0], 0, &set->buffer[2]);
    if (c->op == MICA_OP_RMS_NORM || c->op == MICA_OP_LAYER_NORM)
        TOOL_TRY(tool_constant_create(device, MICA_DTYPE_F32, 1, &c->size[1], 1, &set->buffer[3]));
    return activation(device, c->type, c->size[0], c->size[1], &set->buffer[2]);
}

static mica_status rows_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    mica_buffer *a = set->buffer[0], *b = set->buffer[1], *y = set->buffer[2];
    switch (c->op) {
    case MICA_OP_COPY: return mica_copy(e, a, y);
    case MICA_OP_FILL: return mica_fill(e, 1, y);
    case MICA_OP_ADD: return mica_add(e, a, b, y);
    case MICA_OP_MUL: return mica_mul(e, a, b, y);
    case MICA_OP_SILU_MUL: return mica_silu_mul(e, a, b, y);
    case MICA_OP_GELU_MUL: return mica_gelu_mul(e, a, b, y);
    case MICA_OP_GELU: return mica_gelu(e, a, y);
    case MICA_OP_SOFTCAP: return mica_softcap(e, a, 30, y);
    case MICA_OP_RMS_NORM: return mica_rms_norm(e, a, set->buffer[3], 1e-5f, y);
    case MICA_OP_LAYER_NORM: return mica_layer_norm(e, a, set->buffer[3], set->buffer[3], 1e-5f, y);
    case MICA_OP_SOFTMAX: return mica_softmax(e, a, 1, y);
    default: return mica_argmax(e, a, y);
    }
}

static double no_flops(const bench_case *c)
{
    (void)c;
    return 0;
}

static const bench_family rows_family = {rows_create, rows_encode, sum_of_bytes, no_flops, 1};

/* ---- rope and kv_write (the type is the cache's): size = tokens, heads, head size ---- */

static mica_status heads_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, c->size, 1, &set->buffer[0]));
    TOOL_TRY(index_vector(device, c->size[0], 0, &set->buffer[1]));
    uint32_t *positions = malloc(c->size[0] * sizeof *positions);
    if (positions == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < c->size[0]; i++)
        positions[i] = (uint32_t)i;
    mica_status status = mica_buffer_write(set->buffer[1], 0, positions, c->size[0] * sizeof *positions);
    free(positions);
    if (status == MICA_OK)
        status = tool_weight_create(device, c->type, 3, c->size, 1, &set->buffer[2]);
    return status;
}

static mica_status heads_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    const mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 500000};
    const mica_kv_params kv = {0};
    if (c->op == MICA_OP_ROPE)
        return mica_rope(e, set->buffer[0], set->buffer[1], NULL, &rope, set->buffer[2]);
    return mica_kv_write(e, set->buffer[0], set->buffer[1], NULL, NULL, &kv, set->buffer[2]);
}

static const bench_family heads_family = {heads_create, heads_encode, sum_of_bytes, no_flops, 1};

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
    return tool_weight_create(device, MICA_DTYPE_F32, 3, q, 1, &set->buffer[5]);
}

static mica_status attention_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    const mica_attention_params params = {0};
    const mica_attention_operands operands = {.q = set->buffer[0],
                                              .k = set->buffer[1],
                                              .v = set->buffer[2],
                                              .positions = set->buffer[3],
                                              .lengths = set->buffer[4]};
    (void)c;
    return mica_attention(e, &operands, &params, set->buffer[5]);
}

static double attention_flops(const bench_case *c)
{
    return 4.0 * (double)c->size[0] * HEADS * (double)c->size[1] * (double)c->size[2];
}

static const bench_family attention_family = {attention_create, attention_encode, sum_of_bytes,
                                              attention_flops, 1};

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

static mica_status matmul_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    (void)c;
    return mica_matmul(e, set->buffer[0], set->buffer[1], NULL, set->buffer[2]);
}

static double matmul_flops(const bench_case *c)
{
    return 2.0 * (double)c->size[0] * (double)c->size[1] * (double)c->size[2];
}

static const bench_family matmul_family = {matmul_create, matmul_encode, sum_of_bytes, matmul_flops, 1};
static const bench_family dense_family = {dense_create, matmul_encode, sum_of_bytes, matmul_flops, 1};

/* Each token uses USED of EXPERTS experts, in turn. */
static mica_status experts_create(mica_device *device, const bench_case *c, bench_set *set)
{
    uint64_t weight[3] = {EXPERTS, c->size[1], c->size[2]}, ids[2] = {c->size[0], USED};
    uint64_t y[3] = {c->size[0], USED, c->size[1]};
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[0]));
    TOOL_TRY(tool_weight_packed(device, c->type, 3, weight, 1 / sqrt((double)c->size[2]), &set->buffer[1]));
    TOOL_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 2, ids, &set->buffer[3]));
    for (uint32_t i = 0; i < c->size[0] * USED; i++) {
        uint32_t expert = i % EXPERTS;
        TOOL_TRY(mica_buffer_write(set->buffer[3], i * sizeof expert, &expert, sizeof expert));
    }
    return tool_weight_create(device, MICA_DTYPE_F32, 3, y, 1, &set->buffer[2]);
}

static mica_status experts_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    (void)c;
    return mica_matmul_experts(e, set->buffer[0], set->buffer[1], set->buffer[3], NULL, set->buffer[2]);
}

/* Only the experts that are named are read. */
static double experts_bytes(const bench_case *c, const bench_set *set)
{
    double named = (double)(c->size[0] * USED < EXPERTS ? c->size[0] * USED : EXPERTS);
    double weight = (double)tool_buffer_bytes(set->buffer[1]);
    return sum_of_bytes(c, set) - weight + weight * named / EXPERTS;
}

static double experts_flops(const bench_case *c)
{
    return USED * matmul_flops(c);
}

static const bench_family experts_family = {experts_create, experts_encode, experts_bytes, experts_flops, 1};

/* ---- route and expert_sum: size = tokens, slots, experts or columns ---- */

static mica_status slots_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(activation(device, MICA_DTYPE_F32, c->size[0], c->size[1], &set->buffer[1]));
    if (c->op == MICA_OP_EXPERT_SUM)
        TOOL_TRY(tool_weight_create(device, MICA_DTYPE_F32, 3, c->size, 1, &set->buffer[0]));
    else
        TOOL_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 2, c->size, &set->buffer[0]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[2]);
}

static mica_status slots_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    const mica_route_params params = {.softmax_first = 1, .normalise = 1};
    if (c->op == MICA_OP_EXPERT_SUM)
        return mica_expert_sum(e, set->buffer[0], set->buffer[1], set->buffer[2]);
    return mica_route(e, set->buffer[2], &params, set->buffer[0], set->buffer[1]);
}

static const bench_family slots_family = {slots_create, slots_encode, sum_of_bytes, no_flops, 1};

static mica_status embedding_create(mica_device *device, const bench_case *c, bench_set *set)
{
    TOOL_TRY(tool_weight_packed(device, c->type, 2, &c->size[1], 1, &set->buffer[1]));
    TOOL_TRY(index_vector(device, c->size[0], (double)c->size[1] / 2, &set->buffer[0]));
    return activation(device, MICA_DTYPE_F32, c->size[0], c->size[2], &set->buffer[2]);
}

static mica_status embedding_encode(mica_encoder *e, const bench_case *c, const bench_set *set)
{
    (void)c;
    return mica_embedding(e, set->buffer[1], set->buffer[0], set->buffer[2]);
}

static double embedding_bytes(const bench_case *c, const bench_set *set)
{
    double rows = (double)tool_buffer_bytes(set->buffer[1]) / (double)c->size[1] * (double)c->size[0];
    return rows + (double)tool_buffer_bytes(set->buffer[2]);
}

static const bench_family embedding_family = {embedding_create, embedding_encode, embedding_bytes, no_flops,
                                              0};

/* ---- the rows ---- */

#define ROWS(op, type)                                                    \
    {                                                                     \
        MICA_OP_##op, MICA_DTYPE_##type, {1024, 2048, 0}, &rows_family, 0 \
    }
#define MATMUL(type, m, n, k)                                           \
    {                                                                   \
        MICA_OP_MATMUL, MICA_DTYPE_##type, {m, n, k}, &matmul_family, 0 \
    }
#define LARGE(type, m, n, k)                                            \
    {                                                                   \
        MICA_OP_MATMUL, MICA_DTYPE_##type, {m, n, k}, &matmul_family, 1 \
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
    ROWS(COPY, F32),
    ROWS(COPY, BF16),
    ROWS(FILL, F32),
    ROWS(ADD, F32),
    ROWS(ADD, BF16),
    ROWS(MUL, F32),
    ROWS(SILU_MUL, F32),
    ROWS(GELU_MUL, F32),
    ROWS(GELU, F32),
    ROWS(SOFTCAP, F32),
    ROWS(RMS_NORM, F32),
    ROWS(RMS_NORM, BF16),
    ROWS(LAYER_NORM, F32),
    ROWS(SOFTMAX, F32),
    ROWS(ARGMAX, F32),
    {MICA_OP_ROPE, MICA_DTYPE_F32, {512, HEADS, 64}, &heads_family, 0},
    {MICA_OP_KV_WRITE, MICA_DTYPE_F16, {512, KV_HEADS, 64}, &heads_family, 0},
    {MICA_OP_KV_WRITE, MICA_DTYPE_Q8_0, {512, KV_HEADS, 64}, &heads_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 1024, 64}, &attention_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 8192, 64}, &attention_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {128, 512, 64}, &attention_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {1, 1024, 64}, &attention_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {1, 8192, 64}, &attention_family, 0},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {128, 512, 64}, &attention_family, 0},
    MATMUL(F32, 1024, 1024, 1024),
    BOTH(F32),
    BOTH(F16),
    BOTH(BF16),
    BOTH(Q4_0),
    BOTH(Q8_0),
    BOTH(Q4_K),
    BOTH(Q6_K),
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
    {MICA_OP_MATMUL, MICA_DTYPE_BF16, {4096, 4096, 4096}, &dense_family, 1},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {1, 8192, 128}, &attention_family, 1},
    {MICA_OP_ATTENTION, MICA_DTYPE_F16, {2048, 2048, 128}, &attention_family, 1},
    {MICA_OP_ATTENTION, MICA_DTYPE_BF16, {2048, 2048, 128}, &attention_family, 1},
    {MICA_OP_ATTENTION, MICA_DTYPE_Q8_0, {2048, 2048, 128}, &attention_family, 1},
    {MICA_OP_ATTENTION, MICA_DTYPE_F32, {2048, 2048, 128}, &attention_family, 1},
    {MICA_OP_MATMUL_EXPERTS, MICA_DTYPE_Q4_K, {1, 768, 2048}, &experts_family, 0},
    {MICA_OP_MATMUL_EXPERTS, MICA_DTYPE_Q4_K, {64, 768, 2048}, &experts_family, 0},
    {MICA_OP_ROUTE, MICA_DTYPE_F32, {1, 8, 128}, &slots_family, 0},
    {MICA_OP_ROUTE, MICA_DTYPE_F32, {512, 8, 128}, &slots_family, 0},
    {MICA_OP_EXPERT_SUM, MICA_DTYPE_F32, {1, 8, 2048}, &slots_family, 0},
    {MICA_OP_EXPERT_SUM, MICA_DTYPE_F32, {512, 8, 2048}, &slots_family, 0},
    {MICA_OP_EMBEDDING, MICA_DTYPE_Q4_0, {128, 32000, 2048}, &embedding_family, 0},
};

static const bench_case small_cases[] = {
    {MICA_OP_RMS_NORM, MICA_DTYPE_F32, {1, 4096, 0}, &rows_family, 0},
    MATMUL(Q8_0, 1, 1024, 1024),
};

const bench_case *bench_cases(size_t *out_count)
{
    *out_count = sizeof cases / sizeof *cases;
    return cases;
}

const bench_case *bench_small_cases(size_t *out_count)
{
    *out_count = sizeof small_cases / sizeof *small_cases;
    return small_cases;
}

void bench_case_shape(const bench_case *c, char *out, size_t capacity)
{
    int three = c->size[2] != 0;
    snprintf(out, capacity, three ? "%llu x %llu x %llu" : "%llu x %llu", (unsigned long long)c->size[0],
             (unsigned long long)c->size[1], (unsigned long long)c->size[2]);
}
