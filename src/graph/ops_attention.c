/*
 * ops_attention.c - attention and its caches as nodes. Batches are one sequence of B H heads: head b H + h of the queries reads head b G + h / (H / G) of the keys, so
 * that every mask and every gradient is that of the op.
 */
#include "graph/ops_build.h"
#include "graph/ops_heads.h"

#define CALL "attention"

/* ---- layouts ---- */

bool mica__heads_take(mica_graph *graph, const char *call, const char *argument, mica_tensor x,
                      mica_head_layout layout, uint64_t heads, mica__heads *out)
{
    static const uint32_t ranks[] = {3, 4, 4, 3};
    mica__type type;
    if ((unsigned)layout > MICA_HEADS_TOGETHER)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "layout is %u, which is no mica_head_layout", (unsigned)layout) != 0;
    if (!mica__build_takes_rank(graph, call, argument, x, ranks[layout], ranks[layout], &type))
        return false;
    const uint64_t *s = type.shape;
    *out = (mica__heads){.tensor = x, .layout = layout, .dtype = type.dtype, .batch = s[0]};
    if (layout == MICA_HEADS_TOGETHER) {
        if (heads == 0 || !mica__size_known(s[2]) || s[2] % heads != 0)
            return mica__build_refuse(graph, call, argument, &type,
                                      "is not of %llu heads in its last dimension",
                                      (unsigned long long)heads) != 0;
        out->tokens = s[1];
        out->heads = heads;
        out->dim = s[2] / heads;
        return true;
    }
    out->batch = layout == MICA_HEADS_TOKENS ? 1 : s[0];
    out->tokens = layout == MICA_HEADS_TOKENS ? s[0] : s[layout == MICA_HEADS_FIRST ? 2 : 1];
    out->heads = layout == MICA_HEADS_TOKENS || layout == MICA_HEADS_FIRST ? s[1] : s[2];
    out->dim = s[type.ndim - 1];
    return true;
}

/* [B, S, H, D] or [B, H, S, D] with the tokens first: [S, B H, D]. */
static mica_tensor folded(mica_graph *graph, const mica__heads *x)
{
    static const uint32_t behind[] = {1, 0, 2, 3}, first[] = {2, 0, 1, 3};
    mica_tensor y = x->tensor;
    if (x->layout == MICA_HEADS_TOKENS)
        return y;
    if (x->layout == MICA_HEADS_TOGETHER)
        y = mica__build_reshape(graph, y, 4, (const uint64_t[]){x->batch, x->tokens, x->heads, x->dim});
    y = y == 0 ? 0 : mica_graph_permute(graph, y, x->layout == MICA_HEADS_FIRST ? first : behind);
    return mica__build_merge(graph, y, 1, 3);
}

/* Back, of heads of `dim` numbers; `dim` 0: one number for each head and no dimension for it. */
static mica_tensor unfolded(mica_graph *graph, mica_tensor y, const mica__heads *x, uint64_t dim)
{
    static const uint32_t behind[] = {1, 0, 2, 3}, first[] = {1, 2, 0, 3};
    if (x->layout == MICA_HEADS_TOKENS || y == 0)
        return y;
    const uint32_t ndim = dim == 0 ? 3 : 4;
    y = mica__build_reshape(graph, y, ndim, (const uint64_t[]){x->tokens, x->batch, x->heads, dim});
    y = y == 0 ? 0 : mica_graph_permute(graph, y, x->layout == MICA_HEADS_FIRST ? first : behind);
    return x->layout == MICA_HEADS_TOGETHER && dim != 0 ? mica__build_merge(graph, y, 2, 4) : y;
}

/* [H] for each of B H heads. */
static mica_tensor for_heads(mica_graph *graph, const char *name, mica_tensor x, const mica__heads *q)
{
    mica__type type;
    if (x == 0 || !mica__build_takes_rank(graph, CALL, name, x, 1, 1, &type))
        return 0;
    if (!mica__sizes_agree(type.shape[0], q->heads))
        return mica__build_refuse(graph, CALL, name, &type, "is not of the %llu heads of q",
                                  (unsigned long long)q->heads);
    if (q->batch == 1)
        return x;
    const mica_tensor y =
        mica__build_expand(graph, CALL, name, x, 2, (const uint64_t[]){q->batch, type.shape[0]});
    return mica__build_merge(graph, y, 0, 2);
}

