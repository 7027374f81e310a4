/*
 * test_recurrent_backward.c - gradients of ops that carry a state against differences of their forward passes, in double on the cpu: every element of every
 * operand. And what they refuse.
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
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { INPUTS = 9, STEPS = 4 };

typedef struct operand {
    uint32_t ndim;
    uint64_t shape[4];
    double low, high;
} operand;

/* An op and its gradient: the inputs of both are the same, states last; then the op has three lists that are not there, y and the next states, its gradient two
 * of them, what reaches these, and the gradients of all inputs. */
typedef struct pair {
    const char *name;
    mica_op forward, backward;
    const void *params;
    uint32_t inputs;
    operand input[INPUTS], y, next;
} pair;

static uint64_t count_of(const operand *o)
{
    uint64_t count = o->ndim > 0 ? 1 : 0;

    for (uint32_t d = 0; d < o->ndim; d++)
        count *= o->shape[d];
    return count;
}

/* A buffer of such a shape with these numbers, or without; NULL where the operand is absent. */
static mica_buffer *upload(const operand *o, const double *values)
{
    mica_buffer *buffer = NULL;

    if (o->ndim == 0)
        return NULL;
    must(mica_buffer_alloc(devices[0], MICA_DTYPE_F64, o->ndim, o->shape, &buffer));
    if (values != NULL)
        must(mica_buffer_write(buffer, 0, values, count_of(o) * sizeof *values));
    return buffer;
}

static void apply(mica_op op, const void *params, mica_buffer *const *operands, uint32_t count)
{
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(devices[0], NULL, &encoder));
    must(mica_op_apply(encoder, op, params, operands, count));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* y and the next states times what reaches them. */
static double loss(const pair *p, double *const *in, const double *reach)
{
    mica_buffer *operands[INPUTS + 5] = {NULL};
    const uint64_t y = count_of(&p->y), next = count_of(&p->next);
    double *out = test_alloc(y + next, sizeof *out), sum = 0;

    for (uint32_t i = 0; i < p->inputs; i++)
        operands[i] = upload(&p->input[i], in[i]);
    operands[p->inputs + 3] = upload(&p->y, NULL);
    operands[p->inputs + 4] = upload(&p->next, NULL);
    apply(p->forward, p->params, operands, p->inputs + 5);
    must(mica_buffer_read(operands[p->inputs + 3], 0, out, y * sizeof *out));
    must(mica_buffer_read(operands[p->inputs + 4], 0, out + y, next * sizeof *out));
    for (uint64_t i = 0; i < y + next; i++)
        sum += out[i] * reach[i];
    for (uint32_t i = 0; i < p->inputs + 5; i++)
        mica_buffer_release(operands[i]);
    free(out);
    return sum;
}

static void gradients(const pair *p, double *const *in, const double *reach, double **out)
{
    mica_buffer *operands[2 * INPUTS + 4] = {NULL};
    const uint32_t at = p->inputs + 2;

    for (uint32_t i = 0; i < p->inputs; i++) {
        operands[i] = upload(&p->input[i], in[i]);
        operands[at + 2 + i] = upload(&p->input[i], NULL);
    }
    operands[at] = upload(&p->y, reach);
    operands[at + 1] = upload(&p->next, reach + count_of(&p->y));
    apply(p->backward, p->params, operands, at + 2 + p->inputs);
    for (uint32_t i = 0; i < p->inputs; i++)
        if (operands[at + 2 + i] != NULL)
            must(mica_buffer_read(operands[at + 2 + i], 0, out[i], count_of(&p->input[i]) * sizeof *out[i]));
    for (uint32_t i = 0; i < at + 2 + p->inputs; i++)
        mica_buffer_release(operands[i]);
}

/* Over two steps, whose first error cancels: what is left is of the fourth power of the step. */
static double slope(const pair *p, double *const *in, const double *reach, double *at)
{
    const double x = *at, step = 2e-3;
    double part[STEPS];

    for (int k = 0; k < STEPS; k++) {
        *at = x + (k % 2 == 0 ? 1 : -1) * (k < 2 ? step : step / 2);
        part[k] = loss(p, in, reach);
    }
    *at = x;
    return (4 * (part[2] - part[3]) / step - (part[0] - part[1]) / (2 * step)) / 3;
}

