/*
 * ops_layer.c - attention blocks and transformer layers, of nodes that passes and fusion know.
 */
#include "graph/ops_build.h"

#define BLOCK "attention_block"
#define LAYER "transformer_layer"

/* q, k and v of one product, apart: [B, S, heads, dim] each. */
static bool split_heads(mica_graph *graph, mica_tensor qkv, const mica_attention_block *block,
                        uint32_t kv_heads, uint64_t dim, mica_tensor *out)
{
    const mica__type type = *mica__type_of(graph, qkv);
    const uint64_t heads[] = {block->heads, kv_heads, kv_heads};
    uint64_t begin = 0;
    if (!mica__sizes_agree(type.shape[2], (block->heads + 2ull * kv_heads) * dim))
        return mica__build_refuse(
                   graph, BLOCK, "qkv_weight", &type,
                   "is the product's shape, which is not of %u and twice %u heads of %llu numbers",
                   block->heads, kv_heads, (unsigned long long)dim) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        const mica_tensor part = mica_graph_slice(graph, qkv, 2, begin, heads[i] * dim, 1);
        out[i] = mica__build_reshape(graph, part, 4,
                                     (const uint64_t[]){type.shape[0], type.shape[1], heads[i], dim});
        begin += heads[i] * dim;
    }
    return graph->status == MICA_OK;
}

/* Tables [S, dim / 2] stand beside [B, S, heads, dim]. */
static bool rotate(mica_graph *graph, const mica_attention_block *block, mica_tensor *qk)
{
    mica__type c, s;
    if (!mica__build_takes_rank(graph, BLOCK, "cosines", block->cosines, 2, 2, &c) ||
        !mica__build_takes_rank(graph, BLOCK, "sines", block->sines, 2, 2, &s))
        return false;
    const mica_tensor cosines = mica__build_insert(graph, block->cosines, 1),
                      sines = mica__build_insert(graph, block->sines, 1);
    for (uint32_t i = 0; i < 2; i++)
        qk[i] = mica_graph_rope_tables(graph, qk[i], cosines, sines, MICA_ROPE_NEOX);
    return graph->status == MICA_OK;
}

mica_tensor mica_graph_attention_block(mica_graph *graph, mica_tensor hidden,
                                       const mica_attention_block *block)
{
    mica__type type, out;
    mica_tensor part[3];
    if (!mica__graph_begins(graph, BLOCK) ||
        !mica__build_takes_rank(graph, BLOCK, "hidden", hidden, 3, 3, &type))
        return 0;
    if (block == NULL || block->heads == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, BLOCK, "block %s",
                                block == NULL ? "is NULL" : "has no heads");
    if (!mica__build_takes_rank(graph, BLOCK, "out_weight", block->out_weight, 2, 2, &out))
        return 0;
    if (!mica__size_known(out.shape[1]) || out.shape[1] % block->heads != 0)
        return mica__build_refuse(graph, BLOCK, "out_weight", &out, "is not of %u heads", block->heads);
    const uint64_t dim = out.shape[1] / block->heads;
    const mica_tensor qkv = mica_graph_linear(graph, hidden, block->qkv_weight, block->qkv_bias);
    if (qkv == 0 ||
        !split_heads(graph, qkv, block, block->kv_heads != 0 ? block->kv_heads : block->heads, dim, part) ||
        (block->cosines != 0 && !rotate(graph, block, part)))
        return mica__build_end(graph, BLOCK, 0);
    mica_graph_attention_desc desc = block->attention;
    desc.layout = MICA_HEADS_BEHIND;
    const mica_tensor seen = mica_graph_attention(graph, part[0], part[1], part[2], &desc, NULL);
    const mica_tensor y = mica__build_merge(graph, seen, 2, 4);
    return mica__build_end(graph, BLOCK,
                           y == 0 ? 0 : mica_graph_linear(graph, y, block->out_weight, block->out_bias));
}

mica_tensor mica_graph_transformer_layer(mica_graph *graph, mica_tensor hidden,
                                         const mica_transformer_layer *layer)
{
    if (!mica__graph_begins(graph, LAYER))
        return 0;
    if (layer == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, LAYER, "layer is NULL");
    if ((uint32_t)layer->activation >= MICA_SCALAR_COUNT)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, LAYER, "layer.activation is %d",
                                (int)layer->activation);
    const mica_tensor seen = mica_graph_attention_block(graph, hidden, &layer->attention);
    const mica_tensor h =
        seen == 0 ? 0
                  : mica_graph_residual_norm(graph, MICA_NORMALIZE_LAYER, hidden, seen, 0,
                                             layer->norm1_weight, layer->norm1_bias, layer->eps1, NULL);
    const mica_tensor up = h == 0 ? 0 : mica_graph_linear(graph, h, layer->up_weight, layer->up_bias);
    const mica_tensor act = up == 0 ? 0 : mica_graph_scalar(graph, layer->activation, up, 0, 0);
    const mica_tensor f = act == 0 ? 0 : mica_graph_linear(graph, act, layer->down_weight, layer->down_bias);
    const mica_tensor y =
        f == 0 ? 0
               : mica_graph_residual_norm(graph, MICA_NORMALIZE_LAYER, h, f, 0, layer->norm2_weight,
                                          layer->norm2_bias, layer->eps2, NULL);
    return mica__build_end(graph, LAYER, y);
}
