/*
 * ops_linear.c - products: of matrices, of codes, by index letters.
 */
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

static mica_tensor times(const mica__ox_op *o, mica_tensor a, mica_tensor b)
{
    return a == 0 || b == 0 ? 0 : mica_graph_matmul(o->graph, a, b);
}

/* Unsigned and long integers have no product; those of 8 bits and i32 have. */
static bool has_product(mica_dtype dtype)
{
    const mica_register reg = mica_register_of(dtype);
    return reg == MICA_REGISTER_F32 || reg == MICA_REGISTER_F64 || dtype == MICA_DTYPE_I32;
}

mica_status mica__ox_matmul(mica__ox_op *o)
{
    const mica_tensor a = mica__ox_in(o, 0), b = mica__ox_in(o, 1);
    if (!has_product(mica__ox_type(o, a).dtype))
        return mica__ox_fail(o, "of %s", mica_dtype_name(mica__ox_type(o, a).dtype));
    mica__ox_out(o, 0, times(o, a, b));
    return MICA_OK;
}

static mica_tensor transposed(const mica__ox_op *o, mica_tensor x, bool transpose)
{
    const uint32_t ndim = mica__ox_type(o, x).ndim;
    return transpose && ndim >= 2 ? mica__ox_swap(o, x, ndim - 2, ndim - 1) : x;
}

static mica_tensor scaled(const mica__ox_op *o, mica_tensor x, float by)
{
    return by == 1.0f ? x : mica__ox_scalar(o, MICA_SCALAR_MUL, x, mica__ox_number(o, x, (double)by));
}

mica_status mica__ox_gemm(mica__ox_op *o)
{
    const float alpha = mica__ox_float(o, "alpha", 1), beta = mica__ox_float(o, "beta", 1);
    const bool transpose_a = mica__ox_int(o, "transA", 0) != 0,
               transpose_b = mica__ox_int(o, "transB", 0) != 0;
    const mica__type a = mica__ox_in_type(o, 0), b = mica__ox_in_type(o, 1);
    if (a.ndim != 2 || b.ndim != 2 || !has_product(a.dtype))
        return mica__ox_fail(o, "of such shapes or types");
    mica_tensor y = times(o, transposed(o, mica__ox_in(o, 0), transpose_a),
                          transposed(o, mica__ox_in(o, 1), transpose_b));
    y = scaled(o, y, alpha);
    if (mica__ox_has(o, 2) && beta != 0)
        y = mica__ox_scalar(o, MICA_SCALAR_ADD, y, scaled(o, mica__ox_in(o, 2), beta));
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

/* FusedMatMul of com.microsoft. */
mica_status mica__ox_fused_matmul(mica__ox_op *o)
{
    const float alpha = mica__ox_float(o, "alpha", 1);
    const bool transpose_a = mica__ox_int(o, "transA", 0) != 0,
               transpose_b = mica__ox_int(o, "transB", 0) != 0;
    if (mica__ox_int(o, "transBatchA", 0) != 0 || mica__ox_int(o, "transBatchB", 0) != 0)
        return mica__ox_fail(o, "transBatchA or transBatchB");
    const mica_tensor y = times(o, transposed(o, mica__ox_in(o, 0), transpose_a),
                                transposed(o, mica__ox_in(o, 1), transpose_b));
    mica__ox_out(o, 0, scaled(o, y, alpha));
    return MICA_OK;
}

mica_status mica__ox_det(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_DETERMINANT, NULL, &x, 1));
    return MICA_OK;
}

/* ---- by index letters ----------------------------------------------------------------------------------- */

enum { MOST_TERMS = 8, DOTS = 16 /* labels of what dots stand for begin here */, LABELS = 96 };

typedef struct term {
    mica_tensor x;
    uint32_t ndim;
    uint8_t label[MICA_MAX_DIMS];
} term;

typedef struct equation {
    term in[MOST_TERMS], out;
    uint32_t count;
    bool arrow;
} equation;

