/*
 * linear_backward.c - gradients of linear algebra (linear.c), made of products, triangular systems and regions over views; whatever lies between them is in
 * memory that the caller brings.
 */
#include "device/objects.h"
#include "ops/steps.h"

#define ULL(x) ((unsigned long long)(x))

/* ---- what callers bring ---- */

/* An operand: [front, .., size[0], size[1]] with the last `dims` of these sizes; no front where that is 0. */
typedef struct expected {
    const char *name;
    mica_buffer *buffer;
    uint64_t front;
    uint32_t dims;
    uint64_t size[2];
    bool optional;
} expected;

static mica_status check_one(const char *who, const mica_buffer *first, const expected *e)
{
    const mica_buffer *b = e->buffer;
    const uint32_t outer = first->ndim - 2u, front = e->front != 0, ndim = front + outer + e->dims;
    if (b->dtype != first->dtype)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, not %s as the first operand is", who,
                          e->name, mica_dtype_name(b->dtype), mica_dtype_name(first->dtype));
    if (b->ndim != ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has %u dimensions, expected %u", who, e->name,
                          b->ndim, ndim);
    for (uint32_t d = 0; d < ndim; d++) {
        const uint64_t wanted = d < front           ? e->front
                                : d < front + outer ? first->shape[d - front]
                                                    : e->size[2 - e->dims + (d - front - outer)];
        if (b->shape[d] != wanted)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: shape[%u] of %s is %llu, expected %llu", who, d,
                              e->name, ULL(b->shape[d]), ULL(wanted));
    }
    return MICA_OK;
}

/* `first` is a matrix, [.., M, N], whose leading dimensions all others have. */
static mica_status check_first(const char *who, mica_encoder *encoder, const char *name,
                               const mica_buffer *first)
{
    if (encoder == NULL || first == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", who,
                          encoder == NULL ? "encoder" : name);
    if (first->dtype != MICA_DTYPE_F32 && first->dtype != MICA_DTYPE_F64)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, not f32 or f64", who, name,
                          mica_dtype_name(first->dtype));
    if (first->ndim < 2)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has %u dimensions, not 2 or more", who, name,
                          first->ndim);
    return MICA_OK;
}

static mica_status check_all(const char *who, const mica_buffer *first, const expected *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].buffer == NULL && !list[i].optional)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", who, list[i].name);
        if (list[i].buffer != NULL)
            MICA__TRY(check_one(who, first, &list[i]));
    }
    return MICA_OK;
}

static uint64_t rows_of(const mica_buffer *matrix)
{
    return matrix->shape[matrix->ndim - 2];
}

static uint64_t columns_of(const mica_buffer *matrix)
{
    return matrix->shape[matrix->ndim - 1];
}

static mica_status check_square(const char *who, const char *name, const mica_buffer *a)
{
    if (rows_of(a) == columns_of(a))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has matrices of %llu by %llu, not square ones", who,
                      name, ULL(rows_of(a)), ULL(columns_of(a)));
}

/* ---- steps over views ---- */

/* Calls one after the other until one fails, and the views that they look through. */
typedef struct chain {
    mica_encoder *encoder;
    const char *who;
    mica_status status;
    uint32_t count;
    mica_buffer *view[16];
} chain;

#define THEN(c, call)               \
    do {                            \
        if ((c)->status == MICA_OK) \
            (c)->status = (call);   \
    } while (0)

static mica_status finish(chain *c)
{
    while (c->count > 0)
        mica_buffer_release(c->view[--c->count]);
    return c->status;
}

/* A view of a buffer; NULL once something has failed. */
static mica_buffer *view_of(chain *c, mica_buffer *b, uint32_t ndim, const uint64_t *shape,
                            const uint64_t *stride, uint64_t offset)
{
    mica_buffer *out = NULL;
    THEN(c, mica_buffer_view(b, b->dtype, ndim, shape, stride, offset, &out));
    if (out != NULL)
        c->view[c->count++] = out;
    return out;
}

