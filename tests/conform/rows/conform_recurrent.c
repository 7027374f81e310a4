/*
 * conform_recurrent.c - cases of ops that carry a state from token to token: even and packed batches, sequences without tokens, tokens without a
 * sequence, slots in any order, starts and slots that lead outside.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"
#include "oracle/oracle_recurrent.h"

enum { CONV_X, CONV_WEIGHT, CONV_BIAS, CONV_STATE, CONV_Y = CONV_STATE + 4, CONV_NEXT };
enum {
    DELTA_Q,
    DELTA_K,
    DELTA_V,
    DELTA_G,
    DELTA_BETA,
    DELTA_SKIP,
    DELTA_STATE,
    DELTA_Y = DELTA_STATE + 4,
    DELTA_NEXT
};
enum {
    SELECTIVE_X,
    SELECTIVE_DT,
    SELECTIVE_A,
    SELECTIVE_B,
    SELECTIVE_C,
    SELECTIVE_SKIP,
    SELECTIVE_DT_BIAS,
    SELECTIVE_Z,
    SELECTIVE_STATE,
    SELECTIVE_Y = SELECTIVE_STATE + 4,
    SELECTIVE_NEXT
};
enum { RNN_X, RNN_WEIGHT, RNN_BIAS, RNN_STATE, RNN_Y = RNN_STATE + 4, RNN_NEXT };
/* Behind the state of each op. */
enum { STARTS = 1, READ_SLOTS, WRITE_SLOTS };

/* How a batch is split. */
typedef struct batch {
    uint64_t count, tokens;
    uint64_t state_slots, next_slots;
    bool has_starts, has_state, has_next, has_read, has_write;
    bool wide; /* f64 */
} batch;

static batch draw_batch(const conform_case *c, test_random *random, uint64_t most)
{
    batch b = {
        .count = 64, .tokens = 64, .state_slots = 64, .next_slots = 64, .has_state = true, .has_next = true};

    if (c->typical)
        return b;
    b.wide = !conform_kernels && test_random_one_in(random, 4);
    b.count = test_random_size(random, 5);
    b.has_starts = test_random_one_in(random, 2);
    b.has_state = !test_random_one_in(random, 4);
    b.has_next = !test_random_one_in(random, 4);
    b.has_read = b.has_state && test_random_one_in(random, 3);
    b.has_write = b.has_next && test_random_one_in(random, 3);
    if (!b.has_starts && !b.has_read && !b.has_write && !b.has_state && !b.has_next)
        b.count = 1;
    b.tokens = b.has_starts ? 1 + test_random_below(random, most)
                            : b.count * test_random_size(random, 1 + most / b.count);
    b.state_slots = b.count + (b.has_read || b.has_starts ? test_random_below(random, 3) : 0);
    b.next_slots = b.count + (b.has_write || b.has_read || b.has_starts ? test_random_below(random, 3) : 0);
    if (!b.has_starts && !b.has_read && b.has_write)
        b.state_slots = b.count;
    return b;
}

static mica_dtype draw_type(const conform_case *c, test_random *random, const batch *b)
{
    return c->typical ? MICA_DTYPE_F32 : b->wide ? MICA_DTYPE_F64 : conform_float(random);
}

/* Starts in order, with tokens of nobody before and behind now and then; some sequences are empty. */
static void draw_starts(test_tensor *starts, test_random *random, const batch *b)
{
    uint64_t at = test_random_one_in(random, 3) ? test_random_below(random, b->tokens) : 0;

    for (uint64_t n = 0; n <= b->count; n++) {
        test_tensor_set(starts, n, (double)at);
        at += test_random_below(random, (b->tokens - at) / (n + 1 < b->count ? 2 : 1) + 1);
        if (n + 1 == b->count && test_random_one_in(random, 2))
            at = b->tokens;
    }
}

/* Different slots. */
static void draw_slots(test_tensor *slots, test_random *random, uint64_t count, uint64_t below)
{
    const uint64_t first = test_random_below(random, below);

    for (uint64_t n = 0; n < count; n++)
        test_tensor_set(slots, n, (double)((first + (below - n)) % below));
}

