/*
 * ops_sequence.c - operators of sequence models besides attention: rotary positions, caches, gates, causal convolutions, embeddings, linear attention.
 */
#include <math.h>
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rotary.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

/* ---- rotary positions ----------------------------------------------------------------------------------- */

/* A table [batch, 1, tokens, half] of the tokens' positions. */
static mica_tensor rows_of(const mica__ox_op *o, const mica__ox_rotary *by, mica_tensor table,
                           const mica__type *x)
{
    const mica__type t = mica__ox_type(o, table), at = mica__ox_type(o, by->at);
    if (by->at != 0) {
        const mica_tensor ids = mica__ox_reshape(o, mica__ox_cast(o, by->at, MICA_DTYPE_I32), 1,
                                                 (const uint64_t[]){MICA_SIZE_REST});
        table = mica__ox_op1(o, MICA_OP_GATHER, NULL, (const mica_tensor[]){table, ids}, 2);
        return mica__ox_reshape(o, table, 4, (const uint64_t[]){at.shape[0], 1, at.shape[1], t.shape[1]});
    }
    return mica__ox_reshape(o, table, 4,
                            (const uint64_t[]){x->shape[0], 1, x->shape[2], t.shape[t.ndim - 1]});
}

mica_status mica__ox_rotate(mica__ox_op *o, const mica__ox_rotary *by, mica_tensor *x)
{
    const mica__type t = mica__ox_type(o, *x), c = mica__ox_type(o, by->cos);
    if (by->cos == 0 || by->sin == 0 || t.ndim != 4 || c.ndim < 2 || !mica__size_known(c.shape[c.ndim - 1]) ||
        !mica__size_known(t.shape[3]) || 2 * c.shape[c.ndim - 1] > t.shape[3] ||
        (by->at != 0 && (c.ndim != 2 || mica__ox_type(o, by->at).ndim != 2)))
        return mica__ox_fail(o, "of such shapes");
    const uint64_t half = c.shape[c.ndim - 1], rest = t.shape[3] - 2 * half;
    const mica_tensor cosine = rows_of(o, by, by->cos, &t), sine = rows_of(o, by, by->sin, &t);
    const mica_tensor rotated = mica__ox_slice(o, *x, 3, 0, 2 * half);
    const mica_tensor a = mica_graph_slice(o->graph, rotated, 3, 0, half, by->interleaved ? 2 : 1);
    const mica_tensor b =
        mica_graph_slice(o->graph, rotated, 3, by->interleaved ? 1 : half, half, by->interleaved ? 2 : 1);
    mica_tensor y[3] = {binary(o, MICA_SCALAR_SUB, binary(o, MICA_SCALAR_MUL, a, cosine),
                               binary(o, MICA_SCALAR_MUL, b, sine)),
                        binary(o, MICA_SCALAR_ADD, binary(o, MICA_SCALAR_MUL, a, sine),
                               binary(o, MICA_SCALAR_MUL, b, cosine)),
                        0};
    if (by->interleaved) {
        mica_tensor pairs[2] = {mica__ox_unsqueeze(o, y[0], 4), mica__ox_unsqueeze(o, y[1], 4)};
        const mica_tensor joined = mica_graph_concat(o->graph, pairs, 2, 4);
        y[0] =
            mica__ox_reshape(o, joined, 4, (const uint64_t[]){t.shape[0], t.shape[1], t.shape[2], 2 * half});
        y[1] = rest == 0 ? 0 : mica__ox_slice(o, *x, 3, 2 * half, rest);
        *x = rest == 0 ? y[0] : mica_graph_concat(o->graph, y, 2, 3);
    } else {
        y[2] = rest == 0 ? 0 : mica__ox_slice(o, *x, 3, 2 * half, rest);
        *x = mica_graph_concat(o->graph, y, rest == 0 ? 2 : 3, 3);
    }
    return mica_graph_status(o->graph);
}