static void check(const pair *p, test_random *random)
{
    double *in[INPUTS], *got[INPUTS];
    const uint64_t reached = count_of(&p->y) + count_of(&p->next);
    double *reach = test_alloc(reached, sizeof *reach);

    for (uint64_t i = 0; i < reached; i++)
        reach[i] = test_random_uniform(random, -1, 1);
    for (uint32_t i = 0; i < p->inputs; i++) {
        in[i] = test_alloc(count_of(&p->input[i]) + 1, sizeof *in[i]);
        got[i] = test_alloc(count_of(&p->input[i]) + 1, sizeof *got[i]);
        for (uint64_t e = 0; e < count_of(&p->input[i]); e++)
            in[i][e] = test_random_uniform(random, p->input[i].low, p->input[i].high);
    }
    gradients(p, in, reach, got);
    for (uint32_t i = 0; i < p->inputs; i++)
        for (uint64_t e = 0; e < count_of(&p->input[i]); e++) {
            const double wanted = slope(p, in, reach, &in[i][e]);

            if (!(fabs(got[i][e] - wanted) <= 1e-8 * (1 + fabs(wanted))))
                fail_msg("%s: element %llu of the gradient of input %u is %.12g, differences say %.12g",
                         p->name, (unsigned long long)e, i, got[i][e], wanted);
        }
    for (uint32_t i = 0; i < p->inputs; i++) {
        free(in[i]);
        free(got[i]);
    }
    free(reach);
}

/* Two sequences of five tokens. */
static void test_ssm_conv(void **state)
{
    static const mica_ssm_conv_params plain = {MICA_SSM_NONE}, silu = {MICA_SSM_SILU};
    test_random random = test_random_from(1);
    pair p = {"ssm_conv",
              MICA_OP_SSM_CONV,
              MICA_OP_SSM_CONV_BACKWARD,
              &plain,
              4,
              {{2, {10, 3}, -2, 2}, {2, {3, 4}, -1, 1}, {1, {3}, -1, 1}, {3, {2, 3, 3}, -1, 1}},
              {2, {10, 3}, 0, 0},
              {3, {2, 3, 3}, 0, 0}};

    (void)state;
    check(&p, &random);
    p.params = &silu;
    check(&p, &random);
}

static void test_delta_net(void **state)
{
    static const mica_delta_params delta = {.normalise = 1, .eps = 0.01f},
                                   add = {.rule = MICA_DELTA_ADD, .scale = 0.7f};
    test_random random = test_random_from(2);
    pair p = {"delta_net",
              MICA_OP_DELTA_NET,
              MICA_OP_DELTA_NET_BACKWARD,
              &delta,
              7,
              {{3, {10, 2, 3}, -1, 1},
               {3, {10, 2, 3}, -1, 1},
               {3, {10, 4, 2}, -1, 1},
               {2, {10, 4}, -1, 0},
               {2, {10, 4}, 0, 1},
               {1, {4}, -1, 1},
               {4, {2, 4, 3, 2}, -1, 1}},
              {3, {10, 4, 2}, 0, 0},
              {4, {2, 4, 3, 2}, 0, 0}};

    (void)state;
    check(&p, &random);
    p.params = &add;
    check(&p, &random);
    p.params = &delta;
    p.input[3] = (operand){3, {10, 4, 3}, -1, 0};
    check(&p, &random);
    p.input[3] = p.input[4] = p.input[5] = (operand){.ndim = 0};
    check(&p, &random);
}

static void test_selective_scan(void **state)
{
    static const mica_selective_params plain = {0}, softplus = {1};
    test_random random = test_random_from(3);
    pair p = {"selective_scan",
              MICA_OP_SELECTIVE_SCAN,
              MICA_OP_SELECTIVE_SCAN_BACKWARD,
              &softplus,
              9,
              {{2, {10, 4}, -1, 1},
               {2, {10, 4}, -1, 1},
               {2, {4, 3}, -2, 0},
               {3, {10, 2, 3}, -1, 1},
               {3, {10, 2, 3}, -1, 1},
               {1, {4}, -1, 1},
               {1, {4}, 0, 1},
               {2, {10, 4}, -2, 2},
               {3, {2, 4, 3}, -1, 1}},
              {2, {10, 4}, 0, 0},
              {3, {2, 4, 3}, 0, 0}};

    (void)state;
    check(&p, &random);
    p.params = &plain;
    check(&p, &random);
    p.input[5] = p.input[6] = p.input[7] = (operand){.ndim = 0};
    check(&p, &random);
}