/* The three index operands behind the state. */
static void add_indices(conform_case *c, test_random *random, const batch *b)
{
    const uint64_t starts = b->count + 1;

    if (b->has_starts) {
        conform_add(c, random, "starts", conform_index(random), 1, &starts, TEST_ANY);
        draw_starts(conform_tensor(c, c->operand_count - 1), random, b);
    } else {
        conform_add_absent(c);
    }
    if (b->has_read) {
        conform_add(c, random, "read_slots", conform_index(random), 1, &b->count, TEST_ANY);
        test_tensor_indices(conform_tensor(c, c->operand_count - 1), random, b->state_slots);
    } else {
        conform_add_absent(c);
    }
    if (b->has_write) {
        conform_add(c, random, "write_slots", conform_index(random), 1, &b->count, TEST_ANY);
        draw_slots(conform_tensor(c, c->operand_count - 1), random, b->count, b->next_slots);
    } else {
        conform_add_absent(c);
    }
}

/* One index leads outside: the end of the last sequence, or the slot of one. */
static void break_index(conform_case *c, test_random *random, uint32_t state, const batch *b)
{
    const uint32_t slot = state + STARTS + (uint32_t)test_random_below(random, 3);

    if (c->typical || !test_random_one_in(random, 6) || !c->operand[slot].present)
        return;
    test_tensor *t = conform_tensor(c, slot);
    const double outside = t->dtype == MICA_DTYPE_I32 && test_random_one_in(random, 2)
                               ? -1
                               : (double)(b->tokens + b->state_slots + b->next_slots + 1);
    test_tensor_set(t, slot == state + STARTS ? b->count : test_random_below(random, b->count), outside);
    c->wanted = MICA_ERR_FAULT;
}

static void add_next(conform_case *c, test_random *random, const batch *b, uint32_t y, mica_dtype dtype,
                     uint32_t ndim, const uint64_t *shape, test_layout layout)
{
    if (b->has_next) {
        conform_add_output(c, random, "next_state", dtype, ndim, shape, layout, false, 0);
        test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
    } else {
        conform_add_absent(c);
    }
    c->output = y;
    for (uint32_t i = 0; i < c->operand_count; i++)
        c->bytes += c->operand[i].present ? conform_bytes(c, i) : 0;
}

static double *values_of(conform_case *c, uint32_t slot)
{
    return c->operand[slot].present ? conform_values(c, slot) : NULL;
}

/* What the oracle knows of the batch; owns what it points to. */
static oracle_sequences sequences_of(conform_case *c, uint32_t state, uint32_t y)
{
    const uint32_t next = y + 1;
    oracle_sequences of = {.tokens = conform_tensor(c, y)->shape[0], .count = 1};

    of.state = values_of(c, state);
    of.starts = values_of(c, state + STARTS);
    of.read_slots = values_of(c, state + READ_SLOTS);
    of.write_slots = values_of(c, state + WRITE_SLOTS);
    of.state_slots = of.state ? conform_tensor(c, state)->shape[0] : 0;
    of.next_slots = c->operand[next].present ? conform_tensor(c, next)->shape[0] : 0;
    of.count = of.starts        ? conform_tensor(c, state + STARTS)->shape[0] - 1
               : of.read_slots  ? conform_tensor(c, state + READ_SLOTS)->shape[0]
               : of.write_slots ? conform_tensor(c, state + WRITE_SLOTS)->shape[0]
               : of.state       ? of.state_slots
               : of.next_slots  ? of.next_slots
                                : 1;
    if (of.next_slots > 0) {
        double *before = conform_values(c, next);

        conform_expect_also(c, next, &of.next, &of.next_error);
        for (uint64_t i = 0; i < conform_tensor(c, next)->count; i++)
            of.next[i] = before[i];
        free(before);
    }
    return of;
}

/* f64 rounds by so much less, and the oracle as well, which is in f64 itself. */
static void end_sequences(conform_case *c, oracle_sequences *of, uint32_t y)
{
    const bool wide = conform_tensor(c, y)->dtype == MICA_DTYPE_F64;

    for (uint64_t i = 0; wide && i < conform_tensor(c, y)->count; i++)
        c->error[i] *= c->error[i] > 0 ? 2 * 0x1p-29 : 1;
    for (uint64_t i = 0; wide && of->next && i < conform_tensor(c, y + 1)->count; i++)
        of->next_error[i] *= of->next_error[i] > 0 ? 2 * 0x1p-29 : 1;
    free((void *)(uintptr_t)of->state);
    free((void *)(uintptr_t)of->starts);
    free((void *)(uintptr_t)of->read_slots);
    free((void *)(uintptr_t)of->write_slots);
}