static mica_buffer *transposed(chain *c, mica_buffer *b)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < b->ndim; d++) {
        const uint32_t from = d + 2u < b->ndim ? d : 2u * b->ndim - 3u - d;
        shape[d] = b->shape[from];
        stride[d] = b->stride[from];
    }
    return view_of(c, b, b->ndim, shape, stride, 0);
}

/* Matrix number i of a stack of them. */
static mica_buffer *part_of(chain *c, mica_buffer *b, uint64_t i)
{
    return view_of(c, b, b->ndim - 1u, b->shape + 1, b->stride + 1, i * b->stride[0]);
}

/* With dimensions of size 1 put in: `before` of them in front of the last dimension, `after` at the end. */
static mica_buffer *widened(chain *c, mica_buffer *b, uint32_t before, uint32_t after)
{
    uint64_t shape[MICA_MAX_DIMS + 2], stride[MICA_MAX_DIMS + 2];
    const uint32_t head = before != 0 ? b->ndim - 1u : b->ndim;
    for (uint32_t d = 0, from = 0; d < b->ndim + before + after; d++) {
        const bool one = (d >= head && d < head + before) || from >= b->ndim;
        shape[d] = one ? 1 : b->shape[from];
        stride[d] = one ? 0 : b->stride[from];
        from += !one;
    }
    return view_of(c, b, b->ndim + before + after, shape, stride, 0);
}

/* [.., n] as a row [.., 1, n], and as a column [.., n, 1] */
static mica_buffer *row(chain *c, mica_buffer *b)
{
    return widened(c, b, 1, 0);
}

static mica_buffer *column(chain *c, mica_buffer *b)
{
    return widened(c, b, 0, 1);
}

/* ---- regions over matrices ---- */

/* Writes the result of a region whose inputs are st_input(s, 0) and on. */
typedef st_value writer(mica__steps *s, uint32_t choice);

static void apply(chain *c, writer *write, uint32_t choice, uint32_t count, mica_buffer *const *inputs,
                  mica_buffer *out)
{
    static const char *const names[] = {"operand", "operand", "operand", "operand",
                                        "operand", "operand", "operand"};
    const mica__region_names sentence = {c->who, names, names};
    mica__region_room room;
    mica__steps steps = {&room.program, MICA_REGION_STEPS, false};
    if (c->status != MICA_OK)
        return;
    mica__region_begin(&room.program, count, 1);
    for (uint32_t i = 0; i < count; i++)
        room.program.input[i] = (uint8_t)mica__register_of(inputs[i]->dtype);
    room.program.output[0] = write(&steps, choice).at;
    c->status = mica__region_add(c->encoder, &sentence, &room.program, inputs, false, &out);
}

static st_value row_index(mica__steps *s)
{
    return st_index(s, MICA_REGISTER_I32, 1);
}

static st_value column_index(mica__steps *s)
{
    return st_index(s, MICA_REGISTER_I32, 0);
}

static st_value on_diagonal(mica__steps *s)
{
    return st_equal(row_index(s), column_index(s));
}

/* Halves of a matrix. */
enum { LOWER, UPPER, STRICT = 2 };

static st_value inside(mica__steps *s, uint32_t half)
{
    const st_value i = (half & UPPER) != 0 ? column_index(s) : row_index(s),
                   j = (half & UPPER) != 0 ? row_index(s) : column_index(s);
    return (half & STRICT) != 0 ? st_greater(i, j) : st_greater_equal(i, j);
}

/* The half that is asked for, zeros in the other. */
static st_value write_half(mica__steps *s, uint32_t half)
{
    return st_where(inside(s, half), st_input(s, 0));
}

static st_value write_minus_half(mica__steps *s, uint32_t half)
{
    return st_where(inside(s, half), st_neg(st_input(s, 0)));
}

