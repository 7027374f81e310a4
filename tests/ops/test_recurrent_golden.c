/*
 * test_recurrent_golden.c - recurrences against what transformers and PyTorch gave (scripts/golden_recurrent.py): the gated delta rule, token by token
 * and in chunks, Mamba 2 from its projected input to its gated norm, the scan of Mamba 1, recurrent cells in both directions. On every device
 * that there is. And gradients of the delta rule and of cells, on the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"
#include "support/tensor.h"

enum { ARRAYS = 12, NAME = 32 };

typedef struct array {
    char name[NAME];
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS], count;
    float *value;
} array;

typedef struct golden {
    array array[ARRAYS];
    uint32_t count;
} golden;

/* The arrays of the case of that name. */
static golden read_case(const char *name)
{
    FILE *file = fopen("tests/golden/recurrent.txt", "rb");
    golden g = {.count = 0};
    char word[NAME], label[NAME];
    bool here = false;

    assert_non_null(file);
    while (fscanf(file, "%31s", word) == 1) {
        if (strcmp(word, "case") == 0 && fscanf(file, "%31s", label) == 1)
            here = strcmp(label, name) == 0;
        if (strcmp(word, "array") != 0)
            continue;
        array a = {.count = 1};
        assert_int_equal(fscanf(file, "%31s %u", a.name, &a.ndim), 2);
        assert_in_range(a.ndim, 1, MICA_MAX_DIMS);
        for (uint32_t d = 0; d < a.ndim; d++) {
            unsigned long long size;
            assert_int_equal(fscanf(file, "%llu", &size), 1);
            a.shape[d] = size;
            a.count *= size;
        }
        a.value = test_alloc(a.count, sizeof *a.value);
        for (uint64_t i = 0; i < a.count; i++)
            assert_int_equal(fscanf(file, "%f", &a.value[i]), 1);
        if (here && g.count < ARRAYS)
            g.array[g.count++] = a;
        else
            free(a.value);
    }
    fclose(file);
    assert_true(g.count > 0);
    return g;
}

static void free_case(golden *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        free(g->array[i].value);
}

static const array *find(const golden *g, const char *name)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (strcmp(g->array[i].name, name) == 0)
            return &g->array[i];
    fail_msg("%s is not there", name);
    return NULL;
}

static mica_buffer *empty(mica_device *device, const array *a)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, a->ndim, a->shape, &buffer));
    return buffer;
}

static mica_buffer *sent(mica_device *device, const golden *g, const char *name)
{
    const array *a = find(g, name);
    mica_buffer *buffer = empty(device, a);

    must(mica_buffer_write(buffer, 0, a->value, a->count * sizeof *a->value));
    return buffer;
}

/* Both sides are sums in f32 in an order of their own: a few hundred roundings of numbers of about 1. */
static void holds(mica_buffer *buffer, const golden *g, const char *name)
{
    const array *a = find(g, name);
    float *got = test_alloc(a->count, sizeof *got);

    must(mica_buffer_read(buffer, 0, got, a->count * sizeof *got));
    for (uint64_t i = 0; i < a->count; i++)
        if (!(fabs((double)got[i] - (double)a->value[i]) <= 2e-5 * (1 + fabs((double)a->value[i]))))
            fail_msg("%s: element %llu is %g, not %g", name, (unsigned long long)i, (double)got[i],
                     (double)a->value[i]);
    free(got);
}

static mica_device *open_device(int i)
{
    static const char *const names[] = {"cpu", "opencl", "cuda"};
    mica_device *device = NULL;

    if (mica_device_open(names[i], NULL, &device) != MICA_OK)
        assert_true(i > 0);
    return device;
}

