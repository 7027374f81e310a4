/*
 * conform_attention_backward.c - cases of attention's gradient: windows, masks of both kinds, sinks, slopes, groups of heads, bad indices. y and lse
 * are what the oracle of attention gives, rounded as they are stored.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { Q, K, V, POSITIONS, LENGTHS, MASK, SINKS, SLOPES, Y, LSE, DY, DQ, DK, DV, DSINKS };

/* The row of f64, which kernels for GPUs have not: there its cases are of f32. */
static bool is_wide(const conform_case *c)
{
    return c->row->weight == MICA_DTYPE_F64 && !conform_kernels;
}

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return is_wide(c) ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

static void add_normal(conform_case *c, test_random *random, const char *name, uint32_t ndim,
                       const uint64_t *shape, double spread)
{
    const uint32_t slot = c->operand_count;

    conform_add(c, random, name, draw_type(c, random), ndim, shape, ndim > 1 ? TEST_ROWS_REPEAT : TEST_ANY);
    test_tensor_normal(conform_tensor(c, slot), random, spread);
}

static void draw_params(conform_case *c, test_random *random)
{
    mica_attention_params *params = &c->params.attention;

    if (c->typical)
        return;
    params->scale = test_random_one_in(random, 2) ? 0 : (float)test_random_uniform(random, 0.02, 0.5);
    params->softcap = test_random_one_in(random, 3) ? 5.0f : 0;
    params->bidirectional = test_random_one_in(random, 3);
    if (test_random_one_in(random, 3))
        params->window = 1 + (uint32_t)test_random_below(random, 20);
}

static void add_mask(conform_case *c, test_random *random, uint64_t heads, uint64_t tokens, uint64_t keys)
{
    const uint64_t shape[3] = {heads, tokens, 1 + test_random_below(random, keys + 3)};
    const bool flat = test_random_one_in(random, 2), hides = test_random_one_in(random, 2);
    test_tensor *mask;

    if (c->typical || test_random_one_in(random, 2)) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, "mask", hides ? MICA_DTYPE_BOOL : draw_type(c, random), flat ? 2 : 3,
                flat ? shape + 1 : shape, TEST_ROWS_REPEAT);
    mask = conform_tensor(c, MASK);
    test_tensor_normal(mask, random, 1);
    for (uint64_t i = 0; i < mask->count; i++) {
        const bool hidden = test_random_one_in(random, 3);

        if (hides)
            test_tensor_set(mask, i, hidden ? 0 : 1);
        else if (hidden)
            test_tensor_set(mask, i, -(double)INFINITY);
    }
}

/* Positions and a length, now and then one that lies outside. */
static void draw_indices(conform_case *c, test_random *random, uint64_t tokens, uint64_t keys)
{
    test_tensor *positions = conform_tensor(c, POSITIONS), *lengths = conform_tensor(c, LENGTHS);
    const uint64_t length =
        c->typical || test_random_one_in(random, 2) ? keys : 1 + test_random_below(random, keys);

    test_tensor_set(lengths, 0, (double)length);
    for (uint64_t t = 0; t < tokens; t++)
        test_tensor_set(positions, t, (double)(c->typical ? t : test_random_below(random, length + 2)));
    if (c->typical || !test_random_one_in(random, 8))
        return;
    if (positions->dtype == MICA_DTYPE_I32)
        test_tensor_set(positions, test_random_below(random, tokens), -1);
    else
        test_tensor_set(lengths, 0, (double)keys + 1);
    c->wanted = MICA_ERR_FAULT;
}