static mica_sequences buffers_of(const conform_case *c, uint32_t state, uint32_t y)
{
    const mica_sequences of = {conform_buffer(c, state), conform_buffer(c, state + STARTS),
                               conform_buffer(c, state + READ_SLOTS), conform_buffer(c, state + WRITE_SLOTS),
                               conform_buffer(c, y + 1)};

    return of;
}

/* Now and then a NaN or an infinity. */
static void add_odd(const conform_case *c, test_tensor *x, test_random *random, bool infinite)
{
    if (!c->typical && x->count > 0 && test_random_one_in(random, 6))
        test_tensor_set(x, test_random_below(random, x->count),
                        infinite && test_random_one_in(random, 2) ? (double)INFINITY : (double)NAN);
}

/* ---- convolution ---- */

void conform_make_ssm_conv(conform_case *c, test_random *random)
{
    batch b = draw_batch(c, random, 45);
    const uint64_t channels = c->typical ? 8192 : test_random_size(random, 300),
                   width = c->typical ? 4 : test_random_size(random, 6);
    const uint64_t x[] = {b.tokens, channels}, weight[] = {channels, width},
                   state[] = {b.state_slots, channels, width - 1},
                   next[] = {b.next_slots, channels, width - 1};

    if (width == 1) { /* a state without elements is none */
        b.has_state = b.has_next = b.has_read = b.has_write = false;
        b.count = b.has_starts ? b.count : 1;
    }
    c->params.ssm_conv.activation =
        c->typical || test_random_one_in(random, 2) ? MICA_SSM_SILU : MICA_SSM_NONE;
    conform_add(c, random, "x", draw_type(c, random, &b), 2, x, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, CONV_X), random, 2);
    add_odd(c, conform_tensor(c, CONV_X), random, true);
    conform_add(c, random, "weight", draw_type(c, random, &b), 2, weight, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, CONV_WEIGHT), random, 1);
    if (c->typical || test_random_one_in(random, 2)) {
        conform_add(c, random, "bias", draw_type(c, random, &b), 1, &channels, TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, CONV_BIAS), random, 1);
    } else {
        conform_add_absent(c);
    }
    if (b.has_state) {
        conform_add(c, random, "state", draw_type(c, random, &b), 3, state, TEST_ANY);
        test_tensor_normal(conform_tensor(c, CONV_STATE), random, 2);
    } else {
        conform_add_absent(c);
    }
    add_indices(c, random, &b);
    conform_add_output(c, random, "y", draw_type(c, random, &b), 2, x, TEST_ROWS, false, 0);
    add_next(c, random, &b, CONV_Y, draw_type(c, random, &b), 3, next, TEST_ANY);
    break_index(c, random, CONV_STATE, &b);
    c->flops = 2.0 * (double)(b.tokens * channels * width);
}

mica_status conform_encode_ssm_conv(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = buffers_of(c, CONV_STATE, CONV_Y);

    return mica_ssm_conv(encoder, conform_buffer(c, CONV_X), conform_buffer(c, CONV_WEIGHT),
                         conform_buffer(c, CONV_BIAS), &of, &c->params.ssm_conv, conform_buffer(c, CONV_Y));
}

void conform_oracle_ssm_conv(conform_case *c)
{
    double *x = conform_values(c, CONV_X), *weight = conform_values(c, CONV_WEIGHT),
           *bias = values_of(c, CONV_BIAS);
    const test_tensor *filters = conform_tensor(c, CONV_WEIGHT);
    const oracle_conv conv = {filters->shape[0],
                              filters->shape[1],
                              x,
                              weight,
                              bias,
                              c->params.ssm_conv.activation == MICA_SSM_SILU};
    oracle_sequences of = sequences_of(c, CONV_STATE, CONV_Y);

    oracle_ssm_conv(&of, &conv, c->expected, c->error);
    end_sequences(c, &of, CONV_Y);
    free(x);
    free(weight);
    free(bias);
}

/* ---- the delta rule ---- */

