/*
 * conform_recurrent_backward.c - cases of the gradients of ops that carry a state: even and packed batches, sequences without tokens, tokens without a
 * sequence, operands and gradients that are not there, indices that lead outside.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_recurrent_backward.h"

#define ORDERS 4 /* kernels have other orders of terms and factors than the tape */
#define ROUNDINGS \
    (2 * ORDERS * 0x1p-29) /* the cpu computes in f64, as the tape does: both are off; in roundings of f32 */

/* How a batch is split. */
typedef struct batch {
    uint64_t count, tokens, slots;
    bool has_starts, has_state, has_read, has_dnext, has_dstate;
    bool wide; /* f64 */
} batch;

static batch draw_batch(const conform_case *c, test_random *random, uint64_t most)
{
    batch b = {
        .count = 4, .tokens = 256, .slots = 4, .has_state = true, .has_dnext = true, .has_dstate = true};

    if (c->typical)
        return b;
    b.wide = test_random_one_in(random, 4) && !conform_kernels;
    b.count = test_random_size(random, 4);
    b.has_starts = test_random_one_in(random, 2);
    b.has_state = test_random_one_in(random, 2);
    b.has_read = b.has_state && test_random_one_in(random, 2);
    b.has_dnext = test_random_one_in(random, 2);
    b.has_dstate = test_random_one_in(random, 2);
    if (!b.has_starts && !b.has_state && !b.has_dnext && !b.has_dstate)
        b.count = 1;
    b.tokens = b.has_starts ? 1 + test_random_below(random, most)
                            : b.count * test_random_size(random, 1 + most / b.count);
    b.slots = b.count + (b.has_read || b.has_starts ? test_random_below(random, 3) : 0);
    return b;
}

static mica_dtype draw_type(const conform_case *c, test_random *random, const batch *b)
{
    return c->typical ? MICA_DTYPE_F32 : b->wide ? MICA_DTYPE_F64 : conform_float(random);
}

/* An operand that is read, of normal numbers; absent where it is not `there`. */
static void add(conform_case *c, test_random *random, const batch *b, const char *name, bool there,
                uint32_t ndim, const uint64_t *shape, double spread)
{
    if (!there) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, name, draw_type(c, random, b), ndim, shape, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, spread);
}

static void add_state(conform_case *c, test_random *random, const batch *b, const char *name, bool there,
                      mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    if (!there) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, name, dtype, ndim, shape, TEST_ANY);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 0.5);
    (void)b;
}

/* Starts in order, with tokens of nobody before and behind now and then; some sequences are empty. One index may lead outside. */
static void add_indices(conform_case *c, test_random *random, const batch *b)
{
    const uint64_t starts = b->count + 1;
    const bool broken = !c->typical && test_random_one_in(random, 6);

    if (b->has_starts) {
        conform_add(c, random, "starts", conform_index(random), 1, &starts, TEST_ANY);
        test_tensor *t = conform_tensor(c, c->operand_count - 1);
        uint64_t at = test_random_one_in(random, 3) ? test_random_below(random, b->tokens) : 0;
        for (uint64_t n = 0; n <= b->count; n++) {
            test_tensor_set(t, n, (double)at);
            at += test_random_below(random, (b->tokens - at) / (n + 1 < b->count ? 2 : 1) + 1);
        }
        if (broken && !b->has_read) {
            test_tensor_set(t, b->count, (double)(b->tokens + 1));
            c->wanted = MICA_ERR_FAULT;
        }
    } else {
        conform_add_absent(c);
    }
    if (b->has_read) {
        conform_add(c, random, "read_slots", conform_index(random), 1, &b->count, TEST_ANY);
        test_tensor *t = conform_tensor(c, c->operand_count - 1);
        test_tensor_indices(t, random, b->slots);
        if (broken) {
            test_tensor_set(t, test_random_below(random, b->count),
                            t->dtype == MICA_DTYPE_I32 ? -1 : (double)b->slots);
            c->wanted = MICA_ERR_FAULT;
        }
    } else {
        conform_add_absent(c);
    }
}

static void add_gradient(conform_case *c, test_random *random, const char *name, bool there, mica_dtype dtype,
                         uint32_t ndim, const uint64_t *shape)
{
    if (there)
        conform_add_output(c, random, name, dtype, ndim, shape, TEST_ANY, false, 0);
    else
        conform_add_absent(c);
}