/* ---- masks ---- */

/* A mask that broadcasts to [B, H, S, keys] as the op takes it. */
static mica_tensor as_mask(mica_graph *graph, mica_tensor mask, const mica__heads *q, uint64_t keys)
{
    const uint64_t whole[] = {q->batch, q->heads, q->tokens, keys};
    const uint32_t most = q->layout == MICA_HEADS_TOKENS ? 3 : 4;
    uint64_t shape[4];
    mica__type type;
    if (mask == 0 || !mica__build_takes_rank(graph, CALL, "mask", mask, 1, most, &type))
        return 0;
    for (uint32_t d = 0; d < 4; d++) {
        shape[d] = d + type.ndim < 4 ? 1 : type.shape[d + type.ndim - 4];
        if (shape[d] != 1 && !mica__sizes_agree(shape[d], whole[d]))
            return mica__build_refuse(
                graph, CALL, "mask", &type,
                "does not broadcast to %llu sequences, %llu heads, %llu queries and %llu keys",
                (unsigned long long)whole[0], (unsigned long long)whole[1], (unsigned long long)whole[2],
                (unsigned long long)whole[3]);
    }
    if (shape[0] == 1 && shape[1] == 1) { /* all heads have the same */
        const mica_tensor flat = type.ndim <= 2 ? mask : mica__build_reshape(graph, mask, 2, shape + 2);
        return flat == 0 ? 0 : mica__build_expand(graph, CALL, "mask", flat, 2, whole + 2);
    }
    if (q->batch == 1) {
        const mica_tensor flat = type.ndim == 3 ? mask : mica__build_reshape(graph, mask, 3, shape + 1);
        return flat == 0 ? 0 : mica__build_expand(graph, CALL, "mask", flat, 3, whole + 1);
    }
    return mica__build_merge(graph, mica__build_expand(graph, CALL, "mask", mask, 4, whole), 0, 2);
}

/* Which keys a query sees whose place may be below 0, where the op would look for none and say so: bool [S, keys]. */
static mica_tensor seen(mica_graph *graph, const mica_graph_attention_desc *desc, uint64_t tokens,
                        uint64_t keys, int64_t offset)
{
    const uint64_t shape[] = {tokens, keys};
    const mica_tensor key = mica_graph_index(graph, MICA_DTYPE_I64, 2, shape, 1);
    const mica_tensor place = mica_graph_add(graph, mica_graph_index(graph, MICA_DTYPE_I64, 2, shape, 0),
                                             mica_graph_number(graph, MICA_DTYPE_I64, (double)offset));
    const mica_tensor before = mica_graph_less_equal(graph, key, place);
    if (desc->window == 0 || before == 0)
        return before;
    const mica_tensor first =
        mica_graph_sub(graph, place, mica_graph_number(graph, MICA_DTYPE_I64, (double)desc->window));
    return mica_graph_bit_and(graph, before, mica_graph_greater(graph, key, first));
}

static mica_tensor with_mask(mica_graph *graph, mica_tensor allowed, mica_tensor mask)
{
    if (mask == 0 || allowed == 0)
        return allowed;
    if (mica__type_of(graph, mask)->dtype == MICA_DTYPE_BOOL)
        return mica_graph_bit_and(graph, allowed, mask);
    return mica_graph_select(graph, allowed, mask, mica__build_number(graph, mask, -INFINITY));
}

/* ---- places ---- */

/* A size as one i32, [1]: a number, or what it is once it is known. */
static mica_tensor size_tensor(mica_graph *graph, uint64_t size)
{
    const int32_t number = (int32_t)size;
    const mica_reduce_params sum = {.kind = MICA_REDUCE_SUM, .keep_dims = 1};
    if (mica__size_known(size))
        return mica_graph_constant(graph, MICA_DTYPE_I32, 1, (const uint64_t[]){1}, &number, sizeof number);
    const mica_tensor ones = mica_graph_fill(graph, MICA_DTYPE_I32, 1, &size, 1);
    return ones == 0 ? 0 : mica__build_op(graph, MICA_OP_REDUCE, &sum, &ones, 1);
}