static uint64_t draw_dim(const conform_case *c, test_random *random)
{
    static const uint64_t round[] = {32, 64, 128};

    if (c->typical)
        return 128;
    if (test_random_one_in(random, 10)) /* so long that the cpu takes chunks by itself */
        return 200;
    return test_random_one_in(random, 3) ? round[test_random_below(random, 3)] : test_random_size(random, 70);
}

/* Keys and values whose rows are whole pieces of 16 bytes of any type, most of them as long as models have them. */
static uint64_t draw_pieces(const conform_case *c, test_random *random)
{
    const uint64_t some = 8 * (1 + test_random_below(random, 16));

    return c->typical ? 128 : test_random_one_in(random, 3) ? some : some > 64 ? 128 : 64;
}

static void add_head_operand(conform_case *c, test_random *random, const char *name, const batch *b,
                             uint64_t heads, double low, double high)
{
    const uint64_t shape[] = {b->tokens, heads};

    if (!c->typical && test_random_one_in(random, 5)) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, name, draw_type(c, random, b), 2, shape, TEST_REPEAT);
    test_tensor_uniform(conform_tensor(c, c->operand_count - 1), random, low, high);
}

/* `tiles`: what a GPU with matrix units copies and multiplies as it is. */
static void add_delta(conform_case *c, test_random *random, batch b, bool tiles)
{
    const uint64_t groups = c->typical ? 16 : test_random_size(random, tiles ? 2 : 3),
                   heads = groups * (c->typical ? 2 : test_random_size(random, tiles ? 2 : 3));
    const bool longer =
        !tiles && !c->typical && test_random_one_in(random, 16); /* than what registers of a GPU hold */
    const uint64_t dim = longer  ? 1025 + test_random_below(random, 60)
                         : tiles ? draw_pieces(c, random)
                                 : draw_dim(c, random),
                   columns = longer  ? test_random_size(random, 5)
                             : tiles ? draw_pieces(c, random)
                                     : draw_dim(c, random);
    const test_layout layout = tiles ? TEST_ALIGNED : TEST_ROWS_REPEAT;
    const uint64_t key[] = {b.tokens, groups, dim}, value[] = {b.tokens, heads, columns};
    const uint64_t state[] = {b.state_slots, heads, dim, columns},
                   next[] = {b.next_slots, heads, dim, columns};
    const mica_dtype kept = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    mica_delta_params *delta = &c->params.delta;

    delta->rule = !c->typical && test_random_one_in(random, 3) ? MICA_DELTA_ADD : MICA_DELTA_CORRECT;
    delta->form = c->typical                               ? MICA_DELTA_AUTO
                  : tiles || test_random_one_in(random, 2) ? MICA_DELTA_CHUNKED
                                                           : (uint32_t)test_random_below(random, 2);
    delta->normalise = c->typical || delta->rule == MICA_DELTA_CORRECT;
    delta->eps = test_random_one_in(random, 2) ? 1e-6f : 0.01f;
    delta->scale = test_random_one_in(random, 2) ? 0 : 0.7f;
    for (uint32_t i = 0; i < 2; i++) {
        conform_add(c, random, i == 0 ? "q" : "k", draw_type(c, random, &b), 3, key, layout);
        test_tensor_normal(conform_tensor(c, i), random, 1);
    }
    conform_add(c, random, "v", draw_type(c, random, &b), 3, value, layout);
    test_tensor_normal(conform_tensor(c, DELTA_V), random, 1);
    add_odd(c, conform_tensor(c, DELTA_V), random, false);
    if (delta->form != MICA_DELTA_CHUNKED && !c->typical && test_random_one_in(random, 3)) {
        const uint64_t rows[] = {b.tokens, heads, dim};

        conform_add(c, random, "g", draw_type(c, random, &b), 3, rows, TEST_REPEAT);
        test_tensor_uniform(conform_tensor(c, DELTA_G), random, test_random_one_in(random, 5) ? -200 : -1, 0);
    } else {
        add_head_operand(c, random, "g", &b, heads, test_random_one_in(random, 5) ? -200 : -1, 0);
    }
    add_head_operand(c, random, "beta", &b, heads, 0, 1);
    if (!c->typical && test_random_one_in(random, 2)) {
        conform_add(c, random, "skip", draw_type(c, random, &b), 1, &heads, TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, DELTA_SKIP), random, 1);
    } else {
        conform_add_absent(c);
    }
    if (b.has_state) {
        conform_add(c, random, "state", kept, 4, state, TEST_ROWS);
        test_tensor_normal(conform_tensor(c, DELTA_STATE), random, 0.3);
    } else {
        conform_add_absent(c);
    }
    add_indices(c, random, &b);
    conform_add_output(c, random, "y", draw_type(c, random, &b), 3, value, TEST_ROWS, false, 0);
    add_next(c, random, &b, DELTA_Y, kept, 4, next, TEST_ROWS);
    break_index(c, random, DELTA_STATE, &b);
    c->flops = 6.0 * (double)(b.tokens * heads * dim * columns);
}

