/*
 * ops_rope.c - rotary embeddings as nodes. The op rotates [tokens, heads, dim] by a position for each token; other layouts become that.
 */
#include "graph/ops_heads.h"

mica_tensor mica_graph_rope(mica_graph *graph, mica_tensor x, mica_tensor positions, mica_tensor factors,
                            const mica_rope_params *params)
{
    if (!mica__graph_begins(graph, "rope"))
        return 0;
    if (params == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "rope", "params is NULL");
    return mica__build_op(graph, MICA_OP_ROPE, params, (const mica_tensor[]){x, positions, factors}, 3);
}

mica_tensor mica_graph_rope_backward(mica_graph *graph, mica_tensor dy, mica_tensor positions,
                                     mica_tensor factors, const mica_rope_params *params)
{
    mica_rope_params back = {.theta = 0};
    if (params != NULL) {
        back = *params;
        back.position_scale = params->position_scale == 0.0f ? -1.0f : -params->position_scale;
    }
    if (!mica__graph_begins(graph, "rope_backward"))
        return 0;
    return mica__build_end(graph, "rope_backward",
                           mica_graph_rope(graph, dy, positions, factors, params == NULL ? NULL : &back));
}

mica_tensor mica_graph_rope_2d(mica_graph *graph, mica_tensor x, mica_tensor positions,
                               const mica_rope_params *params)
{
    static const char call[] = "rope_2d";
    mica__type type, places;
    mica_tensor half[2];
    if (!mica__graph_begins(graph, call) || !mica__build_takes_rank(graph, call, "x", x, 2, 3, &type) ||
        !mica__build_takes_rank(graph, call, "positions", positions, 2, 2, &places))
        return 0;
    const uint64_t dim = type.shape[type.ndim - 1];
    if (!mica__size_known(dim) || dim % 4 != 0)
        return mica__build_refuse(graph, call, "x", &type, "has a last dimension that is no multiple of 4");
    if (places.shape[0] != 2)
        return mica__build_refuse(graph, call, "positions", &places, "is not [2, tokens]");
    if (params == NULL || params->rotary_dims != 0 || params->axes != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "params %s",
                                params == NULL ? "is NULL" : "has rotary_dims or axes, which are to be 0");
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor row =
            mica__build_merge(graph, mica_graph_slice(graph, positions, 0, i, 1, 1), 0, 2);
        half[i] = mica_graph_rope(graph, mica_graph_slice(graph, x, type.ndim - 1, i * dim / 2, dim / 2, 1),
                                  row, 0, params);
    }
    return mica__build_end(graph, call, half[1] == 0 ? 0 : mica_graph_concat(graph, half, 2, type.ndim - 1));
}

/* Positions [S] or [B, S] for each of B S tokens. */
static mica_tensor for_tokens(mica_graph *graph, const char *call, mica_tensor positions,
                              const mica__type *type, uint64_t batch, uint64_t tokens)
{
    mica_tensor all = positions;
    if (batch != 1 && type->ndim == 1)
        all = mica__build_expand(graph, call, "positions", positions, 2, (const uint64_t[]){batch, tokens});
    return type->ndim == 1 && batch == 1 ? all : mica__build_merge(graph, all, 0, 2);
}

mica_tensor mica_graph_rope_heads(mica_graph *graph, mica_tensor x, mica_head_layout layout, uint32_t heads,
                                  mica_tensor positions, mica_tensor factors, const mica_rope_params *params)
{
    static const char call[] = "rope_heads";
    static const uint32_t order[] = {0, 2, 1, 3};
    mica__heads h;
    mica__type type, places;
    if (!mica__graph_begins(graph, call) || !mica__heads_take(graph, call, "x", x, layout, heads, &h))
        return 0;
    type = *mica__type_of(graph, x);
    if (params == NULL || params->axes != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "params %s",
                                params == NULL ? "is NULL" : "has axes: that is mica_graph_rope");
    if (positions == 0)
        positions = mica_graph_index(graph, MICA_DTYPE_I32, 1, &h.tokens, 0);
    const uint32_t most = layout == MICA_HEADS_TOKENS ? 1 : 2;
    if (!mica__build_takes_rank(graph, call, "positions", positions, 1, most, &places))
        return 0;
    const bool fits = places.ndim == 1 ? mica__sizes_agree(places.shape[0], h.tokens)
                                       : mica__sizes_agree(places.shape[0], h.batch) &&
                                             mica__sizes_agree(places.shape[1], h.tokens);
    if (!fits)
        return mica__build_refuse(graph, call, "positions", &places, "is neither [S] nor [B, S] of x");
    if (layout == MICA_HEADS_TOKENS)
        return mica__build_end(graph, call, mica_graph_rope(graph, x, positions, factors, params));
    const uint64_t apart[] = {h.batch, h.tokens, h.heads, h.dim};
    mica_tensor y = layout == MICA_HEADS_FIRST ? mica_graph_permute(graph, x, order)
                                               : mica__build_reshape(graph, x, 4, apart);
    const mica_tensor place = for_tokens(graph, call, positions, &places, h.batch, h.tokens);
    y = y == 0 || place == 0
            ? 0
            : mica_graph_rope(graph, mica__build_merge(graph, y, 0, 2), place, factors, params);
    y = y == 0 ? 0 : mica__build_reshape(graph, y, 4, apart);
    if (layout == MICA_HEADS_FIRST)
        y = y == 0 ? 0 : mica_graph_permute(graph, y, order);
    return mica__build_end(graph, call, layout == MICA_HEADS_TOGETHER ? mica__build_as(graph, y, &type) : y);
}

