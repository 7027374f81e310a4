/*
 * builder_cases.h - the rows of builder_rows.def as cases: inputs that are made from their descriptions, and builders of more than one expression.
 *
 * Numbers are made from their place by hashing, so that scripts/golden_graph.py has the same ones.
 */
#ifndef TEST_BUILDER_CASES_H
#define TEST_BUILDER_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph_rig.h"

enum { CASE_INPUTS = 10, CASE_BATCH = 2, CASE_BYTES = 8192 };

typedef mica_tensor case_build(mica_graph *g, const mica_tensor *x);

typedef struct builder_case {
    const char *name, *inputs, *result;
    case_build *build;
} builder_case;

typedef struct case_input {
    mica_dtype dtype;
    int positive;
    uint64_t below; /* of integers */
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS]; /* UINT64_MAX: b */
} case_input;

static inline uint64_t rig_size(const mica_graph *graph, mica_tensor x, uint32_t d)
{
    mica_graph_tensor_info info;
    must(mica_graph_get_tensor(graph, x, &info));
    return info.shape[d];
}

/* Reads "i32<5:b,3" and moves behind it; 0 at the end. */
static inline int case_next(const char **at, case_input *out)
{
    char name[16] = "";
    size_t length;
    *out = (case_input){.ndim = 0};
    *at += strspn(*at, " ");
    length = strcspn(*at, "<+:");
    if (**at == 0)
        return 0;
    memcpy(name, *at, length);
    out->dtype = mica_dtype_from_name(name);
    assert_true(out->dtype != MICA_DTYPE_NONE);
    *at += length;
    out->positive = **at == '+';
    *at += out->positive;
    if (**at == '<')
        out->below = strtoull(*at + 1, (char **)at, 10);
    for (assert_true(**at == ':' || **at == ' ' || **at == 0); **at == ':' || **at == ',';) {
        ++*at;
        if (**at == 'b') {
            out->shape[out->ndim++] = UINT64_MAX;
            ++*at;
        } else {
            out->shape[out->ndim++] = strtoull(*at, (char **)at, 10);
        }
    }
    return 1;
}

static inline uint32_t case_hash(uint32_t i, uint32_t input)
{
    uint32_t h = i * 2654435761u + (input + 1) * 974711u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}

/* Number i of input `input`, as its type holds it. */
static inline double case_number(const case_input *in, uint32_t input, uint32_t i)
{
    const uint32_t h = case_hash(i, input);
    if (in->dtype == MICA_DTYPE_BOOL)
        return h >> 7 & 1;
    if (in->below != 0)
        return (double)(h >> 4) - (double)((h >> 4) / (uint32_t)in->below * (uint32_t)in->below);
    const double x = (double)(h >> 8) / 8388608.0 - 1;
    return in->positive ? fabs(x) + 0.5 : x;
}

/* Its bytes, with b as `batch`; the count of numbers (two of a c64). */
static inline uint64_t case_fill(const case_input *in, uint32_t input, uint64_t batch, void *bytes)
{
    uint64_t count = in->dtype == MICA_DTYPE_C64 ? 2 : 1;
    for (uint32_t d = 0; d < in->ndim; d++)
        count *= in->shape[d] == UINT64_MAX ? batch : in->shape[d];
    for (uint32_t i = 0; i < count; i++) {
        const double x = case_number(in, input, i);
        switch (in->dtype) {
        case MICA_DTYPE_F32:
        case MICA_DTYPE_C64: ((float *)bytes)[i] = (float)x; break;
        case MICA_DTYPE_I32: ((int32_t *)bytes)[i] = (int32_t)x; break;
        case MICA_DTYPE_U32: ((uint32_t *)bytes)[i] = (uint32_t)x; break;
        case MICA_DTYPE_I64:
        case MICA_DTYPE_U64: ((uint64_t *)bytes)[i] = (uint64_t)x; break;
        default: ((unsigned char *)bytes)[i] = (unsigned char)x; break;
        }
    }
    return count;
}

/* The graph of a case. */
static inline mica_graph *case_graph(const builder_case *row, mica_tensor *out)
{
    mica_graph *graph = NULL;
    mica_tensor x[CASE_INPUTS] = {0};
    case_input in;
    uint32_t count = 0;
    must(mica_graph_create(&graph));
    const uint64_t b = mica_graph_symbol(graph, "b");
    for (const char *at = row->inputs; case_next(&at, &in); count++) {
        char name[8];
        uint64_t shape[MICA_MAX_DIMS];
        for (uint32_t d = 0; d < in.ndim; d++)
            shape[d] = in.shape[d] == UINT64_MAX ? b : in.shape[d];
        snprintf(name, sizeof name, "x%u", count);
        x[count] = mica_graph_input(graph, name, in.dtype, in.ndim, shape);
    }
    *out = row->build(graph, x);
    return graph;
}

/* ---- builders that take more than an expression ---- */