static bool draw_there(const conform_case *c, test_random *random)
{
    return c->typical || test_random_one_in(random, 2);
}

static double *values_of(conform_case *c, uint32_t slot)
{
    return c->operand[slot].present ? conform_values(c, slot) : NULL;
}

/* The operands as numbers, of which `state` begins what sequences are; whoever asks ends them. */
typedef struct known {
    double *value[CONFORM_OPERANDS];
    oracle_sequences of;
    oracle_reach reach;
} known;

static known know(conform_case *c, uint32_t state)
{
    known k = {.of = {.tokens = conform_tensor(c, 0)->shape[0], .count = 1}};
    const uint32_t dy = state + 3, dnext = state + 4;

    for (uint32_t i = 0; i <= dnext; i++)
        k.value[i] = values_of(c, i);
    k.of.state = k.value[state];
    k.of.starts = k.value[state + 1];
    k.of.read_slots = k.value[state + 2];
    k.of.state_slots = k.of.state ? conform_tensor(c, state)->shape[0] : 0;
    k.of.count = c->operand[state + 1].present   ? conform_tensor(c, state + 1)->shape[0] - 1
                 : c->operand[state + 2].present ? conform_tensor(c, state + 2)->shape[0]
                 : c->operand[state].present     ? conform_tensor(c, state)->shape[0]
                 : c->operand[dnext].present     ? conform_tensor(c, dnext)->shape[0]
                 : c->operand[c->operand_count - 1].present
                     ? conform_tensor(c, c->operand_count - 1)->shape[0]
                     : 1;
    k.reach = (oracle_reach){k.value[dy], k.value[dnext]};
    return k;
}

/* Gradients are the last operands; the first of them is the output of the case. */
static void want(conform_case *c, uint32_t first, oracle_gradient *to)
{
    for (uint32_t i = first; i < c->operand_count; i++) {
        to[i - first] = (oracle_gradient){NULL, NULL};
        if (i == c->output)
            to[i - first] = (oracle_gradient){c->expected, c->error};
        else if (c->operand[i].present)
            conform_expect_also(c, i, &to[i - first].gradient, &to[i - first].off);
    }
}

static void forget(conform_case *c, known *k, uint32_t first, const oracle_gradient *to)
{
    for (uint32_t i = first; i < c->operand_count; i++)
        for (uint64_t e = 0; to[i - first].off && e < conform_tensor(c, i)->count; e++)
            to[i - first].off[e] *= conform_kernels ? ORDERS : ROUNDINGS;
    for (uint32_t i = 0; i < CONFORM_OPERANDS; i++)
        free(k->value[i]);
}

/* ---- convolution ---- */

enum { CONV_X, CONV_WEIGHT, CONV_BIAS, CONV_STATE, CONV_DX = CONV_STATE + 5 };

void conform_make_ssm_conv_backward(conform_case *c, test_random *random)
{
    batch b = draw_batch(c, random, 30);
    const uint64_t channels = c->typical ? 1024 : test_random_size(random, 40),
                   width = c->typical ? 4 : 2 + test_random_below(random, 4);
    const uint64_t x[] = {b.tokens, channels}, weight[] = {channels, width},
                   state[] = {b.slots, channels, width - 1}, last[] = {b.count, channels, width - 1};
    const bool biased = draw_there(c, random);

    c->params.ssm_conv.activation = draw_there(c, random) ? MICA_SSM_SILU : MICA_SSM_NONE;
    add(c, random, &b, "x", true, 2, x, 2);
    add(c, random, &b, "weight", true, 2, weight, 1);
    add(c, random, &b, "bias", biased, 1, &channels, 1);
    add_state(c, random, &b, "state", b.has_state, draw_type(c, random, &b), 3, state);
    add_indices(c, random, &b);
    add(c, random, &b, "dy", true, 2, x, 1);
    add_state(c, random, &b, "dnext", b.has_dnext, draw_type(c, random, &b), 3, last);
    add_gradient(c, random, "dx", true, draw_type(c, random, &b), 2, x);
    add_gradient(c, random, "dweight", draw_there(c, random), draw_type(c, random, &b), 2, weight);
    add_gradient(c, random, "dbias", biased && draw_there(c, random), draw_type(c, random, &b), 1, &channels);
    add_gradient(c, random, "dstate", b.has_dstate, draw_type(c, random, &b), 3, last);
    c->output = CONV_DX;
    c->flops = 6.0 * (double)(b.tokens * channels * width);
}