/* The places of the queries: index + offset (+ keys - queries). */
static mica_tensor places(mica_graph *graph, const mica_graph_attention_desc *desc, uint64_t tokens,
                          uint64_t keys, int64_t offset)
{
    mica_tensor place = mica_graph_index(graph, MICA_DTYPE_I32, 1, &tokens, 0);
    if (offset != 0)
        place = mica_graph_add(graph, place, mica_graph_number(graph, MICA_DTYPE_I32, (double)offset));
    const bool computed =
        desc->from_start == 0 && tokens != keys && !(mica__size_known(tokens) && mica__size_known(keys));
    if (computed && desc->causal + (desc->slopes != 0) != 0) {
        const mica_tensor more = mica_graph_sub(graph, size_tensor(graph, keys), size_tensor(graph, tokens));
        place = mica_graph_add(graph, place, more);
    }
    return place;
}

/* ---- the op ---- */

mica_tensor mica_graph_attention_cached(mica_graph *graph, const mica_graph_attention_operands *operands,
                                        const mica_attention_params *params, mica_tensor *out_lse)
{
    mica_tensor out[2] = {0, 0};
    if (out_lse != NULL)
        *out_lse = 0;
    if (!mica__graph_begins(graph, "attention_cached"))
        return 0;
    if (operands == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "attention_cached", "operands is NULL");
    const mica_graph_attention_operands *o = operands;
    const mica_tensor inputs[] = {o->q,     o->k,    o->v,     o->positions, o->lengths, o->sequences,
                                  o->pages, o->mask, o->sinks, o->slopes,    o->keys};
    const mica__type *type = o->q != 0 ? mica__graph_takes(graph, CALL, "q", o->q) : NULL;
    const bool wide = type != NULL && type->dtype == MICA_DTYPE_F64;
    const mica_operand_desc asked[2] = {
        {.ndim = MICA_RANK_UNKNOWN},
        {.dtype = wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32, .ndim = MICA_RANK_UNKNOWN}};
    const mica_tensor y =
        mica_graph_op(graph, MICA_OP_ATTENTION, params, inputs, 11, out_lse != NULL ? 3 : 1, asked, out, 2);
    if (out_lse != NULL)
        *out_lse = out[1];
    return y;
}

static bool takes_desc(mica_graph *graph, const mica_graph_attention_desc *desc, mica_tensor q, mica_tensor k,
                       mica_tensor v, mica__heads out[3])
{
    mica__type type;
    if (!mica__heads_take(graph, CALL, "q", q, desc->layout, desc->heads, &out[0]))
        return false;
    uint64_t own = 0; /* heads of k and v, where they are together with the numbers */
    if (desc->layout == MICA_HEADS_TOGETHER) {
        if (!mica__build_takes_rank(graph, CALL, "k", k, 3, 3, &type))
            return false;
        if (!mica__size_known(type.shape[2]) || out[0].dim == 0 || type.shape[2] % out[0].dim != 0)
            return mica__build_refuse(graph, CALL, "k", &type,
                                      "is not of heads of %llu numbers, as q has them",
                                      (unsigned long long)out[0].dim) != 0;
        own = type.shape[2] / out[0].dim;
    }
    if (!mica__heads_take(graph, CALL, "k", k, desc->layout, own, &out[1]) ||
        !mica__heads_take(graph, CALL, "v", v, desc->layout, own, &out[2]))
        return false;
    for (uint32_t i = 1; i < 3; i++)
        if (!mica__sizes_agree(out[i].batch, out[0].batch) ||
            !mica__sizes_agree(out[i].tokens, out[1].tokens) ||
            !mica__sizes_agree(out[i].heads, out[1].heads)) {
            const mica__type own_type = *mica__type_of(graph, out[i].tensor);
            return mica__build_refuse(graph, CALL, i == 1 ? "k" : "v", &own_type,
                                      "has other sequences, keys or heads than %s", i == 1 ? "q" : "k") != 0;
        }
    if (desc->window != 0 && desc->causal == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, CALL,
                                "desc.window is %u, but desc.causal is 0", desc->window) != 0;
    return true;
}

/* The offset as far as it is a number; whether places may be below 0. */
static bool needs_mask(const mica_graph_attention_desc *desc, const mica__heads *q, const mica__heads *k,
                       int64_t *out_offset)
{
    *out_offset = desc->offset;
    if (desc->from_start == 0 && q->tokens != k->tokens && mica__size_known(q->tokens) &&
        mica__size_known(k->tokens))
        *out_offset += (int64_t)k->tokens - (int64_t)q->tokens;
    if (desc->causal == 0 && desc->slopes == 0)
        *out_offset = 0; /* nobody asks */
    return *out_offset < 0 && desc->positions == 0;
}