void conform_make_delta_net(conform_case *c, test_random *random)
{
    add_delta(c, random, draw_batch(c, random, test_random_one_in(random, 3) ? 150 : 20), false);
}

void conform_make_delta_tiles(conform_case *c, test_random *random)
{
    batch b = draw_batch(c, random, test_random_one_in(random, 3) ? 70 : 250);

    b.wide = false;
    add_delta(c, random, b, true);
    if (!c->typical && c->operand[DELTA_G].present && test_random_one_in(random, 3)) { /* all is forgotten */
        test_tensor *g = conform_tensor(c, DELTA_G);

        test_tensor_set(g, test_random_below(random, g->count), -(double)INFINITY);
    }
}

mica_status conform_encode_delta_net(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = buffers_of(c, DELTA_STATE, DELTA_Y);
    const mica_delta_operands operands = {conform_buffer(c, DELTA_Q),    conform_buffer(c, DELTA_K),
                                          conform_buffer(c, DELTA_V),    conform_buffer(c, DELTA_G),
                                          conform_buffer(c, DELTA_BETA), conform_buffer(c, DELTA_SKIP)};

    return mica_delta_net(encoder, &operands, &of, &c->params.delta, conform_buffer(c, DELTA_Y));
}

void conform_oracle_delta_net(conform_case *c)
{
    const test_tensor *q = conform_tensor(c, DELTA_Q), *v = conform_tensor(c, DELTA_V);
    const mica_delta_params *params = &c->params.delta;
    double *value[DELTA_STATE];
    oracle_sequences of = sequences_of(c, DELTA_STATE, DELTA_Y);

    for (uint32_t i = 0; i < DELTA_STATE; i++)
        value[i] = values_of(c, i);
    const oracle_delta delta = {
        .groups = q->shape[1],
        .heads = v->shape[1],
        .dim = q->shape[2],
        .columns = v->shape[2],
        .q = value[DELTA_Q],
        .k = value[DELTA_K],
        .v = value[DELTA_V],
        .g = value[DELTA_G],
        .beta = value[DELTA_BETA],
        .skip = value[DELTA_SKIP],
        .by_row = c->operand[DELTA_G].present && conform_tensor(c, DELTA_G)->ndim == 3,
        .correct = params->rule == MICA_DELTA_CORRECT,
        .normalise = params->normalise != 0,
        .tokenwise = params->form != MICA_DELTA_CHUNKED,
        .chunked = params->form != MICA_DELTA_SEQUENTIAL,
        .eps = params->eps,
        .scale = params->scale != 0 ? params->scale : (float)(1 / sqrt((double)q->shape[2])),
    };
    oracle_delta_net(&of, &delta, c->expected, c->error);
    end_sequences(c, &of, DELTA_Y);
    for (uint32_t i = 0; i < DELTA_STATE; i++)
        free(value[i]);
}

/* ---- selective scan ---- */

static void add_channels(conform_case *c, test_random *random, const char *name, const batch *b,
                         uint64_t channels)
{
    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, name, draw_type(c, random, b), 1, &channels, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
}