static mica_sequences sequences_of(const conform_case *c, uint32_t state)
{
    const mica_sequences of = {.state = conform_buffer(c, state),
                               .starts = conform_buffer(c, state + 1),
                               .read_slots = conform_buffer(c, state + 2)};

    return of;
}

mica_status conform_encode_ssm_conv_backward(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = sequences_of(c, CONV_STATE);

    return mica_ssm_conv_backward(encoder, conform_buffer(c, CONV_X), conform_buffer(c, CONV_WEIGHT),
                                  conform_buffer(c, CONV_BIAS), &of, &c->params.ssm_conv,
                                  conform_buffer(c, CONV_STATE + 3), conform_buffer(c, CONV_STATE + 4),
                                  conform_buffer(c, CONV_DX), conform_buffer(c, CONV_DX + 1),
                                  conform_buffer(c, CONV_DX + 2), conform_buffer(c, CONV_DX + 3));
}

void conform_oracle_ssm_conv_backward(conform_case *c)
{
    known k = know(c, CONV_STATE);
    const oracle_conv conv = {conform_tensor(c, CONV_WEIGHT)->shape[0],
                              conform_tensor(c, CONV_WEIGHT)->shape[1],
                              k.value[CONV_X],
                              k.value[CONV_WEIGHT],
                              k.value[CONV_BIAS],
                              c->params.ssm_conv.activation == MICA_SSM_SILU};
    oracle_gradient to[ORACLE_CONV_GRADIENTS];

    want(c, CONV_DX, to);
    oracle_ssm_conv_backward(&k.of, &conv, &k.reach, to);
    forget(c, &k, CONV_DX, to);
}

/* ---- the delta rule ---- */

enum { DELTA_Q, DELTA_K, DELTA_V, DELTA_G, DELTA_BETA, DELTA_SKIP, DELTA_STATE, DELTA_DQ = DELTA_STATE + 5 };

/* The gates: g, beta and skip. */
static void add_gates(conform_case *c, test_random *random, const batch *b, uint64_t heads, uint64_t dim)
{
    const uint64_t shape[] = {b->tokens, heads, dim};

    add(c, random, b, "g", draw_there(c, random), !c->typical && test_random_one_in(random, 2) ? 3 : 2, shape,
        1);
    if (c->operand[DELTA_G].present)
        test_tensor_uniform(conform_tensor(c, DELTA_G), random, test_random_one_in(random, 5) ? -200 : -1, 0);
    add(c, random, b, "beta", draw_there(c, random), 2, shape, 1);
    if (c->operand[DELTA_BETA].present)
        test_tensor_uniform(conform_tensor(c, DELTA_BETA), random, 0, 1);
    add(c, random, b, "skip", draw_there(c, random), 1, &heads, 1);
}

void conform_make_delta_net_backward(conform_case *c, test_random *random)
{
    const batch b = draw_batch(c, random, 20);
    const uint64_t groups = c->typical ? 4 : test_random_size(random, 2),
                   heads = groups * (c->typical ? 2 : test_random_size(random, 3));
    const uint64_t dim = c->typical ? 128 : test_random_size(random, 12),
                   columns = c->typical ? 128 : test_random_size(random, 12);
    const uint64_t key[] = {b.tokens, groups, dim}, value[] = {b.tokens, heads, columns};
    const uint64_t state[] = {b.slots, heads, dim, columns}, last[] = {b.count, heads, dim, columns};
    const mica_dtype kept = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    mica_delta_params *delta = &c->params.delta;

    delta->rule = !c->typical && test_random_one_in(random, 3) ? MICA_DELTA_ADD : MICA_DELTA_CORRECT;
    delta->normalise = c->typical || delta->rule == MICA_DELTA_CORRECT;
    delta->eps = test_random_one_in(random, 2) ? 1e-6f : 0.01f;
    delta->scale = test_random_one_in(random, 2) ? 0 : 0.7f;
    add(c, random, &b, "q", true, 3, key, 1);
    add(c, random, &b, "k", true, 3, key, 1);
    add(c, random, &b, "v", true, 3, value, 1);
    add_gates(c, random, &b, heads, dim);
    add_state(c, random, &b, "state", b.has_state, kept, 4, state);
    add_indices(c, random, &b);
    add(c, random, &b, "dy", true, 3, value, 1);
    add_state(c, random, &b, "dnext", b.has_dnext, kept, 4, last);
    add_gradient(c, random, "dq", true, draw_type(c, random, &b), 3, key);
    add_gradient(c, random, "dk", true, draw_type(c, random, &b), 3, key);
    add_gradient(c, random, "dv", true, draw_type(c, random, &b), 3, value);
    for (uint32_t i = DELTA_G; i <= DELTA_SKIP; i++) {
        static const char *const names[] = {"dg", "dbeta", "dskip"};
        const test_tensor *of = conform_tensor(c, i);

        add_gradient(c, random, names[i - DELTA_G], c->operand[i].present && draw_there(c, random),
                     draw_type(c, random, &b), of->ndim, of->shape);
    }
    add_gradient(c, random, "dstate", b.has_dstate, kept, 4, last);
    c->output = DELTA_DQ;
    c->flops = 20.0 * (double)(b.tokens * heads * dim * columns);
}

