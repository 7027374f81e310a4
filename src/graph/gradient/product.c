/*
 * product.c - derivatives of products: of two tensors, with weights of any type, with the weights of experts, and of what chooses and adds up experts.
 *
 * A weight of blocks has no gradient (its type is no float); what goes through it does.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* x [.., R, C] as one matrix [rows, C], all but the last dimension in a row; x itself where it is one. */
static mica_tensor as_matrix(mica_graph *graph, mica_tensor x)
{
    const mica__type type = mica__type_copy(graph, x);
    if (type.ndim == 2)
        return x;
    return mica_graph_reshape(graph, x, 2, (const uint64_t[]){MICA_SIZE_REST, type.shape[type.ndim - 1]});
}

/* a^T dy, summed to the shape of b: of products where b is one matrix for many, of all rows at once. */
static mica_tensor right_gradient(mica_graph *graph, mica_tensor a, mica_tensor dy, mica_tensor of)
{
    const mica__type type = mica__type_copy(graph, of), left = mica__type_copy(graph, a),
                     out = mica__type_copy(graph, dy);
    bool whole = type.ndim == 2 && left.ndim == out.ndim;
    for (uint32_t d = 0; d + 1 < left.ndim && whole; d++)
        whole = left.shape[d] == out.shape[d];
    if (whole)
        return mica__product(graph, mica__transposed(graph, as_matrix(graph, a)), as_matrix(graph, dy));
    return mica__sum_to(graph, mica__product(graph, mica__transposed(graph, a), dy), &type);
}

mica__derived mica__derive_product(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor dy = b->dy[0];
    if (b->wanted[0]) {
        const mica__type type = mica__type_copy(graph, b->in[0]);
        b->dx[0] = mica__sum_to(graph, mica__product(graph, dy, mica__transposed(graph, b->in[1])), &type);
    }
    if (b->wanted[1])
        b->dx[1] = right_gradient(graph, b->in[0], dy, b->in[1]);
    if (b->wanted[2]) {
        const mica__type type = mica__type_copy(graph, b->in[2]);
        b->dx[2] = mica__sum_to(graph, dy, &type);
    }
    return MICA__DERIVED;
}

/* ---- weights ---- */

/* [B', M, C] as [B, B' / B M, C]: the rows that meet each of B weights. */
static mica_tensor by_weight(mica_graph *graph, mica_tensor x, uint64_t weights)
{
    const mica__type type = mica__type_copy(graph, x);
    return mica_graph_reshape(graph, x, 3,
                              (const uint64_t[]){weights, MICA_SIZE_REST, type.shape[type.ndim - 1]});
}

/* left^T right over all rows, a weight's gradient: [N, K] of left [.., N] and right [.., K]; [B, N, K] of batches. */
static mica_tensor weight_gradient(mica_graph *graph, mica_tensor left, mica_tensor right, mica_tensor weight)
{
    const mica__type type = mica__type_copy(graph, weight);
    if (type.ndim == 2)
        return mica__product(graph, mica__transposed(graph, as_matrix(graph, left)), as_matrix(graph, right));
    return mica__product(graph, mica__transposed(graph, by_weight(graph, left, type.shape[0])),
                         by_weight(graph, right, type.shape[0]));
}

/* Inputs: x, then a weight for each group; outputs: one for each. */
mica__derived mica__derive_matmul(mica__back *b)
{
    mica_graph *graph = b->graph;
    for (uint32_t g = 0; g < b->node.output_count && graph->status == MICA_OK; g++) {
        const mica_tensor dy = b->dy[g], weight = b->in[g + 1];
        if (dy == 0)
            continue;
        if (b->wanted[0]) {
            const mica_tensor dx =
                mica__op1(graph, MICA_OP_MATMUL_TRANSPOSED, NULL, (const mica_tensor[]){dy, 0, weight}, 3);
            b->dx[0] = b->dx[0] == 0 ? dx : mica_graph_add(graph, b->dx[0], dx);
        }
        if (b->wanted[g + 1])
            b->dx[g + 1] = weight_gradient(graph, dy, b->in[0], weight);
    }
    return MICA__DERIVED;
}

/* ---- experts ---- */

/*
 * [E, N, K], the sum over slots of left [T, S, N] times right [T, S, K] where `ids` name the expert: a product for each expert, in which the rows of other
 * experts are zeros.
 */