/* One term's letters; dots stand for as many dimensions as the letters leave. */
static mica_status read_term(const mica__ox_op *o, const char *text, size_t length, uint32_t ndim, term *out)
{
    uint32_t letters = 0, at = 0;
    for (size_t i = 0; i < length; i++)
        letters += text[i] != ' ' && text[i] != '.';
    for (size_t i = 0; i < length; i++) {
        const bool dots = i + 2 < length && text[i] == '.' && text[i + 1] == '.' && text[i + 2] == '.';
        const bool letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
        if (text[i] == ' ')
            continue;
        if (!dots && !letter)
            return mica__ox_fail(o, "equation with \"%c\"", text[i]);
        const uint32_t many = !dots ? 1 : ndim >= letters ? ndim - letters : 0;
        for (uint32_t k = 0; k < many; k++) {
            if (at == MICA_MAX_DIMS)
                return mica__ox_fail(o, "equation of more than %u dimensions", MICA_MAX_DIMS);
            out->label[at++] =
                dots ? (uint8_t)(DOTS + MICA_MAX_DIMS - many + k) : (uint8_t)(text[i] - 'A' + 32);
        }
        i += dots ? 2 : 0;
    }
    out->ndim = at;
    return MICA_OK;
}

static bool has_label(const term *t, uint8_t label)
{
    for (uint32_t d = 0; d < t->ndim; d++)
        if (t->label[d] == label)
            return true;
    return false;
}

/* Without an arrow: what dots stand for, then the letters that stand once, in the alphabet's order. */
static void implicit_out(equation *e)
{
    for (uint32_t label = 0; label < LABELS; label++) {
        uint32_t times_there = 0;
        for (uint32_t i = 0; i < e->count; i++)
            for (uint32_t d = 0; d < e->in[i].ndim; d++)
                times_there += e->in[i].label[d] == label;
        if (times_there != 0 && (times_there == 1 || label < 32) && e->out.ndim < MICA_MAX_DIMS)
            e->out.label[e->out.ndim++] = (uint8_t)label;
    }
}

static mica_status read_equation(mica__ox_op *o, equation *e)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, "equation", MICA__ONNX_KIND_STRING);
    if (a == NULL || o->input_count > MOST_TERMS)
        return mica__ox_fail(o, "has no equation, or more than %u inputs", MOST_TERMS);
    const char *at = a->s.data, *end = at + a->s.length;
    const char *arrow = strstr(at, "->");
    const char *left_end = arrow != NULL ? arrow : end;
    uint32_t dots = 0;
    for (e->count = 0; at <= left_end && e->count < o->input_count; e->count++) {
        const char *comma = memchr(at, ',', (size_t)(left_end - at));
        const char *stop = comma != NULL ? comma : left_end;
        term *t = &e->in[e->count];
        t->x = mica__ox_in(o, e->count);
        const uint32_t ndim = mica__ox_type(o, t->x).ndim;
        MICA__TRY(read_term(o, at, (size_t)(stop - at), ndim, t));
        if (t->ndim != ndim)
            return mica__ox_fail(o, "equation has %u dimensions for input %u, which has %u", t->ndim,
                                 e->count, ndim);
        uint32_t mine = 0;
        for (uint32_t d = 0; d < ndim; d++)
            mine += t->label[d] < 32;
        dots = mine > dots ? mine : dots;
        at = stop + 1;
    }
    if (e->count != o->input_count || at <= left_end)
        return mica__ox_fail(o, "equation has another number of terms than inputs");
    e->arrow = arrow != NULL;
    if (arrow == NULL) {
        implicit_out(e);
        return MICA_OK;
    }
    uint32_t letters = 0;
    for (const char *c = arrow + 2; c < end; c++)
        letters += *c != ' ' && *c != '.';
    return read_term(o, arrow + 2, (size_t)(end - arrow - 2), letters + dots, &e->out);
}