static oracle_attention forward_of(conform_case *c, double **values)
{
    const mica_attention_params *params = &c->params.attention;
    const test_tensor *q = conform_tensor(c, Q), *k = conform_tensor(c, K), *mask = conform_tensor(c, MASK);
    oracle_attention a = {.tokens = q->shape[0], .heads = q->shape[1], .dim = q->shape[2]};

    for (uint32_t i = 0; i <= SLOPES; i++)
        values[i] = conform_values(c, i);
    a.v_dim = conform_tensor(c, V)->shape[2];
    a.cache = (oracle_cache){
        .pages = 1, .page_slots = k->shape[0], .heads = k->shape[1], .sequences = 1, .max_pages = 1};
    a.q = values[Q], a.k = values[K], a.v = values[V];
    a.positions = values[POSITIONS], a.lengths = values[LENGTHS];
    a.mask = values[MASK];
    a.mask_heads = values[MASK] && mask->ndim == 3 ? mask->shape[0] : 1;
    a.mask_keys = values[MASK] ? mask->shape[mask->ndim - 1] : 0;
    a.mask_hides = values[MASK] && mask->dtype == MICA_DTYPE_BOOL;
    a.sinks = values[SINKS], a.slopes = values[SLOPES];
    a.scale = params->scale != 0 ? params->scale : 1.0f / sqrtf((float)a.dim);
    a.softcap = params->softcap;
    a.window = params->window;
    a.bidirectional = params->bidirectional;
    return a;
}

/* y and lse as attention gives them. */
static void fill_forward(conform_case *c)
{
    double *values[SLOPES + 1];
    oracle_attention a = forward_of(c, values);
    const uint64_t rows = a.tokens * a.heads;
    double *y = test_alloc(rows * a.v_dim, sizeof *y), *error = test_alloc(rows * a.v_dim, sizeof *error);

    a.lse = test_alloc(rows, sizeof *a.lse);
    a.lse_error = test_alloc(rows, sizeof *a.lse_error);
    (void)oracle_attention_run(&a, y, error);
    for (uint64_t i = 0; i < rows * a.v_dim; i++)
        test_tensor_set(conform_tensor(c, Y), i, y[i]);
    for (uint64_t i = 0; i < rows; i++)
        test_tensor_set(conform_tensor(c, LSE), i, a.lse[i]);
    free(y);
    free(error);
    free(a.lse);
    free(a.lse_error);
    for (uint32_t i = 0; i <= SLOPES; i++)
        free(values[i]);
}

static void add_gradient(conform_case *c, test_random *random, const char *name, uint32_t ndim,
                         const uint64_t *shape)
{
    conform_add(c, random, name, draw_type(c, random), ndim, shape, ndim > 1 ? TEST_ROWS : TEST_ANY)
        ->written = true;
}

typedef struct backward_sizes {
    uint64_t tokens, keys, kv_heads, heads, dim, v_dim;
} backward_sizes;

static void make(conform_case *c, test_random *random, const backward_sizes *s)
{
    const uint64_t tokens = s->tokens, keys = s->keys, kv_heads = s->kv_heads, heads = s->heads, dim = s->dim,
                   v_dim = s->v_dim, one = 1;
    const uint64_t q[3] = {tokens, heads, dim}, k[3] = {keys, kv_heads, dim}, v[3] = {keys, kv_heads, v_dim},
                   y[3] = {tokens, heads, v_dim};

    draw_params(c, random);
    add_normal(c, random, "q", 3, q, 1);
    add_normal(c, random, "k", 3, k, 1);
    add_normal(c, random, "v", 3, v, 1);
    conform_add(c, random, "positions", conform_index(random), 1, &tokens, TEST_ANY);
    conform_add(c, random, "lengths", conform_index(random), 1, &one, TEST_CONTIGUOUS);
    draw_indices(c, random, tokens, keys);
    add_mask(c, random, heads, tokens, keys);
    const bool sinks = !c->typical && test_random_one_in(random, 2);
    if (sinks)
        add_normal(c, random, "sinks", 1, &heads, 1);
    else
        conform_add_absent(c);
    if (!c->typical && test_random_one_in(random, 3))
        add_normal(c, random, "slopes", 1, &heads, 0.1);
    else
        conform_add_absent(c);
    conform_add(c, random, "y", draw_type(c, random), 3, y, TEST_ROWS);
    conform_add(c, random, "lse", is_wide(c) ? MICA_DTYPE_F64 : MICA_DTYPE_F32, 2, y, TEST_ANY);
    fill_forward(c);
    add_normal(c, random, "dy", 3, y, 1);
    conform_add_output(c, random, "dq", draw_type(c, random), 3, q, TEST_ROWS, false, 0);
    add_gradient(c, random, "dk", 3, k);
    add_gradient(c, random, "dv", 3, v);
    if (sinks && test_random_one_in(random, 2))
        add_gradient(c, random, "dsinks", 1, &heads);
    else
        conform_add_absent(c);
    c->flops = 2.0 * (double)(tokens * heads * keys * (3 * dim + 2 * v_dim));
}