static mica_tensor expert_gradient(mica_graph *graph, mica_tensor left, mica_tensor right, mica_tensor ids,
                                   mica_tensor weight)
{
    const mica__type type = mica__type_copy(graph, weight), id_type = mica__type_copy(graph, ids);
    const mica_dtype dtype = mica__type_of(graph, left)->dtype;
    const uint64_t experts = type.shape[0];
    mica_tensor number = mica_graph_index(graph, id_type.dtype, 3, (const uint64_t[]){experts, 1, 1}, 0);
    const mica_tensor row = mica_graph_reshape(graph, ids, 3, (const uint64_t[]){1, 1, MICA_SIZE_REST});
    const mica_tensor columns = mica__transposed(graph, as_matrix(graph, left)); /* [N, rows] */
    const mica_tensor zero = mica_graph_number(graph, dtype, 0);
    const mica_tensor mine = mica_graph_select(graph, mica_graph_equal(graph, number, row), columns, zero);
    return mica__product(graph, mine, as_matrix(graph, right));
}

/* x [T, K] as [T, S, K] where slots share a row. */
static mica_tensor by_slot(mica_graph *graph, mica_tensor x, mica_tensor ids)
{
    const mica__type type = mica__type_copy(graph, x), slots = mica__type_copy(graph, ids);
    if (type.ndim == 3)
        return x;
    return mica_graph_expand(graph, mica__widened(graph, x, 1), 3,
                             (const uint64_t[]){type.shape[0], slots.shape[1], type.shape[1]});
}

mica__derived mica__derive_experts(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor x = b->in[0], ids = b->in[1], weight = b->in[2], dy = b->dy[0];
    if (b->wanted[0]) {
        mica_tensor dx =
            mica__op1(graph, MICA_OP_MATMUL_TRANSPOSED, NULL, (const mica_tensor[]){dy, ids, weight}, 3);
        if (mica__type_of(graph, x)->ndim == 2)
            dx = mica_graph_reduce(graph, MICA_REDUCE_SUM, dx, (const int32_t[]){1}, 1, 0);
        b->dx[0] = dx;
    }
    if (b->wanted[2])
        b->dx[2] = expert_gradient(graph, dy, by_slot(graph, x, ids), ids, weight);
    return MICA__DERIVED;
}

/* y [.., K] = x [.., N] . weight [N, K]: dx = dy . weight^T, dweight = x^T dy */
mica__derived mica__derive_transposed(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor x = b->in[0], ids = b->in[1], weight = b->in[2], dy = b->dy[0];
    if (b->wanted[0])
        b->dx[0] = ids == 0 ? mica__op1(graph, MICA_OP_MATMUL, NULL, (const mica_tensor[]){dy, weight}, 2)
                            : mica__op1(graph, MICA_OP_MATMUL_EXPERTS, NULL,
                                        (const mica_tensor[]){dy, ids, weight}, 3);
    if (b->wanted[2])
        b->dx[2] =
            ids == 0 ? weight_gradient(graph, x, dy, weight) : expert_gradient(graph, x, dy, ids, weight);
    return MICA__DERIVED;
}

/* Inputs: x [T, S, N], weights [T, S], shared [T, N], its gate [T], residual [T, N]. */
mica__derived mica__derive_expert_sum(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor dy = mica__wide(graph, b->dy[0]), each = mica__widened(graph, dy, 1);
    const mica_tensor shared = b->in[2], gate = b->in[3];
    if (b->wanted[0])
        b->dx[0] = mica_graph_mul(graph, each, mica__widened(graph, b->in[1], 2));
    if (b->wanted[1])
        b->dx[1] = mica_graph_reduce(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, each, b->in[0]),
                                     (const int32_t[]){2}, 1, 0);
    const mica_tensor open = gate == 0 ? 0 : mica_graph_sigmoid(graph, mica__wide(graph, gate));
    if (b->wanted[2])
        b->dx[2] = gate == 0 ? dy : mica_graph_mul(graph, dy, mica__widened(graph, open, 1));
    if (b->wanted[3]) {
        const mica_tensor reach = mica_graph_reduce(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, dy, shared),
                                                    (const int32_t[]){1}, 1, 0);
        const mica_tensor closed = mica__plus(graph, mica_graph_neg(graph, open), 1);
        b->dx[3] = mica_graph_mul(graph, reach, mica_graph_mul(graph, open, closed));
    }
    if (b->wanted[4])
        b->dx[4] = dy;
    return MICA__DERIVED;
}