/* A label that stands twice in a term: the diagonal of the two, by a mask and a sum. */
static void take_diagonals(const mica__ox_op *o, term *t)
{
    for (uint32_t a = 0; a < t->ndim; a++)
        for (uint32_t b = a + 1; b < t->ndim; b++) {
            if (t->label[a] != t->label[b])
                continue;
            const mica__type type = mica__ox_type(o, t->x);
            const mica_tensor same = mica__ox_scalar(
                o, MICA_SCALAR_EQUAL, mica__ox_iota(o, type.ndim, type.shape, a, MICA_DTYPE_I32),
                mica__ox_iota(o, type.ndim, type.shape, b, MICA_DTYPE_I32));
            t->x = mica__ox_select(o, same, t->x, mica__ox_number(o, t->x, 0));
            t->x = mica__ox_reduce(o, MICA_REDUCE_SUM, t->x, 1u << b, false);
            memmove(t->label + b, t->label + b + 1, t->ndim - b - 1);
            t->ndim--;
            b--;
        }
}

/* Sums away what neither the result nor a later term has. */
static void sum_away(const mica__ox_op *o, const equation *e, uint32_t next, term *t)
{
    uint32_t axes = 0, kept = 0;
    for (uint32_t d = 0; d < t->ndim; d++) {
        bool needed = has_label(&e->out, t->label[d]);
        for (uint32_t i = next; i < e->count; i++)
            needed = needed || has_label(&e->in[i], t->label[d]);
        if (!needed)
            axes |= 1u << d;
        else
            t->label[kept++] = t->label[d];
    }
    t->x = mica__ox_reduce(o, MICA_REDUCE_SUM, t->x, axes, false);
    t->ndim = kept;
}

/* The term with these labels in this order, 1s where it has them not. */
static mica_tensor laid_out(const mica__ox_op *o, const term *t, const uint8_t *label, uint32_t count)
{
    uint32_t order[MICA_MAX_DIMS], found = 0;
    uint64_t shape[MICA_MAX_DIMS];
    const mica__type type = mica__ox_type(o, t->x);
    for (uint32_t i = 0; i < count; i++) {
        shape[i] = 1;
        for (uint32_t d = 0; d < t->ndim; d++)
            if (t->label[d] == label[i]) {
                order[found++] = d;
                shape[i] = type.shape[d];
            }
    }
    const mica_tensor x = t->x == 0 || found == 0 ? t->x : mica_graph_permute(o->graph, t->x, order);
    return mica__ox_reshape(o, x, count, shape);
}

typedef struct groups { /* labels of both and of the result, of a, of b, and those that are summed over */
    uint8_t both[MICA_MAX_DIMS], left[MICA_MAX_DIMS], right[MICA_MAX_DIMS], inner[MICA_MAX_DIMS];
    uint32_t both_count, left_count, right_count, inner_count;
} groups;

static mica_status group(const mica__ox_op *o, const equation *e, uint32_t next, const term *a, const term *b,
                         groups *g)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        bool needed = has_label(&e->out, a->label[d]);
        for (uint32_t i = next; i < e->count; i++)
            needed = needed || has_label(&e->in[i], a->label[d]);
        if (!has_label(b, a->label[d]))
            g->left[g->left_count++] = a->label[d];
        else if (needed)
            g->both[g->both_count++] = a->label[d];
        else
            g->inner[g->inner_count++] = a->label[d];
    }
    for (uint32_t d = 0; d < b->ndim; d++)
        if (!has_label(a, b->label[d]))
            g->right[g->right_count++] = b->label[d];
    return g->both_count + g->left_count + g->right_count <= MICA_MAX_DIMS
               ? MICA_OK
               : mica__ox_fail(o, "more than %u dimensions in between", MICA_MAX_DIMS);
}