void conform_make_selective_scan(conform_case *c, test_random *random)
{
    const batch b = draw_batch(c, random, 20);
    const bool longer = !c->typical && test_random_one_in(random, 12); /* than what registers of a GPU hold */
    const uint64_t groups = c->typical ? 1 : test_random_size(random, 3),
                   channels =
                       c->typical ? 5120 : groups * test_random_size(random, (longer ? 9 : 150) / groups);
    const uint64_t places = longer ? 257 + test_random_below(random, 50)
                            : c->typical || test_random_one_in(random, 3) ? 16
                                                                          : test_random_size(random, 20);
    const uint64_t x[] = {b.tokens, channels}, a[] = {channels, places}, in[] = {b.tokens, groups, places};
    const uint64_t state[] = {b.state_slots, channels, places}, next[] = {b.next_slots, channels, places};
    const mica_dtype kept = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;

    c->params.selective.softplus = c->typical || test_random_one_in(random, 2);
    conform_add(c, random, "x", draw_type(c, random, &b), 2, x, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, SELECTIVE_X), random, 1);
    add_odd(c, conform_tensor(c, SELECTIVE_X), random, false);
    conform_add(c, random, "dt", draw_type(c, random, &b), 2, x, TEST_ROWS_REPEAT);
    test_tensor_uniform(conform_tensor(c, SELECTIVE_DT), random, c->params.selective.softplus ? -3 : 0, 1);
    conform_add(c, random, "a", draw_type(c, random, &b), 2, a, TEST_REPEAT);
    test_tensor_uniform(conform_tensor(c, SELECTIVE_A), random, test_random_one_in(random, 4) ? -100 : -2, 0);
    for (uint32_t i = 0; i < 2; i++) {
        conform_add(c, random, i == 0 ? "b" : "c", draw_type(c, random, &b), 3, in, TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, SELECTIVE_B + i), random, 1);
    }
    add_channels(c, random, "skip", &b, channels);
    add_channels(c, random, "dt_bias", &b, channels);
    if (c->operand[SELECTIVE_DT_BIAS].present) /* no decay above 1 */
        test_tensor_uniform(conform_tensor(c, SELECTIVE_DT_BIAS), random, 0, 1);
    if (c->typical || test_random_one_in(random, 2)) {
        conform_add(c, random, "z", draw_type(c, random, &b), 2, x, TEST_ROWS_REPEAT);
        test_tensor_normal(conform_tensor(c, SELECTIVE_Z), random, 2);
    } else {
        conform_add_absent(c);
    }
    if (b.has_state) {
        conform_add(c, random, "state", kept, 3, state, TEST_ANY);
        test_tensor_normal(conform_tensor(c, SELECTIVE_STATE), random, 1);
    } else {
        conform_add_absent(c);
    }
    add_indices(c, random, &b);
    conform_add_output(c, random, "y", draw_type(c, random, &b), 2, x, TEST_ROWS, false, 0);
    add_next(c, random, &b, SELECTIVE_Y, kept, 3, next, TEST_ANY);
    break_index(c, random, SELECTIVE_STATE, &b);
    c->flops = 18.0 * (double)(b.tokens * channels * places);
}

mica_status conform_encode_selective_scan(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = buffers_of(c, SELECTIVE_STATE, SELECTIVE_Y);
    const mica_selective_operands operands = {
        conform_buffer(c, SELECTIVE_X),       conform_buffer(c, SELECTIVE_DT),
        conform_buffer(c, SELECTIVE_A),       conform_buffer(c, SELECTIVE_B),
        conform_buffer(c, SELECTIVE_C),       conform_buffer(c, SELECTIVE_SKIP),
        conform_buffer(c, SELECTIVE_DT_BIAS), conform_buffer(c, SELECTIVE_Z)};

    return mica_selective_scan(encoder, &operands, &of, &c->params.selective, conform_buffer(c, SELECTIVE_Y));
}

void conform_oracle_selective_scan(conform_case *c)
{
    const test_tensor *a = conform_tensor(c, SELECTIVE_A);
    double *value[SELECTIVE_STATE];
    oracle_sequences of = sequences_of(c, SELECTIVE_STATE, SELECTIVE_Y);

    for (uint32_t i = 0; i < SELECTIVE_STATE; i++)
        value[i] = values_of(c, i);
    const oracle_selective scan = {.channels = a->shape[0],
                                   .places = a->shape[1],
                                   .groups = conform_tensor(c, SELECTIVE_B)->shape[1],
                                   .x = value[SELECTIVE_X],
                                   .dt = value[SELECTIVE_DT],
                                   .a = value[SELECTIVE_A],
                                   .b = value[SELECTIVE_B],
                                   .c = value[SELECTIVE_C],
                                   .skip = value[SELECTIVE_SKIP],
                                   .dt_bias = value[SELECTIVE_DT_BIAS],
                                   .z = value[SELECTIVE_Z],
                                   .softplus = c->params.selective.softplus != 0};
    oracle_selective_scan(&of, &scan, c->expected, c->error);
    end_sequences(c, &of, SELECTIVE_Y);
    for (uint32_t i = 0; i < SELECTIVE_STATE; i++)
        free(value[i]);
}