/* ONNX's: X, cos_cache, sin_cache, position_ids; com.microsoft's: X, position_ids, cos_cache, sin_cache. */
mica_status mica__ox_rotary_embedding(mica__ox_op *o)
{
    const bool microsoft = o->row->argument != 0;
    mica__ox_rotary by = {.interleaved = mica__ox_int(o, "interleaved", 0) != 0};
    const uint64_t dims = (uint64_t)mica__ox_int(o, "rotary_embedding_dim", 0);
    uint64_t heads = (uint64_t)mica__ox_int(o, "num_heads", 0);
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    if (microsoft && (mica__ox_float(o, "scale", 1) != 1.0f || mica__ox_int(o, "is_packed_batching", 0) != 0))
        return mica__ox_fail(o, "scale or is_packed_batching");
    by.cos = mica__ox_in(o, microsoft ? 2 : 1);
    by.sin = mica__ox_in(o, microsoft ? 3 : 2);
    by.at = mica__ox_in(o, microsoft ? 1 : 3);
    const mica__type table = mica__ox_type(o, by.cos);
    if (table.ndim < 2 || type.ndim < 3 || (microsoft && by.at == 0))
        return mica__ox_fail(o, "of such shapes");
    const uint64_t half = table.shape[table.ndim - 1];
    if (dims != 0 && dims != 2 * half)
        return mica__ox_fail(o, "tables of another width than rotary_embedding_dim");
    if (microsoft && type.ndim == 3 && heads == 0)
        heads = dims == 0 && half != 0 ? type.shape[2] / (2 * half) : 0;
    if (type.ndim == 3 && heads == 0)
        return mica__ox_fail(o, "without num_heads");
    if (microsoft && mica__ox_type(o, by.at).ndim == 1) { /* where the first token stands */
        const uint64_t shape[2] = {type.shape[0], type.shape[type.ndim == 3 ? 1 : 2]};
        by.at = binary(o, MICA_SCALAR_ADD, mica__ox_iota(o, 2, shape, 1, MICA_DTYPE_I64), by.at);
    }
    if (type.ndim == 3) {
        x = mica__ox_reshape(o, x, 4,
                             (const uint64_t[]){type.shape[0], type.shape[1], heads, type.shape[2] / heads});
        x = mica__ox_swap(o, x, 1, 2);
    }
    MICA__TRY(mica__ox_rotate(o, &by, &x));
    if (type.ndim == 3)
        x = mica__ox_reshape(o, mica__ox_swap(o, x, 1, 2), 3, type.shape);
    mica__ox_out(o, 0, x);
    return MICA_OK;
}

/* ---- caches, gates -------------------------------------------------------------------------------------- */

mica_status mica__ox_tensor_scatter(mica__ox_op *o)
{
    static const char *const words[] = {"linear", "circular", NULL};
    const mica_tensor cache = mica__ox_in(o, 0), update = mica__ox_in(o, 1);
    const mica__type t = mica__ox_type(o, cache), u = mica__ox_type(o, update);
    const uint32_t mode = mica__ox_word(o, "mode", 0, words);
    mica_scatter_params params = {.mode = MICA_SCATTER_SET};
    uint64_t shape[MICA_MAX_DIMS];
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -2), t.ndim, &params.axis));
    MICA__TRY(mica__ox_need_shape(o, cache, "past_cache"));
    if (mode == UINT32_MAX || params.axis == 0 || u.ndim != t.ndim)
        return mica__ox_fail(o, "such a mode, axis or shapes");
    for (uint32_t d = 0; d < t.ndim; d++)
        shape[d] = d == 0 || d == params.axis ? u.shape[d] : 1;
    mica_tensor at = mica__ox_iota(o, t.ndim, shape, params.axis, MICA_DTYPE_I32);
    if (mica__ox_has(o, 2))
        at = binary(o, MICA_SCALAR_ADD, at,
                    mica__ox_along(o, mica__ox_cast(o, mica__ox_in(o, 2), MICA_DTYPE_I32), t.ndim, 0));
    if (mode == 1)
        at = binary(o, MICA_SCALAR_MOD, at, mica__ox_number(o, at, (double)t.shape[params.axis]));
    mica__ox_out(o, 0,
                 mica__ox_op1(o, MICA_OP_SCATTER, &params, (const mica_tensor[]){update, at, cache}, 3));
    return MICA_OK;
}

mica_status mica__ox_swiglu(mica__ox_op *o)
{
    const mica_dtype dtype = mica__ox_in_type(o, 0).dtype;
    const mica_dtype inside = dtype == MICA_DTYPE_F64 ? dtype : MICA_DTYPE_F32;
    const mica_tensor a = mica__ox_cast(o, mica__ox_in(o, 0), inside),
                      b = mica__ox_cast(o, mica__ox_in(o, 1), inside);
    const mica_tensor scaled =
        binary(o, MICA_SCALAR_MUL, a, mica__ox_number(o, a, (double)mica__ox_float(o, "alpha", 1)));
    const mica_tensor gate =
        binary(o, MICA_SCALAR_MUL, a, mica__ox_scalar(o, MICA_SCALAR_SIGMOID, scaled, 0));
    mica__ox_out(o, 0, mica__ox_cast(o, binary(o, MICA_SCALAR_MUL, gate, b), dtype));
    return MICA_OK;
}