static mica_tensor linear_many(mica_graph *g, const mica_tensor *x)
{
    mica_tensor y[2];
    (void)mica_graph_linear_many(g, x[0], x + 1, 2, NULL, y);
    return y[1];
}
static mica_tensor top_k_ids(mica_graph *g, const mica_tensor *x)
{
    mica_tensor ids;
    (void)mica_graph_top_k(g, x[0], 2, 1, 1, &ids);
    return ids;
}
static mica_tensor split(mica_graph *g, const mica_tensor *x)
{
    mica_tensor part[3];
    (void)mica_graph_split(g, x[0], 1, SHAPE(2, 3, 2), 3, part);
    return part[1];
}
static mica_tensor batch_norm_running(mica_graph *g, const mica_tensor *x)
{
    mica_graph_batch_norm_outputs out;
    (void)mica_graph_batch_norm_train(g, x[0], 0, 0, x[1], x[2],
                                      &(mica_batch_norm_params){.eps = 0.01f, .momentum = 0.25f}, &out);
    return out.running_var;
}
static mica_tensor attention_lse(mica_graph *g, const mica_tensor *x)
{
    mica_tensor lse;
    const mica_graph_attention_desc desc = {.layout = MICA_HEADS_BEHIND};
    (void)mica_graph_attention(g, x[0], x[1], x[2], &desc, &lse);
    return lse;
}
static mica_tensor attention_cached(mica_graph *g, const mica_tensor *x)
{
    const mica_graph_attention_operands operands = {.q = x[0],
                                                    .k = x[1],
                                                    .v = x[2],
                                                    .positions =
                                                        mica_graph_arange(g, MICA_DTYPE_I32, 4, 1, 2),
                                                    .lengths = mica_graph_arange(g, MICA_DTYPE_I32, 6, 1, 1)};
    return mica_graph_attention_cached(g, &operands, NULL, NULL);
}
static mica_tensor attention_backward(mica_graph *g, const mica_tensor *x)
{
    const mica_graph_attention_operands operands = {.q = x[0],
                                                    .k = x[1],
                                                    .v = x[2],
                                                    .positions =
                                                        mica_graph_arange(g, MICA_DTYPE_I32, 2, 1, 3),
                                                    .lengths = mica_graph_arange(g, MICA_DTYPE_I32, 5, 1, 1)};
    mica_tensor lse;
    const mica_tensor y = mica_graph_attention_cached(g, &operands, NULL, &lse);
    return mica_graph_attention_backward(g, &operands, NULL, y, lse, x[3], NULL, NULL, NULL);
}
static mica_tensor attention_block(mica_graph *g, const mica_tensor *x)
{
    const mica_attention_block block = {.qkv_weight = x[1],
                                        .qkv_bias = x[2],
                                        .out_weight = x[3],
                                        .cosines = x[4],
                                        .sines = x[5],
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .attention = {.causal = 1}};
    mica_attention_block narrow = block;
    narrow.cosines = mica_graph_slice(g, x[4], 1, 0, 2, 1);
    return mica_graph_attention_block(g, x[0], &narrow);
}
static mica_tensor transformer_layer(mica_graph *g, const mica_tensor *x)
{
    const mica_transformer_layer layer = {.attention = {.qkv_weight = x[1], .out_weight = x[2], .heads = 2},
                                          .norm1_weight = x[3],
                                          .norm1_bias = x[4],
                                          .up_weight = x[5],
                                          .up_bias = x[6],
                                          .down_weight = x[7],
                                          .norm2_weight = x[8],
                                          .activation = MICA_SCALAR_GELU_ERF,
                                          .eps1 = 0.01f,
                                          .eps2 = 0.02f};
    return mica_graph_transformer_layer(g, x[0], &layer);
}
static mica_tensor route_weights(mica_graph *g, const mica_tensor *x)
{
    mica_tensor weights;
    (void)mica_graph_route(g, x[0], 0, 0, 2, NULL, &weights);
    return weights;
}
static mica_tensor moe(mica_graph *g, const mica_tensor *x)
{
    const mica_moe_block block = {.router_weight = x[1],
                                  .gate_weight = x[2],
                                  .up_weight = x[3],
                                  .down_weight = x[4],
                                  .shared_up = x[5],
                                  .shared_down = x[6],
                                  .shared_scale = x[7],
                                  .experts_used = 2,
                                  .activation = MICA_SCALAR_SILU,
                                  .route = {.softmax_first = 1}};
    return mica_graph_moe(g, x[0], &block);
}
static mica_tensor rnn_cells(mica_graph *g, const mica_tensor *x)
{
    mica_tensor next;
    const mica_graph_sequences sequences = {.state = x[2]};
    (void)mica_graph_rnn_cells(g, x[0], x[1], 0, &sequences, NULL, &next);
    return next;
}
static mica_tensor quantize_biases(mica_graph *g, const mica_tensor *x)
{
    mica_tensor biases;
    const mica_graph_quantizer by = {.low = 0, .high = 15};
    (void)mica_graph_quantize_scales(g, x[0], &by, 1, &biases);
    return biases;
}
/* a a^T + 1 on the diagonal: positive definite. */
static mica_tensor positive(mica_graph *g, mica_tensor a)
{
    return mica_graph_add(g, mica_graph_matmul(g, a, mica_graph_transpose(g, a)),
                          mica_graph_eye(g, MICA_DTYPE_F32, 3, 3, 0));
}

#define ROW(name, inputs, result, ...)                                   \
    static mica_tensor build_##name(mica_graph *g, const mica_tensor *x) \
    {                                                                    \
        (void)x;                                                         \
        return __VA_ARGS__;                                              \
    }
#include "graph/builder_rows.def"
#undef ROW

static const builder_case builder_cases[] = {
#define ROW(name, inputs, result, ...) {#name, inputs, result, build_##name},
#include "graph/builder_rows.def"
#undef ROW
};
enum { BUILDER_CASES = sizeof builder_cases / sizeof builder_cases[0] };

#endif