static st_value write_minus(mica__steps *s, uint32_t choice)
{
    (void)choice;
    return st_neg(st_input(s, 0));
}

/* The lower half with half of the diagonal. */
static st_value write_phi(mica__steps *s, uint32_t choice)
{
    const st_value x = st_input(s, 0);
    (void)choice;
    return st_select(on_diagonal(s), st_scale(x, 0.5), write_half(s, LOWER));
}

/* (x + x^T) / 2 */
static st_value write_symmetric(mica__steps *s, uint32_t choice)
{
    (void)choice;
    return st_scale(st_add(st_input(s, 0), st_input(s, 1)), 0.5);
}

/* The lower half of x, and its mirror in the upper one. */
static st_value write_mirrored(mica__steps *s, uint32_t choice)
{
    (void)choice;
    return st_select(inside(s, LOWER), st_input(s, 0), st_input(s, 1));
}

static st_value write_product(mica__steps *s, uint32_t factors)
{
    st_value product = st_input(s, 0);
    for (uint32_t i = 1; i < factors; i++)
        product = st_mul(product, st_input(s, i));
    return product;
}

static st_value write_quotient(mica__steps *s, uint32_t choice)
{
    (void)choice;
    return st_div(st_input(s, 0), st_input(s, 1));
}

/* ---- systems ---- */

mica_status mica_triangular_solve_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *x,
                                           mica_buffer *dx, const mica_triangular_params *params,
                                           mica_buffer *da, mica_buffer *db)
{
    static const char who[] = "triangular_solve_backward";
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    mica_triangular_params other_way = {0};
    if (params != NULL)
        other_way = *params;
    if (other_way.transpose > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: params.transpose is %u, not 0 or 1", who,
                          other_way.transpose);
    MICA__TRY(check_first(who, encoder, "a", a));
    MICA__TRY(check_square(who, "a", a));
    const uint64_t n = rows_of(a), m = x != NULL && x->ndim > 0 ? x->shape[x->ndim - 1] : 0;
    MICA__TRY(check_all(who, a,
                        (expected[]){{"x", x, 0, 2, {n, m}, false},
                                     {"dx", dx, 0, 2, {n, m}, false},
                                     {"da", da, 0, 2, {n, n}, true},
                                     {"db", db, 0, 2, {n, m}, false}},
                        4));
    other_way.transpose ^= 1;
    THEN(&c, mica_triangular_solve(encoder, a, dx, &other_way, db));
    if (da == NULL)
        return finish(&c);
    /* a x = b: -db x^T; a^T x = b: -x db^T */
    mica_buffer *left = other_way.transpose != 0 ? db : x,
                *right = transposed(&c, other_way.transpose != 0 ? x : db);
    THEN(&c, mica_product(encoder, left, right, NULL, da));
    apply(&c, write_minus_half, (other_way.upper != 0 ? UPPER : LOWER) | (other_way.unit != 0 ? STRICT : 0),
          1, &da, da);
    return finish(&c);
}

mica_status mica_solve_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *x, mica_buffer *dx,
                                mica_buffer *da, mica_buffer *db)
{
    static const char who[] = "solve_backward";
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    MICA__TRY(check_first(who, encoder, "a", a));
    MICA__TRY(check_square(who, "a", a));
    const uint64_t n = rows_of(a), m = x != NULL && x->ndim > 0 ? x->shape[x->ndim - 1] : 0;
    MICA__TRY(check_all(who, a,
                        (expected[]){{"x", x, 0, 2, {n, m}, false},
                                     {"dx", dx, 0, 2, {n, m}, false},
                                     {"da", da, 0, 2, {n, n}, true},
                                     {"db", db, 0, 2, {n, m}, false}},
                        4));
    mica_buffer *a_transposed = transposed(&c, a);
    THEN(&c, mica_solve(encoder, a_transposed, dx, db));
    if (da == NULL)
        return finish(&c);
    mica_buffer *right = transposed(&c, x);
    THEN(&c, mica_product(encoder, db, right, NULL, da));
    apply(&c, write_minus, 0, 1, &da, da);
    return finish(&c);
}