mica_tensor mica_graph_attention(mica_graph *graph, mica_tensor q, mica_tensor k, mica_tensor v,
                                 const mica_graph_attention_desc *given, mica_tensor *out_lse)
{
    const mica_graph_attention_desc none = {.layout = MICA_HEADS_TOKENS},
                                    *desc = given != NULL ? given : &none;
    mica__heads all[3];
    int64_t offset;
    if (out_lse != NULL)
        *out_lse = 0;
    if (!mica__graph_begins(graph, CALL) || !takes_desc(graph, desc, q, k, v, all))
        return 0;
    mica_attention_params params = {.scale = desc->scale,
                                    .softcap = desc->softcap,
                                    .window = desc->window,
                                    .bidirectional = desc->causal == 0};
    const uint64_t tokens = all[0].tokens, keys = all[1].tokens;
    const bool masked = needs_mask(desc, &all[0], &all[1], &offset);
    if (masked && (desc->slopes != 0 || desc->causal == 0))
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, CALL,
                                "desc.offset leaves queries at places below 0, which slopes do not have");
    mica_tensor mask = as_mask(graph, desc->mask, &all[0], keys);
    if (masked) {
        mask = with_mask(graph, seen(graph, desc, tokens, keys, offset), mask);
        params.window = 0;
        params.bidirectional = 1;
        offset = 0;
    }
    const mica_graph_attention_operands operands = {
        .q = folded(graph, &all[0]),
        .k = folded(graph, &all[1]),
        .v = folded(graph, &all[2]),
        .positions = desc->positions != 0 ? desc->positions : places(graph, desc, tokens, keys, offset),
        .lengths = size_tensor(graph, keys),
        .mask = mask,
        .sinks = for_heads(graph, "sinks", desc->sinks, &all[0]),
        .slopes = for_heads(graph, "slopes", desc->slopes, &all[0])};
    if (graph->status != MICA_OK)
        return mica__build_end(graph, CALL, 0);
    mica_tensor y = mica_graph_attention_cached(graph, &operands, &params, out_lse);
    y = unfolded(graph, y, &all[0], all[2].dim);
    if (out_lse != NULL)
        *out_lse = unfolded(graph, *out_lse, &all[0], 0);
    return mica__build_end(graph, CALL, y);
}

mica_tensor mica_graph_attention_backward(mica_graph *graph, const mica_graph_attention_operands *operands,
                                          const mica_attention_params *params, mica_tensor y, mica_tensor lse,
                                          mica_tensor dy, mica_tensor *out_dk, mica_tensor *out_dv,
                                          mica_tensor *out_dsinks)
{
    mica_tensor out[4] = {0};
    if (!mica__graph_begins(graph, "attention_backward"))
        return 0;
    const mica_graph_attention_operands *o = operands;
    if (o == NULL || o->sequences != 0 || o->pages != 0 || o->keys != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "attention_backward", "operands %s",
                                o == NULL ? "is NULL" : "has sequences, pages or keys");
    const mica_tensor inputs[] = {o->q,     o->k,      o->v, o->positions, o->lengths, o->mask,
                                  o->sinks, o->slopes, y,    lse,          dy};
    const mica_tensor dq = mica_graph_op(graph, MICA_OP_ATTENTION_BACKWARD, params, inputs, 11,
                                         7u | (out_dsinks != NULL ? 8u : 0u), NULL, out, 4);
    if (out_dk != NULL)
        *out_dk = out[1];
    if (out_dv != NULL)
        *out_dv = out[2];
    if (out_dsinks != NULL)
        *out_dsinks = out[3];
    return dq;
}

mica_tensor mica_graph_kv_write(mica_graph *graph, mica_tensor cache, mica_tensor x, mica_tensor positions,
                                mica_tensor sequences, mica_tensor pages, const mica_kv_params *params)
{
    return mica__build_op(graph, MICA_OP_KV_WRITE, params,
                          (const mica_tensor[]){x, positions, sequences, pages, cache}, 5);
}
