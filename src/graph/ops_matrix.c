/*
 * ops_matrix.c - products as nodes.
 */
#include "graph/ops_build.h"

/* A vector becomes a matrix of one row, or of one column. */
static mica_tensor as_matrix(mica_graph *graph, mica_tensor x, bool column)
{
    const mica__type *type = mica__graph_takes(graph, "matmul", column ? "b" : "a", x);
    if (type == NULL || type->ndim != 1)
        return type == NULL ? 0 : x;
    const uint64_t n = type->shape[0];
    return mica_graph_reshape(graph, x, 2, column ? (const uint64_t[]){n, 1} : (const uint64_t[]){1, n});
}

mica_tensor mica_graph_matmul(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    if (!mica__graph_begins(graph, "matmul"))
        return 0;
    const mica_tensor left = as_matrix(graph, a, false), right = as_matrix(graph, b, true);
    if (left == 0 || right == 0)
        return 0;
    const mica_tensor y = mica_graph_op(graph, MICA_OP_PRODUCT, NULL,
                                        (const mica_tensor[]){left, right, 0, 0, 0}, 5, 1, NULL, NULL, 0);
    if (y == 0 || (left == a && right == b))
        return y;
    mica__type type = *mica__type_of(graph, y);
    if (right != b)
        type.ndim--;
    if (left != a) { /* the row goes, what is behind it moves up */
        const uint32_t row = type.ndim - (right != b ? 1 : 2);
        memmove(type.shape + row, type.shape + row + 1, (type.ndim - row - 1) * sizeof type.shape[0]);
        type.ndim--;
    }
    return mica_graph_reshape(graph, y, type.ndim, type.shape);
}

/* x [.., M, K] times weight [N, K] transposed. Doubles and integers have mica_product alone. */
static mica_tensor times_weight(mica_graph *graph, mica_tensor x, mica_tensor weight)
{
    const mica__type *w = mica__type_of(graph, weight);
    if (w->dtype == MICA_DTYPE_F64 || mica_register_of(w->dtype) > MICA_REGISTER_F64)
        return mica_graph_matmul(graph, x, mica_graph_permute(graph, weight, (const uint32_t[]){1, 0}));
    return mica_graph_op(graph, MICA_OP_MATMUL, NULL, (const mica_tensor[]){x, weight}, 2, 1, NULL, NULL, 0);
}

mica_tensor mica_graph_linear(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias)
{
    if (!mica__graph_begins(graph, "linear"))
        return 0;
    const mica__type *type = mica__graph_takes(graph, "linear", "x", x);
    const mica__type *w = mica__graph_takes(graph, "linear", "weight", weight);
    if (type == NULL || w == NULL)
        return 0;
    if (type->ndim == 0 || w->ndim != 2)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "linear",
                                "x has %u dimensions, weight %u, which must be 2", type->ndim, w->ndim);
    mica__type shape = *type;
    const bool rows = type->ndim >= 2 && type->ndim <= 4;
    shape.shape[shape.ndim - 1] = w->shape[0];
    const uint64_t flat[] = {MICA_SIZE_REST, type->shape[type->ndim - 1]};
    mica_tensor y = times_weight(graph, rows ? x : mica_graph_reshape(graph, x, 2, flat), weight);
    if (!rows)
        y = mica_graph_reshape(graph, y, shape.ndim, shape.shape);
    return bias == 0 ? y : mica_graph_add(graph, y, bias);
}

/* ---- the products of the catalogue ---- */

mica_tensor mica_graph_product(mica_graph *graph, mica_tensor a, mica_tensor b, mica_tensor add)
{
    return mica__build_op(graph, MICA_OP_PRODUCT, NULL, (const mica_tensor[]){a, b, add, 0, 0}, 5);
}

mica_tensor mica_graph_product_codes(mica_graph *graph, mica_tensor a, mica_tensor a_zero, mica_tensor b,
                                     mica_tensor b_zero, mica_tensor add)
{
    return mica__build_end(
        graph, "product_codes",
        mica__build_op(graph, MICA_OP_PRODUCT, NULL, (const mica_tensor[]){a, b, add, a_zero, b_zero}, 5));
}

mica_tensor mica_graph_linear_many(mica_graph *graph, mica_tensor x, const mica_tensor *weights,
                                   uint32_t count, const mica_matmul_params *params, mica_tensor *outputs)
{
    mica_tensor inputs[MICA__MAX_WEIGHTS + 1] = {x}, own[MICA__MAX_WEIGHTS];
    for (uint32_t i = 0; outputs != NULL && i < count; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, "linear_many"))
        return 0;
    if (weights == NULL || count == 0 || count > MICA__MAX_WEIGHTS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "linear_many", "%u weights, not 1 to %u",
                                weights == NULL ? 0 : count, MICA__MAX_WEIGHTS);
    memcpy(inputs + 1, weights, count * sizeof *weights);
    const mica_tensor first = mica_graph_op(graph, MICA_OP_MATMUL, params, inputs, count + 1,
                                            (1u << count) - 1, NULL, outputs != NULL ? outputs : own, count);
    return mica__build_end(graph, "linear_many", first);
}

mica_tensor mica_graph_matmul_transposed(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                         mica_tensor ids)
{
    return mica__build_op(graph, MICA_OP_MATMUL_TRANSPOSED, NULL, (const mica_tensor[]){x, ids, weight}, 3);
}

mica_tensor mica_graph_lora(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor a,
                            mica_tensor b, float scale)
{
    mica__type type;
    if (!mica__graph_begins(graph, "lora") || !mica__build_takes_rank(graph, "lora", "b", b, 2, 2, &type))
        return 0;
    const mica_tensor y = mica__build_op(graph, MICA_OP_MATMUL, NULL, (const mica_tensor[]){x, weight}, 2);
    mica_tensor low = mica__build_op(graph, MICA_OP_MATMUL, NULL, (const mica_tensor[]){x, a}, 2);
    if (low != 0 && scale != 1.0f)
        low = mica_graph_mul(graph, low, mica__build_number(graph, low, (double)scale));
    const mica_tensor sum =
        low == 0 ? 0 : mica_graph_product(graph, low, mica__build_swap(graph, b, 0, 1), y);
    return mica__build_end(graph, "lora", sum);
}

mica_tensor mica_graph_outer(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    mica__type x, y;
    if (!mica__graph_begins(graph, "outer") ||
        !mica__build_takes_rank(graph, "outer", "a", a, 1, MICA_MAX_DIMS - 1, &x) ||
        !mica__build_takes_rank(graph, "outer", "b", b, 1, MICA_MAX_DIMS - 1, &y))
        return 0;
    const mica_tensor column = mica__build_insert(graph, a, x.ndim),
                      row = mica__build_insert(graph, b, y.ndim - 1);
    return mica__build_end(graph, "outer", mica_graph_mul(graph, column, row));
}
