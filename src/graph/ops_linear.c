/*
 * ops_linear.c - linear algebra as nodes.
 */
#include "graph/ops_build.h"

/* x of a x = b: a vector b becomes a matrix of one column, and x a vector. */
static mica_tensor solve(mica_graph *graph, mica_op op, const void *params, mica_tensor a, mica_tensor b)
{
    const char *call = mica_op_name(op);
    mica__type left, right;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "a", a, &left) ||
        !mica__build_takes(graph, call, "b", b, &right))
        return 0;
    const bool vector = right.ndim + 1 == left.ndim;
    const mica_tensor column = vector ? mica__build_insert(graph, b, right.ndim) : b;
    const mica_tensor x =
        column == 0 ? 0 : mica__build_op(graph, op, params, (const mica_tensor[]){a, column}, 2);
    return vector ? mica__build_end(graph, call, mica__build_as(graph, x, &right)) : x;
}

mica_tensor mica_graph_triangular_solve(mica_graph *graph, mica_tensor a, mica_tensor b,
                                        const mica_triangular_params *params)
{
    return solve(graph, MICA_OP_TRIANGULAR_SOLVE, params, a, b);
}

mica_tensor mica_graph_solve(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return solve(graph, MICA_OP_SOLVE, NULL, a, b);
}

mica_tensor mica_graph_cholesky(mica_graph *graph, mica_tensor a, uint32_t upper)
{
    const mica_cholesky_params params = {upper};
    return mica__build_op(graph, MICA_OP_CHOLESKY, &params, &a, 1);
}

mica_tensor mica_graph_inverse(mica_graph *graph, mica_tensor a)
{
    return mica__build_op(graph, MICA_OP_INVERSE, NULL, &a, 1);
}

mica_tensor mica_graph_determinant(mica_graph *graph, mica_tensor a)
{
    return mica__build_op(graph, MICA_OP_DETERMINANT, NULL, &a, 1);
}

mica_tensor mica_graph_log_determinant(mica_graph *graph, mica_tensor a, mica_tensor *out_sign)
{
    const mica_determinant_params params = {.log = 1};
    mica_tensor part[2] = {0, 0};
    if (out_sign != NULL)
        *out_sign = 0;
    const mica_tensor both = mica__build_op(graph, MICA_OP_DETERMINANT, &params, &a, 1);
    if (both == 0)
        return 0;
    mica__type type = *mica__type_of(graph, both);
    type.ndim--;
    for (uint32_t i = 0; i < 2; i++)
        part[i] = mica__build_as(graph, mica_graph_slice(graph, both, type.ndim, i, 1, 1), &type);
    if (out_sign != NULL)
        *out_sign = part[0];
    return mica__build_end(graph, "log_determinant", part[1]);
}

mica_tensor mica_graph_qr(mica_graph *graph, mica_tensor a, mica_tensor *out_r)
{
    mica_tensor out[2];
    (void)mica_graph_op(graph, MICA_OP_QR, NULL, &a, 1, 3, NULL, out, 2);
    if (out_r != NULL)
        *out_r = out[1];
    return out[0];
}

mica_tensor mica_graph_eigh(mica_graph *graph, mica_tensor a, mica_tensor *out_v)
{
    mica_tensor out[2];
    (void)mica_graph_op(graph, MICA_OP_EIGH, NULL, &a, 1, 3, NULL, out, 2);
    if (out_v != NULL)
        *out_v = out[1];
    return out[0];
}

mica_tensor mica_graph_svd(mica_graph *graph, mica_tensor a, mica_tensor *out_u, mica_tensor *out_vt)
{
    mica_tensor out[3];
    (void)mica_graph_op(graph, MICA_OP_SVD, NULL, &a, 1, 7, NULL, out, 3);
    if (out_u != NULL)
        *out_u = out[0];
    if (out_vt != NULL)
        *out_vt = out[2];
    return out[1];
}