/* The numbers of RELU stay away from its corner. */
static void test_rnn(void **state)
{
    static const uint64_t gates[] = {1, 1, 3, 4};
    test_random random = test_random_from(4);

    (void)state;
    for (uint32_t kind = MICA_RNN_TANH; kind <= MICA_RNN_LSTM; kind++)
        for (uint32_t reverse = 0; reverse < 2; reverse++) {
            const mica_rnn_params params = {kind, reverse};
            const bool relu = kind == MICA_RNN_RELU;
            const uint64_t rows = 3 * gates[kind], kept = kind == MICA_RNN_LSTM ? 2 : 1;
            const pair p = {"rnn",
                            MICA_OP_RNN,
                            MICA_OP_RNN_BACKWARD,
                            &params,
                            4,
                            {{2, {8, rows}, relu ? 0.1 : -1, 1},
                             {2, {rows, 3}, relu ? 0 : -1, relu ? 0.4 : 1},
                             {1, {rows}, relu ? 0 : -1, 1},
                             {3, {2, kept, 3}, relu ? 0 : -1, 1}},
                            {2, {8, 3}, 0, 0},
                            {3, {2, kept, 3}, 0, 0}};

            check(&p, &random);
        }
}

#define NEW(type, ...) fresh(MICA_DTYPE_##type, sizeof(SHAPE(__VA_ARGS__)) / 8, SHAPE(__VA_ARGS__))

static mica_buffer *kept[64];
static uint32_t kept_count;

static mica_buffer *fresh(mica_dtype dtype, size_t ndim, const uint64_t *shape)
{
    must(mica_buffer_alloc(devices[0], dtype, (uint32_t)ndim, shape, &kept[kept_count]));
    return kept[kept_count++];
}

static void test_refusals(void **state)
{
    const mica_status wrong = MICA_ERR_INVALID_ARGUMENT;
    mica_buffer *x = NEW(F32, 6, 4), *weight = NEW(F32, 4, 3), *bias = NEW(F32, 4), *last = NEW(F32, 2, 4, 2),
                *three = NEW(F32, 3, 4, 2), *wide = NEW(F64, 6, 4), *slots = NEW(U32, 2);
    mica_buffer *q = NEW(F32, 6, 1, 4), *k = NEW(F32, 6, 1, 4), *v = NEW(F32, 6, 2, 4),
                *g = NEW(F32, 6, 2, 4), *dq = NEW(F32, 6, 1, 4), *dk = NEW(F32, 6, 1, 4),
                *dv = NEW(F32, 6, 2, 4), *dg = NEW(F32, 6, 2), *dx = NEW(F32, 6, 4);
    const mica_sequences ends = {.next_state = last}, places = {.write_slots = slots};
    const mica_delta_operands operands = {q, k, v, g, NULL, NULL};
    const mica_delta_gradients to = {.dq = dq, .dk = dk, .dv = dv, .dg = dg},
                               none = {.dq = dq, .dk = dk, .dv = dv, .dskip = bias};
    const mica_delta_params chunked = {.form = MICA_DELTA_CHUNKED};
    mica_encoder *encoder = NULL;

    (void)state;
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    refused(mica_ssm_conv_backward(encoder, x, weight, NULL, &ends, NULL, x, NULL, dx, NULL, NULL, NULL),
            wrong, "next_state");
    refused(mica_ssm_conv_backward(encoder, x, weight, NULL, &places, NULL, x, NULL, dx, NULL, NULL, NULL),
            wrong, "write_slots");
    refused(mica_ssm_conv_backward(encoder, x, weight, NULL, NULL, NULL, x, NULL, dx, NULL, bias, NULL),
            wrong, "dbias is given");
    refused(mica_ssm_conv_backward(encoder, x, weight, NULL, NULL, NULL, x, last, dx, NULL, NULL, three),
            wrong, "dstate");
    refused(mica_ssm_conv_backward(encoder, x, weight, NULL, NULL, NULL, wide, NULL, dx, NULL, NULL, NULL),
            wrong, "dy is f64");
    refused(mica_delta_net_backward(encoder, &operands, NULL, NULL, v, NULL, NULL), wrong, "gradients");
    refused(mica_delta_net_backward(encoder, &operands, NULL, NULL, v, NULL, &to), wrong, "dg");
    refused(mica_delta_net_backward(encoder, &operands, NULL, NULL, v, NULL, &none), wrong, "dskip");
    refused(mica_delta_net(encoder, &operands, NULL, &chunked, dv), wrong, "params.form");
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    while (kept_count > 0)
        mica_buffer_release(kept[--kept_count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ssm_conv), cmocka_unit_test(test_delta_net),
                                       cmocka_unit_test(test_selective_scan), cmocka_unit_test(test_rnn),
                                       cmocka_unit_test(test_refusals)};

    return cmocka_run_group_tests_name("recurrent_backward", tests, open_devices, close_devices);
}