/* ---- by tables ---- */

/* The two of each pair, rotated. */
static bool rotate(mica_graph *graph, const mica_tensor *pair, mica_tensor cosines, mica_tensor sines,
                   mica_dtype dtype, mica_tensor *out)
{
    mica__writer w;
    mica__write_begin(&w, graph, "rope_tables");
    const st_value a = mica__write_input(&w, "x", pair[0]), b = mica__write_input(&w, "x", pair[1]);
    const st_value c = mica__write_input(&w, "cosines", cosines), s = mica__write_input(&w, "sines", sines);
    mica__write_output(&w, st_sub(st_mul(a, c), st_mul(b, s)), dtype);
    mica__write_output(&w, st_add(st_mul(b, c), st_mul(a, s)), dtype);
    return mica__write_end(&w, out) != 0;
}

mica_tensor mica_graph_rope_tables(mica_graph *graph, mica_tensor x, mica_tensor cosines, mica_tensor sines,
                                   mica_rope_mode mode)
{
    static const char call[] = "rope_tables";
    mica__type type, c, s;
    mica_tensor pair[2], part[3], y;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 1, MICA_MAX_DIMS - 1, &type) ||
        !mica__build_takes_rank(graph, call, "cosines", cosines, 1, type.ndim, &c) ||
        !mica__build_takes_rank(graph, call, "sines", sines, 1, type.ndim, &s))
        return 0;
    const uint32_t last = type.ndim - 1;
    const uint64_t dim = type.shape[last], n = c.shape[c.ndim - 1];
    const bool near = mode == MICA_ROPE_STANDARD;
    if (!mica__size_known(dim) || !mica__size_known(n) || n > dim / 2)
        return mica__build_refuse(graph, call, "cosines", &c,
                                  "has more than half of the last dimension of x");
    if (!near && mode != MICA_ROPE_NEOX)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "mode is %d", (int)mode);
    for (uint32_t i = 0; i < 2; i++)
        pair[i] = mica_graph_slice(graph, x, last, near ? i : i * n, n, near ? 2 : 1);
    if (graph->status != MICA_OK || !rotate(graph, pair, cosines, sines, type.dtype, part))
        return mica__build_end(graph, call, 0);
    if (near) {
        y = mica_graph_stack(graph, part, 2, -1);
        part[0] = mica__build_merge(graph, y, type.ndim - 1, type.ndim + 1);
    }
    uint32_t count = near ? 1 : 2;
    if (2 * n < dim)
        part[count++] = mica_graph_slice(graph, x, last, 2 * n, dim - 2 * n, 1);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    return mica__build_end(graph, call, mica_graph_concat(graph, part, count, last));
}

mica_tensor mica_graph_rope_axial(mica_graph *graph, mica_tensor x, uint32_t columns, uint32_t rows,
                                  uint32_t repeat, uint32_t heads, float theta)
{
    static const char call[] = "rope_axial";
    const mica_rope_params params = {.mode = MICA_ROPE_STANDARD, .theta = theta};
    const uint64_t tokens = (uint64_t)columns * rows * repeat;
    mica__heads h;
    if (!mica__graph_begins(graph, call) ||
        !mica__heads_take(graph, call, "x", x, MICA_HEADS_TOGETHER, heads, &h))
        return 0;
    const mica__type type = *mica__type_of(graph, x);
    if (tokens == 0 || tokens > INT32_MAX || !mica__sizes_agree(h.tokens, tokens))
        return mica__build_refuse(graph, call, "x", &type, "is not of %u columns, %u rows and %u of each",
                                  columns, rows, repeat);
    const mica_tensor place = mica_graph_index(graph, MICA_DTYPE_I32, 1, &tokens, 0);
    const mica_tensor token = mica_graph_div(graph, place, mica__build_number(graph, place, repeat));
    const mica_tensor wide = mica__build_number(graph, place, columns);
    const mica_tensor axes[] = {mica_graph_rem(graph, token, wide), mica_graph_div(graph, token, wide)};
    mica_tensor positions = mica_graph_stack(graph, axes, 2, 0);
    if (positions != 0 && h.batch != 1)
        positions = mica__build_merge(graph, mica__build_repeat(graph, positions, 1, h.batch), 1, 3);
    const mica_tensor apart =
        mica__build_reshape(graph, x, 4, (const uint64_t[]){h.batch, tokens, h.heads, h.dim});
    const mica_tensor y =
        positions == 0 ? 0
                       : mica_graph_rope_2d(graph, mica__build_merge(graph, apart, 0, 2), positions, &params);
    return mica__build_end(graph, call, mica__build_as(graph, y, &type));
}