static uint64_t size_of(const mica__ox_op *o, const term *t, uint8_t label)
{
    for (uint32_t d = 0; d < t->ndim; d++)
        if (t->label[d] == label)
            return mica__ox_type(o, t->x).shape[d];
    return 1;
}

/* Of labels [both, first, second] as [both.., first, second], the last two each one dimension. */
static mica_tensor as_matrices(const mica__ox_op *o, const term *t, const groups *g, const uint8_t *first,
                               uint32_t first_count, const uint8_t *second, uint32_t second_count)
{
    uint8_t label[3 * MICA_MAX_DIMS];
    uint64_t shape[MICA_MAX_DIMS + 2] = {0};
    uint32_t count = 0;
    memcpy(label, g->both, g->both_count);
    memcpy(label + g->both_count, first, first_count);
    memcpy(label + g->both_count + first_count, second, second_count);
    for (uint32_t i = 0; i < g->both_count; i++)
        shape[count++] = size_of(o, t, g->both[i]);
    shape[count] = shape[count + 1] = 1;
    for (uint32_t i = 0; i < first_count; i++)
        shape[count] *= size_of(o, t, first[i]);
    for (uint32_t i = 0; i < second_count; i++)
        shape[count + 1] *= size_of(o, t, second[i]);
    return mica__ox_reshape(o, laid_out(o, t, label, g->both_count + first_count + second_count), count + 2,
                            shape);
}

/* a and b, summed over what only they have. */
static mica_status contract(const mica__ox_op *o, const equation *e, uint32_t next, term *a, const term *b)
{
    groups g = {.both_count = 0};
    uint64_t shape[3 * MICA_MAX_DIMS];
    MICA__TRY(group(o, e, next, a, b, &g));
    if (g.both_count + 2 > MICA_MAX_DIMS)
        return mica__ox_fail(o, "more than %u dimensions in between", MICA_MAX_DIMS);
    const mica_tensor left = as_matrices(o, a, &g, g.left, g.left_count, g.inner, g.inner_count);
    const mica_tensor right = as_matrices(o, b, &g, g.inner, g.inner_count, g.right, g.right_count);
    term y = {.x = times(o, left, right)};
    const mica__type product = mica__ox_type(o, y.x);
    for (uint32_t i = 0; i < g.both_count; i++) {
        shape[y.ndim] = product.shape[i];
        y.label[y.ndim++] = g.both[i];
    }
    for (uint32_t i = 0; i < g.left_count; i++) {
        shape[y.ndim] = size_of(o, a, g.left[i]);
        y.label[y.ndim++] = g.left[i];
    }
    for (uint32_t i = 0; i < g.right_count; i++) {
        shape[y.ndim] = size_of(o, b, g.right[i]);
        y.label[y.ndim++] = g.right[i];
    }
    y.x = mica__ox_reshape(o, y.x, y.ndim, shape);
    *a = y;
    return MICA_OK;
}

mica_status mica__ox_einsum(mica__ox_op *o)
{
    equation e = {.count = 0};
    MICA__TRY(read_equation(o, &e));
    for (uint32_t i = 0; i < e.count; i++) {
        MICA__TRY(mica__ox_need_shape(o, e.in[i].x, "an input"));
        take_diagonals(o, &e.in[i]);
    }
    for (uint32_t d = 0; d < e.out.ndim; d++) {
        bool there = false;
        for (uint32_t i = 0; i < e.count; i++)
            there = there || has_label(&e.in[i], e.out.label[d]);
        if (!there)
            return mica__ox_fail(o, "equation gives a letter that no input has");
    }
    term y = e.in[0];
    sum_away(o, &e, 1, &y);
    for (uint32_t i = 1; i < e.count; i++) {
        term next = e.in[i];
        MICA__TRY(contract(o, &e, i + 1, &y, &next));
        sum_away(o, &e, i + 1, &y);
    }
    mica__ox_out(o, 0, laid_out(o, &y, e.out.label, e.out.ndim));
    return MICA_OK;
}