/* ---- cells ---- */

/* Weights of about 1 / hidden: errors neither grow nor vanish from token to token. */
void conform_make_rnn(conform_case *c, test_random *random)
{
    static const uint64_t gates_of[] = {1, 1, 3, 4};
    const batch b = draw_batch(c, random, 20);
    const uint32_t kind = c->typical ? MICA_RNN_LSTM : (uint32_t)test_random_below(random, 4);
    const uint64_t hidden = c->typical ? 512 : draw_dim(c, random), rows = gates_of[kind] * hidden;
    const uint64_t kept = kind == MICA_RNN_LSTM ? 2 : 1;
    const uint64_t x[] = {b.tokens, rows}, weight[] = {rows, hidden}, y[] = {b.tokens, hidden},
                   state[] = {b.state_slots, kept, hidden}, next[] = {b.next_slots, kept, hidden};
    const mica_dtype wide = b.wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32;

    c->params.rnn.kind = kind;
    c->params.rnn.reverse = !c->typical && test_random_one_in(random, 2);
    conform_add(c, random, "x", draw_type(c, random, &b), 2, x, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, RNN_X), random, 2);
    add_odd(c, conform_tensor(c, RNN_X), random, kind != MICA_RNN_RELU);
    conform_add(c, random, "weight", draw_type(c, random, &b), 2, weight, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, RNN_WEIGHT), random, 1.0 / (double)hidden);
    if (c->typical || test_random_one_in(random, 2)) {
        conform_add(c, random, "bias", draw_type(c, random, &b), 1, &rows, TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, RNN_BIAS), random, 1);
    } else {
        conform_add_absent(c);
    }
    if (b.has_state) {
        conform_add(c, random, "state", wide, 3, state, TEST_ROWS);
        test_tensor_normal(conform_tensor(c, RNN_STATE), random, 1);
    } else {
        conform_add_absent(c);
    }
    add_indices(c, random, &b);
    conform_add_output(c, random, "y", draw_type(c, random, &b), 2, y, TEST_ROWS, false, 0);
    add_next(c, random, &b, RNN_Y, wide, 3, next, TEST_ROWS);
    break_index(c, random, RNN_STATE, &b);
    c->flops = 2.0 * (double)(b.tokens * rows * hidden);
}

mica_status conform_encode_rnn(const conform_case *c, mica_encoder *encoder)
{
    const mica_sequences of = buffers_of(c, RNN_STATE, RNN_Y);

    return mica_rnn(encoder, conform_buffer(c, RNN_X), conform_buffer(c, RNN_WEIGHT),
                    conform_buffer(c, RNN_BIAS), &of, &c->params.rnn, conform_buffer(c, RNN_Y));
}

void conform_oracle_rnn(conform_case *c)
{
    static const int kinds[] = {ORACLE_TANH, ORACLE_RELU, ORACLE_GRU, ORACLE_LSTM};
    const test_tensor *weight = conform_tensor(c, RNN_WEIGHT);
    double *value[RNN_STATE];
    oracle_sequences of = sequences_of(c, RNN_STATE, RNN_Y);

    for (uint32_t i = 0; i < RNN_STATE; i++)
        value[i] = values_of(c, i);
    const oracle_rnn rnn = {.hidden = weight->shape[1],
                            .gates = weight->shape[0] / weight->shape[1],
                            .x = value[RNN_X],
                            .weight = value[RNN_WEIGHT],
                            .bias = value[RNN_BIAS],
                            .kind = kinds[c->params.rnn.kind],
                            .reverse = c->params.rnn.reverse != 0};
    oracle_rnn_run(&of, &rnn, c->expected, c->error);
    end_sequences(c, &of, RNN_Y);
    for (uint32_t i = 0; i < RNN_STATE; i++)
        free(value[i]);
}