/* Inputs: logits, bias, expert_scale; outputs: ids, weights. The choice has no gradient. */
mica__derived mica__derive_route(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor logits = b->in[0], bias = b->in[1], scale = b->in[2], ids = b->out[0], dy = b->dy[1];
    const void *params = mica__op_params(&b->node);
    if (dy == 0)
        return MICA__DERIVED;
    if (b->wanted[0])
        b->dx[0] = mica__op1(graph, MICA_OP_ROUTE_BACKWARD, params,
                             (const mica_tensor[]){logits, scale, ids, dy}, 4);
    if (b->wanted[2]) {
        mica_tensor plain[2];
        mica_operand_desc asked[2] = {{.ndim = 0}, {.ndim = 0}};
        for (uint32_t i = 0; i < 2; i++) {
            const mica__type type = mica__type_copy(graph, b->out[i]);
            asked[i] = (mica_operand_desc){.dtype = type.dtype, .ndim = type.ndim};
            memcpy(asked[i].shape, type.shape, sizeof type.shape);
        }
        (void)mica_graph_op(graph, MICA_OP_ROUTE, params, (const mica_tensor[]){logits, bias, 0}, 3, 3, asked,
                            plain, 2);
        const mica_tensor each = mica_graph_mul(graph, mica__wide(graph, dy), plain[1]);
        const uint64_t all = MICA_SIZE_REST;
        b->dx[2] = mica__put(graph, MICA_SCATTER_ADD, mica_graph_reshape(graph, each, 1, &all),
                             mica_graph_reshape(graph, ids, 1, &all), 0, scale);
    }
    return MICA__DERIVED;
}

/* ---- route_backward in nodes that have rules: inputs are logits, expert_scale, ids, dweights ---- */

void mica__expand_route_backward(mica__back *b, mica_tensor *out)
{
    static const mica_route_params none = {.softmax_first = 0};
    mica_graph *graph = b->graph;
    const mica_route_params *given = mica__op_params(&b->node), *params = given != NULL ? given : &none;
    const mica_tensor logits = mica__wide(graph, b->in[0]), ids = b->in[2];
    const bool sigmoid = params->scoring == MICA_ROUTE_SIGMOID,
               first = !sigmoid && params->softmax_first != 0;
    mica_tensor g = mica__wide(graph, b->in[3]);
    if (params->scale != 0.0f)
        g = mica__times(graph, g, (double)params->scale);
    if (b->in[1] != 0) {
        const uint64_t all = MICA_SIZE_REST;
        const mica__type type = mica__type_copy(graph, ids);
        const mica_tensor each = mica__take(graph, b->in[1], mica_graph_reshape(graph, ids, 1, &all), 0);
        g = mica_graph_mul(graph, g, mica__reshape_to(graph, each, &type));
    }
    const mica_softmax_params plain = {.scale = 1};
    const mica_tensor scores =
        sigmoid ? mica_graph_sigmoid(graph, logits)
        : first ? mica__op1(graph, MICA_OP_SOFTMAX, &plain, (const mica_tensor[]){logits, 0}, 2)
                : logits;
    mica_tensor v = mica__take(graph, scores, ids, 1);
    if (!sigmoid && !first)
        v = mica__op1(graph, MICA_OP_SOFTMAX, &plain, (const mica_tensor[]){v, 0}, 2);
    if (params->normalise != 0) {
        const mica_tensor sum = mica__reduce_last(graph, MICA_REDUCE_SUM, v, 1);
        const mica_tensor mean = mica_graph_div(
            graph, mica__reduce_last(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, g, v), 1), sum);
        const mica_tensor shared = mica_graph_div(graph, mica_graph_sub(graph, g, mean), sum);
        g = mica_graph_select(graph, mica_graph_equal(graph, sum, mica__number(graph, sum, 0)), g, shared);
    }
    if (first) { /* through the softmax of all */
        g = mica__put(graph, MICA_SCATTER_ADD, g, ids, 1, logits);
        v = scores;
    }
    mica_tensor slope = mica__plus(graph, mica_graph_neg(graph, v), 1);
    if (sigmoid)
        slope = mica_graph_mul(graph, mica_graph_mul(graph, v, slope), g);
    else
        slope = mica_graph_mul(
            graph, v,
            mica_graph_sub(graph, g,
                           mica__reduce_last(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, g, v), 1)));
    out[0] = first ? slope : mica__put(graph, MICA_SCATTER_ADD, slope, ids, 1, logits);
}