mica_status conform_encode_delta_net_backward(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = sequences_of(c, DELTA_STATE);
    const mica_delta_operands operands = {conform_buffer(c, DELTA_Q),    conform_buffer(c, DELTA_K),
                                          conform_buffer(c, DELTA_V),    conform_buffer(c, DELTA_G),
                                          conform_buffer(c, DELTA_BETA), conform_buffer(c, DELTA_SKIP)};
    const mica_delta_gradients to = {conform_buffer(c, DELTA_DQ),     conform_buffer(c, DELTA_DQ + 1),
                                     conform_buffer(c, DELTA_DQ + 2), conform_buffer(c, DELTA_DQ + 3),
                                     conform_buffer(c, DELTA_DQ + 4), conform_buffer(c, DELTA_DQ + 5),
                                     conform_buffer(c, DELTA_DQ + 6)};

    return mica_delta_net_backward(encoder, &operands, &of, &c->params.delta,
                                   conform_buffer(c, DELTA_STATE + 3), conform_buffer(c, DELTA_STATE + 4),
                                   &to);
}

void conform_oracle_delta_net_backward(conform_case *c)
{
    const test_tensor *q = conform_tensor(c, DELTA_Q), *v = conform_tensor(c, DELTA_V);
    const mica_delta_params *params = &c->params.delta;
    known k = know(c, DELTA_STATE);
    const oracle_delta delta = {
        .groups = q->shape[1],
        .heads = v->shape[1],
        .dim = q->shape[2],
        .columns = v->shape[2],
        .q = k.value[DELTA_Q],
        .k = k.value[DELTA_K],
        .v = k.value[DELTA_V],
        .g = k.value[DELTA_G],
        .beta = k.value[DELTA_BETA],
        .skip = k.value[DELTA_SKIP],
        .by_row = c->operand[DELTA_G].present && conform_tensor(c, DELTA_G)->ndim == 3,
        .correct = params->rule == MICA_DELTA_CORRECT,
        .normalise = params->normalise != 0,
        .eps = params->eps,
        .scale = params->scale != 0 ? params->scale : (float)(1 / sqrt((double)q->shape[2])),
    };
    oracle_gradient to[ORACLE_DELTA_GRADIENTS];

    want(c, DELTA_DQ, to);
    oracle_delta_net_backward(&k.of, &delta, &k.reach, to);
    forget(c, &k, DELTA_DQ, to);
}

/* ---- selective scan ---- */

enum {
    SCAN_X,
    SCAN_DT,
    SCAN_A,
    SCAN_B,
    SCAN_C,
    SCAN_SKIP,
    SCAN_DT_BIAS,
    SCAN_Z,
    SCAN_STATE,
    SCAN_DX = SCAN_STATE + 5
};