mica_status mica_inverse_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy, mica_buffer *work,
                                  mica_buffer *da)
{
    static const char who[] = "inverse_backward";
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    MICA__TRY(check_first(who, encoder, "y", y));
    MICA__TRY(check_square(who, "y", y));
    const uint64_t n = rows_of(y);
    MICA__TRY(check_all(who, y,
                        (expected[]){{"dy", dy, 0, 2, {n, n}, false},
                                     {"work", work, 0, 2, {n, n}, false},
                                     {"da", da, 0, 2, {n, n}, false}},
                        3));
    mica_buffer *y_transposed = transposed(&c, y);
    THEN(&c, mica_product(encoder, dy, y_transposed, NULL, work));
    THEN(&c, mica_product(encoder, y_transposed, work, NULL, da));
    apply(&c, write_minus, 0, 1, &da, da);
    return finish(&c);
}

mica_status mica_determinant_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *y, mica_buffer *dy,
                                      const mica_determinant_params *params, mica_buffer *da)
{
    static const char who[] = "determinant_backward";
    const uint32_t log_of = params != NULL ? params->log : 0;
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    if (log_of > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: params.log is %u, not 0 or 1", who, log_of);
    MICA__TRY(check_first(who, encoder, "a", a));
    MICA__TRY(check_square(who, "a", a));
    const uint64_t n = rows_of(a);
    MICA__TRY(check_all(who, a,
                        (expected[]){{"y", y, 0, log_of, {0, 2}, log_of != 0},
                                     {"dy", dy, 0, log_of, {0, 2}, false},
                                     {"da", da, 0, 2, {n, n}, false}},
                        3));
    mica_buffer *a_transposed = transposed(&c, a);
    THEN(&c, mica_inverse(encoder, a_transposed, da));
    if (log_of != 0) {
        const uint32_t last = dy->ndim - 1u;
        mica_buffer *reaches = view_of(&c, dy, last, dy->shape, dy->stride, dy->stride[last]);
        mica_buffer *factors[] = {da, reaches != NULL ? widened(&c, reaches, 0, 2) : NULL};
        apply(&c, write_product, 2, 2, factors, da);
    } else {
        mica_buffer *factors[] = {da, widened(&c, dy, 0, 2), widened(&c, y, 0, 2)};
        apply(&c, write_product, 3, 3, factors, da);
    }
    return finish(&c);
}

/* ---- factors ---- */

/* With l lower: L^-T phi(L^T dL) L^-1, made symmetric. An upper factor is the transposed one. */
mica_status mica_cholesky_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy,
                                   const mica_cholesky_params *params, mica_buffer *work, mica_buffer *da)
{
    static const char who[] = "cholesky_backward";
    static const mica_triangular_params other_way = {.transpose = 1};
    const uint32_t upper = params != NULL ? params->upper : 0;
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    if (upper > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: params.upper is %u, not 0 or 1", who, upper);
    MICA__TRY(check_first(who, encoder, "y", y));
    MICA__TRY(check_square(who, "y", y));
    const uint64_t n = rows_of(y);
    MICA__TRY(check_all(who, y,
                        (expected[]){{"dy", dy, 0, 2, {n, n}, false},
                                     {"work", work, 0, 2, {n, n}, false},
                                     {"da", da, 0, 2, {n, n}, false}},
                        3));
    mica_buffer *y_transposed = transposed(&c, y), *dy_transposed = transposed(&c, dy),
                *work_transposed = transposed(&c, work);
    mica_buffer *factor = upper != 0 ? y_transposed : y, *other = upper != 0 ? y : y_transposed;
    apply(&c, write_half, LOWER, 1, upper != 0 ? &dy_transposed : &dy, da);
    THEN(&c, mica_product(encoder, other, da, NULL, work));
    apply(&c, write_phi, 0, 1, &work, work);
    THEN(&c, mica_triangular_solve(encoder, factor, work, &other_way, work));
    THEN(&c, mica_triangular_solve(encoder, factor, work_transposed, &other_way, work_transposed));
    apply(&c, write_symmetric, 0, 2, (mica_buffer *const[]){work, work_transposed}, da);
    return finish(&c);
}

/* (dq + q mirrored(r dr^T - dq^T q)) r^-T */
mica_status mica_qr_backward(mica_encoder *encoder, mica_buffer *q, mica_buffer *r, mica_buffer *dq,
                             mica_buffer *dr, mica_buffer *work, mica_buffer *da)
{
    static const char who[] = "qr_backward";
    static const mica_triangular_params upper = {.upper = 1};
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    MICA__TRY(check_first(who, encoder, "q", q));
    const uint64_t m = rows_of(q), n = columns_of(q);
    MICA__TRY(check_all(who, q,
                        (expected[]){{"r", r, 0, 2, {n, n}, false},
                                     {"dq", dq, 0, 2, {m, n}, false},
                                     {"dr", dr, 0, 2, {n, n}, false},
                                     {"work", work, 2, 2, {n, n}, false},
                                     {"da", da, 0, 2, {m, n}, false}},
                        5));
    mica_buffer *sum = part_of(&c, work, 0), *half = part_of(&c, work, 1),
                *dq_transposed = transposed(&c, dq), *da_transposed = transposed(&c, da);
    mica_buffer *sum_transposed = sum != NULL ? transposed(&c, sum) : NULL,
                *half_transposed = half != NULL ? transposed(&c, half) : NULL;
    apply(&c, write_half, UPPER, 1, &dr, half);
    THEN(&c, mica_product(encoder, dq_transposed, q, NULL, sum));
    apply(&c, write_minus, 0, 1, &sum, sum);
    THEN(&c, mica_product(encoder, r, half_transposed, sum, sum));
    apply(&c, write_mirrored, 0, 2, (mica_buffer *const[]){sum, sum_transposed}, half);
    THEN(&c, mica_product(encoder, q, half, dq, da));
    THEN(&c, mica_triangular_solve(encoder, r, da_transposed, &upper, da_transposed));
    return finish(&c);
}

/* t, t^T, w of the row, w of the column, dw: dw on the diagonal, else (t - t^T) / 2 (w_j - w_i) */
static st_value write_eigen(mica__steps *s, uint32_t choice)
{
    const st_value odd = st_scale(st_sub(st_input(s, 0), st_input(s, 1)), 0.5);
    (void)choice;
    return st_select(on_diagonal(s), st_input(s, 4), st_div(odd, st_sub(st_input(s, 3), st_input(s, 2))));
}

/* v (diag(dw) + F v^T dv) v^T, made symmetric. */
mica_status mica_eigh_backward(mica_encoder *encoder, mica_buffer *w, mica_buffer *v, mica_buffer *dw,
                               mica_buffer *dv, mica_buffer *work, mica_buffer *da)
{
    static const char who[] = "eigh_backward";
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    MICA__TRY(check_first(who, encoder, "v", v));
    MICA__TRY(check_square(who, "v", v));
    const uint64_t n = rows_of(v);
    MICA__TRY(check_all(who, v,
                        (expected[]){{"w", w, 0, 1, {0, n}, false},
                                     {"dw", dw, 0, 1, {0, n}, false},
                                     {"dv", dv, 0, 2, {n, n}, false},
                                     {"work", work, 2, 2, {n, n}, false},
                                     {"da", da, 0, 2, {n, n}, false}},
                        5));
    mica_buffer *t = part_of(&c, work, 0), *inner = part_of(&c, work, 1), *v_transposed = transposed(&c, v);
    mica_buffer *t_transposed = t != NULL ? transposed(&c, t) : NULL;
    mica_buffer *const inputs[] = {t, t_transposed, column(&c, w), row(&c, w), column(&c, dw)};
    THEN(&c, mica_product(encoder, v_transposed, dv, NULL, t));
    apply(&c, write_eigen, 0, 5, inputs, inner);
    THEN(&c, mica_product(encoder, v, inner, NULL, t));
    THEN(&c, mica_product(encoder, t, v_transposed, NULL, da));
    return finish(&c);
}

/* p = u^T du, p^T, o = dvt v, o^T, s of the row, s of the column, ds: what lies between u and vt. */
static st_value write_singular(mica__steps *s, uint32_t choice)
{
    const st_value p = st_input(s, 0), o = st_input(s, 2), si = st_input(s, 4), sj = st_input(s, 5);
    const st_value apart = st_mul(st_sub(sj, si), st_add(sj, si));
    const st_value left = st_mul(st_sub(p, st_input(s, 1)), sj),
                   right = st_mul(st_sub(st_input(s, 3), o), si);
    const st_value core = st_select(on_diagonal(s), st_input(s, 6), st_div(st_add(left, right), apart));
    (void)choice;
    return st_sub(st_sub(core, st_div(p, sj)), st_div(o, si));
}

/* With g of write_singular: (u g + du / s) vt + (u / s) dvt. */
mica_status mica_svd_backward(mica_encoder *encoder, const mica_svd_gradients *operands, mica_buffer *work,
                              mica_buffer *tall, mica_buffer *da)
{
    static const char who[] = "svd_backward";
    const mica_svd_gradients *g = operands;
    chain c = {encoder, who, MICA_OK, 0, {NULL}};
    if (g == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: operands is NULL", who);
    MICA__TRY(check_first(who, encoder, "u", g->u));
    const uint64_t m = rows_of(g->u), k = columns_of(g->u);
    const uint64_t n = g->vt != NULL && g->vt->ndim > 0 ? g->vt->shape[g->vt->ndim - 1] : 0;
    MICA__TRY(check_all(who, g->u,
                        (expected[]){{"s", g->s, 0, 1, {0, k}, false},
                                     {"vt", g->vt, 0, 2, {k, n}, false},
                                     {"du", g->du, 0, 2, {m, k}, false},
                                     {"ds", g->ds, 0, 1, {0, k}, false},
                                     {"dvt", g->dvt, 0, 2, {k, n}, false},
                                     {"work", work, 3, 2, {k, k}, false},
                                     {"tall", tall, 2, 2, {m, k}, false},
                                     {"da", da, 0, 2, {m, n}, false}},
                        8));
    mica_buffer *p = part_of(&c, work, 0), *o = part_of(&c, work, 1), *inner = part_of(&c, work, 2),
                *left = part_of(&c, tall, 0), *right = part_of(&c, tall, 1),
                *u_transposed = transposed(&c, g->u), *v = transposed(&c, g->vt), *s_row = row(&c, g->s);
    mica_buffer *const inputs[] = {p,
                                   p != NULL ? transposed(&c, p) : NULL,
                                   o,
                                   o != NULL ? transposed(&c, o) : NULL,
                                   column(&c, g->s),
                                   s_row,
                                   column(&c, g->ds)};
    THEN(&c, mica_product(encoder, u_transposed, g->du, NULL, p));
    THEN(&c, mica_product(encoder, g->dvt, v, NULL, o));
    apply(&c, write_singular, 0, 7, inputs, inner);
    apply(&c, write_quotient, 0, 2, (mica_buffer *const[]){g->du, s_row}, left);
    apply(&c, write_quotient, 0, 2, (mica_buffer *const[]){g->u, s_row}, right);
    THEN(&c, mica_product(encoder, g->u, inner, left, left));
    THEN(&c, mica_product(encoder, right, g->dvt, NULL, da));
    THEN(&c, mica_product(encoder, left, g->vt, da, da));
    return finish(&c);
}
