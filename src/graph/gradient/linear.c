/*
 * linear.c - derivatives of linear algebra, as ops_linear.h has their formulas, in nodes that are differentiated again.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* A matrix's places: [N, 1] and [N] of indices. */
typedef struct places {
    mica_tensor row, column;
} places;

static places places_of(mica_graph *graph, mica_tensor a)
{
    const uint32_t ndim = mica__type_of(graph, a)->ndim;
    return (places){mica__widened(graph, mica__index_along(graph, a, ndim - 2), 1),
                    mica__index_along(graph, a, ndim - 1)};
}

/* The half with the diagonal, without it where `strict`. */
static mica_tensor half(mica_graph *graph, mica_tensor a, bool upper, bool strict)
{
    const places at = places_of(graph, a);
    const mica_tensor i = upper ? at.column : at.row, j = upper ? at.row : at.column;
    return mica__where(graph,
                       strict ? mica_graph_greater(graph, i, j) : mica_graph_greater_equal(graph, i, j), a);
}

/* x on the diagonal, which is [.., N] or [.., N, N]; `other` elsewhere. */
static mica_tensor on_diagonal(mica_graph *graph, mica_tensor like, mica_tensor x, mica_tensor other)
{
    const places at = places_of(graph, like);
    return mica_graph_select(graph, mica_graph_equal(graph, at.row, at.column), x, other);
}

static mica_tensor symmetric(mica_graph *graph, mica_tensor a)
{
    return mica__times(graph, mica_graph_add(graph, a, mica__transposed(graph, a)), 0.5);
}

static mica_tensor triangular(mica_graph *graph, mica_tensor a, mica_tensor rhs,
                              mica_triangular_params params)
{
    return mica__op1(graph, MICA_OP_TRIANGULAR_SOLVE, &params, (const mica_tensor[]){a, rhs}, 2);
}

/* [.., n] as [.., n, 1]; as [.., 1, n] */
static mica_tensor as_column(mica_graph *graph, mica_tensor x)
{
    return mica__widened(graph, x, mica__type_of(graph, x)->ndim);
}
static mica_tensor as_row(mica_graph *graph, mica_tensor x)
{
    return mica__widened(graph, x, mica__type_of(graph, x)->ndim - 1);
}

/* What reaches output i, or zeros. */
static mica_tensor reached(mica__back *b, uint32_t i)
{
    return b->dy[i] != 0 ? b->dy[i]
                         : mica__zeros_like(b->graph, b->out[i], mica__type_of(b->graph, b->out[i])->dtype);
}

/* ---- systems ---- */

mica__derived mica__derive_triangular(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_triangular_params *given = mica__op_params(&b->node);
    mica_triangular_params params = given != NULL ? *given : (mica_triangular_params){.upper = 0};
    mica_triangular_params back = params;
    back.transpose ^= 1u;
    const mica_tensor db = triangular(graph, b->in[0], b->dy[0], back);
    b->dx[1] = db;
    if (b->wanted[0]) { /* a x = b: -db x^T; a^T x = b: -x db^T */
        const mica_tensor left = params.transpose != 0 ? b->out[0] : db,
                          right = params.transpose != 0 ? db : b->out[0];
        const mica_tensor da =
            mica_graph_neg(graph, mica__product(graph, left, mica__transposed(graph, right)));
        b->dx[0] = half(graph, da, params.upper != 0, params.unit != 0);
    }
    return MICA__DERIVED;
}

mica__derived mica__derive_solve(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor inputs[] = {mica__transposed(graph, b->in[0]), b->dy[0]};
    const mica_tensor db = mica__op1(graph, MICA_OP_SOLVE, NULL, inputs, 2);
    b->dx[1] = db;
    if (b->wanted[0])
        b->dx[0] = mica_graph_neg(graph, mica__product(graph, db, mica__transposed(graph, b->out[0])));
    return MICA__DERIVED;
}

mica__derived mica__derive_inverse(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor transposed = mica__transposed(graph, b->out[0]);
    const mica_tensor inner = mica__product(graph, transposed, mica__product(graph, b->dy[0], transposed));
    b->dx[0] = mica_graph_neg(graph, inner);
    return MICA__DERIVED;
}

mica__derived mica__derive_determinant(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_determinant_params *params = mica__op_params(&b->node);
    mica_tensor transposed = mica__transposed(graph, b->in[0]), reach = b->dy[0];
    const mica_tensor inverse = mica__op1(graph, MICA_OP_INVERSE, NULL, &transposed, 1);
    if (params != NULL && params->log != 0) {
        const mica__type type = mica__type_copy(graph, reach);
        reach = as_column(graph, mica_graph_slice(graph, reach, type.ndim - 1, 1, 1, 1)); /* [.., 1, 1] */
    } else {
        reach = as_column(graph, as_column(graph, mica_graph_mul(graph, reach, b->out[0])));
    }
    b->dx[0] = mica_graph_mul(graph, inverse, reach);
    return MICA__DERIVED;
}

/* ---- factors ---- */