void conform_make_selective_scan_backward(conform_case *c, test_random *random)
{
    const batch b = draw_batch(c, random, 12);
    const uint64_t groups = c->typical ? 1 : test_random_size(random, 3),
                   channels = c->typical ? 1024 : groups * test_random_size(random, 100 / groups);
    const uint64_t places = c->typical ? 16 : test_random_size(random, 9);
    const uint64_t x[] = {b.tokens, channels}, a[] = {channels, places}, in[] = {b.tokens, groups, places};
    const uint64_t state[] = {b.slots, channels, places}, last[] = {b.count, channels, places};
    const mica_dtype kept = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const bool skip = draw_there(c, random), bias = draw_there(c, random), gated = draw_there(c, random);

    c->params.selective.softplus = draw_there(c, random);
    add(c, random, &b, "x", true, 2, x, 1);
    add(c, random, &b, "dt", true, 2, x, 1);
    test_tensor_uniform(conform_tensor(c, SCAN_DT), random, c->params.selective.softplus ? -3 : 0, 1);
    add(c, random, &b, "a", true, 2, a, 1);
    test_tensor_uniform(conform_tensor(c, SCAN_A), random, test_random_one_in(random, 4) ? -50 : -2, 0);
    add(c, random, &b, "b", true, 3, in, 1);
    add(c, random, &b, "c", true, 3, in, 1);
    add(c, random, &b, "skip", skip, 1, &channels, 1);
    add(c, random, &b, "dt_bias", bias, 1, &channels, 1);
    if (bias) /* no decay above 1 */
        test_tensor_uniform(conform_tensor(c, SCAN_DT_BIAS), random, 0, 1);
    add(c, random, &b, "z", gated, 2, x, 2);
    add_state(c, random, &b, "state", b.has_state, kept, 3, state);
    add_indices(c, random, &b);
    add(c, random, &b, "dy", true, 2, x, 1);
    add_state(c, random, &b, "dnext", b.has_dnext, kept, 3, last);
    add_gradient(c, random, "dx", true, draw_type(c, random, &b), 2, x);
    add_gradient(c, random, "ddt", true, draw_type(c, random, &b), 2, x);
    add_gradient(c, random, "da", true, draw_type(c, random, &b), 2, a);
    add_gradient(c, random, "db", true, draw_type(c, random, &b), 3, in);
    add_gradient(c, random, "dc", true, draw_type(c, random, &b), 3, in);
    add_gradient(c, random, "dskip", skip && draw_there(c, random), draw_type(c, random, &b), 1, &channels);
    add_gradient(c, random, "ddt_bias", bias && draw_there(c, random), draw_type(c, random, &b), 1,
                 &channels);
    add_gradient(c, random, "dz", gated && draw_there(c, random), draw_type(c, random, &b), 2, x);
    add_gradient(c, random, "dstate", b.has_dstate, kept, 3, last);
    c->output = SCAN_DX;
    c->flops = 50.0 * (double)(b.tokens * channels * places);
}

mica_status conform_encode_selective_scan_backward(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = sequences_of(c, SCAN_STATE);
    const mica_selective_operands operands = {conform_buffer(c, SCAN_X),       conform_buffer(c, SCAN_DT),
                                              conform_buffer(c, SCAN_A),       conform_buffer(c, SCAN_B),
                                              conform_buffer(c, SCAN_C),       conform_buffer(c, SCAN_SKIP),
                                              conform_buffer(c, SCAN_DT_BIAS), conform_buffer(c, SCAN_Z)};
    const mica_selective_gradients to = {
        conform_buffer(c, SCAN_DX),     conform_buffer(c, SCAN_DX + 1), conform_buffer(c, SCAN_DX + 2),
        conform_buffer(c, SCAN_DX + 3), conform_buffer(c, SCAN_DX + 4), conform_buffer(c, SCAN_DX + 5),
        conform_buffer(c, SCAN_DX + 6), conform_buffer(c, SCAN_DX + 7), conform_buffer(c, SCAN_DX + 8)};

    return mica_selective_scan_backward(encoder, &operands, &of, &c->params.selective,
                                        conform_buffer(c, SCAN_STATE + 3), conform_buffer(c, SCAN_STATE + 4),
                                        &to);
}

void conform_oracle_selective_scan_backward(conform_case *c)
{
    const test_tensor *a = conform_tensor(c, SCAN_A);
    known k = know(c, SCAN_STATE);
    const oracle_selective scan = {.channels = a->shape[0],
                                   .places = a->shape[1],
                                   .groups = conform_tensor(c, SCAN_B)->shape[1],
                                   .x = k.value[SCAN_X],
                                   .dt = k.value[SCAN_DT],
                                   .a = k.value[SCAN_A],
                                   .b = k.value[SCAN_B],
                                   .c = k.value[SCAN_C],
                                   .skip = k.value[SCAN_SKIP],
                                   .dt_bias = k.value[SCAN_DT_BIAS],
                                   .z = k.value[SCAN_Z],
                                   .softplus = c->params.selective.softplus != 0};
    oracle_gradient to[ORACLE_SCAN_GRADIENTS];

    want(c, SCAN_DX, to);
    oracle_selective_scan_backward(&k.of, &scan, &k.reach, to);
    forget(c, &k, SCAN_DX, to);
}