/* What came before, then a convolution of each channel. */
mica_status mica__ox_causal_conv(mica__ox_op *o)
{
    static const char *const words[] = {"none", "silu", "swish", NULL};
    const mica__type t = mica__ox_in_type(o, 0), w = mica__ox_in_type(o, 1);
    const uint32_t activation = mica__ox_word(o, "activation", 0, words);
    mica_tensor x = mica__ox_in(o, 0);
    MICA__TRY(mica__ox_need_shape(o, x, "input"));
    if (t.ndim != 3 || w.ndim != 3 || !mica__size_known(w.shape[2]) || w.shape[2] == 0 ||
        activation == UINT32_MAX)
        return mica__ox_fail(o, "of such shapes or activation");
    const uint64_t before = w.shape[2] - 1;
    const mica_conv_params params = {.groups = (uint32_t)t.shape[1]};
    mica_pad_params zeros = {.mode = MICA_PAD_CONSTANT};
    zeros.low[2] = (int64_t)before;
    x = mica__ox_has(o, 3) && before != 0
            ? mica_graph_concat(o->graph, (const mica_tensor[]){mica__ox_in(o, 3), x}, 2, 2)
        : before != 0 ? mica__ox_op1(o, MICA_OP_PAD, &zeros, &x, 1)
                      : x;
    mica_tensor y = mica__ox_op1(o, MICA_OP_CONV, &params,
                                 (const mica_tensor[]){x, mica__ox_in(o, 1), mica__ox_in(o, 2)}, 3);
    if (activation != 0)
        y = mica__ox_scalar(o, MICA_SCALAR_SILU, y, 0);
    mica__ox_out(o, 0, y);
    mica__ox_out(o, 1, mica__ox_slice(o, x, 2, t.shape[2], before));
    return MICA_OK;
}

/* input_ids, segment_ids, words, positions, segments, gamma, beta, mask, position_ids */
mica_status mica__ox_embed_layer_norm(mica__ox_op *o)
{
    const mica__type ids = mica__ox_in_type(o, 0), words = mica__ox_in_type(o, 2);
    const mica_normalize_params params = {
        .kind = MICA_NORMALIZE_LAYER, .dims = 1, .eps = mica__ox_float(o, "epsilon", 1e-12f)};
    const uint64_t flat[] = {MICA_SIZE_REST};
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "input_ids"));
    if (ids.ndim != 2 || words.ndim != 2 || mica__ox_int(o, "mask_index_type", 0) != 0 ||
        mica__ox_wants(o, 1))
        return mica__ox_fail(o, "of such shapes, or with a mask that is wanted");
    const uint64_t shape[3] = {ids.shape[0], ids.shape[1], words.shape[1]};
    const mica_tensor tables[3] = {mica__ox_in(o, 2), mica__ox_in(o, 3), mica__ox_in(o, 4)};
    mica_tensor places[3] = {mica__ox_in(o, 0), mica__ox_in(o, 8), mica__ox_in(o, 1)}, sum = 0;
    if (places[1] == 0)
        places[1] = mica__ox_iota(o, 2, shape, 1, MICA_DTYPE_I32);
    for (uint32_t i = 0; i < 3; i++) {
        if (tables[i] == 0 || places[i] == 0)
            continue;
        const mica_tensor at = mica__ox_reshape(o, mica__ox_cast(o, places[i], MICA_DTYPE_I32), 1, flat);
        mica_tensor rows = mica__ox_op1(o, MICA_OP_GATHER, NULL, (const mica_tensor[]){tables[i], at}, 2);
        const uint64_t batch = mica__ox_type(o, places[i]).shape[0];
        rows = mica__ox_reshape(o, rows, 3, (const uint64_t[]){batch, shape[1], shape[2]});
        sum = sum == 0 ? rows : binary(o, MICA_SCALAR_ADD, sum, rows);
    }
    mica__ox_out(o, 0,
                 mica__ox_op1(o, MICA_OP_NORMALIZE, &params,
                              (const mica_tensor[]){sum, mica__ox_in(o, 5), mica__ox_in(o, 6)}, 3));
    mica__ox_out(o, 2, sum);
    return MICA_OK;
}