/* With l lower: l^-T phi(l^T dl) l^-1, made symmetric; phi keeps the lower half and half of the diagonal. */
mica__derived mica__derive_cholesky(mica__back *b)
{
    static const mica_triangular_params back = {.transpose = 1};
    mica_graph *graph = b->graph;
    const mica_cholesky_params *params = mica__op_params(&b->node);
    const bool upper = params != NULL && params->upper != 0;
    const mica_tensor l = upper ? mica__transposed(graph, b->out[0]) : b->out[0];
    const mica_tensor dl = half(graph, upper ? mica__transposed(graph, b->dy[0]) : b->dy[0], false, false);
    const mica_tensor inner = mica__product(graph, mica__transposed(graph, l), dl);
    const mica_tensor phi =
        on_diagonal(graph, inner, mica__times(graph, inner, 0.5), half(graph, inner, false, false));
    const mica_tensor left = triangular(graph, l, phi, back);
    const mica_tensor both = triangular(graph, l, mica__transposed(graph, left), back);
    b->dx[0] = symmetric(graph, both);
    return MICA__DERIVED;
}

/* (dq + q c) r^-T, c the lower half of r dr^T - dq^T q and its mirror. */
mica__derived mica__derive_qr(mica__back *b)
{
    static const mica_triangular_params upper = {.upper = 1};
    mica_graph *graph = b->graph;
    const mica_tensor q = b->out[0], r = b->out[1], dq = reached(b, 0);
    const mica__type type = mica__type_copy(graph, q), rs = mica__type_copy(graph, r);
    if (rs.shape[rs.ndim - 1] != type.shape[type.ndim - 1]) {
        mica__back_refuses(b, "is of a wide matrix, and has no derivative");
        return MICA__DERIVED;
    }
    const mica_tensor dr = half(graph, reached(b, 1), true, false);
    const mica_tensor m = mica_graph_sub(graph, mica__product(graph, r, mica__transposed(graph, dr)),
                                         mica__product(graph, mica__transposed(graph, dq), q));
    const mica_tensor low = half(graph, m, false, false);
    const mica_tensor c = mica_graph_add(graph, low, mica__transposed(graph, half(graph, m, false, true)));
    const mica_tensor sum = mica_graph_add(graph, dq, mica__product(graph, q, c));
    b->dx[0] = mica__transposed(graph, triangular(graph, r, mica__transposed(graph, sum), upper));
    return MICA__DERIVED;
}

/* v (diag(dw) + f v^T dv) v^T, made symmetric; f_ij = 1 / (w_j - w_i), 0 on the diagonal. */
mica__derived mica__derive_eigh(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor w = b->out[0], v = b->out[1], transposed = mica__transposed(graph, v);
    const mica_tensor one = mica__number(graph, w, 1);
    mica_tensor inner = mica__zeros_like(graph, v, mica__type_of(graph, v)->dtype);
    if (b->dy[1] != 0) {
        const mica_tensor apart = mica_graph_sub(graph, as_row(graph, w), as_column(graph, w));
        const mica_tensor safe = on_diagonal(graph, v, one, apart);
        inner = mica_graph_div(graph, mica__product(graph, transposed, b->dy[1]), safe);
    }
    inner = on_diagonal(graph, v, as_column(graph, reached(b, 0)), inner);
    b->dx[0] = symmetric(graph, mica__product(graph, mica__product(graph, v, inner), transposed));
    return MICA__DERIVED;
}

/* Inputs: a; outputs u, s, vt. As mica_svd_backward. */
mica__derived mica__derive_svd(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_tensor u = b->out[0], s = b->out[1], vt = b->out[2], du = reached(b, 0), dvt = reached(b, 2);
    const mica_tensor si = as_column(graph, s), sj = as_row(graph, s);
    const mica_tensor p = mica__product(graph, mica__transposed(graph, u), du);
    const mica_tensor o = mica__product(graph, dvt, mica__transposed(graph, vt));
    const mica_tensor apart =
        mica_graph_mul(graph, mica_graph_sub(graph, sj, si), mica_graph_add(graph, sj, si));
    const mica_tensor left = mica_graph_mul(graph, mica_graph_sub(graph, p, mica__transposed(graph, p)), sj);
    const mica_tensor right = mica_graph_mul(graph, mica_graph_sub(graph, mica__transposed(graph, o), o), si);
    const mica_tensor one = mica__number(graph, s, 1);
    const mica_tensor ratio =
        mica_graph_div(graph, mica_graph_add(graph, left, right), on_diagonal(graph, p, one, apart));
    mica_tensor core = on_diagonal(graph, p, as_column(graph, reached(b, 1)), ratio);
    core = mica_graph_sub(graph, mica_graph_sub(graph, core, mica_graph_div(graph, p, sj)),
                          mica_graph_div(graph, o, si));
    const mica_tensor tall =
        mica_graph_add(graph, mica__product(graph, u, core), mica_graph_div(graph, du, sj));
    const mica_tensor wide = mica__product(graph, mica_graph_div(graph, u, sj), dvt);
    b->dx[0] = mica_graph_add(graph, mica__product(graph, tall, vt), wide);
    return MICA__DERIVED;
}