/* ---- cells ---- */

enum { RNN_X, RNN_WEIGHT, RNN_BIAS, RNN_STATE, RNN_DX = RNN_STATE + 5 };

void conform_make_rnn_backward(conform_case *c, test_random *random)
{
    static const uint64_t gates_of[] = {1, 1, 3, 4};
    const batch b = draw_batch(c, random, 12);
    const uint32_t kind = c->typical ? MICA_RNN_LSTM : (uint32_t)test_random_below(random, 4);
    const uint64_t hidden = c->typical                      ? 256
                            : test_random_one_in(random, 6) ? 60 + test_random_below(random, 90) /* panels */
                                                            : test_random_size(random, 16),
                   rows = gates_of[kind] * hidden;
    const uint64_t rank = kind == MICA_RNN_LSTM ? 2 : 1;
    const uint64_t x[] = {b.tokens, rows}, weight[] = {rows, hidden}, y[] = {b.tokens, hidden},
                   state[] = {b.slots, rank, hidden}, last[] = {b.count, rank, hidden};
    const mica_dtype kept = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const bool biased = draw_there(c, random);

    c->params.rnn.kind = kind;
    c->params.rnn.reverse = !c->typical && test_random_one_in(random, 2);
    add(c, random, &b, "x", true, 2, x, 1);
    add(c, random, &b, "weight", true, 2, weight, 1 / sqrt((double)hidden));
    add(c, random, &b, "bias", biased, 1, &rows, 1);
    add_state(c, random, &b, "state", b.has_state, kept, 3, state);
    add_indices(c, random, &b);
    add(c, random, &b, "dy", true, 2, y, 1);
    add_state(c, random, &b, "dnext", b.has_dnext, kept, 3, last);
    add_gradient(c, random, "dx", true, draw_type(c, random, &b), 2, x);
    add_gradient(c, random, "dweight", draw_there(c, random), draw_type(c, random, &b), 2, weight);
    add_gradient(c, random, "dbias", biased && draw_there(c, random), draw_type(c, random, &b), 1, &rows);
    add_gradient(c, random, "dstate", b.has_dstate, kept, 3, last);
    c->output = RNN_DX;
    c->flops = 6.0 * (double)(b.tokens * rows * hidden);
}

mica_status conform_encode_rnn_backward(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = sequences_of(c, RNN_STATE);

    return mica_rnn_backward(encoder, conform_buffer(c, RNN_X), conform_buffer(c, RNN_WEIGHT),
                             conform_buffer(c, RNN_BIAS), &of, &c->params.rnn,
                             conform_buffer(c, RNN_STATE + 3), conform_buffer(c, RNN_STATE + 4),
                             conform_buffer(c, RNN_DX), conform_buffer(c, RNN_DX + 1),
                             conform_buffer(c, RNN_DX + 2), conform_buffer(c, RNN_DX + 3));
}

void conform_oracle_rnn_backward(conform_case *c)
{
    static const int kinds[] = {ORACLE_TANH, ORACLE_RELU, ORACLE_GRU, ORACLE_LSTM};
    const test_tensor *weight = conform_tensor(c, RNN_WEIGHT);
    known k = know(c, RNN_STATE);
    const oracle_rnn rnn = {.hidden = weight->shape[1],
                            .gates = weight->shape[0] / weight->shape[1],
                            .x = k.value[RNN_X],
                            .weight = k.value[RNN_WEIGHT],
                            .bias = k.value[RNN_BIAS],
                            .kind = kinds[c->params.rnn.kind],
                            .reverse = c->params.rnn.reverse != 0};
    oracle_gradient to[ORACLE_RNN_GRADIENTS];

    want(c, RNN_DX, to);
    oracle_rnn_backward(&k.of, &rnn, &k.reach, to);
    forget(c, &k, RNN_DX, to);
}