void conform_make_attention_backward(conform_case *c, test_random *random)
{
    backward_sizes s = {512, 512, 8, 32, 64, 64};

    if (!c->typical) {
        s.kv_heads = test_random_size(random, 3);
        s.heads = s.kv_heads * (test_random_one_in(random, 8) ? 17 : 1 + test_random_below(random, 4));
        s.tokens = test_random_size(random, 40);
        s.keys = test_random_size(random, 60);
        s.dim = test_random_size(random, test_random_one_in(random, 6) ? 300 : 50);
        s.v_dim = test_random_one_in(random, 2) ? s.dim : test_random_size(random, 50);
    }
    make(c, random, &s);
}

/* Keys in several chunks: apart in splits, or, of so many heads that these are enough units, one after the other. */
void conform_make_attention_backward_long(conform_case *c, test_random *random)
{
    const bool many = test_random_one_in(random, 3);
    backward_sizes s = {.kv_heads = many ? 33 : 1 + test_random_below(random, 2)};

    s.heads = s.kv_heads * (1 + test_random_below(random, 2));
    s.tokens = 40 + test_random_below(random, 70);
    s.keys = many ? 100 + test_random_below(random, 60) : 200 + test_random_below(random, 200);
    s.dim = many ? 260 + test_random_below(random, 30) : test_random_size(random, 40);
    s.v_dim = many ? 250 : test_random_size(random, 40);
    make(c, random, &s);
}

mica_status conform_encode_attention_backward(const conform_case *c, mica_encoder *encoder)
{
    const mica_attention_backward_operands operands = {
        .q = conform_buffer(c, Q),
        .k = conform_buffer(c, K),
        .v = conform_buffer(c, V),
        .positions = conform_buffer(c, POSITIONS),
        .lengths = conform_buffer(c, LENGTHS),
        .mask = conform_buffer(c, MASK),
        .sinks = conform_buffer(c, SINKS),
        .slopes = conform_buffer(c, SLOPES),
        .y = conform_buffer(c, Y),
        .lse = conform_buffer(c, LSE),
        .dy = conform_buffer(c, DY),
        .dq = conform_buffer(c, DQ),
        .dk = conform_buffer(c, DK),
        .dv = conform_buffer(c, DV),
        .dsinks = conform_buffer(c, DSINKS),
    };

    return mica_attention_backward(encoder, &operands, &c->params.attention);
}

static void narrow(double *error, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        error[i] *= 0x1p-29; /* roundings of f64 */
}

void conform_oracle_attention_backward(conform_case *c)
{
    double *values[SLOPES + 1];
    const oracle_attention a = forward_of(c, values);
    double *y = conform_values(c, Y), *lse = conform_values(c, LSE), *dy = conform_values(c, DY);
    oracle_attention_backward b = {&a, y, lse, dy, c->expected, NULL, NULL, NULL, c->error, NULL, NULL, NULL};

    conform_expect_also(c, DK, &b.dk, &b.dk_error);
    conform_expect_also(c, DV, &b.dv, &b.dv_error);
    if (c->operand[DSINKS].present)
        conform_expect_also(c, DSINKS, &b.dsinks, &b.dsinks_error);
    if (!oracle_attention_backward_run(&b))
        c->wanted = MICA_ERR_FAULT;
    if (is_wide(c)) {
        narrow(b.dq_error, conform_tensor(c, DQ)->count);
        narrow(b.dk_error, conform_tensor(c, DK)->count);
        narrow(b.dv_error, conform_tensor(c, DV)->count);
        narrow(b.dsinks_error, b.dsinks ? a.heads : 0);
    }
    free(y);
    free(lse);
    free(dy);
    for (uint32_t i = 0; i <= SLOPES; i++)
        free(values[i]);
}