static void run_delta(mica_device *device, const golden *g, mica_delta_form form)
{
    mica_buffer *q = sent(device, g, "q"), *k = sent(device, g, "k"), *v = sent(device, g, "v"),
                *decay = sent(device, g, "g"), *beta = sent(device, g, "beta"),
                *state = sent(device, g, "state"), *y = empty(device, find(g, "y")),
                *next = empty(device, find(g, "next_state"));
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_delta_net(encoder, &(mica_delta_operands){.q = q, .k = k, .v = v, .g = decay, .beta = beta},
                        &(mica_sequences){.state = state, .next_state = next},
                        &(mica_delta_params){.normalise = 1, .eps = 1e-6f, .form = form}, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    holds(y, g, "y");
    holds(next, g, "next_state");
    mica_buffer *const all[] = {q, k, v, decay, beta, state, y, next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_delta(void **state)
{
    golden token = read_case("delta"), chunk = read_case("delta_chunk");

    (void)state;
    for (int i = 0; i < 3; i++) {
        mica_device *device = open_device(i);
        if (device == NULL)
            continue;
        for (mica_delta_form form = MICA_DELTA_AUTO; form <= MICA_DELTA_CHUNKED; form++) {
            run_delta(device, &token, form);
            run_delta(device, &chunk, form);
        }
        mica_device_release(device);
    }
    free_case(&token);
    free_case(&chunk);
}

/* Columns [first, first + heads * dim) of x [T, ..] as [T, heads, dim]. */
static mica_buffer *heads_of(mica_buffer *x, uint64_t tokens, uint64_t width, uint64_t first, uint64_t heads,
                             uint64_t dim)
{
    const uint64_t shape[] = {tokens, heads, dim}, stride[] = {width * 4, dim * 4, 4};
    mica_buffer *view = NULL;

    must(mica_buffer_view(x, MICA_DTYPE_F32, 3, shape, stride, first * 4, &view));
    return view;
}

enum {
    TOKENS = 10,
    HEADS = 4,
    DIM = 8,
    GROUPS = 2,
    STATES = 6,
    INNER = HEADS * DIM,
    WIDTH = INNER + 2 * GROUPS * STATES
};

static void run_mamba2(mica_device *device, const golden *g, mica_delta_form form)
{
    mica_buffer *x = sent(device, g, "x"), *a = sent(device, g, "a"), *weight = sent(device, g, "weight"),
                *bias = sent(device, g, "bias"), *a_log = sent(device, g, "a_log"),
                *dt_bias = sent(device, g, "dt_bias"), *skip = sent(device, g, "skip"),
                *mixed = empty(device, find(g, "x")), *decay = empty(device, find(g, "a")),
                *dt = empty(device, find(g, "a")), *y = empty(device, find(g, "y"));
    mica_buffer *v = heads_of(mixed, TOKENS, WIDTH, 0, HEADS, DIM),
                *b = heads_of(mixed, TOKENS, WIDTH, INNER, GROUPS, STATES),
                *c = heads_of(mixed, TOKENS, WIDTH, INNER + GROUPS * STATES, GROUPS, STATES),
                *out = heads_of(y, TOKENS, INNER, 0, HEADS, DIM);
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_ssm_conv(encoder, x, weight, bias, NULL, &(mica_ssm_conv_params){MICA_SSM_SILU}, mixed));
    must(mica_ssm_gates(encoder, a, a_log, dt_bias, decay, dt));
    must(mica_delta_net(encoder,
                        &(mica_delta_operands){.q = c, .k = b, .v = v, .g = decay, .beta = dt, .skip = skip},
                        NULL, &(mica_delta_params){.rule = MICA_DELTA_ADD, .scale = 1, .form = form}, out));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    holds(y, g, "y");
    mica_buffer *const all[] = {x, a, weight, bias, a_log, dt_bias, skip, mixed, decay, dt, y, v, b, c, out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_mamba2(void **state)
{
    golden g = read_case("mamba2");

    (void)state;
    for (int i = 0; i < 3; i++) {
        mica_device *device = open_device(i);
        if (device == NULL)
            continue;
        for (mica_delta_form form = MICA_DELTA_AUTO; form <= MICA_DELTA_CHUNKED; form++)
            run_mamba2(device, &g, form);
        mica_device_release(device);
    }
    free_case(&g);
}

static void run_mamba1(mica_device *device, const golden *g)
{
    static const char *const names[] = {"x", "dt", "a", "b", "c", "skip", "dt_bias", "z"};
    mica_buffer *in[8], *y = empty(device, find(g, "y"));
    mica_encoder *encoder;

    for (int i = 0; i < 8; i++)
        in[i] = sent(device, g, names[i]);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_selective_scan(
        encoder, &(mica_selective_operands){in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7]}, NULL,
        &(mica_selective_params){.softplus = 1}, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    holds(y, g, "y");
    for (int i = 0; i < 8; i++)
        mica_buffer_release(in[i]);
    mica_buffer_release(y);
}

static void test_mamba1(void **state)
{
    golden g = read_case("mamba1");

    (void)state;
    for (int i = 0; i < 3; i++) {
        mica_device *device = open_device(i);
        if (device == NULL)
            continue;
        run_mamba1(device, &g);
        mica_device_release(device);
    }
    free_case(&g);
}

/* One direction: the arrays whose names end in `tail`. */
static void run_cells(mica_device *device, const golden *g, mica_rnn_kind kind, bool reverse)
{
    static const char *const names[2][6] = {
        {"x", "weight", "bias", "state", "y", "next_state"},
        {"x_back", "weight_back", "bias_back", "state_back", "y_back", "next_state_back"}};
    const char *const *name = names[reverse];
    mica_buffer *b[6];
    mica_encoder *encoder;

    for (int i = 0; i < 6; i++)
        b[i] = i < 4 ? sent(device, g, name[i]) : empty(device, find(g, name[i]));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_rnn(encoder, b[0], b[1], b[2], &(mica_sequences){.state = b[3], .next_state = b[5]},
                  &(mica_rnn_params){.kind = (uint32_t)kind, .reverse = reverse}, b[4]));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    holds(b[4], g, name[4]);
    holds(b[5], g, name[5]);
    for (int i = 0; i < 6; i++)
        mica_buffer_release(b[i]);
}

static void test_cells(void **state)
{
    static const char *const names[] = {"rnn_tanh", "rnn_relu", "gru", "lstm"};

    (void)state;
    for (uint32_t kind = MICA_RNN_TANH; kind <= MICA_RNN_LSTM; kind++) {
        golden g = read_case(names[kind]);

        for (int i = 0; i < 3; i++) {
            mica_device *device = open_device(i);
            if (device == NULL)
                continue;
            run_cells(device, &g, (mica_rnn_kind)kind, false);
            run_cells(device, &g, (mica_rnn_kind)kind, true);
            mica_device_release(device);
        }
        free_case(&g);
    }
}

static void test_delta_gradients(void **state)
{
    static const char *const outputs[] = {"dq", "dk", "dv", "dg", "dbeta", "dstate"};
    golden g = read_case("delta_gradients"), of = read_case("delta_gradients_of");
    mica_device *device = open_device(0);
    mica_buffer *q = sent(device, &g, "q"), *k = sent(device, &g, "k"), *v = sent(device, &g, "v"),
                *decay = sent(device, &g, "g"), *beta = sent(device, &g, "beta"),
                *begin = sent(device, &g, "state"), *dy = sent(device, &g, "dy"), *d[6];
    mica_encoder *encoder;

    (void)state;
    for (int i = 0; i < 6; i++)
        d[i] = empty(device, find(&of, outputs[i]));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_delta_net_backward(
        encoder, &(mica_delta_operands){.q = q, .k = k, .v = v, .g = decay, .beta = beta},
        &(mica_sequences){.state = begin}, &(mica_delta_params){.normalise = 1, .eps = 1e-6f}, dy, NULL,
        &(mica_delta_gradients){d[0], d[1], d[2], d[3], d[4], NULL, d[5]}));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (int i = 0; i < 6; i++) {
        holds(d[i], &of, outputs[i]);
        mica_buffer_release(d[i]);
    }
    mica_buffer *const all[] = {q, k, v, decay, beta, begin, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    mica_device_release(device);
    free_case(&g);
    free_case(&of);
}

/* What reaches the inputs, as the weights and biases of the product before the cells see it. */
static void check_inputs(mica_buffer *dx, const golden *g)
{
    const array *inputs = find(g, "inputs"), *weight = find(g, "dweight_ih"), *bias = find(g, "dbias_ih");
    const uint64_t tokens = inputs->shape[0], width = inputs->shape[1], rows = bias->count;
    float *d = test_alloc(tokens * rows, sizeof *d);

    must(mica_buffer_read(dx, 0, d, tokens * rows * sizeof *d));
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i <= width; i++) { /* the last is the bias */
            double sum = 0;
            const double wanted = (double)(i < width ? weight->value[r * width + i] : bias->value[r]);

            for (uint64_t t = 0; t < tokens; t++)
                sum += (double)d[t * rows + r] * (i < width ? (double)inputs->value[t * width + i] : 1);
            if (!(fabs(sum - wanted) <= 2e-5 * (1 + fabs(wanted))))
                fail_msg("row %llu, input %llu: %g, not %g", (unsigned long long)r, (unsigned long long)i,
                         sum, wanted);
        }
    free(d);
}

static void test_cell_gradients(void **state)
{
    static const struct {
        const char *name;
        mica_rnn_kind kind;
    } cases[] = {{"tanh_gradients", MICA_RNN_TANH},
                 {"gru_gradients", MICA_RNN_GRU},
                 {"lstm_gradients", MICA_RNN_LSTM}};
    mica_device *device = open_device(0);

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        golden g = read_case(cases[c].name);
        mica_buffer *x = sent(device, &g, "x"), *weight = sent(device, &g, "weight"),
                    *bias = sent(device, &g, "bias"), *begin = sent(device, &g, "state"),
                    *dy = sent(device, &g, "dy"), *dnext = sent(device, &g, "dnext"),
                    *dx = empty(device, find(&g, "x")), *dweight = empty(device, find(&g, "dweight")),
                    *dbias = empty(device, find(&g, "dbias")), *dstate = empty(device, find(&g, "dstate"));
        mica_encoder *encoder;

        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_rnn_backward(encoder, x, weight, bias, &(mica_sequences){.state = begin},
                               &(mica_rnn_params){.kind = (uint32_t)cases[c].kind}, dy, dnext, dx, dweight,
                               dbias, dstate));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        check_inputs(dx, &g);
        holds(dweight, &g, "dweight");
        holds(dbias, &g, "dbias");
        holds(dstate, &g, "dstate");
        mica_buffer *const all[] = {x, weight, bias, begin, dy, dnext, dx, dweight, dbias, dstate};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
        free_case(&g);
    }
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta),           cmocka_unit_test(test_mamba2),
        cmocka_unit_test(test_mamba1),          cmocka_unit_test(test_cells),
        cmocka_unit_test(test_delta_gradients), cmocka_unit_test(test_cell_gradients)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
